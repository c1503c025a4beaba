"""Real worker processes on small pictures: what they compute, how they die, and what is admitted at once."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from banana100_bench.engine import machine
from banana100_bench.engine.measure import measure
from banana100_bench.engine.scheduler import Need, Plan, describe
from banana100_bench.models import ModelInfo, open_model
from banana100_bench.scoring import score, score_all
from banana100_bench.store import ScoreStore
from tests.models.making import Images, chain, picture, texture

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes are forked on Linux alone")
GB = 10**9


@dataclass
class Doing:
    """A model that does something with the round of each picture, in whatever process it finds itself."""

    function: object
    name: str = "test:doing"
    pixels: bool = False

    @property
    def info(self):
        return ModelInfo(id=self.name, kind="callable", higher_is_better=True)

    def score(self, item):
        return self.function(item.row.round)


def by_round(report):
    return {int(image_id[-3:]): found for image_id, found in report.scores.items()}


def test_workers_give_the_scores_of_this_process(tmp_path):
    names = ["noise", "sharpness", "file-size", "step-leak"]
    models = [open_model(f"baseline:{name}") for name in names]
    alone = score_all(models, chain(6), ScoreStore(tmp_path / "a"), Plan(workers=0))
    forked = score_all(models, chain(6), ScoreStore(tmp_path / "b"), Plan(workers=3))
    for model, one, other in zip(models, alone, forked, strict=True):
        assert {key: found.score for key, found in one.scores.items()} == {
            item.row.image_id: measure(model, item).score for item in chain(6).pictures
        }
        assert {key: found.score for key, found in other.scores.items()} == {
            key: found.score for key, found in one.scores.items()
        }
        assert (other.computed, other.reused) == (6, 0)
    again = score_all(models, chain(6), ScoreStore(tmp_path / "b"), Plan(workers=2))
    assert [(report.computed, report.reused) for report in again] == [(0, 6)] * 4


def test_one_decode_feeds_all_models_and_each_lacks_its_own_images(tmp_path, monkeypatch):
    from banana100_bench import images

    decoded = []
    plain = images.decode
    monkeypatch.setattr(images, "decode", lambda data, name: decoded.append(name) or plain(data, name))
    store, pictures = ScoreStore(tmp_path), chain(4)
    score(open_model("baseline:noise"), chain(2), store)
    decoded.clear()
    reports = score_all([open_model("baseline:noise"), open_model("baseline:sharpness")], pictures, store)
    assert [report.computed for report in reports] == [2, 4]
    assert sorted(name for name in decoded if "selftest" not in name) == [row.image_id for row in pictures.rows]


def test_a_worker_that_dies_costs_one_image_with_its_reason(tmp_path):
    def die(number):
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 3:
            os._exit(7)
        return float(number)

    report = score(Doing(die), chain(6), ScoreStore(tmp_path), Plan(workers=2))
    found = {number: (item.status, item.score, item.message) for number, item in by_round(report).items()}
    assert found.pop(2) == ("failed", None, "the worker process was killed by SIGKILL: out of memory?")
    assert found.pop(3) == ("failed", None, "the worker process ended by itself, exit code 7")
    assert found == {number: ("ok", float(number), None) for number in (1, 4, 5, 6)}
    assert "failed images are tried again on the next run" in report.summary()


def test_what_was_killed_beside_others_is_tried_once_more_alone(tmp_path):
    trace = tmp_path / "trace"

    def die_once(number):
        with open(trace, "a") as file:
            file.write(f"{number}\n")
        time.sleep(0.1)
        if number == 3 and trace.read_text().split().count("3") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return float(number)

    need = Need(bytes=1000, pixels=32 * 32)
    store = ScoreStore(tmp_path / "store")
    model = Doing(die_once)
    store.keep_facts(model.info, {"need": {"bytes": need.bytes, "pixels": need.pixels, "seconds": 0.1}})
    report = score(model, chain(6), store, Plan(workers=2, memory=GB))
    assert report.counts["ok"] == 6
    assert trace.read_text().split().count("3") == 2


def test_a_picture_that_takes_too_long_times_out_and_the_rest_goes_on(tmp_path):
    def sleep(number):
        time.sleep(60 if number == 2 else 0)
        return float(number)

    report = score(Doing(sleep), chain(4), ScoreStore(tmp_path), Plan(workers=1, timeout=0.5))
    slow = by_round(report)[2]
    assert (slow.status, slow.message) == ("timeout", "no score within 0.5 s")
    assert 0.5 <= slow.seconds < 30
    assert report.counts["ok"] == 3
    healed = score(Doing(float), chain(4), ScoreStore(tmp_path), Plan(workers=1))
    assert (healed.computed, healed.counts["ok"]) == (1, 4)  # a timeout is tried again


def test_an_interrupt_leaves_no_worker_behind(tmp_path):
    code = """
