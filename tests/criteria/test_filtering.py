"""AUC, ROC, filter escape, Waterloo, Krasula, false alarms: by hand, against scikit-learn and Netflix."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from banana100_bench.criteria import (
    CleanAndDegraded,
    ControlScores,
    auc,
    false_alarms,
    filtering,
    krasula,
    krasula_of_runs,
    roc,
    separation,
)
from banana100_bench.protocol import Rounds
from tests.criteria.making import runs_of

PAPER = Rounds()
NaN = math.nan
TOYAMA = Path(__file__).parents[3] / "shared" / "oracles" / "data_Toyama.mat"


def at_ones(statistics, n):
    return dict(zip(statistics.names, statistics(np.ones((1, n)))[0].tolist(), strict=True))


def split(*lines, rounds=(1, 5, 10, 20), **facts):
    return CleanAndDegraded.of(runs_of(*lines, rounds=rounds, **facts), PAPER)


def test_clean_is_the_baseline_and_degraded_the_last_compared_round_and_after():
    found = split([5, 1, 2, 3, 4], [6, 1, NaN, 7, 8], images=["a", "b"], rounds=(1, 5, 20, 50, 100))
    assert [values.tolist() for values in found.clean] == [[5], [6]]
    assert [values.tolist() for values in found.degraded] == [[2, 3, 4], [7, 8]]
    assert [values.tolist() for values in found.last] == [[2], []]
    assert (found.used, found.expected) == (7, 8)


@given(
    st.lists(st.integers(0, 8).map(float), min_size=1, max_size=20),
    st.lists(st.integers(0, 8).map(float), min_size=1, max_size=20),
)
@settings(max_examples=80, deadline=None)
def test_auc_is_scikit_learns(above, below):
    truth = [1] * len(above) + [0] * len(below)
    assert auc(np.array(above), np.array(below)) == pytest.approx(roc_auc_score(truth, above + below), abs=1e-12)


def test_auc_weighs_each_image_the_same_as_scikit_learn_with_weights():
    random = np.random.default_rng(1)
    scores = random.integers(0, 9, (7, 4)).astype(float)
    images = ["a", "a", "a", "a", "b", "b", "c"]
    found = at_ones(separation(split(*scores, images=images)), 3)
    weight = np.array([1 / images.count(name) for name in images])
    expected = roc_auc_score(
        [1] * 7 + [0] * 7, np.concatenate([scores[:, 0], scores[:, 3]]), sample_weight=np.tile(weight, 2)
    )
    assert found["auc"] == pytest.approx(expected, abs=1e-12)


def test_roc_is_scikit_learns():
    random = np.random.default_rng(2)
    scores = random.integers(0, 20, (9, 4)).astype(float)
    found = split(*scores, images=list("abcdefghi"))
    degraded, clean = roc(found)
    expected = roc_curve([1] * 9 + [0] * 9, np.concatenate([scores[:, 0], scores[:, 3]]), drop_intermediate=False)
    np.testing.assert_allclose(degraded, expected[0], atol=1e-12)
    np.testing.assert_allclose(clean, expected[1], atol=1e-12)


def twenty(degraded):
    """Twenty images with clean scores 1 to 20, and one degraded score each."""
    lines = [[clean, 0, 0, bad] for clean, bad in zip(range(1, 21), degraded, strict=True)]
    return split(*lines, images=[f"i{k:02d}" for k in range(20)])


def test_filter_escape_by_hand():
    # To keep 95 % of 20 clean images one may lose one: the threshold is the second lowest score, 2. 99 % loses none.
    found = twenty([0.5] * 10 + [1.5] * 4 + [2.0] * 3 + [2.5] * 3)
    made = filtering(found)
    values = at_ones(made, 20)
    assert values["filter_escape_95"] == pytest.approx(6 / 20)  # at the threshold passes
    assert values["filter_escape_99"] == pytest.approx(10 / 20)
    assert values["filter_escape_90"] == pytest.approx(0)  # threshold 3
    assert [made.threshold(level) for level in (90, 95, 99)] == [3, 2, 1]
    assert math.isnan(values["filter_alarm_95"])


def test_a_blind_filter_passes_all():
    values = at_ones(filtering(split(*[[5, 5, 5, 5]] * 3, images=list("abc"))), 3)
    assert values["filter_escape_95"] == 1
    assert values["waterloo_d"] == 0.5


def test_alarms_count_harmless_images_below_the_same_threshold():
    controls = [np.array([1.0, 2.0, 9.0, 9.0])] + [np.array([9.0])] * 19
    values = at_ones(filtering(twenty([0.0] * 20), controls), 20)
    assert values["filter_alarm_95"] == pytest.approx(0.25 / 20)  # one of four below 2, on one image of twenty
    assert values["filter_alarm_90"] == pytest.approx(0.5 / 20)
    assert values["filter_alarm_99"] == 0


def test_waterloo_by_hand():
    found = split([5, 0, 0, 1], [6, 0, 0, 5], [2, 0, 0, 3], images=list("abc"))
    # At threshold 5 two of three clean images are kept and two of three degraded ones stopped.
    assert at_ones(filtering(found), 3)["waterloo_d"] == pytest.approx(2 / 3)
    # 5 > 1, 3; 6 > 1, 5, 3; 2 > 1; 5 = 5 is wrong for P and half right for the AUC.
    values = at_ones(separation(found), 3)
    assert values["waterloo_p"] == pytest.approx(6 / 9)
    assert values["auc"] == pytest.approx(6.5 / 9)


def test_nothing_usable_gives_nan():
    found = split([NaN, NaN, NaN, NaN])
    assert all(map(math.isnan, at_ones(separation(found), 1).values()))
    assert all(map(math.isnan, at_ones(filtering(found), 1).values()))
    assert math.isnan(filtering(found).threshold(95))


# --- Krasula


def test_krasula_by_hand():
    # Different pairs differ by 3 (right), 1 (wrong), 2 (right, first worse); similar ones by 1 and 2.
    # Better against worse: 3 is above -3, 1, -2; -1 above -3, -2; 2 above all three.
    found = krasula(np.array([3.0, -1.0, -2.0, 1.0, -2.0]), np.array([1, 1, -1, 0, 0]))
    assert found == pytest.approx(((2 + 0.5 + 1.5) / 6, (3 + 2 + 3) / 9, 2 / 3))


@pytest.mark.skipif(not TOYAMA.exists(), reason="Netflix's data_Toyama.mat is not on this machine")
def test_krasula_gives_the_numbers_of_netflix():
    from scipy.io import loadmat

    data = loadmat(TOYAMA)
    truth = data["signif"].ravel().astype(int)
    found = np.mean([krasula(row.astype(float), truth) for row in data["objScoDif"]], axis=0)
    np.testing.assert_allclose(found, [0.697670, 0.944547, 0.881054], atol=1e-6)


def test_krasula_of_runs_takes_repetitions_as_similar():
    runs = runs_of([10, 8, 6, 4], [10, 9, 6, 4], [20, 10, 5, 1], images=["a", "a", "b"])
    pairs, right = krasula_of_runs(runs, PAPER)
    values = at_ones(pairs, 2) | at_ones(right, 2)
    # Similar: a's repetitions differ by 0, 1, 0, 0. Every different pair is right, the smallest by 1.
    assert values["krasula_ds"] == pytest.approx((11.875 / 12 + 1) / 2, abs=0.01)
    assert values["krasula_bw"] == 1
    assert values["krasula_cc0"] == 1
    assert pairs.n_images().tolist() == [2, 2]


def test_without_repetitions_nothing_is_similar():
    pairs, _ = krasula_of_runs(runs_of([4, 3, 2, 1], [4, 3, 2, 1], images=["a", "b"]), PAPER)
    values = at_ones(pairs, 2)
    assert math.isnan(values["krasula_ds"])
    assert values["krasula_bw"] == 1


# --- false alarms


def alarms(controls, *lines):
    runs = runs_of(*lines, images=list("ab")[: len(lines)])
    scores = np.array(controls, float)
    means, pairs = false_alarms(runs, PAPER, ControlScores(scores, int((~np.isnan(scores)).sum()), scores.size))
    return at_ones(means, len(lines)) | at_ones(pairs, len(lines))


DOWN = [9, 8, 7, 6]


def test_a_metric_that_calls_every_edit_worse_is_seen_through():
    # original, jpeg, resize, crop, texture
    found = alarms([[9, 5, 5, 5, 9], [9, 8, 8, 9, 9]], DOWN, DOWN)
    assert found["control_flagged"] == 0.5  # on b the crop is equal, so it is not flagged
    # The degradation moves the score by -3. a's edits move it by -4, b's by -1, -1, 0.
    assert found["control_auc"] == pytest.approx((0 + 0 + 1 + 1) / 4)


def test_an_unusable_control_leaves_its_image_out_of_the_share():
    found = alarms([[9, 5, NaN, 5, 9], [9, 8, 8, 8, 9]], DOWN, DOWN)
    assert found["control_flagged"] == 1
    assert math.isnan(alarms([[NaN] * 5], DOWN)["control_flagged"])
    assert math.isnan(alarms([[NaN] * 5], DOWN)["control_auc"])
