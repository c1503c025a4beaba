"""package/strip.py: which runs the card shows, and the picture."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from banana100_bench.package import strip
from banana100_bench.package.layouts import Candidate
from banana100_bench.package.source import find
from tests.package import making


def test_runs_of_different_images_come_first(tmp_path: Path) -> None:
    runs = strip.choose(find(making.write_raw(tmp_path)).candidates)
    assert [sorted(run) for run in runs] == [[0, 1, 5, 10, 20], [0, 1, 5], [0, 1]]
    assert [run[1].run_id for run in runs] == [
        "replication__ramp__simulated__rep0",
        "add_apple__disc__simulated__rep0",
        "cross_model_replication__comb__simulated__rep0",
    ]


def test_the_picture_shows_the_images_where_they_belong(tmp_path: Path) -> None:
    found = find(making.write_run(tmp_path, made=5, planned=5).parents[1]).candidates
    colours = {one.image_id: (40 * one.round, 200, 10) for one in found}

    def read(row: Candidate) -> bytes:
        file = io.BytesIO()
        Image.new("RGB", (300, 300), colours[row.image_id]).save(file, "PNG")
        return file.getvalue() if row.round != 1 else b"no image"

    runs = strip.choose(found)
    for simulated in (False, True):
        picture = Image.open(io.BytesIO(strip.draw(runs, read, simulated)))
        top = strip.TEXT * (2 if simulated else 1)
        assert picture.size == (3 * (strip.CELL + strip.EDGE) + strip.EDGE, top + strip.CELL + strip.TEXT)
        seen = [picture.getpixel((strip.EDGE + 100 + at * (strip.CELL + strip.EDGE), top + 100)) for at in range(3)]
        assert seen == [(0, 200, 10), (255, 255, 255), (200, 200, 10)]  # round 1 cannot be decoded
        reds = sum(count for count, colour in picture.getcolors(1 << 20) if colour == (255, 0, 0))
        assert (reds > 100) == simulated


def test_nothing_to_compare_no_picture() -> None:
    assert strip.draw([], lambda row: b"", False) is None
