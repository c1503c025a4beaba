"""The verdict and the two criteria that rank."""

import random
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banana100_bench.criteria import (
    FAILED,
    MISSING,
    OK,
    change_signs,
    concordance,
    headline,
    passes,
    strict_pass_rate,
    verdicts,
)
from banana100_bench.errors import UsageError
from banana100_bench.protocol import Rounds
from tests.criteria.making import runs_of

PAPER = Rounds()
DOWN = [9.0, 8.0, 7.0, 6.0]
UP = [1.0, 2.0, 3.0, 4.0]


def outcomes(runs, rounds=PAPER):
    return [image.outcome for image in verdicts(runs, rounds)]


# --- signs


def test_change_signs_by_hand():
    signs = change_signs(runs_of([5, 4, 5, 6], [5, np.nan, 1, 1], [np.nan, 1, 2, 3]), PAPER)
    np.testing.assert_array_equal(signs, [[-1, 0, 1], [np.nan, -1, -1], [np.nan] * 3])


def test_zero_and_minus_zero_tie_and_tiny_differences_do_not():
    tiny = 5e-324  # the smallest float above 0
    signs = change_signs(runs_of([0.0, -0.0, tiny, -tiny], [1e308, -1e308, 1e308, np.nextafter(1e308, 0)]), PAPER)
    np.testing.assert_array_equal(signs, [[0, 1, -1], [-1, 0, -1]])


def test_columns_are_found_by_round_not_by_position():
    runs = runs_of([3, 9, 1, 9, 2], rounds=(20, 2, 5, 1, 10))
    np.testing.assert_array_equal(change_signs(runs, PAPER), [[-1, -1, -1]])


def test_scores_and_status_must_agree():
    with pytest.raises(ValueError, match="finite score exactly where"):
        runs_of([1, 2, np.inf, 4], status=np.zeros((1, 4), np.int8))
    with pytest.raises(ValueError, match=r"expected \(1, 4\)"):
        runs_of([1, 2, 3])


# --- the verdict


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (DOWN, "detected"),
        ([9, 1, 8, 2], "detected"),  # only the comparison with the baseline counts
        (UP, "reversed"),
        ([5, 4, 6, 3], "mixed"),
        ([5, 4, 3, 5], "tie"),
        ([5, 5, 5, 5], "tie"),
        ([5, 5, 6, 4], "mixed"),
        ([5, 5, 6, 7], "mixed"),  # a tie does not help a reversal
        ([0.0, -0.0, -1, -1], "tie"),
        ([5, 4, np.nan, 3], "unscored"),
    ],
)
def test_verdict_on_one_repetition_is_the_papers(line, expected):
    assert outcomes(runs_of(line)) == [expected]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([DOWN, DOWN, UP], "detected"),
        ([DOWN, UP], "mixed"),  # half is no majority
        ([DOWN, DOWN, UP, UP], "mixed"),
        ([UP, UP, DOWN], "reversed"),
        ([[5, 4, 9, 4], [5, 9, 4, 4], [5, 4, 4, 9]], "detected"),  # a majority at each round, in no two runs alike
        ([DOWN, [5, 5, 5, 5]], "tie"),
        ([DOWN, DOWN, [5, np.nan, 4, 3]], "unscored"),  # one unusable score spoils the image
    ],
)
def test_verdict_over_repetitions_is_by_strict_majority(lines, expected):
    assert outcomes(runs_of(*lines)) == [expected]


def test_missing_goes_before_unscored():
    status = np.array([[OK, FAILED, OK, MISSING]], np.int8)
    assert outcomes(runs_of([5, np.nan, 4, np.nan], status=status)) == ["missing"]
    assert outcomes(runs_of([5, 4, 3], rounds=(1, 5, 10))) == ["missing"]  # no such column at all
    status[0, 3] = OK
    assert outcomes(runs_of([5, np.nan, 4, 3], status=status)) == ["unscored"]


