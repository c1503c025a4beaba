"""How a person's wishes for the machine become a plan."""

import sys

import pytest

from banana100_bench.engine import machine
from banana100_bench.errors import UsageError
from banana100_bench.harness import Machine
from banana100_bench.models import open_model

linux = pytest.mark.skipif(sys.platform != "linux", reason="worker processes are forked on Linux alone")
LOOKING = [open_model("baseline:noise")]


@linux
@pytest.mark.parametrize(
    ("wanted", "images", "workers", "calibrate"),
    [
        (Machine(), 100, 4, True),
        (Machine(), 3, 3, True),
        (Machine(), 1, 1, False),
        (Machine(device="auto"), 100, 4, True),  # a machine without a GPU: as with cpu
        (Machine(threads=2), 100, 2, False),
        (Machine(workers=4), 100, 4, False),
        (Machine(workers=0), 100, 0, False),
        (Machine(device="cuda"), 100, 0, False),
        (Machine(timeout=3), 100, 4, True),
    ],
)
def test_auto_takes_all_cores_and_calibrates_only_what_was_left_open(wanted, images, workers, calibrate, monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 4)
    monkeypatch.setattr("banana100_bench.models.find_device", lambda name: {"auto": "cpu"}.get(name, name))
    plan = wanted.plan(LOOKING, images)
    assert (plan.workers, plan.calibrate, plan.threads) == (workers, calibrate, wanted.threads)


def test_a_model_that_looks_at_no_pixels_stays_in_this_process():
    plan = Machine().plan([open_model("baseline:file-size")], 100)
    assert (plan.workers, plan.calibrate) == (0, False)


def test_a_timeout_needs_worker_processes():
    with pytest.raises(UsageError, match="--timeout 3: needs worker processes"):
        Machine(workers=0, timeout=3).plan(LOOKING, 10)
