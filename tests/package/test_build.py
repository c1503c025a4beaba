"""package/build.py: the whole folder, and what `datasets` makes of it."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_bytes, sha256_file, write_bytes
from banana100_bench.package.build import build
from banana100_bench.records import fingerprint
from tests.package.making import FACTS, PATTERN, images, picture, write_run, write_tree


def snapshot(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in folder.rglob("*") if path.is_file()}


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_layout_and_manifest(raw: Path, dataset: Path) -> None:
    manifest = json.loads((dataset / "MANIFEST.json").read_text())
    files = {file["path"]: file for file in manifest["files"]}
    one = "-00000-of-00001.parquet"
    assert {path: file["rows"] for path, file in files.items()} == {
        "README.md": None,
        "eval.yaml": None,
        "croissant.json": None,
        "strip.png": None,
        f"data/more_models/key{one}": 1,
        f"data/more_models/rest{one}": 1,
        f"data/object/key{one}": 2,
        f"data/object/rest{one}": 4,
        f"data/replication/key{one}": 4 + 2,
        f"data/replication/rest{one}": 16 + 4,
        f"data/variant/key{one}": 1,
        f"data/variant/rest{one}": 2,
        f"initial/test{one}": 3,
        f"metadata/test{one}": 40,
    }
    assert {path: file["sha256"] for path, file in files.items()} | {
        "MANIFEST.json": sha256_file(dataset / "MANIFEST.json")
    } == snapshot(dataset)
    assert all(file["bytes"] == (dataset / path).stat().st_size for path, file in files.items())
    assert manifest["counts"] == {"rows": 40, "images": 37, "runs": 5, "initial_images": 3, "settings": 4}
    assert manifest["fingerprint"] == fingerprint((row.image_id, row.sha256) for row, _ in images(raw))
    assert (manifest["name"], manifest["simulated"], manifest["licence"]) == ("banana100", True, "unknown")
    assert manifest["gaps"] == [{"run_id": "replication__ramp__simulated__rep1", "rounds": list(range(7, 21))}]


def test_same_input_same_bytes(raw: Path, dataset: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(raw, tmp_path / "elsewhere")
    build(copy, tmp_path / "other" / dataset.name)
    assert snapshot(tmp_path / "other" / dataset.name) == snapshot(dataset)


def test_small_shards(raw: Path, tmp_path: Path) -> None:
    build(raw, tmp_path / "out", max_shard_bytes=20_000)
    names = sorted(path.name for path in (tmp_path / "out/data/replication").glob("rest-*"))
    assert len(names) > 2
    assert names[-1] == f"rest-{len(names) - 1:05d}-of-{len(names):05d}.parquet"
    rows = [pair for name in names for pair in _ids(tmp_path / "out/data/replication" / name)]
    assert rows == sorted(rows)
    assert len(rows) == 20


def _ids(file: Path) -> list[tuple[str, int]]:
    table = pq.read_table(file, columns=["run_id", "round"])
    return list(zip(table["run_id"].to_pylist(), table["round"].to_pylist(), strict=True))


LOADS = """
import hashlib, json
from datasets import Image, get_dataset_config_names, load_dataset
names = get_dataset_config_names("banana100")
only_5 = load_dataset("banana100", split="test", streaming=True, filters=[("round", "==", 5)])
plain = load_dataset("banana100", split="test").cast_column("image", Image(decode=False))
print(json.dumps({
    "default": plain["image_id"][:],
    "bytes": {row["image_id"]: hashlib.sha256(row["image"]["bytes"]).hexdigest() for row in plain},
    "paths": {row["image_id"]: row["image"]["path"] for row in plain},
    "key_rounds": load_dataset("./banana100", "key_rounds", split="test")["round"][:],
    "counts": {name: load_dataset("banana100", name)["test"].num_rows for name in names},
    "columns": load_dataset("banana100", "metadata", split="test").column_names,
    "slice": load_dataset("banana100", "objects", split="test[1:3]")["round"][:],
    "streamed": [row["image_id"] for row in load_dataset("banana100", streaming=True, split="test")],
    "filtered": [row["round"] for row in only_5],
    "pixels": {row["image_id"]: hashlib.sha256(row["image"].convert("RGB").tobytes()).hexdigest()
               for row in load_dataset("banana100", "replication", split="test", streaming=True)},
}))
"""


def test_datasets_loads_it_by_bare_name(raw: Path, dataset: Path, tmp_path: Path) -> None:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    environment = {key: value for key, value in environment.items() if key != "HF_DATASETS_CACHE"}
    call = [sys.executable, "-c", LOADS]
    done = subprocess.run(call, cwd=dataset.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)

    made = {row.image_id: (row, path) for row, path in images(raw) if row.round}
    assert set(got["default"]) == set(got["streamed"]) == set(made)
    assert got["bytes"] == {name: sha256_file(path) for name, (_, path) in made.items()}
    assert got["paths"] == {name: f"{name}{path.suffix}" for name, (_, path) in made.items()}
    assert got["key_rounds"] == [1, 1, 5, 1, 5, 10, 20, 1, 5, 1]  # by group, then run
    assert got["counts"] == {
        "default": 37,
        "key_rounds": 10,
        "replication": 26,
        "variants": 3,
        "objects": 6,
        "more_models": 2,
        "initial": 3,
        "metadata": 40,
    }
    assert "image" not in got["columns"]
    assert got["slice"] == [5, 2]  # the key file comes first
    assert got["filtered"] == [5, 5, 5]
    assert {name.split("__")[0] for name in got["pixels"]} == {"replication"}
    for name, digest in got["pixels"].items():
        pixels = Image.open(io.BytesIO(made[name][1].read_bytes())).convert("RGB").tobytes()
        assert digest == sha256_bytes(pixels)


def test_report(tmp_path: Path) -> None:
    write_tree(tmp_path / "raw", rounds=[1, 2, 4])
    write_bytes(tmp_path / "raw" / "notes.txt", b"x")
    report = build(tmp_path / "raw", tmp_path / "out", pattern=PATTERN, constants=FACTS, name="mine")
    assert report.unused == ("notes.txt",)
    assert [gap.rounds for gap in report.gaps] == [(0, 3), (0, 3)]
    first, gaps, unused = report.summary().splitlines()
    assert first.startswith(f"{tmp_path}/out: 6 images in 2 runs, 2 initial images, ")
    assert gaps == (
        "gaps: 4 images missing from 2 runs: add_remove__chair__flux.1_kontext__rep0 rounds 0, 3, "
        "add_remove__plant__flux.1_kontext__rep0 rounds 0, 3"
    )
    assert unused == "not used: 1 files that are no part of a run: notes.txt"
    write_run(tmp_path / "simulated", made=1, planned=1)
    assert "1 SIMULATED images in 1 runs" in build(tmp_path / "simulated", tmp_path / "out2").summary()


def test_what_stands_is_replaced_only_on_demand_and_only_if_ours(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "banana100"
    build(write_run(tmp_path / "small", made=1, planned=1).parents[1], out)
    before = snapshot(out)
    with pytest.raises(BananaError, match=r"banana100: exists; pass overwrite"):
        build(raw, out)
    assert snapshot(out) == before

    write_bytes(out / "data" / "notes.txt", b"mine")
    with pytest.raises(BananaError, match=r"holds 1 files that no build made \(data/notes.txt\)"):
        build(raw, out, overwrite=True)
    (out / "data" / "notes.txt").unlink()
    assert snapshot(out) == before
    assert build(raw, out, overwrite=True).manifest.counts.images == 37
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("content", [None, "{}", '{"schema_version": 1}', "not json"])
def test_foreign_folders_stay(raw: Path, tmp_path: Path, content: str | None) -> None:
    (tmp_path / "photos").mkdir()
    write_bytes(tmp_path / "photos" / "family.png", picture(1))
    if content is not None:
        write_bytes(tmp_path / "photos" / "MANIFEST.json", content.encode())
    before = snapshot(tmp_path)
    with pytest.raises(BananaError, match=r"photos: exists and was not built by us"):
        build(raw, tmp_path / "photos", overwrite=True)
    assert snapshot(tmp_path) == before


def test_a_file_or_a_link_in_the_way_stays(raw: Path, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(dataset)
    for name in ("file", "link"):
        with pytest.raises(BananaError, match=f"{name}: exists and is no dataset folder"):
            build(raw, tmp_path / name, overwrite=True)


def test_raw_images_inside_the_dataset_folder_are_not_lost(tmp_path: Path) -> None:
    build(write_run(tmp_path / "raw", made=1, planned=1).parents[1], tmp_path / "out")
    shutil.move(tmp_path / "raw", tmp_path / "out" / "raw")
    with pytest.raises(BananaError, match="out: holds the raw images"):
        build(tmp_path / "out" / "raw", tmp_path / "out", overwrite=True)


def test_what_cannot_be_used_is_left_out_and_told(tmp_path: Path) -> None:
    write_tree(tmp_path / "raw")
    write_bytes(tmp_path / "raw" / "chair" / "step_003_x.png", b"")
    report = build(tmp_path / "raw", tmp_path / "out", pattern=PATTERN, constants=FACTS)
    run = "add_remove__chair__flux.1_kontext__rep0"
    fault = {"image_id": f"{run}__round003", "file": "chair/step_003_x.png", "problem": "the file is empty"}
    manifest = json.loads((tmp_path / "out" / "MANIFEST.json").read_text())
    assert (manifest["faults"], manifest["gaps"]) == ([fault], [{"run_id": run, "rounds": [3]}])
    assert manifest["counts"]["images"] == 11
    assert report.summary().splitlines()[1:] == [
        f"gaps: 1 images missing from 1 runs: {run} rounds 3",
        "left out: 1 images that cannot be used: chair/step_003_x.png: the file is empty",
    ]
    readme = (tmp_path / "out" / "README.md").read_text()
    assert r"- chair/step\_003\_x.png: the file is empty" in readme
    parents = {row["round"]: row["parent_sha256"] for row in _rows(tmp_path / "out") if row["run_id"] == run}
    assert [number for number, parent in parents.items() if parent is None] == [4]


def _rows(dataset: Path) -> list[dict[str, Any]]:
    return pq.read_table(dataset / "metadata").to_pylist()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda raw: write_bytes(raw / "chair" / "step_003_x.png", b""), "step_003_x.png: the file is empty"),
        (lambda raw: (raw / "chair" / "step_003_x.png").unlink(), "1 images missing from 1 runs"),
        (lambda raw: shutil.copy(raw / "chair" / "step_003_x.png", raw / "chair" / "step_3_y.png"), "there twice"),
        (lambda raw: write_bytes(raw / "other.png", picture(1)), "files that are no part of a run: other.png"),
    ],
)
def test_strict_refuses_what_is_not_whole(tmp_path: Path, spoil: Callable[[Path], object], said: str) -> None:
    spoil(write_tree(tmp_path / "raw"))
    with pytest.raises(BananaError, match=f"refused, being strict: .*{said}"):
        build(tmp_path / "raw", tmp_path / "out", pattern=PATTERN, constants=FACTS, strict=True)
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]
    build(write_tree(tmp_path / "whole"), tmp_path / "out", pattern=PATTERN, constants=FACTS, strict=True)


def test_nothing_usable_writes_nothing(tmp_path: Path) -> None:
    write_tree(tmp_path / "raw", rounds=[1])
    for path in tmp_path.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(BananaError, match="none of its images can be used: left out: 2 images .*the file is empty"):
        build(tmp_path / "raw", tmp_path / "out", pattern=PATTERN, constants=FACTS)
    assert not (tmp_path / "out").exists()


def test_files_without_a_usable_image_are_not_there_and_the_numbers_have_no_gap(raw: Path, tmp_path: Path) -> None:
    write_tree(tmp_path / "raw", ["plant"], range(2, 5))
    (tmp_path / "raw" / "plant" / "step_003_x.png").write_bytes(picture(1)[:-9])
    report = build(tmp_path / "raw", tmp_path / "out", pattern=PATTERN, constants=FACTS, max_shard_bytes=1)
    assert [file.path for file in report.manifest.files if file.path.startswith("data")] == [
        "data/object/rest-00000-of-00002.parquet",
        "data/object/rest-00001-of-00002.parquet",
    ]
    assert [row["round"] for row in pq.read_table(tmp_path / "out" / "data").to_pylist()] == [2, 4]


def test_the_number_of_workers_changes_nothing(raw: Path, dataset: Path, tmp_path: Path) -> None:
    for workers in (1, 5):
        build(raw, tmp_path / "banana100", workers=workers, overwrite=True)
        assert snapshot(tmp_path / "banana100") == snapshot(dataset)


def test_a_table_is_a_source(tmp_path: Path) -> None:
    write_tree(tmp_path / "raw", ["plant"], range(3))
    lines = [f"plant/step_{number:03d}_x.png,plant,{number}" for number in range(3)]
    (tmp_path / "raw" / "list.csv").write_text("\n".join(["file_name,initial_image,step", *lines]))
    build(tmp_path / "raw" / "list.csv", tmp_path / "out", constants=FACTS)
    build(tmp_path / "raw", tmp_path / "same", pattern=PATTERN, constants=FACTS, name="out")
    assert snapshot(tmp_path / "out") == snapshot(tmp_path / "same")


def test_wrong_calls(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="dataset name 'My data': expected"):
        build(raw, tmp_path / "out", name="My data")
    with pytest.raises(UsageError, match="dataset name '': expected"):
        build(raw, tmp_path / "out", name="")
    with pytest.raises(UsageError, match="no --name given, and of the folder .*猫 is made the dataset name '': "):
        build(raw, tmp_path / "猫")
    with pytest.raises(UsageError, match="unknown licence 'cc-by-nc-sa'; did you mean cc-by-nc-sa-4.0"):
        build(raw, tmp_path / "out", licence="cc-by-nc-sa")
    with pytest.raises(UsageError, match="max_shard_bytes 0"):
        build(raw, tmp_path / "out", max_shard_bytes=0)
    with pytest.raises(UsageError, match="workers 0: expected 1 or more"):
        build(raw, tmp_path / "out", workers=0)
    with pytest.raises(BananaError, match="absent: no such folder or file"):
        build(tmp_path / "absent", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_written(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BananaError, match=r"cannot write .*file/out: "):
        build(raw, tmp_path / "file" / "out")
    with pytest.raises(BananaError, match=r"cannot write /proc/out: "):
        build(raw, Path("/proc/out"))


KILLED = """
import os, signal, sys
from banana100_bench.package import build, shards
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[3] == "packing":
    shards.write_metadata = die
