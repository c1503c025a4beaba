"""MANIFEST.json: what a dataset folder holds, so that a copy can be checked and our folders be told from others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from banana100_bench.errors import BananaError
from banana100_bench.package.storage import Storage, check_inside
from banana100_bench.raw import Sha256
from banana100_bench.records import Row, check_name

FILE = "MANIFEST.json"
MAX_BYTES = 64 << 20
_Natural = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(_Strict):
    """One file. path: relative to the dataset folder, parted by ``/``. rows: None unless it is Parquet."""

    path: str
    sha256: Sha256
    bytes: _Natural
    rows: _Natural | None


class Gap(_Strict):
    """Rounds of a run that have no image, ascending; 0 stands for its initial image."""

    run_id: str
    rounds: tuple[_Natural, ...]


class Fault(_Strict):
    """An image that was found but could not be taken. file: its name in the source; problem: why, in words."""

    image_id: str
    file: str
    problem: str


class Note(_Strict):
    """Something to know of some images of the dataset. examples: ids of the first few."""

    what: str
    images: _Natural
    examples: tuple[str, ...]


class Counts(_Strict):
    """How many there are; `images` are those of rounds 1 and later, `rows` initial images as well."""

    rows: _Natural
    images: _Natural
    runs: _Natural
    initial_images: _Natural
    settings: _Natural

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Counts:
        edited = [row for row in rows if row.round > 0]
        return cls(
            rows=len(rows),
            images=len(edited),
            runs=len({row.run_id for row in edited}),
            initial_images=len({row.initial_image for row in edited}),
            settings=len({row.setting for row in edited}),
        )


class Manifest(_Strict):
    """The whole file. It bears no time: the same input gives the same bytes.

    builder: the package and version that wrote it. fingerprint: `records.fingerprint` of all rows.
    """

    schema_version: Literal[1] = 1
    name: str
    builder: str
    fingerprint: Sha256
    simulated: bool
    licence: str
    counts: Counts
    gaps: tuple[Gap, ...]
    faults: tuple[Fault, ...] = ()
    notes: tuple[Note, ...] = ()
    files: tuple[FileEntry, ...]


def read(storage: Storage) -> Manifest:
    """The manifest of a dataset; BananaError where there is none, it is not valid, or it names files elsewhere."""
    name = f"{storage}/{FILE}"
    try:
        text = storage.read(FILE, MAX_BYTES)
    except BananaError as error:
        raise BananaError(
            f"{storage}: not a dataset folder, as `banana100 build` writes: it has no {FILE} ({error})"
        ) from error
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise BananaError(f"{name}: {where}{': ' if where else ''}{fault['msg']}") from error
    check_name(f"{name}: dataset name", manifest.name)
    for entry in manifest.files:
        try:
            check_inside(entry.path)
        except BananaError as error:
            raise BananaError(f"{name}: {error}") from error
    return manifest
