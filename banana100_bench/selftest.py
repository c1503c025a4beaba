"""Does a model's direction agree with what it says of three pictures whose order is known?

The pictures are drawn by rule, so that every machine has the same: dead leaves, occluding discs of all
sizes, whose edges and spectrum are much like a photograph's (Lee, Mumford and Huang, "Occlusion models for
natural images", IJCV 41, 2001); the same blurred; the same with noise.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from banana100_bench.engine.measure import measure
from banana100_bench.files import sha256_bytes
from banana100_bench.models.base import Model, Picture
from banana100_bench.records import Row

if TYPE_CHECKING:
    import numpy as np

NAMES = ("clean", "blurred", "noisy")
SIDE = 448
BLUR = 3.0  # standard deviation, in pixels
NOISE = 30.0  # standard deviation, in grey levels


def dead_leaves(side: int, seed: int = 0) -> np.ndarray:
    """Occluding discs, uint8, side x side x 3: radii by an inverse cube law, each with its grey and a 1/f texture."""
    import numpy as np

    draw = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :])
    spectrum = np.fft.rfft2(draw.normal(size=(side, side))) / np.maximum(frequency, 1 / side)
    texture = np.fft.irfft2(spectrum, (side, side))
    texture /= texture.std()
    canvas = np.repeat((128 + 10 * texture)[..., None], 3, axis=2)
    empty = np.ones((side, side), bool)
    while empty.mean() > 0.02:  # from the front to the back: only what is still empty is painted
        radius = min(4.0 / np.sqrt(draw.random()), side / 3)
        y, x = draw.uniform(-radius, side + radius, 2)
        colour = draw.uniform(30, 225) + draw.uniform(-25, 25, 3)
        rough, (shift_y, shift_x) = draw.uniform(2, 18), draw.integers(0, side, 2)
        top, left = max(0, int(y - radius)), max(0, int(x - radius))
        box = np.s_[top : int(y + radius) + 2, left : int(x + radius) + 2]
        rows, columns = np.ogrid[box[0].start : min(side, box[0].stop), box[1].start : min(side, box[1].stop)]
        leaf = ((rows - y) ** 2 + (columns - x) ** 2 <= radius**2) & empty[box]
        grain = texture[(rows + shift_y) % side, (columns + shift_x) % side]
        canvas[box] = np.where(leaf[..., None], colour + (rough * grain)[..., None], canvas[box])
        empty[box] &= ~leaf
    return np.clip(np.rint(canvas), 0, 255).astype(np.uint8)


@cache
def pictures() -> tuple[Picture, ...]:
    """The three pictures, in the order of NAMES, as PNG."""
    import numpy as np
    from PIL import Image, ImageFilter

    clean = Image.fromarray(dead_leaves(SIDE)).filter(ImageFilter.GaussianBlur(0.6))  # a lens is never perfect
    noise = np.random.default_rng(1).normal(0, NOISE, (SIDE, SIDE, 3))
    noisy = Image.fromarray(np.clip(np.asarray(clean) + noise, 0, 255).astype(np.uint8))
    made = []
    for name, picture in zip(NAMES, (clean, clean.filter(ImageFilter.GaussianBlur(BLUR)), noisy), strict=True):
        buffer = io.BytesIO()
        picture.save(buffer, "PNG")
        data = buffer.getvalue()
        row = Row(
            image_id=f"selftest__{name}",
            initial_image="selftest",
            round=0,
            simulated=True,
            width=SIDE,
            height=SIDE,
            format="PNG",
            num_bytes=len(data),
            sha256=sha256_bytes(data),
        )
        made.append(Picture(row, data))
    return tuple(made)


def ask(model: Model) -> list[float | None]:
    """Its raw scores of the three pictures; None where it gave none."""
    return [measure(model, picture).score for picture in pictures()]


def verdict(scores: Sequence[float | None], higher_is_better: bool) -> str | None:
    """What a person must be told, one line, or None where both spoiled pictures score worse than the clean one."""
    if len(scores) != len(NAMES) or any(score is None for score in scores):
        return "self-test: no score for its three pictures, so the direction is not checked"
    clean, *spoiled = [float(score) if higher_is_better else -float(score) for score in scores if score is not None]
    better = [name for name, score in zip(NAMES[1:], spoiled, strict=True) if score > clean]
    equal = [name for name, score in zip(NAMES[1:], spoiled, strict=True) if score == clean]
    shown = ", ".join(f"{name} {score:.6g}" for name, score in zip(NAMES, scores, strict=True))
    side = "higher" if higher_is_better else "lower"
    if len(better) == 2:
        return (
            f"WARNING: self-test: the blurred and the noisy picture both score better than the clean one ({shown}; "
            f"{side} is better). Is the direction the other way round? It is left as declared"
        )
    if better:
        return (
            f"WARNING: self-test: the {better[0]} picture scores better than the clean one ({shown}; {side} is better)"
        )
    if equal:
        return f"self-test: the {' and the '.join(equal)} picture scores the same as the clean one ({shown})"
    return None
