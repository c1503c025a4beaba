from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from banana100_bench import images, protocol
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.generate.editors import EditRequest, open_editor
from banana100_bench.generate.editors import simulated as module
from banana100_bench.generate.editors.simulated import NOTICE, Simulated, rerender

from .conftest import INITIAL, pixels


def request(data: bytes = INITIAL, number: int = 1, seed: int | None = 7) -> EditRequest:
    return EditRequest(data=data, prompt="ignored", round=number, seed=seed)


def test_a_round_depends_on_pixels_seed_and_round_alone():
    first = rerender(pixels(), 3, 7)
    rerender(pixels(20, 30), 1, 0)  # other work between
    assert np.array_equal(rerender(pixels(), 3, 7), first)
    assert not np.array_equal(rerender(pixels(), 4, 7), first)
    assert not np.array_equal(rerender(pixels(), 3, 8), first)


def test_five_rounds_give_the_numbers_of_the_prototype():
    picture = pixels()
    for number in range(1, 6):
        picture = rerender(picture, number, 3)
    # From shared/prototypes/simulated_editor.py, numpy 2.4; the tolerance allows for other FFTs.
    assert picture.mean((0, 1)) == pytest.approx((129.747, 124.643, 112.808), abs=0.05)
    assert picture.std((0, 1)) == pytest.approx((41.047, 46.005, 68.419), abs=0.05)


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(st.integers(16, 40), st.integers(16, 40)).flatmap(lambda size: arrays(np.uint8, (*size, 3))),
    st.integers(1, 9999),
    st.integers(0, 2**63 - 1),
)
def test_any_picture_keeps_its_size_and_type(picture, number, seed):
    out = rerender(picture, number, seed)
    assert out.dtype == np.uint8
    assert out.shape == picture.shape


def test_flat_grey_gets_the_stated_noise_and_a_faint_green():
    out = rerender(np.full((64, 64, 3), 128, np.uint8), 1, 0).astype(float)
    # Chroma: 0.035 x (-0.020, -0.045), 15 % back to the lattice point 0: Cb -0.000595, Cr -0.001339.
    # Red moves by 1.402 Cr, green by -0.344 Cb - 0.714 Cr, blue by 1.772 Cb, all x 255.
    assert out.mean((0, 1)) - 128 == pytest.approx((-0.479, 0.296, -0.269), abs=0.15)
    # Noise 0.0085 and 0.0012 x 255, and rounding: the root of 2.1675^2 + 0.306^2 + 1/12.
    assert out[..., 1].std() == pytest.approx(2.208, rel=0.06)


def amplitude(picture: np.ndarray) -> float:
    """Of the 5.5 px wave along x, in the middle 66 columns (12 periods)."""
    wave = np.exp(2j * np.pi * np.arange(33, 99) / 5.5)
    return abs((picture[:, 33:99, 1].mean(0) / 255 * wave).mean()) * 2


@pytest.mark.parametrize(
    ("size", "gain"),
    [
        # Envelope 0.01 / sqrt 2, gain 1 + 0.3 (1 - 0.00707 / 0.04) = 1.247 in the band; the tone keeps
        # exp(-(1 / 0.55)^2 / 2) = 0.191 and fine detail loses it times 0.882: 1.247 + 0.191 - 0.169.
        (0.01, 1.27),
        (0.08, 1.0),  # envelope 0.057 above the limit of 0.04: no gain
    ],
)
def test_the_gain_of_a_fine_pattern_saturates(size, gain):
    wave = 0.5 + size * np.cos(2 * np.pi * np.arange(132) / 5.5)
    picture = np.tile(np.rint(wave * 255)[None, :, None], (64, 1, 3)).astype(np.uint8)
    assert amplitude(rerender(picture, 1, 0)) / amplitude(picture) == pytest.approx(gain, abs=0.04)


def test_resampling_is_exact_on_a_ramp():
    ramp = np.tile(np.arange(40, dtype=np.float32)[None, :, None], (3, 1, 3))
    out = module._resample(ramp, 1, 0.9, 2.3)
    expected = 0.9 * (np.arange(40) + 0.5) + 2.3 - 0.5
    assert out[1, 3:36, 2] == pytest.approx(expected[3:36], abs=1e-4)


@pytest.mark.parametrize(("length", "fast"), [(64, 64), (61, 64), (97, 100), (7, 8), (1, 1)])
def test_fft_lengths_have_small_factors(length, fast):
    assert module._fft_length(length) == fast


def test_the_file_is_a_png_that_says_it_is_simulated():
    data = Simulated().edit(request()).data
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.format == "PNG"
        assert picture.text == {"Software": "simulated-1", "Comment": NOTICE}
        assert np.array_equal(np.asarray(picture), rerender(pixels(), 1, 7))
    assert Simulated().edit(request()).data == data


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "P"])
def test_other_kinds_of_picture_are_read_by_the_decode_policy(mode):
    file = io.BytesIO()
    Image.fromarray(pixels()).convert(mode).save(file, "JPEG" if mode == "CMYK" else "PNG")
    given_pixels = np.asarray(images.decode(file.getvalue(), "x"))
    out = images.decode(Simulated().edit(request(file.getvalue())).data, "out")
    assert np.array_equal(np.asarray(out), rerender(given_pixels, 1, 7))


def test_a_side_below_16_px_is_refused():
    assert rerender(pixels(16, 16), 1, 0).shape == (16, 16, 3)
    with pytest.raises(BananaError, match="40 x 15 pixels.*at least 16"):
        rerender(pixels(15, 40), 1, 0)


def test_what_is_no_image_is_refused_by_name():
    with pytest.raises(BananaError, match="input of round 5: not a readable"):
        Simulated().edit(request(b"GIF89a" + bytes(50), 5))


@pytest.mark.parametrize(
    ("setting", "options", "message"),
    [
        ("mirror", {}, "'mirror'.*reads no prompt"),
        ("temperature", {}, "'temperature'.*choices: replication"),
        ("replication", {"seed": None}, "needs a seed"),
        ("replication", {"temperature": 0.5}, "temperature 0.5: .* has no temperature"),
        ("replication", {"resolution": "2K"}, "resolution '2K': .* has no resolution"),
    ],
)
def test_what_it_cannot_do_is_refused_beforehand(setting, options, message):
    allowed = {"seed": 0, "temperature": None, "resolution": None}
    Simulated().check(protocol.setting("replication"), **allowed)
    with pytest.raises(UsageError, match=message):
        Simulated().check(protocol.setting(setting), **{**allowed, **options})


def test_an_edit_without_a_seed_is_refused():
    with pytest.raises(BananaError, match="needs a seed"):
        Simulated().edit(request(seed=None))


def test_editors_open_by_name():
    assert open_editor("simulated").name == "simulated"
    assert open_editor("simulated").simulated is True
    with pytest.raises(UsageError, match="unknown editor 'simulate'; did you mean simulated"):
        open_editor("simulate")
