import dataclasses
import json
import math
import signal
import subprocess
import sys
import time

import pytest

from banana100_bench.engine.measure import MAX_MESSAGE
from banana100_bench.errors import BananaError
from banana100_bench.models import open_model
from banana100_bench.scoring import score
from banana100_bench.store import ScoreStore
from tests.models.making import Images, Model, chain, encoded, picture, texture


def by_round(report):
    return {int(image_id[-3:]): found for image_id, found in report.scores.items()}


def test_every_image_gets_its_score_and_a_rerun_computes_nothing(tmp_path):
    images, model = chain(4), Model(lambda number: number / 8)
    report = score(model, images, ScoreStore(tmp_path))
    assert {number: found.score for number, found in by_round(report).items()} == {1: 0.125, 2: 0.25, 3: 0.375, 4: 0.5}
    assert report.counts == {"ok": 4, "nan": 0, "failed": 0, "timeout": 0, "parse_error": 0}
    assert (report.computed, report.reused, report.info) == (4, 0, model.info)
    again = score(model, images, ScoreStore(tmp_path))
    assert (again.computed, again.reused, again.scores) == (0, 4, report.scores)
    assert model.calls == [1, 2, 3, 4]
    assert images.read == [row.image_id for row in images.rows]  # the rerun read no image


def test_a_larger_selection_computes_what_is_new(tmp_path):
    model = Model(float)
    score(model, chain(3), ScoreStore(tmp_path))
    report = score(model, chain(5), ScoreStore(tmp_path))
    assert model.calls == [1, 2, 3, 4, 5]
    assert (report.computed, report.reused) == (2, 3)
    assert score(model, chain(2), ScoreStore(tmp_path)).scores.keys() == {row.image_id for row in chain(2).rows}


def test_the_same_pixels_are_scored_once_and_reported_for_each_row(tmp_path):
    images = Images([picture(texture(7), number) for number in (1, 2)] + [picture(texture(8), 3)])
    model = Model(float)
    report = score(model, images, ScoreStore(tmp_path))
    assert model.calls == [1, 3]
    assert {number: found.score for number, found in by_round(report).items()} == {1: 1.0, 2: 1.0, 3: 3.0}
    assert [found.image_id for found in report.scores.values()] == [row.image_id for row in images.rows]
    assert (report.computed, report.reused) == (2, 1)


def misbehave(number):
    if number == 2:
        raise ValueError("bad \x1b[31mimage\nsecond line")
    if number == 3:
        raise BananaError("not in FILE")
    if number == 4:
        sys.exit("bye")
    if number == 5:
        raise RuntimeError("x" * 2000)
    return {6: math.nan, 7: math.inf, 8: -math.inf, 9: "word", 10: None}.get(number, 1.0)


def test_errors_and_infinities_end_as_statuses(tmp_path):
    model = Model(misbehave)
    report = score(model, chain(11), ScoreStore(tmp_path))
    found = {number: (item.status, item.score, item.message) for number, item in by_round(report).items()}
    assert found[1] == found[11] == ("ok", 1.0, None)
    assert found[2] == ("failed", None, "ValueError: bad ?[31mimage")
    assert found[3] == ("failed", None, "not in FILE")
    assert found[4] == ("failed", None, "SystemExit: bye")
    assert found[5] == ("failed", None, ("RuntimeError: " + "x" * 2000)[:MAX_MESSAGE])
    assert found[6] == ("nan", None, "the model gave nan")
    assert found[7] == ("nan", None, "the model gave inf")
    assert found[8] == ("nan", None, "the model gave -inf")
    assert found[9] == ("failed", None, "ValueError: could not convert string to float: 'word'")
    assert found[10][:2] == ("failed", None)
    assert (report.counts["ok"], report.counts["nan"], report.counts["failed"]) == (2, 3, 6)
    assert "11 images: 2 ok, 3 nan, 6 failed; 11 computed, 0 reused" in report.summary()
    assert report.summary().count(" 1 x ") == 3
    assert "and 6 other messages" in report.summary()


def test_failed_images_are_tried_again_and_nan_is_kept(tmp_path):
    score(Model(misbehave), chain(8), ScoreStore(tmp_path))
    healed = Model(float)
    report = score(healed, chain(8), ScoreStore(tmp_path))
    assert healed.calls == [2, 3, 4, 5]
    assert (report.counts["ok"], report.counts["nan"], report.counts["failed"]) == (5, 3, 0)


def test_an_image_that_does_not_decode_is_a_failed_score(tmp_path):
    images = Images([encoded(b"\x89PNG broken", 8, 8, 1), picture(texture(), 2)])
    report = score(open_model("baseline:noise"), images, ScoreStore(tmp_path))
    broken = by_round(report)[1]
    assert (broken.status, broken.message) == ("failed", f"{broken.image_id}: not a readable PNG / JPEG / WEBP image")
    assert by_round(report)[2].status == "ok"


