"""Would the metric also flag what harms no picture? False alarms, to stand beside every detection.

A metric that calls each edited image worse detects every degradation and is of no use. So the same rules are put
to harmless edits of the initial images (`banana100_bench.controls` makes them).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from banana100_bench.criteria.runs import RunScores
from banana100_bench.criteria.statistic import Floats, Means, PairShares, by_image, pair_share
from banana100_bench.protocol import Rounds

EDITS = ("jpeg", "resize", "crop")
CONTROLS = ("original", *EDITS, "texture")


@dataclass(frozen=True)
class ControlScores:
    """Scores of the controls, oriented so that higher is better.

    scores: (n_images, len(CONTROLS)), in the order of `RunScores.image_names`, NaN where unusable or absent.
    used, expected: how many are usable, of how many images.
    """

    scores: Floats
    used: int
    expected: int

    @property
    def edited(self) -> Floats:
        return self.scores[:, 1 : 1 + len(EDITS)]

    def harmless(self) -> list[Floats]:
        """What no filter should stop, a list for each initial image: all but the originals."""
        return [row[~np.isnan(row)] for row in self.scores[:, 1:]]


def false_alarms(runs: RunScores, rounds: Rounds, controls: ControlScores) -> tuple[Means, PairShares]:
    """The verdict's rule put to harmless edits, and whether a degradation moves the score more than they do.

    control_flagged: share of initial images all of whose harmless edits (re-encoded, resized by a pixel, cropped)
    score strictly worse than the image itself: flagged by the rule of the verdict; in [0, 1], 0 is best, chance
    1/4. Only images with all of these scores count.
    control_auc: share of pairs of a harmless edit and a run, of any contents, in which the change from the image
    to its edit is above that from the baseline round to the last compared round; a tie counts half; in [0, 1],
    1 is best, chance 1/2.
    """
    original, edited = controls.scores[:, :1], controls.edited
    flagged = np.where(np.isnan(edited).any(axis=1) | np.isnan(original[:, 0]), np.nan, (edited < original).all(axis=1))
    ends = runs.at([rounds.baseline, rounds.later[-1]]).scores
    with np.errstate(over="ignore", invalid="ignore"):
        harmless, degraded = edited - original, ends[:, 1] - ends[:, 0]
    n = len(runs.image_names)
    won = pair_share([row[~np.isnan(row)] for row in harmless], by_image(degraded, runs.image_index, n), 0.5)
    return (
        Means(("control_flagged",), flagged[:, None], controls.used, controls.expected),
        PairShares(("control_auc",), won[None], controls.used, controls.expected),
    )
