"""Statistics that the criteria need: how sure one may be, and which models can be told apart.

The initial image is the unit: runs from one image are no independent evidence. All randomness has a fixed seed,
so equal scores give equal intervals. NaN, never 0, for what nothing is known of. scipy does the special functions.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
RESAMPLES = 10_000
SEED = 20260403
EXACT_UP_TO = 16  # images: 2^16 sign patterns at most; beyond, as many random ones
BLOCK = 2048  # models at a time, so that a flood of them needs no gigabytes
TIE = 1e-9  # two mean shares that should be equal differ by less


def clopper_pearson(k: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """The exact (Clopper-Pearson, 1934) interval of a share, seen as `k` of `n`; both bounds in [0, 1].

    level: the confidence, in (0, 1). For n = 0 nothing is known: both bounds are NaN.
    ValueError where k is not in 0..n.
    """
    if not 0 <= k <= n:  # scipy 1.18 no longer says so
        raise ValueError(f"{k} of {n}: the count must not be below 0 or above the total")
    if n == 0:
        return (float("nan"), float("nan"))
    from scipy.stats import binomtest

    interval = binomtest(k, n).proportion_ci(level, method="exact")
    return (float(interval.low), float(interval.high))


@lru_cache(maxsize=8)
def resample_weights(n: int, resamples: int = RESAMPLES, seed: int = SEED) -> Floats:
    """How often each of `n` initial images is drawn in each resample of the cluster bootstrap: (resamples, n).

    Images are drawn with replacement, each with all its runs: of the ways to resample nested data the one whose
    variance comes nearest the true one (Davison and Hinkley, Bootstrap Methods, 1997, section 3.8). Read-only.
    """
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float64)
    weights.setflags(write=False)
    return weights


def jackknife_weights(n: int) -> Floats:
    """Each of `n` initial images left out once: (n, n)."""
    return 1.0 - np.eye(n)


def tail(level: float = LEVEL, n: int | None = None) -> float:
    """The share of replicates beyond each bound of an interval: (1 - level) / 2, or less for few images.

    A bootstrap of `n` images is too narrow: its variance is (n - 1) / n of what it should be, and it knows no
    heavier tails than the normal's. So the tail is widened (Hesterberg, The American Statistician 2015, "expanded
    percentile"): Phi(-sqrt(n / (n - 1)) t), t being Student's quantile for n - 1 degrees of freedom; 0.012 in place
    of 0.025 for 13 images. None: not widened.
    """
    if n is None:
        return (1 - level) / 2
    from scipy.special import ndtr, stdtrit

    return float(ndtr(math.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 - level) / 2)))


def percentile_interval(replicates: Floats, level: float = LEVEL, n: int | None = None) -> Floats:
    """The percentile interval (Efron 1979) of each column of `replicates` (B, k): (2, k).

    n: how many images were resampled, to widen it as `tail` says. NaN replicates are resamples in which the
    statistic does not exist. They are left out, and where they are more than 1 in 20 both bounds are NaN.
    """
    beyond = np.full(replicates.shape[1], tail(level, n))
    return _quantiles(np.sort(replicates, axis=0), np.stack([beyond, 1 - beyond]))


def bca_interval(
    replicates: Floats, estimate: Floats, jackknife: Floats, level: float = LEVEL, n: int | None = None
) -> Floats:
    """The bias-corrected and accelerated interval (Efron 1987) of each column of `replicates` (B, k): (2, k).

    estimate: (k,), the statistic of the data. jackknife: (n, k), with each image left out. n: as for
    `percentile_interval`. Half of the replicates that equal the estimate count as below it. NaN where the correction
    does not exist, as when all replicates lie on one side of the estimate; and as for `percentile_interval`.
    """
    from scipy.special import ndtr, ndtri

    ordered = np.sort(replicates, axis=0)
    known = np.maximum((~np.isnan(replicates)).sum(axis=0), 1)
    close = np.abs(replicates - estimate) <= TIE
    below = ((replicates < estimate) & ~close).sum(axis=0) + 0.5 * close.sum(axis=0)
    with np.errstate(all="ignore"):
        left = ~np.isnan(jackknife)
        away = np.where(left, np.where(left, jackknife, 0).sum(axis=0) / left.sum(axis=0) - jackknife, 0.0)
        cubes, squares = (away**3).sum(axis=0), (away**2).sum(axis=0)
        bias = ndtri(below / known)
        acceleration = np.where(squares > 0, cubes / (6 * squares**1.5), 0.0)
        beyond = tail(level, n)
        z = ndtri(np.array([[beyond], [1 - beyond]]))
        levels = ndtr(bias + (bias + z) / (1 - acceleration * (bias + z)))
    return _quantiles(ordered, np.where(np.isfinite(bias), levels, np.nan))


def _quantiles(ordered: Floats, levels: Floats) -> Floats:
    """Quantiles at `levels` (2, k), interpolated as numpy's, of the sorted columns (B, k) with NaN at their ends."""
    known = (~np.isnan(ordered)).sum(axis=0)
    enough = known > 0.95 * len(ordered)
    at = np.where(enough & np.isfinite(levels), levels * np.maximum(known - 1, 0), 0.0)
    low = np.floor(at).astype(np.intp)
    high = np.minimum(low + 1, np.maximum(known - 1, 0))
    columns = np.arange(ordered.shape[1])[None, :]
    first, second = ordered[low, columns], ordered[high, columns]
    return np.where(enough & np.isfinite(levels), first + (at - low) * (second - first), np.nan)


