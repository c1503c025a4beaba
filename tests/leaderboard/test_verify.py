import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banana100_bench.leaderboard.submission import Ground
from banana100_bench.leaderboard.verify import Rivals, verify
from banana100_bench.models.baselines import uniform
from banana100_bench.protocol import Rounds
from tests.fakes.judged import FakeData, info, make_rows
from tests.leaderboard.making import GROUND, ROWS, forged, metric, submission, tree

MADE = submission()


def test_an_honest_submission_is_consistent_and_every_number_is_recomputed():
    found = verify(MADE, GROUND)
    assert (found.word, list(found.faults), list(found.notes)) == ("consistent", [], [])
    assert found.result.strict_pass_rate.value == MADE.claims.strict_pass_rate == 1.0
    assert found.text("metric.json") == "metric.json: consistent"


CLAIMS = [
    (["claims", "strict_pass_rate"], 0.5, "it claims strict_pass_rate = 0.5, recomputed 1.0"),
    (["claims", "concordance"], math.nextafter(MADE.claims.concordance, 0), "it claims concordance = 0.9"),
    (["claims", "images_detected"], 2, "it claims images_detected = 2, recomputed 3"),
    (["claims", "reversed"], 1, "it claims reversed = 1, recomputed 0"),
    (["claims", "n_images"], 13, "it claims n_images = 13, recomputed 3"),
    (["claims", "coverage", "ok"], 23, "it claims coverage.ok = 23, recomputed 24"),
    (["claims", "coverage", "expected"], 12, "it claims coverage.expected = 12, recomputed 24"),
]
ABOUT = [
    (
        ["data", "dataset_fingerprint"],
        "0" * 64,
        "it is about another simulated dataset, made-up 000000000000; this board",
    ),
    (["data", "fingerprint"], "0" * 64, "its 24 scores are of other images (fingerprint 000000000000) than the 24"),
    (["data", "simulated"], False, "it says simulated = False, which the dataset does not"),
    (["data", "name"], "banana100", "it calls the dataset 'banana100', whose name is 'made-up'"),
    (["data", "rounds"], [1, 5, 10], "coverage: it has no scores of round 20"),
    (["data", "rounds"], [20, 10, 5, 1], "expected ascending order, each once"),
    (["data", "settings"], ["apple"], "coverage: it has no scores of setting replication"),
    (["model", "higher_is_better"], False, "it claims "),
    (["model", "kind"], "baseline", "kind 'baseline' with id 'scores:metric.csv'"),
    (["model", "id"], "baseline:noise", "with id 'baseline:noise'"),
]


@pytest.mark.parametrize(("path", "value", "told"), [*CLAIMS, *ABOUT])
def test_a_lie_is_rejected_with_the_reason(path, value, told):
    found = verify(forged(MADE, path, value), GROUND)
    assert found.word == "rejected"
    assert any(told in fault for fault in found.faults), found.faults


def test_other_rounds_are_another_board():
    found = verify(submission(), Ground(FakeData(ROWS), Rounds(1, (5,))))
    assert "it compares rounds (1, 5, 10, 20), this board (1, 5)" in found.faults


def test_all_faults_are_told_at_once():
    liar = forged(forged(MADE, ["claims", "images_detected"], 0), ["claims", "concordance"], 0.25)
    assert len(verify(liar, GROUND).faults) == 2


@given(st.permutations(range(24)))
@settings(max_examples=25, deadline=None)
def test_permuted_scores_are_rejected_or_change_no_number(order):
    scores = [MADE.scores[i] for i in order]
    found = verify(forged(MADE, ["scores"], scores), GROUND)
    same = found.result is not None and found.result.strict_pass_rate.value == MADE.claims.strict_pass_rate
    assert found.word == "rejected" or same
    assert found.word != "verified"


def test_scores_of_other_pictures_under_the_same_names_are_rejected():
    other = [replace(row, sha256=row.sha256[::-1]) for row in ROWS]
    found = verify(submission(rows=other), GROUND)
    assert "it is about another simulated dataset" in found.faults[0]


