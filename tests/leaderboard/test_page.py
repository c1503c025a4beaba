import csv
import html
import json
import math
import re

import numpy as np
import pytest

from banana100_bench.leaderboard import folder, page
from banana100_bench.leaderboard.page import draw, short, size_class
from tests.fakes.judged import info, judge, make_rows, save_rows
from tests.leaderboard.making import ROWS, metric, submission

MARKUP = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{7*7}}"


@pytest.fixture
def built(tmp_path):
    def build(made, rows=ROWS):
        home = tmp_path / "board"
        (home / "submissions").mkdir(parents=True)
        save_rows(rows, home / "dataset")
        for number, one in enumerate(made):
            one.save(home / "submissions" / f"{one.card.slug if hasattr(one, 'card') else number}.json")
        folder.build([home], folder.open_ground(home / "dataset"), home, "2026-05-01")
        return home

    return build


def test_markup_in_every_text_field_is_shown_as_text(built):
    # A result may hold any line of text; a submission is stricter, and is put on the board by the same page.
    versions = {MARKUP: MARKUP}
    hostile = judge(ROWS, metric(1), info(f"pyiqa:{MARKUP}", options={MARKUP: MARKUP}, versions=versions))
    hostile = hostile.model_copy(
        update={"hardware": hostile.hardware.model_copy(update={"cpu": MARKUP}), "harness": MARKUP}
    )
    refused = judge(ROWS, metric(2), info(f"pyiqa:{MARKUP}2")).model_copy(
        update={"strict_pass_rate": hostile.strict_pass_rate.model_copy(update={"value": 0.5})}
    )
    home = built([hostile, refused])
    pages = [path.read_text() for path in (home / "index.html", *(home / "models").iterdir())]
    assert len(pages) == 2
    for text in pages:
        assert html.escape(MARKUP, quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert text.count("<script>") <= 1


def test_the_cheat_is_shown_as_one_in_the_row_the_page_and_the_files(built):
    leak = submission("Step leak", function=lambda row: -float(row.round), model=info("baseline:step-leak"))
    home = built([leak, submission("Honest", seed=1, function=metric(1, slope=-0.1))])
    board = json.loads((home / "leaderboard.json").read_text())
    assert {entry["name"]: (entry["rank"], entry["cheat"]) for entry in board["entries"]} == {
        "Step leak": (1, True),
        "Honest": (2, False),
    }
    rows = list(csv.DictReader((home / "leaderboard.csv").read_text().splitlines()))
    assert [(row["name"], row["cheat"]) for row in rows] == [("Step leak", "True"), ("Honest", "False")]
    chip = re.compile(r'<span class="chip warn"[^>]*>cheat</span>')
    first, second = re.findall(r"<tr data-rank.*?</tr>", (home / "index.html").read_text(), re.S)
    assert chip.search(first)
    assert not chip.search(second)
    assert "cheat marks a reference model: it looks at no pixel" in (home / "index.html").read_text()
    assert chip.search((home / "models" / "step_leak.html").read_text())
    assert "A cheat, here for comparison: it looks at" in (home / "models" / "step_leak.html").read_text()
    assert "heat" not in (home / "models" / "honest.html").read_text().partition("<main")[2]
    said = folder.summary(folder.build([home], folder.open_ground(home / "dataset"), home), home)
    assert "\n  cheat: Step leak: it looks at no pixel and reads the round off the label, so " in said


def test_each_page_allows_only_its_own_script_and_style(built):
    home = built([submission()])
    for path in (home / "index.html", home / "models" / "metric.html"):
        text = path.read_text()
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)[1]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        for kind, tag in (("style", "style"), ("script", "script")):
            for body in re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S):
                assert f"{kind}-src '{page._hash(body)}'" in policy
        assert not re.search(r"<(?:img|script|link|iframe)[^>]+(?:src|href)=.(?!data:,)", text)
        assert " style=" not in text
        assert "SIMULATED data." in text


def test_a_board_of_real_images_says_nothing_of_simulation(built):
    rows = make_rows(simulated=False)
    home = built([submission(rows=rows)], rows)
    for path in (home / "index.html", home / "models" / "metric.html"):
        assert "simulat" not in re.sub(r"<style>.*?</style>", "", path.read_text(), flags=re.S).lower()


def test_the_page_shows_the_first_and_says_how_many_there_are(built, monkeypatch):
    monkeypatch.setattr(page, "MAX_SHOWN", 2)
    home = built([submission(f"Metric {seed}", seed=seed) for seed in (1, 2, 3)])
    text = (home / "index.html").read_text()
    assert text.count('<th scope="row">') == len(list((home / "models").iterdir())) == 2
    assert "3 models on" in text
    assert "The page shows the first 2;" in text


def test_failing_images_are_named_with_what_happens(built):
    def partly(row):
        return metric(1, slope=1.0 if row.initial_image == "china" else -1.0)(row)

    text = (built([submission(function=partly)]) / "models" / "metric.html").read_text()
    assert re.search(r"<strong>china</strong>: reversed: the degraded image scores better", text)
    assert "<strong>astronaut</strong>:" not in text
    assert text.count("<figure>") == 3


def test_a_panel_by_hand():
    lines = np.array([[3.0, 2.0, 1.0], [3.0, 1.5, 0.0], [4.0, 2.5, 1.5]], np.float32)
    drawn = draw([1, 5, 20], lines, (1, 20), higher_is_better=True)
    assert [(number, score) for _, _, number, score in drawn["dots"]] == [(1, "3"), (20, "1")]
    first, last = (y for _, y, _, _ in drawn["dots"])
    assert first < last  # up is better
    assert [score for _, score in drawn["scale"]] == ["0", "4"]
    assert [number for _, number in drawn["ticks"]] == [1, 20]
    assert len(drawn["lines"]) == len(drawn["bands"]) == 1
    turned = draw([1, 5, 20], lines, (1, 20), higher_is_better=False)
    first, last = (y for _, y, _, _ in turned["dots"])
    assert first > last


def test_a_score_that_is_lacking_breaks_the_line():
    lines = np.array([[3.0, math.nan, 1.0, 0.0]] * 3, np.float32)
    drawn = draw([1, 5, 10, 20], lines, (1, 5, 10, 20), True)
    assert [len(line.split()) for line in drawn["lines"]] == [1, 2]
    assert [number for _, _, number, _ in drawn["dots"]] == [1, 10, 20]
    assert draw([1, 5], np.full((3, 2), np.nan, np.float32), (1, 5), True)["lines"] == []


def test_equal_and_huge_scores_stay_inside_the_panel():
    for value in (0.0, 1e38, -1e38):
        drawn = draw([1, 20], np.full((3, 2), value, np.float32), (1, 20), True)
        for x, y, _, _ in drawn["dots"]:
            assert 0 < x < page.WIDTH
            assert 0 < y < page.HEIGHT


def test_sizes_to_choose_from():
    from types import SimpleNamespace

    def entry(parameters):
        return SimpleNamespace(card=SimpleNamespace(parameters=parameters))

    assert [size_class(entry(n)) for n in (None, 0, 10_000_000, 10_000_001, 10**9, 7 * 10**9)] == [
        "",
        "up to 10 M",
        "up to 10 M",
        "10 M to 1 B",
        "10 M to 1 B",
        "above 1 B",
    ]
    assert size_class(SimpleNamespace(card=None)) == ""
    assert (short(0.25), short(12345.678), short(-9.8)) == ("0.25", "1.235e+04", "-9.8")
