"""A submission: one model's raw scores on one dataset, and what a reader of the board wants to know of it.

A JSON file of inputs alone: from the scores and the dataset's rows anyone derives every number. The few
numbers that it claims say what its result said; they must be the ones derived, and rank nothing.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field, StringConstraints, ValidationError, model_validator

from banana100_bench import files
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.package.licences import check_licence
from banana100_bench.protocol import Rounds
from banana100_bench.records import Row, fingerprint, to_name
from banana100_bench.result_schema import SCHEMA_VERSION as RESULT_VERSION
from banana100_bench.result_schema import (
    ComparedRounds,
    ControlScore,
    Count,
    Coverage,
    Hardware,
    ImageScore,
    Line,
    ModelFacts,
    Result,
    RoundNumber,
    Sha256,
    Share,
    Strict,
    Utc,
    problems,
)
from banana100_bench.results import Data, judged_rows, recompute

SCHEMA_VERSION: Final = 1
MAX_BYTES = 8 << 20  # 28,000 scores take 0.7 MB
FAULTS_SHOWN = 20
FOLDER = "submissions"
MAX_KEPT = 64

Status = Literal["nan", "failed", "timeout", "parse_error"]
# Plain letters alone: a name in look-alike letters of another script would pass for another's.
Name = Annotated[str, StringConstraints(max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+()/:-]*[A-Za-z0-9)+]$")]
PlainLine = Annotated[Line, StringConstraints(pattern=r"^[ -~]+$")]
Url = Annotated[
    str,
    StringConstraints(
        max_length=300, pattern=r"^https://[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(/[A-Za-z0-9._~:/?#@!$&()*+,;=%-]*)?$"
    ),
]
RepoId = Annotated[str, StringConstraints(max_length=96, pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")]


def _licence(text: str) -> str:
    try:
        return check_licence(text)
    except UsageError as error:
        raise ValueError(str(error)) from error


class Card(Strict):
    """Who made the model, in the submitter's words; shown on the board, and read by nothing else.

    name: of the row. url: of the model's paper, page or code. licence: of its weights, an id of the Hub's
    list. parameters: how many it has. hub_repo: its repository on the Hub, as org/name.
    """

    name: Name
    url: Url
    licence: Annotated[str, AfterValidator(_licence)]
    parameters: Count | None = None
    hub_repo: RepoId | None = None

    @property
    def slug(self) -> str:
        """What names its file and page."""
        return slug(self.name)


class ScoredImages(Strict):
    """Which images were scored: those of these rounds of all runs of these settings, in the dataset's order.

    name, dataset_fingerprint, simulated: of the dataset. config: "key_rounds" if the rounds are the paper's
    alone. fingerprint: `records.fingerprint` of the scored images.
    """

    name: Line
    dataset_fingerprint: Sha256
    simulated: bool
    config: Literal["key_rounds", "default"]
    settings: Annotated[list[Line], Field(min_length=1)]
    rounds: Annotated[list[RoundNumber], Field(min_length=1)]
    n_images: Count
    fingerprint: Sha256


class Claims(Strict):
    """The numbers of the result that was submitted; each follows exactly from the scores."""

    strict_pass_rate: Share
    concordance: Share
    images_detected: Count
    reversed: Count
    n_images: Count
    coverage: Coverage


class Submission(Strict):
    """The whole file. scores: raw, in the model's own direction, one for each scored image in the dataset's
    order; where there is none, why, as in `result_schema.RawScore`.
    controls: of harmless edits of the initial images, as the result has them; they change no rank.
    """

    schema_version: Literal[1]
    card: Card
    harness: Line
    created_at: Utc
    seconds: Annotated[float, Field(ge=0)]
    hardware: Hardware
    model: ModelFacts
    data: ScoredImages
    compared: ComparedRounds
    claims: Claims
    controls: Annotated[list[ControlScore], Field(max_length=10_000)]
    scores: list[float | Status]

    @model_validator(mode="after")
    def _check(self) -> Submission:
        if not re.fullmatch(r"[A-Za-z0-9][ -~]*", self.model.id):
            raise ValueError(f"model.id {self.model.id!r}: expected plain letters, beginning with a letter or digit")
        if len(self.scores) != self.data.n_images:
            raise ValueError(f"{len(self.scores)} scores, but data.n_images says {self.data.n_images}")
        return self

    def text(self) -> str:
        """The file's text; the only one for this submission."""
        return files.dump_json(self.model_dump(mode="json"))

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        files.write_text(path, self.text())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return files.sha256_bytes(self.text().encode())