def edge_bound(n: int, level: float = LEVEL) -> float:
    """How low a mean of numbers in [0, 1] may be although all `n` independent ones were 1.

    The lower bound of Clopper and Pearson for n of n: were the mean m, at most m of the numbers would be 1, and
    all n of them with probability m^n at most. The bootstrap would say [1, 1]. NaN for n = 0.
    """
    return float(((1 - level) / 2) ** (1 / n)) if n else float("nan")


def sign_flip_test(differences: Floats, seed: int = SEED) -> Floats:
    """Two-sided p-values of paired differences, under the null that each is as likely with the other sign.

    differences: (n, k), for each of n initial images one model's value minus another's. Statistic: their mean.
    Exact over all 2^n sign patterns up to EXACT_UP_TO images (Fisher 1935; the least possible p is 2^(1 - n)),
    else from as many random patterns, the observed one counted. Returns (k,); NaN for n = 0.
    """
    n, k = differences.shape
    if n == 0:
        return np.full(k, np.nan)
    if k > BLOCK:
        parts = [sign_flip_test(differences[:, at : at + BLOCK], seed) for at in range(0, k, BLOCK)]
        return np.concatenate(parts)
    seen = np.abs(differences.sum(axis=0)) - TIE
    if n <= EXACT_UP_TO:
        patterns = np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1  # the other half mirrors these
        return (np.abs((1.0 - 2.0 * patterns) @ differences) >= seen).mean(axis=0)
    signs = np.random.default_rng(seed).integers(0, 2, (2**EXACT_UP_TO, n)) * 2.0 - 1.0
    return (1 + (np.abs(signs @ differences) >= seen).sum(axis=0)) / (1 + len(signs))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values: reject those up to a level, and the chance of any wrong one is at most that."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, so_far = [0.0] * len(p_values), 0.0
    for place, i in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - place) * p_values[i]))
        adjusted[i] = so_far
    return adjusted


def rank_intervals(values: Floats, level: float = LEVEL) -> NDArray[np.intp]:
    """From which rank to which each model comes in the cluster bootstrap: (2, k), 1 is best.

    values: (n_images, k), higher is better. In each resample a model's rank is 1 plus how many are better; the
    bounds are the percentiles of that, rounded outwards.
    """
    n, k = values.shape
    means = resample_weights(n) @ values / n
    ranks = 1 + np.stack([(means > means[:, [model]] + TIE).sum(axis=1) for model in range(k)], axis=1)
    low, high = np.quantile(ranks, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.stack([np.floor(low), np.ceil(high)]).astype(np.intp)


def tie_groups(values: Floats, level: float = LEVEL) -> list[int]:
    """Models that cannot be told apart from the best of their group; the best group is 1.

    values: (n_images, k), higher is better. The first group is the model of the highest mean and all whose
    difference from it `sign_flip_test`, adjusted by `holm` over them, does not reject; the second begins with
    the best of the rest, and so on. A model is compared with leaders only: among all pairs of 23 models Holm
    could never reject with 13 images.
    """
    left = sorted(range(values.shape[1]), key=lambda model: -values[:, model].mean())
    groups = [0] * values.shape[1]
    number = 0
    while left:
        number += 1
        leader, others = left[0], left[1:]
        adjusted = holm(sign_flip_test(values[:, [leader]] - values[:, others]).tolist())
        apart = {model for model, p in zip(others, adjusted, strict=True) if p <= 1 - level}
        for model in left:
            if model not in apart:
                groups[model] = number
        left = [model for model in left if model in apart]
    return groups


def rank_with_ties(keys: Sequence[Any]) -> list[int]:
    """Competition ranks of comparable `keys`, the largest first: (9, 7, 7, 3) gives (1, 2, 2, 4)."""
    ascending = sorted(keys)
    return [1 + len(ascending) - bisect_right(ascending, key) for key in keys]