else:  # between the two renames that put the new folder in the place of the old one
    rename, done = os.rename, []
    os.rename = lambda *paths: die() if done else (done.append(1), rename(*paths))
build.build(sys.argv[1], sys.argv[2], overwrite=True)
"""


def kill_a_build(raw: Path, out: Path, when: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, raw, out, when], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_killed_build_continues(raw: Path, dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "banana100"
    kill_a_build(raw, out, "packing")
    assert hidden(tmp_path) == [".banana100.build"]
    assert not out.exists()
    made = {path: path.stat().st_ino for path in (tmp_path / ".banana100.build").rglob("*.parquet")}
    assert len(made) == 9
    report = build(raw, out)
    assert report.resumed == 9
    assert "continued: 9 shards were finished before and stand" in report.summary()
    assert {path.stat().st_ino for path in out.rglob("*.parquet")} > set(made.values())
    assert hidden(tmp_path) == []
    assert snapshot(out) == snapshot(dataset)


def test_a_killed_build_of_other_images_is_done_anew(raw: Path, dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "banana100"
    small = write_run(tmp_path / "small", made=20, planned=20, kinds=("PNG", "JPEG", "WEBP")).parents[1]
    kill_a_build(small, out, "packing")
    assert build(raw, out).resumed == 0
    assert snapshot(out) == snapshot(dataset)


def test_one_shard_too_few_is_not_all_anew(raw: Path, dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "banana100"
    kill_a_build(raw, out, "packing")
    (tmp_path / ".banana100.build/dataset/data/object/rest-00000-of-00001.parquet").unlink()
    assert build(raw, out).resumed == 8
    assert snapshot(out) == snapshot(dataset)


def test_killed_between_old_and_new(raw: Path, dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "banana100"
    build(write_run(tmp_path / "small", made=1, planned=1).parents[1], out)
    before = snapshot(out)
    kill_a_build(raw, out, "renaming")
    assert not out.exists()
    with pytest.raises(BananaError, match="exists; pass overwrite"):  # what stood there stands there again
        build(raw, out)
    assert snapshot(out) == before
    assert build(raw, out, overwrite=True).resumed == 9
    assert hidden(tmp_path) == []
    assert snapshot(out) == snapshot(dataset)


KILLED_OFTEN = """
import os, random, shutil, signal, sys, time
from pathlib import Path
import pyarrow.parquet, datasets, jinja2, yaml
from banana100_bench.package.build import build
from tests.package.test_build import snapshot
raw, out, whole = map(Path, sys.argv[1:])
random.seed(0)
start = time.monotonic()
if not (child := os.fork()):
    build(raw, out)
    os._exit(0)
