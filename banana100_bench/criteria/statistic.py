"""A criterion as a function of how much each initial image weighs.

The initial image is the unit of all inference, its runs are nested in it. With weights of one a statistic
has its value, with counts of a resample its bootstrap replicate, with one image's weight 0 its jackknife.
So no score is read again for a resample, and 10,000 of them are a few matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from banana100_bench.criteria.runs import usable_mean

Floats = NDArray[np.float64]
EPSILON = 1e-9  # two sums of weights that should be equal differ by less


class Statistics(Protocol):
    """Several criteria that rest on the same scores. names: of each. used, expected: of the scores, how many are ok."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def used(self) -> int: ...
    @property
    def expected(self) -> int: ...

    def __call__(self, weights: Floats) -> Floats:
        """Their values for each row of `weights`, (B, n_images) and none below 0: (B, len(names)); NaN where empty."""
        ...

    def n_images(self) -> NDArray[np.intp]:
        """How many initial images each rests on: (len(names),)."""
        ...


@dataclass(frozen=True)
class Means:
    """Means over initial images. values: (n_images, k), NaN where an image has none."""

    names: Sequence[str]
    values: Floats
    used: int
    expected: int

    def __call__(self, weights: Floats) -> Floats:
        return usable_mean(weights, self.values)

    def n_images(self) -> NDArray[np.intp]:
        return (~np.isnan(self.values)).sum(axis=0)


@dataclass(frozen=True)
class PairShares:
    """How often one of an image's scores is above one of another image's (or its own), over all pairs of images.

    won: (k, n_images, n_images), the share in [0, 1], ties counted as the criterion says, NaN where there is
    no pair. Each pair of images weighs the product of their weights.
    """

    names: Sequence[str]
    won: Floats
    used: int
    expected: int

    def __call__(self, weights: Floats) -> Floats:
        found = np.empty((len(weights), len(self.won)))
        for column, won in enumerate(self.won):
            usable = ~np.isnan(won)
            total = weights.sum(axis=1) ** 2 if usable.all() else ((weights @ usable) * weights).sum(axis=1)
            sums = ((weights @ np.where(usable, won, 0.0)) * weights).sum(axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                found[:, column] = np.where(total > 0, sums / total, np.nan)
        return found

    def n_images(self) -> NDArray[np.intp]:
        usable = ~np.isnan(self.won)
        return (usable.any(axis=1) | usable.any(axis=2)).sum(axis=1)


@dataclass(frozen=True)
class Crossing:
    """The first place at which the mean over images of a rising share reaches a half; NaN if none does.

    shares: (n_images, m), each row rising, NaN rows for images without any. places: (m,).
    """

    names: Sequence[str]
    shares: Floats
    places: Floats
    used: int
    expected: int

    def __call__(self, weights: Floats) -> Floats:
        share = usable_mean(weights, self.shares)
        reached = share >= 0.5 - EPSILON
        first = np.where(reached.any(axis=1), self.places[reached.argmax(axis=1)], np.nan)
        return first[:, None]

    def n_images(self) -> NDArray[np.intp]:
        return np.array([(~np.isnan(self.shares).all(axis=1)).sum()])


def pair_share(above: Sequence[Floats], below: Sequence[Floats], tie: float) -> Floats:
    """For the lists i and j the share of pairs (a of above[i], b of below[j]) with a > b; a tie counts `tie`.

    Returns (len(above), len(below)), NaN where there is no pair.
    """
    found = np.full((len(above), len(below)), np.nan)
    sizes = [len(values) for values in above]
    filled = [i for i, size in enumerate(sizes) if size]
    joined = np.concatenate([above[i] for i in filled]) if filled else np.empty(0)
    starts = np.cumsum([0, *(sizes[i] for i in filled)])[:-1]
    for j, values in enumerate(below):
        if not filled or not len(values):
            continue
        ordered = np.sort(values)
        lower = np.searchsorted(ordered, joined, "left")
        equal = np.searchsorted(ordered, joined, "right") - lower
        found[filled, j] = np.add.reduceat(lower + tie * equal, starts) / (len(values) * np.array(sizes)[filled])
    return found


def by_image(values: Floats, image: NDArray[np.intp], n_images: int) -> list[Floats]:
    """The numbers of `values` (n,) that are not NaN, a list for each image. image: (n,), of which each is."""
    return [values[(image == i) & ~np.isnan(values)] for i in range(n_images)]
