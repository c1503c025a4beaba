import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banana100_bench.errors import BananaError
from banana100_bench.leaderboard.board import build_board, build_from_files, save_board, summary
from banana100_bench.protocol import Rounds
from banana100_bench.records import to_name
from tests.fakes.judged import FakeData, info, judge, make_rows

ROWS = make_rows()
DATA = FakeData(ROWS)


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


# --- files


@pytest.fixture
def opened(monkeypatch):
    """build_from_files with a made-up dataset behind it."""
    asked = {}

    def open_data(source, *, rounds, settings):
        asked.update(source=source, settings=settings, round_0=0 in rounds, round_100=100 in rounds)
        return DATA

    monkeypatch.setattr("banana100_bench.data.open_data", open_data)
    return asked


def test_boards_from_files_list_what_cannot_be_read(tmp_path, opened):
    folder = tmp_path / "results"
    for result in FOUR:
        result.save(folder / f"{to_name(result.model.id)}.json")
    (folder / "broken.json").write_text("{")
    (folder / "figure.png").write_text("no result, and no JSON either")
    strange = tmp_path / "strange\u202e\x1b.json"
    strange.write_text(json.dumps({"schema_version": 1, "\x1b]0;x\x07": 1}))
    board = build_from_files([folder, folder / "broken.json", strange], "dataset", settings=["replication"])
    assert opened == {"source": "dataset", "settings": ["replication"], "round_0": True, "round_100": True}
    assert len(board.entries) == 4
    assert [(entry.source, entry.result_sha256) for entry in board.rejected] == [
        ("broken.json", None),
        ("strange??.json", None),
    ]
    assert board.rejected[0].reason.startswith("broken.json: not a valid result: ")
    assert str(tmp_path) not in board.model_dump_json()  # the machine's paths are nobody's business
    save_board(board, tmp_path / "leaderboard.json")
    text = (tmp_path / "leaderboard.json").read_text()
    assert "\x1b" not in text
    assert type(board).model_validate_json(text) == board
    said = summary(board, tmp_path / "leaderboard.json").splitlines()
    assert said[0] == f"{tmp_path}/leaderboard.json: 3 ranked, 1 incomplete, 2 rejected on SIMULATED data"
    assert said[1] == "  incomplete: pyiqa:niqe, 23 of 24 scores usable"
    assert said[2].startswith("  rejected: broken.json: ")


def test_the_same_files_give_the_same_bytes(tmp_path, opened):
    for name, order in (("one", FOUR), ("two", FOUR[::-1])):
        for number, result in enumerate(order):
            result.save(tmp_path / name / f"{number}.json")
        save_board(build_from_files([tmp_path / name], "dataset"), tmp_path / f"{name}.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_an_entry_names_the_file_it_comes_from_by_digest(tmp_path, opened):
    import hashlib

    PIQE.save(tmp_path / "piqe.json")
    entry = build_from_files([tmp_path], "dataset").entries[0]
    assert entry.result_sha256 == hashlib.sha256((tmp_path / "piqe.json").read_bytes()).hexdigest()


def test_no_files_at_all_is_an_error(tmp_path, opened):
    with pytest.raises(BananaError, match="no such file or folder"):
        build_from_files([tmp_path / "none"], "dataset")
    with pytest.raises(BananaError, match=r"no \*\.json in .*expected result files"):
        build_from_files([tmp_path], "dataset")


def test_every_number_of_the_board_is_explained():
    board = build_board(FOUR, DATA)
    numbers = {"rank", "strict_pass_rate", "concordance", "images_detected", "reversed", "interval", "coverage"}
    assert set(board.criteria) == numbers
    assert numbers <= set(board.entries[0].model_dump())
