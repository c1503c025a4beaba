"""What a model is: facts about it, and a function from one picture to one number."""

from __future__ import annotations

import importlib.metadata
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from banana100_bench import __version__, images
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.records import Row

if TYPE_CHECKING:
    from PIL.Image import Image

KINDS = ("pyiqa", "callable", "vlm", "command", "file", "baseline", "other")
DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("float32", "bfloat16", "float16")
Option = str | int | float | bool


class ReplyError(BananaError):
    """A model answered in words that hold no score; the message is its reply. The score's status: parse_error."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the caller asks of a model besides its spec; an opener refuses what its kind of model does not take.

    weights: a weight file. higher_is_better: the direction, where the model declares none. options: by name.
    device: "cpu", "cuda", "cuda:1" or "mps". dtype: one of DTYPES, in which a PyTorch model calculates.
    """

    weights: Path | None = None
    higher_is_better: bool | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    device: str = "cpu"
    dtype: str = "float32"

    def torch_options(self) -> dict[str, Option]:
        """Device and dtype where they are not the usual ones: both change a score's last digits at least."""
        device = self.device.partition(":")[0]
        own: dict[str, Option] = {} if device == "cpu" else {"device": device}
        return own if self.dtype == "float32" else own | {"dtype": self.dtype}


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What names a model and decides its numbers.

    id: the spec it was opened by, as ``pyiqa:piqe``; a file in it by its name alone, without its folder.
    kind: one of KINDS ("other": of a third party's opener).
    higher_is_better: True if a larger score means a better picture.
    weights_sha256: of the weight file that was named, else of the tensors that were loaded; None if it has none.
    options: what else decides its numbers: what was passed to it, the SHA-256 of a source or score file, a
        device or dtype that is not the usual one, how often it was asked.
    versions: of the libraries that change its numbers, and of the decode policy (`library_versions`).
    """

    id: str
    kind: str
    higher_is_better: bool
    weights_sha256: str | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Picture:
    """One image handed to a model: its row, its encoded bytes, and (decoded on first use) its pixels.

    max_pixels: a larger picture is made smaller, to at most so many; None keeps every size.
    """

    row: Row
    data: bytes
    max_pixels: int | None = None

    @cached_property
    def rgb(self) -> Image:
        """8-bit RGB by the decode policy of images.py; BananaError where the bytes do not decode."""
        return images.shrink(images.decode(self.data, self.row.image_id), self.max_pixels)


class Model(Protocol):
    """Anything with these two can be scored. All random numbers are seeded by the image before each call.

    Two more are optional: ``pixels = False`` says that it never looks at `Picture.rgb`, so that nothing is
    decoded for it and the self-test is left out; `Batched` that it takes several pictures at once.
    """

    @property
    def info(self) -> ModelInfo: ...

    def score(self, picture: Picture) -> float:
        """The raw score of `picture`, in the model's own direction. May raise; NaN is recorded as such."""
        ...


def looks(model: Model) -> bool:
    """Whether the model looks at pixels; it does unless it says otherwise."""
    return bool(getattr(model, "pixels", True))


@runtime_checkable
class Batched(Protocol):
    """A model that scores pictures of one size together."""

    def score_batch(self, pictures: Sequence[Picture]) -> Sequence[float]:
        """One raw score for each of `pictures`, in their order."""
        ...


@runtime_checkable
class Noting(Protocol):
    """A model that has something to say of the images it is about to score, as a score file does."""

    def notes(self, rows: Iterable[Row]) -> Sequence[str]: ...


def library_versions(*packages: str) -> dict[str, str]:
    """Versions of this package and of the installed `packages`, by name; "decode-policy" if they are given any."""
    versions = {"banana100-bench": __version__}
    if packages:
        versions["decode-policy"] = str(images.DECODE_POLICY)
        try:
            versions |= {name: importlib.metadata.version(name) for name in packages}
        except importlib.metadata.PackageNotFoundError as error:
            raise BananaError(f"{error.name} is not installed") from error
    return versions


def to_number(value: Any) -> float:
    """The float in `value`: a real number, or an array or tensor of one element; TypeError for anything else."""
    size = value.numel() if hasattr(value, "numel") else getattr(value, "size", None)
    if size == 1 and hasattr(value, "item"):
        value = value.item()
    elif isinstance(size, int):
        raise TypeError(f"the model gave {type(value).__name__} of {size} elements, expected one number")
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"the model gave {type(value).__name__}, expected one number")
    return float(value)


def to_numbers(value: Any, count: int) -> list[float]:
    """The `count` floats in `value`, an array or tensor of as many elements, or a sequence of numbers."""
    flat = value.reshape(-1).tolist() if hasattr(value, "reshape") else list(value)
    if len(flat) != count:
        raise TypeError(f"the model gave {len(flat)} numbers for {count} pictures")
    return [to_number(number) for number in flat]


def settle_direction(spec: str, declared: bool | None, asked: bool | None, how: str) -> bool:
    """Whether a higher score is better: as the model declares or the caller asks; UsageError if neither or both differ.

    how: by what means this kind of model declares it, for the error.
    """
    if declared is None and asked is None:
        raise UsageError(
            f"{spec}: is a higher or a lower score better? Pass --higher-is-better or --lower-is-better{how}"
        )
    if declared is not None and asked is not None and declared != asked:
        better, flag = ("higher", "--lower-is-better") if declared else ("lower", "--higher-is-better")
        raise UsageError(f"{spec}: declares that {better} is better, but the call says {flag}; leave that out")
    return bool(asked if declared is None else declared)


def refuse(spec: str, **given: object) -> None:
    """UsageError naming the first of `given` (by argument name) that was passed to a model that takes none."""
    for name, value in given.items():
        if value:
            raise UsageError(f"{spec}: takes no {name}")