os.waitpid(child, 0)
took = time.monotonic() - start
deaths = 0
for _ in range(20):
    if out.exists():
        assert snapshot(out) == snapshot(whole)
        shutil.rmtree(out)
    if not (child := os.fork()):
        build(raw, out)
        os._exit(0)
    time.sleep(random.uniform(0, took))
    os.kill(child, signal.SIGKILL)
    deaths += os.WIFSIGNALED(os.waitpid(child, 0)[1])
print(deaths)
"""


def test_killed_at_twenty_random_moments(raw: Path, dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "banana100"
    call = [sys.executable, "-c", KILLED_OFTEN, raw, out, dataset]
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 5
    build(raw, out, overwrite=True)
    assert snapshot(out) == snapshot(dataset)
    assert hidden(tmp_path) == []


def test_two_builds_of_one_folder_do_not_meet(raw: Path, tmp_path: Path) -> None:
    other = tmp_path / ".banana100.build"
    other.mkdir()
    handle = os.open(other, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(BananaError, match="banana100: another build of it is at work"):
        build(raw, tmp_path / "banana100")
    os.close(handle)
    (tmp_path / ".banana100.notes").mkdir()
    build(raw, tmp_path / "banana100")
    assert hidden(tmp_path) == [".banana100.notes"]


def test_a_link_in_the_place_of_the_workshop(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".out.build").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BananaError, match=r"\.out\.build: a symbolic link; remove it"):
        build(raw, tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_disk_too_small_is_told_before(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(BananaError, match=r": 0.0 GB free, but the images have 0.0 GB"):
        build(raw, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


GROWTH = """
import resource, sys
from banana100_bench.package.build import build
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
build(sys.argv[1], sys.argv[3])
before = peak()
build(sys.argv[2], sys.argv[4])
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_images(tmp_path: Path) -> None:
    big = picture(1, (1200, 1000))
    assert len(big) > 3_500_000
    for name, rounds in (("few", 2), ("many", 30)):
        folder = write_run(tmp_path / name, made=rounds, planned=rounds)
        _enlarge(folder, big)
    call = [sys.executable, "-c", GROWTH, *(tmp_path / name for name in ("few", "many", "out1", "out2"))]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40  # MB; the images have 110


def _enlarge(folder: Path, big: bytes) -> None:
    """Put `big`, made different by bytes behind its end, in the place of each image of a raw run."""
    journal = folder / "journal.jsonl"
    text = journal.read_text()
    for number, path in enumerate(sorted(folder.glob("*.png"))):
        old = sha256_file(path)
        path.write_bytes(big + bytes([number]))
        text = text.replace(old, sha256_file(path))
    journal.write_text(text)
