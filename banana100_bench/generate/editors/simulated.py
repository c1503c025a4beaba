"""A deterministic, seeded stand-in for an editing model that is asked for an exact replica.

It is a simulation, NOT a model of Nano Banana or of any other product, and everything it makes says
so. It is a small re-render operator whose *iteration* shows the failures reported for iterated edits
(paper, "Artefacts": static noise, green cast, scattered dots, a lattice of 5 to 6 px, a slight crop).
Each term has a cause in a generative re-render, and none refers to a quality metric:

==================================================  ==================================================
cause                                               term
==================================================  ==================================================
the output canvas never aligns with the input       slight zoom and sub-pixel shift, resampled
a decoder tuned for crispness amplifies its band    saturating gain of a band around 5.5 px
a decoder smooths what it takes for noise           coring: small fine detail shrinks, edges gain
tone is pushed towards a contrasty prior            mid-tone contrast grows a little
decoding is stochastic                              fresh noise, another each round
a decoder has a fixed error pattern                 noise at the same place each round
decoding fails here and there                       scattered dots
colour statistics are pulled to a prior             chroma relaxes towards a faint green
the colour vocabulary is finite                     chroma moves towards a coarse lattice
pictures are 8-bit files                            rounding and clipping each round
==================================================  ==================================================

A round depends only on (pixels, seed, round), so a chain can be killed and resumed, or computed by
any number of workers. On another machine the last bit of a pixel may differ (FFT and `tanh` are not
the same to the last bit everywhere), and the file's bytes may (another zlib), and iteration carries
that on; on one machine everything is reproduced exactly.
"""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin

from banana100_bench import images
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.generate.editors.base import Edited, Editor, EditRequest
from banana100_bench.protocol import Setting

NOTICE = "banana100-bench simulated editor; not made by an image-editing model"
MIN_SIDE = 16  # px; below it the band filters have nothing to work on
COMPRESS_LEVEL = 1  # of the PNG: 4 times faster than the usual 6, and 2 % larger, as noise does not compress

# Lengths in pixels, amplitudes as a fraction of full scale (1 = 255).
ZOOM = 1.0010  # linear, a round
SHIFT = 0.15  # standard deviation of the shift
BAND_FREQUENCY = 1 / 5.5  # of the largest gain, in cycles/px
BAND_OCTAVES = 0.45  # standard deviation of the band, in octaves
BAND_GAIN = 0.30  # at small amplitudes
BAND_LIMIT = 0.040  # amplitude at which the gain has fallen to none
CORE = 0.015  # fine detail well below it shrinks
CORE_SHRINK = 0.12  # by how much
EDGE_GAIN = 0.10  # of fine detail well above CORE
FINE_LIMIT = 0.2  # amplitude at which fine detail saturates
CONTRAST = 0.001
NOISE = 0.0085  # standard deviation
FIXED_NOISE = 0.0012  # standard deviation
DOTS = 2.0e-5  # expected number per pixel
DOT_RANGE = (0.1, 0.3)  # amplitude, either sign
CHROMA_PULL = 0.035  # how much nearer to the fixed point, a round
CHROMA_CAST = (-0.020, -0.045)  # Cb, Cr at mid-tone: both negative is green
CHROMA_FADE = 0.15  # how much of the pull is towards grey
LATTICE = 0.020  # step of the chroma lattice
LATTICE_PULL = 0.15  # how much nearer to it, a round
LOW_CUTOFF = 0.10  # cycles/px: standard deviation of the low-pass that separates tone from detail
PAD = 24  # mirrored margin, so that the FFT does not wrap the picture round

_TO_YCC = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])  # BT.601
_TO_RGB = np.linalg.inv(_TO_YCC)

Floats = NDArray[np.floating]