def slug(name: str) -> str:
    """The file name, without its ending, of the row called `name`."""
    return to_name(name) or "model"


def skeleton(name: str) -> str:
    """`name` as the eye takes it in: two names with one skeleton would be mistaken for each other."""
    return re.sub("[^a-z0-9]", "", name.lower()).translate(str.maketrans("01il", "oLLL"))


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a submission file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Submission.model_json_schema()}


class _Selection(NamedTuple):
    rows: list[Row]
    fingerprint: str
    at: dict[str, int]  # where in rows each image of the board's compared rounds is


@dataclass(frozen=True)
class Ground:
    """What submissions are judged on. data: all rows of the dataset. settings: of the board; None for all."""

    data: Data
    rounds: Rounds
    settings: frozenset[str] | None = None

    @cached_property
    def compared(self) -> list[Row]:
        """The rows that every submission must cover: of the settings whose rounds can be compared."""
        chosen = self.settings or {row.setting for row in self.data.rows if row.setting}
        rows = select(self.data.rows, self.rounds.all, {name for name in chosen if name})
        return judged_rows(rows, self.rounds)[0]

    @cached_property
    def _grounds(self) -> dict[tuple[str, ...], Ground]:
        return {}

    def about(self, settings: Sequence[str]) -> Ground:
        """The same for a submission about these settings, which may be more than the board's."""
        key = tuple(settings)
        if key not in self._grounds:
            if len(self._grounds) > MAX_KEPT:  # strangers choose the keys
                self._grounds.clear()
            other = Ground(self.data, self.rounds, frozenset(settings))
            self._grounds[key] = self if other.compared == self.compared else other
        return self._grounds[key]

    @cached_property
    def _selections(self) -> dict[tuple[tuple[int, ...], tuple[str, ...]], _Selection]:
        return {}

    def selection(self, rounds: Sequence[int], settings: Sequence[str]) -> _Selection:
        """The images of these rounds of these settings, looked up once for all submissions that scored them."""
        key = (tuple(rounds), tuple(settings))
        if key not in self._selections:
            rows = select(self.data.rows, rounds, settings)
            wanted = {row.image_id for row in self.compared}
            at = {row.image_id: position for position, row in enumerate(rows) if row.image_id in wanted}
            if len(self._selections) > MAX_KEPT:
                self._selections.clear()
            self._selections[key] = _Selection(rows, fingerprint((row.image_id, row.sha256) for row in rows), at)
        return self._selections[key]


def select(rows: Iterable[Row], rounds: Iterable[int], settings: Iterable[str]) -> list[Row]:
    """Of `rows`, in their order, those of these rounds of all runs of these settings; round 0 as it begins them."""
    numbers, names = set(rounds), set(settings)
    rows = list(rows)
    starts = {row.initial_image for row in rows if row.setting in names}
    return [
        row
        for row in rows
        if row.round in numbers and (row.setting in names or (row.run_id is None and row.initial_image in starts))
    ]


def claims(result: Result) -> Claims:
    """What a submission of `result` claims."""
    return Claims(
        strict_pass_rate=result.strict_pass_rate.value,
        concordance=result.concordance.value,
        images_detected=result.verdict.detected,
        reversed=result.verdict.reversed,
        n_images=result.verdict.n_images,
        coverage=result.coverage,
    )


def make_submission(result: Result, data: Data, card: Card) -> Submission:
    """The submission of `result`, which was made on the dataset whose rows, all of them, are `data`.

    BananaError where the result is of another dataset, or does not cover some rounds of some settings whole.
    """
    if result.data.dataset_fingerprint != data.dataset_fingerprint:
        raise BananaError(
            f"the result is about another dataset, {result.data.name} {result.data.dataset_fingerprint[:12]}; "
            f"{data.name} is {data.dataset_fingerprint[:12]}"
        )
    known = {row.image_id: row for row in data.rows}
    scored = {score.image_id: score for score in result.scores}
    unknown = sorted(scored.keys() - known.keys())
    if unknown:
        raise BananaError(f"the result scores images that the dataset does not have, the first {unknown[0]!r}")
    of_result = [known[name] for name in scored]
    rounds = sorted({row.round for row in of_result})
    settings = sorted({row.setting for row in of_result if row.setting})
    rows = select(data.rows, rounds, settings)
    absent = [row.image_id for row in rows if row.image_id not in scored]
    if absent or not settings:
        raise BananaError(
            f"the result lacks {len(absent)} of the {len(rows)} images of its rounds and settings, the first "
            f"{absent[0] if absent else 'of any run'}; evaluate all runs, at all of those rounds"
        )
    try:
        return Submission(
            schema_version=SCHEMA_VERSION,
            card=card,
            harness=result.harness,
            created_at=result.created_at,
            seconds=result.seconds,
            hardware=result.hardware,
            model=result.model,
            data=ScoredImages(
                name=data.name,
                dataset_fingerprint=data.dataset_fingerprint,
                simulated=any(row.simulated for row in rows),
                config="key_rounds" if set(rounds) == set(Rounds().all) else "default",
                settings=settings,
                rounds=rounds,
                n_images=len(rows),
                fingerprint=fingerprint((row.image_id, scored[row.image_id].sha256) for row in rows),
            ),
            compared=result.rounds,
            claims=claims(result),
            controls=result.controls,
            scores=[_cell(scored[row.image_id]) for row in rows],
        )
    except ValidationError as error:
        raise BananaError(f"this cannot be submitted: {'; '.join(problems(error, FAULTS_SHOWN))}") from error


