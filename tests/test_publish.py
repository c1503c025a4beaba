"""publish.py: the real client against a local Hub, with trouble of every kind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from banana100_bench import publish
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file
from banana100_bench.package.build import build
from banana100_bench.publish import push
from banana100_bench.verify import verify
from tests.fakes.hub import FakeHub
from tests.package import making

ID = "org/banana100"
KEYS = "data/object/key-00000-of-00001.parquet"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    build(making.write_raw(folder / "raw"), folder / "banana100")
    return folder / "banana100"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.connect(monkeypatch, tmp_path / "home")
        for module in ("huggingface_hub.utils._http", "huggingface_hub.file_download", "banana100_bench.publish"):
            monkeypatch.setattr(f"{module}.time", SimpleNamespace(sleep=lambda seconds: None, time=time.time))
        yield hub


def local(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): sha256_file(p) for p in folder.rglob("*") if p.is_file()}


def remote(hub: FakeHub, revision: str = "main") -> dict[str, str]:
    files = hub.repo("dataset", ID).files(revision)
    return {name: file.sha256 for name, file in files.items() if name != ".gitattributes"}


def quiet(line: str) -> None:
    pass


def test_a_new_repository(dataset: Path, hub: FakeHub) -> None:
    said: list[str] = []
    done = push(dataset, ID, private=True, tag="v1.0", say=said.append)
    size = sum(path.stat().st_size for path in dataset.rglob("*") if path.is_file()) / 1e6
    assert said[0].splitlines()[0] == (
        f"to {ID}, to be created, private: send 15 files, {size:.1f} MB; delete 0; leave 0 as they are"
    )
    assert said[1] == "then tag it v1.0"
    assert done.startswith(f"{ID}: revision main holds banana100, fingerprint ")
    assert remote(hub) == remote(hub, "v1.0") == local(dataset)
    assert hub.repo("dataset", ID).private
    assert verify(ID).faults == []


def test_only_what_changed_is_sent_and_what_is_not_ours_stays(dataset: Path, hub: FakeHub, tmp_path: Path) -> None:
    push(dataset, ID, say=quiet)
    head = hub.repo("dataset", ID).resolve().oid
    hub.log.clear()
    push(dataset, ID, say=quiet)
    assert hub.repo("dataset", ID).resolve().oid == head
    assert hub.requests("PUT") == hub.requests("POST", "/commit/") == []

    hub.repo("dataset", ID).commit({"notes.md": b"by hand"})
    raw = making.write_raw(tmp_path / "raw")
    shutil.rmtree(raw / "runs" / "cross_model_replication__comb__simulated__rep0")
    build(raw, tmp_path / "banana100")
    said: list[str] = []
    push(tmp_path / "banana100", ID, say=said.append)
    assert "delete 2; leave 7 as they are" in said[0]
    assert "  - data/more_models/key-00000-of-00001.parquet" in said[0]
    assert remote(hub) == local(tmp_path / "banana100") | {"notes.md": remote(hub)["notes.md"]}


def test_dry_run_and_refusals_do_nothing(dataset: Path, hub: FakeHub, tmp_path: Path) -> None:
    assert push(dataset, ID, dry_run=True, say=quiet) == "nothing was done"
    copy = shutil.copytree(dataset, tmp_path / "copy")
    (copy / "loader.py").write_text("import os")
    (copy / KEYS).unlink()
    with pytest.raises(BananaError, match=r"does not verify, .* published: .*key.*missing; loader.py: an orphan"):
        push(copy, ID, say=quiet)
    with pytest.raises(UsageError, match="banana100: expected ORG/NAME"):
        push(dataset, "banana100", say=quiet)
    with pytest.raises(UsageError, match="no such repository, so no pull request to it"):
        push(dataset, ID, create_pr=True, say=quiet)
    assert hub.repos == {}


def test_bytes_that_changed_since_the_build_are_not_sent(dataset: Path, hub: FakeHub, tmp_path: Path) -> None:
    copy = shutil.copytree(dataset, tmp_path / "copy")
    data = bytearray((copy / KEYS).read_bytes())
    data[data.index(b"IDAT") + 40] ^= 1
    (copy / KEYS).write_bytes(data)
    with pytest.raises(BananaError, match=r"key-00000-of-00001\.parquet: its bytes are not those of the manifest"):
        push(copy, ID, say=quiet)
    assert remote(hub) == {}


def test_a_pull_request_is_opened_once(dataset: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = hub.add_repo("dataset", ID)
    monkeypatch.setenv("HF_TOKEN", hub.add_token("hf_stranger", "stranger"))
    with pytest.raises(BananaError, match=r"^org/banana100: 403: .*; the token may not do this$"):
        push(dataset, ID, say=quiet)
    hub.fail("POST", "/commit/", times=99, status=500)
    with pytest.raises(BananaError, match=r"^org/banana100: 500: "):
        push(dataset, ID, create_pr=True, say=quiet)
    hub.faults.clear()
    assert "revision refs/pr/1" in push(dataset, ID, create_pr=True, say=quiet)
    assert [discussion.num for discussion in repo.discussions] == [1]
    assert remote(hub, "refs/pr/1") == local(dataset)
    assert remote(hub) == {}


def test_a_tag_is_never_moved(dataset: Path, hub: FakeHub) -> None:
    push(dataset, ID, tag="v1", say=quiet)
    push(dataset, ID, tag="v1", say=quiet)
    hub.repo("dataset", ID).commit({"notes.md": b"x"})
    with pytest.raises(BananaError, match="tag v1 is there, on another state; a tag is never moved"):
        push(dataset, ID, tag="v1", say=quiet)


TROUBLE: dict[str, Callable[[FakeHub], object]] = {
    "conflict": lambda hub: hub.fail("POST", "/commit/", status=409),
    "moved head": lambda hub: hub.fail("POST", "/commit/", status=412),
    "patience": lambda hub: hub.fail("POST", "/commit/", times=2, status=429, retry_after=1),
    "server error": lambda hub: hub.fail("POST", "/commit/", times=2, status=500),
    "upload fails": lambda hub: hub.fail("PUT", "", times=2, status=500),
    "upload dropped": lambda hub: hub.drop("PUT", "", times=2),
    "half an upload": lambda hub: hub.truncate("PUT", ""),
    "commit dropped": lambda hub: hub.drop("POST", "/commit/"),
    "answer to the commit lost": lambda hub: hub.drop("POST", "/commit/", when="after"),
    "list dropped": lambda hub: hub.drop("GET", "/tree/", when="halfway"),
}


@pytest.mark.parametrize("kind", TROUBLE)
def test_trouble_that_passes(dataset: Path, hub: FakeHub, kind: str) -> None:
    hub.add_repo("dataset", ID)
    fault = TROUBLE[kind](hub)
    push(dataset, ID, say=quiet)
    assert fault.count > 0
    assert remote(hub) == local(dataset)
    assert len([one for one in hub.repo("dataset", ID).commits.values() if one.title.startswith("banana100:")]) == 1


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "401: .*; the token is not valid"), (403, "403: .*; the token may not do this"), (500, "500: ")],
)
def test_trouble_that_stays_gets_one_line(dataset: Path, hub: FakeHub, status: int, said: str) -> None:
    hub.add_repo("dataset", ID)
    fault = hub.fail("POST", "/commit/", times=99, status=status)
    with pytest.raises(BananaError, match=f"^org/banana100: {said}") as caught:
        push(dataset, ID, say=quiet)
    assert "\n" not in str(caught.value)
    assert fault.count == (publish.TRIES if status == 500 else 1)
    assert remote(hub) == {}


PUSHES = """
import os, random, signal, sys, time
import pyarrow.parquet, datasets, huggingface_hub.hf_api
from banana100_bench.publish import push
random.seed(1)
deaths = 0
for moment in [random.uniform(0, 0.6) for _ in range(20)] + [None]:
    if not (child := os.fork()):
        push(*sys.argv[1:], say=lambda line: None)
        os._exit(0)
    if moment is not None:
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
    deaths += os.WIFSIGNALED(os.waitpid(child, 0)[1])
print(deaths)
"""


def test_killed_at_twenty_random_moments(dataset: Path, tmp_path: Path) -> None:
    with FakeHub() as hub:
        repo = hub.add_repo("dataset", ID)
        call = [sys.executable, "-c", PUSHES, dataset, ID]
        environment = {**os.environ, **hub.env(tmp_path)}
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) >= 5
        assert remote(hub) == local(dataset)
        commits = [one for one in repo.commits.values() if one.title.startswith("banana100:")]
        assert len(commits) == 1  # all of it or nothing, and never twice
