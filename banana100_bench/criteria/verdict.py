"""The paper's verdict (arXiv 2604.03400, section "NR-IQA"): on which initial images is the degradation detected?

It reads only the order of scores within a run, so any strictly increasing transform of them changes
nothing but `Change.d`, which is for display.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from banana100_bench.criteria.runs import MISSING, OK, RunScores, positions, refuse_unfit
from banana100_bench.protocol import Rounds

OUTCOMES = ("detected", "reversed", "mixed", "tie", "unscored", "missing")


def change_signs(runs: RunScores, rounds: Rounds) -> NDArray[np.float64]:
    """How each later round compares with the baseline: -1 worse, 0 tie, +1 better, NaN not usable.

    Shape (n_runs, len(rounds.later)). Scores are compared, not subtracted, so none is lost to rounding.
    """
    scores = runs.at(rounds.all).scores
    baseline, later = scores[:, :1], scores[:, 1:]
    signs = (later > baseline).astype(np.float64) - (later < baseline)
    signs[np.isnan(later) | np.isnan(baseline)] = np.nan
    return signs


@dataclass(frozen=True)
class Change:
    """One later round against the baseline, over the runs of one setting and one initial image.

    d: mean over runs of the raw change in score, oriented so that below 0 is worse; never divided by
        the baseline score, which may be negative. None where no run has both scores, or where the
        mean is too large for a float. For display only: the verdict counts runs.
    worse, tie, better, unusable: in how many runs the score is so.
    """

    setting: str
    round: int
    d: float | None
    worse: int
    tie: int
    better: int
    unusable: int

    @property
    def n_runs(self) -> int:
        return self.worse + self.tie + self.better + self.unusable


@dataclass(frozen=True)
class ImageVerdict:
    """The outcome (one of OUTCOMES) for one initial image, and the changes it rests on."""

    image: str
    outcome: str
    changes: list[Change]


def verdicts(runs: RunScores, rounds: Rounds) -> list[ImageVerdict]:
    """Whether the metric detects the degradation, for each initial image, in the order of their names.

    The paper: a metric detects degradation on an image when the changes d5, d10 and d20 from round 1
    are all negative after orienting so that higher is better. How it aggregates repetitions is not
    known. Ours: a change is negative when strictly more than half of the image's runs are strictly
    worse at that round (with one repetition this is the paper's rule). All runs of one setting and
    image count as repetitions. If an image has several settings, each must agree.

    - missing: an image of a compared round is absent in one of its runs.
    - unscored: a score there is NaN or failed.
    - detected: every change is negative. Nothing else is a success.
    - reversed: every change is positive by the same majority: degraded pictures get better scores.
    - tie: not detected, but it would be if equal scores counted as worse.
    - mixed: none of these.

    The first that applies is the outcome. Raises UsageError as `refuse_unfit` does.
    """
    refuse_unfit(runs, rounds)
    compared = runs.at(rounds.all)
    found = []
    for image, indices in sorted(positions(compared.images).items()):
        of_image = compared.select(indices)
        changes = [
            change
            for _, same_setting in sorted(positions(of_image.settings).items())
            for change in _changes(of_image.select(same_setting), rounds)
        ]
        found.append(ImageVerdict(image, _outcome(of_image.status, changes), changes))
    return found


def _changes(runs: RunScores, rounds: Rounds) -> list[Change]:
    """The change at each later round over `runs`, which share setting and initial image."""
    signs = change_signs(runs, rounds)
    scores = runs.at(rounds.all).scores
    with np.errstate(over="ignore", invalid="ignore"):
        differences = scores[:, 1:] - scores[:, :1]
    return [
        Change(
            setting=runs.settings[0],
            round=number,
            d=_mean_or_none(differences[~np.isnan(signs[:, column]), column].tolist()),
            worse=int((signs[:, column] < 0).sum()),
            tie=int((signs[:, column] == 0).sum()),
            better=int((signs[:, column] > 0).sum()),
            unusable=int(np.isnan(signs[:, column]).sum()),
        )
        for column, number in enumerate(rounds.later)
    ]


def _mean_or_none(values: list[float]) -> float | None:
    if not values or not all(map(math.isfinite, values)):
        return None
    try:
        return math.fsum(values) / len(values)  # exactly rounded, so the same on every machine and in any order
    except OverflowError:
        return None


def _outcome(status: NDArray[np.int8], changes: list[Change]) -> str:
    if (status == MISSING).any():
        return "missing"
    if (status != OK).any():
        return "unscored"
    if all(2 * change.worse > change.n_runs for change in changes):
        return "detected"
    if all(2 * change.better > change.n_runs for change in changes):
        return "reversed"
    if all(2 * (change.worse + change.tie) > change.n_runs for change in changes):
        return "tie"
    return "mixed"
