"""Does a metric see that a picture got worse? Pure functions on arrays of scores; no torch, no files.

runs        the scores, a line a run, and how they are averaged
verdict     the paper's: on which initial images is the degradation detected?
ordering    does the score fall round after round? the ranking score is here
filtering   can a threshold keep clean images and stop degraded ones?
krasula     different or similar, better or worse (QoMEX 2016)
controls    would harmless edits be flagged too?
statistic   a criterion as a function of how much each initial image weighs
battery     all criteria at once, and what each of them is
"""

from banana100_bench.criteria.battery import ABOUT, About, battery
from banana100_bench.criteria.controls import CONTROLS, EDITS, ControlScores, false_alarms
from banana100_bench.criteria.filtering import KEEP, CleanAndDegraded, filtering, roc, separation
from banana100_bench.criteria.krasula import auc, krasula, krasula_of_runs
from banana100_bench.criteria.ordering import (
    GAPS,
    Within,
    concordance,
    correlations,
    first_notice,
    gap_name,
    inversions,
    pairs_by_gap,
    passes,
    ranking,
    strict_pass_chance,
    strict_pass_rate,
)
from banana100_bench.criteria.runs import (
    FAILED,
    HEADLINE_GROUP,
    MISSING,
    NAN,
    OK,
    RunScores,
    headline,
    nested_mean,
    per_image,
    refuse_unfit,
)
from banana100_bench.criteria.statistic import Crossing, Means, PairShares, Statistics
from banana100_bench.criteria.verdict import OUTCOMES, Change, ImageVerdict, change_signs, verdicts

__all__ = [
    "ABOUT",
    "CONTROLS",
    "EDITS",
    "FAILED",
    "GAPS",
    "HEADLINE_GROUP",
    "KEEP",
    "MISSING",
    "NAN",
    "OK",
    "OUTCOMES",
    "About",
    "Change",
    "CleanAndDegraded",
    "ControlScores",
    "Crossing",
    "ImageVerdict",
    "Means",
    "PairShares",
    "RunScores",
    "Statistics",
    "Within",
    "auc",
    "battery",
    "change_signs",
    "concordance",
    "correlations",
    "false_alarms",
    "filtering",
    "first_notice",
    "gap_name",
    "headline",
    "inversions",
    "krasula",
    "krasula_of_runs",
    "nested_mean",
    "pairs_by_gap",
    "passes",
    "per_image",
    "ranking",
    "refuse_unfit",
    "roc",
    "separation",
    "strict_pass_chance",
    "strict_pass_rate",
    "verdicts",
]
