"""Every criterion at once, and what each of them is: what a result records and a page explains."""

from __future__ import annotations

from dataclasses import dataclass

from banana100_bench.criteria import ordering
from banana100_bench.criteria.controls import ControlScores, false_alarms
from banana100_bench.criteria.filtering import KEEP, CleanAndDegraded, filtering, separation
from banana100_bench.criteria.krasula import krasula_of_runs
from banana100_bench.criteria.ordering import GAPS, Within, gap_name
from banana100_bench.criteria.runs import RunScores
from banana100_bench.criteria.statistic import Means, Statistics
from banana100_bench.protocol import Rounds

KRASULA = "Krasula et al., QoMEX 2016"
WATERLOO = "Ma et al., Waterloo Exploration Database, TIP 2017"
OURS = "this benchmark"


@dataclass(frozen=True)
class About:
    """What a criterion is. low, high: its range, None where there is no bound. chance: what scores in random order
    reach, None where that depends on the data. higher_is_better: of the criterion, not of the metric.
    """

    label: str
    says: str
    low: float | None
    high: float | None
    chance: float | None
    higher_is_better: bool
    source: str


def _share(label: str, says: str, chance: float | None, source: str = OURS, higher_is_better: bool = True) -> About:
    return About(label, says, 0.0, 1.0, chance, higher_is_better, source)


def _gap(low: int, high: int) -> About:
    span = f"{low}" if low == high else f"{low} or more" if high > 100 else f"{low} to {high}"
    rounds = f"{span} round{'s' * (span != '1')} apart"
    return _share(f"Order, {rounds}", f"Pairs {rounds} whose later image scores worse", 0.5)


ABOUT: dict[str, About] = {
    "strict_pass_rate": _share(
        "Strict pass rate", "Runs that score worse at every later round than at the baseline", None
    ),
    "concordance": _share("Concordance", "Pairs of compared rounds whose later one scores worse", 0.5),
    "pairwise_accuracy": _share(
        "Pairwise accuracy", "Pairs of rounds, to the last compared, whose later one scores worse", 0.5
    ),
    "inversion_rate": _share(
        "Inversions", "Pairs of rounds whose later, worse image scores BETTER", 0.5, higher_is_better=False
    ),
    "tie_rate": _share("Ties", "Pairs of rounds with equal scores", 0.0, higher_is_better=False),
    "large_inversion_rate": _share(
        "Large inversions", "Pairs inverted by more than the spread between clean images", None, higher_is_better=False
    ),
    "inversion_size": About(
        "Size of inversions",
        "By how much an inverted pair differs, in standard deviations between clean images",
        0.0,
        None,
        None,
        False,
        OURS,
    ),
    "srcc_early": About(
        "SRCC, early",
        "Spearman correlation with the order of rounds, to the last compared",
        -1,
        1,
        0,
        True,
        "Spearman 1904",
    ),
    "krcc_early": About(
        "KRCC, early", "Kendall tau-b with the order of rounds, to the last compared", -1, 1, 0, True, "Kendall 1945"
    ),
    "srcc_all": About(
        "SRCC, all",
        "Spearman correlation with the order of all scored rounds; late order has no human truth",
        -1,
        1,
        0,
        True,
        "Spearman 1904",
    ),
    "krcc_all": About(
        "KRCC, all",
        "Kendall tau-b with the order of all scored rounds; late order has no human truth",
        -1,
        1,
        0,
        True,
        "Kendall 1945",
    ),
    "first_notice": About(
        "First notice, round",
        "Round from which half of the runs stay below their baseline score",
        None,
        None,
        None,
        False,
        OURS,
    ),
    "noticed": _share("Noticed in the end", "Runs that score worse at the last compared round", 0.5),
    "auc": _share(
        "AUC, clean against degraded", "Pairs, of any contents, whose clean image scores above the degraded one", 0.5
    ),
    **{
        f"filter_escape_{level}": _share(
            f"Filter escape, {level} % kept",
            f"Degraded images that pass a filter which keeps {level} % of clean ones",
            level / 100,
            higher_is_better=False,
        )
        for level in KEEP
    },
    **{
        f"filter_alarm_{level}": _share(
            f"Filter false alarm, {level} % kept",
            "Harmless edits and textured clean images that the same filter stops",
            1 - level / 100,
            higher_is_better=False,
        )
        for level in KEEP
    },
    "krasula_ds": _share(
        "Krasula AUC, different/similar",
        "Do scores of two rounds differ more than those of two repetitions of one?",
        0.5,
        KRASULA,
    ),
    "krasula_bw": _share(
        "Krasula AUC, better/worse", "Do score differences tell the better of two rounds?", 0.5, KRASULA
    ),
    "krasula_cc0": _share("Krasula CC at 0", "Pairs of compared rounds that are told apart rightly", 0.5, KRASULA),
    "waterloo_d": _share(
        "Waterloo D", "Clean and degraded images told apart by the best threshold, balanced", None, WATERLOO
    ),
    "waterloo_l": About("Waterloo L", "Spearman correlation over the compared rounds", -1, 1, 0, True, WATERLOO),
    "waterloo_p": _share(
        "Waterloo P",
        "Pairs of a baseline and a last compared image, of any contents, in the right order",
        0.5,
        WATERLOO,
    ),
    "control_flagged": _share(
        "False alarm of the verdict", "Images whose harmless edits ALL score worse", None, higher_is_better=False
    ),
    "control_auc": _share(
        "Harmless or degraded", "Does a degradation lower the score more than a harmless edit does?", 0.5
    ),
    **{gap_name(*gap): _gap(*gap) for gap in GAPS},
}


def markdown() -> str:
    """All criteria as a table in Markdown, for docs/criteria.md."""

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:g}"

    lines = ["| name | what it is | range | chance | best | source |", "|---|---|---|---|---|---|"]
    for name, about in ABOUT.items():
        best = "high" if about.higher_is_better else "low"
        span = f"{number(about.low)} to {number(about.high)}"
        lines.append(f"| `{name}` | {about.says} | {span} | {number(about.chance)} | {best} | {about.source} |")
    return "\n".join(lines)


def battery(runs: RunScores, rounds: Rounds, controls: ControlScores | None = None) -> list[Statistics]:
    """Every criterion of `runs`, as statistics of how much each initial image weighs.

    controls: without them there are no control criteria, and filter_alarm is NaN. The criteria called `all` are
    there where a round beyond the last compared one was scored.
    """
    last = max(*runs.rounds, rounds.later[-1])
    early = Within(runs, rounds, rounds.later[-1])
    every = Within(runs, rounds, last) if last > rounds.later[-1] else early
    found = CleanAndDegraded.of(runs, rounds)
    pieces: list[Statistics] = [
        ordering.ranking(runs, rounds),
        ordering.inversions(early),
        ordering.correlations(early, "early"),
        *ordering.first_notice(early),
        separation(found),
        filtering(found, controls.harmless() if controls else None),
        *krasula_of_runs(runs, rounds),
        _listwise(Within(runs.at(rounds.all), rounds, rounds.later[-1])),
        ordering.pairs_by_gap(every),
    ]
    if every is not early:
        pieces.append(ordering.correlations(every, "all"))
    if controls:
        pieces += false_alarms(runs, rounds, controls)
    return pieces


def _listwise(compared: Within) -> Means:
    """waterloo_l: the L-test (Ma et al., TIP 2017, section IV): mean SRCC with the level, here the compared round."""
    srcc = ordering.correlations(compared, "early")
    return Means(("waterloo_l",), srcc.values[:, :1], srcc.used, srcc.expected)