@pytest.mark.parametrize("function", [lambda row: -row.round, lambda row: 4.0], ids=["round", "constant"])
def test_suspicious_scores_are_rejected(function):
    found = verify(submission(function=function), GROUND)
    assert found.word == "rejected"
    assert found.faults[0].startswith("suspicious: the scores are ")


def test_an_incomplete_model_is_consistent_and_the_missing_rank_explained():
    fall = metric(1)
    made = submission(function=lambda row: math.nan if row is ROWS[0] else fall(row))
    found = verify(made, GROUND)
    assert (found.word, found.notes) == ("consistent", ["no rank: 23 of 24 scores are usable"])


@pytest.mark.parametrize(
    ("name", "function", "options"),
    [
        ("constant", lambda row: 0.0, {}),
        ("random", lambda row: uniform(row.sha256, 5), {"seed": 5}),
        ("file-size", lambda row: row.num_bytes / 4096, {}),
        ("step-leak", lambda row: -float(row.round), {}),
    ],
)
def test_baselines_that_read_no_pixels_are_verified_offline(name, function, options):
    model = info(f"baseline:{name}", options=options)
    assert verify(submission(function=function, model=model), GROUND).word == "verified"
    found = verify(submission(function=metric(1), model=model), GROUND)
    assert found.faults == [f"the scores are not those of baseline:{name}, as its source computes them"]


def test_a_cheat_is_told_as_one():
    made = submission(function=lambda row: -float(row.round), model=info("baseline:step-leak"))
    (note,) = verify(made, GROUND).notes
    assert note.startswith("the board shows it as a cheat: it looks at no pixel")


@pytest.mark.parametrize("name", ["noise", "sharpness", "jpeg-quality"])
def test_baselines_that_read_pixels_are_consistent_offline(name):
    found = verify(submission(function=metric(1), model=info(f"baseline:{name}")), GROUND)
    assert (found.word, found.faults) == ("consistent", [])


def test_made_up_baselines_are_rejected():
    for model in (
        info("baseline:best"),
        info("baseline:random", options={"seed": "x"}),
        info("pyiqa:x", kind="baseline"),
    ):
        assert verify(submission(model=model), GROUND).word == "rejected"


def test_a_submission_may_cover_more_than_the_board():
    rows = [*make_rows(rounds=(0, 1, 2, 5, 10, 20)), *make_rows(setting="apple", group="object")]
    data = FakeData(rows)
    wide, narrow = submission(rows=rows), Ground(data, Rounds(), frozenset({"replication"}))
    found = verify(wide, Ground(data, Rounds()))
    assert found.word == "consistent"
    assert found.result.coverage.expected == 48
    found = verify(wide, narrow)  # what it claims is about all its settings, what counts about the board's
    assert (found.word, found.result.coverage.expected, wide.claims.coverage.expected) == ("consistent", 24, 48)
    only = submission(rows=[row for row in rows if row.setting == "replication"], data=data)
    assert verify(only, narrow).word == "consistent"
    assert verify(only, Ground(data, Rounds())).faults[0] == "coverage: it has no scores of setting apple"


def test_a_copy_is_rejected_whatever_it_calls_itself():
    def stretched(row):
        return math.exp(metric(1)(row) / 10) - 3

    def turned(row):
        return -metric(1)(row)

    rivals = Rivals()
    assert rivals.fault(MADE, verify(MADE, GROUND).order) is None
    copies = [
        (submission("Better", seed=1), "its scores put the images in the same order as those of Metric"),
        (submission("Better", function=stretched), "its scores put the images in the same order"),
        (
            submission("Better", function=turned, model=info("scores:b.csv", kind="file", higher_is_better=False)),
            "its scores put the images in the same order",
        ),
        (submission("METRIC", seed=2), "its name looks like that of Metric, which was here first"),
        (submission("Met-ric", seed=2), "its name looks like that of Metric"),
        (
            submission("Other", seed=2, model=info("scores:metric.csv", kind="file")),
            "it claims to be the very model of Metric (id, weights, options, versions), but gives other scores",
        ),
    ]
    for copy, told in copies:
        assert told in rivals.fault(copy, verify(copy, GROUND).order)
    honest = submission("Other", seed=2)
    assert rivals.fault(honest, verify(honest, GROUND).order) is None
    assert tree(honest)["scores"] != tree(MADE)["scores"]
