"""Which trials are made and what is chosen, by a clock that only the simulated work moves; then real workers."""

import json
import os
import signal
import subprocess
import sys

import pytest

from banana100_bench.engine import calibration, machine
from banana100_bench.engine.calibration import calibrate, describe, fastest, remember, remembered
from banana100_bench.engine.scheduler import Need, Plan, Scheduler
from banana100_bench.scoring import score, score_all
from banana100_bench.store import ScoreStore
from tests.engine.test_scheduler import Doing
from tests.models.making import chain

forked = pytest.mark.skipif(sys.platform != "linux", reason="worker processes are forked on Linux alone")


class Simulated:
    """Work whose speed depends on the number of workers; every call and every image is noted."""

    def __init__(self, speeds):
        self.speeds, self.now = speeds, 0.0
        self.seen, self.calls = [], []

    def run(self, images, workers):
        speed = self.speeds[workers]
        if isinstance(speed, list):
            speed = speed.pop(0)
        before = len(self.seen)
        for image in images:
            self.seen.append(image)
            self.now += 1 / speed
        self.calls.append((workers, len(self.seen) - before))

    def calibrate(self, count, workers, fits=lambda: True):
        images = iter(range(count))
        rates = calibrate(images, count, workers, self.run, fits, lambda: self.now)
        assert [*self.seen, *images] == list(range(count))  # each image is scored once: here, or by the caller
        return rates


def test_fewer_workers_are_tried_as_long_as_they_are_faster():
    work = Simulated({16: 3.0, 8: 4.0, 4: 3.9})
    rates = work.calibrate(10_000, 16)
    assert rates == pytest.approx({16: 3.0, 8: 4.0, 4: 3.9})
    assert fastest(rates) == 8
    # warm, then the trials; what was surprising is tried once more
    assert work.calls == [(16, 32), (16, 64), (8, 32), (16, 64), (8, 32), (4, 16)]
    assert describe(rates) == "calibrated: 8 workers, 4 images/s; tried 16: 3, 4: 3.9 images/s"


def test_the_usual_case_costs_one_trial():
    work = Simulated({2: 3.1, 1: 2.0})
    rates = work.calibrate(200, 2)
    assert work.calls == [(2, 4), (2, 8), (1, 4)]
    assert fastest(rates) == 2
    assert describe(rates) == "calibrated: 2 workers, 3.1 images/s; tried 1: 2 images/s"
    assert describe({2: 1.0, 1: 2.0}) == "calibrated: 1 worker, 2 images/s; tried 2: 1 images/s"


def test_a_trial_that_was_disturbed_decides_nothing():
    work = Simulated({2: [3.0, 1.8, 3.0], 1: 2.0})  # warm, disturbed, once more
    rates = work.calibrate(1000, 2)
    assert rates == pytest.approx({2: 3.0, 1: 2.0})
    assert fastest(rates) == 2


def test_a_trial_of_quick_models_lasts_two_seconds():
    work = Simulated({2: 128.0, 1: 64.0})  # times that floating point adds up exactly
    work.calibrate(100_000, 2)
    assert work.calls == [(2, 4), (2, 256), (1, 128)]


def test_nothing_is_tried_where_it_cannot_pay_or_does_not_fit():
    few = Simulated({2: 3.0, 1: 2.0})
    assert few.calibrate(135, 2) == {}
    assert few.calls == []
    quick = Simulated({2: 512.0, 1: 256.0})  # ended before the first trial is fifteen times won back
    assert quick.calibrate(16_000, 2) == {}
    assert quick.calls == [(2, 4), (2, 1024)]
    one = Simulated({1: 3.0})
    assert one.calibrate(10_000, 1) == {}
    hungry = Simulated({8: 1.0})
    assert hungry.calibrate(10_000, 8, fits=lambda: not hungry.calls) == {}
    assert hungry.calls == [(8, 16)]  # that told how much memory is needed
    known = Simulated({8: 1.0})
    assert known.calibrate(10_000, 8, fits=lambda: False) == {}
    assert known.calls == []


def test_more_workers_stand_unless_fewer_are_clearly_faster():
    assert fastest({16: 10.0, 8: 10.9}) == 16
    assert fastest({16: 10.0, 8: 11.5, 4: 12.0}) == 8
    assert fastest({16: 10.0, 8: 11.5, 4: 13.0}) == 4


def test_rates_are_remembered_for_each_machine_and_set_of_models():
    facts = {"need": 1}
    remember(facts, "here: a", {2: 3.0, 1: 2.0})
    remember(facts, "there: a b", {4: 3.0, 2: 2.0})
    facts = json.loads(json.dumps(facts))
    assert facts["need"] == 1
    assert remembered(facts, "here: a", 2) == {2: 3.0, 1: 2.0}
    assert remembered(facts, "there: a b", 4) == {4: 3.0, 2: 2.0}
    assert remembered(facts, "here: a", 4) == {}  # of other cores
    assert remembered(facts, "elsewhere: a", 2) == {}


