"""package/layouts.py: tables that list files; package/walking.py: what is in a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file, write_bytes
from banana100_bench.package import layouts
from banana100_bench.package.build import preview
from banana100_bench.package.source import find
from banana100_bench.package.walking import walk
from tests.package.making import FACTS, picture

RUN = "add_remove__plant__flux.1_kontext__rep0"


def images(folder: Path, count: int = 3) -> list[str]:
    names = [f"a/{number}.png" for number in range(count)]
    for number, name in enumerate(names):
        write_bytes(folder / name, picture(number))
    return names


def csv_of(rows: list[dict[str, object]], path: Path) -> None:
    lines = [",".join(rows[0]), *(",".join("" if v is None else str(v) for v in row.values()) for row in rows)]
    path.write_text("\n".join(lines))


WRITERS: dict[str, Callable[[list[dict[str, object]], Path], None]] = {
    "csv": csv_of,
    "jsonl": lambda rows, path: path.write_text("\n".join(map(json.dumps, rows))) and None,
    "parquet": lambda rows, path: pq.write_table(pa.Table.from_pylist(rows), path),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_table_tells_the_facts(tmp_path: Path, kind: str) -> None:
    rows: list[dict[str, object]] = [
        {"file_name": name, "initial_image": "Plant", "step": number, "seed": None if number < 2 else 9, "note": "x"}
        for number, name in enumerate(images(tmp_path))
    ]
    WRITERS[kind](rows, tmp_path / f"list.{kind}")
    source = find(tmp_path / f"list.{kind}", None, FACTS)
    assert [one.image_id for one in source.candidates] == ["initial__plant", f"{RUN}__round001", f"{RUN}__round002"]
    assert [one.facts.get("seed") for one in source.candidates] == [None, None, 9]
    assert source.candidates[1].facts["editor"] == "flux.1_kontext"
    assert source.says == f"table list.{kind}" + ("" if kind == "parquet" else "; columns not read: note")
    assert source.unused == []
    assert not preview(source).tally.faults


def test_a_table_may_tell_the_bytes(tmp_path: Path) -> None:
    names = images(tmp_path)
    rows: list[dict[str, object]] = [
        {"path": name, "initial_image": "plant", "round": number, "sha256": sha256_file(tmp_path / name).upper()}
        for number, name in enumerate(names)
    ]
    write_bytes(tmp_path / names[2], picture(9))
    csv_of([*rows, {**rows[0], "path": "a/gone.png", "round": 3}], tmp_path / "list.csv")
    faults = {fault.file: fault.problem for fault in preview(find(tmp_path / "list.csv", None, FACTS)).tally.faults}
    assert faults.keys() == {"a/2.png", "a/gone.png"}
    assert faults["a/2.png"].startswith("SHA-256 ")
    assert faults["a/gone.png"] == "cannot read a/gone.png: No such file or directory"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../secret.png", "leads out of the table's folder"),
        ("a/../../secret.png", "leads out of the table's folder"),
        ("/etc/passwd", "leads out of the table's folder"),
        ("..\\secret.png", "leads out of the table's folder"),
        ("a/0.png", "row 2: a/0.png stands there twice"),
        ("./a/0.png", "row 2: a/0.png stands there twice"),
        ("", "row 2: no file named; expected a column file_name, file, path, image"),
    ],
)
def test_paths_that_a_table_must_not_hold(tmp_path: Path, name: str, said: str) -> None:
    images(tmp_path / "in", 1)
    write_bytes(tmp_path / "secret.png", picture(1))
    rows: list[dict[str, object]] = [{"file": "a/0.png", "round": 1}, {"file": name, "round": 2}]
    csv_of(rows, tmp_path / "in" / "list.csv")
    with pytest.raises(BananaError, match=said.replace(".", r"\.")):
        find(tmp_path / "in" / "list.csv", None, FACTS | {"initial_image": "a"})


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("a.csv", b"", "lists no file"),
        ("a.csv", b"\xff\xfe\x00", "not a readable CSV table"),
        ("a.jsonl", b"{", "not a readable JSONL table"),
        ("a.jsonl", b"[1]\n", r"expected an object on each line, found '\[1\]"),
        ("a.jsonl", b"[" * 100_000, "not a readable JSONL table"),
        ("a.parquet", b"PAR1", "not a readable PARQUET table"),
        ("a.csv", b"file,round\nx.png,many\n", "x.png: round=many: .*valid integer"),
        ("a.csv", b"file,setting\nx.png,seed\n", "x.png: round: not told; give it, as round=1"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, file: str, content: bytes, said: str) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(BananaError, match=said) as caught:
        find(tmp_path / file, None, FACTS | {"initial_image": "a"})
    assert "\n" not in str(caught.value)


def test_a_table_takes_no_pattern_and_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("file,round\nx.png,1\ny.png,2\n")
    with pytest.raises(UsageError, match=r"a\.csv: a table lists its files; a pattern is for a folder"):
        find(tmp_path / "a.csv", "{round}.png")
    monkeypatch.setattr(layouts, "MAX_TABLE_ROWS", 1)
    with pytest.raises(BananaError, match="more than 1 rows"):
        find(tmp_path / "a.csv", None, FACTS | {"initial_image": "a"})
    monkeypatch.setattr(layouts, "MAX_TABLE_BYTES", 10)
    with pytest.raises(BananaError, match="27 bytes, above the limit of 10"):
        find(tmp_path / "a.csv", None, FACTS)


def test_a_very_long_name_in_a_table_is_a_fault(tmp_path: Path) -> None:
    name = "x" * 300 + ".png"
    csv_of([{"file": images(tmp_path, 1)[0], "round": 1}, {"file": name, "round": 2}], tmp_path / "list.csv")
    (fault,) = preview(find(tmp_path / "list.csv", None, FACTS | {"initial_image": "a"})).tally.faults
    assert fault.problem.endswith(": File name too long")


# walking


def test_walk_leaves_hidden_files_out(tmp_path: Path) -> None:
    for name in ("b/c.png", "a.png", ".git/x", "b/.DS_Store"):
        write_bytes(tmp_path / name, b"12345")
    files = walk(tmp_path)
    assert list(files) == ["a.png", "b/c.png"]
    assert files["a.png"].size == 5
    assert files["a.png"].changed == (tmp_path / "a.png").stat().st_mtime_ns


def snapshot_of(folder: Path) -> Path:
    """A snapshot as in the Hub's cache, of one file."""
    cache = folder / "datasets--org--name"
    write_bytes(cache / "blobs" / "abc", picture(1))
    snapshot = cache / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "1.png").symlink_to("../../blobs/abc")
    return snapshot


