"""data.py: selecting rows, reading only what is needed, and believing nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from banana100_bench import data
from banana100_bench.data import load, open_data
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file
from banana100_bench.package.build import build
from banana100_bench.package.source import row_order
from banana100_bench.records import fingerprint
from tests.package import making

METADATA = "metadata/test-00000-of-00001.parquet"
OBJECT_KEYS = "data/object/key-00000-of-00001.parquet"
REPLICATION_KEYS = "data/replication/key-00000-of-00001.parquet"


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return making.write_raw(tmp_path_factory.mktemp("raw"))


@pytest.fixture(scope="module")
def dataset(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of `raw`; read only. Small files, so that one kind of image lies in several."""
    out = tmp_path_factory.mktemp("built") / "banana100"
    build(raw, out, max_shard_bytes=20_000)
    return out


@pytest.fixture
def copy(raw: Path, tmp_path: Path) -> Path:
    """A dataset to spoil, with one file of each kind."""
    build(raw, tmp_path / "banana100")
    return tmp_path / "banana100"


def refuse(folder: Path, message: str, **selection: Any) -> None:
    with pytest.raises(BananaError, match=message) as caught:
        list(open_data(folder, **selection).images())
    assert "\n" not in str(caught.value)


def test_the_key_rounds_are_what_is_opened(raw: Path, dataset: Path) -> None:
    selection = open_data(dataset)
    made = {row.image_id: (row, path) for row, path in making.images(raw)}
    wanted = sorted((row for row, _ in made.values() if row.round in (1, 5, 10, 20)), key=row_order)
    assert selection.rows == wanted
    assert len(selection) == 10
    assert (selection.name, selection.simulated, selection.path) == ("banana100", True, dataset)
    assert selection.fingerprint == fingerprint((row.image_id, row.sha256) for row in wanted)
    assert selection.dataset_fingerprint == fingerprint((row.image_id, row.sha256) for row, _ in made.values())
    got = list(selection.images())
    assert [row for row, _ in got] == wanted
    assert all(encoded == made[row.image_id][1].read_bytes() for row, encoded in got)


def test_all_rounds_and_round_0(raw: Path, dataset: Path) -> None:
    files = {row.image_id: path for row, path in making.images(raw)}
    everything = open_data(dataset, rounds=None)
    assert len(everything) == 37
    assert min(row.round for row in everything.rows) == 1
    with_initial = open_data(dataset, rounds=range(101))
    assert len(with_initial) == 40
    assert [row.image_id for row in with_initial.rows][:3] == ["initial__comb", "initial__disc", "initial__ramp"]
    for row, encoded in with_initial.images():
        assert encoded == files[row.image_id].read_bytes()


def runs(**selection: Any) -> Callable[[Path], list[str]]:
    return lambda dataset: sorted({row.run_id.split("__sim")[0] for row in open_data(dataset, **selection).rows})


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"setting_groups": ["object", "variant"]}, ["add_apple__disc", "mirror__disc"]),
        ({"settings": ["mirror"]}, ["mirror__disc"]),
        ({"initial_images": {"disc"}}, ["add_apple__disc", "mirror__disc"]),
        ({"repetitions": [1]}, ["replication__ramp"]),
        ({"rounds": [20]}, ["replication__ramp"]),
        ({"initial_images": ["disc"], "rounds": [6]}, ["add_apple__disc"]),
    ],
)
def test_runs_are_selected(dataset: Path, selection: dict[str, Any], expected: list[str]) -> None:
    assert runs(**selection)(dataset) == expected


