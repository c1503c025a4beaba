"""What a model is: facts about it, and a function from one picture to one number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from banana100_bench import images
from banana100_bench.records import Row

if TYPE_CHECKING:
    from PIL.Image import Image

KINDS = ("pyiqa", "callable", "file", "baseline")


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What names a model and decides its numbers.

    id: the spec it was opened by, as ``pyiqa:piqe``. kind: one of KINDS.
    higher_is_better: True if a larger score means a better picture.
    weights_sha256: of the weight file that was named, None if none was.
    options: what else was passed to it. versions: of the libraries that change its numbers.
    """

    id: str
    kind: str
    higher_is_better: bool
    weights_sha256: str | None = None
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Picture:
    """One image handed to a model: its row, its encoded bytes, and (decoded on first use) its pixels."""

    row: Row
    data: bytes

    @cached_property
    def rgb(self) -> Image:
        """8-bit RGB by the decode policy of images.py; BananaError where the bytes do not decode."""
        return images.decode(self.data, self.row.image_id)


class Model(Protocol):
    """Anything with these two can be scored."""

    @property
    def info(self) -> ModelInfo: ...

    def score(self, picture: Picture) -> float:
        """The raw score of `picture`, in the model's own direction. May raise; NaN is recorded as such."""
        ...
