"""data.py: selecting rows, reading only what is needed, and believing nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
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
from tests.fakes.hub import FakeHub
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


def refuse(folder: Path | str, message: str, **selection: Any) -> None:
    with pytest.raises(BananaError, match=message) as caught:
        list(open_data(folder, **selection).images())
    assert "\n" not in str(caught.value)


def test_the_key_rounds_are_what_is_opened(raw: Path, dataset: Path) -> None:
    selection = open_data(dataset)
    made = {row.image_id: (row, path) for row, path in making.images(raw)}
    wanted = sorted((row for row, _ in made.values() if row.round in (1, 5, 10, 20)), key=row_order)
    assert selection.rows == wanted
    assert len(selection) == 10
    assert (selection.name, selection.simulated, str(selection.storage)) == ("banana100", True, str(dataset))
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
        ({"rounds": "key"}, "rounds 'key': expected a list of whole numbers, or None for all"),
        ({"rounds": 5}, "rounds 5: expected a list of whole numbers"),
        ({"rounds": ["1"]}, r"rounds \['1'\]: expected a list of whole numbers"),
        ({"rounds": [True]}, r"rounds \[True\]: expected a list of whole numbers"),
        ({"repetitions": "0"}, "repetitions '0': expected a list of whole numbers"),
        ({"settings": "replication"}, "settings 'replication': expected a list of names, or None for all"),
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


def test_shuffled_is_the_order_of_the_digests_with_the_same_images(dataset: Path) -> None:
    selection = open_data(dataset, rounds=None)
    shuffled = list(selection.shuffled().images())
    assert [row.sha256 for row, _ in shuffled] == sorted(row.sha256 for row in selection.rows)
    assert sorted(shuffled, key=lambda pair: pair[0].image_id) == sorted(
        selection.images(), key=lambda pair: pair[0].image_id
    )
    assert [row.round for row, _ in shuffled] != [row.round for row in selection.rows]


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
    lacking = r"cannot read .*/data/variant/rest-00000-of-00001.parquet: No such file"
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
    refuse(copy, r"cannot read .*/metadata/test-00000-of-00001\.parquet: No such file")


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
    refuse(copy, "replication/key-00000-of-00001.parquet: row 1 has no image bytes")
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


def test_load(dataset: Path, tmp_path: Path) -> None:
    import banana100_bench

    rows = list(banana100_bench.load(dataset, "key_rounds", streaming=True))
    assert [row["round"] for row in rows][-3:] == [1, 5, 1]
    assert rows[0]["image"].size == (40, 32)
    with pytest.raises(UsageError, match="unknown config 'key_round'; did you mean key_rounds"):
        load(dataset, "key_round")
    with pytest.raises(BananaError, match="not a dataset folder"):
        load(tmp_path)
    with pytest.raises(BananaError, match="absent: no such folder; expected .* or ORG/NAME of a dataset on the Hub"):
        load("absent")
    with pytest.raises(BananaError, match="cannot be opened as a dataset: ") as caught:
        load(dataset, split="train")
    assert "\n" not in str(caught.value)


def test_load_selects(dataset: Path) -> None:
    everything = open_data(dataset, rounds=range(101))
    for streaming in (False, True):
        few = list(load(dataset, rounds=[5, 6], settings=["add_apple", "replication"], streaming=streaming))
        wanted = [row for row in everything.rows if row.round in (5, 6) and row.setting in ("add_apple", "replication")]
        assert sorted(row["image_id"] for row in few) == [row.image_id for row in wanted]
        assert few[0]["image"].size == (40, 32)
    assert load(dataset, "key_rounds", repetitions=[1])["round"][:] == [1, 5]
    assert load(dataset, "metadata", initial_images=["comb"])["image_id"][:] == [
        f"cross_model_replication__comb__simulated__rep0__round00{number}" for number in (1, 2)
    ]
    assert load(dataset, "initial", rounds=[0], settings=["mirror"])["image_id"][:] == ["initial__disc"]
    with pytest.raises(UsageError, match="nothing of config objects is selected"):
        load(dataset, "objects", settings=["mirror"])
    with pytest.raises(UsageError, match="unknown setting 'miror'; did you mean mirror"):
        load(dataset, settings=["miror"])


def test_describe(dataset: Path) -> None:
    selection = open_data(dataset, settings=["mirror"])
    first, counts, *configs, gaps, selected = selection.describe().splitlines()
    assert first.startswith(f"{dataset}: banana100, SIMULATED, fingerprint {selection.dataset_fingerprint[:12]}, ")
    assert "37 images of rounds 1 and later (28000 in the paper) in 5 runs of 4 settings; 3 initial" in counts
    assert [line.split()[:2] for line in configs][:2] == [["default", "37"], ["key_rounds", "10"]]
    assert gaps == "  gaps: 14 images missing from 1 runs; 0 unusable"
    assert "selected: 1 images of 1 runs, 0.0 MB" in selected


# On the Hub


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two runs of 20 images of 120 kB; read only."""
    folder = tmp_path_factory.mktemp("big")
    for repetition in (0, 1):
        making.write_run(folder / "raw", repetition=repetition, size=(240, 170))
    build(folder / "raw", folder / "banana100")
    return folder / "banana100"


