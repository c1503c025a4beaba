"""The page of real files: built from pictures, read without a browser. tests/browser opens it in one."""

import json
import math
import re

import pytest

from banana100_bench import harness
from banana100_bench.data import open_data
from banana100_bench.errors import BananaError
from banana100_bench.protocol import Rounds
from banana100_bench.report.page import _data_notes, _notes, worst_inversions, write_page
from tests.fakes.judged import info, judge, make_rows
from tests.report.making import make_dataset

ROWS = make_rows(["a", "b"], rounds=(1, 2, 5, 10, 20))


def test_worst_inversions_by_hand():
    line = {
        ("a", 0): [5, 4, 3, 2, 4.5],
        ("a", 1): [5, 9, 1, 1, 1],
        ("b", 0): [9, 8, 7, 6, 5],
        ("b", 1): [9, 8, 7, 6, 5],
    }
    numbers = (1, 2, 5, 10, 20)
    result = judge(ROWS, lambda row: line[row.initial_image, row.repetition][numbers.index(row.round)])
    (found,) = worst_inversions(result, ROWS)  # b has none, a's largest is 1 to 2 of its second run
    assert (found.image, found.repetition, found.earlier.round, found.later.round) == ("a", 1, 1, 2)
    assert (found.earlier_score, found.later_score) == (5, 9)
    lower = judge(
        ROWS,
        lambda row: -line[row.initial_image, row.repetition][numbers.index(row.round)],
        info(higher_is_better=False),
    )
    assert [pair.later.round for pair in worst_inversions(lower, ROWS)] == [2]
    assert worst_inversions(lower, ROWS)[0].later_score == -9


def test_rounds_of_another_state_and_unusable_scores_make_no_inversion():
    rows = make_rows(["a"], 1, (2, 3, 4, 5, 6), setting="mirror", group="variant", period=2)
    result = judge(
        rows, lambda row: 99 if row.round % 2 else math.nan if row.round == 4 else -row.round, rounds=Rounds(2, (4, 6))
    )
    assert worst_inversions(result, rows) == []


def test_notes_say_what_a_newcomer_would_misread():
    result = judge(ROWS, lambda row: 0.0 if row.initial_image == "a" else -row.round)
    assert _data_notes(result, 1) == [
        "SIMULATED data: no image-editing model made these images. Nothing here is about real ones.",
        "Only 2 initial images: intervals are wide, and no test can part models well (the least possible p-value is "
        "0.5). That all models are in one group does not mean that they are equally good.",
    ]
    assert _notes(result) == [
        "Equal scores in 50% of all pairs of rounds: there it sees no difference at all.",
        "No controls were scored: whether harmless edits would be flagged too is not known.",
    ]
    broken = judge(ROWS, lambda row: math.nan if row.round == 20 else math.inf if row.round == 10 else 1.0 / row.round)
    assert _notes(broken)[0].startswith("Not ranked: of 16 scores 4 are not a number and 4 failed.")
    gapped = ROWS[:-1]
    assert "lacks 1 of 16 compared images" in _data_notes(judge(gapped, lambda row: 1.0), 2)[-1]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    return folder, make_dataset(folder)


def evaluated(made, *models):
    folder, data = made
    return [harness.evaluate(model, open_data(data), store=folder / "scores") for model in models]


def test_the_page_is_whole_and_holds_no_address_outside_itself(made, tmp_path):
    results = evaluated(made, "baseline:noise", "baseline:file-size")
    paths = write_page(results, made[1], tmp_path / "report.html")
    names = {re.sub(r"-\d-", "-", path.name) for path in paths}
    drawn = ("baseline-noise-curves", "baseline-file-size-curves", "pairwise-accuracy", "roc")
    assert names == {"report.html", *(f"report-{name}.{kind}" for name in drawn for kind in ("png", "svg"))}
    text = paths[0].read_text()
    assert text.count("<svg") == 4
    assert text.count('class="pair"') >= 2
    addresses = set(re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\'\s>)]+)', text))
    assert all(address.startswith(("data:", "#")) for address in addresses), addresses
    assert "SIMULATED data" in text
    assert (
        paths[0].read_bytes()
        == write_page(results, made[1], tmp_path / "report.html", save_figures=False)[0].read_bytes()
    )


def test_what_strangers_write_is_text_on_the_page(made, tmp_path):
    (result,) = evaluated(made, "baseline:noise")
    tree = json.loads(result.text())
    tree["model"]["id"] = "<script>alert(1)</script>$x_1$"
    tree["model"]["versions"] = {"<b>x</b>": "</style><img src=x onerror=alert(1)>"}
    evil = type(result).model_validate_json(json.dumps(tree))
    text = write_page([evil], made[1], tmp_path / "evil.html", save_figures=False)[0].read_text()
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_a_result_of_other_images_is_refused(made, tmp_path):
    with pytest.raises(BananaError, match="pyiqa:piqe on .*: images not in the dataset"):
        write_page([judge(ROWS, lambda row: 1.0)], made[1], tmp_path / "x.html")
    assert not list(tmp_path.iterdir())
