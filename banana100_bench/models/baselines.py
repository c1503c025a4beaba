"""Baselines that no serious metric may lose to, and by which the benchmark itself is judged."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from banana100_bench import images
from banana100_bench.errors import UsageError, unknown_name
from banana100_bench.models.base import Asked, ModelInfo, Option, Picture, library_versions, refuse, settle_direction

if TYPE_CHECKING:
    import numpy as np


def constant(picture: Picture) -> float:
    """0 for every picture: all ties, so it must fail everywhere."""
    return 0.0


def uniform(sha256: str, seed: int) -> float:
    """A number in [0, 1) that looks random but is fixed by the image's hash and `seed`, whatever the order.

    The first 53 bits of SHA-256 of ``"<seed> <sha256>"``, so that every value is exact in a float.
    """
    digest = hashlib.sha256(f"{seed} {sha256}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def file_size(picture: Picture) -> float:
    """Bytes of the file per pixel, higher is better: to the layman a larger file holds more detail.

    Per pixel, as larger pictures have larger files whatever their quality. Noise does not compress,
    so this baseline calls a degraded PNG better, which is the very error the benchmark looks for.
    """
    facts = images.probe(picture.data, picture.row.image_id)
    return len(picture.data) / (facts.width * facts.height)


def noise_sigma(pixels: np.ndarray) -> float:
    """Standard deviation of white noise in `pixels` (uint8, H x W x 3, at least 3 x 3), in grey levels.

    Immerkaer, "Fast noise variance estimation", CVIU 64 (1996), doi:10.1006/cviu.1996.0060: the mean absolute
    response to the difference of two Laplacians, which cancels flat, sloping and straight-edged structure; here
    over the three channels together. Fine texture counts as noise, so that smearing it can outweigh new noise.
    """
    import numpy as np

    height, width = pixels.shape[:2]
    if height < 3 or width < 3:
        raise ValueError(f"{width} x {height} pixels, expected at least 3 x 3")
    second = np.diff(pixels.astype(np.int16), n=2, axis=0)
    mask = np.diff(second, n=2, axis=1)  # [1 -2 1] down, then across: at most 16 x 255, so int16 holds it
    return math.sqrt(math.pi / 2) * float(np.abs(mask).mean(dtype=np.float64)) / 6


def negative_noise(picture: Picture) -> float:
    """Minus the noise estimate: the less noise, the better."""
    import numpy as np

    return -noise_sigma(np.asarray(picture.rgb))


def sharpness(picture: Picture) -> float:
    """Variance of the Laplacian of the luma, the common measure of focus: higher is sharper, and noisier."""
    luma = _luma(picture)
    inner = luma[1:-1, 1:-1]
    return float((luma[:-2, 1:-1] + luma[2:, 1:-1] + luma[1:-1, :-2] + luma[1:-1, 2:] - 4 * inner).var())


def jpeg_quality(picture: Picture) -> float:
    """Quality as if JPEG had spoiled it, about 1 to 10, higher is better; NaN where the picture is flat.

    Wang, Sheikh and Bovik, "No-reference perceptual quality assessment of JPEG compressed images", ICIP
    2002, with the constants of their code: blockiness at every 8th pixel, activity and zero crossings of the
    differences of neighbours, along both axes.
    """
    luma = _luma(picture)
    parts = [sum(pair) / 2 for pair in zip(_block_facts(luma), _block_facts(luma.T), strict=True)]
    if min(parts) <= 0:
        return math.nan
    blocks, activity, crossings = parts
    return -245.8909 + 261.9373 * blocks**-0.02398886 * activity**0.01601664 * crossings**0.00642859


def _block_facts(luma: np.ndarray) -> tuple[float, float, float]:
    """Blockiness, activity and rate of zero crossings along the rows of H x W `luma` in grey levels."""
    import numpy as np

    width = luma.shape[1]
    if width < 16:
        raise ValueError(f"{luma.shape[1]} x {luma.shape[0]} pixels, expected at least 16 x 16")
    steps = np.diff(luma, axis=1)
    blocks = float(np.abs(steps[:, 7 : 8 * (width // 8 - 1) : 8]).mean())
    activity = (8 * float(np.abs(steps).mean()) - blocks) / 7
    signs = np.sign(steps)
    return blocks, activity, float((signs[:, :-1] * signs[:, 1:] < 0).mean())


def _luma(picture: Picture) -> np.ndarray:
    """H x W float64 in grey levels, by the weights of Rec. 601, not rounded."""
    import numpy as np

    return np.asarray(picture.rgb) @ np.array([0.299, 0.587, 0.114])


def step_leak(picture: Picture) -> float:
    """Minus the round. It looks at no pixel and reads the answer off the label: a CHEAT, perfect by construction.

    It is here so that a metric that does as well is suspected; boards and tables call it a cheat (result_schema.py).
    """
    return -float(picture.row.round)


@dataclass(frozen=True)
class Baseline:
    """A baseline as a model (models/base.py)."""

    info: ModelInfo
    function: Callable[[Picture], float]
    pixels: bool = True

    def score(self, picture: Picture) -> float:
        return self.function(picture)


_BLIND: dict[str, Callable[[Picture], float]] = {
    "constant": constant,
    "file-size": file_size,
    "step-leak": step_leak,
}
SEEING: dict[str, Callable[[Picture], float]] = {
    "noise": negative_noise,
    "sharpness": sharpness,
    "jpeg-quality": jpeg_quality,
}
NAMES = ("constant", "random", "file-size", "noise", "sharpness", "jpeg-quality", "step-leak")


def open_baseline(spec: str, asked: Asked) -> Baseline:
    """``baseline:NAME``, NAME being one of NAMES; ``random`` takes the option ``seed`` (an integer, default 0)."""
    name = spec.partition(":")[2]
    if name not in NAMES:
        raise unknown_name("baseline", name, NAMES)
    refuse(spec, weights=asked.weights)
    settle_direction(spec, True, asked.higher_is_better, "")
    own: dict[str, Option] = {}
    if name == "random":
        seed = _seed(spec, asked.options)
        own = {"seed": seed}
        function: Callable[[Picture], float] = lambda picture: uniform(picture.row.sha256, seed)  # noqa: E731
    else:
        refuse(spec, options=asked.options)
        function = (_BLIND | SEEING)[name]
    seeing = name in SEEING
    versions = library_versions("numpy", "pillow") if seeing else library_versions()
    info = ModelInfo(id=spec, kind="baseline", higher_is_better=True, options=own, versions=versions)
    return Baseline(info, function, seeing)


def _seed(spec: str, options: Mapping[str, Option]) -> int:
    unknown = sorted(set(options) - {"seed"})
    if unknown:
        raise unknown_name(f"option of {spec}", unknown[0], ["seed"])
    try:
        return int(str(options.get("seed", 0)))
    except ValueError as error:
        raise UsageError(f"{spec}: seed {options['seed']!r}, expected an integer") from error
