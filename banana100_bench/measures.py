"""Every criterion of one model's runs, with its interval: numbers and notes for a result."""

from __future__ import annotations

import math

import numpy as np

from banana100_bench import stats
from banana100_bench.criteria import ABOUT, ControlScores, RunScores, battery
from banana100_bench.protocol import Rounds
from banana100_bench.result_schema import Criterion, Inference, IntervalMethod

INFERENCE = Inference(level=stats.LEVEL, resamples=stats.RESAMPLES, seed=stats.SEED)

# Why a criterion that applies has no value, where more can be said than that no usable score remains.
EMPTY = {
    "first_notice": "never: at least half of the runs do not notice by the last compared round",
    "inversion_size": "no inverted pair, or no spread between clean images to measure it by",
    "large_inversion_rate": "no spread between clean images to measure it by",
    "krasula_ds": "no initial image has two usable repetitions",
    **{f"filter_alarm_{level}": "no control was scored" for level in (90, 95, 99)},
}
LEAST_FOR_BCA = 5  # images; with fewer its corrections rest on too little
ALIKE = "all resamples agree: the images do not differ in this"


def measure(runs: RunScores, rounds: Rounds, controls: ControlScores | None = None) -> dict[str, Criterion]:
    """Each criterion of `criteria.battery` with its value and interval, in the order of `criteria.ABOUT`.

    Intervals are BCa, widened for few images (`stats.tail`); percentile where BCa does not exist or there are fewer
    images than LEAST_FOR_BCA; and where all resamples stand at an end of the range, so that the bootstrap would
    claim certainty, the other bound is `stats.edge_bound`.
    """
    found: dict[str, Criterion] = {}
    n = len(runs.image_names)
    ones, resamples, left_out = np.ones((1, n)), stats.resample_weights(n), stats.jackknife_weights(n)
    for piece in battery(runs, rounds, controls):
        values, replicates = piece(ones)[0], piece(resamples)
        bca = stats.bca_interval(replicates, values, piece(left_out), n=n) if n > 1 else None
        for column, (name, n_images) in enumerate(zip(piece.names, piece.n_images().tolist(), strict=True)):
            value = float(values[column])
            note = None
            interval: tuple[float, float] | None = None
            method: IntervalMethod | None = None
            if math.isnan(value):
                note = EMPTY.get(name, "no usable score to compute it from")
            elif n_images < 2 or bca is None:
                note = "one initial image: nothing is known of others"
            else:
                sound = n_images >= LEAST_FOR_BCA and np.isfinite(bca[:, column]).all()
                if sound:
                    low, high = bca[:, column]
                else:
                    low, high = stats.percentile_interval(replicates[:, [column]], n=n)[:, 0]
                method = "bca" if sound else "percentile"
                if np.isfinite([low, high]).all():
                    interval = (float(low), float(high))
            if interval and interval[0] == interval[1]:
                edge = _edge(name, value, n_images)
                interval, method, note = (edge, "clopper-pearson", note) if edge else (interval, method, ALIKE)
            found[name] = Criterion(
                value=None if math.isnan(value) else value,
                interval=interval,
                interval_method=method if interval else None,
                n_images=n_images,
                used=piece.used,
                expected=piece.expected,
                note=note,
            )
    return {name: found[name] for name in ABOUT if name in found}


def values(runs: RunScores, rounds: Rounds) -> dict[str, float]:
    """The values of `measure` alone, NaN where it has None: a hundred times as fast."""
    ones = np.ones((1, len(runs.image_names)))
    found = {
        name: value
        for piece in battery(runs, rounds)
        for name, value in zip(piece.names, piece(ones)[0].tolist(), strict=True)
    }
    return {name: found[name] for name in ABOUT if name in found}


def _edge(name: str, value: float, n_images: int) -> tuple[float, float] | None:
    """The interval of a criterion that stands at an end of its range on all images; None if it does not."""
    low, high = ABOUT[name].low, ABOUT[name].high
    if low is None or high is None or value not in (low, high):
        return None
    reach = (high - low) * (1 - stats.edge_bound(n_images))
    return (low, low + reach) if value == low else (high - reach, high)
