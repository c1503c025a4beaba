import math

import pytest

from banana100_bench.comparison import Standing, compare
from banana100_bench.errors import UsageError
from tests.fakes.judged import info, judge, make_rows

IMAGES = [f"image{k:02d}" for k in range(13)]
ROWS = make_rows(IMAGES, repetitions=1)


def right_on(count):
    """Falls on the first `count` images, rises on the others."""
    return lambda row: -row.round if IMAGES.index(row.initial_image) < count else row.round


def results(*counts):
    return [judge(ROWS, right_on(count), info(f"file:{count}")) for count in counts]


def test_standings_on_thirteen_images():
    # 13 right, 12 right, none: the first two differ on one image (p = 1), the third on all (p = 2 / 2^13, times 2).
    assert compare(results(0, 13, 12)) == [
        Standing(3, (3, 3), 2, pytest.approx(2 * 2 / 2**13)),
        Standing(1, (1, 1), 1, None),
        Standing(2, (1, 2), 1, 1.0),
    ]


def test_one_model_stands_alone_and_none_stands_nowhere():
    assert compare(results(5)) == [Standing(1, (1, 1), 1, None)]
    assert compare([]) == []


def test_a_model_that_failed_somewhere_has_no_standing():
    broken = judge(ROWS, lambda row: math.nan if row.round == 20 else -row.round, info("file:nan"))
    assert compare([broken, *results(3)]) == [None, Standing(1, (1, 1), 1, None)]


def test_other_data_is_refused():
    with pytest.raises(UsageError, match="cannot be ranked together"):
        compare([*results(3), judge(make_rows(), lambda row: 1.0)])
