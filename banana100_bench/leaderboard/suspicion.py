"""Signs that scores do not come from looking at the pictures: pure functions on arrays.

They catch the careless, and prove nothing of the others; only scoring anew does (rescore.py). Statistics
on few images say little, so each sign is one that an honest metric does not show even there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from banana100_bench.records import Row

ROUND_SHARE = 0.99999  # of the variance; an honest metric may come near on look-alike pictures with simulated noise
SAME = 1e-12  # share of the variance that is rounding
MIN_IMAGES = 16  # of fewer, an honest metric may happen to order all by size


def signs(rows: Sequence[Row], scores: NDArray[np.float64]) -> list[str]:
    """What is suspicious of `scores` (n,), one for each of `rows`, NaN where there is none; empty if nothing is."""
    usable = np.isfinite(scores)
    if usable.sum() < MIN_IMAGES:
        return []
    values = np.asarray(scores[usable], float)
    kept = [row for row, good in zip(rows, usable, strict=True) if good]
    if values.min() == values.max():
        return [f"constant: every one of {len(values)} scores is {float(values[0])!r}"]
    found = []
    rounds = np.array([row.round for row in kept])
    if len(set(rounds)) > 1 and len(rounds) >= 2 * len(set(rounds)) and explained(values, rounds) >= ROUND_SHARE:
        found.append(
            f"a function of the round: it explains {explained(values, rounds):.5%} of the variance of the scores"
        )
    groups = [(row.initial_image, row.setting, row.round) for row in kept]
    same = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    labels = np.array([same[group] for group in groups])
    pictures = {(group, row.sha256) for group, row in zip(groups, kept, strict=True)}
    if not found and len(pictures) >= 2 * len(same) and explained(values, labels) >= 1 - SAME:
        found.append("a function of image name and round: different pictures of repetitions have equal scores")
    for what, sizes in (
        ("file size", [row.num_bytes for row in kept]),
        ("bytes per pixel", [row.num_bytes / (row.width * row.height) for row in kept]),
    ):
        if follows(values, np.array(sizes, float)):
            found.append(f"a function of the {what}: ordered by it, the scores only rise or only fall")
            break
    return found


def explained(values: NDArray[np.float64], groups: NDArray[np.int64]) -> float:
    """Share of the variance of `values` (n,) that lies between `groups` (n,), in [0, 1]: eta squared."""
    scaled = (values - values.mean()) / (np.abs(values - values.mean()).max() or 1)
    _, labels = np.unique(groups, return_inverse=True)
    means = np.bincount(labels, scaled) / np.bincount(labels)
    total = float((scaled**2).sum())
    return 1 - float(((scaled - means[labels]) ** 2).sum()) / total if total else 1.0


def follows(values: NDArray[np.float64], sizes: NDArray[np.float64]) -> bool:
    """Whether `values` only rise, or only fall, with `sizes` (both (n,)), equal sizes having equal values."""
    if len(set(sizes.tolist())) < MIN_IMAGES:
        return False
    order = np.lexsort((values, sizes))
    rise, step = np.diff(values[order]), np.diff(sizes[order])
    return not (rise[step == 0] != 0).any() and bool((rise >= 0).all() or (rise <= 0).all())


def order_digest(scores: NDArray[np.float64]) -> str:
    """SHA-256 of the order of `scores` (n,), higher being better: equal for any two that differ by a rising function.

    A copy that is stretched, shifted, or turned round along with its direction keeps its order.
    """
    _, ranks = np.unique(scores, return_inverse=True)  # NaN are one, the last
    return hashlib.sha256(ranks.astype("<i8").tobytes()).hexdigest()
