"""Score a random sample of a submission's images anew: what no statistic can show, this does.

It runs the model, so a maintainer says which: for a submission of pyiqa or of a baseline its own spec will
do, but code that a stranger names is never run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from banana100_bench.engine.measure import measure
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.harness import ModelChoice
from banana100_bench.leaderboard.submission import Submission, select
from banana100_bench.models import Picture, open_model
from banana100_bench.progress import progress

if TYPE_CHECKING:
    from banana100_bench.data import Selection

TOLERANCE = 0.01  # of the standard deviation of all scores: processors and library versions differ by less
MAX_REPEATS = 100
OPEN_KINDS = ("pyiqa", "baseline")  # whose spec runs only code that is installed here


@dataclass(frozen=True)
class Rescored:
    """What scoring anew gave. largest: difference, as a share of the standard deviation. faults: in words."""

    n_images: int
    largest: float
    faults: list[str]


def own_spec(submission: Submission) -> str:
    """The model that a submission names, if running it runs only code that is installed here; else UsageError."""
    facts = submission.model
    if facts.kind not in OPEN_KINDS or facts.id.partition(":")[0] != facts.kind:
        raise UsageError(f"{facts.id}: code that a submission names is never run; say which model to run: --model SPEC")
    return facts.id


def rescore(
    submission: Submission, data: Selection, n_images: int, model: ModelChoice, seed: int | None = None
) -> Rescored:
    """Score `n_images` of the submission's images, drawn at random, with `model`, and compare.

    data: all rows of the dataset, with its images. seed: of the draw; by default no one can foresee it.
    BananaError where the model is another than the submission's (weights, direction, options, source).
    """
    facts = submission.model
    opened = open_model(
        model.spec, weights=model.weights, higher_is_better=model.higher_is_better, options=model.options or {}
    )
    for what, own, theirs in (
        ("weights of SHA-256", opened.info.weights_sha256, facts.weights_sha256),
        ("direction: higher is better is", opened.info.higher_is_better, facts.higher_is_better),
        ("options", dict(opened.info.options), {n: v for n, v in facts.options.items() if n in opened.info.options}),
    ):
        if own != theirs:
            raise BananaError(f"{facts.id}: it has {what} {theirs}, this model {own}")
    run = {name: value for name, value in facts.options.items() if name not in opened.info.options}
    repeats = run.pop("repeats", 1)
    if run or not isinstance(repeats, int) or not 1 <= repeats <= MAX_REPEATS:
        raise BananaError(f"{facts.id}: it was run with {run or {'repeats': repeats}}, which cannot be repeated here")
    rows = select(data.rows, submission.data.rounds, submission.data.settings)
    if len(rows) != len(submission.scores):
        raise BananaError(f"{facts.id}: {len(submission.scores)} scores of {len(rows)} images; verify it first")
    cells = {row.image_id: cell for row, cell in zip(rows, submission.scores, strict=True)}
    draw = random.Random(seed) if seed is not None else random.SystemRandom()
    drawn = draw.sample(sorted(cells), min(n_images, len(cells)))
    spread = float(np.std([cell for cell in cells.values() if not isinstance(cell, str)] or [0.0]))
    faults, largest = [], 0.0
    with progress(f"{facts.id}, anew", len(drawn)) as advance:
        for row, image in data.subset(drawn).images():
            found, given = measure(opened, Picture(row, image), repeats=repeats), cells[row.image_id]
            new = found.status if found.score is None else found.score
            if isinstance(new, str) or isinstance(given, str):
                agree = new == given
            else:
                difference = abs(new - given) / spread if spread else float(new != given)
                agree = difference <= TOLERANCE
                largest = max(largest, difference)
            if not agree:
                faults.append(f"{row.image_id}: it says {given}, scored anew {new}")
            advance(1)
    return Rescored(len(drawn), largest, faults)
