import gzip
import json
import math
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.leaderboard.submission import (
    MAX_BYTES,
    Ground,
    Submission,
    claims,
    json_schema,
    load_submission,
    make_card,
    make_submission,
    parse_submission,
    read_plain,
    recomputed,
    select,
    skeleton,
    slug,
)
from banana100_bench.protocol import Rounds
from tests.fakes.judged import FakeData, info, judge, make_rows
from tests.leaderboard.making import GROUND, ROWS, URL, card, dumped, metric, submission, tree

MADE = submission()


def test_it_holds_every_score_in_the_order_of_the_rows_and_why_there_is_none():
    def gappy(row):
        return {3: math.nan, 7: math.inf}.get(ROWS.index(row), -row.round)

    result = judge(ROWS, gappy, info("pyiqa:niqe", higher_is_better=True, weights_sha256="a" * 64))
    made = make_submission(result, FakeData(ROWS), card("NIQE", parameters=5, hub_repo="org/niqe"))
    expected = [float(-row.round) for row in ROWS]
    expected[3], expected[7] = "nan", "failed"
    assert made.scores == expected
    assert (made.data.rounds, made.data.settings, made.data.config) == ([1, 5, 10, 20], ["replication"], "key_rounds")
    assert (made.data.n_images, made.data.simulated, made.model.weights_sha256) == (24, True, "a" * 64)
    assert (made.claims.coverage.ok, made.claims.coverage.nan, made.claims.coverage.failed) == (22, 1, 1)
    assert made.card.slug == "niqe"
    back = parse_submission(made.text().encode())
    assert back == made
    assert claims(recomputed(back, GROUND)) == claims(result)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=24, max_size=24))
@settings(max_examples=25, deadline=None)
def test_scores_come_back_to_the_last_bit(scores):
    of_id = {row.image_id: score for row, score in zip(ROWS, scores, strict=True)}
    result = judge(ROWS, lambda row: of_id[row.image_id])
    made = make_submission(result, FakeData(ROWS), card())
    back = parse_submission(made.text().encode())
    assert [score.hex() for score in back.scores] == [score.hex() for score in scores]
    assert claims(recomputed(back, GROUND)) == claims(result)


def test_28000_scores_take_less_than_500_kb_compressed():
    images = [f"image{number}" for number in range(14)]
    rows = make_rows(images, repetitions=20, rounds=range(1, 101), simulated=False)
    assert len(rows) == 28_000
    made = submission(rows=rows)
    text = made.text().encode()
    assert len(text) < MAX_BYTES / 8
    assert len(zlib.compress(text, 6)) < 500_000
    assert len(made.scores) == 28_000
    assert made.data.config == "default"
    keyed = [row for row in rows if row.round in (1, 5, 10, 20)]
    key_rounds = make_submission(
        judge(rows, metric(1)).model_copy(update={"scores": judge(keyed, metric(1)).scores}), FakeData(rows), card()
    )
    assert len(zlib.compress(key_rounds.text().encode(), 6)) < 25_000


def test_further_rounds_and_round_0_are_kept():
    rows = make_rows(rounds=(0, 1, 2, 5, 10, 20))
    made = submission(rows=rows)
    assert (len(made.scores), made.data.rounds, made.data.config) == (33, [0, 1, 2, 5, 10, 20], "default")
    found = recomputed(made, Ground(FakeData(rows), Rounds()))
    assert claims(found) == made.claims
    assert found.coverage.expected == 24


def test_select_takes_the_initial_images_of_the_chosen_settings_alone():
    rows = [*make_rows(["moss"], rounds=(0, 1)), *make_rows(["sand"], rounds=(0, 1), setting="apple", group="object")]
    assert [row.image_id for row in select(rows, [0, 1], ["apple"])] == [
        "initial__sand",
        "apple__sand__simulated__rep0__round001",
        "apple__sand__simulated__rep1__round001",
    ]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (judge(make_rows(["moss"]), metric(1)), "about another dataset"),
        (judge(ROWS[:-4], metric(1)), "lacks 4 of the 24 images of its rounds and settings, the first "),
    ],
)
def test_what_cannot_be_submitted_is_told(result, told):
    if "lacks" in told:
        facts = result.data.model_copy(update={"dataset_fingerprint": GROUND.data.dataset_fingerprint})
        result = result.model_copy(update={"data": facts})
    with pytest.raises(BananaError, match=told):
        make_submission(result, FakeData(ROWS), card())


def test_a_card_is_told_every_fault_at_once():
    with pytest.raises(UsageError) as error:
        make_card(name="<b>", url="javascript:alert(1)", licence="My Licence", hub_repo="nowhere")
    told = str(error.value)
    for part in ("--name: ", "not '<b>'", "--url: ", "--licence: ", "unknown licence 'My Licence'", "--hub-repo: "):
        assert part in told


