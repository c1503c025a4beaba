"""The result file: one model on one dataset, with every raw score, as JSON.

From its raw scores and the dataset's rows anyone can recompute every other number (`results.recompute`).
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from banana100_bench import files
from banana100_bench.criteria import ABOUT, CONTROLS, OUTCOMES, ImageVerdict
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.models.base import KINDS
from banana100_bench.protocol import Rounds
from banana100_bench.records import MAX_NAME, to_name

SCHEMA_VERSION: Final = 2
CHEATS = ("baseline:step-leak",)
CHEATING = "it looks at no pixel and reads the round off the label, so what it reaches says nothing"
MAX_ROUND = 9999  # as in records.Row
MAX_BYTES = 64 << 20  # all 28,000 images take 6 MB


def _known_kind(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"choices: {', '.join(KINDS)}")
    return kind


def _utc(text: str) -> str:
    datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")  # ValueError where the month is 13
    return text


# One line of text without control or direction-changing characters: it is printed to terminals and pages.
Line = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028-\u2029\u202a-\u202e\u2066-\u2069]+$"
    ),
]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Utc = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"), AfterValidator(_utc)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
RoundNumber = Annotated[int, Field(ge=0, le=MAX_ROUND)]


class Strict(BaseModel):
    """No unknown fields, no NaN or Infinity, no text where a number belongs."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ModelFacts(Strict):
    """`models.base.ModelInfo`, as it stands in the file."""

    id: Line
    kind: Annotated[Line, AfterValidator(_known_kind)]
    higher_is_better: bool
    weights_sha256: Sha256 | None
    options: dict[Line, Line | int | float | bool]
    versions: dict[Line, Line]

    @property
    def cheat(self) -> bool:
        """Whether it is a reference model that reads the answer off the label (models/baselines.py)."""
        return self.kind == "baseline" and self.id in CHEATS

    @property
    def label(self) -> str:
        """Its id as tables and figures show it: a cheat is called one."""
        return f"{self.id} (CHEAT)" if self.cheat else self.id

    @property
    def file_stem(self) -> str:
        """The name of the files about this model, from its id: safe and not too long, whatever that holds."""
        name = to_name(self.id.replace(":", "-")) or "model"
        return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 9]}-{files.sha256_bytes(self.id.encode())[:8]}"


class DataFacts(Strict):
    """What was scored.

    dataset_fingerprint: of the whole dataset. n_rows: how many images, those of rounds that are not
    compared included. The rest is about the compared images, which are all that the criteria read.
    fingerprint: equal, with equal rounds, means that two results may be ranked together. left_out: settings
    that show another state at some of the compared rounds (mirror, ...), so that nothing is judged by them.
    simulated: True if any image was made by a simulation.
    """

    name: Line
    dataset_fingerprint: Sha256
    fingerprint: Sha256
    simulated: bool
    editors: list[Line]
    settings: list[Line]
    left_out: list[Line]
    initial_images: list[Line]
    n_rows: Count
    n_runs: Count


class ComparedRounds(Strict):
    """`protocol.Rounds`; paper: True for the paper's own, 1 against 5, 10 and 20."""

    baseline: RoundNumber
    later: Annotated[list[RoundNumber], Field(min_length=1, max_length=100)]
    paper: bool

    @model_validator(mode="after")
    def _check(self) -> ComparedRounds:
        try:
            rounds = self.rounds()
        except UsageError as error:
            raise ValueError(str(error)) from error
        if self.paper != rounds.is_paper:
            raise ValueError(f"paper is {self.paper}, but the rounds say otherwise")
        return self

    @classmethod
    def of(cls, rounds: Rounds) -> ComparedRounds:
        return cls(baseline=rounds.baseline, later=list(rounds.later), paper=rounds.is_paper)

    def rounds(self) -> Rounds:
        return Rounds(self.baseline, tuple(self.later))


