import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banana100_bench.leaderboard import board as boards
from banana100_bench.leaderboard.submission import Ground
from banana100_bench.models.baselines import uniform
from banana100_bench.protocol import Rounds
from tests.fakes.judged import FakeData, info, judge, make_rows
from tests.leaderboard.making import GROUND, card, metric, submission
from tests.leaderboard.making import forged as forged_submission

ROWS = make_rows()
DATA = FakeData(ROWS)


def build_board(results, data, rounds=None):
    ground = Ground(data, rounds or Rounds())
    return boards.build_board([boards.judge(result, ground) for result in results], ground)


def down(row):
    return -row.round


def up(row):
    return row.round


def partly(row):
    return row.round if row.initial_image == "china" else -row.round


def gappy(row):
    return math.nan if row.image_id == ROWS[5].image_id else -row.round


def four():
    return [
        judge(ROWS, partly, info("pyiqa:piqe")),
        judge(ROWS, gappy, info("pyiqa:niqe")),
        judge(ROWS, down, info("baseline:noise", versions={"numpy": "2"})),
        judge(ROWS, up, info("file:lower", higher_is_better=False, weights_sha256="a" * 64)),
    ]


def test_entries_by_hand():
    board = build_board(four(), DATA)
    assert [(e.rank, e.model.id, e.strict_pass_rate, e.images_detected, e.reversed) for e in board.entries] == [
        (1, "baseline:noise", 1.0, 3, 0),
        (1, "file:lower", 1.0, 3, 0),
        (3, "pyiqa:piqe", 2 / 3, 2, 1),
        (None, "pyiqa:niqe", 5 / 6, 2, 0),
    ]
    noise, lower, piqe, niqe = board.entries
    assert (noise.baseline, piqe.baseline) == (True, False)
    assert (noise.model.versions, lower.model.weights_sha256, lower.model.higher_is_better) == (
        {"numpy": "2"},
        "a" * 64,
        False,
    )
    assert piqe.concordance == 2 / 3
    assert piqe.interval == pytest.approx((0.0943, 0.9916), abs=5e-5)
    assert (niqe.coverage.ok, niqe.coverage.nan, niqe.coverage.expected) == (23, 1, 24)
    assert board.simulated
    assert all(entry.simulated for entry in board.entries)
    assert (board.data.n_rows, board.data.n_runs, board.data.dataset_fingerprint) == (24, 6, DATA.dataset_fingerprint)
    assert board.chance == {"strict_pass_rate": 0.25, "concordance": 0.5}
    assert board.rejected == []


@given(st.permutations(range(6)))
@settings(max_examples=10, deadline=None)
def test_the_order_of_results_changes_no_byte(order):
    given_results = [*FOUR, *LIARS]
    board = build_board([given_results[i] for i in order], DATA)
    assert board == build_board(given_results, DATA)
    assert len(board.rejected) == 2


def forged(result, path, value):
    tree = json.loads(result.text())
    at = tree
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return type(result).model_validate_json(json.dumps(tree))


FOUR = four()
PIQE = FOUR[0]
NOISE = FOUR[2]
LIARS = [forged(PIQE, ["strict_pass_rate", "value"], 1.0), forged(NOISE, ["concordance", "value"], 0.1)]
SCORES = PIQE.scores


def with_scores(scores):
    return PIQE.model_copy(update={"scores": scores})


