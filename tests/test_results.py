import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banana100_bench.criteria import ABOUT, FAILED, MISSING, NAN, OK
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.protocol import Rounds
from banana100_bench.results import (
    json_schema,
    load_result,
    make_result,
    ranks,
    recompute,
    run_scores,
    score_problems,
)
from banana100_bench.store import Score
from tests.fakes.judged import FakeData, info, judge, make_rows, scores_of

PAPER = Rounds()
NaN, FAIL = math.nan, math.inf  # scores_of takes infinity for a failure


def by_image(**lines):
    """A score function: for each image the scores at rounds 1, 5, 10 and 20, whatever the repetition."""
    return lambda row: dict(zip((1, 5, 10, 20), lines[row.initial_image], strict=True))[row.round]


THREE = by_image(astronaut=[5, 6, 7, 8], chelsea=[5, 4, 3, 2], china=[5, 4, 3, 2])


@pytest.fixture
def rows():
    return make_rows()


def test_the_result_by_hand(rows):
    result = judge(rows, THREE)
    verdict = result.verdict
    assert (verdict.n_images, verdict.detected, verdict.reversed) == (3, 2, 1)
    assert (verdict.mixed, verdict.tie, verdict.unscored, verdict.missing) == (0, 0, 0, 0)
    assert verdict.images("detected") == ["chelsea", "china"]
    assert verdict.interval == pytest.approx((0.0943, 0.9916), abs=5e-5)
    assert [(c.round, c.d, c.worse, c.better) for c in verdict.by_image[0].changes] == [
        (5, 1.0, 0, 2),
        (10, 2.0, 0, 2),
        (20, 3.0, 0, 2),
    ]
    assert result.strict_pass_rate.model_dump() == {
        "value": 2 / 3,
        "chance": 0.25,
        "passed": 4,
        "n_runs": 6,
        "by_image": {"astronaut": 0.0, "chelsea": 1.0, "china": 1.0},
    }
    assert result.concordance.model_dump() == {"value": 2 / 3, "chance": 0.5}
    assert result.coverage.model_dump() == {"expected": 24, "ok": 24, "nan": 0, "failed": 0, "missing": 0}
    assert result.data.model_dump() == {
        "name": "made-up",
        "dataset_fingerprint": FakeData(rows).dataset_fingerprint,
        "fingerprint": FakeData(rows).dataset_fingerprint,
        "simulated": True,
        "editors": ["simulated"],
        "settings": ["replication"],
        "left_out": [],
        "initial_images": ["astronaut", "chelsea", "china"],
        "n_rows": 24,
        "n_runs": 6,
    }
    assert result.rounds.model_dump() == {"baseline": 1, "later": [5, 10, 20], "paper": True}
    assert result.seconds == 12.0
    assert result.seconds_per_1000_images == 500.0
    assert [score.image_id for score in result.scores] == [row.image_id for row in rows]


def test_lower_is_better_turns_the_verdict_but_not_the_raw_scores(rows):
    result = judge(rows, THREE, info(higher_is_better=False))
    assert (result.verdict.detected, result.verdict.reversed) == (1, 2)
    assert result.verdict.by_image[0].changes[0].d == -1.0
    assert result.scores[0].score == 5.0


def test_nan_failed_and_missing_are_counted_and_never_pass(rows):
    del rows[-1]  # china, second repetition, round 20
    function = by_image(astronaut=[5, 4, NaN, 2], chelsea=[5, 4, 3, FAIL], china=[5, 4, 3, 2])
    result = judge(rows, function)
    assert result.coverage.model_dump() == {"expected": 24, "ok": 19, "nan": 2, "failed": 2, "missing": 1}
    assert [image.outcome for image in result.verdict.by_image] == ["unscored", "unscored", "missing"]
    assert (result.verdict.unscored, result.verdict.missing, result.verdict.detected) == (2, 1, 0)
    assert (result.strict_pass_rate.passed, result.strict_pass_rate.n_runs) == (1, 6)
    assert [score.status for score in result.scores].count("nan") == 2


