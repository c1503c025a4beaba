import math
import warnings

import numpy as np
import pytest
from PIL import Image

from banana100_bench.errors import BananaError
from banana100_bench.protocol import Rounds
from banana100_bench.report import figures
from banana100_bench.report.figures import score_by_round
from tests.fakes.judged import info, judge, make_rows

ROWS = make_rows(["chelsea", "china"], rounds=(1, 3, 5, 10, 20))


def function(row):
    """chelsea is detected; china's scores rise, but for its second run at round 10, which is not a number."""
    if row.initial_image == "china" and (row.repetition, row.round) == (1, 10):
        return math.nan
    return (-row.round if row.initial_image == "chelsea" else row.round) + row.repetition


def texts(figure):
    found = [figure.get_suptitle(), figure.get_supylabel()]
    for axis in figure.axes:
        found += [axis.get_title(loc="left"), axis.get_xlabel()]
    return found + [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_figure_says_in_words_what_it_shows():
    assert texts(figures.curves(judge(ROWS, function), ROWS)) == [
        "SIMULATED data: pyiqa:piqe on made-up",
        "score of pyiqa:piqe\nup is better",
        "chelsea\nDETECTED",
        "round",
        "china\nnot detected: no usable score",
        "round",
        "a run of replication",
        "compared: rounds 5, 10 and 20 against round 1",
        "no score: not a number",
    ]


def test_lines_hold_the_raw_scores_and_break_where_there_is_none():
    axis = figures.curves(judge(ROWS, function), ROWS).axes[1]
    curves = [line for line in axis.lines if list(line.get_xdata()) == [1, 3, 5, 10, 20]]
    np.testing.assert_array_equal([line.get_ydata() for line in curves], [[1, 3, 5, 10, 20], [2, 4, 6, np.nan, 21]])
    signs = [(list(line.get_xdata()), line.get_marker()) for line in axis.lines if line.get_markerfacecolor() == "none"]
    assert signs == [([10], "o")]


def test_up_is_better_in_both_directions():
    for higher_is_better in (True, False):
        result = judge(ROWS, function, info(higher_is_better=higher_is_better))
        figure = figures.curves(result, ROWS)
        bottom, top = figure.axes[0].get_ylim()
        assert (top > bottom) == higher_is_better
        assert ("axis inverted" in figure.get_supylabel()) != higher_is_better
        low, high = sorted(figure.axes[1].get_ylim())
        assert low < 1
        assert high > 21  # all scores lie inside, the band for signs of gaps beyond them


def test_missing_images_and_images_outside_the_verdict_are_said():
    rows = ROWS[:-1] + make_rows(["moss"], setting="add_apple", group="object")
    said = texts(figures.curves(judge(rows, function, info("callable:a_$x^2$.py:f")), rows))
    assert "china\nnot detected: image missing" in said
    assert "moss\n(not part of the verdict)" in said
    assert {"no score: no image", "no score: not a number", "a run of add_apple"} <= set(said)


def test_the_initial_image_stands_at_round_0_of_each_of_its_runs():
    rows = make_rows(["moss"], 2, (0, 2, 4, 100))
    figure = figures.curves(judge(rows, lambda row: -row.round, rounds=Rounds(0, (2, 4))), rows)
    curves = [list(line.get_xdata()) for line in figure.axes[0].lines]
    assert curves.count([0, 2, 4, 100]) == 2
    assert figure.axes[0].get_xlabel() == "round (square-root scale)"
    assert figure.axes[0].get_xlim()[0] < 0


def test_more_images_than_panels_is_said(monkeypatch):
    monkeypatch.setattr(figures, "MAX_PANELS", 2)
    rows = make_rows(["a", "b", "c"])
    figure = figures.curves(judge(rows, lambda row: row.round), rows)
    assert len(figure.axes) == 2
    assert "(the first 2 of 3 initial images)" in figure.get_suptitle()


@pytest.mark.parametrize(
    "extreme", [lambda row: 1e308 * (-1) ** row.round, lambda row: math.nan, lambda row: math.inf, lambda row: 5e-324]
)
def test_the_png_is_whole_and_the_same_each_time_whatever_the_scores(tmp_path, extreme):
    result = judge(ROWS, extreme)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("1.png", "2.png"):
            score_by_round(result, ROWS, tmp_path / name)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1.png", "2.png"]
    assert (tmp_path / "1.png").read_bytes() == (tmp_path / "2.png").read_bytes()
    with Image.open(tmp_path / "1.png") as picture:
        picture.load()
        assert picture.format == "PNG"
        assert picture.info["Title"] == "SIMULATED data: pyiqa:piqe on made-up"
        assert picture.width >= 700


def test_rows_of_another_dataset_are_refused(tmp_path):
    with pytest.raises(BananaError, match="pyiqa:piqe: none of its 20 scores is of the rows given"):
        score_by_round(judge(ROWS, function), make_rows(["moss"]), tmp_path / "f.png")
    assert not list(tmp_path.iterdir())
