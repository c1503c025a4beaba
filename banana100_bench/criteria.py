"""Does a metric see that a picture got worse? Pure functions on arrays of scores.

Everything here reads only the order of scores within one run, so any strictly increasing transform
of them changes nothing but `Change.d`, which is for display. The verdict is the paper's (arXiv
2604.03400, section "NR-IQA"); the strict pass rate and the concordance are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from banana100_bench.errors import UsageError
from banana100_bench.protocol import Rounds

OK, MISSING, NAN, FAILED = range(4)  # missing: there is no image of that round
OUTCOMES = ("detected", "reversed", "mixed", "tie", "unscored", "missing")
HEADLINE_GROUP = "replication"


@dataclass(frozen=True, kw_only=True)
class RunScores:
    """The scores of one model, a line a run, oriented so that HIGHER IS BETTER.

    scores: float64 (n_runs, n_rounds), finite where status is OK, NaN elsewhere.
    status: int8 (n_runs, n_rounds), each OK, MISSING, NAN or FAILED.
    rounds: the round of each column, each once.
    run_ids, images, settings, groups, periods: of each run: its id, its initial image, its setting,
        the setting's group, and after how many rounds the setting shows the same state again.
    """

    scores: NDArray[np.float64]
    status: NDArray[np.int8]
    rounds: tuple[int, ...]
    run_ids: tuple[str, ...]
    images: tuple[str, ...]
    settings: tuple[str, ...]
    groups: tuple[str, ...]
    periods: tuple[int, ...]

    def __post_init__(self) -> None:
        shape = (len(self.run_ids), len(self.rounds))
        if self.scores.shape != shape or self.status.shape != shape:
            raise ValueError(f"scores {self.scores.shape}, status {self.status.shape}: expected {shape}")
        if {len(self.images), len(self.settings), len(self.groups), len(self.periods)} != {len(self.run_ids)}:
            raise ValueError(f"expected one image, setting, group and period for each of {len(self.run_ids)} runs")
        if not np.array_equal(self.status == OK, np.isfinite(self.scores)):
            raise ValueError("expected a finite score exactly where the status is OK")

    def at(self, rounds: Sequence[int]) -> RunScores:
        """The same runs at these `rounds` only, in this order; a round without a column is MISSING."""
        scores = np.full((len(self.run_ids), len(rounds)), np.nan)
        status = np.full(scores.shape, MISSING, np.int8)
        for column, number in enumerate(rounds):
            if number in self.rounds:
                scores[:, column] = self.scores[:, self.rounds.index(number)]
                status[:, column] = self.status[:, self.rounds.index(number)]
        return replace(self, scores=scores, status=status, rounds=tuple(rounds))

    def select(self, indices: Sequence[int]) -> RunScores:
        """The runs at these positions only."""
        index = list(indices)

        def pick(values: tuple) -> tuple:
            return tuple(values[i] for i in index)

        return RunScores(
            scores=self.scores[index],
            status=self.status[index],
            rounds=self.rounds,
            run_ids=pick(self.run_ids),
            images=pick(self.images),
            settings=pick(self.settings),
            groups=pick(self.groups),
            periods=pick(self.periods),
        )


def refuse_unfit(runs: RunScores, rounds: Rounds) -> None:
    """UsageError where a setting shows another state at one of `rounds` than at another (mirror, ...)."""
    for setting, period in sorted(set(zip(runs.settings, runs.periods, strict=True))):
        if not rounds.fits(period):
            later = ", ".join(map(str, rounds.later))
            raise UsageError(
                f"setting {setting!r} shows the same state only every {period} rounds, so round {rounds.baseline} "
                f"cannot be compared with {later}; leave it out, or compare rounds that differ by multiples of "
                f"{period} (for example baseline {period}, later {2 * period},{3 * period})"
            )


def change_signs(runs: RunScores, rounds: Rounds) -> NDArray[np.float64]:
    """How each later round compares with the baseline: -1 worse, 0 tie, +1 better, NaN not usable.

    Shape (n_runs, len(rounds.later)). Scores are compared, not subtracted, so none is lost to rounding.
    """
    scores = runs.at(rounds.all).scores
    baseline, later = scores[:, :1], scores[:, 1:]
    signs = (later > baseline).astype(np.float64) - (later < baseline)
    signs[np.isnan(later) | np.isnan(baseline)] = np.nan
    return signs


@dataclass(frozen=True)
class Change:
    """One later round against the baseline, over the runs of one setting and one initial image.

    d: mean over runs of the raw change in score, oriented so that below 0 is worse; never divided by
        the baseline score, which may be negative. None where no run has both scores, or where the
        mean is too large for a float. For display only: the verdict counts runs.
    worse, tie, better, unusable: in how many runs the score is so.
    """

    setting: str
    round: int
    d: float | None
    worse: int
    tie: int
    better: int
    unusable: int

    @property
    def n_runs(self) -> int:
        return self.worse + self.tie + self.better + self.unusable


@dataclass(frozen=True)
class ImageVerdict:
    """The outcome (one of OUTCOMES) for one initial image, and the changes it rests on."""

    image: str
    outcome: str
    changes: list[Change]


def verdicts(runs: RunScores, rounds: Rounds) -> list[ImageVerdict]:
    """Whether the metric detects the degradation, for each initial image, in the order of their names.

    The paper: a metric detects degradation on an image when the changes d5, d10 and d20 from round 1
    are all negative after orienting so that higher is better. How it aggregates repetitions is not
    known. Ours: a change is negative when strictly more than half of the image's runs are strictly
    worse at that round (with one repetition this is the paper's rule). All runs of one setting and
    image count as repetitions. If an image has several settings, each must agree.

    - missing: an image of a compared round is absent in one of its runs.
    - unscored: a score there is NaN or failed.
    - detected: every change is negative. Nothing else is a success.
    - reversed: every change is positive by the same majority: degraded pictures get better scores.
    - tie: not detected, but it would be if equal scores counted as worse.
    - mixed: none of these.

    The first that applies is the outcome. Raises UsageError as `refuse_unfit` does.
    """
    refuse_unfit(runs, rounds)
    compared = runs.at(rounds.all)
    found = []
    for image, indices in sorted(_positions(compared.images).items()):
        of_image = compared.select(indices)
        changes = [
            change
            for _, same_setting in sorted(_positions(of_image.settings).items())
            for change in _changes(of_image.select(same_setting), rounds)
        ]
        found.append(ImageVerdict(image, _outcome(of_image.status, changes), changes))
    return found


def _positions(names: Iterable[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        found.setdefault(name, []).append(position)
    return found


def _changes(runs: RunScores, rounds: Rounds) -> list[Change]:
    """The change at each later round over `runs`, which share setting and initial image."""
    signs = change_signs(runs, rounds)
    scores = runs.at(rounds.all).scores
    with np.errstate(over="ignore", invalid="ignore"):
        differences = scores[:, 1:] - scores[:, :1]
    return [
        Change(
            setting=runs.settings[0],
            round=number,
            d=_mean_or_none(differences[~np.isnan(signs[:, column]), column].tolist()),
            worse=int((signs[:, column] < 0).sum()),
            tie=int((signs[:, column] == 0).sum()),
            better=int((signs[:, column] > 0).sum()),
            unusable=int(np.isnan(signs[:, column]).sum()),
        )
        for column, number in enumerate(rounds.later)
    ]


def _mean_or_none(values: list[float]) -> float | None:
    if not values or not all(map(math.isfinite, values)):
        return None
    try:
        return math.fsum(values) / len(values)  # exactly rounded, so the same on every machine and in any order
    except OverflowError:
        return None


def _outcome(status: NDArray[np.int8], changes: list[Change]) -> str:
    if (status == MISSING).any():
        return "missing"
    if (status != OK).any():
        return "unscored"
    if all(2 * change.worse > change.n_runs for change in changes):
        return "detected"
    if all(2 * change.better > change.n_runs for change in changes):
        return "reversed"
    if all(2 * (change.worse + change.tie) > change.n_runs for change in changes):
        return "tie"
    return "mixed"


def headline(runs: RunScores) -> RunScores:
    """The runs that the headline verdict is about: the group "replication" if present, else all."""
    chosen = [i for i, group in enumerate(runs.groups) if group == HEADLINE_GROUP]
    return runs.select(chosen) if chosen else runs


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
    scores = runs.at(rounds.all).scores
    pairs = list(combinations(range(len(rounds.all)), 2))
    agreeing = sum((scores[:, later] < scores[:, earlier]).astype(np.int64) for earlier, later in pairs)
    return nested_mean([Fraction(int(count), len(pairs)) for count in np.asarray(agreeing)], runs)


def nested_mean(values: Sequence[Fraction], runs: RunScores) -> float:
    """Mean of one value a run: over the runs of a setting and image, then over settings, then over images.

    Each initial image weighs the same, however many runs it has. Fractions make it exact: equal
    shares are equal floats, whatever the order of the runs, so ties in rank are real ties.
    """
    tree: dict[str, dict[str, list[Fraction]]] = {}
    for image, setting, value in zip(runs.images, runs.settings, values, strict=True):
        tree.setdefault(image, {}).setdefault(setting, []).append(value)
    return float(_mean([_mean([_mean(of_setting) for of_setting in of_image.values()]) for of_image in tree.values()]))


def _mean(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction()) / len(values)
