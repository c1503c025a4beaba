"""Can a threshold on the score keep clean images and stop degraded ones, whatever they show?

Clean are the images of the baseline round, degraded those from the last compared round on (the paper's 20).
All initial images are judged by one threshold, as a data filter does. Each initial image weighs the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from banana100_bench.criteria.runs import OK, RunScores
from banana100_bench.criteria.statistic import EPSILON, Floats, PairShares, by_image, pair_share
from banana100_bench.protocol import Rounds

KEEP = (90, 95, 99)  # per cent of clean images that a filter keeps


@dataclass(frozen=True)
class CleanAndDegraded:
    """The usable scores, a list for each initial image. last: degraded ones of the last compared round alone."""

    clean: list[Floats]
    degraded: list[Floats]
    last: list[Floats]
    used: int
    expected: int

    @classmethod
    def of(cls, runs: RunScores, rounds: Rounds) -> CleanAndDegraded:
        late = np.array(runs.rounds)[None, :] >= rounds.later[-1]
        wanted = runs.comparable(rounds) & late
        clean = runs.at([rounds.baseline])
        image, n = runs.image_index, len(runs.image_names)
        degraded = np.where(wanted, runs.scores, np.nan)
        each = np.broadcast_to(image[:, None], degraded.shape)
        return cls(
            clean=by_image(clean.scores[:, 0], image, n),
            degraded=by_image(degraded.ravel(), each.ravel(), n),
            last=by_image(runs.at([rounds.later[-1]]).scores[:, 0], image, n),
            used=int((clean.status == OK).sum() + (wanted & (runs.status == OK)).sum()),
            expected=int(clean.status.size + wanted.sum()),
        )


def separation(found: CleanAndDegraded) -> PairShares:
    """Are clean images scored above degraded ones, across contents?

    auc: area under the ROC, clean against degraded; in [0, 1], chance 1/2; a tie counts half.
    waterloo_p: the P-test of the Waterloo Exploration Database (Ma et al., TIP 2017, section IV): share of
    discriminable pairs in the right order; here the pairs of a baseline image with one of the last compared
    round, of any two contents; in [0, 1], chance 1/2; a tie is wrong.
    """
    won = np.stack([pair_share(found.clean, found.degraded, 0.5), pair_share(found.clean, found.last, 0.0)])
    return PairShares(("auc", "waterloo_p"), won, found.used, found.expected)


@dataclass(frozen=True)
class Filter:
    """See `filtering`. thresholds: (m,), rising. kept, passing, alarm: (n_images, m), for each initial image the
    share of its clean images, degraded images, harmless controls with a score at or above (alarm: below) each.
    """

    names: Sequence[str]
    thresholds: Floats
    kept: Floats
    passing: Floats
    alarm: Floats
    used: int
    expected: int

    def __call__(self, weights: Floats) -> Floats:
        if not self.thresholds.size:
            return np.full((len(weights), len(self.names)), np.nan)
        kept, passing = _share(weights, self.kept), _share(weights, self.passing)
        columns = []
        for level in KEEP:
            at = (kept >= level / 100 - EPSILON).sum(axis=1) - 1
            columns += [_share_at(weights, self.passing, at), _share_at(weights, self.alarm, at)]
        columns.append(((kept + 1 - passing) / 2).max(axis=1))
        return np.column_stack(columns)

    def n_images(self) -> NDArray[np.intp]:
        clean, degraded, alarm = ((~np.isnan(part).any(axis=1)) for part in (self.kept, self.passing, self.alarm))
        both = int((clean | degraded).sum())
        return np.array([*[both, int(alarm.sum())] * len(KEEP), both])

    def threshold(self, level: int) -> float:
        """The highest score at which at least `level` per cent of clean images pass; NaN if there is none."""
        if not self.thresholds.size:
            return float("nan")
        kept = _share(np.ones((1, len(self.kept))), self.kept)[0]
        return float(self.thresholds[(kept >= level / 100 - EPSILON).sum() - 1])


def _share(weights: Floats, shares: Floats) -> Floats:
    """The weighted mean over images with any: (B, m). All rows of `shares` (n_images, m) are NaN or none of them."""
    has = ~np.asarray(np.isnan(shares).any(axis=1))
    total = weights @ has
    with np.errstate(invalid="ignore", divide="ignore"):
        return (weights @ np.where(has[:, None], shares, 0.0)) / total[:, None]


def _share_at(weights: Floats, shares: Floats, at: NDArray[np.intp]) -> Floats:
    has = ~np.asarray(np.isnan(shares).any(axis=1))
    total = weights @ has
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (weights * np.where(has[:, None], shares, 0.0).T[at]).sum(axis=1) / total
    return np.where(at >= 0, found, np.nan)


def filtering(found: CleanAndDegraded, controls: Sequence[Floats] | None = None) -> Filter:
    """A filter that keeps at least 90, 95 or 99 % of clean images.

    filter_escape_95: the share of degraded images that pass it, in [0, 1]; 0 is best; chance 0.95: a blind filter
    passes as many degraded images as clean ones. filter_alarm_95: the share of `controls` (harmless edits of
    clean images, a list for each initial image) that it stops, in [0, 1]; 0 is best; chance 0.05.
    waterloo_d: the D-test (Ma et al., TIP 2017, section IV): over all thresholds the largest mean of the share of
    clean images kept and the share of degraded ones stopped; in [1/2, 1]; 1/2 for equal scores, but scores at
    random come out somewhat above, since the threshold is chosen to suit them.
    """
    clean, degraded = found.clean, found.degraded
    thresholds = np.unique(np.concatenate([np.empty(0), *clean]))
    stopped = _below(controls if controls is not None else [np.empty(0)] * len(clean), thresholds)
    names = [name for level in KEEP for name in (f"filter_escape_{level}", f"filter_alarm_{level}")]
    return Filter(
        names=(*names, "waterloo_d"),
        thresholds=thresholds,
        kept=1 - _below(clean, thresholds),
        passing=1 - _below(degraded, thresholds),
        alarm=stopped,
        used=found.used,
        expected=found.expected,
    )


def _below(lists: Sequence[Floats], thresholds: Floats) -> Floats:
    """For each list the share of its numbers below each threshold: (len(lists), m), NaN for an empty list."""
    return np.stack(
        [
            np.searchsorted(np.sort(values), thresholds, "left") / len(values)
            if len(values)
            else np.full(len(thresholds), np.nan)
            for values in lists
        ]
    )


def roc(found: CleanAndDegraded) -> tuple[Floats, Floats]:
    """The ROC: for each threshold, from above all scores to below, the share of degraded and of clean images that pass.

    Two arrays (m,), from 0 to 1; each initial image weighs the same.
    """
    every = np.unique(np.concatenate([np.empty(0), *found.clean, *found.degraded]))[::-1]
    ones = np.ones((1, len(found.clean)))
    passed = [_share(ones, 1 - _below(part, every))[0] for part in (found.degraded, found.clean)]
    return np.concatenate([[0.0], passed[0]]), np.concatenate([[0.0], passed[1]])