@pytest.mark.parametrize(
    "name",
    [
        "",
        " NIQE",
        "NIQE ",
        "../../etc/passwd",
        "=HYPERLINK(1)",
        "<script>alert(1)</script>",
        "ΝΙQΕ",  # Greek capitals
        "ВRISQUE",  # the first letter is Cyrillic
        "BRISQUE\u200b",
        "ＮＩＱＥ",
        "NI\u202eQE",
        "x" * 61,
        "a\nb",
    ],
)
def test_names_in_look_alike_letters_or_with_markup_are_refused(name):
    with pytest.raises(UsageError, match="--name"):
        make_card(name=name, url=URL, licence="mit")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org",
        "javascript:alert(1)",
        "data:text/html,<script>",
        "https://user@evil.example",
        'https://example.org/"onclick="x',
        "https://example.org/<b>",
        "https://exa mple.org",
        "https://пример.org",
        "https://localhost/x",
        "https://example.org/\n",
    ],
)
def test_addresses_that_do_more_than_lead_somewhere_are_refused(url):
    with pytest.raises(UsageError, match="--url"):
        make_card(name="Metric", url=url, licence="mit")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=60))
def test_a_slug_is_always_a_safe_file_name(name):
    made = slug(name)
    assert made
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    assert ".." not in made
    assert made[0] not in "._-"


def test_names_that_look_alike_share_a_skeleton():
    assert skeleton("NIQE") == skeleton("niqe") == skeleton("N-I-Q-E") == skeleton("NlQE") == skeleton("N1QE")
    assert skeleton("Q0") == skeleton("QO")
    assert skeleton("PIQE") != skeleton("NIQE")


def with_text(change):
    return change(MADE.text()).encode()


NUMBER = repr(MADE.scores[0])
HOSTILE = {
    "NaN": (with_text(lambda t: t.replace(NUMBER, "NaN", 1)), "finite number"),
    "Infinity": (with_text(lambda t: t.replace(NUMBER, "-Infinity", 1)), "finite number"),
    "1e999": (with_text(lambda t: t.replace(NUMBER, "1e999", 1)), "finite number"),
    "a number as text": (with_text(lambda t: t.replace(NUMBER, f'"{NUMBER}"', 1)), "scores.0"),
    "a truth value": (with_text(lambda t: t.replace(NUMBER, "true", 1)), "scores.0"),
    "null": (with_text(lambda t: t.replace(NUMBER, "null", 1)), "scores.0"),
    "a number in another form": (with_text(lambda t: t.replace(NUMBER, f"{NUMBER}e0", 1)), "canonical form"),
    "a field twice": (
        with_text(lambda t: t.replace('"created_at"', '"created_at": "2020-01-01T00:00:00Z",\n  "created_at"', 1)),
        "canonical form",
    ),
    "an unknown field": (with_text(lambda t: t.replace('"scores"', '"rank": 1,\n  "scores"', 1)), "rank: Extra inputs"),
    "a score too few": (
        with_text(lambda t: t.replace(f"    {NUMBER},\n", "", 1)),
        "23 scores, but data.n_images says 24",
    ),
    "a score too many": (
        with_text(lambda t: t.replace(f"    {NUMBER},\n", f"    {NUMBER},\n    {NUMBER},\n", 1)),
        "25 scores",
    ),
    "deep nesting": (b'{"card":' + b"[" * 1_000_000, "recursion limit"),
    "a list": (b"[]\n", "not a valid submission"),
    "nothing": (b"", "not a valid submission"),
    "not UTF-8": (MADE.text().encode().replace(b"Metric", b"Metri\xff"), "not a valid submission"),
    "gzip": (gzip.compress(MADE.text().encode()), "not a valid submission"),
    "a bomb": (gzip.compress(b" " * 50_000_000), "not a valid submission"),
    "too large": (b" " * (MAX_BYTES + 1), "larger than the limit of 8388608 bytes"),
    "id in Cyrillic": (with_text(lambda t: t.replace("scores:metric", "scores:mеtric")), "expected plain letters"),
    "id with a line break": (with_text(lambda t: t.replace("scores:metric", "scores:\\nmetric")), "model.id"),
    "a date that is none": (with_text(lambda t: t.replace(MADE.created_at, "2026-13-01T00:00:00Z")), "created_at"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_are_refused_with_the_reason(what):
    text, reason = HOSTILE[what]
    assert text != MADE.text().encode()
    with pytest.raises(BananaError) as error:
        parse_submission(text)
    assert reason in str(error.value)
    assert len(str(error.value)) < 3000


def test_every_fault_of_a_file_is_told():
    wrong = tree(MADE)
    wrong["card"]["name"] = "<i>"
    wrong["data"]["rounds"] = ["1"]
    wrong["scores"][5] = "good"
    with pytest.raises(BananaError) as error:
        parse_submission(dumped(wrong))
    for part in ("card.name", "data.rounds.0", "scores.5"):
        assert part in str(error.value)


def test_only_plain_files_of_decent_size_are_read(tmp_path):
    import os

    (tmp_path / "real.json").write_text(MADE.text())
    assert load_submission(tmp_path / "real.json") == MADE
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    os.mkfifo(tmp_path / "pipe.json")
    with open(tmp_path / "huge.json", "wb") as file:
        file.truncate(1 << 30)
    for name, told in (("link", "is a link"), ("pipe", "not a plain file"), ("huge", "1073741824 bytes, larger")):
        with pytest.raises(BananaError, match=told):
            read_plain(tmp_path / f"{name}.json", MAX_BYTES)
    with pytest.raises(BananaError):
        read_plain(tmp_path, MAX_BYTES)


def test_the_schema_describes_the_file():
    schema = json_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    assert set(schema["properties"]) == set(json.loads(MADE.text())) == set(Submission.model_fields)
    assert schema["additionalProperties"] is False