def test_other_rounds_are_kept_for_the_figure_and_change_no_verdict(rows):
    more = make_rows(rounds=(1, 2, 3, 5, 10, 20))
    line = {1: 5, 2: 99, 3: NaN, 5: 4, 10: 3, 20: 2}
    result, plain = judge(more, lambda row: line[row.round]), judge(rows, lambda row: line[row.round])
    assert len(result.scores) == 36
    assert result.data.fingerprint == plain.data.fingerprint
    assert result.data.dataset_fingerprint != plain.data.dataset_fingerprint  # of the made-up dataset of all rows
    assert (result.verdict, result.coverage, result.concordance) == (plain.verdict, plain.coverage, plain.concordance)


def test_a_run_without_any_compared_round_is_no_part_of_the_judgement(rows):
    # Else a result with further rounds and one without would be about other runs.
    late = make_rows(["moss"], 1, (2, 3))
    result = judge([*rows, *late], lambda row: -row.round)
    assert (result.data.n_runs, result.data.n_rows, result.coverage.expected) == (6, 26, 24)
    assert ranks([result, judge(rows, lambda row: -row.round)]) == [1, 1]


def test_the_initial_image_can_be_the_baseline_of_all_its_runs():
    result = judge(make_rows(["moss"], 3, (0, 2, 4)), lambda row: -row.round, rounds=Rounds(0, (2, 4)))
    assert result.coverage.expected == result.coverage.ok == 9
    assert len(result.scores) == 7  # scored once, it stands in three runs
    assert (result.verdict.detected, result.strict_pass_rate.passed) == (1, 3)
    assert result.strict_pass_rate.chance == 1 / 3


def test_run_scores_lays_out_runs_by_rounds():
    rows = make_rows(["moss"], 2, (1, 5, 10))[:-1]
    line = {1: 3.0, 5: NaN, 10: FAIL}
    runs = run_scores(rows, scores_of(rows, lambda row: line[row.round]), higher_is_better=False)
    assert runs.rounds == (1, 5, 10)
    assert runs.status.tolist() == [[OK, NAN, FAILED], [OK, NAN, MISSING]]
    assert runs.scores[:, 0].tolist() == [-3.0, -3.0]
    assert runs.run_ids == ("replication__moss__simulated__rep0", "replication__moss__simulated__rep1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"period": 2}, r"round005: .* contradicts .* of the same run replication__astronaut__simulated__rep0"),
        ({"round": 1}, r"round005: expected one image for round 1 of replication__astronaut__simulated__rep0"),
        ({"setting": None}, "round005: a run without a setting"),
        ({"run_id": None}, r"round005: expected one image for round 5 of astronaut, of a run"),
    ],
)
def test_rows_that_contradict_each_other_are_refused(rows, change, message):
    rows[1] = dataclasses.replace(rows[1], **change)
    with pytest.raises(BananaError, match=message):
        judge(rows, lambda row: 1.0)


def test_no_run_is_an_error_not_an_empty_success():
    with pytest.raises(BananaError, match="no run to judge"):
        judge(make_rows(["moss"], 0, (0,)), lambda row: 1.0)


def test_scores_must_be_of_all_these_images(rows):
    scores = scores_of(rows, THREE)
    wrong = dataclasses.replace(scores[rows[3].image_id], sha256="0" * 64)
    with pytest.raises(BananaError, match=f"{rows[3].image_id}: the score is of another image"):
        make_result(info(), FakeData(rows), scores | {rows[3].image_id: wrong}, PAPER)
    del scores[rows[2].image_id], scores[rows[5].image_id]
    with pytest.raises(BananaError, match=f"no score for 2 of 24 images, the first {rows[2].image_id}"):
        make_result(info(), FakeData(rows), scores, PAPER)


def test_a_setting_of_other_period_is_refused():
    with pytest.raises(UsageError, match="'mirror' shows the same state only every 2 rounds"):
        judge(make_rows(setting="mirror", group="variant", period=2), lambda row: 1.0)


def test_settings_that_do_not_fit_are_left_out_by_name_and_need_no_score(rows):
    mirrored = make_rows(setting="mirror", group="variant", period=2)
    result, plain = judge([*rows, *mirrored], THREE), judge(rows, THREE)
    assert result.data.left_out == ["mirror"]
    assert result.data.settings == ["replication"]
    assert (result.verdict, result.strict_pass_rate) == (plain.verdict, plain.strict_pass_rate)
    assert result.data.fingerprint == plain.data.fingerprint
    assert score_problems(plain, [*rows, *mirrored]) == []
    assert recompute(result, [*rows, *mirrored]) == result
    assert ranks([result, plain]) == [1, 1]