def test_a_keyboard_interrupt_ends_the_run_and_loses_nothing(tmp_path):
    def interrupt(number):
        if number == 3:
            raise KeyboardInterrupt
        return 1.0

    with pytest.raises(KeyboardInterrupt):
        score(Model(interrupt), chain(4), ScoreStore(tmp_path))
    model = Model(float)
    assert score(model, chain(4), ScoreStore(tmp_path)).reused == 2
    assert model.calls == [3, 4]


def test_nothing_selected_nothing_scored_and_an_image_withheld(tmp_path):
    with pytest.raises(BananaError, match="no image is selected"):
        score(Model(float), Images([]), ScoreStore(tmp_path))
    with pytest.raises(BananaError, match=r"test:model: every image failed \(3\): ZeroDivisionError: "):
        score(Model(lambda number: number / 0), chain(3), ScoreStore(tmp_path))

    class Withholding(Images):
        def subset(self, image_ids):
            return Images(self.pictures[:1])

    with pytest.raises(BananaError, match="round002: the dataset gave no image for this row"):
        score(Model(float), Withholding(chain(2).pictures), ScoreStore(tmp_path / "new"))


def test_the_report_tells_of_other_versions_and_strange_scores(tmp_path):
    store = ScoreStore(tmp_path / "store")
    images = chain(2)
    table = tmp_path / "s.csv"
    table.write_text(f"image_id,score\n{images.rows[0].image_id},1\nstranger,2\n")
    first = score(open_model(f"scores:{table}", higher_is_better=False), images, store)
    assert first.notes == ["s.csv: 1 of 2 scores are of no selected image, as 'stranger'"]
    assert first.summary().splitlines()[0].endswith("lower is better")
    assert first.summary().splitlines()[1:] == [
        "  1 x not in s.csv",
        "  failed images are tried again on the next run",
        f"  {first.notes[0]}",
    ]
    table.write_text(f"image_id,score\n{images.rows[0].image_id},3\n")
    second = score(open_model(f"scores:{table}", higher_is_better=False), images, store)
    assert [found.score for found in second.scores.values()] == [3.0, None]
    (note,) = second.notes
    assert note.startswith("scores-s.csv--")
    assert "scores by file_sha256" in note


WORKER = """
import os, sys, time
from pathlib import Path
from banana100_bench.scoring import score
from banana100_bench.store import ScoreStore
from tests.models.making import Model, chain

log, kill_at, seconds, rounds = Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])

def function(number):
    if number == kill_at:
        os.kill(os.getpid(), 9)
    with open(log, "a") as file:
        file.write(f"{number}\\n")
    time.sleep(seconds)
    return number / 3

images = chain(rounds)
Path(f"{log}.ready").touch()
while seconds and not (log.parent / "go").exists():
    time.sleep(0.001)
report = score(Model(function), images, ScoreStore(Path(sys.argv[1])))
print(report.computed, report.reused, report.counts["ok"])
"""


def worker(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_after_kill_9_only_the_missing_scores_are_computed(tmp_path):
    log = tmp_path / "log"
    killed = worker(tmp_path / "store", log, 4, 0, 6)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert log.read_text().split() == ["1", "2", "3"]
    log.unlink()
    rerun = worker(tmp_path / "store", log, 0, 0, 6)
    out, err = rerun.communicate(timeout=60)
    assert (rerun.returncode, out.split()) == (0, ["3", "3", "6"]), err
    assert log.read_text().split() == ["4", "5", "6"]
    assert "test:model (3 of 6 reused): 3/3 images" in err


def test_two_processes_on_one_store_neither_corrupt_nor_double(tmp_path):
    logs = [tmp_path / "one", tmp_path / "two"]
    both = [worker(tmp_path / "store", log, 0, 0.005, 30) for log in logs]
    while not all(log.with_name(f"{log.name}.ready").exists() for log in logs):
        assert all(process.poll() is None for process in both)
    (tmp_path / "go").touch()
    results = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], results
    assert all(int(out.split()[2]) == 30 for out, _ in results)
    (file,) = (tmp_path / "store").glob("*.jsonl")
    _, *rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(row["score"] for row in rows) == [number / 3 for number in range(1, 31)]


@pytest.mark.parametrize(("options", "share"), [({"device": "cuda"}, "0%"), ({}, None)])
def test_a_device_is_told_how_long_it_waited_for_decoding(tmp_path, options, share):
    def slow(number):
        time.sleep(0.02)
        return number

    model = Model(slow)
    model.info = dataclasses.replace(model.info, options=options)
    report = score(model, chain(3), ScoreStore(tmp_path))
    assert report.notes == ([f"the models waited for decoding {share} of the time"] if share else [])
