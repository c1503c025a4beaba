"""Baselines that no serious metric may lose to, and by which the benchmark itself is judged."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from banana100_bench import images
from banana100_bench.errors import UsageError, unknown_name
from banana100_bench.models.base import ModelInfo, Picture, library_versions, refuse, settle_direction

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

    Immerkaer, "Fast noise variance estimation", CVIU 64 (1996): the mean absolute response to the
    difference of two Laplacians, which cancels flat, sloping and straight-edged structure; here over the
    three channels together. Fine texture counts as noise, so that smearing it can outweigh new noise.
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


@dataclass(frozen=True)
class Baseline:
    """A baseline as a model (models/base.py)."""

    info: ModelInfo
    function: Callable[[Picture], float]

    def score(self, picture: Picture) -> float:
        return self.function(picture)


_FUNCTIONS: dict[str, Callable[[Picture], float]] = {
    "constant": constant,
    "file-size": file_size,
    "noise": negative_noise,
}
NAMES = ("constant", "random", "file-size", "noise")


def open_baseline(
    spec: str,
    *,
    weights: Path | None,
    higher_is_better: bool | None,
    options: Mapping[str, str | int | float | bool],
) -> Baseline:
    """``baseline:NAME``, NAME being one of NAMES; ``random`` takes the option ``seed`` (an integer, default 0)."""
    name = spec.partition(":")[2]
    if name not in NAMES:
        raise unknown_name("baseline", name, NAMES)
    refuse(spec, weights=weights)
    settle_direction(spec, True, higher_is_better, "")
    own: dict[str, str | int | float | bool] = {}
    if name == "random":
        seed = _seed(spec, options)
        own = {"seed": seed}
        function: Callable[[Picture], float] = lambda picture: uniform(picture.row.sha256, seed)  # noqa: E731
    else:
        refuse(spec, options=options)
        function = _FUNCTIONS[name]
    versions = library_versions("numpy", "pillow") if name == "noise" else library_versions()
    info = ModelInfo(id=spec, kind="baseline", higher_is_better=True, options=own, versions=versions)
    return Baseline(info, function)


def _seed(spec: str, options: Mapping[str, str | int | float | bool]) -> int:
    unknown = sorted(set(options) - {"seed"})
    if unknown:
        raise unknown_name(f"option of {spec}", unknown[0], ["seed"])
    try:
        return int(str(options.get("seed", 0)))
    except ValueError as error:
        raise UsageError(f"{spec}: seed {options['seed']!r}, expected an integer") from error
