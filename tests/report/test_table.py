import math

import pytest
from rich.console import Console

from banana100_bench.errors import UsageError
from banana100_bench.models import known_models
from banana100_bench.protocol import Rounds
from banana100_bench.report.table import listed, ranking_table, rounds_compared, sentence
from banana100_bench.result_schema import CHEATS
from tests.fakes.judged import info, judge, make_rows

ROWS = make_rows()


def lines(**values):
    return lambda row: dict(zip((1, 5, 10, 20), values[row.initial_image], strict=True))[row.round]


def printed(results, **options):
    console = Console(width=80, record=True, **options)
    with console.capture() as capture:
        console.print(ranking_table(results))
    return capture.get()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c", "d"], "a, b, c and d"),
        (["a", "b", "c", "d", "e", "f"], "a, b, c and 3 others"),
    ],
)
def test_listed(words, text):
    assert listed(words) == text


def test_the_cheat_is_called_one_by_the_baseline_that_there_is():
    assert [model for model in known_models() if model in CHEATS] == list(CHEATS) == ["baseline:step-leak"]
    result = judge(ROWS, lambda row: -float(row.round), info("baseline:step-leak"))
    assert "baseline:step-leak (CHEAT)    3 of 3" in printed([result])
    assert sentence(result).startswith("SIMULATED data: baseline:step-leak (CHEAT) detects the degradation on 3 of 3 ")
    assert sentence(result).endswith(
        "; a CHEAT: it looks at no pixel and reads the round off the label, so what it reaches says nothing."
    )
    other = judge(ROWS, lambda row: -float(row.round), info("baseline:step-leak", kind="callable"))
    assert "CHEAT" not in sentence(other) + printed([other])  # somebody's model that has only the name


def test_sentence_says_what_happens_on_the_images_that_fail():
    result = judge(ROWS, lines(astronaut=[5, 6, 7, 8], chelsea=[5, 4, 3, 2], china=[5, 4, 3, 2]))
    assert sentence(result) == (
        "SIMULATED data: pyiqa:piqe detects the degradation on 2 of 3 images (95 % interval 0.09 to 0.99); "
        "on astronaut it scores the degraded image better."
    )


def test_sentence_with_every_other_outcome():
    rows = make_rows(["a", "b", "c", "d"], simulated=False)[:-1]  # d lacks round 20 of a run
    result = judge(rows, lines(a=[5, 6, 4, 3], b=[5, 5, 5, 5], c=[5, 4, math.nan, 2], d=[5, 4, 3, 2]))
    assert sentence(result) == (
        "pyiqa:piqe detects the degradation on 0 of 4 images (95 % interval 0.00 to 0.60); "
        "on a its scores show no consistent fall; on b it gives equal scores where they should fall; "
        "on c it lacks a usable score (counted as not detected); "
        "on d an image of a compared round is missing (counted as not detected); "
        "NOT RANKED: 2 of 32 scores are unusable."
    )


def test_sentence_where_all_images_are_alike_or_there_is_but_one():
    assert "; on all 3 images it scores the degraded image better." in sentence(judge(ROWS, lambda row: row.round))
    one = sentence(judge(make_rows(["moss"]), lambda row: row.round))
    assert "on 0 of 1 image (" in one
    assert one.endswith("; on moss it scores the degraded image better.")


def test_rounds_compared():
    result = judge(make_rows(rounds=(2, 4)), lambda row: 1.0, rounds=Rounds(2, (4,)))
    assert rounds_compared(result) == "round 4 against round 2"


def test_table_ranks_and_marks_what_is_incomplete_and_simulated():
    results = [
        judge(ROWS, lambda row: row.round, info("pyiqa:niqe")),
        judge(ROWS, lambda row: -row.round if row.repetition else math.nan, info("pyiqa:[bold]nan")),
        judge(ROWS, lambda row: -row.round, info("baseline:noise")),
        judge(ROWS, lambda row: -row.round, info("callable:" + "/long" * 20 + "/metric.py:Score")),
    ]
    text = printed(results)
    rows = [line.split() for line in text.splitlines()]
    assert ["1", "baseline:noise", "3", "of", "3", "0", "1.000", "1.000", "24/24"] in rows
    assert ["3", "pyiqa:niqe", "0", "of", "3", "3", "0.000", "0.000", "24/24"] in rows
    assert ["-", "pyiqa:[bold]nan", "0", "of", "3", "0", "0.500", "0.500", "12/24"] in rows
    order = [text.index(name) for name in ("baseline:noise", "callable:/long", "pyiqa:niqe", "pyiqa:[bold]nan")]
    assert order == sorted(order)
    assert "SIMULATED data" in text
    assert "rounds 5, 10 and 20 against" in text
    assert "(chance 0.25)" in text
    assert "(chance 0.50)" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text  # no colours where it is not a terminal


def test_table_of_real_data_does_not_say_simulated():
    assert "SIMULATED" not in printed([judge(make_rows(simulated=False), lambda row: row.round)])


def test_table_of_nothing_or_of_different_data_is_refused():
    with pytest.raises(UsageError, match="no result to show"):
        ranking_table([])
    with pytest.raises(UsageError, match="cannot be ranked together"):
        ranking_table([judge(rows, lambda row: row.round) for rows in (ROWS, make_rows(simulated=False))])
