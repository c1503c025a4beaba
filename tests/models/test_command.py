"""Real programs that answer by JSON lines, well and badly."""

import os
import sys
import time

import pytest

from banana100_bench.engine.measure import measure
from banana100_bench.engine.scheduler import Plan
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.models import open_model
from banana100_bench.scoring import score
from banana100_bench.store import ScoreStore
from tests.models.making import chain, picture, texture

PROGRAM = """
import json, os, sys
from pathlib import Path

with open(sys.argv[1], "a") as log:
    log.write(f"{os.getpid()}\\n")
for line in sys.stdin:
    asked = json.loads(line)
    number = int(asked["image_id"][-3:])
    size = Path(asked["path"]).stat().st_size
    if number == 2:
        print("it broke", file=sys.stderr)
        os._exit(3)
    odd = {3: '{"error": "too dark"}', 4: "hello", 5: '{"score": "high"}', 6: '{"score": null}', 7: "[1]"}
    print(odd.get(number) or json.dumps({"score": size / 8}), flush=True)
"""


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "judge.py").write_text(PROGRAM)
    return f"command:{sys.executable} {tmp_path / 'judge.py'} {tmp_path / 'log'}"


def test_a_program_is_asked_and_started_again_when_it_dies(spec, tmp_path):
    model = open_model(spec, higher_is_better=True)
    assert not (tmp_path / "log").exists()  # it starts with the first image
    images = chain(8)
    found = {item.row.round: measure(model, item) for item in images.pictures}
    for number in (1, 8):
        assert (found[number].status, found[number].score) == ("ok", images.pictures[number - 1].row.num_bytes / 8)
    name = sys.executable
    assert {number: (found[number].status, found[number].message) for number in range(2, 8)} == {
        2: ("failed", f"{name} ended with exit code 3: it broke"),
        3: ("failed", "too dark"),
        4: ("failed", f"{name} answered 'hello\\n', expected a line of JSON: {{\"score\": N}}"),
        5: ("failed", "TypeError: the model gave str, expected one number"),
        6: ("nan", "the model gave nan"),
        7: ("failed", f"{name} answered '[1]\\n', expected " + '{"score": N}'),
    }
    assert len((tmp_path / "log").read_text().split()) == 3  # at first, after its death, after its nonsense


def test_the_program_ends_with_its_model(spec, tmp_path):
    model = open_model(spec, higher_is_better=True)
    assert measure(model, picture(texture(), 1)).status == "ok"
    pid = int((tmp_path / "log").read_text())
    folder = model._running.folder
    os.kill(pid, 0)
    del model
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not folder.exists()


def test_one_worker_alone_runs_it_and_a_program_that_hangs_times_out(tmp_path):
    (tmp_path / "hang.py").write_text(
        "import json, sys, time\nfor line in sys.stdin:\n    number = int(json.loads(line)['image_id'][-3:])\n"
        "    time.sleep(100 if number == 2 else 0)\n    print(json.dumps({'score': number}), flush=True)\n"
    )
    model = open_model(f"command:{sys.executable} {tmp_path / 'hang.py'}", higher_is_better=True)
    model.pixels = False  # no self-test
    start = time.monotonic()
    report = score(model, chain(3), ScoreStore(tmp_path / "store"), Plan(workers=1, timeout=2))
    assert [found.status for found in report.scores.values()] == ["ok", "timeout", "ok"]
    assert time.monotonic() - start < 60


def test_calls_that_do_not_fit(spec):
    with pytest.raises(UsageError, match="higher or a lower score better"):
        open_model(spec)
    with pytest.raises(UsageError, match="no such program 'no-such-program'"):
        open_model("command:no-such-program --fast", higher_is_better=True)
    with pytest.raises(UsageError, match="No closing quotation"):
        open_model("command:'x", higher_is_better=True)
    with pytest.raises(UsageError, match="unknown option of command:"):
        open_model(spec, higher_is_better=True, options={"x": 1})
    with pytest.raises(BananaError, match="takes no weights"):
        open_model(spec, higher_is_better=True, weights="w.pth")
    assert open_model(spec, higher_is_better=False, options={"version": "2"}).info.options == {"version": "2"}
