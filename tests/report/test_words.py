"""Five results whose words and numbers nobody may misunderstand, as snapshots: read the files beside this one.

After a wanted change delete the file and run the test once: it writes the new one, and fails so that you read it.
"""

import hashlib
import math
from pathlib import Path

import pytest

from banana100_bench.criteria import ABOUT, CONTROLS
from banana100_bench.protocol import Rounds
from banana100_bench.report.exports import shown
from banana100_bench.report.page import FIRST, _data_notes, _notes
from banana100_bench.report.table import sentence
from banana100_bench.result_schema import ControlScore
from banana100_bench.results import make_result
from tests.fakes.judged import FakeData, info, make_rows, scores_of

IMAGES = [
    "chair", "desert", "feather", "food", "harbour", "library", "moss", "orchid", "portal", "robot", "skyscraper",
    "table", "valley",
]  # fmt: skip
ROWS = make_rows(IMAGES, repetitions=5)


def tenth(row):
    """True for one image in ten, drawn by its hash."""
    return int(row.sha256[:4], 16) % 10 == 0


def falls(row):
    return 10 - row.round / 4 + IMAGES.index(row.initial_image)


CASES = {
    "right_on_12_of_13": (lambda row: -falls(row) if row.initial_image == "moss" else falls(row), ROWS),
    "constant": (lambda row: 1.0, ROWS),
    "reversed": (lambda row: -falls(row), ROWS),
    "tenth_nan": (lambda row: math.nan if tenth(row) else falls(row), ROWS),
    "three_images_missing": (falls, [row for row in ROWS if (row.initial_image, row.repetition, row.round) not in {
        ("desert", 0, 20), ("moss", 1, 5), ("table", 4, 1)
    }]),
}  # fmt: skip


def result_of(name):
    function, rows = CASES[name]
    controls = [
        ControlScore(
            initial_image=image,
            control=control,
            sha256=hashlib.sha256(f"{image} {control}".encode()).hexdigest(),
            score=1.0 if name == "constant" else 9.5 + IMAGES.index(image),
            status="ok",
        )
        for image in IMAGES
        for control in CONTROLS
    ]
    return make_result(info(f"file:{name}"), FakeData(rows), scores_of(rows, function), Rounds(), controls)


def words(result):
    lines = [sentence(result), "", *_data_notes(result, 2), *_notes(result), ""]
    for name in FIRST:
        criterion = result.criteria[name]
        used = f"{criterion.n_images} images, {criterion.used} of {criterion.expected} scores"
        note = f"; {criterion.note}" if criterion.note else ""
        lines.append(f"{ABOUT[name].label}: {shown(criterion)} ({used}{note})")
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("name", CASES)
def test_words_and_numbers(name):
    path = Path(__file__).parent / "snapshots" / f"{name}.txt"
    found = words(result_of(name))
    if not path.exists():
        path.write_text(found)
        pytest.fail(f"wrote {path}: read it, then run again")
    assert found == path.read_text()


def test_the_five_by_hand():
    verdicts = {name: result_of(name).verdict.counts for name in CASES}
    none = dict.fromkeys(("detected", "reversed", "mixed", "tie", "unscored", "missing"), 0)
    assert verdicts["right_on_12_of_13"] == none | {"detected": 12, "reversed": 1}
    assert verdicts["constant"] == none | {"tie": 13}
    assert verdicts["reversed"] == none | {"reversed": 13}
    assert verdicts["three_images_missing"] == none | {"detected": 10, "missing": 3}
    spoilt = {row.initial_image for row in ROWS if tenth(row)}
    assert verdicts["tenth_nan"] == none | {"detected": 13 - len(spoilt), "unscored": len(spoilt)}
    assert result_of("tenth_nan").coverage.nan == sum(map(tenth, ROWS))
