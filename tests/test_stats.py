"""Intervals and tests: by hand, against scipy, and by their promises on simulated truth."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from banana100_bench.stats import (
    bca_interval,
    clopper_pearson,
    edge_bound,
    holm,
    jackknife_weights,
    percentile_interval,
    rank_intervals,
    rank_with_ties,
    resample_weights,
    sign_flip_test,
    tail,
    tie_groups,
)


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


# --- bootstrap

RANDOM = np.random.default_rng(7)


def test_weights_are_counts_of_a_resample_and_the_same_each_time():
    weights = resample_weights(13)
    assert weights.shape == (10_000, 13)
    assert set(weights.sum(axis=1)) == {13}
    assert (weights == weights.astype(int)).all()
    np.testing.assert_array_equal(weights, resample_weights.__wrapped__(13))
    assert not np.array_equal(weights, resample_weights(13, seed=1))
    assert abs(weights.var() - (1 - 1 / 13)) < 0.02  # multinomial


def means(values):
    weights = resample_weights(len(values))
    return (
        weights @ values / len(values),
        values.mean(axis=0),
        jackknife_weights(len(values)) @ values / (len(values) - 1),
    )


def test_percentile_interval_is_numpys_quantile():
    replicates = RANDOM.normal(size=(999, 3))
    np.testing.assert_allclose(percentile_interval(replicates), np.quantile(replicates, [0.025, 0.975], axis=0))


def test_the_tail_is_widened_for_few_images():
    assert tail() == pytest.approx(0.025)
    assert tail(n=13) == pytest.approx(scipy.stats.norm.cdf(-2.1788 * math.sqrt(13 / 12)), abs=1e-5)
    assert tail(n=100_000) == pytest.approx(0.025, abs=1e-4)


def test_bca_is_scipys():
    values = RANDOM.gamma(1.0, size=(13, 2))  # skewed, so that BCa and percentile differ
    replicates, estimate, jackknife = means(values)
    found = bca_interval(replicates, estimate, jackknife)
    for column in range(2):
        oracle = scipy.stats.bootstrap(
            (values[:, column],), np.mean, n_resamples=50_000, method="BCa", rng=np.random.default_rng(0)
        ).confidence_interval
        width = oracle.high - oracle.low
        np.testing.assert_allclose(found[:, column], oracle, atol=0.03 * width)
        assert abs(percentile_interval(replicates)[1, column] - oracle.high) > 0.04 * width


def test_an_interval_of_nothing_is_nan_never_zero():
    nothing = np.full((1000, 1), np.nan)
    assert np.isnan(percentile_interval(nothing)).all()
    assert np.isnan(bca_interval(nothing, np.array([np.nan]), np.full((5, 1), np.nan))).all()
    assert math.isnan(edge_bound(0))
    assert np.isnan(sign_flip_test(np.empty((0, 2)))).all()


def test_a_statistic_that_many_resamples_lack_has_no_interval():
    replicates = RANDOM.normal(size=(1000, 2))
    replicates[:40, 0] = np.nan  # 4 %: left out
    replicates[:60, 1] = np.nan  # 6 %: too many
    found = percentile_interval(replicates)
    np.testing.assert_allclose(found[:, 0], np.nanquantile(replicates[:, 0], [0.025, 0.975]))
    assert np.isnan(found[:, 1]).all()


def test_bca_of_equal_replicates_is_that_point_and_of_a_biased_one_nan():
    assert bca_interval(np.full((100, 1), 0.5), np.array([0.5]), np.full((5, 1), 0.5)).tolist() == [[0.5], [0.5]]
    assert np.isnan(bca_interval(np.ones((100, 1)), np.array([0.5]), np.full((5, 1), 0.5))).all()


def test_the_edge_bound_is_clopper_pearson_for_n_of_n():
    assert edge_bound(13) == pytest.approx(clopper_pearson(13, 13)[0], abs=1e-12)


# --- tests


def test_sign_flips_by_hand_and_by_scipy():
    assert sign_flip_test(np.array([[1.0], [1.0], [1.0]]))[0] == 2 / 8
    assert sign_flip_test(np.array([[1.0], [-1.0]]))[0] == 1
    assert sign_flip_test(np.ones((13, 1)))[0] == 2 / 2**13  # the least there is with 13 images
    assert sign_flip_test(np.zeros((13, 1)))[0] == 1
    differences = RANDOM.normal(0.4, 1, (9, 3))
    for column, p in enumerate(sign_flip_test(differences)):
        oracle = scipy.stats.permutation_test(
            (differences[:, column],), np.mean, permutation_type="samples", n_resamples=np.inf
        )
        assert p == pytest.approx(oracle.pvalue, abs=1e-12)


def test_sign_flips_of_many_images_are_drawn_and_never_zero():
    assert sign_flip_test(np.ones((40, 1)))[0] == pytest.approx(1 / 65537)
    differences = RANDOM.normal(0.3, 1, (17, 1))
    exact = np.abs((1 - 2.0 * (np.arange(2**17)[:, None] >> np.arange(17) & 1)) @ differences)
    assert sign_flip_test(differences)[0] == pytest.approx((exact >= abs(differences.sum()) - 1e-9).mean(), abs=0.005)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.5]) == [1, 1]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_never_lowers_a_p_value_nor_changes_their_order(p_values):
    adjusted = holm(p_values)
    assert all(p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_tie_groups_and_rank_intervals():
    best, near, far = np.full(13, 1.0), np.r_[np.full(11, 1.0), 0, 0], np.zeros(13)
    values = np.column_stack([far, best, near, far])
    assert tie_groups(values) == [2, 1, 1, 2]
    low, high = rank_intervals(values)
    assert low.tolist() == [3, 1, 1, 3]
    assert high.tolist() == [3, 1, 2, 3]


def test_three_images_can_part_nobody():
    assert tie_groups(np.column_stack([np.ones(3), np.zeros(3)])) == [1, 1]


# --- does the interval hold what it promises?


@pytest.mark.parametrize("mean", [0.3, 0.5, 0.7])
def test_coverage_of_both_intervals_at_thirteen_images(mean):
    # 13 images whose rates differ (beta), 5 runs each: the truth is the mean of all possible images.
    random = np.random.default_rng(11)
    trials = 500
    weights = resample_weights(13, 2000)
    covered = {"percentile": 0, "bca": 0}
    for _ in range(trials):
        rates = random.beta(3 * mean, 3 * (1 - mean), 13)
        values = (random.binomial(5, rates) / 5)[:, None]
        replicates, left_out = weights @ values / 13, jackknife_weights(13) @ values / 12
        for name, (low, high) in (
            ("percentile", percentile_interval(replicates, n=13)),
            ("bca", bca_interval(replicates, values.mean(axis=0), left_out, n=13)),
        ):
            covered[name] += bool(low[0] <= mean <= high[0])
    assert all(0.92 <= count / trials <= 0.99 for count in covered.values()), covered