def test_a_snapshot_of_the_cache_links_to_its_blobs(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path)
    assert [(name, file.path) for name, file in walk(snapshot).items()] == [
        ("1.png", snapshot.parents[1] / "blobs" / "abc")
    ]
    rows = preview(find(snapshot, "{round}.png", FACTS | {"initial_image": "a"})).tally.rows
    assert [row.sha256 for row in rows] == [sha256_file(snapshot / "1.png")]


@pytest.mark.parametrize("target", ["../../../secret", "../../blobs", "../../refs/main", "absent"])
def test_other_links_in_a_snapshot_are_refused(tmp_path: Path, target: str) -> None:
    snapshot = snapshot_of(tmp_path)
    write_bytes(tmp_path / "secret", picture(2))
    write_bytes(tmp_path / "datasets--org--name" / "refs" / "main", picture(2))
    (snapshot / "2.png").symlink_to(target)
    with pytest.raises(BananaError, match=r"2\.png: a symbolic link"):
        walk(snapshot)


def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    images(tmp_path, 2)
    os.rename(os.fsencode(tmp_path / "a"), os.fsencode(tmp_path) + b"/\xff\x1b")
    source = find(tmp_path, "{_}/{round}.png", FACTS | {"initial_image": "a"})
    assert [one.name for one in source.candidates] == [r"\udcff\x1b/0.png", r"\udcff\x1b/1.png"]
    assert len(preview(source).tally.rows) == 2
    assert source.describe().encode().isascii()
    with pytest.raises(BananaError, match=r"^\\udcff\\x1b/0\.png: initial image ''"):
        find(tmp_path, "{initial_image}/{round}.png", FACTS)