@pytest.mark.parametrize(
    "strange",
    [None, 3, [], {"p": None}, {"p": [[2, 1.0]]}, {"p": [[2, "x"], [1, 1]]}, {"p": [[2, -1.0], [1, 1.0]]},
     {"p": [[2, 1.0], [0, 1.0]]}, {"p": [[2, float("inf")], [1, 1.0]]}, {"p": [[2, float("nan")], [1, 1.0]]}],
)  # fmt: skip
def test_strange_facts_are_measured_anew(strange):
    facts = {"calibrated": strange}
    assert remembered(facts, "p", 2) == {}
    remember(facts, "p", {2: 2.0, 1: 1.0})
    assert remembered(facts, "p", 2) == {2: 2.0, 1: 1.0}


def test_the_machine_has_a_name_that_stays():
    assert machine.name() == machine.name()
    assert machine.name().startswith(f"{machine.cores()} x ")
    assert machine.name().endswith(" GB")


PLAN = Plan(workers=2, cores=2, memory=10**9, calibrate=True)


def counting(folder, result=float):
    def note(number):
        with open(folder / "calls", "a") as file:
            file.write(f"{number} {os.getpid()}\n")
        return result(number)

    return Doing(note)


def calls(folder):
    return [tuple(map(int, line.split())) for line in (folder / "calls").read_text().splitlines()]


@forked
def test_scoring_calibrates_once_and_keeps_what_it_found(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "SECONDS", 0.0)
    store = ScoreStore(tmp_path / "store")
    model = counting(tmp_path)
    report = score(model, chain(150), store, PLAN)
    assert sorted(number for number, _ in calls(tmp_path)) == list(range(1, 151))  # each once
    assert {item.score for item in report.scores.values()} == set(map(float, range(1, 151)))
    assert {item.threads for item in report.scores.values()} == {1}
    place = f"{machine.name()}: test:doing"
    rates = remembered(store.facts(model.info), place, 2)
    assert sorted(rates) == [1, 2]
    assert report.notes == [describe(rates)]

    facts = store.facts(model.info)
    remember(facts, place, {2: 1.0, 1: 5.0})
    store.keep_facts(model.info, facts)
    (tmp_path / "calls").unlink()
    again = score(model, chain(156), store, PLAN)  # too few for a trial: what is known serves
    assert again.notes == ["calibrated: 1 worker, 5 images/s; tried 2: 1 images/s"]
    assert len({process for _, process in calls(tmp_path)}) == 1
    assert {item.threads for item in again.scores.values()} == {1}  # fewer workers get no more threads
    by_hand = score(model, chain(158), store, Plan(workers=2, cores=2))
    assert by_hand.notes == []


@forked
def test_several_models_are_calibrated_together_where_all_images_ask_for_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "SECONDS", 0.0)
    store = ScoreStore(tmp_path)
    one, two = Doing(float, "test:one"), Doing(float, "test:two")
    reports = score_all([two, one], chain(150), store, PLAN)
    assert [len(report.notes) for report in reports] == [1, 0]
    place = f"{machine.name()}: test:one test:two"
    kept = [remembered(store.facts(model.info), place, 2) for model in (one, two)]
    assert kept[0] == kept[1]
    assert sorted(kept[0]) == [1, 2]
    three = Doing(float, "test:three")
    score(three, chain(1), store)
    mixed = score_all([one, three], chain(300), store, PLAN)
    assert [report.notes for report in mixed] == [[], []]  # images that ask for three alone are no measure for both
    assert [report.counts["ok"] for report in mixed] == [300, 300]


@forked
def test_kill_9_amid_the_trials_loses_nothing(tmp_path):
    code = """
import os, signal, sys
from pathlib import Path
from banana100_bench.scoring import score
from banana100_bench.store import ScoreStore
from tests.engine.test_calibration import PLAN, counting
from tests.models.making import chain

def work(number):
    if number == 14:
        os.kill(os.getppid(), signal.SIGKILL)
    return number

folder = Path(sys.argv[1])
score(counting(folder, work), chain(150), ScoreStore(folder / "store"), PLAN)
"""
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, stderr=subprocess.DEVNULL)
    assert killed.returncode == -signal.SIGKILL
    store = ScoreStore(tmp_path / "store")
    model = counting(tmp_path)
    (file,) = (tmp_path / "store").glob("*.jsonl")
    there = len(file.read_text().splitlines()) - 1
    assert 8 <= there < 20
    report = score(model, chain(150), store, Plan())
    assert (report.computed, report.reused, report.counts["ok"]) == (150 - there, there, 150)


@forked
def test_a_run_with_fewer_workers_keeps_those_that_are_there(tmp_path):
    found = []
    model = Doing(lambda number: float(os.getpid()))
    needs = [Need(bytes=1000, pixels=32 * 32)]
    pictures = [(item.row, item.data) for item in chain(12).pictures]
    with Scheduler([model], Plan(workers=3, cores=3, memory=10**9), needs, decode=False) as scheduler:
        for workers, part in ((3, pictures[:6]), (1, pictures[6:9]), (2, pictures[9:])):
            scheduler.run(iter(part), lambda row: [0], lambda number, item: found.append(int(item.score)), workers)
    first, second, third = set(found[:6]), set(found[6:9]), set(found[9:])
    assert (len(first), len(second), len(third)) == (3, 1, 2)
    assert second < first
    assert third & first == second  # one came anew
