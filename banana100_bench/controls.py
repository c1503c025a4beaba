"""Harmless edits of the initial images, to see what a metric flags although nothing is wrong.

jpeg     re-encoded once at quality 95, without chroma subsampling
resize   one pixel narrower and one lower (bicubic): resampled, nothing cut off
crop     one pixel in fifty cut off at each side, as editors do when they replicate
texture  the most textured quarter of the picture, as it is: clean, though a detector of noise may think otherwise

All but the JPEG are encoded losslessly. `criteria.controls` says how they are judged.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from banana100_bench import images
from banana100_bench.criteria import CONTROLS
from banana100_bench.files import sha256_bytes
from banana100_bench.records import Row
from banana100_bench.result_schema import MAX_ROUND

if TYPE_CHECKING:
    from PIL import Image

    from banana100_bench.data import Selection

LEAST_SIDE = 16  # pixels; below, a quarter of the picture is no picture


def _jpeg(picture: Image.Image) -> bytes:
    return _encoded(picture, "JPEG", quality=95, subsampling=0)


def _resize(picture: Image.Image) -> bytes:
    from PIL import Image

    return _encoded(picture.resize((picture.width - 1, picture.height - 1), Image.Resampling.BICUBIC))


def _crop(picture: Image.Image) -> bytes:
    across, down = max(1, picture.width // 50), max(1, picture.height // 50)
    return _encoded(picture.crop((across, down, picture.width - across, picture.height - down)))


def _texture(picture: Image.Image) -> bytes:
    """The quarter, of the 25 that a grid of five by five offsets gives, with the largest mean gradient."""
    grey = np.asarray(picture.convert("L"), dtype=np.float64)
    gradient = np.abs(np.diff(grey, axis=0))[:, :-1] + np.abs(np.diff(grey, axis=1))[:-1]
    width, height = picture.width // 2, picture.height // 2
    places = [(x * width // 4, y * height // 4) for y in range(5) for x in range(5)]
    x, y = max(places, key=lambda at: gradient[at[1] : at[1] + height, at[0] : at[0] + width].mean())
    return _encoded(picture.crop((x, y, x + width, y + height)))


def _encoded(picture: Image.Image, kind: str = "PNG", **options: int) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **(options or {"compress_level": 1}))
    return buffer.getvalue()


EDITS: Mapping[str, Callable[[Image.Image], bytes]] = {
    "jpeg": _jpeg,
    "resize": _resize,
    "crop": _crop,
    "texture": _texture,
}


@dataclass(frozen=True)
class Controls:
    """The controls of some initial images, for `scoring.score`: each with its original. Made in memory.

    names: by image id of a row, the initial image and which of `criteria.CONTROLS` it is.
    """

    rows: Sequence[Row]
    names: Mapping[str, tuple[str, str]]
    encoded: Mapping[str, bytes]

    def images(self) -> Iterator[tuple[Row, bytes]]:
        for row in self.rows:
            yield row, self.encoded[row.image_id]

    def subset(self, image_ids: Collection[str]) -> Controls:
        return replace(self, rows=[row for row in self.rows if row.image_id in image_ids])

    def shuffled(self) -> Controls:
        return replace(self, rows=sorted(self.rows, key=lambda row: row.sha256))


def make_controls(data: Selection) -> Controls | None:
    """The controls of the initial images from which the runs in `data` start; None if the dataset has none of them.

    Initial images with a side below LEAST_SIDE get none. The last ones made are kept for the next model.
    """
    return _made(
        data.storage.address, data.dataset_fingerprint, tuple(sorted({row.initial_image for row in data.rows}))
    )


@lru_cache(maxsize=1)
def _made(source: str, _fingerprint: str, initial_images: tuple[str, ...]) -> Controls | None:
    from banana100_bench.data import open_data

    every = open_data(source, rounds=range(MAX_ROUND + 1), initial_images=initial_images)
    initial = every.subset(row.image_id for row in every.rows if row.run_id is None)
    rows: list[Row] = []
    names: dict[str, tuple[str, str]] = {}
    encoded: dict[str, bytes] = {}
    for row, original in initial.images():
        if min(row.width, row.height) < LEAST_SIDE:
            continue
        picture = images.decode(original, row.image_id)
        made = {"original": original, **{name: edit(picture) for name, edit in EDITS.items()}}
        for name in CONTROLS:
            control = f"control__{name}__{row.initial_image}"
            facts = images.probe(made[name], control)
            rows.append(
                replace(
                    row,
                    image_id=control,
                    width=facts.width,
                    height=facts.height,
                    format=facts.format,
                    num_bytes=len(made[name]),
                    sha256=sha256_bytes(made[name]),
                )
            )
            names[control], encoded[control] = (row.initial_image, name), made[name]
    return Controls(rows, names, encoded) if rows else None
