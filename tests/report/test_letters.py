"""Names in other scripts: no warning of matplotlib's, and a label for every one."""

import logging
import warnings

import pytest
from matplotlib.font_manager import fontManager

from banana100_bench.report import letters
from banana100_bench.report.figures import accuracy_by_gap, curves, rendered, score_by_round
from tests.fakes.judged import info, judge, make_rows

ROWS = make_rows(["astronaut", "china"])


@pytest.fixture(autouse=True)
def fonts(monkeypatch):
    """Only the fonts that matplotlib brings, whatever this machine has; nothing told yet."""
    monkeypatch.setattr(fontManager, "ttflist", [font for font in fontManager.ttflist if "matplotlib" in font.fname])
    monkeypatch.setattr(letters, "_told", set())
    letters._family_with.cache_clear()
    yield
    letters._family_with.cache_clear()


def named(name):
    return judge(ROWS, lambda row: -row.round, info(name, kind="callable"))


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize(
    ("name", "shown", "lacking"),
    [
        ("関数.py:f", r"\u95a2\u6570.py:f", "関数"),
        ("🍌.py:f", r"\U0001f34c.py:f", "🍌"),
        ("тест.py:é", "тест.py:é", ""),  # the usual font has them
        ("$x$_関.py:f", r"\$x\$_\u95a2.py:f", "関"),
        ("一二三四五六七八九十" * 3, "\u25a1" * 30, "一二三四五六七八九十"),
        ("a\ue000b", r"a\ue000b", r"\ue000"),  # of private use: no font is asked
    ],
)
def test_no_figure_warns_and_each_label_stands_for_its_name(tmp_path, caplog, name, shown, lacking):
    result = named(name)
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        figure = accuracy_by_gap([result, named("pyiqa:niqe")])
        assert rendered(figure)["png"]
        assert rendered(curves(result, ROWS))["svg"]
        score_by_round(result, ROWS, tmp_path / "f.png")
    assert legend(figure) == ["chance", shown, "pyiqa:niqe"]
    said = f"no font here has the letters {lacking}: figures show escapes; once one is installed, it is used"
    assert [record.getMessage() for record in caplog.records] == ([said] if lacking else [])


def test_a_font_that_has_the_letters_is_used(monkeypatch, caplog):
    letter = "\U0001d538"  # a double-struck A, which STIX has and DejaVu Sans has as well: take it away there
    has = letters._has
    monkeypatch.setattr(letters, "_has", lambda path, one: has(path, one) and ("DejaVu" not in path or one.isascii()))
    figure = accuracy_by_gap([named(f"{letter}.py:f")])
    with caplog.at_level(logging.WARNING):
        letters.settle(figure)
    assert legend(figure) == ["chance", f"{letter}.py:f"]
    assert figure.legends[0].get_texts()[1].get_fontfamily()[1:] == ["STIXGeneral"]
    assert figure.legends[0].get_texts()[0].get_fontfamily()[1:] == []
    assert caplog.records == []