def test_images_are_judged_apart_in_the_order_of_their_names():
    runs = runs_of(DOWN, UP, [5, 4, 6, 3], images=["tree", "apple", "moss"])
    assert [(image.image, image.outcome) for image in verdicts(runs, PAPER)] == [
        ("apple", "reversed"),
        ("moss", "mixed"),
        ("tree", "detected"),
    ]


def test_all_settings_of_an_image_must_agree():
    both = ["replication", "reworded"]
    assert outcomes(runs_of(DOWN, DOWN, settings_=both)) == ["detected"]
    assert outcomes(runs_of(DOWN, UP, settings_=both)) == ["mixed"]
    # Three repetitions of one setting do not outvote the other.
    assert outcomes(runs_of(DOWN, DOWN, DOWN, UP, settings_=["replication"] * 3 + ["reworded"])) == ["mixed"]


def test_changes_are_counted_and_averaged_without_dividing():
    changes = verdicts(runs_of([-2, -3, -2, 0], [-2, -6, np.nan, -1]), PAPER)[0].changes
    assert [(c.setting, c.round, c.d, c.worse, c.tie, c.better, c.unusable) for c in changes] == [
        ("replication", 5, -2.5, 2, 0, 0, 0),
        ("replication", 10, 0.0, 0, 1, 0, 1),
        ("replication", 20, 1.5, 0, 0, 2, 0),
    ]


def test_a_change_that_no_float_holds_is_none_but_counts():
    change = verdicts(runs_of([1e308, -1e308, 0, 0], [1e308, -1e308, 0, 0]), PAPER)[0].changes[0]
    assert (change.d, change.worse) == (None, 2)
    sums_over = verdicts(runs_of([1.5e308, 0, 0, 0], [1.5e308, 0, 0, 0]), PAPER)[0].changes[0]
    assert (sums_over.d, sums_over.worse) == (None, 2)


def test_headline_is_the_replication_group_where_there_is_one():
    runs = runs_of(
        DOWN, UP, images=["moss", "moss"], settings_=["replication", "add_apple"], groups=["replication", "object"]
    )
    assert headline(runs).settings == ("replication",)
    assert outcomes(headline(runs)) == ["detected"]
    assert headline(runs.select([1])).settings == ("add_apple",)


def test_a_setting_of_other_period_is_refused_with_an_example_that_works():
    runs = runs_of(DOWN, settings_=["mirror"], periods=[2])
    for criterion in (verdicts, strict_pass_rate, concordance):
        with pytest.raises(UsageError, match=r"'mirror'.*every 2 rounds.*baseline 2, later 4,6"):
            criterion(runs, PAPER)
    assert outcomes(runs_of([5, 4, 3], settings_=["mirror"], periods=[2], rounds=(2, 4, 6)), Rounds(2, (4, 6))) == [
        "detected"
    ]


# --- strict pass rate and concordance


def test_strict_pass_rate_weighs_images_then_settings_then_repetitions():
    runs = runs_of(
        *[DOWN, UP, DOWN, DOWN],  # moss: replication 1/2, reworded 2/2, so 3/4
        *[UP, UP, DOWN],  # tree: replication 1/3
        images=["moss"] * 4 + ["tree"] * 3,
        settings_=["replication"] * 2 + ["reworded"] * 2 + ["replication"] * 3,
    )
    assert strict_pass_rate(runs, PAPER) == float((3 / 4 + 1 / 3) / 2)


@pytest.mark.parametrize("line", [[5, 4, 3, 5], [5, 4, np.nan, 3], [np.nan, 4, 3, 2], [5, 4, 6, 3]])
def test_a_tie_or_an_unusable_round_is_no_pass(line):
    assert not passes(runs_of(line), PAPER).any()


def test_concordance_by_hand():
    assert concordance(runs_of(DOWN), PAPER) == 1.0
    assert concordance(runs_of(UP), PAPER) == 0.0
    assert concordance(runs_of([5, 5, 5, 5]), PAPER) == 0.0
    assert concordance(runs_of([4, 3, 3, 5]), PAPER) == 2 / 6
    assert concordance(runs_of([4, np.nan, 3, 2]), PAPER) == 3 / 6  # the three pairs without the NaN
    assert concordance(runs_of(DOWN, UP, UP, images=["a", "b", "b"]), PAPER) == 0.5