@pytest.mark.parametrize(
    ("liar", "reason"),
    [
        (
            forged(PIQE, ["strict_pass_rate", "value"], 1.0),
            "it claims strict_pass_rate.value = 1.0, recomputed 0.6666666666666666",
        ),
        (forged(PIQE, ["concordance", "value"], 0.6667), "it claims concordance.value = 0.6667, recomputed 0.666666"),
        (forged(PIQE, ["verdict", "interval", 0], 0.5), "it claims verdict.interval.0 = 0.5, recomputed 0.09429"),
        (forged(PIQE, ["coverage", "expected"], 12), "it claims coverage.expected = 12, recomputed 24"),
        (forged(PIQE, ["data", "simulated"], False), "it claims data.simulated = False, recomputed True"),
        (forged(PIQE, ["data", "fingerprint"], "0" * 64), "it claims data.fingerprint = '000"),
        (
            forged(PIQE, ["verdict", "by_image", 0, "changes", 0, "d"], -99.0),
            "it claims verdict.by_image.0.changes.0.d = -99.0, recomputed -4.0",
        ),
        (forged(PIQE, ["data", "dataset_fingerprint"], "0" * 64), "it is about another simulated dataset, made-up 000"),
        (forged(PIQE, ["model", "higher_is_better"], False), "it claims verdict.detected = 2, recomputed 1; "),
        (forged(PIQE, ["scores", 0, "score"], -1000.0), "it claims verdict."),
        (
            forged(PIQE, ["scores", 3, "sha256"], "0" * 64),
            f"images whose sha256 is another than the dataset's: 1, the first {ROWS[3].image_id}",
        ),
        (with_scores([*SCORES, SCORES[0]]), f"images scored more than once: 1, the first {ROWS[0].image_id}"),
        (with_scores(SCORES[1:]), f"images without a score: 1, the first {ROWS[0].image_id}"),
        (with_scores([]), "images without a score: 24, the first"),
        (
            judge(make_rows(["moss"]), down, info("pyiqa:piqe")),
            "it is about another simulated dataset",
        ),
        (
            judge(ROWS, down, info("pyiqa:piqe"), Rounds(1, (5, 10))),
            "it compares rounds (1, 5, 10), this board (1, 5, 10, 20)",
        ),
    ],
)
def test_a_liar_is_rejected_with_the_reason_and_the_others_stand(liar, reason):
    board = build_board([liar, NOISE], DATA)
    assert [entry.model.id for entry in board.entries] == ["baseline:noise"]
    assert [entry.source for entry in board.rejected] == ["pyiqa:piqe"]
    assert board.rejected[0].reason.startswith(reason)


def test_a_claim_that_differs_in_the_last_digits_stands():
    # Libraries differ there between versions; the board shows its own number.
    near = forged(PIQE, ["verdict", "interval", 0], PIQE.verdict.interval[0] * (1 + 1e-12))
    board = build_board([near], DATA)
    assert board.rejected == []
    assert board.entries[0].interval == PIQE.verdict.interval


def test_real_and_simulated_results_never_share_a_board():
    real = FakeData(make_rows(simulated=False), "real")
    board = build_board([PIQE, judge(real.rows, down, info("pyiqa:niqe"))], DATA)
    assert [entry.model.id for entry in board.entries] == ["pyiqa:piqe"]
    assert "it is about another dataset" in board.rejected[0].reason
    honest = build_board([PIQE], real)
    assert (honest.simulated, honest.entries) == (False, [])


def test_of_one_model_the_newest_result_stands_but_other_versions_are_other_models():
    def dated(result, day):
        return result.model_copy(update={"created_at": f"2026-01-{day:02d}T00:00:00Z"})

    older, newer = dated(judge(ROWS, up), 1), dated(judge(ROWS, down), 2)
    other = dated(judge(ROWS, up, info(versions={"pyiqa": "2"})), 1)
    lying = dated(LIARS[0], 3)
    board = build_board([newer, lying, other, older, newer], DATA)
    assert [(e.rank, e.strict_pass_rate, e.created_at[:10], e.model.versions) for e in board.entries] == [
        (1, 1.0, "2026-01-02", {}),
        (2, 0.0, "2026-01-01", {"pyiqa": "2"}),
    ]
    reasons = sorted(entry.reason for entry in board.rejected)
    assert len(reasons) == 2  # the newest of all is a lie and replaces nothing
    assert reasons[1].startswith("replaced by the newer result of this model ")


def test_further_rounds_are_welcome_if_the_dataset_has_them():
    more = FakeData(make_rows(rounds=(0, 1, 2, 5, 10, 20)))
    results = [
        judge(more.rows, down, info("pyiqa:piqe")),
        judge([row for row in more.rows if row.round in (1, 5, 10, 20)], down, info("pyiqa:niqe")),
    ]
    results[1] = forged(results[1], ["data", "dataset_fingerprint"], more.dataset_fingerprint)
    board = build_board(results, more)
    assert [(entry.rank, entry.model.id) for entry in board.entries] == [(1, "pyiqa:niqe"), (1, "pyiqa:piqe")]
    assert board.data.n_rows == 24


def test_other_rounds_can_be_chosen():
    board = build_board([judge(ROWS, down, rounds=Rounds(5, (20,)))], DATA, Rounds(5, (20,)))
    assert board.entries[0].rank == 1
    assert (board.rounds.later, board.rounds.paper, board.chance["strict_pass_rate"]) == ([20], False, 0.5)


def test_every_number_of_the_board_is_explained():
    board = build_board(FOUR, DATA)
    numbers = {*boards.CRITERIA}
    assert set(board.criteria) == numbers
    assert numbers <= set(board.entries[0].model_dump())


# --- submissions