def publish(hub: FakeHub, dataset: Path) -> None:
    files = {path.relative_to(dataset).as_posix(): path for path in dataset.rglob("*") if path.is_file()}
    hub.add_repo("dataset", "org/banana100", files)


def test_only_what_is_selected_comes_from_the_hub(
    big: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(hub, big)
    hub.connect(monkeypatch, tmp_path)
    selection = open_data("org/banana100", rounds=[3, 4], repetitions=[1])
    assert str(selection.storage) == "hf://datasets/org/banana100"
    assert selection.rows == open_data(big, rounds=[3, 4], repetitions=[1]).rows
    hub.log.clear()
    before = selection.bytes_read
    local = {row.image_id: data for row, data in open_data(big, rounds=None).images()}
    assert {row.image_id: data for row, data in selection.images()} == {
        row.image_id: local[row.image_id] for row in selection.rows
    }
    pixels = sum(row.num_bytes for row in selection.rows)
    assert selection.bytes_read - before == hub.bytes_out
    assert pixels < hub.bytes_out < pixels + 200_000  # the footer of one file
    (name,) = {request.path.partition("?")[0].rpartition("/")[2] for request in hub.requests("GET")}
    assert name == "rest-00000-of-00001.parquet"
    assert len(hub.requests("GET")) <= 3
    assert [entry.path for entry in selection.files] == ["data/replication/rest-00000-of-00001.parquet"]


def test_the_hub_is_read_as_of_one_commit(
    dataset: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(hub, dataset)
    hub.connect(monkeypatch, tmp_path)
    selection = open_data("hf://datasets/org/banana100@main")
    repo = hub.repo("dataset", "org/banana100")
    repo.commit(dict.fromkeys(name for name in repo.files() if name.startswith("data/")), "All gone")
    assert len(list(selection.images())) == 10


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("org/nothing", "hf://datasets/org/nothing: no such dataset on the Hub, or one that your token may not see"),
        ("org/banana100@v9", "hf://datasets/org/banana100@v9: no such branch, tag or commit"),
        ("org/raw", "hf://datasets/org/raw: not a dataset folder, .*: it has no MANIFEST.json"),
        ("hf://models/org/x", "expected hf://datasets/ORG/NAME"),
        ("hf://datasets/org/../x", "expected hf://datasets/ORG/NAME"),
    ],
)
def test_what_is_not_on_the_hub(
    dataset: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, said: str
) -> None:
    publish(hub, dataset)
    hub.add_repo("dataset", "org/raw", {"a.txt": b"x"})
    hub.connect(monkeypatch, tmp_path)
    refuse(source, said)


def test_a_hub_that_does_not_answer(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub.connect(monkeypatch, tmp_path)
    hub.close()
    monkeypatch.setattr("huggingface_hub.utils._http.time", SimpleNamespace(sleep=lambda seconds: None))
    refuse("org/banana100", "hf://datasets/org/banana100: the Hub cannot be reached: ")


LOADS = """
import json
from banana100_bench import load
few = load("org/banana100", rounds=[2, 3], settings=["mirror"], streaming=True)
print(json.dumps({
    "streamed": [row["image_id"] for row in few],
    "size": next(iter(few))["image"].size,
    "whole": load("org/banana100", "objects").num_rows,
    "pr": [row["round"] for row in load("org/banana100@refs/pr/1", "variants", streaming=True, columns=["round"])],
}))
"""


def test_load_from_the_hub(dataset: Path, hub: FakeHub, tmp_path: Path) -> None:
    publish(hub, dataset)
    repo = hub.repo("dataset", "org/banana100")
    repo.open_discussion("A change", "tester", pull_request=True)
    call = [sys.executable, "-c", LOADS]
    done = subprocess.run(call, env={**os.environ, **hub.env(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = "mirror__disc__simulated__rep0"
    assert json.loads(done.stdout) == {
        "streamed": [f"{run}__round002", f"{run}__round003"],
        "size": [40, 32],
        "whole": 6,
        "pr": [1, 2, 3],
    }