class Coverage(Strict):
    """Of the images expected, one for each run and compared round: how many have a usable score.

    nan: scored, but not a finite number. failed: the model raised an error. missing: no such image.
    """

    expected: Count
    ok: Count
    nan: Count
    failed: Count
    missing: Count

    @property
    def complete(self) -> bool:
        """True if every image that exists has a usable score: a gap in the dataset is not the model's."""
        return self.ok + self.missing == self.expected


IntervalMethod = Literal["bca", "percentile", "clopper-pearson"]


class Outcomes(Strict):
    """Of how many initial images each outcome of the paper's verdict is (see `criteria.verdicts`), in these settings.

    interval: Clopper and Pearson's, of the share detected / n_images, in [0, 1].
    """

    settings: list[Line]
    n_images: Count
    detected: Count
    reversed: Count
    mixed: Count
    tie: Count
    unscored: Count
    missing: Count
    interval: tuple[Share, Share]
    interval_level: float
    interval_method: Literal["clopper-pearson"]

    @property
    def counts(self) -> dict[str, int]:
        return {outcome: getattr(self, outcome) for outcome in OUTCOMES}

    @model_validator(mode="after")
    def _add_up(self) -> Outcomes:
        if self.n_images != sum(self.counts.values()):
            raise ValueError(f"n_images {self.n_images}, outcomes {self.counts}: expected one of these for each image")
        return self


class Verdict(Outcomes):
    """The verdict on the settings that count: those of the group replication if there are any, else all."""

    by_image: list[ImageVerdict]

    @model_validator(mode="after")
    def _check(self) -> Verdict:
        counts = {outcome: len(self.images(outcome)) for outcome in OUTCOMES}
        if counts != self.counts:
            raise ValueError(f"the counts are not those of by_image, {counts}")
        return self

    def images(self, outcome: str) -> list[str]:
        """The names of the initial images with this outcome."""
        return [image.image for image in self.by_image if image.outcome == outcome]


class Criterion(Strict):
    """The value of a criterion (`criteria.ABOUT` says what each is), over all judged settings.

    value: null where there is nothing to compute it from; note says why, or what else to know. interval: at the
    level of `Inference`, null where nothing is known of it. n_images: how many initial images it rests on.
    used, expected: of the image scores it reads, how many are usable; the others are left out.
    """

    value: float | None
    interval: tuple[float, float] | None
    interval_method: IntervalMethod | None
    n_images: Count
    used: Count
    expected: Count
    note: Line | None


class Inference(Strict):
    """How the intervals of the criteria came about: a bootstrap of initial images, each with all its runs."""

    level: float
    resamples: Count
    seed: Count


class StrictPassRate(Strict):
    """The ranking score (see `criteria.strict_pass_rate`).

    passed: of n_runs, how many runs pass. by_image: the rate of each initial image, for paired comparisons.
    """

    value: Share
    chance: Share
    passed: Count
    n_runs: Count
    by_image: dict[Line, Share]


class Concordance(Strict):
    """See `criteria.concordance`; the tie-break of the ranking."""

    value: Share
    chance: Share


class RawScore(Strict):
    """One raw score, in the model's own direction; null unless status is "ok"."""

    sha256: Sha256
    score: float | None
    status: Literal["ok", "nan", "failed", "timeout", "parse_error"]

    @model_validator(mode="after")
    def _has_score(self) -> RawScore:
        if (self.score is not None) != (self.status == "ok"):
            raise ValueError(
                f"score {self.score} with status {self.status!r}: expected a number exactly where it is ok"
            )
        return self


class ImageScore(RawScore):
    """The score of an image of the dataset."""

    image_id: Line


class ControlScore(RawScore):
    """The score of a harmless edit of an initial image (see `banana100_bench.controls`)."""

    initial_image: Line
    control: Literal[CONTROLS]  # type: ignore[valid-type]


