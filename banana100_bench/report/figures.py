"""The score of one model, round by round: a panel for each initial image, a line for each run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from banana100_bench import files
from banana100_bench.errors import BananaError
from banana100_bench.records import Row
from banana100_bench.report.table import rounds_compared
from banana100_bench.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS = 60
WIDE = 2.5  # where rounds go on for this many times the last compared one, the early ones get more room
LARGEST = 1e150  # the axes of matplotlib overflow beyond
DPI = 110
# Okabe and Ito's colours, told apart by colour-blind readers; line styles say the same again.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES: tuple[Any, ...] = ("-", "--", "-.", ":")
GREY = "#767676"
# Of one initial image: by (setting, run id), then by round, the score, or the status that it has instead.
Runs = dict[tuple[str, str], dict[int, "float | str"]]
# Why there is no score, and the sign that stands for it along the lower edge.
GAPS = {"nan": ("o", "not a number"), "failed": ("s", "the model failed"), "missing": ("x", "no image")}
WORDS = {
    "detected": "DETECTED",
    "reversed": "REVERSED: degraded looks better to it",
    "mixed": "not detected: no consistent fall",
    "tie": "not detected: equal scores",
    "unscored": "not detected: no usable score",
    "missing": "not detected: image missing",
}


def score_by_round(result: Result, rows: Sequence[Row], path: Path) -> None:
    """Draw the scores of `result` on the dataset's `rows` as a PNG at `path`, so that up is better.

    Where the model's lower score is the better one the axis is turned round and says so. Compared
    rounds are marked, as is each image without a usable score. Only runs and rounds that were scored
    are drawn, and, of more than MAX_PANELS initial images, the first; the figure says so.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = _figure(result, rows)
    about = {"Title": _title(result), "Software": result.harness}
    with files.atomic_path(path) as temporary:
        FigureCanvasAgg(figure).print_png(str(temporary), metadata=about)


def _figure(result: Result, rows: Sequence[Row]) -> Figure:
    from matplotlib.figure import Figure

    lines = _lines(result, rows)
    if not lines:
        raise BananaError(f"{result.model.id}: none of its {len(result.scores)} scores is of the rows given")
    images = sorted(lines)
    shown = images[:MAX_PANELS]
    columns = min(len(shown), 3 if len(shown) <= 9 else 4)
    depth = math.ceil(len(shown) / columns)
    width, height = max(3.5 * columns + 0.6, 7.0), 2.9 * depth + 1.5
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    settings = sorted({setting for runs in lines.values() for setting, _ in runs})
    axes = figure.subplots(depth, columns, squeeze=False, sharex=True).ravel()
    for axis in axes[len(shown) :]:
        axis.remove()
    last = max(number for runs in lines.values() for line in runs.values() for number in line)
    wide = last > WIDE * result.rounds.later[-1]
    for position, (axis, image) in enumerate(zip(axes, shown, strict=False)):
        _panel(axis, result, lines[image], settings)
        if wide:
            axis.set_xscale("function", functions=(lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda x: x * np.abs(x)))
        axis.set_xticks(sorted({*result.rounds.rounds().all, last}))
        axis.set_title(_panel_title(result, image), fontsize=10, loc="left", parse_math=False)
        if position + columns >= len(shown):  # nothing stands below it
            axis.tick_params(labelbottom=True)
            axis.set_xlabel("round (square-root scale)" if wide else "round")
    left_out = f" (the first {len(shown)} of {len(images)} initial images)" if len(shown) < len(images) else ""
    figure.suptitle(_title(result) + left_out, fontsize=12, parse_math=False)
    figure.supylabel(_axis_label(result), fontsize=10, parse_math=False)
    _legend(figure, result, lines, settings)
    return figure


def _lines(result: Result, rows: Sequence[Row]) -> dict[str, Runs]:
    """The runs of each initial image; a compared round without an image is "missing"."""
    of_id = {
        score.image_id: score.status if score.score is None else max(-LARGEST, min(score.score, LARGEST))
        for score in result.scores
    }
    found: dict[str, Runs] = {}
    start: dict[str, float | str] = {}
    for row in rows:
        if row.image_id not in of_id:
            continue
        if row.run_id is None:
            start[row.initial_image] = of_id[row.image_id]
        else:
            runs = found.setdefault(row.initial_image, {})
            runs.setdefault((row.setting or "", row.run_id), {})[row.round] = of_id[row.image_id]
    for image, runs in found.items():
        for line in runs.values():
            if image in start:
                line[0] = start[image]
            for number in result.rounds.rounds().all:
                line.setdefault(number, "missing")
    return found