class Simulated(Editor):
    """The editor "simulated": `rerender` on encoded pictures, PNG out, the notice in its text chunks."""

    name = "simulated"
    simulated = True
    model_version = "simulated-1"  # raise it with any change of the pixels

    def check(self, setting: Setting, *, seed: int | None, temperature: float | None, resolution: str | None) -> None:
        if setting.name != "replication":
            raise UsageError(
                f"setting {setting.name!r}: the simulated editor reads no prompt, it can only replicate; "
                "choices: replication"
            )
        if seed is None:
            raise UsageError("the simulated editor needs a seed")
        for option, value in (("temperature", temperature), ("resolution", resolution)):
            if value is not None:
                raise UsageError(f"{option} {value!r}: the simulated editor has no {option}")

    def edit(self, request: EditRequest) -> Edited:
        if request.seed is None:
            raise BananaError("the simulated editor needs a seed")
        pixels = np.asarray(images.decode(request.data, f"input of round {request.round}"))
        picture = Image.fromarray(rerender(pixels, request.round, request.seed))
        text = PngImagePlugin.PngInfo()
        text.add_text("Software", self.model_version)
        text.add_text("Comment", NOTICE)
        file = io.BytesIO()
        picture.save(file, "PNG", compress_level=COMPRESS_LEVEL, pnginfo=text)
        return Edited(data=file.getvalue())


def rerender(pixels: NDArray[np.uint8], round_number: int, seed: int) -> NDArray[np.uint8]:
    """Round `round_number` (1 or more): uint8 RGB, height x width x 3, to the same shape and type.

    BananaError where a side is below MIN_SIDE.
    """
    height, width = pixels.shape[:2]
    if min(height, width) < MIN_SIDE:
        raise BananaError(f"{width} x {height} pixels: the simulated editor needs at least {MIN_SIDE} a side")
    fresh = np.random.default_rng([0x5EED, seed, round_number])
    fixed = np.random.default_rng([0xF1ED, seed])
    ycc = _misregister(pixels.astype(np.float32) / 255, fresh) @ _TO_YCC.T.astype(np.float32)
    luma = _add_noise(_redraw(ycc[..., 0]), fresh, fixed)
    chroma = _recolour(ycc[..., 1:], luma)
    rgb = np.concatenate([luma[..., None], chroma], axis=-1) @ _TO_RGB.T
    return np.clip(np.rint(rgb * 255), 0, 255).astype(np.uint8)


def _misregister(x: Floats, fresh: np.random.Generator) -> Floats:
    """Crop a hair about the centre, off by a random shift, and resize back."""
    shift_x, shift_y = fresh.normal(0, SHIFT, 2)
    scale = 1 / ZOOM
    height, width = x.shape[:2]
    x = _resample(x, 0, scale, (1 - scale) * height / 2 + shift_y)
    return _resample(x, 1, scale, (1 - scale) * width / 2 + shift_x)


def _resample(x: Floats, axis: int, scale: float, offset: float) -> Floats:
    """x at ``scale * (i + 0.5) + offset - 0.5`` along an axis, for each i: Catmull-Rom, mirrored at the borders.

    Not Pillow's BICUBIC transform: its sharper kernel amplifies a 5.5 px period by 9 % per half-pixel
    shift, so an iterated chain diverges.
    """
    length = x.shape[axis]
    position = scale * (np.arange(length) + 0.5) + offset - 0.5
    left = np.floor(position).astype(int)
    t = position - left
    weights = (
        -0.5 * t + t**2 - 0.5 * t**3,
        1 - 2.5 * t**2 + 1.5 * t**3,
        0.5 * t + 2 * t**2 - 1.5 * t**3,
        -0.5 * t**2 + 0.5 * t**3,
    )
    along = (-1, 1, 1) if axis == 0 else (1, -1, 1)
    out: Any = 0
    for tap, weight in enumerate(weights, -1):
        index = np.abs(left + tap)
        index = np.where(index > length - 1, 2 * (length - 1) - index, index)
        out = out + np.take(x, index, axis) * weight.astype(np.float32).reshape(along)
    return out


