"""Is a submission what it says? Offline: all that its scores and the dataset's rows can tell.

rejected: it has a fault. consistent: it has none that can be seen here. verified: its scores were computed
anew and agree (rescore.py; for a baseline that reads no pixels, here).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from banana100_bench.errors import BananaError
from banana100_bench.leaderboard import suspicion
from banana100_bench.leaderboard.submission import Ground, Submission, claims, recomputed, skeleton
from banana100_bench.models.baselines import NAMES, SEEING, uniform
from banana100_bench.records import Row
from banana100_bench.result_schema import CHEATING, ModelFacts, Result

Word = Literal["verified", "consistent", "rejected"]


@dataclass(frozen=True)
class Verdict:
    """What is found of one submission.

    faults: why it is rejected, none if it is not. notes: what else a maintainer should know.
    result: with every number derived; None where that cannot be. order: `suspicion.order_digest` of the
    compared scores.
    """

    word: Word
    faults: Sequence[str] = ()
    notes: Sequence[str] = ()
    result: Result | None = None
    order: str = ""

    def text(self, source: str) -> str:
        """A line for the verdict, then one for each fault and note."""
        lines = [f"{source}: {self.word}", *(f"  - {fault}" for fault in self.faults)]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def verify(submission: Submission, ground: Ground) -> Verdict:
    """The verdict on `submission` by itself; see `Rivals` for how it stands to others."""
    faults = _not_of(submission, ground)
    if faults:
        return Verdict("rejected", faults)
    try:
        result = recomputed(submission, ground)
        own = ground.about(submission.data.settings)
        by_itself = result if own is ground else recomputed(submission, own)
    except BananaError as error:
        return Verdict("rejected", [str(error)])
    faults = list(differences(submission.claims.model_dump(), claims(by_itself).model_dump()))
    rows = ground.selection(submission.data.rounds, submission.data.settings).rows
    scores = np.array([np.nan if isinstance(cell, str) else cell for cell in submission.scores])
    expected = _baseline_scores(submission.model, rows)
    word: Word = "consistent"
    if isinstance(expected, str):
        faults.append(expected)
    elif expected is None:
        faults += [f"suspicious: the scores are {sign}" for sign in suspicion.signs(rows, scores)]
    elif np.array_equal(scores, expected):
        word = "verified"
    else:
        faults.append(f"the scores are not those of {submission.model.id}, as its source computes them")
    coverage = result.coverage
    notes = []
    if not coverage.complete:
        notes.append(f"no rank: {coverage.ok} of {coverage.expected} scores are usable")
    if submission.model.cheat:
        notes.append(f"the board shows it as a cheat: {CHEATING}")
    of_id = {score.image_id: score.score for score in result.scores}
    compared = np.array(
        [np.nan if of_id[row.image_id] is None else of_id[row.image_id] for row in ground.compared], float
    )
    order = suspicion.order_digest(compared if submission.model.higher_is_better else -compared)
    return Verdict("rejected" if faults else word, faults, notes, result, order)


def _not_of(submission: Submission, ground: Ground) -> list[str]:
    """Why the submission is not about what the board is about."""
    data, faults = submission.data, []
    if data.dataset_fingerprint != ground.data.dataset_fingerprint:
        faults.append(
            f"it is about another {'simulated ' * data.simulated}dataset, {data.name} {data.dataset_fingerprint[:12]}; "
            f"this board is about {ground.data.name} {ground.data.dataset_fingerprint[:12]}"
        )
    elif data.name != ground.data.name:
        faults.append(f"it calls the dataset {data.name!r}, whose name is {ground.data.name!r}")
    if data.simulated != any(row.simulated for row in ground.data.rows):
        faults.append(f"it says simulated = {data.simulated}, which the dataset does not")
    if submission.compared.rounds() != ground.rounds:
        faults.append(f"it compares rounds {submission.compared.rounds().all}, this board {ground.rounds.all}")
    if data.rounds != sorted(set(data.rounds)) or data.settings != sorted(set(data.settings)):
        faults.append("data.rounds and data.settings: expected ascending order, each once")
    lacking = sorted(set(ground.rounds.all) - set(data.rounds))
    if lacking:
        faults.append(f"coverage: it has no scores of round {', '.join(map(str, lacking))}")
    missing = sorted({row.setting for row in ground.compared if row.setting} - set(data.settings))
    if missing:
        faults.append(f"coverage: it has no scores of setting {', '.join(missing)}")
    return faults


def differences(claimed: dict, found: dict, where: str = "") -> Iterable[str]:
    """A line for each number that is claimed and is not the one found, to the last bit."""
    for key, value in claimed.items():
        if isinstance(value, dict):
            yield from differences(value, found[key], f"{where}{key}.")
        elif value != found[key]:
            yield f"it claims {where}{key} = {value}, recomputed {found[key]}"


def _baseline_scores(model: ModelFacts, rows: Sequence[Row]) -> NDArray[np.float64] | str | None:
    """What a baseline that reads no pixels gives to `rows`; a fault if there is no such baseline; else None."""
    name = model.id.partition(":")[2]
    if (model.kind == "baseline") != model.id.startswith("baseline:") or (
        model.kind == "baseline" and name not in NAMES
    ):
        return (
            f"kind {model.kind!r} with id {model.id!r}: the baselines are {', '.join(f'baseline:{n}' for n in NAMES)}"
        )
    if model.kind != "baseline" or name in SEEING:
        return None
    if name == "constant":
        return np.zeros(len(rows))
    if name == "step-leak":
        return np.array([-float(row.round) for row in rows])
    if name == "random":
        seed = model.options.get("seed")
        if not isinstance(seed, int):
            return f"baseline:random with seed {seed!r}, expected an integer"
        return np.array([uniform(row.sha256, seed) for row in rows])
    assert name == "file-size"
    return np.array([row.num_bytes / (row.width * row.height) for row in rows])


@dataclass
class Rivals:
    """The submissions that stand so far; `fault` says what a further one has in common with one of them."""

    _names: dict[str, str] = field(default_factory=dict)  # by skeleton, by order of scores, by what names the model
    _orders: dict[str, str] = field(default_factory=dict)
    _models: dict[str, str] = field(default_factory=dict)

    def fault(self, submission: Submission, order: str) -> str | None:
        """Why `submission` cannot stand beside those added before; None, and it is added, if it can.

        order: `Verdict.order` of it.
        """
        name = submission.card.name
        keys = (
            (self._names, skeleton(name), "its name looks like that of {}, which was here first"),
            (self._orders, order, "its scores put the images in the same order as those of {}, which was here first"),
            (
                self._models,
                submission.model.model_dump_json(),
                "it claims to be the very model of {} (id, weights, options, versions), but gives other scores",
            ),
        )
        for known, key, words in keys:
            if key in known:
                return words.format(known[key])
        for known, key, _ in keys:
            known[key] = name
        return None