def _cell(score: ImageScore) -> float | Status:
    if score.status == "ok":
        assert score.score is not None  # as ImageScore checks
        return score.score
    return score.status


def make_card(**facts: Any) -> Card:
    """A card of these facts; UsageError that explains every one that will not do."""
    try:
        return Card(**facts)
    except ValidationError as error:
        lines = [f"--{line.replace('_', '-', 1)}" for line in problems(error, FAULTS_SHOWN)]
        raise UsageError("; ".join(lines)) from error


def parse_submission(text: bytes) -> Submission:
    """The submission in `text`; BananaError that explains every fault.

    The text must be the very one that `Submission.text` gives: what a person reads in a pull request
    is then what counts, with no name given twice, and one submission has one digest.
    """
    if len(text) > MAX_BYTES:
        raise BananaError(f"larger than the limit of {MAX_BYTES} bytes")
    try:
        submission = Submission.model_validate_json(text)
    except ValidationError as error:
        raise BananaError(f"not a valid submission: {'; '.join(problems(error, FAULTS_SHOWN))}") from error
    if submission.text().encode() != text:
        raise BananaError("not in canonical form: write the file with `banana100 submit` and do not edit it")
    submission.__dict__["digest"] = files.sha256_bytes(text)  # spares writing it once more
    return submission


def load_submission(path: Path) -> Submission:
    """The submission in the file at `path`; BananaError as `parse_submission`, and for anything but a plain file."""
    return parse_submission(read_plain(path, MAX_BYTES))


def read_plain(path: Path, limit: int) -> bytes:
    """The bytes of a file that may be a stranger's: no link, no device, no more than `limit` bytes."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                raise BananaError("not a plain file")
            if facts.st_size > limit:
                raise BananaError(f"{facts.st_size} bytes, larger than the limit of {limit} bytes")
            return file.read(limit + 1)
    except OSError as error:
        raise BananaError(f"cannot be read, or is a link: {error.strerror or error}") from error


def recomputed(submission: Submission, ground: Ground) -> Result:
    """All numbers of `submission` derived from its scores and the rows of `ground`, of which it has to cover
    those compared; BananaError that says why that cannot be.
    """
    chosen = ground.selection(submission.data.rounds, submission.data.settings)
    if chosen.fingerprint != submission.data.fingerprint or len(chosen.rows) != len(submission.scores):
        raise BananaError(
            f"its {len(submission.scores)} scores are of other images (fingerprint {submission.data.fingerprint[:12]}) "
            f"than the {len(chosen.rows)} that the dataset has of its rounds and settings ({chosen.fingerprint[:12]})"
        )
    scores = []
    for image_id, position in chosen.at.items():
        cell = submission.scores[position]
        value, status = (None, cell) if isinstance(cell, str) else (float(cell), "ok")
        assert value is None or math.isfinite(value)  # as the schema has it
        sha256 = chosen.rows[position].sha256
        scores.append(ImageScore.model_construct(image_id=image_id, sha256=sha256, score=value, status=status))
    facts = {name: getattr(submission, name) for name in ("harness", "created_at", "seconds", "hardware", "model")}
    given = Result.model_construct(
        schema_version=RESULT_VERSION,
        data=submission.data,
        rounds=submission.compared,
        scores=scores,
        controls=submission.controls,
        **facts,
    )
    return recompute(given, ground.compared, every_criterion=False)
