"""The scores that every criterion reads, and how they are averaged: over repetitions, settings, initial images."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from banana100_bench.errors import UsageError
from banana100_bench.protocol import Rounds

OK, MISSING, NAN, FAILED = range(4)  # missing: there is no image of that round
HEADLINE_GROUP = "replication"

Name = TypeVar("Name", bound=Hashable)


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

    def comparable(self, rounds: Rounds) -> NDArray[np.bool_]:
        """Which cells show the state of the baseline round, at or after it. Shape (n_runs, n_rounds).

        In a round-trip setting (mirror, decolour and recolour) that is every `period`-th round only.
        """
        passed = np.array(self.rounds)[None, :] - rounds.baseline
        return (passed >= 0) & (passed % np.array(self.periods)[:, None] == 0)

    @property
    def image_names(self) -> tuple[str, ...]:
        """The initial images, each once, sorted."""
        return tuple(sorted(set(self.images)))

    @property
    def image_index(self) -> NDArray[np.intp]:
        """The position in `image_names` of each run's image. Shape (n_runs,)."""
        place = {name: position for position, name in enumerate(self.image_names)}
        return np.array([place[name] for name in self.images], dtype=np.intp)

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


def headline(runs: RunScores) -> RunScores:
    """The runs that the headline verdict is about: the group "replication" if present, else all."""
    chosen = [i for i, group in enumerate(runs.groups) if group == HEADLINE_GROUP]
    return runs.select(chosen) if chosen else runs


def positions(names: Iterable[Name]) -> dict[Name, list[int]]:
    """At which positions each name stands."""
    found: dict[Name, list[int]] = {}
    for position, name in enumerate(names):
        found.setdefault(name, []).append(position)
    return found


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


def per_image(values: NDArray[np.float64], runs: RunScores) -> NDArray[np.float64]:
    """`nested_mean` stopped before its last step, in floats: a mean for each initial image.

    values: (n_runs, k), NaN where a run has none; such runs are left out of the mean, which is NaN where
    all of them are. Returns (n_images, k), in the order of `RunScores.image_names`.
    """
    pairs = sorted(set(zip(runs.images, runs.settings, strict=True)))
    place = {pair: position for position, pair in enumerate(pairs)}
    of_run = np.zeros((len(pairs), len(runs.run_ids)))
    of_run[[place[pair] for pair in zip(runs.images, runs.settings, strict=True)], range(len(runs.run_ids))] = 1
    names = {name: position for position, name in enumerate(runs.image_names)}
    of_pair = np.zeros((len(names), len(pairs)))
    of_pair[[names[image] for image, _ in pairs], range(len(pairs))] = 1
    return usable_mean(of_pair, usable_mean(of_run, values))


def usable_mean(weights: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weighted mean of the rows of `values` (n, k) that are not NaN, for each row of `weights` (B, n): (B, k)."""
    usable = ~np.isnan(values)
    total = weights @ usable
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, (weights @ np.where(usable, values, 0.0)) / total, np.nan)