def test_random_orders_pass_one_in_four_and_agree_half():
    orders = list(permutations([1.0, 2.0, 3.0, 4.0]))
    runs = runs_of(*orders)
    assert passes(runs, PAPER).sum() == 6
    assert strict_pass_rate(runs, PAPER) == 0.25
    assert concordance(runs, PAPER) == 0.5


def test_equal_shares_are_equal_floats_whatever_image_earns_them():
    # 0.2 + 0.4 + 0.6 is not 0.6 + 0.4 + 0.2 in floats; two models with the same passes must still tie.
    passing = {k: [DOWN] * k + [UP] * (5 - k) for k in (1, 2, 3)}
    images = [name for name in "abc" for _ in range(5)]
    rates = {
        strict_pass_rate(runs_of(*(line for k in order for line in passing[k]), images=images), PAPER)
        for order in permutations(passing)
    }
    assert rates == {0.4}


# --- properties

integers = st.integers(-50, 50).map(float)
cells = st.one_of(integers, integers, integers, st.just(float("nan")))


@st.composite
def any_runs(draw, cell=cells):
    n = draw(st.integers(1, 6))
    lines = draw(st.lists(st.lists(cell, min_size=4, max_size=4), min_size=n, max_size=n))
    images = draw(st.lists(st.sampled_from(["moss", "tree"]), min_size=n, max_size=n))
    names = draw(st.lists(st.sampled_from(["replication", "reworded"]), min_size=n, max_size=n))
    return runs_of(*lines, images=images, settings_=names)


def judged(runs):
    counts = [
        [(c.setting, c.round, c.worse, c.tie, c.better, c.unusable) for c in image.changes]
        for image in verdicts(runs, PAPER)
    ]
    return outcomes(runs), counts, strict_pass_rate(runs, PAPER), concordance(runs, PAPER)


def transformed(runs, function):
    return runs_of(*function(runs.scores), images=runs.images, settings_=runs.settings)


@given(any_runs(), st.sampled_from([lambda x: x**3, lambda x: x * 1024 - 7, np.exp2, lambda x: x / 2**40]))
@settings(max_examples=60, deadline=None)
def test_strictly_increasing_transforms_change_nothing(runs, function):
    # Integers from -50 to 50 under these functions stay apart and exact in float64.
    assert judged(transformed(runs, function)) == judged(runs)


@given(any_runs())
@settings(max_examples=60, deadline=None)
def test_flipping_the_direction_swaps_detected_and_reversed(runs):
    flipped = {
        "detected": {"reversed"},
        "reversed": {"detected"},
        "mixed": {"mixed", "tie"},
        "tie": {"mixed", "tie"},
        "unscored": {"unscored"},
    }
    for before, after in zip(outcomes(runs), outcomes(transformed(runs, np.negative)), strict=True):
        assert after in flipped[before]


@given(any_runs(cell=st.integers(0, 10**6).map(float)))
@settings(max_examples=40, deadline=None)
def test_flipping_leaves_mixed_where_nothing_ties(runs):
    scores = runs.scores + np.arange(4) / 8  # all of a run differ
    runs = transformed(runs, lambda _: scores)
    swap = {"detected": "reversed", "reversed": "detected", "mixed": "mixed"}
    assert outcomes(transformed(runs, np.negative)) == [swap[outcome] for outcome in outcomes(runs)]


@given(any_runs(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_runs_changes_nothing(runs, source: random.Random):
    order = list(range(len(runs.run_ids)))
    source.shuffle(order)
    assert verdicts(runs.select(order), PAPER) == verdicts(runs, PAPER)
    assert judged(runs.select(order)) == judged(runs)


@given(st.lists(integers, min_size=4, max_size=4))
@settings(max_examples=60, deadline=None)
def test_with_one_repetition_detected_is_passing(line):
    runs = runs_of(line)
    assert (outcomes(runs) == ["detected"]) == bool(passes(runs, PAPER)[0])
