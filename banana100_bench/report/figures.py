"""Figures: score by round (a panel for each initial image, a line for each run), accuracy by gap, ROC."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from banana100_bench import files
from banana100_bench.criteria import GAPS, CleanAndDegraded, filtering, gap_name, roc
from banana100_bench.errors import BananaError
from banana100_bench.records import Row
from banana100_bench.report.letters import settle
from banana100_bench.report.table import OUTCOME_WORDS, rounds_compared
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
MARKERS = ("o", "s", "^", "v", "D", "P", "X")
MAX_GAP = 999  # rounds; a range that ends beyond is open
GREY = "#767676"
# Of one initial image: by (setting, run id), then by round, the score, or the status that it has instead.
Runs = dict[tuple[str, str], dict[int, "float | str"]]
# Why there is no score, and the sign that stands for it along the lower edge.
SIGNS = {"nan": ("o", "not a number"), "failed": ("s", "the model failed"), "missing": ("x", "no image")}


def score_by_round(result: Result, rows: Sequence[Row], path: Path) -> None:
    """Draw the scores of `result` on the dataset's `rows` as a PNG at `path`, so that up is better.

    Where the model's lower score is the better one the axis is turned round and says so. Compared
    rounds are marked, as is each image without a usable score. Only runs and rounds that were scored
    are drawn, and, of more than MAX_PANELS initial images, the first; the figure says so.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = curves(result, rows)
    settle(figure)
    about = {"Title": _title(result), "Software": result.harness}
    with files.atomic_path(path) as temporary:
        FigureCanvasAgg(figure).print_png(str(temporary), metadata=about)


def rendered(figure: Figure) -> dict[str, bytes]:
    """The figure as PNG, and as SVG to stand in a page: no prologue, text as text. The same bytes each time."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    settle(figure)
    png, svg = io.BytesIO(), io.BytesIO()
    FigureCanvasAgg(figure).print_png(png)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "banana100"}):
        FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})
    text = svg.getvalue()
    return {"png": png.getvalue(), "svg": text[text.index(b"<svg") :]}


def accuracy_by_gap(results: Sequence[Result]) -> Figure:
    """Pairwise accuracy by how far apart the rounds are, a line a model, with intervals; 0.5 is chance."""
    from matplotlib.figure import Figure

    present = [gap for gap in GAPS if any(gap_name(*gap) in result.criteria for result in results)]
    figure = Figure(figsize=(7.5, 3.6 + 0.11 * len(results)), dpi=DPI, layout="constrained")
    axis = figure.subplots()
    axis.axhline(0.5, color=GREY, linewidth=1, linestyle=":", label="chance")
    shift = np.linspace(-0.25, 0.25, len(results)) if len(results) > 1 else [0.0]
    for number, result in enumerate(results):
        found = [result.criteria.get(gap_name(*gap)) for gap in present]
        values = [math.nan if c is None or c.value is None else c.value for c in found]
        bounds = [(v, v) if c is None or c.interval is None else c.interval for c, v in zip(found, values, strict=True)]
        x = np.arange(len(present)) + shift[number]
        colour = COLOURS[number % len(COLOURS)]
        axis.vlines(x, [low for low, _ in bounds], [high for _, high in bounds], color=colour, linewidth=1, alpha=0.6)
        axis.plot(
            x,
            values,
            color=colour,
            linestyle=STYLES[(number // len(COLOURS)) % len(STYLES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=5,
            linewidth=1.2,
            label=_label(result.model.label),
        )
    axis.set_xticks(range(len(present)), [_span(*gap) for gap in present])
    axis.set_xlabel("rounds apart")
    axis.set_ylabel("later round scores worse")
    axis.set_ylim(-0.03, 1.03)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper" if len(results) > 3 else "outside lower center", fontsize=8, frameon=False)
    return _marked(figure, results)


def roc_curves(models: Mapping[str, CleanAndDegraded], results: Sequence[Result]) -> Figure:
    """Share of clean against share of degraded images that pass a threshold; the dot keeps 95 % of the clean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.6 + 0.08 * len(results)), dpi=DPI, layout="constrained")
    axis = figure.subplots()
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":", label="chance")
    for number, (name, found) in enumerate(models.items()):
        degraded, clean = roc(found)
        colour = COLOURS[number % len(COLOURS)]
        axis.plot(
            degraded,
            clean,
            color=colour,
            linestyle=STYLES[(number // len(COLOURS)) % len(STYLES)],
            linewidth=1.4,
            label=_label(name),
        )
        threshold = filtering(found).threshold(95)
        passing = [
            float(np.mean([(values >= threshold).mean() for values in part if len(values)]))
            for part in (found.degraded, found.clean)
            if any(map(len, part))
        ]
        if len(passing) == 2 and not math.isnan(threshold):
            axis.plot(*passing, color=colour, marker=MARKERS[number % len(MARKERS)], markersize=7)
    axis.set(
        xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="degraded images that pass", ylabel="clean images that pass"
    )
    axis.set_aspect("equal")
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return _marked(figure, results)


def _marked(figure: Figure, results: Sequence[Result]) -> Figure:
    if any(result.data.simulated for result in results):
        figure.suptitle("SIMULATED data", fontsize=10)
    return figure


def _span(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low}+" if high > MAX_GAP else f"{low}-{high}"


def _label(name: str) -> str:
    """`name` for a legend; a leading underscore would hide it, a dollar sign would be taken for mathematics."""
    return _short(name, 30).lstrip("_").replace("$", r"\$")


def curves(result: Result, rows: Sequence[Row]) -> Figure:
    """The figure that `score_by_round` writes."""
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
                marker=SIGNS[status][0],
                markersize=5,
                markerfacecolor="none",
                clip_on=False,
            )


def _title(result: Result) -> str:
    mark = "SIMULATED data: " if result.data.simulated else ""
    return f"{mark}{_short(result.model.label)} on {_short(result.data.name)}"


def _short(name: str, longest: int = 50) -> str:
    """`name` without its beginning, should it be too long for a title: the end of a path says most."""
    return name if len(name) <= longest else "..." + name[3 - longest :]


def _panel_title(result: Result, image: str) -> str:
    for verdict in result.verdict.by_image:
        if verdict.image == image:
            return f"{image}\n{OUTCOME_WORDS[verdict.outcome]}"
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
        for status, (marker, why) in SIGNS.items()
        if status in found
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