def test_each_setting_has_its_own_verdict(rows):
    apples = make_rows(["astronaut", "moss"], setting="add_apple", group="object")
    result = judge([*rows, *apples], lambda row: -row.round if row.setting == "add_apple" else row.round)
    assert [(one.settings, one.n_images, one.detected, one.reversed) for one in result.by_setting] == [
        (["add_apple"], 2, 2, 0),
        (["replication"], 3, 0, 3),
    ]
    assert result.verdict.settings == ["replication"]


def test_criteria_of_a_metric_that_falls_everywhere(rows):
    result = judge(make_rows(rounds=(1, 2, 5, 10, 20, 40)), lambda row: -row.round)
    srcc = result.criteria["srcc_early"]
    assert (srcc.value, srcc.interval_method, srcc.n_images, srcc.used, srcc.expected) == (
        1.0, "clopper-pearson", 3, 30, 30,
    )  # fmt: skip
    assert srcc.interval == (pytest.approx(2 * 0.025 ** (1 / 3) - 1), 1.0)
    assert result.criteria["srcc_all"].expected == 36
    assert result.criteria["first_notice"].value == 2
    assert result.criteria["inversion_size"].value is None
    assert (
        result.criteria["inversion_size"].note == "no inverted pair, or no spread between clean images to measure it by"
    )
    assert "control_flagged" not in result.criteria
    assert list(result.criteria) == [name for name in ABOUT if name in result.criteria]
    assert result.inference.model_dump() == {"level": 0.95, "resamples": 10_000, "seed": 20260403}


def test_nothing_is_known_of_others_from_one_image():
    result = judge(make_rows(["moss"]), lambda row: -row.round)
    assert {c.interval for c in result.criteria.values()} == {None}
    assert result.criteria["strict_pass_rate"].note == "one initial image: nothing is known of others"


def test_scores_in_random_order_reach_chance_within_their_intervals():
    # 13 images, 5 runs, all rounds to 40: each interval should hold its chance level, and 95 % of them do.
    random = np.random.default_rng(5)
    rows = make_rows([f"image{k:02d}" for k in range(13)], 5, (*range(1, 41),))
    inside = []
    for _ in range(3):
        values = dict(zip((row.image_id for row in rows), random.normal(size=len(rows)), strict=True))
        result = judge(rows, lambda row, values=values: values[row.image_id])
        for name, criterion in result.criteria.items():
            expected = 0.25 if name == "strict_pass_rate" else ABOUT[name].chance
            if expected is not None and criterion.interval and name != "tie_rate":
                low, high = criterion.interval
                inside.append(low <= expected <= high)
    assert len(inside) >= 50
    assert np.mean(inside) >= 0.85  # many of them are about the same scores


# --- the file


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=24, max_size=24))
@settings(max_examples=20, deadline=None)
def test_scores_come_back_to_the_last_bit(tmp_path_factory, values):
    rows = make_rows()
    given_scores = dict(zip((row.image_id for row in rows), values, strict=True))
    result = judge(rows, lambda row: given_scores[row.image_id])
    path = tmp_path_factory.mktemp("result") / "r.json"
    result.save(path)
    loaded = load_result(path)
    assert loaded == result
    assert [float(s.score).hex() for s in loaded.scores] == [v.hex() for v in values]  # -0.0 too, which == hides
    assert recompute(loaded, rows) == result


def test_the_same_judgement_gives_the_same_bytes(rows, tmp_path):
    # All but created_at, seconds and hardware, whatever the order in which scores and options come.
    model = info(options={"b": 1, "a": True}, versions={"pyiqa": "1"})
    same = info(options={"a": True, "b": 1}, versions={"pyiqa": "1"})
    backwards = dict(reversed(scores_of(rows, THREE).items()))
    first, again = judge(rows, THREE, model), make_result(same, FakeData(rows), backwards, PAPER)
    first.save(tmp_path / "1.json")
    again.model_copy(update={"created_at": first.created_at}).save(tmp_path / "2.json")
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()


def test_options_keep_their_types(rows, tmp_path):
    options = {"flag": True, "count": 1, "rate": 1.0, "name": "1"}
    judge(rows, THREE, info(options=options)).save(tmp_path / "r.json")
    loaded = load_result(tmp_path / "r.json").model.options
    assert [(k, v, type(v)) for k, v in sorted(loaded.items())] == [(k, v, type(v)) for k, v in sorted(options.items())]