def _panel(axis: Axes, result: Result, runs: Runs, settings: Sequence[str]) -> None:
    compared = result.rounds.rounds().all
    for number in compared:
        axis.axvline(number, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    for position, ((setting, _), line) in enumerate(sorted(runs.items())):
        _draw_run(axis, line, compared, settings.index(setting), position)
    axis.margins(x=0.05, y=0.12)
    unscored = _statuses(runs)
    if unscored:
        low, high = axis.get_ylim()  # leave a band at the lower edge, free of lines, for the signs of gaps
        band = 0.4 * (high - low)
        axis.set_ylim((low - band, high) if result.model.higher_is_better else (low, high + band))
    if len(unscored) == sum(map(len, runs.values())):
        axis.set_yticks([])
        axis.text(0.5, 0.6, "no usable score", transform=axis.transAxes, ha="center", color=GREY)
    if not result.model.higher_is_better:
        axis.invert_yaxis()
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _statuses(runs: Runs) -> list[str]:
    """Of every image of `runs` that has no usable score: why."""
    return [score for line in runs.values() for score in line.values() if isinstance(score, str)]


def _draw_run(axis: Axes, line: dict[int, float | str], compared: Sequence[int], kind: int, position: int) -> None:
    """One run; `kind` says which setting it is of, `position` where its signs of gaps go, lest they hide others'."""
    rounds = sorted(line)
    scores = [math.nan if isinstance(line[number], str) else line[number] for number in rounds]  # NaN breaks the line
    colour = COLOURS[kind % len(COLOURS)]
    axis.plot(
        rounds,
        scores,
        color=colour,
        linestyle=STYLES[kind % len(STYLES)],
        linewidth=1.0,
        marker="o",
        markersize=2.0,
        alpha=0.8,
    )
    key = [i for i, number in enumerate(rounds) if number in compared]
    axis.plot(
        [rounds[i] for i in key], [scores[i] for i in key], color=colour, linestyle="", marker="o", markersize=4.5
    )
    for number, status in line.items():
        if isinstance(status, str):
            axis.plot(
                [number],
                [0.03 + 0.05 * (position % 5)],
                transform=axis.get_xaxis_transform(),
                color="black",
                marker=GAPS[status][0],
                markersize=5,
                markerfacecolor="none",
                clip_on=False,
            )


def _title(result: Result) -> str:
    mark = "SIMULATED data: " if result.data.simulated else ""
    return f"{mark}{_short(result.model.id)} on {_short(result.data.name)}"


def _short(name: str, longest: int = 50) -> str:
    """`name` without its beginning, should it be too long for a title: the end of a path says most."""
    return name if len(name) <= longest else "..." + name[3 - longest :]


def _panel_title(result: Result, image: str) -> str:
    for verdict in result.verdict.by_image:
        if verdict.image == image:
            return f"{image}\n{WORDS[verdict.outcome]}"
    return f"{image}\n(not part of the verdict)"


def _axis_label(result: Result) -> str:
    name = _short(result.model.id.rsplit("/", 1)[-1], 36)
    return f"score of {name}\n{'' if result.model.higher_is_better else 'axis inverted: '}up is better"


def _legend(figure: Figure, result: Result, lines: dict[str, Runs], settings: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLOURS[i % len(COLOURS)], linestyle=STYLES[i % len(STYLES)], label=f"a run of {setting}")
        for i, setting in enumerate(settings)
    ]
    handles.append(Line2D([], [], color=GREY, linestyle=":", label=f"compared: {rounds_compared(result)}"))
    found = {status for runs in lines.values() for status in _statuses(runs)}
    handles += [
        Line2D([], [], color="black", linestyle="", marker=marker, markerfacecolor="none", label=f"no score: {why}")
        for status, (marker, why) in GAPS.items()
        if status in found
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
