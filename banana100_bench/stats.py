"""Statistics that the criteria need; scipy does the mathematics."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any


def clopper_pearson(k: int, n: int, level: float = 0.95) -> tuple[float, float]:
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


def rank_with_ties(keys: Sequence[Any]) -> list[int]:
    """Competition ranks of comparable `keys`, the largest first: (9, 7, 7, 3) gives (1, 2, 2, 4)."""
    ascending = sorted(keys)
    return [1 + len(ascending) - bisect_right(ascending, key) for key in keys]
