"""A board's folder, and a local Hub that holds one."""

from types import SimpleNamespace

import pytest

from tests.fakes.hub import FakeHub
from tests.fakes.judged import save_rows
from tests.leaderboard.making import ROWS

BOARD = "org/banana100-leaderboard"


@pytest.fixture
def home(tmp_path):
    """The folder of a board that is just beginning."""
    home = tmp_path / "board"
    (home / "submissions").mkdir(parents=True)
    save_rows(ROWS, home / "dataset")
    return home


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with FakeHub() as hub:
        for module in ("utils._http", "file_download"):  # no waiting between the client's own tries
            monkeypatch.setattr(f"huggingface_hub.{module}.time", SimpleNamespace(sleep=lambda seconds: None))
        hub.api = hub.connect(monkeypatch, tmp_path / "home")
        hub.board = hub.add_repo("dataset", BOARD, {"README.md": b"# Board", "submissions/.gitkeep": b""})
        yield hub


@pytest.fixture
def log_in(hub, monkeypatch):
    """Be someone else from now on; `rights` as for `FakeHub.add_token`."""

    def log_in(user, **rights):
        monkeypatch.setenv("HF_TOKEN", hub.add_token(f"hf_{user}", user, **rights))

    return log_in
