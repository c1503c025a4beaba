"""Several models on the same images: their ranks, how sure those are, and who cannot be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from banana100_bench import stats
from banana100_bench.results import Result, ranks


@dataclass(frozen=True)
class Standing:
    """Where one model stands by its strict pass rate.

    rank: see `results.ranks`. rank_interval: from which to which rank it comes in 95 % of resamples of the initial
    images. tie_group: 1 for the best model and all that cannot be told from it; see `stats.tie_groups`.
    p_value: of the exact paired sign-flip test of its rates per image against the leader's, adjusted by Holm over
    all models that are compared with the leader; None for the leader itself.
    """

    rank: int
    rank_interval: tuple[int, int]
    tie_group: int
    p_value: float | None


def compare(results: Sequence[Result]) -> list[Standing | None]:
    """The standing of each; None where the model is not ranked, since not every image has a usable score.

    UsageError where the results do not judge the same images at the same rounds (see `results.ranks`).
    """
    places = ranks(results)
    ranked = [i for i, place in enumerate(places) if place is not None]
    if not ranked:
        return [None] * len(results)
    rates = np.array([list(results[i].strict_pass_rate.by_image.values()) for i in ranked]).T
    leader = min(range(len(ranked)), key=lambda j: (places[ranked[j]], j))
    others = [j for j in range(len(ranked)) if j != leader]
    p_values = stats.holm(stats.sign_flip_test(rates[:, [leader]] - rates[:, others]).tolist())
    against_leader = dict(zip(others, p_values, strict=True))
    intervals, groups = stats.rank_intervals(rates), stats.tie_groups(rates)
    found: list[Standing | None] = [None] * len(results)
    for j, i in enumerate(ranked):
        low, high = intervals[:, j].tolist()
        place = places[i] or 0
        # Equal rates are parted by the concordance, which is not resampled: the rank lies in its interval all the same.
        found[i] = Standing(place, (min(low, place), max(high, place)), groups[j], against_leader.get(j))
    return found
