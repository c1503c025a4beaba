import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from banana100_bench.leaderboard.suspicion import explained, follows, order_digest, signs
from banana100_bench.models.baselines import uniform
from tests.fakes.judged import make_rows
from tests.leaderboard.making import metric

PLAIN = make_rows()
# Sizes that grow with the round, as noise makes them, and differ from picture to picture.
ROWS = [replace(row, num_bytes=1000 + 50 * row.round + int(400 * uniform(row.sha256, 0)), width=64) for row in PLAIN]


def of(function, rows=ROWS):
    return np.array([function(row) for row in rows], float)


def test_variance_between_groups_by_hand():
    # Means 1 and 4 about 2.5: between 4 x 1.5^2 = 9; within 4 x 1 = 4.
    assert explained(np.array([0.0, 2, 3, 5]), np.array([7, 7, 9, 9])) == pytest.approx(9 / 13)
    assert explained(np.array([1.0, 1, 2, 2]), np.array([0, 0, 1, 1])) == 1
    assert explained(np.array([0.0, 2, 0, 2]), np.array([0, 0, 1, 1])) == 0
    assert explained(np.array([1e308, -1e308, 1e308, -1e308]), np.array([0, 1, 0, 1])) == 1  # no overflow


def test_honest_scores_show_no_sign():
    for seed in range(20):
        assert signs(ROWS, of(metric(seed))) == []
    assert signs(ROWS, of(lambda row: uniform(row.sha256, 3))) == []


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda row: 7.5, "constant: every one of 24 scores is 7.5"),
        (lambda row: -row.round, "a function of the round"),
        (lambda row: math.exp(-row.round), "a function of the round"),
        (lambda row: -row.round + 1e-3 * uniform(row.sha256, 1), "a function of the round"),
        (lambda row: len(row.initial_image) - row.round, "a function of image name and round"),
        (lambda row: row.num_bytes, "a function of the file size"),
        (lambda row: -math.log(row.num_bytes), "a function of the file size"),
        (lambda row: math.nan if row is ROWS[0] else row.num_bytes, "a function of the file size"),
    ],
)
def test_scores_that_do_not_look_at_the_pictures(function, told):
    (found,) = signs(ROWS, of(function))
    assert told in found


def test_bytes_per_pixel_count_as_file_size():
    rows = [replace(row, width=64 + index) for index, row in enumerate(ROWS)]
    (found,) = signs(rows, of(lambda row: row.num_bytes / (row.width * row.height), rows))
    assert "bytes per pixel" in found


def test_too_few_scores_say_nothing():
    assert signs(ROWS[:15], np.zeros(15)) == []
    assert signs(ROWS, np.full(len(ROWS), np.nan)) == []


def test_equal_pictures_may_have_equal_scores():
    same = [replace(row, sha256=row.image_id.split("__")[1] + str(row.round)) for row in ROWS]
    assert signs(same, of(lambda row: len(row.initial_image) * 5 - row.round + 20 * uniform(row.sha256, 1), same)) == []


def test_equal_sizes_need_equal_scores():
    sizes = np.array([1.0, 1, *range(2, 17)])
    values = np.array([0.0, 0, *range(1, 16)])
    assert follows(values, sizes)
    assert follows(-values, sizes)
    assert not follows(np.array([0.0, 0.5, *range(1, 16)]), sizes)
    assert not follows(np.array([0.0, 0, 2, 1, *range(3, 16)]), sizes)
    assert not follows(values[:15], sizes[:15])  # too few to tell


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=30), st.sampled_from([1e-3, 1.0, 7.0]))
def test_a_rising_function_keeps_the_order_and_a_swap_does_not(values, scale):
    scores = np.array(values, float)
    stretched = np.sign(scores) * np.abs(scores) ** 3 * scale + 5e5
    assert order_digest(stretched) == order_digest(scores)
    if values[0] != values[1]:
        swapped = scores.copy()
        swapped[[0, 1]] = swapped[[1, 0]]
        assert order_digest(swapped) != order_digest(scores)