class Hardware(Strict):
    """The machine that wrote the file. cores: logical ones. libraries: versions of those that the numbers rest on."""

    cpu: Line
    cores: Count
    python: Line
    platform: Line
    libraries: dict[Line, Line]


class Result(Strict):
    """One model on one dataset.

    seconds: the model's own time, summed over the images of `scores`; seconds_per_1000_images: what that makes,
    to compare what models cost on one machine. criteria: by name; those that
    do not apply are absent. controls: scores of harmless edits; empty if none were made.
    """

    schema_version: Literal[2]
    harness: Line
    created_at: Utc
    seconds: Annotated[float, Field(ge=0)]
    seconds_per_1000_images: Annotated[float, Field(ge=0)]
    hardware: Hardware
    model: ModelFacts
    data: DataFacts
    rounds: ComparedRounds
    coverage: Coverage
    verdict: Verdict
    strict_pass_rate: StrictPassRate
    concordance: Concordance
    by_setting: list[Outcomes]
    inference: Inference
    criteria: dict[Line, Criterion]
    controls: list[ControlScore]
    scores: list[ImageScore]

    @model_validator(mode="after")
    def _check(self) -> Result:
        images = {image.image for image in self.verdict.by_image}
        settings = {change.setting for image in self.verdict.by_image for change in image.changes}
        if not images <= set(self.data.initial_images) or not settings <= set(self.data.settings):
            raise ValueError("verdict.by_image names an initial image or setting that data does not")
        unknown = sorted(self.criteria.keys() - ABOUT.keys())
        if unknown:
            raise ValueError(f"criteria: unknown {unknown[0]!r:.80}; choices: {', '.join(ABOUT)}")
        return self

    def listed_criteria(self) -> list[tuple[str, Criterion]]:
        """The criteria in the order of `criteria.ABOUT`, which a file does not keep."""
        return [(name, self.criteria[name]) for name in ABOUT if name in self.criteria]

    @property
    def file_stem(self) -> str:
        """The name of this result's files; see `ModelFacts.file_stem`."""
        return self.model.file_stem

    def text(self) -> str:
        """The file's text: the same result gives the same bytes."""
        return files.dump_json(self.model_dump(mode="json"))

    def save(self, path: Path) -> None:
        """Write the result to `path`, whole or not at all; floats come back to the last bit."""
        files.write_text(path, self.text())


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a result file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Result.model_json_schema()}


def load_result(path: Path) -> Result:
    """Read and check the result file at `path`; BananaError, naming the field, if anything is wrong with it."""
    value = files.read_json(path, "result", MAX_BYTES)
    try:
        return parse_result(json.dumps(value))
    except BananaError as error:
        raise BananaError(f"{path}: {error}") from error


def parse_result(text: str | bytes) -> Result:
    """The result in `text`; BananaError, naming the field, if anything is wrong with it."""
    try:
        # Text, because strict validation takes a JSON list for a tuple only there.
        return Result.model_validate_json(text)
    except ValidationError as error:
        raise BananaError(f"not a valid result: {first_problem(error)}") from error


def first_problem(error: ValidationError) -> str:
    """One line: the first field that is wrong, why, and how many more are."""
    more = f" ({error.error_count() - 1} more problems)" if error.error_count() > 1 else ""
    return problems(error, 1)[0] + more


def problems(error: ValidationError, limit: int) -> list[str]:
    """A line for each of the first `limit` fields that are wrong: where, why, and what stands there."""
    lines = []
    for fault in error.errors(include_url=False)[:limit]:
        where = ".".join(map(str, fault["loc"])).encode("unicode_escape").decode() or "the file"  # a key holds anything
        given = fault["input"]
        told = isinstance(given, str | int | float | None) and fault["type"] != "missing"
        why = fault["msg"].removeprefix("Value error, ")
        lines.append(f"{where}: {why}{f', not {given!r:.80}' if told else ''}")
    return lines
