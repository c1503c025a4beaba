"""Does the score fall, round after round, within a run? Each criterion reads only the order of the scores."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from banana100_bench.criteria.runs import OK, RunScores, nested_mean, per_image, refuse_unfit
from banana100_bench.criteria.statistic import Crossing, Floats, Means
from banana100_bench.criteria.verdict import change_signs
from banana100_bench.protocol import Rounds

GAPS = ((1, 1), (2, 4), (5, 9), (10, 19), (20, 49), (50, 9999))


def passes(runs: RunScores, rounds: Rounds) -> NDArray[np.bool_]:
    """Which runs pass: every later round is strictly worse than the baseline. Shape (n_runs,).

    A round that is missing, NaN or failed is not worse, so its run does not pass.
    """
    return np.all(change_signs(runs, rounds) < 0, axis=1)


def strict_pass_rate(runs: RunScores, rounds: Rounds) -> float:
    """The mean of `passes` (see `nested_mean`), in [0, 1]: the ranking score.

    Scores in random order reach `strict_pass_chance`. Raises UsageError as `refuse_unfit` does.
    """
    refuse_unfit(runs, rounds)
    return nested_mean([Fraction(int(passed)) for passed in passes(runs, rounds)], runs)


def strict_pass_chance(rounds: Rounds) -> float:
    """The chance that the baseline is the best of all compared rounds: 1/4 for the paper's four."""
    return 1 / len(rounds.all)


def concordance(runs: RunScores, rounds: Rounds) -> float:
    """Share of the pairs of compared rounds (six for the paper's four) whose later one is strictly worse.

    The `nested_mean` over runs, in [0, 1]. As in the strict pass rate a tie, or a pair with a missing,
    NaN or failed round, is not concordant; scores in random order reach 1/2, equal scores 0.
    Raises UsageError as `refuse_unfit` does.
    """
    refuse_unfit(runs, rounds)
    agreeing, pairs = _agreeing(runs, rounds)
    return nested_mean([Fraction(int(count), pairs) for count in agreeing], runs)


def _agreeing(runs: RunScores, rounds: Rounds) -> tuple[NDArray[np.int64], int]:
    scores = runs.at(rounds.all).scores
    pairs = list(combinations(range(len(rounds.all)), 2))
    agreeing = sum((scores[:, later] < scores[:, earlier]).astype(np.int64) for earlier, later in pairs)
    return np.asarray(agreeing), len(pairs)


def ranking(runs: RunScores, rounds: Rounds) -> Means:
    """The strict pass rate and the concordance, for resampling."""
    agreeing, pairs = _agreeing(runs, rounds)
    values = np.column_stack([passes(runs, rounds), agreeing / pairs])
    status = runs.at(rounds.all).status
    return Means(("strict_pass_rate", "concordance"), per_image(values, runs), int((status == OK).sum()), status.size)


class Within:
    """The scores of each run from the baseline round to round `last`, those rounds alone that show its state.

    scores: (n_runs, m), NaN where unusable. places: (m,), the rounds, rising. used, expected: how many cells.
    """

    def __init__(self, runs: RunScores, rounds: Rounds, last: int):
        columns = [runs.rounds.index(number) for number in sorted(runs.rounds) if rounds.baseline <= number <= last]
        self.runs, self.rounds = runs, rounds
        self.comparable = runs.comparable(rounds)[:, columns]
        self.scores = np.where(self.comparable, runs.scores[:, columns], np.nan)
        self.places = np.array(runs.rounds, dtype=np.float64)[columns]
        self.used, self.expected = int((~np.isnan(self.scores)).sum()), int(self.comparable.sum())

    @cached_property
    def pairs(self) -> Pairs:
        return Pairs(self.scores, self.places)

    def means(self, values: dict[str, Floats]) -> Means:
        """The criteria by name, of a value for each run (n_runs,), as means over initial images."""
        return Means(
            tuple(values), per_image(np.column_stack(list(values.values())), self.runs), self.used, self.expected
        )


def correlations(within: Within, suffix: str) -> Means:
    """Minus the rank correlation of round and score within each run.

    srcc: Spearman's rho, ties at their mean rank. krcc: Kendall's tau-b. Both in [-1, 1]: 1, the score falls
    at every round; 0, chance; -1, it rises at every round. A run whose scores are all equal has 0 (scipy says
    NaN): it shows no order. NaN for a run with fewer than two usable rounds. Mean over runs as in `nested_mean`.
    """
    return within.means(
        {f"srcc_{suffix}": _spearman(within.scores, within.places), f"krcc_{suffix}": within.pairs.kendall()}
    )