def test_round_0_goes_with_the_selected_runs(dataset: Path) -> None:
    selection = open_data(dataset, rounds=[0, 1], settings=["mirror"])
    assert [row.image_id for row in selection.rows] == ["initial__disc", "mirror__disc__simulated__rep0__round001"]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"settings": ["replicate"]}, "unknown setting 'replicate'; did you mean replication"),
        ({"setting_groups": ["x"]}, "unknown setting group 'x'; choices: more_models, object, replication, variant"),
        ({"initial_images": ["ramp", "dusk"]}, "unknown initial image 'dusk'; did you mean disc"),
        ({"repetitions": [4]}, "unknown repetition '4'; choices: 0, 1"),
        ({"rounds": [30, 40]}, r"no image has the rounds asked for \(30, 40\); rounds there: 1-20"),
        ({"rounds": [5], "settings": ["mirror"]}, r"asked for \(5\); rounds there: 1-3"),
        ({"rounds": []}, r"asked for \(none\)"),
    ],
)
def test_selections_that_cannot_be(dataset: Path, selection: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_data(dataset, **selection)


def test_subset(dataset: Path) -> None:
    selection = open_data(dataset, rounds=None)
    wanted = [selection.rows[index].image_id for index in (30, 2, 11, 2)]
    subset = selection.subset(wanted)
    assert [row.image_id for row in subset.rows] == [selection.rows[index].image_id for index in (2, 11, 30)]
    assert (subset.name, subset.dataset_fingerprint) == (selection.name, selection.dataset_fingerprint)
    assert subset.fingerprint == fingerprint((row.image_id, row.sha256) for row in subset.rows) != selection.fingerprint
    assert [row for row, _ in subset.images()] == subset.rows
    assert selection.subset([]).rows == list(selection.subset([]).images()) == []
    with pytest.raises(UsageError, match="unknown image 'other'"):
        selection.subset(["other"])


def test_only_the_needed_row_groups_are_read(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    true = pq.ParquetFile.read_row_groups
    monkeypatch.setattr(
        pq.ParquetFile,
        "read_row_groups",
        lambda self, groups, columns: read.append((columns, len(groups))) or true(self, groups, columns=columns),
    )
    selection = open_data(dataset, rounds=None)
    subset = selection.subset([selection.rows[-1].image_id, selection.rows[3].image_id])
    read.clear()
    assert len(list(subset.images())) == 2
    assert [groups for columns, groups in read if columns == ["image.bytes"]] == [1, 1]
    pixels = sum(row.num_bytes for row in subset.rows)
    assert pixels < subset.bytes_read < pixels + 2_500  # of 20 names, and page headers


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="no /proc/self/io on this system")
def test_only_the_needed_bytes_leave_the_disk(tmp_path: Path) -> None:
    folder = making.write_run(tmp_path / "raw", made=20)
    big, journal = making.picture(1, (400, 300)), folder / "journal.jsonl"
    for number, path in enumerate(sorted(folder.glob("*.png"))):
        old = sha256_file(path)
        path.write_bytes(big + bytes([number]))
        journal.write_text(journal.read_text().replace(old, sha256_file(path)))
    build(tmp_path / "raw", tmp_path / "out")
    selection = open_data(tmp_path / "out", rounds=None)
    before = _bytes_read_by_this_process()
    assert len(list(selection.subset([selection.rows[7].image_id]).images())) == 1
    read = _bytes_read_by_this_process() - before
    assert len(big) < read < 2 * len(big)  # the file holds sixteen


def _bytes_read_by_this_process() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def test_key_rounds_need_the_key_files_alone(copy: Path) -> None:
    for path in copy.glob("data/*/rest-*"):
        path.unlink()
    assert len(list(open_data(copy).images())) == 10
    lacking = r"image mirror__disc__simulated__rep0__round002 is not in its files data/variant/rest-\*\.parquet"
    refuse(copy, lacking, rounds=[2], settings=["mirror"])


def test_rebuilt_in_the_same_place(raw: Path, copy: Path, tmp_path: Path) -> None:
    assert len(list(open_data(copy).images())) == 10
    making.write_run(tmp_path / "other", "mirror", "comb", made=1, planned=1)
    build(tmp_path / "other", copy, overwrite=True)
    assert [row.run_id for row, _ in open_data(copy).images()] == ["mirror__comb__simulated__rep0"]


# What a stranger may hand over


def rewrite(file: Path, change: Callable[[list[dict[str, Any]]], None], drop: str | None = None) -> None:
    """Change the rows of a Parquet file."""
    table = pq.read_table(file)
    rows = table.to_pylist()
    change(rows)
    table = pa.Table.from_pylist(rows, schema=table.schema)
    pq.write_table(table.drop_columns([drop]) if drop else table, file)


def put(row: int, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda rows: rows[row].update(values)


def test_no_dataset_folder(tmp_path: Path) -> None:
    refuse(tmp_path / "absent", "absent: no such folder; expected a dataset folder, as `banana100 build` writes")
    refuse(tmp_path, "not a dataset folder, as `banana100 build` writes: it has no MANIFEST.json")


def test_manifest_that_is_wrong(copy: Path) -> None:
    manifest = json.loads((copy / "MANIFEST.json").read_text())
    for change, message in (
        ({"schema_version": 2}, "MANIFEST.json: schema_version: Input should be 1"),
        ({"name": "../x"}, "dataset name '../x'"),
        ({"extra": 1}, "extra: Extra inputs are not permitted"),
        ({"fingerprint": "0" * 64}, "its rows have fingerprint [0-9a-f]{12}, its manifest says otherwise"),
    ):
        (copy / "MANIFEST.json").write_text(json.dumps(manifest | change))
        refuse(copy, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(5, width=None), "row 5: width: Input should be a valid integer"),
        (put(5, sha256="../../etc/passwd"), "sha256 '../../etc/passwd', expected 64 of 0-9 a-f"),
        (put(5, image_id="../x"), r"\.\./x of run add_apple.*: by its columns it is add_apple__disc"),
        (put(9, initial_image="../x"), r"initial image '\.\./x': expected at most"),
        (put(0, initial_image="../x", image_id="initial__../x"), r"initial image '\.\./x': expected at most"),
        (put(9, setting_group="../.."), r"setting_group '\.\./\.\.'; choices: replication, variant"),
        (put(9, setting_group=None), "setting_group is missing"),
        (put(9, repetition=None), "repetition None, expected 0 or more"),
        (put(9, run_id=None), "of run None: by its columns"),
        (put(9, simulated=False), "simulated and real images in one dataset"),
        (put(9, round=-3), "round -3, expected 0 to 9999"),
        (lambda rows: rows.append(dict(rows[7])), "image .* stands twice in the dataset"),
        (lambda rows: rows.pop(), "manifest says otherwise"),
    ],
)
def test_rows_that_are_wrong(copy: Path, change: Callable[[list[dict[str, Any]]], None], message: str) -> None:
    rewrite(copy / METADATA, change)
    refuse(copy, message)


