"""Small pictures in memory, with the rows that describe them, and a selection of them."""

import dataclasses
import hashlib
import io

import numpy as np
from PIL import Image

from banana100_bench.models import ModelInfo, Picture
from banana100_bench.records import Row, image_id, run_id

RUN = run_id("replication", "scene", "simulated", 0)


def picture(pixels: np.ndarray, round_number: int = 1) -> Picture:
    """A PNG of uint8 H x W x 3 `pixels` as round `round_number` of one simulated run."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return encoded(buffer.getvalue(), pixels.shape[1], pixels.shape[0], round_number)


def encoded(data: bytes, width: int, height: int, round_number: int = 1) -> Picture:
    row = Row(
        image_id=image_id(RUN, "scene", round_number),
        run_id=RUN,
        initial_image="scene",
        round=round_number,
        simulated=True,
        width=width,
        height=height,
        format="PNG",
        num_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    return Picture(row, data)


def texture(seed: int = 0, size: int = 32) -> np.ndarray:
    """Pixels that look like noise on a ramp; the same for the same arguments."""
    ramp = np.linspace(40, 200, size)[:, None, None]
    noise = np.random.default_rng(seed).normal(0, 12, (size, size, 3))
    return np.clip(ramp + noise, 0, 255).astype(np.uint8)


@dataclasses.dataclass
class Images:
    """What `banana100_bench.scoring.score` needs of a selection; `read` counts the images handed out."""

    pictures: list[Picture]
    read: list[str] = dataclasses.field(default_factory=list)

    @property
    def rows(self):
        return [item.row for item in self.pictures]

    def images(self):
        for item in self.pictures:
            self.read.append(item.row.image_id)
            yield item.row, item.data

    def subset(self, image_ids):
        return Images([item for item in self.pictures if item.row.image_id in image_ids], self.read)

    def shuffled(self):
        return self  # in order, so that tests can name the image that comes next


def chain(rounds: int) -> Images:
    """Rounds 1 to `rounds`, each another picture, the same ones every time."""
    return Images([picture(texture(number), number) for number in range(1, rounds + 1)])


@dataclasses.dataclass
class Model:
    """A model by a function of the round; `calls` lists the rounds it was asked."""

    function: object
    pixels = False  # the scores are of the round
    info: ModelInfo = dataclasses.field(
        default_factory=lambda: ModelInfo(id="test:model", kind="callable", higher_is_better=True)
    )
    calls: list[int] = dataclasses.field(default_factory=list)

    def score(self, item: Picture) -> float:
        self.calls.append(item.row.round)
        return self.function(item.row.round)
