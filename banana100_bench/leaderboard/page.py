"""The board as static pages: one of all models, one for each. They ask nothing of any server, and open from a disk.

Whatever a stranger wrote is escaped by Jinja; beyond that each page forbids all script and style but its own.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from banana100_bench import files
from banana100_bench.errors import BananaError
from banana100_bench.leaderboard.board import Board, Candidate, Entry
from banana100_bench.package.card import CITATION, asset
from banana100_bench.result_schema import CHEATING

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).parent / "site"
PAGE, MODELS = "index.html", "models"
MAX_SHOWN = 2000  # rows and pages; a browser on a phone bears no more, and the JSON has the others
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 300, 150, 52, 24, 8  # of a panel, in SVG units
WIDE = 2.5  # where rounds go on for this many times the last compared one, the early ones get more room
SIZES = ((10_000_000, "up to 10 M"), (1_000_000_000, "10 M to 1 B"), (math.inf, "above 1 B"))
WORDS = {
    "detected": "detected: the score falls as the image degrades",
    "reversed": "reversed: the degraded image scores better",
    "mixed": "not detected: no consistent fall",
    "tie": "not detected: equal scores where they should fall",
    "unscored": "not detected: no usable score",
    "missing": "not detected: an image is missing",
}


def write_pages(board: Board, candidates: Mapping[str, Candidate], folder: Path) -> None:
    """Write index.html and models/ into `folder`. candidates: by digest; their curves are drawn."""
    shown = board.entries[:MAX_SHOWN]
    _refuse_strange(folder / MODELS)
    site = _environment()
    with files.atomic_dir(folder / MODELS) as models:
        template = site.get_template("model.html.j2")
        for entry in shown:
            candidate = candidates[entry.file_sha256]
            page = template.render(
                board=board, entry=entry, result=candidate.result, panels=panels(board, entry, candidate)
            )
            (models / f"{entry.slug}.html").write_text(page, encoding="utf-8")
    files.write_text(folder / PAGE, site.get_template("index.html.j2").render(**_index(board, shown)))


def _refuse_strange(folder: Path) -> None:
    """BananaError where `folder`, which is about to be replaced, holds anything but pages."""
    if folder.is_symlink() or (folder.exists() and any(path.suffix != ".html" for path in folder.iterdir())):
        raise BananaError(f"{folder}: holds other things than the pages of a board; choose another folder for it")


def _index(board: Board, shown: Sequence[Entry]) -> dict[str, Any]:
    groups = Counter(entry.rank for entry in shown if entry.rank is not None)
    return {
        "board": board,
        "shown": shown,
        "shared": {rank for rank, count in groups.items() if count > 1},
        "kinds": sorted({entry.model.kind for entry in shown}),
        "licences": sorted({entry.card.licence for entry in shown if entry.card}),
        "sizes": [name for _, name in SIZES if name in map(size_class, shown)],
        "citation": asset(CITATION),
    }


def size_class(entry: Entry) -> str:
    """Which of the sizes to choose from the model has; "" where no one has said."""
    if entry.card is None or entry.card.parameters is None:
        return ""
    return next(name for most, name in SIZES if entry.card.parameters <= most)


def panels(board: Board, entry: Entry, candidate: Candidate) -> list[dict[str, Any]]:
    """What the template draws of each initial image: the outcome, and the scores as SVG points."""
    drawn = []
    for image, (rounds, lines) in (candidate.curves or {}).items():
        outcome = entry.outcomes.get(image)
        panel = {"image": image, "outcome": outcome, "words": WORDS.get(outcome or "", "not part of the verdict")}
        drawn.append(panel | draw(rounds, lines, board.rounds.rounds().all, entry.model.higher_is_better))
    return drawn


def draw(
    rounds: Sequence[int], lines: NDArray[np.float32], compared: Sequence[int], higher_is_better: bool
) -> dict[str, Any]:
    """A panel's mean line, its band from least to greatest, the dots of the compared rounds and the ticks.

    lines: (3, n_rounds): mean, least, greatest; NaN breaks the line. Better is up.
    """
    finite = lines[np.isfinite(lines)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    room = (high - low) or abs(high) or 1.0
    wide = rounds[-1] > WIDE * compared[-1]

    def x(number: float) -> float:
        start, end, at = (math.sqrt(v) if wide else float(v) for v in (rounds[0], rounds[-1], number))
        return round(LEFT + 10 + (at - start) / ((end - start) or 1) * (WIDTH - LEFT - 20), 1)

    def y(score: float) -> float:
        share = (score - low) / room if high > low else 0.5
        return round(TOP + (1 - share if higher_is_better else share) * (HEIGHT - BOTTOM - TOP - 6) + 3, 1)

    def points(values: Sequence[tuple[int, float]]) -> str:
        return " ".join(f"{x(number)},{y(value)}" for number, value in values)

    pieces: list[list[int]] = [[]]
    for position in range(len(rounds)):
        if np.isfinite(lines[:, position]).all():
            pieces[-1].append(position)
        elif pieces[-1]:
            pieces.append([])
    mean, least, most = lines.tolist()
    return {
        "lines": [points([(rounds[i], mean[i]) for i in piece]) for piece in pieces if piece],
        "bands": [
            points([*((rounds[i], most[i]) for i in piece), *((rounds[i], least[i]) for i in reversed(piece))])
            for piece in pieces
            if len(piece) > 1
        ],
        "dots": [
            (x(n), y(mean[i]), n, short(mean[i]))
            for i, n in enumerate(rounds)
            if n in compared and np.isfinite(mean[i])
        ],
        "ticks": [(x(n), n) for n in sorted({*compared, rounds[-1]}) if rounds[0] <= n <= rounds[-1]],
        "scale": [(y(value), short(value)) for value in dict.fromkeys((low, high))] if finite.size else [],
    }


def short(value: float) -> str:
    """A number for people, in at most four digits."""
    return f"{value:.4g}"


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    site = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("board.css", "board.js"))
    from markupsafe import Markup

    site.globals |= {
        "style": Markup(style),
        "script": Markup(script),
        "style_hash": _hash(style),
        "script_hash": _hash(script),
        "size_class": size_class,
        "short": short,
        "words": WORDS,
        "cheating": CHEATING,
        "panel": {"width": WIDTH, "height": HEIGHT, "left": LEFT, "bottom": HEIGHT - BOTTOM, "top": TOP},
    }
    return site


def _hash(text: str) -> str:
    """What a Content-Security-Policy calls an inline script or style by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
