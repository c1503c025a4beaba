"""The evaluate metric through evaluate's own front door, against the harness."""

import math
import struct
from pathlib import Path

import pytest

evaluate = pytest.importorskip("evaluate")

from banana100_bench.errors import UsageError  # noqa: E402
from banana100_bench.evaluate_metric import REFERENCE  # noqa: E402
from tests.fakes.judged import info, judge, make_rows  # noqa: E402

SCRIPT = str(Path(__file__).parents[1] / "loading_script" / "banana100_ordering.py")
ROWS = make_rows(repetitions=3, rounds=(1, 2, 5, 10, 20, 40))


def score(row):
    """Falls for most runs; differences far below what float32 can hold."""
    wiggle = struct.unpack(">H", bytes.fromhex(row.sha256[:4]))[0] % 7
    return 1e6 + 1e-7 * (wiggle * 3 - row.round)


def references(rows):
    return [{name: getattr(row, name) for name in REFERENCE} for row in rows]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("evaluate.config.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("evaluate.config.HF_METRICS_CACHE", str(tmp_path / "metrics"))


@pytest.fixture
def metric(tmp_path):
    return evaluate.load(SCRIPT, cache_dir=str(tmp_path / "cache"))


def expected(rows, higher_is_better=True):
    result = judge(rows, score, info(higher_is_better=higher_is_better))
    numbers = {name: c.value for name, c in result.criteria.items() if c.value is not None}
    return numbers | {
        "images_detected": result.verdict.detected,
        "n_images": result.verdict.n_images,
        "strict_pass_rate": result.strict_pass_rate.value,
        "concordance": result.concordance.value,
    }


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_compute_gives_the_harness_numbers_to_the_last_bit(metric, higher_is_better):
    found = metric.compute(
        predictions=[score(row) for row in ROWS], references=references(ROWS), higher_is_better=higher_is_better
    )
    assert found == expected(ROWS, higher_is_better)
    assert found["tie_rate"] < 0.1  # to a float32 all these scores are equal
    assert 0 < found["srcc_all"] < 1 or not higher_is_better


def test_add_add_batch_and_combine_give_the_same(metric, tmp_path):
    numbers, rows = [score(row) for row in ROWS], references(ROWS)
    metric.add(prediction=numbers[0], reference=rows[0])
    metric.add_batch(predictions=numbers[1:20], references=rows[1:20])
    metric.add_batch(predictions=numbers[20:], references=rows[20:])
    assert metric.compute(higher_is_better=True) == expected(ROWS)
    both = evaluate.combine([metric, evaluate.load(SCRIPT, cache_dir=str(tmp_path / "other"))])
    for i, (number, row) in enumerate(zip(numbers, rows, strict=True)):
        if i:
            both.add(prediction=number, reference=row)
        else:
            both.add_batch(predictions=[number], references=[row])
    found = both.compute(higher_is_better=True)
    first = {name.removeprefix("banana100_ordering_0_"): value for name, value in found.items() if "_0_" in name}
    assert first == expected(ROWS)
    assert len(found) == 2 * len(first)


def test_the_info_is_whole(metric):
    assert metric.features["predictions"].dtype == "float64"
    for text in (metric.description, metric.citation, metric.inputs_description, metric.homepage, metric.license):
        assert text
    assert "higher_is_better" in metric.inputs_description


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predictions": math.nan}, r"predictions\[2\] is nan: expected a finite number"),
        ({"predictions": math.inf}, r"predictions\[2\] is inf"),
        ({"round": 0}, r"references\[2\]: .*round 0: expected an image of a run"),
        ({"round": 1}, r"round 1 of run .* is given twice"),
        ({"initial_image": "other"}, r"references\[2\]: .*contradicts"),
        ({"period": 0}, r"references\[2\]: period 0"),
        ({"run_id": None}, r"references\[2\]: run_id None"),
    ],
)
def test_what_cannot_be_judged_is_refused_by_name(metric, change, message):
    numbers, rows = [score(row) for row in ROWS], references(ROWS)
    if "predictions" in change:
        numbers[2] = change["predictions"]
    else:
        rows[2] |= change
    with pytest.raises(UsageError, match=message):
        metric.compute(predictions=numbers, references=rows, higher_is_better=True)


def test_the_direction_is_never_guessed(metric):
    with pytest.raises(UsageError, match="higher_is_better: pass True or False"):
        metric.compute(predictions=[score(row) for row in ROWS], references=references(ROWS))
