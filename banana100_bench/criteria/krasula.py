"""Krasula et al., "On the accuracy of objective image and video quality models", QoMEX 2016.

Their method needs to know of pairs of images whether people see a difference, and which is better. Here the pairs
of compared rounds of a run differ, and the earlier one is better; two repetitions at the same round are similar.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from banana100_bench.criteria.runs import OK, RunScores, per_image, positions
from banana100_bench.criteria.statistic import Floats, Means, PairShares, by_image, pair_share
from banana100_bench.protocol import Rounds


def auc(above: Floats, below: Floats) -> float:
    """The chance that one of `above` (n,) is larger than one of `below` (m,), a tie counting half; NaN if empty."""
    return float(pair_share([above], [below], 0.5)[0, 0])


def krasula(differences: Floats, truth: NDArray[np.integer]) -> tuple[float, float, float]:
    """AUC different/similar, AUC better/worse, and the share rightly classified at 0, each in [0, 1], chance 1/2.

    differences: (n,), the score of the first image of each pair minus that of the second. truth: (n,), 1 where the
    first is better, -1 where it is worse, 0 where people see no difference.
    """
    different, similar = differences[truth != 0], differences[truth == 0]
    right = different * truth[truth != 0]
    return (
        auc(np.abs(different), np.abs(similar)),
        auc(right, -right),
        float((right > 0).mean()) if len(right) else np.nan,
    )


def krasula_of_runs(runs: RunScores, rounds: Rounds) -> tuple[PairShares, Means]:
    """`krasula` on the pairs named above, each initial image weighing the same.

    krasula_ds: NaN where no setting and initial image has two repetitions. krasula_bw, krasula_cc0.
    """
    compared = runs.at(rounds.all)
    image, n = runs.image_index, len(runs.image_names)
    scores = compared.scores
    with np.errstate(over="ignore", invalid="ignore"):
        right = np.column_stack([scores[:, i] - scores[:, j] for i, j in combinations(range(len(rounds.all)), 2)])
        of_pair, similar = [], []
        for same in positions(list(zip(runs.settings, runs.images, strict=True))).values():
            for one, other in combinations(same, 2):
                similar.append(scores[one] - scores[other])
                of_pair.append(np.full(len(rounds.all), image[one]))
    right = np.where(np.isnan(right), np.nan, np.clip(right, -1e308, 1e308))
    each = np.broadcast_to(image[:, None], right.shape).ravel()
    different = by_image(right.ravel(), each, n)
    alike = by_image(
        np.abs(np.concatenate([np.empty(0), *similar])), np.concatenate([np.empty(0, np.intp), *of_pair]), n
    )
    won = np.stack(
        [
            pair_share([np.abs(values) for values in different], alike, 0.5),
            pair_share(different, [-values for values in different], 0.5),
        ]
    )
    used, expected = int((compared.status == OK).sum()), compared.status.size
    counts = (~np.isnan(right)).sum(axis=1)
    rightly = np.divide((right > 0).sum(axis=1), counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return (
        PairShares(("krasula_ds", "krasula_bw"), won, used, expected),
        Means(("krasula_cc0",), per_image(rightly[:, None], runs), used, expected),
    )
