"""The row: one image of one run, as it stands in the raw runs, in the Parquet files and in memory.

"Round" is the paper's "step". Round 0 is the initial image, stored once whatever the number of runs
that start from it; the 28,000 images are rounds 1 to 100.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from banana100_bench.errors import BananaError
from banana100_bench.protocol import GROUPS, STYLES

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")
MAX_NAME = 80


def check_name(kind: str, name: str, error: type[BananaError] = BananaError) -> str:
    """Return `name` if it is safe in ids, file names and pages, else raise `error` saying what is.

    error: UsageError for a name that the call gave.
    """
    if len(name) > MAX_NAME or not _NAME.fullmatch(name) or "__" in name or ".." in name:
        raise error(
            f"{kind} {name[:100]!r}: expected at most {MAX_NAME} of a-z 0-9 . _ - (no '__' or '..'), "
            "beginning and ending with a letter or digit"
        )
    return name


def to_name(text: str) -> str:
    """`text` made into a name that `check_name` accepts: ``"Sand Dunes"`` becomes ``"sand_dunes"``."""
    return re.sub(r"_*([.-])[_.-]*|_+", lambda m: m[1] or "_", re.sub(r"[^a-z0-9.-]+", "_", text.lower())).strip("._-")


def run_id(setting: str, initial_image: str, editor: str, repetition: int) -> str:
    """The id of a run: ``replication__astronaut__simulated__rep0``."""
    for kind, name in (("setting", setting), ("initial image", initial_image), ("editor", editor)):
        check_name(kind, name)
    return f"{setting}__{initial_image}__{editor}__rep{repetition}"


def image_id(run: str | None, initial_image: str, round_number: int) -> str:
    """The id of an image: ``<run_id>__round005``, or ``initial__astronaut`` for round 0."""
    return f"{run}__round{round_number:03d}" if run else f"initial__{initial_image}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """All that is known of one image but its bytes. None means: does not apply, or not recorded.

    image_id, run_id: see the functions of that name; run_id is None for an initial image.
    setting, setting_group: from protocol.py or the user's own; None for an initial image.
    style: "photo", "anime" or "unknown".
    repetition: 0 to 4 in the paper. round: 0 to 100 (the paper's "step").
    period: rounds r and s show the same state only if r - s is a multiple of it (1 for replication).
    seed: the sampling seed sent to the editor (never the initial image, which some call a seed).
    simulated: True where no editing model made the image but a simulation of one.
    temperature, resolution: as sent to the editor ("2K"). width, height: in pixels. num_bytes: of the file.
    sha256: of the encoded file. parent_sha256: that of the image it was made from.
    created_at: ISO 8601, UTC.
    """

    image_id: str
    run_id: str | None = None
    setting: str | None = None
    setting_group: str | None = None
    initial_image: str
    style: str = "unknown"
    repetition: int | None = None
    round: int
    period: int = 1
    seed: int | None = None
    prompt: str | None = None
    editor: str | None = None
    model_version: str | None = None
    simulated: bool = False
    temperature: float | None = None
    resolution: str | None = None
    width: int
    height: int
    format: str
    num_bytes: int
    sha256: str
    parent_sha256: str | None = None
    reasoning_summary: str | None = None
    created_at: str | None = None

    def __post_init__(self) -> None:
        if self.setting_group is not None and self.setting_group not in GROUPS:
            raise BananaError(f"{self.image_id}: setting_group {self.setting_group!r}; choices: {', '.join(GROUPS)}")
        if self.style not in STYLES:
            raise BananaError(f"{self.image_id}: style {self.style!r}; choices: {', '.join(STYLES)}")
        if not 0 <= self.round <= 9999:
            raise BananaError(f"{self.image_id}: round {self.round}, expected 0 to 9999")
        if self.period < 1:
            raise BananaError(f"{self.image_id}: period {self.period}, expected 1 or more")
        if self.created_at is not None:
            try:
                datetime.fromisoformat(self.created_at.replace("Z", "+00:00"))
            except ValueError as error:
                raise BananaError(f"{self.image_id}: created_at {self.created_at!r} is not ISO 8601") from error

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


COLUMNS: tuple[str, ...] = tuple(field.name for field in dataclasses.fields(Row))
_NOT_TEXT = {
    **dict.fromkeys(("repetition", "round", "period"), "int16"),
    **dict.fromkeys(("width", "height"), "int32"),
    **dict.fromkeys(("seed", "num_bytes"), "int64"),
    "simulated": "bool",
    "temperature": "float64",
}
DTYPES: dict[str, str] = {name: _NOT_TEXT.get(name, "string") for name in COLUMNS}


def features(image: bool = True) -> datasets.Features:
    """The `datasets.Features` of a data file, or, with image=False, of a metadata file."""
    import datasets

    columns: dict[str, Any] = {"image": datasets.Image()} if image else {}
    columns |= {name: datasets.Value(dtype) for name, dtype in DTYPES.items()}
    return datasets.Features(columns)


def arrow_schema(image: bool = True) -> pa.Schema:
    """The Arrow schema of `features`, with the key by which `datasets` knows that `image` is an Image.

    Made without `datasets`, whose import takes a second and 60 MB.
    """
    import pyarrow as pa

    kinds: dict[str, pa.DataType] = {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()})} if image else {}
    kinds |= {name: pa.type_for_alias(dtype) for name, dtype in DTYPES.items()}
    told: dict[str, Any] = {"image": {"_type": "Image"}} if image else {}
    told |= {name: {"dtype": dtype, "_type": "Value"} for name, dtype in DTYPES.items()}
    return pa.schema(kinds).with_metadata({"huggingface": json.dumps({"info": {"features": told}})})


def fingerprint(images: Iterable[tuple[str, str]]) -> str:
    """SHA-256 over the (image_id, sha256) pairs, whatever their order: equal means the same pictures."""
    lines = sorted(f"{name} {digest}\n" for name, digest in images)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
