"""The layout of raw runs: what `generate` writes to disk and `build` reads.

::

    RAW/initial/<name>.<extension>         the initial images, bytes as given
    RAW/runs/<run_id>/run.json             RunFacts: what was asked
    RAW/runs/<run_id>/journal.jsonl        one Event a line: what happened, in order
    RAW/runs/<run_id>/001.png 002.png ...  the images, bytes as the editor returned them

The journal is the index: a file it does not name is no part of the run. A row for round r takes the
place of an earlier row for round r and of all rounds after it (they were made from what it replaces).
Raw folders may come from strangers, so everything read here is checked and no symbolic link is followed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from banana100_bench.errors import BananaError
from banana100_bench.files import sha256_bytes
from banana100_bench.images import MAX_BYTES
from banana100_bench.records import run_id

EXTENSIONS = {"PNG": "png", "JPEG": "jpg", "WEBP": "webp"}  # by images.ImageFacts.format
RUN_FILE = "run.json"
JOURNAL_FILE = "journal.jsonl"
MAX_TEXT_BYTES = 64 << 20  # of run.json and of a journal
MAX_ROUNDS = 9999

_PICTURE = re.compile(r"[0-9]{3,4}\.(png|jpg|webp)")

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Extension = Literal["png", "jpg", "webp"]
_ISO_8601 = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"
Time = Annotated[str, Field(pattern=_ISO_8601)]
Round = Annotated[int, Field(ge=1, le=MAX_ROUNDS)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class RunFacts(_Strict):
    """What was asked of the editor in one run. Fields as in `records.Row`, and:

    prompts: the prompt of round r is ``prompts[(r - 1) % len(prompts)]``.
    initial_sha256, initial_extension: of the file in RAW/initial.
    rounds: how many were asked for; a run with fewer images is not finished.
    model_version: what the editor goes by; an image's own `model_version` is what answered.
    chat_turns: as in `protocol.Setting`.
    """

    schema_version: Literal[1] = 1
    setting: str
    setting_group: Literal["replication", "variant", "object", "more_models"]
    period: Annotated[int, Field(ge=1, le=MAX_ROUNDS)]
    prompts: Annotated[tuple[str, ...], Field(min_length=1)]
    initial_image: str
    initial_sha256: Sha256
    initial_extension: Extension
    style: Literal["photo", "anime", "unknown"]
    repetition: Annotated[int, Field(ge=0, le=9999)]
    rounds: Round
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None
    editor: str
    model_version: str
    simulated: bool
    temperature: float | None
    resolution: str | None
    chat_turns: Annotated[int, Field(ge=0, le=MAX_ROUNDS)] = 0

    @model_validator(mode="after")
    def _names_are_safe(self) -> RunFacts:
        try:
            _ = self.run_id
        except BananaError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def run_id(self) -> str:
        return run_id(self.setting, self.initial_image, self.editor, self.repetition)

    def prompt(self, round_number: int) -> str:
        """The prompt sent at round `round_number` (1 or more)."""
        return self.prompts[(round_number - 1) % len(self.prompts)]


Usd = Annotated[float, Field(ge=0, le=1e6)]
MaybeUsd = Usd | None
"""US dollars; None: the call may have been billed, how much was not told."""


class Started(_Strict):
    """Written before the editor is asked: without another event behind it, it was cut off in flight.

    usd_at_most: what this call may cost; it counts as spent where the outcome is not known.
    """

    event: Literal["start"] = "start"
    round: Round
    created_at: Time
    usd_at_most: Usd = 0.0


class Made(_Strict):
    """Written when the image of a round is safe on disk.

    seconds: from asking to answer. told: what the editor said of its answer (tokens, response id, sizes).
    signature: of the turn, base64, which a chat sends back.
    """

    event: Literal["image"] = "image"
    round: Round
    file: Annotated[str, Field(pattern=r"^[0-9]{3,4}\.(png|jpg|webp)$")]
    sha256: Sha256
    parent_sha256: Sha256
    created_at: Time
    model_version: str
    reasoning_summary: str | None = None
    usd: MaybeUsd = 0.0
    seconds: Annotated[float, Field(ge=0)] | None = None
    told: dict[str, str | int | float] = {}
    signature: str | None = None

    def entry(self, folder: Path) -> ImageEntry:
        """This round, its file being in the run folder `folder`."""
        told = self.model_dump(exclude={"event", "file", "usd", "seconds", "told"})
        return ImageEntry(path=folder / self.file, **told)


class Retried(_Strict):
    """Written when a call gave no usable image and will be made again, `wait_s` seconds later. kind: see `Failed`."""

    event: Literal["retry"] = "retry"
    round: Round
    created_at: Time
    kind: str
    message: str
    wait_s: Annotated[float, Field(ge=0)]
    usd: MaybeUsd = 0.0


class Failed(_Strict):
    """Written when the editor gave no usable image, and the run ends there for now.

    kind: the class of the failure (generate/editors/base.py); "blocked" means that asking again is of no use.
    """

    event: Literal["fail"] = "fail"
    round: Round
    created_at: Time
    message: str
    kind: str = "failed"
    usd: MaybeUsd = 0.0


Event = Annotated[Started | Made | Retried | Failed, Field(discriminator="event")]
_EVENT: TypeAdapter[Started | Made | Retried | Failed] = TypeAdapter(Event)


@dataclass(frozen=True, kw_only=True)
class Past:
    """What a journal tells besides its images.

    usd: told as spent. unsure_usd: what further calls may have cost at most. lost: calls that were cut off.
    retries, failures: events of that kind. blocked: the last event's message, if it is a block.
    seconds: mean of the calls that gave an image.
    """

    usd: float = 0.0
    unsure_usd: float = 0.0
    lost: int = 0
    retries: int = 0
    failures: int = 0
    blocked: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class ImageEntry:
    """One finished round as the journal tells it; `first_fault` says whether the files agree."""

    round: int
    path: Path
    sha256: str
    parent_sha256: str
    created_at: str
    model_version: str
    reasoning_summary: str | None
    signature: str | None = None

    def read(self) -> bytes:
        """The image's encoded bytes; BananaError where the file is missing or not the journal's."""
        return _checked(self.path, self.sha256)


def run_folder(raw: Path, run: str) -> Path:
    """The folder of the run with id `run` in the raw folder `raw`."""
    return Path(raw) / "runs" / run


def initial_path(raw: Path, name: str, extension: str) -> Path:
    """The file of the initial image `name` in the raw folder `raw`."""
    return Path(raw) / "initial" / f"{name}.{extension}"


def run_folders(raw: Path) -> list[Path]:
    """The run folders in `raw`, sorted by run id; BananaError where there is none."""
    runs = Path(raw) / "runs"
    try:
        found = sorted(path for path in runs.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise BananaError(f"{raw}: not a folder of raw runs: cannot list {runs}: {error.strerror or error}") from error
    if not found:
        raise BananaError(f"{runs}: no runs")
    return found


def refuse_links(path: Path) -> None:
    """BananaError where `path` or the folder it is in is a symbolic link: it might lead out of the raw folder."""
    for place in (path, path.parent):
        if os.path.islink(place):  # False, not an error, for a name too long to exist
            raise BananaError(f"{place}: a symbolic link; raw folders may hold none")


def read_run(folder: Path) -> tuple[RunFacts, list[ImageEntry]]:
    """What was asked in a run and the rounds that were finished, 1, 2, ... in order.

    Reads run.json and the journal, not the images (see `first_fault`); a torn last journal line is
    left out. Raises BananaError naming the file and line where anything is not as written above.
    """
    facts = read_facts(folder)
    return facts, _read_journal(Path(folder), facts.rounds)


def read_facts(folder: Path) -> RunFacts:
    """What was asked in a run; BananaError where run.json is missing, wrong, or of another run."""
    folder = Path(folder)
    refuse_links(folder)
    path = folder / RUN_FILE
    try:
        facts = RunFacts.model_validate_json(read_file(path, MAX_TEXT_BYTES))
    except ValidationError as error:
        raise BananaError(f"{path}: {_first(error)}") from error
    if facts.run_id != folder.name:
        raise BananaError(f"{path}: describes run {facts.run_id}, but the folder is called {folder.name}")
    return facts


def read_past(folder: Path) -> Past:
    """What the journal of a run tells of its calls; BananaError where a line is not an event."""
    usd = unsure = 0.0
    lost = retries = failures = 0
    blocked: str | None = None
    open_call: Started | None = None
    seconds = []
    for _, event in _events(Path(folder) / JOURNAL_FILE):
        at_most = open_call.usd_at_most if open_call else 0.0
        if isinstance(event, Started):
            lost += open_call is not None
            unsure += at_most
            open_call = event
            continue
        open_call, blocked = None, None
        usd += event.usd or 0.0
        unsure += at_most if event.usd is None else 0.0
        if isinstance(event, Made):
            seconds += [event.seconds] if event.seconds is not None else []
        elif isinstance(event, Retried):
            retries += 1
        else:
            failures += 1
            blocked = event.message if event.kind == "blocked" else None
    return Past(
        usd=usd,
        unsure_usd=unsure + (open_call.usd_at_most if open_call else 0.0),
        lost=lost + (open_call is not None),
        retries=retries,
        failures=failures,
        blocked=None if open_call else blocked,
        seconds=sum(seconds) / len(seconds) if seconds else None,
    )


def _events(path: Path) -> Iterator[tuple[int, Started | Made | Retried | Failed]]:
    """The whole lines of a journal, by number from 1; nothing where there is none yet."""
    if not os.path.lexists(path):  # killed between run.json and the first line
        return
    text = read_file(path, MAX_TEXT_BYTES)
    for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), 1):
        try:
            yield number, _EVENT.validate_json(line)
        except ValidationError as error:
            raise BananaError(f"{path} line {number}: {_first(error)}") from error


def _read_journal(folder: Path, rounds: int) -> list[ImageEntry]:
    path = folder / JOURNAL_FILE
    entries: list[ImageEntry] = []
    for number, event in _events(path):
        if not isinstance(event, Made):
            continue
        if event.round > rounds:
            raise BananaError(f"{path} line {number}: round {event.round} in a run of {rounds} rounds")
        if event.round > len(entries) + 1:
            raise BananaError(f"{path} line {number}: round {event.round} comes after round {len(entries)}")
        if int(event.file.split(".")[0]) != event.round:
            raise BananaError(f"{path} line {number}: round {event.round} is said to be in {event.file}")
        entries[event.round - 1 :] = [event.entry(folder)]
    return entries


def unnamed_pictures(folder: Path) -> dict[int, Path]:
    """The pictures in a run's folder that no row of its journal ever named, by their round.

    A kill leaves at most that of the next round; others mean that the journal lost rows.
    """
    named = {event.file for _, event in _events(folder / JOURNAL_FILE) if isinstance(event, Made)}
    found = (path for path in folder.glob("[0-9]*.*") if _PICTURE.fullmatch(path.name) and path.name not in named)
    return {int(path.stem): path for path in found}


def read_initial(raw: Path, facts: RunFacts) -> bytes:
    """The encoded bytes of the initial image of a run; BananaError where they are not what the run began with."""
    return _checked(initial_path(raw, facts.initial_image, facts.initial_extension), facts.initial_sha256)


def first_fault(facts: RunFacts, entries: list[ImageEntry]) -> tuple[int, str] | None:
    """The first round whose file is missing, changed, or not made from the round before, and why; None if sound.

    Reads every image.
    """
    parent = facts.initial_sha256
    for entry in entries:
        if entry.parent_sha256 != parent:
            return entry.round, f"{entry.path}: not made from round {entry.round - 1} as it now stands"
        try:
            entry.read()
        except BananaError as error:
            return entry.round, str(error)
        parent = entry.sha256
    return None


def read_file(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The bytes of the regular file `path`, following no symbolic link; BananaError where it is none or too large."""
    refuse_links(path)
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe must not hang us
    try:
        with open(os.open(path, flags), "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise BananaError(f"{path}: not a regular file")
            if facts.st_size > max_bytes:
                raise BananaError(f"{path}: {facts.st_size} bytes, above the limit of {max_bytes}")
            return file.read()
    except OSError as error:
        raise BananaError(f"cannot read {path}: {error.strerror or error}") from error


def _checked(path: Path, sha256: str) -> bytes:
    data = read_file(path)
    found = sha256_bytes(data)
    if found != sha256:
        raise BananaError(f"{path}: SHA-256 {found[:12]}..., expected {sha256[:12]}...")
    return data


def _first(error: ValidationError) -> str:
    """The first fault of a pydantic error in one line."""
    fault = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in fault["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {fault['msg']}{more}" if where else f"{fault['msg']}{more}"
