"""package/incoming.py: raw files on the Hub as a source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.package.build import build
from banana100_bench.package.incoming import fetch, locate
from tests.fakes.hub import FakeHub
from tests.package.making import FACTS, write_raw, write_tree


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.connect(monkeypatch, tmp_path / "home")
        yield hub


def upload(hub: FakeHub, folder: Path) -> None:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    hub.add_repo("dataset", "org/raw", files)


def test_a_repository_of_raw_files(hub: FakeHub, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    upload(hub, tree)
    found = locate("hf://datasets/org/raw", None, FACTS)
    assert hub.requests("GET", "/resolve/") == []  # the list of files is enough to show what is understood
    first = found.describe().splitlines()[0]
    assert first.startswith("hf://datasets/org/raw: pattern {initial_image}/step_{round}_x.png, guessed, fits 14 of 14")
    here = fetch(found)
    assert len(hub.requests("GET", "/resolve/")) == 14
    build(here, tmp_path / "a" / "banana100")
    build(tree, tmp_path / "b" / "banana100", constants=FACTS)
    one, other = ((tmp_path / name / "banana100" / "MANIFEST.json").read_text() for name in "ab")
    assert one == other
    hub.log.clear()
    fetch(found)
    assert hub.requests("GET", "/resolve/") == []  # all is in the cache


def test_what_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    upload(hub, write_raw(tmp_path / "raw"))
    with pytest.raises(BananaError, match="org/raw: holds raw runs; download them .* and build from the folder"):
        locate("hf://datasets/org/raw")
    with pytest.raises(UsageError, match="expected hf://datasets/ORG/NAME"):
        locate("hf://org/raw")


def test_a_folder_is_found_as_ever(tmp_path: Path) -> None:
    found = locate(str(write_raw(tmp_path)))
    assert fetch(found) is found
    assert len(found.candidates) == 40
