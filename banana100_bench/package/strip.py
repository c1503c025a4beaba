"""The picture of the card: some runs along their rounds, side by side."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Sequence

from banana100_bench.errors import BananaError
from banana100_bench.images import decode
from banana100_bench.package.layouts import Candidate

ROUNDS = (0, 1, 5, 10, 20, 50, 100)
RUNS, CELL, TEXT, EDGE = 3, 200, 26, 6  # rows of the picture; pixels


def choose(rows: Sequence[Candidate]) -> list[dict[int, Candidate]]:
    """The images to be shown, by round, of the runs that have most of ROUNDS: of other images where there are some."""
    initial = {row.initial_image: row for row in rows if row.run_id is None}
    runs: dict[str, dict[int, Candidate]] = defaultdict(dict)
    for row in rows:
        if row.run_id and row.round in ROUNDS:
            runs[row.run_id][row.round] = row
    found: list[dict[int, Candidate]] = []
    first = {run: next(iter(rounds.values())) for run, rounds in runs.items()}
    ordered = sorted(runs.items(), key=lambda item: (-len(item[1]), first[item[0]].setting != "replication", item[0]))
    seen: set[str] = set()
    for fresh in (True, False):
        for run, rounds in ordered:
            image = rounds[max(rounds)].initial_image
            if len(found) < RUNS and run not in seen and (not fresh or image not in seen):
                found.append({0: initial[image], **rounds} if image in initial else rounds)
                seen |= {run, image}
    return found


def draw(runs: Sequence[dict[int, Candidate]], read: Callable[[Candidate], bytes], simulated: bool) -> bytes | None:
    """PNG of the chosen rows, their encoded images given by `read`; None where there are none to be shown."""
    from PIL import Image, ImageDraw

    columns = [number for number in ROUNDS if any(number in run for run in runs)]
    if len(columns) < 2:
        return None
    width = EDGE + len(columns) * (CELL + EDGE)
    top = 2 * TEXT if simulated else TEXT
    picture = Image.new("RGB", (width, top + len(runs) * (CELL + TEXT)), "white")
    pen = ImageDraw.Draw(picture)
    if simulated:
        pen.text((EDGE, 2), "SIMULATED IMAGES: no editing model made them", fill="red", font_size=18)
    for column, number in enumerate(columns):
        pen.text((EDGE + column * (CELL + EDGE), top - TEXT + 4), f"round {number}", fill="black", font_size=16)
    for line, run in enumerate(runs):
        y = top + line * (CELL + TEXT)
        names = {row.run_id for row in run.values() if row.run_id}
        pen.text((EDGE, y + CELL + 3), f"{', '.join(sorted(names))}", fill="dimgray", font_size=13)
        for column, number in enumerate(columns):
            if number in run:
                x = EDGE + column * (CELL + EDGE)
                try:
                    cell = decode(read(run[number]), run[number].image_id)
                except BananaError:  # `verify` tells of it
                    pen.text((x, y), "cannot be decoded", fill="black", font_size=14)
                    continue
                cell.thumbnail((CELL, CELL), Image.Resampling.LANCZOS)
                picture.paste(cell, (x, y))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