def of_submissions(made, **options):
    candidates = [boards.judge(one, GROUND) for one in made]
    return boards.build_board(candidates, GROUND, **options)


def test_submissions_carry_their_card_their_badge_and_every_outcome():
    board = of_submissions(
        [
            submission("Metric", parameters=3),
            submission(
                "Random",
                function=lambda row: uniform(row.sha256, 0),
                model=info("baseline:random", options={"seed": 0}),
            ),
        ]
    )
    metric_row, random_row = board.entries
    assert (metric_row.rank, metric_row.name, metric_row.slug, metric_row.badge) == (
        1,
        "Metric",
        "metric",
        "consistent",
    )
    assert metric_row.card == card("Metric", parameters=3)
    assert metric_row.outcomes == {"astronaut": "detected", "chelsea": "detected", "china": "detected"}
    assert metric_row.seconds_per_image == 0.5
    assert (random_row.badge, random_row.baseline) == ("verified", True)


def test_a_maintainers_record_makes_a_row_verified():
    made = submission()
    record = boards.Record(
        file_sha256=made.digest, name="Metric", n_images=5, largest=0.0, day="2026-05-01", harness="1"
    )
    assert of_submissions([made], verified={made.digest: record}).entries[0].badge == "verified"
    assert of_submissions([submission(seed=2)], verified={made.digest: record}).entries[0].badge == "consistent"


def test_who_was_here_first_is_told_by_the_last_board_not_by_the_file():
    honest = forged_submission(submission("Honest"), ["created_at"], "2026-05-01T00:00:00Z")
    before = of_submissions([honest], day="2026-05-02")
    thief = forged_submission(submission("Thief"), ["created_at"], "2020-01-01T00:00:00Z")  # the same scores
    board = of_submissions([thief, honest], before=before, day="2026-05-03")
    assert [(entry.name, entry.first_seen) for entry in board.entries] == [("Honest", "2026-05-02")]
    assert [(one.source, one.reason) for one in board.rejected] == [
        ("Thief", "its scores put the images in the same order as those of Honest, which was here first")
    ]


def test_history_keeps_the_first_day_and_the_last_other_rank():
    worse, better = submission("Worse", seed=1, function=metric(1, slope=1.0)), submission("Better", seed=2)
    one = of_submissions([worse], day="2026-05-01")
    assert [(e.name, e.rank, e.first_seen, e.previous_rank) for e in one.entries] == [("Worse", 1, "2026-05-01", None)]
    two = of_submissions([worse, better], before=one, day="2026-05-02")
    rows = [("Better", 1, "2026-05-02", None), ("Worse", 2, "2026-05-01", 1)]
    assert [(e.name, e.rank, e.first_seen, e.previous_rank) for e in two.entries] == rows
    again = of_submissions([better, worse], before=two, day="2026-06-01")
    assert again.text() == two.text()  # nothing new: not a byte changes
    replaced = of_submissions([worse, submission("Better", seed=3)], before=two, day="2026-06-01")
    assert [(e.name, e.first_seen, e.previous_rank) for e in replaced.entries] == [
        ("Better", "2026-05-02", 1),
        ("Worse", "2026-05-01", 2),
    ]


@given(st.permutations(range(4)))
@settings(max_examples=10, deadline=None)
def test_the_order_of_submissions_changes_no_byte(order):
    made = [submission(f"Metric {seed}", seed=seed) for seed in (1, 2, 3)] + [submission("Copy", seed=3)]
    board = of_submissions([made[i] for i in order], day="2026-05-01")
    assert board.text() == of_submissions(made, day="2026-05-01").text()
    assert (len(board.entries), len(board.rejected)) == (3, 1)


def test_curves_are_means_and_ranges_over_the_runs_of_the_verdict():
    rows = [*make_rows(["moss"]), *make_rows(["moss"], setting="apple", group="object")]
    scores = [float(10 * index) for index in range(16)]
    found = boards.curves(rows, np.array([math.nan, *scores[1:]]))
    rounds, lines = found["moss"]
    assert rounds == [1, 5, 10, 20]
    # Two runs of replication: 0 to 30 (the first unusable) and 40 to 70.
    assert lines.tolist() == [[40, 30, 40, 50], [40, 10, 20, 30], [40, 50, 60, 70]]


def test_a_flood_of_models_gets_the_p_values_of_each(monkeypatch):
    from banana100_bench import stats

    differences = np.random.default_rng(0).uniform(-1, 1, (5, 7))
    whole = stats.sign_flip_test(differences).tolist()
    monkeypatch.setattr(stats, "BLOCK", 2)
    assert stats.sign_flip_test(differences).tolist() == whole
