"""The scoring loop: one model over the images of a selection, through the store."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from banana100_bench.errors import BananaError
from banana100_bench.models.base import Model, ModelInfo, Noting, Picture
from banana100_bench.progress import progress
from banana100_bench.records import Row
from banana100_bench.store import STATUSES, Score, ScoreStore

MAX_MESSAGE = 500


class Images(Protocol):
    """What is scored; `data.Selection` is one."""

    @property
    def rows(self) -> Sequence[Row]: ...

    def images(self) -> Iterator[tuple[Row, bytes]]:
        """Every row with its encoded image, whose SHA-256 is the row's."""
        ...

    def subset(self, image_ids: Collection[str]) -> Images:
        """The rows with these ids alone."""
        ...


@dataclass(frozen=True)
class ScoreReport:
    """What scoring came to.

    info: the model, its direction included. scores: of every selected row, by image_id.
    computed: images that the model was run on; the other rows had a score in the store, or the same
        pixels as another row. seconds: wall time of it all. notes: what a person should be told, a line each.
    """

    info: ModelInfo
    scores: Mapping[str, Score]
    computed: int
    seconds: float
    notes: Sequence[str] = ()

    @property
    def reused(self) -> int:
        """Rows that needed no computation."""
        return len(self.scores) - self.computed

    @property
    def counts(self) -> dict[str, int]:
        """How many rows there are of each status, zeros included."""
        found = Counter(score.status for score in self.scores.values())
        return {status: found[status] for status in STATUSES}

    @property
    def failures(self) -> list[tuple[str, int]]:
        """The messages of failed and not finite scores with their counts, the most frequent first."""
        bad = (score.message or score.status for score in self.scores.values() if score.status != "ok")
        return Counter(bad).most_common()

    def summary(self) -> str:
        """A few lines for the terminal."""
        counts = ", ".join(f"{count} {status}" for status, count in self.counts.items())
        lines = [
            f"{self.info.id}: {len(self.scores)} images: {counts}; {self.computed} computed, {self.reused} reused, "
            f"{self.seconds:.1f} s; {'higher' if self.info.higher_is_better else 'lower'} is better"
        ]
        return "\n".join([*lines, *(f"  {warning}" for warning in self.warnings)])

    @property
    def warnings(self) -> list[str]:
        """What went wrong and what to know, a line each."""
        lines = [f"{count} x {message}" for message, count in self.failures[:3]]
        if len(self.failures) > 3:
            lines.append(f"and {len(self.failures) - 3} other messages")
        if self.counts["failed"]:
            lines.append("failed images are tried again on the next run")
        return [*lines, *self.notes]


def score(model: Model, selection: Images, store: ScoreStore) -> ScoreReport:
    """Score every image of `selection` with `model`, keeping each score in `store` as it comes.

    An image is scored once for its SHA-256. What the store holds is not computed again, but a failed image
    is. An error of the model makes that image "failed", NaN or an infinity makes it "nan" with that value as
    message; neither ends the run. BananaError if nothing is selected, or if every image failed.
    """
    start = time.perf_counter()
    rows = selection.rows
    if not rows:
        raise BananaError("nothing to score: no image is selected")
    info = model.info
    notes = [*store.other_versions(info), *(model.notes(rows) if isinstance(model, Noting) else ())]
    computed = 0
    with store.open(info) as scores:

        def missing(sha256: str) -> bool:
            known = scores.get(sha256)
            return known is None or known.status == "failed"

        todo = {row.sha256: row.image_id for row in reversed(rows) if missing(row.sha256)}
        reused = len(rows) - len(todo)
        what = f"{info.id} ({reused} of {len(rows)} reused)" if reused else info.id
        if todo:
            with progress(what, len(todo)) as advance:
                for row, data in selection.subset(set(todo.values())).images():
                    if missing(row.sha256):  # another process may have been faster
                        scores.append(measure(model, row, data))
                        computed += 1
                    advance(1)
        found = {row.image_id: _of(row, scores.get(row.sha256)) for row in rows}
    report = ScoreReport(info, found, computed, time.perf_counter() - start, notes)
    if report.counts["failed"] == len(rows):
        raise BananaError(f"{info.id}: every image failed ({len(rows)}): {found[rows[0].image_id].message}")
    return report


def measure(model: Model, row: Row, data: bytes) -> Score:
    """The score of one encoded image; whatever the model raises (but KeyboardInterrupt) makes it "failed"."""
    start = time.perf_counter()
    value, message = None, None
    try:
        value = float(model.score(Picture(row, data)))
    except (Exception, SystemExit) as error:
        status, message = "failed", _message(error)
    else:
        status = "ok" if math.isfinite(value) else "nan"
        if status == "nan":
            value, message = None, f"the model gave {value}"
    seconds = round(time.perf_counter() - start, 6)
    return Score(image_id=row.image_id, sha256=row.sha256, score=value, status=status, message=message, seconds=seconds)


def _message(error: BaseException) -> str:
    """One printable line: "Type: message", or the message alone where it is one of ours."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = first if isinstance(error, BananaError) else f"{type(error).__name__}: {first}".rstrip(": ")
    return "".join(char if char.isprintable() else "?" for char in text)[:MAX_MESSAGE]


def _of(row: Row, score: Score | None) -> Score:
    if score is None:
        raise BananaError(f"{row.image_id}: the dataset gave no image for this row")
    return dataclasses.replace(score, image_id=row.image_id)