def _set(path, value):
    def change(tree):
        *parents, last = path
        for key in parents:
            tree = tree[key]
        tree[last] = value

    return change


BAD = [
    (_set(["schema_version"], 1), r"schema_version: Input should be 2, not 1"),
    (_set(["surprise"], 1), r"surprise: Extra inputs are not permitted"),
    (_set(["verdict", "by_image", 0, "surprise"], 1), r"verdict\.by_image\.0\.surprise: "),
    (_set(["verdict", "by_image", 0, "changes", 0, "d"], math.nan), r"verdict\.by_image\.0\.changes\.0\.d.*finite"),
    (_set(["scores", 0, "score"], math.nan), r"scores\.0\.score: Input should be a finite number, not nan"),
    (_set(["scores", 0, "score"], 10**400), r"scores\.0\.score: Input should be a finite number"),
    (_set(["scores", 0, "score"], "5"), r"scores\.0\.score: Input should be a valid number, not '5'"),
    (_set(["scores", 0, "score"], None), r"scores\.0: .*expected a number exactly where it is ok"),
    (_set(["scores", 0, "status"], "fine"), r"scores\.0\.status: Input should be 'ok', 'nan', .*, not 'fine'"),
    (_set(["scores", 0, "sha256"], "abc"), r"scores\.0\.sha256: .*not 'abc'"),
    (_set(["model", "id"], "red\x1b[31m"), r"model\.id: "),
    (_set(["model", "id"], "abc\u202edef"), r"model\.id: "),
    (_set(["model", "kind"], "magic"), r"model\.kind: .*choices: pyiqa, .*baseline.*, not 'magic'"),
    (
        _set(["model", "higher_is_better"], "yes"),
        r"model\.higher_is_better: Input should be a valid boolean, not 'yes'",
    ),
    (_set(["rounds", "later"], [10, 5]), r"rounds: .*rounds \(10, 5\): expected each once, in ascending order"),
    (_set(["rounds", "paper"], False), r"rounds: .*paper is False, but the rounds say otherwise"),
    (_set(["created_at"], "2026-13-01T00:00:00Z"), r"created_at: "),
    (_set(["created_at"], "yesterday"), r"created_at: "),
    (_set(["strict_pass_rate", "value"], 1.5), r"strict_pass_rate\.value: .*less than or equal to 1, not 1\.5"),
    (_set(["verdict", "detected"], 3), r"verdict: .*expected one of these for each image"),
    (_set(["verdict", "by_image", 0, "outcome"], "tie"), r"verdict: .*the counts are not those of by_image"),
    (_set(["criteria", "magic"], None), r"criteria\.magic: "),
    (_set(["verdict", "n_images"], 13), r"verdict: .*n_images 13"),
    (
        _set(["verdict", "by_image", 0, "image"], "\x1b[31m"),
        r"the file: .*an initial image or setting that data does not",
    ),
    (_set(["key\n\x1b[31m"], 1), r"key\\n\\x1b\[31m: Extra inputs"),
    (lambda tree: tree.pop("hardware"), r"hardware: Field required"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_a_bad_file_is_refused_in_one_line_that_names_the_field(rows, tmp_path, change, message):
    tree = json.loads(judge(rows, THREE).text())
    change(tree)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(tree))
    with pytest.raises(BananaError, match=message) as caught:
        load_result(path)
    assert str(caught.value).startswith(f"{path}: not a valid result: ")
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '"a"', "[" * 100_000, '{"a": "\\ud800"}', "1" * 5000])
def test_what_is_no_result_at_all_is_refused(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(BananaError, match=r"bad\.json: not a valid result: ") as caught:
        load_result(tmp_path / "bad.json")
    assert "\n" not in str(caught.value)


def test_a_file_too_large_or_absent_is_refused(tmp_path, monkeypatch):
    with pytest.raises(BananaError, match=r"cannot read result .*none\.json"):
        load_result(tmp_path / "none.json")
    monkeypatch.setattr("banana100_bench.result_schema.MAX_BYTES", 10)
    (tmp_path / "r.json").write_text(" " * 11)
    with pytest.raises(BananaError, match="11 bytes is larger than the limit of 10"):
        load_result(tmp_path / "r.json")


def test_a_model_name_that_no_file_may_hold_is_refused_when_it_is_made(rows):
    with pytest.raises(BananaError, match=r"has no place in a result: id: "):
        judge(rows, THREE, info("pyiqa:\x07"))


def test_the_json_schema_describes_the_file(rows):
    schema = json_schema()
    written = Path(__file__).parents[1] / "docs" / "result.schema.json"
    assert json.loads(written.read_text()) == schema, "run: python -m banana100_bench.results > docs/result.schema.json"
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == set(json.loads(judge(rows, THREE).text()))
    assert schema["$defs"]["ImageScore"]["properties"]["status"]["enum"][:3] == ["ok", "nan", "failed"]


# --- recomputing and ranking


def test_recompute_replaces_every_claim(rows):
    honest = judge(rows, THREE)
    lies = judge(rows, lambda row: -row.round)
    forged = lies.model_copy(update={"scores": honest.scores})
    assert recompute(forged, rows) == honest.model_copy(update={"created_at": forged.created_at})


def test_score_problems_names_each_kind(rows):
    result = judge(rows, THREE)
    first, second, third, *others = result.scores
    changed = result.model_copy(
        update={
            "scores": [
                first,
                first,
                second.model_copy(update={"sha256": "0" * 64}),
                third.model_copy(update={"image_id": "stranger"}),
                *others,
            ]
        }
    )
    assert score_problems(changed, rows) == [
        f"images scored more than once: 1, the first {first.image_id}",
        "images not in the dataset: 1, the first stranger",
        f"images whose sha256 is another than the dataset's: 1, the first {second.image_id}",
        f"images without a score: 1, the first {third.image_id}",
    ]
    with pytest.raises(BananaError, match="images scored more than once: 1.*; images not in the dataset"):
        recompute(changed, rows)


def test_scores_of_further_rounds_may_be_absent_but_not_those_compared(rows):
    more = make_rows(rounds=(1, 2, 5, 10, 20))
    result = judge(rows, THREE)
    assert score_problems(result, more) == []
    assert recompute(result, more).verdict == result.verdict


def test_ranks_by_strict_pass_rate_then_concordance_and_not_if_incomplete(rows):
    def line(*values):
        return by_image(astronaut=values, chelsea=values, china=values)

    models = {
        "third": line(5, 4, 6, 6),
        "first": line(5, 4, 3, 2),
        "second": line(5, 4, 6, 3),
        "second too": line(5, 6, 3, 4),
        "incomplete": line(5, 4, 3, NaN),
    }
    results = [judge(rows, function, info(f"file:{name}")) for name, function in models.items()]
    assert [round(r.concordance.value * 6) for r in results] == [1, 6, 4, 4, 3]
    assert ranks(results) == [4, 1, 2, 2, None]
    assert ranks([]) == []


def test_a_gap_in_the_dataset_costs_no_model_its_rank(rows):
    gapped = [row for row in rows if row.image_id != rows[1].image_id]
    one, other = (judge(gapped, lambda row, k=k: k * row.round, info(f"file:{k}")) for k in (-1, 1))
    assert one.coverage.missing == 1
    assert one.coverage.complete
    assert ranks([one, other]) == [1, 2]


@pytest.mark.parametrize(
    "other",
    [
        judge(make_rows(simulated=False), THREE, info("pyiqa:niqe")),
        judge(make_rows(), lambda row: row.round, info("pyiqa:niqe"), Rounds(1, (5, 10))),
        judge(make_rows(repetitions=3), THREE, info("pyiqa:niqe")),
    ],
    ids=["real", "rounds", "repetitions"],
)
def test_results_on_other_images_or_rounds_are_never_ranked_together(rows, other):
    with pytest.raises(UsageError, match=r"pyiqa:piqe and pyiqa:niqe cannot be ranked together.*simulated"):
        ranks([judge(rows, THREE), other])


def test_a_score_row_knows_its_message_but_the_file_does_not(rows):
    # A failure's message may hold paths of the machine; the file says "failed" and nothing more.
    scores = scores_of(rows, THREE)
    bad = rows[0]
    scores[bad.image_id] = Score(
        image_id=bad.image_id, sha256=bad.sha256, score=None, status="failed", message="/home/me: no such file"
    )
    assert "/home/me" not in make_result(info(), FakeData(rows), scores, PAPER).text()
