"""verify.py: every kind of fault, told in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from banana100_bench.files import sha256_bytes, sha256_file
from banana100_bench.package.build import build
from banana100_bench.verify import verify
from tests.fakes.hub import FakeHub
from tests.package import making

KEYS = "data/object/key-00000-of-00001.parquet"
METADATA = "metadata/test-00000-of-00001.parquet"
RUN = "add_apple__disc__simulated__rep0"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    build(making.write_raw(folder / "raw"), folder / "banana100")
    return folder / "banana100"


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "banana100")


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


def seal(folder: Path) -> None:
    """Make the manifest agree with files that were changed, as a forger would."""
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    for entry in manifest["files"]:
        path = folder / entry["path"]
        entry |= {"sha256": sha256_file(path), "bytes": path.stat().st_size}
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))


def rewrite(file: Path, change: Callable[[list[dict[str, Any]]], object], groups: int = 1) -> None:
    table = pq.read_table(file)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file, row_group_size=groups)


def test_what_we_build_is_sound(sound: Path) -> None:
    for quick in (True, False):
        checked = verify(sound, quick=quick)
        assert checked.faults == []
        assert "sound" in checked.summary()
        assert "37 SIMULATED images in 5 runs, 14 declared missing; the paper's dataset has 28000" in checked.summary()
    assert verify(sound, quick=True).bytes_read < checked.bytes_read


QUICK: list[tuple[Callable[[Path], object], str]] = [
    (lambda f: (f / KEYS).unlink(), f"{KEYS}: missing"),
    (lambda f: (f / "extra.txt").write_text("x"), "extra.txt: an orphan, which the manifest does not name"),
    (lambda f: (f / "banana100.py").write_text("x"), "banana100.py: an orphan, which the manifest does not name"),
    (lambda f: (f / "eval.yaml").write_text("x"), "eval.yaml: 1 bytes, the manifest says"),
    (lambda f: (f / "MANIFEST.json").write_text("{}"), "MANIFEST.json: name: Field required"),
    (lambda f: (f / "MANIFEST.json").unlink(), "not a dataset folder"),
    (lambda f: (f / METADATA).write_bytes(b"x" * (f / METADATA).stat().st_size), "not a readable Parquet file"),
]


@pytest.mark.parametrize(("spoil", "said"), QUICK)
def test_faults_that_a_quick_look_finds(copy: Path, spoil: Callable[[Path], object], said: str) -> None:
    spoil(copy)
    faults = verify(copy, quick=True).faults
    assert any(said in fault for fault in faults), faults
    assert "faults (quick" in verify(copy, quick=True).summary()


def test_the_schema_and_the_row_groups(copy: Path) -> None:
    table = pq.read_table(copy / KEYS)
    pq.write_table(table, copy / KEYS, row_group_size=2)
    seal(copy)
    assert verify(copy, quick=True).faults == [f"{KEYS}: 2 rows in 1 row groups, expected one each"]
    pq.write_table(table.drop_columns(["seed"]), copy / KEYS, row_group_size=1)
    seal(copy)
    assert verify(copy, quick=True).faults == [f"{KEYS}: its columns or their types are not those of a dataset"]


def change(name: str, /, **values: object) -> Callable[[list[dict[str, Any]]], object]:
    return lambda rows: [row.update(values) for row in rows if row["image_id"] == name]


def test_a_broken_chain_and_undeclared_gaps(copy: Path) -> None:
    rewrite(copy / METADATA, change(f"{RUN}__round003", parent_sha256="0" * 64))
    seal(copy)
    assert verify(copy, quick=True).faults == [f"{RUN}__round003: parent_sha256 is not the SHA-256 of round 2"]
    manifest = json.loads((copy / "MANIFEST.json").read_text())
    manifest["gaps"] = [{"run_id": RUN, "rounds": [4]}]
    manifest["counts"]["runs"] = 6
    (copy / "MANIFEST.json").write_text(json.dumps(manifest))
    assert verify(copy, quick=True).faults == [
        "metadata: 5 runs, the manifest says 6",
        f"{RUN}__round003: parent_sha256 is not the SHA-256 of round 2",
        f"{RUN}: round 4 is declared missing, but is there",
    ]
    rewrite(copy / METADATA, lambda rows: rows.remove(next(r for r in rows if r["image_id"] == f"{RUN}__round002")))
    seal(copy)
    assert f"{RUN}: rounds missing that are not declared: 2" in verify(copy, quick=True).faults
    assert "data/object/rest-*: 4 rows in the files, 3 in the metadata" in verify(copy, quick=True).faults


def test_one_byte_of_an_image(copy: Path) -> None:
    data = bytearray((copy / KEYS).read_bytes())
    data[data.index(b"IDAT") + 40] ^= 1
    (copy / KEYS).write_bytes(data)
    assert verify(copy, quick=True).faults == []
    first, second = verify(copy).faults
    assert first.startswith(f"{KEYS}: SHA-256 ")
    assert second == f"{RUN}__round001: the bytes are not those its row describes"
    seal(copy)
    assert verify(copy).faults == [second]


def test_an_image_that_cannot_be_decoded_though_all_agrees(copy: Path) -> None:
    bad = making.picture(5)
    bad = bad[: bad.index(b"IDAT") + 4] + b"\0" * 60 + bad[bad.index(b"IDAT") + 64 :]
    facts = {"sha256": sha256_bytes(bad), "num_bytes": len(bad)}
    image = f"{RUN}__round005"
    rewrite(copy / KEYS, change(image, image={"bytes": bad, "path": "x.png"}, **facts))
    rewrite(copy / METADATA, change(image, **facts))
    rewrite(copy / METADATA, change(f"{RUN}__round006", parent_sha256=facts["sha256"]))
    rewrite(copy / "data/object/rest-00000-of-00001.parquet", change(f"{RUN}__round006", parent_sha256=facts["sha256"]))
    seal(copy)
    faults = verify(copy).faults
    assert faults[0].startswith("metadata: fingerprint ")
    assert faults[1:] == [fault for fault in faults if fault.startswith(f"{image}: cannot decode the pixels")]
    assert len(faults) == 2


def test_columns_beside_the_images_and_facts_that_lie(copy: Path) -> None:
    image = f"{RUN}__round001"
    rewrite(copy / KEYS, change(image, width=41))
    seal(copy)
    assert verify(copy).faults == [f"{KEYS}: {image}: not as in the metadata: width"]
    rewrite(copy / METADATA, change(image, width=41))
    seal(copy)
    (fault,) = verify(copy).faults
    assert fault.startswith(f"{image}: width, height, format and bytes are (40, 32, 'PNG', ")


def test_on_the_hub(sound: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = {path.relative_to(sound).as_posix(): path for path in sound.rglob("*") if path.is_file()}
    repo = hub.add_repo("dataset", "org/banana100", files)
    hub.connect(monkeypatch, tmp_path)
    assert verify("hf://datasets/org/banana100").faults == []
    data = bytearray((sound / KEYS).read_bytes())
    data[data.index(b"IDAT") + 40] ^= 1
    repo.commit({KEYS: bytes(data), "stray.json": b"{}"})
    (first, second) = verify("org/banana100", quick=True).faults
    assert first.startswith(f"{KEYS}: SHA-256 ")  # which the Hub tells, so that no byte need be read
    assert second == "stray.json: an orphan, which the manifest does not name"
