import math

import numpy as np
import pytest

from banana100_bench.errors import UsageError
from banana100_bench.models import open_model
from banana100_bench.models.baselines import NAMES, noise_sigma, uniform
from tests.models.making import encoded, picture, texture


def test_constant_is_the_same_for_all():
    model = open_model("baseline:constant")
    assert [model.score(picture(texture(seed))) for seed in (1, 2)] == [0.0, 0.0]
    assert (model.info.kind, model.info.higher_is_better, model.info.options) == ("baseline", True, {})


def test_random_is_fixed_by_image_and_seed():
    # printf '0 aaa...a' (64 a) | sha256sum begins with these digits; likewise for seed 7
    assert uniform("a" * 64, 0) == (0x554C8356C475BC5A >> 11) / 2**53
    assert uniform("a" * 64, 7) == (0x5E9C61264BF976ED >> 11) / 2**53
    first, second = picture(texture(1)), picture(texture(2))
    model, seeded = open_model("baseline:random"), open_model("baseline:random", options={"seed": "7"})
    assert model.score(first) == uniform(first.row.sha256, 0)
    assert model.score(second) == uniform(second.row.sha256, 0)
    assert seeded.score(first) == uniform(first.row.sha256, 7)
    assert (model.info.options, seeded.info.options) == ({"seed": 0}, {"seed": 7})
    draws = [uniform(f"{number:064x}", 0) for number in range(2000)]
    assert 0 <= min(draws) < 0.01
    assert 0.99 < max(draws) < 1
    assert abs(np.mean(draws) - 0.5) < 4 * math.sqrt(1 / 12 / 2000)


def test_file_size_is_bytes_per_pixel_and_likes_noise():
    model = open_model("baseline:file-size")
    flat, noisy = picture(np.zeros((20, 30, 3), np.uint8)), picture(texture(size=32))
    assert model.score(flat) == len(flat.data) / 600
    assert model.score(noisy) == len(noisy.data) / 1024
    assert model.score(noisy) > model.score(flat)
    padded = encoded(flat.data + bytes(100), 1, 1)  # the row's claim of 1 x 1 is not believed
    assert model.score(padded) == (len(flat.data) + 100) / 600


def test_noise_of_a_dot_is_the_sum_of_the_mask():
    pixels = np.zeros((5, 5, 3), np.uint8)
    pixels[2, 2] = 6  # answers 6 x [1 2 1; 2 4 2; 1 2 1], so 96 over the 9 inner pixels
    assert noise_sigma(pixels) == pytest.approx(math.sqrt(math.pi / 2) * 96 / 9 / 6, rel=1e-12)
    assert open_model("baseline:noise").score(picture(pixels)) == -noise_sigma(pixels)


def test_noise_of_the_harshest_pattern_does_not_overflow():
    board = np.indices((6, 6)).sum(axis=0) % 2 * 255
    pixels = np.repeat(board[:, :, None], 3, axis=2).astype(np.uint8)
    assert noise_sigma(pixels) == pytest.approx(math.sqrt(math.pi / 2) * 255 * 8 / 6, rel=1e-12)


def test_noise_ignores_slopes_and_finds_gaussian_sigma():
    ramp = (np.arange(64)[:, None, None] + np.arange(64)[None, :, None] * 2).repeat(3, axis=2).astype(np.uint8)
    assert noise_sigma(ramp) == 0
    noise = np.random.default_rng(0).normal(128, 10, (256, 256, 3))
    assert noise_sigma(np.clip(np.rint(noise), 0, 255).astype(np.uint8)) == pytest.approx(10, rel=0.02)
    with pytest.raises(ValueError, match="2 x 9 pixels, expected at least 3 x 3"):
        noise_sigma(np.zeros((9, 2, 3), np.uint8))


def grey(values):
    return picture(np.repeat(np.asarray(values, np.uint8)[:, :, None], 3, axis=2))


def test_sharpness_is_the_variance_of_the_laplacian():
    dot = np.zeros((5, 5))
    dot[2, 2] = 10  # over the 9 inner pixels: -40 once, 10 four times, 0 four times; the mean is 0
    assert open_model("baseline:sharpness").score(grey(dot)) == pytest.approx((1600 + 4 * 100) / 9, rel=1e-9)
    assert open_model("baseline:sharpness").score(grey(np.full((9, 9), 77))) == pytest.approx(0, abs=1e-18)


def test_jpeg_quality_falls_with_the_quality_of_the_jpeg():
    import io

    from PIL import Image

    from banana100_bench import selftest

    model, clean = open_model("baseline:jpeg-quality"), selftest.pictures()[0]
    scores = [model.score(clean)]
    for quality in (80, 40, 10, 3):
        buffer = io.BytesIO()
        clean.rgb.save(buffer, "JPEG", quality=quality)
        scores.append(model.score(picture(np.asarray(Image.open(buffer)))))
    assert scores == sorted(scores, reverse=True)
    assert scores[0] - scores[-1] > 3
    assert math.isnan(model.score(grey(np.full((32, 32), 9))))
    with pytest.raises(ValueError, match="expected at least 16 x 16"):
        model.score(grey(np.zeros((40, 15))))


def test_jpeg_quality_of_a_pattern_by_hand():
    # along both axes the 63 steps go up and down in turn: by 9 at the 7 edges of blocks, by 2 at the 56 others
    steps = [(-1) ** at * (9 if (at + 1) % 8 == 0 else 2) for at in range(63)]
    row = np.cumsum([0, *steps])
    blocks, activity, crossings = 9, (8 * (7 * 9 + 56 * 2) / 63 - 9) / 7, 1
    expected = -245.8909 + 261.9373 * blocks**-0.02398886 * activity**0.01601664 * crossings**0.00642859
    assert open_model("baseline:jpeg-quality").score(grey(150 + row[None, :] + row[:, None])) == pytest.approx(expected)


def test_the_step_leak_reads_the_round_and_nothing_else():
    model = open_model("baseline:step-leak")
    assert [model.score(picture(texture(1), number)) for number in (1, 20)] == [-1.0, -20.0]
    assert model.pixels is False
    assert model.info.id == "baseline:step-leak"  # the name by which a board shows it for what it is
    assert {name for name in NAMES if open_model(f"baseline:{name}").pixels} == {"noise", "sharpness", "jpeg-quality"}


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        ("baseline:random", {"options": {"sed": 1}}, "unknown option of baseline:random 'sed'; did you mean seed"),
        ("baseline:random", {"options": {"seed": "x"}}, "seed 'x', expected an integer"),
        ("baseline:noise", {"options": {"seed": 1}}, "baseline:noise: takes no options"),
        ("baseline:noise", {"weights": "w.pth"}, "baseline:noise: takes no weights"),
        ("baseline:noise", {"higher_is_better": False}, "declares that higher is better"),
    ],
)
def test_what_a_baseline_does_not_take(spec, given, message):
    with pytest.raises(UsageError, match=message):
        open_model(spec, **given)