import os, sys, time
from pathlib import Path
from banana100_bench.engine.scheduler import Plan
from banana100_bench.scoring import score
from banana100_bench.store import ScoreStore
from tests.engine.test_scheduler import Doing
from tests.models.making import chain

def slow(number):
    (Path(sys.argv[1]) / f"pid-{os.getpid()}").touch()
    time.sleep(60)

score(Doing(slow), chain(4), ScoreStore(Path(sys.argv[1]) / "store"), Plan(workers=2, memory=10**9))
"""
    for blow in (signal.SIGINT, signal.SIGKILL):
        folder = tmp_path / blow.name
        folder.mkdir()
        parent = subprocess.Popen([sys.executable, "-c", code, str(folder)], stderr=subprocess.DEVNULL)
        while not (found := list(folder.glob("pid-*"))):
            assert parent.poll() is None
            time.sleep(0.01)
        parent.send_signal(blow)
        parent.wait(timeout=20)
        child = int(found[0].name.partition("-")[2])
        deadline = time.monotonic() + 20
        while alive(child) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not alive(child)


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_memory_decides_how_many_run_at_once():
    plan = Plan(workers=8, cores=8, memory=20 * GB)
    assert [plan.at_once(need * GB) for need in (1, 3, 9, 30)] == [8, 6, 2, 1]
    assert [plan.threads_for(need * GB) for need in (1, 3, 9, 30)] == [1, 1, 4, 8]
    assert plan.at_once(None) == 8  # not known: the scheduler runs it alone
    need = Need(bytes=9 * GB, pixels=4_000_000)
    assert need.on(2_000_000) == 9 * GB
    assert need.on(8_000_000) == 18 * GB
    assert Need().on(1) is None
    (line,) = describe(plan, "pyiqa:entropy", need)
    assert line == (
        "plan: 2 at once x 4 threads; pyiqa:entropy needs 9.0 GB for 4.0 megapixels, there are 20.0 GB and 8 cores"
    )


def most_at_once(trace):
    """The largest number of intervals in `trace` that overlap."""
    times = [json.loads(line) for line in trace.read_text().splitlines()]
    edges = sorted([(start, 1) for start, _ in times] + [(end, -1) for _, end in times])
    most = now = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most


@pytest.mark.parametrize(("memory", "most"), [(10 * GB, 3), (700_000_000, 2), (100_000_000, 1)])
def test_a_hungry_model_is_measured_alone_and_then_admitted_as_it_fits(tmp_path, memory, most):
    trace = tmp_path / "trace"

    def hungry(number):
        start = time.monotonic()
        hoard = np.ones(300_000_000, np.uint8)  # 300 MB
        time.sleep(0.15)
        with open(trace, "a") as file:
            file.write(json.dumps([start, time.monotonic()]) + "\n")
        return float(hoard[number])

    store = ScoreStore(tmp_path / "store")
    model = Doing(hungry)
    report = score(model, chain(9), store, Plan(workers=3, cores=3, memory=memory))
    assert report.counts["ok"] == 9
    assert most_at_once(trace) == most
    need = store.facts(model.info)["need"]
    assert 280_000_000 < need["bytes"] < 340_000_000
    assert need["pixels"] == 32 * 32
    first, *others = sorted(json.loads(line) for line in trace.read_text().splitlines())
    assert all(start >= first[1] for start, _ in others)  # the first ran alone


def test_images_do_not_wait_for_the_self_test(tmp_path):
    events = tmp_path / "events"

    @dataclass
    class Slow(Doing):
        def score(self, item):
            with open(events, "a") as file:
                file.write(f"{item.row.image_id}\n")
            time.sleep(0.3 if "selftest" in item.row.image_id else 0.01)
            return 1.0

    report = score(Slow(None, pixels=True), chain(8), ScoreStore(tmp_path), Plan(workers=2))
    assert report.counts["ok"] == 8
    order = ["selftest" if "selftest" in line else "image" for line in events.read_text().split()]
    assert order.count("selftest") == 3
    assert order[0] == "image"  # it tells how much memory the model needs
    tests = [number for number, what in enumerate(order) if what == "selftest"]
    assert "image" in order[tests[0] : tests[-1]]


def test_the_peak_of_memory_is_that_of_the_work_in_between():
    machine.reset_peak()
    before = machine.resident()
    hoard = np.ones(200_000_000, np.uint8)
    del hoard
    assert 190_000_000 < machine.peak() - before < 260_000_000
    assert machine.cores() >= 1
    assert machine.available_memory() > 100_000_000


def test_a_worker_of_several_threads_starts_though_the_caller_has_used_several(tmp_path):
    pytest.importorskip("torch")
    code = """