def _spearman(scores: Floats, places: Floats) -> Floats:
    """Minus Spearman's rho of each row of `scores` (n, m), NaN cells left out, with the rising `places` (m,)."""
    from scipy.stats import rankdata

    found = np.full(len(scores), np.nan)
    usable = ~np.isnan(scores)
    patterns, which = np.unique(usable, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        m = int(pattern.sum())
        if m < 2:
            continue
        rows = np.flatnonzero(which.ravel() == number)
        ranks = rankdata(scores[np.ix_(rows, np.flatnonzero(pattern))], axis=1) - (m + 1) / 2
        x = np.arange(m) - (m - 1) / 2
        spread = np.sqrt((ranks**2).sum(axis=1) * (x**2).sum())
        found[rows] = -np.divide(ranks @ x, spread, out=np.zeros(len(rows)), where=spread > 0)
    return found


class Pairs:
    """All pairs of rounds within each run, the earlier one first, sorted by how far apart they are.

    scores: (n_runs, m), NaN where unusable. places: (m,), the rounds, rising.
    worse, better: (n_runs, n_pairs), whether the later score is strictly below, above the earlier.
    usable: whether neither is NaN. gaps: (n_pairs,), in rounds.
    """

    def __init__(self, scores: Floats, places: Floats):
        first, second = np.triu_indices(len(places), 1)
        gaps = places[second] - places[first]
        order = np.argsort(gaps, kind="stable")
        self.first, self.second, self.gaps = first[order], second[order], gaps[order]
        self.scores = scores
        earlier, later = scores[:, self.first], scores[:, self.second]
        self.worse, self.better = later < earlier, later > earlier
        usable = ~np.isnan(scores)
        self.usable = usable[:, self.first] & usable[:, self.second]

    def kendall(self) -> Floats:
        """Minus Kendall's tau-b of each run; rounds have no ties."""
        worse, better, all_ = (part.sum(axis=1) for part in (self.worse, self.better, self.usable))
        untied = worse + better
        spread = np.sqrt(all_.astype(np.float64) * untied)
        tau = np.divide(worse - better, spread, out=np.zeros(len(spread)), where=spread > 0)
        return np.where(all_ > 0, tau, np.nan)

    def share(self, what: NDArray[np.bool_], starts: Sequence[int]) -> Floats:
        """The share of usable pairs for which `what`, in each stretch of pairs that begins at `starts`: (n_runs, k)."""
        counts = np.add.reduceat(self.usable, starts, axis=1, dtype=np.int64)
        hits = np.add.reduceat(what & self.usable, starts, axis=1, dtype=np.int64)
        return np.divide(hits, counts, out=np.full(counts.shape, np.nan), where=counts > 0)


def pairs_by_gap(within: Within) -> Means:
    """Pairwise accuracy by how far apart the two rounds are: share of pairs whose later one is strictly worse.

    In [0, 1]; chance 1/2; a tie is not worse. A criterion for each of GAPS that has a pair, as pairwise_gap_2_4.
    Pairs with an unusable score are left out, and counted.
    """
    pairs = within.pairs
    present = [gap for gap in GAPS if ((pairs.gaps >= gap[0]) & (pairs.gaps <= gap[1])).any()]
    starts = [int(np.searchsorted(pairs.gaps, gap[0])) for gap in present]
    shares = pairs.share(pairs.worse, starts)
    return within.means({gap_name(*gap): shares[:, column] for column, gap in enumerate(present)})


def gap_name(low: int, high: int) -> str:
    """The criterion of pairs of rounds `low` to `high` apart."""
    return f"pairwise_gap_{low}" if low == high else f"pairwise_gap_{low}_{high}"


def inversions(within: Within) -> Means:
    """How often, and how far, the later of two rounds scores better.

    pairwise_accuracy, inversion_rate, tie_rate: shares of pairs whose later score is strictly worse, strictly
    better, equal; in [0, 1], together 1; chance 1/2, 1/2, 0.
    inversion_size: mean of the inverted differences, in units of `baseline_spread`; above 0; NaN where nothing is
    inverted or there is no such spread. large_inversion_rate: share of pairs inverted by more than one such unit.
    These two alone depend on the scale of the scores. In a resample the unit stays that of all images.
    """
    pairs = within.pairs
    with np.errstate(all="ignore"):
        size = (pairs.scores[:, pairs.second] - pairs.scores[:, pairs.first]) / baseline_spread(
            within.runs, within.rounds
        )
        count = pairs.better.sum(axis=1)
        mean_size = np.where(pairs.better, size, 0.0).sum(axis=1) / count
    share = {
        "pairwise_accuracy": pairs.worse,
        "inversion_rate": pairs.better,
        "tie_rate": ~pairs.worse & ~pairs.better,
        "large_inversion_rate": pairs.better & (size > 1),
    }
    values = {name: pairs.share(what, [0])[:, 0] for name, what in share.items()}
    values["large_inversion_rate"][~np.isfinite(size).any(axis=1)] = np.nan
    return within.means({**values, "inversion_size": np.where(np.isfinite(mean_size), mean_size, np.nan)})


def baseline_spread(runs: RunScores, rounds: Rounds) -> float:
    """Standard deviation (ddof 1) between initial images of their mean baseline score; NaN for fewer than two, or 0."""
    baseline = runs.at([rounds.baseline]).scores
    with np.errstate(all="ignore"):
        means = per_image(baseline, runs)[:, 0]
        means = means[np.isfinite(means)]
        spread = float(np.std(means, ddof=1)) if len(means) > 1 else np.nan
    return spread if np.isfinite(spread) and spread > 0 else np.nan


def first_notice(within: Within) -> tuple[Crossing, Means]:
    """From which round on a metric notices: that one and all later ones, to the last, are below the baseline.

    first_notice: the first scored round by which half of the runs (weighed as in `nested_mean`) have noticed, in
    rounds; NaN if never. Lower is better. noticed: the share of runs that notice at all, in [0, 1], chance 1/2: it
    is enough that the last round is worse. An unusable round is not below; a run without a usable baseline or last
    round is left out.
    """
    baseline = within.runs.at([within.rounds.baseline]).scores
    below = (within.scores < baseline) | ~within.comparable  # rounds of another state neither notice nor forget
    lasting = np.logical_and.accumulate(below[:, ::-1], axis=1)[:, ::-1]
    noticed = np.logical_or.accumulate(lasting & within.comparable, axis=1)
    last = np.where(within.comparable, within.places, -1).argmax(axis=1)  # of the runs' own state
    ends = np.take_along_axis(within.scores, last[:, None], axis=1)
    judged = ~np.isnan(baseline) & ~np.isnan(ends)
    shares = per_image(np.where(judged, noticed, np.nan), within.runs)
    return (
        Crossing(("first_notice",), shares, within.places, within.used, within.expected),
        Means(("noticed",), shares[:, -1:], within.used, within.expected),
    )