def _redraw(luma: Floats) -> Floats:
    """Split luma into tone, band and fine detail, change each as the table above says, and add them up again."""
    height, width = luma.shape
    rows, columns = _fft_length(height + 2 * PAD), 2 * _fft_length((width + 2 * PAD + 1) // 2)
    padded = np.pad(luma, ((PAD, rows - height - PAD), (PAD, columns - width - PAD)), mode="reflect")
    band_pass, low_pass = _filters(rows, columns)
    spectrum = np.fft.rfft2(padded)

    band = _inverse(spectrum * band_pass, padded.shape)
    tone = _inverse(spectrum * low_pass, padded.shape)
    fine = padded - tone - band

    fine = fine * ((1 - CORE_SHRINK) + (CORE_SHRINK + EDGE_GAIN) * fine**2 / (fine**2 + CORE**2))
    fine = FINE_LIMIT * np.tanh(fine / FINE_LIMIT)

    power = _inverse(np.fft.rfft2(band * band) * low_pass, padded.shape)
    envelope = np.sqrt(np.maximum(power, 0))
    band = band * (1 + BAND_GAIN * np.clip(1 - envelope / BAND_LIMIT, 0, 1))

    tone = tone - 0.5 * CONTRAST * np.sin(2 * np.pi * np.clip(tone, 0, 1))
    return (tone + band + fine)[PAD : PAD + height, PAD : PAD + width]


def _inverse(spectrum: NDArray[np.complexfloating], shape: tuple[int, ...]) -> Floats:
    return np.fft.irfft2(spectrum, s=shape).astype(np.float32)


@lru_cache(maxsize=8)
def _filters(rows: int, columns: int) -> tuple[Floats, Floats]:
    """The band-pass (log-normal, a little stronger along the axes: the pixel grid is square) and the low-pass."""
    vertical, horizontal = np.fft.fftfreq(rows)[:, None], np.fft.rfftfreq(columns)[None, :]
    radius = np.hypot(vertical, horizontal)
    octaves = np.log2(np.where(radius > 0, radius, 1e-9) / BAND_FREQUENCY)
    lobes = 1 + 0.25 * np.cos(4 * np.arctan2(vertical, horizontal))
    band_pass = np.exp(-0.5 * (octaves / BAND_OCTAVES) ** 2) * lobes / 1.25
    low_pass = np.exp(-0.5 * (radius / LOW_CUTOFF) ** 2)
    return band_pass.astype(np.float32), low_pass.astype(np.float32)


def _fft_length(length: int) -> int:
    """The next length whose only prime factors are 2, 3 and 5: a fast FFT."""
    rest = length
    for factor in (2, 3, 5):
        while rest % factor == 0:
            rest //= factor
    return length if rest == 1 else _fft_length(length + 1)


def _add_noise(luma: Floats, fresh: np.random.Generator, fixed: np.random.Generator) -> Floats:
    """Fresh noise, noise locked to its place, and dots."""
    luma = (
        luma
        + NOISE * fresh.standard_normal(luma.shape, np.float32)
        + FIXED_NOISE * fixed.standard_normal(luma.shape, np.float32)
    )
    count = fresh.poisson(DOTS * luma.size)
    if count:
        height, width = luma.shape
        place = fresh.integers(0, height, count), fresh.integers(0, width, count)
        luma[place] += fresh.choice([-1, 1], count) * fresh.uniform(*DOT_RANGE, count)
    return luma


def _recolour(chroma: Floats, luma: Floats) -> Floats:
    """Chroma a step nearer to the cast (strongest at mid-tone) and to grey, then to the lattice."""
    tone = np.clip(luma, 0, 1)
    cast = np.asarray(CHROMA_CAST, np.float32) * (4 * tone * (1 - tone))[..., None]
    chroma = chroma + CHROMA_PULL * (cast - CHROMA_FADE * chroma)
    return chroma + LATTICE_PULL * (np.round(chroma / LATTICE) * LATTICE - chroma)