import sys, tempfile, torch
from pathlib import Path
from banana100_bench.engine.scheduler import Plan
from banana100_bench.scoring import score
from banana100_bench.store import ScoreStore
from tests.models.making import chain
from tests.engine.test_scheduler import Doing

torch.set_num_threads(2)
torch.randn(3000, 3000).exp_()  # the pool of threads that a fork loses
report = score(Doing(lambda number: float(torch.ones(1 << 20).exp().sum())), chain(2), ScoreStore(Path(sys.argv[1])),
               Plan(workers=1, cores=2))
print(report.counts["ok"], {found.threads for found in report.scores.values()})
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert done.stdout.startswith("2 {"), done.stderr


def test_same_sized_pictures_go_together_where_the_model_allows(tmp_path):
    class Batching:
        pixels = False
        info = ModelInfo(id="test:batching", kind="callable", higher_is_better=True)
        seen: list = []  # noqa: RUF012

        def score(self, item):
            self.seen.append([item.row.round])
            return float(item.row.round)

        def score_batch(self, items):
            rounds = [item.row.round for item in items]
            if 7 in rounds and len(rounds) > 1:
                raise MemoryError
            if 11 in rounds:
                raise ValueError("no elevens")
            self.seen.append(rounds)
            return rounds

    small = [picture(texture(number, size=16), number) for number in (1, 2)]
    large = [picture(texture(number, size=24), number) for number in range(3, 13)]
    report = score(Batching(), Images(small + large), ScoreStore(tmp_path), Plan(batch=4))
    assert {number: found.score for number, found in by_round(report).items()} == {n: float(n) for n in range(1, 13)}
    assert Batching.seen == [[1], [2], [3, 4, 5, 6], [7], [8], [9, 10], [11], [12]]
    assert {number: found.batch for number, found in by_round(report).items() if found.batch > 1} == {
        3: 4, 4: 4, 5: 4, 6: 4, 9: 2, 10: 2,
    }  # fmt: skip


def test_a_model_that_draws_random_numbers_takes_no_batch_and_repeats_are_averaged(tmp_path):
    class Drawing:
        pixels = False
        info = ModelInfo(id="test:drawing", kind="callable", higher_is_better=True)

        def score(self, item):
            return float(np.random.rand())

        def score_batch(self, items):
            raise AssertionError

    plain = score(Drawing(), chain(3), ScoreStore(tmp_path), Plan(batch=2))
    again = score(Drawing(), chain(3), ScoreStore(tmp_path / "b"), Plan(workers=2, batch=2))
    assert [found.score for found in plain.scores.values()] == [found.score for found in again.scores.values()]
    repeated = score(Drawing(), chain(3), ScoreStore(tmp_path), Plan(repeats=16))
    assert repeated.info.options == {"repeats": 16}
    assert repeated.computed == 3  # another question, other scores
    spreads = [found.spread for found in repeated.scores.values()]
    assert all(0.1 < spread < 0.5 for spread in spreads)  # of a uniform number: 0.29
    assert all(abs(found.score - 0.5) < 0.3 for found in repeated.scores.values())
    assert "the repeats of an image differ by a standard deviation of" in repeated.summary()
    steady = score(Doing(float), chain(3), ScoreStore(tmp_path), Plan(repeats=16))
    assert {found.spread for found in steady.scores.values()} == {None}


class Odd(BaseException):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize("workers", [0, 1])
def test_whatever_a_model_raises_or_calls_is_one_failed_score(tmp_path, workers):
    def misbehave(number):
        if number == 1:
            raise GeneratorExit("closed")
        if number == 2:
            raise Odd
        if number == 3:
            sys.exit(0)
        if number == 4:
            os._exit(0)
        return number

    found = by_round(score(Doing(misbehave), chain(5), ScoreStore(tmp_path), Plan(workers=workers)))
    ended = "the worker process ended by itself, exit code 0" if workers else "SystemExit: it called os._exit(0)"
    assert {number: item.message for number, item in found.items()} == {
        1: "GeneratorExit: closed",
        2: "Odd: its message cannot be shown",
        3: "SystemExit: 0",
        4: ended,
        5: None,
    }
    assert found[5].score == 5.0
