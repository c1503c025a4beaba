"""Kill -9 at random moments, two writers, a full disk: nothing lost, nothing doubled, clear words."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from banana100_bench.scoring import score
from banana100_bench.store import ScoreStore
from tests.models.making import Model, chain

RUN = """
import sys
from pathlib import Path
from banana100_bench.engine.scheduler import Plan
from banana100_bench.errors import BananaError
from banana100_bench.scoring import score
from banana100_bench.store import ScoreStore
from tests.engine.test_scheduler import Doing
from tests.models.making import chain
import time

def slow(number):
    time.sleep(0.004)
    return number / 7

try:
    report = score(Doing(slow), chain(40), ScoreStore(Path(sys.argv[1])), Plan(workers=int(sys.argv[2]), memory=10**9))
    print(report.computed, report.reused, report.counts["ok"])
except BananaError as error:
    print("error:", error)
"""


def start(store, workers):
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(store), str(workers)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def rows(store):
    (file,) = store.glob("*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()[1:]]


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_again_and_again_it_ends_with_every_score_once(tmp_path, workers):
    store, draw = tmp_path / "store", random.Random(workers)
    for _ in range(3):
        process = start(store, workers)
        wanted = draw.randrange(1, 12)
        before = sum(path.read_bytes().count(b"\n") for path in store.glob("*.jsonl"))
        while process.poll() is None and (
            sum(path.read_bytes().count(b"\n") for path in store.glob("*.jsonl")) < before + wanted
        ):
            time.sleep(0.001)
        process.kill()
        process.communicate()
    kept = len(rows(store))
    out, err = start(store, workers).communicate(timeout=60)
    assert out.split() == [str(40 - kept), str(kept), "40"], err
    assert sorted(row["score"] for row in rows(store)) == [number / 7 for number in range(1, 41)]


def test_two_runs_of_two_workers_on_one_store(tmp_path):
    both = [start(tmp_path / "store", 2) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=60)
        assert out.split()[2] == "40", err
    assert sorted(row["score"] for row in rows(tmp_path / "store")) == [number / 7 for number in range(1, 41)]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 kB, where one can be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount")
    if (
        not mounted
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], check=False).returncode
    ):
        pytest.skip("cannot mount a file system here; a file limit stands for it in test_store.py")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_is_named_and_when_there_is_room_again_the_run_continues(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(56 << 10))
    store = small_disk / "store"
    model = Model(float)
    with pytest.raises(
        Exception, match=r"cannot write .*test-model--.*jsonl: (No space left on device|the disk is full)"
    ):
        score(model, chain(60), ScoreStore(store))
    kept = len(rows_whole(store))
    assert 3 < kept < 60
    ballast.unlink()
    report = score(Model(float), chain(60), ScoreStore(store))
    assert (report.computed, report.reused, report.counts["ok"]) == (60 - kept, kept, 60)
    assert sorted(row["score"] for row in rows(store)) == [float(number) for number in range(1, 61)]


def rows_whole(store: Path):
    """The rows of whole lines."""
    (file,) = store.glob("*.jsonl")
    data = file.read_bytes()
    return data[: data.rfind(b"\n") + 1].splitlines()[1:]
