import math

import pytest

from banana100_bench.stats import clopper_pearson, rank_with_ties


def test_thirteen_of_thirteen_still_leaves_doubt():
    low, high = clopper_pearson(13, 13)
    assert low == pytest.approx(0.025 ** (1 / 13), abs=1e-12)  # closed form for k = n
    assert round(low, 3) == 0.753
    assert high == 1.0


def test_interval_of_two_of_three_from_the_published_tables():
    low, high = clopper_pearson(2, 3)
    assert (round(low, 4), round(high, 4)) == (0.0943, 0.9916)


def test_failures_mirror_successes():
    low, high = clopper_pearson(3, 20, level=0.9)
    other_low, other_high = clopper_pearson(17, 20, level=0.9)
    assert (low, high) == pytest.approx((1 - other_high, 1 - other_low), abs=1e-12)


def test_nothing_seen_means_nothing_known():
    assert all(map(math.isnan, clopper_pearson(0, 0)))


@pytest.mark.parametrize(("k", "n"), [(4, 3), (-1, 3), (1, 0)])
def test_impossible_counts_are_refused(k, n):
    with pytest.raises(ValueError, match="must not be below 0 or above the total"):
        clopper_pearson(k, n)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([9, 7, 7, 3], [1, 2, 2, 4]),
        ([3, 7, 9, 7], [4, 2, 1, 2]),
        ([(0.5, 0.1), (0.5, 0.2), (0.25, 0.9)], [2, 1, 3]),
        ([1, 1, 1], [1, 1, 1]),
        ([], []),
    ],
)
def test_competition_ranks(keys, expected):
    assert rank_with_ties(keys) == expected
