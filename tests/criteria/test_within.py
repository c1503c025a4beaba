"""Correlations, pairs by gap, inversions, first notice: by hand and against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr

from banana100_bench.criteria import GAPS, Within, correlations, first_notice, inversions, pairs_by_gap
from banana100_bench.protocol import Rounds
from tests.criteria.making import runs_of

PAPER = Rounds()
NaN = math.nan


def within(*lines, rounds=(1, 5, 10, 20), compared=PAPER, last=None, **facts):
    runs = runs_of(*lines, rounds=rounds, **facts)
    return Within(runs, compared, last if last is not None else compared.later[-1])


def values(statistics):
    found = statistics(np.ones((1, _images(statistics))))[0]
    return dict(zip(statistics.names, found.tolist(), strict=True))


def _images(statistics):
    return len(getattr(statistics, "values", getattr(statistics, "shares", None)))


@given(
    st.lists(st.one_of(st.integers(-4, 4).map(float), st.just(NaN)), min_size=2, max_size=12),
)
@settings(max_examples=150, deadline=None)
def test_correlations_are_scipys_with_ties_and_gaps(line):
    rounds = tuple(range(1, len(line) + 1))
    compared = Rounds(1, (len(line),))
    found = values(correlations(within(line, rounds=rounds, compared=compared), "early"))
    usable = ~np.isnan(line)
    scores, places = np.array(line)[usable], np.array(rounds)[usable]
    if len(scores) < 2:
        assert math.isnan(found["srcc_early"])
        assert math.isnan(found["krcc_early"])
    elif len(set(scores)) == 1:
        assert found == {"srcc_early": 0, "krcc_early": 0}
    else:
        assert found["srcc_early"] == pytest.approx(-spearmanr(places, scores).statistic, abs=1e-12)
        assert found["krcc_early"] == pytest.approx(-kendalltau(places, scores).statistic, abs=1e-12)


def test_a_falling_score_has_one_a_rising_one_minus_one():
    assert values(correlations(within([4, 3, 2, 1]), "early")) == {"srcc_early": 1, "krcc_early": 1}
    assert values(correlations(within([1, 2, 3, 9]), "early")) == {"srcc_early": -1, "krcc_early": -1}
    # One image's runs are averaged before the images are.
    mean = values(correlations(within([4, 3, 2, 1], [4, 3, 2, 1], [1, 2, 3, 4], images=["a", "a", "b"]), "x"))
    assert mean["srcc_x"] == 0


def test_a_round_trip_setting_is_compared_in_its_own_state_only():
    # Odd rounds show the mirrored picture; by them alone the score would rise.
    line = [9, 8, 1, 7, 2, 6, 3]
    found = within(line, rounds=(0, 2, 3, 4, 5, 6, 7), compared=Rounds(2, (4, 6)), last=7, periods=[2])
    assert found.scores[0].tolist() == pytest.approx([8, NaN, 7, NaN, 6, NaN], nan_ok=True)
    assert (found.used, found.expected) == (3, 3)
    assert values(correlations(found, "all"))["srcc_all"] == 1
    assert values(pairs_by_gap(found)) == pytest.approx(
        {"pairwise_gap_1": NaN, "pairwise_gap_2_4": 1, "pairwise_gap_5_9": NaN}, nan_ok=True
    )
    assert values(inversions(found))["inversion_rate"] == 0


def test_a_round_of_another_state_is_not_the_first_that_notices():
    # Seen from round 2, rounds 3 and 5 show another picture, whatever their scores.
    notice, noticed = first_notice(
        within([9, 1, 8, 1, 7], rounds=(2, 3, 4, 5, 6), compared=Rounds(2, (4, 6)), periods=[2])
    )
    assert values(notice) == {"first_notice": 4}
    assert values(noticed) == {"noticed": 1}


def test_pairs_by_gap_by_hand():
    found = values(pairs_by_gap(within([5, 4, 4, 6], rounds=(1, 2, 3, 20))))
    # gap 1: 1-2 falls, 2-3 ties; gap 2: 1-3 falls; 17, 18, 19: all rise
    assert found == {"pairwise_gap_1": 0.5, "pairwise_gap_2_4": 1.0, "pairwise_gap_10_19": 0.0}
    assert GAPS[2] == (5, 9)


def test_inversions_by_hand():
    # Baselines 5 and 9 of two images: their standard deviation is sqrt(8).
    found = values(inversions(within([5, 8, 4, 4], [9, 3, 2, 1], images=["a", "b"])))
    assert found["pairwise_accuracy"] == pytest.approx((4 / 6 + 1) / 2)
    assert found["inversion_rate"] == pytest.approx(1 / 6 / 2)
    assert found["tie_rate"] == pytest.approx(1 / 6 / 2)
    assert found["inversion_size"] == pytest.approx(3 / math.sqrt(8))
    assert found["large_inversion_rate"] == pytest.approx(1 / 6 / 2)  # 3 is more than sqrt(8)


def test_sizes_have_no_unit_where_clean_images_do_not_differ():
    for lines, images in ([[[5, 6, 7, 8]], ["a"]], [[[5, 6, 7, 8], [5, 4, 3, 2]], ["a", "b"]]):
        found = values(inversions(within(*lines, images=images)))
        assert math.isnan(found["inversion_size"])
        assert math.isnan(found["large_inversion_rate"])
        assert found["inversion_rate"] > 0


def test_no_warning_and_no_infinity_at_the_ends_of_the_floats():
    found = values(inversions(within([1e308, -1e308, 1e308, 0], [-1e308, 1e308, 0, 0], images=["a", "b"])))
    assert all(math.isnan(value) or abs(value) <= 1e308 for value in found.values())


@pytest.mark.parametrize(
    ("lines", "first", "share"),
    [
        ([[5, 4, 4, 4, 4]], 2, 1),
        ([[5, 4, 6, 4, 3]], 10, 1),  # it forgets at round 5, so it has noticed from 10 on
        ([[5, 4, 4, 4, 5]], NaN, 0),  # equal in the end: not noticed
        ([[5, 6, 6, 6, 4]], 20, 1),
        ([[5, 4, 4, 4, 4], [5, 6, 6, 6, 6]], 2, 0.5),  # half of the runs
        ([[5, 4, 4, 4, 4], [5, 6, 6, 6, 6], [5, 6, 6, 6, 6]], NaN, 1 / 3),
        ([[5, 4, NaN, 4, 4]], 10, 1),  # an unusable round is not below
        ([[NaN, 4, 4, 4, 4]], NaN, NaN),
        ([[5, 4, 4, 4, NaN]], NaN, NaN),
    ],
)
def test_first_notice(lines, first, share):
    notice, noticed = first_notice(within(*lines, rounds=(1, 2, 5, 10, 20)))
    assert values(notice)["first_notice"] == pytest.approx(first, nan_ok=True)
    assert values(noticed)["noticed"] == pytest.approx(share, nan_ok=True)


def test_what_is_unusable_is_counted():
    found = within([5, NaN, 3, 2], [5, 4, 3, 2])
    assert (found.used, found.expected) == (7, 8)
    assert correlations(found, "x").used == 7


lines_ = st.lists(st.lists(st.integers(-9, 9).map(float), min_size=4, max_size=4), min_size=1, max_size=5)


@given(lines_)
@settings(max_examples=60, deadline=None)
def test_flipping_the_direction_flips_the_sign_and_swaps_inversions(lines):
    one, other = within(*lines), within(*(-np.array(lines)))
    before, after = values(correlations(one, "x")), values(correlations(other, "x"))
    assert after == pytest.approx({name: -value for name, value in before.items()}, abs=1e-12)
    before, after = values(inversions(one)), values(inversions(other))
    assert after["inversion_rate"] == pytest.approx(before["pairwise_accuracy"])
    assert after["tie_rate"] == pytest.approx(before["tie_rate"])
    assert before["pairwise_accuracy"] + before["inversion_rate"] + before["tie_rate"] == pytest.approx(1)


@given(lines_, st.sampled_from([lambda x: x**3, np.exp, lambda x: x * 1024 - 7]))
@settings(max_examples=60, deadline=None)
def test_strictly_increasing_transforms_change_nothing_but_sizes(lines, function):
    one, other = within(*lines), within(*function(np.array(lines)))
    assert values(correlations(one, "x")) == values(correlations(other, "x"))
    assert values(pairs_by_gap(one)) == values(pairs_by_gap(other))
    for before, after in zip(first_notice(one), first_notice(other), strict=True):
        assert values(before) == pytest.approx(values(after), nan_ok=True)