def test_metadata_that_lacks_columns_or_is_no_parquet(copy: Path) -> None:
    rewrite(copy / METADATA, lambda rows: None, drop="period")
    refuse(copy, "metadata/test-00000-of-00001.parquet: has no column period")
    (copy / METADATA).write_bytes(b"PAR1 nothing of the kind PAR1")
    refuse(copy, "test-00000-of-00001.parquet: not a readable Parquet file")
    (copy / METADATA).unlink()
    refuse(copy, r"has no metadata/test-\*\.parquet")


def test_more_rows_than_we_take(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "MAX_ROWS", 39)
    refuse(copy, "40 rows, above the limit of 39")
    monkeypatch.setattr(data, "MAX_ROWS", 40)
    monkeypatch.setattr(data, "MAX_BYTES", 100)
    refuse(copy, r"row group 0 holds \d+ bytes, above the limit of 100")


def test_images_that_are_not_those_of_their_rows(copy: Path) -> None:
    file = copy / REPLICATION_KEYS
    rewrite(file, put(1, image={"bytes": making.picture(1), "path": "../../x"}))
    refuse(copy, "the bytes of image replication__ramp__simulated__rep0__round005 are not those its row describes")
    rewrite(file, put(1, image={"bytes": None, "path": "../../x"}))
    refuse(copy, "image replication__ramp__simulated__rep0__round005 has no bytes")
    rewrite(file, put(1, image_id="replication__ramp__simulated__rep0__round001"))
    refuse(copy, "round001 stands twice in the dataset")
    rewrite(copy / OBJECT_KEYS, lambda rows: None, drop="image")
    refuse(copy, "object/key-00000-of-00001.parquet: has no column image.bytes")
    (copy / OBJECT_KEYS).write_bytes((copy / OBJECT_KEYS).read_bytes()[:-1000])
    refuse(copy, "object/key-00000-of-00001.parquet: not a readable Parquet file")


def test_files_that_lead_out_of_the_folder(copy: Path, tmp_path: Path) -> None:
    for name in (REPLICATION_KEYS, METADATA):
        shutil.move(copy / name, tmp_path / "outside.parquet")
        (copy / name).symlink_to(tmp_path / "outside.parquet")
        refuse(copy, "a symbolic link that leads out of the dataset folder")
        shutil.move(tmp_path / "outside.parquet", copy / name)


# load


def test_load(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import banana100_bench

    rows = list(banana100_bench.load(dataset, "key_rounds", streaming=True))
    assert [row["round"] for row in rows][-3:] == [1, 5, 1]
    assert rows[0]["image"].size == (40, 32)
    with pytest.raises(UsageError, match="unknown config 'key_round'; did you mean key_rounds"):
        load(dataset, "key_round")
    with pytest.raises(BananaError, match="not a dataset folder"):
        load(tmp_path)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(BananaError, match="absent: cannot be opened as a dataset: ") as caught:
        load("absent")
    assert "\n" not in str(caught.value)
