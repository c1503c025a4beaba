"""One self-contained page of results: it works offline, prints, and needs no script to be read."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from banana100_bench import files, images
from banana100_bench.criteria import ABOUT, CleanAndDegraded
from banana100_bench.data import Selection, open_data
from banana100_bench.errors import BananaError
from banana100_bench.records import Row
from banana100_bench.report import figures, table
from banana100_bench.report.exports import chance, ordered, shown
from banana100_bench.result_schema import CHEATING, MAX_ROUND, Result
from banana100_bench.results import judged_runs, score_problems

FEW = 8  # initial images; with fewer no p-value can be below 0.01
INVERSIONS = 3  # shown for each model
SIDE = 320  # pixels, of the pictures in the gallery
DECIMALS = {"first_notice": 0, "inversion_size": 1}
# The criteria a newcomer reads first; the rest stands folded away.
FIRST = (
    "strict_pass_rate", "srcc_early", "pairwise_accuracy", "auc", "filter_escape_95", "control_flagged", "first_notice",
)  # fmt: skip
SIGNS = {"worse": "▼", "better": "▲", "tie": "=", "unusable": "?"}


@dataclass(frozen=True)
class Inversion:
    """Two images of one run of which the model calls the later one better. Scores are the model's own."""

    image: str
    setting: str
    repetition: int | None
    earlier: Row
    later: Row
    earlier_score: float
    later_score: float


def write_page(results: Sequence[Result], data: str | Path, out: Path, *, save_figures: bool = True) -> list[Path]:
    """Write the page of `results` on the dataset folder `data` to `out`, and its figures beside it as PNG and SVG.

    Returns the paths, the page first. BananaError where a result is not of this dataset; UsageError where the
    results cannot be compared.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    selection = open_data(data, rounds=range(MAX_ROUND + 1))
    for result in results:
        problems = score_problems(result, selection.rows)
        if problems:
            raise BananaError(f"{result.model.id} on {data}: {'; '.join(problems)}")
    standings = ordered(results)
    judged = [result for _, result in standings]
    drawn = _draw(judged, selection.rows)
    environment = Environment(
        loader=PackageLoader("banana100_bench.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    text = environment.get_template("report.html.j2").render(
        first=judged[0],
        notes=_data_notes(judged[0], len({standing.tie_group for standing, _ in standings if standing})),
        rounds=table.rounds_compared(judged[0]),
        models=[
            {
                "result": result,
                "standing": standing,
                "anchor": f"model-{number}",
                "sentence": table.sentence(result),
                "notes": _notes(result),
                "criteria": _criteria(result),
                "heat": _heat(result),
                "curves": drawn[f"{result.file_stem}-{number}-curves"],
                "gallery": _gallery(worst_inversions(result, selection.rows), selection),
            }
            for number, (standing, result) in enumerate(standings)
        ],
        gaps=drawn["pairwise-accuracy"],
        roc=drawn["roc"],
        columns=[(name, ABOUT[name]) for name in FIRST],
        shown=lambda result, name: _parts(result, name),
        later=judged[0].rounds.later,
        signs=SIGNS,
        words=table.OUTCOME_WORDS,
    )
    files.write_text(out, text)
    paths = [Path(out)]
    if save_figures:
        for name, svg_png in drawn.items():
            for kind, content in svg_png.items():
                path = Path(out).parent / f"{Path(out).stem}-{name}.{kind}"
                files.write_bytes(path, content)
                paths.append(path)
    return paths


def _draw(results: Sequence[Result], rows: Sequence[Row]) -> dict[str, dict[str, bytes]]:
    """Each figure by name, as PNG and SVG."""
    made = {
        f"{result.file_stem}-{number}-curves": figures.curves(result, rows) for number, result in enumerate(results)
    }
    made["pairwise-accuracy"] = figures.accuracy_by_gap(results)
    made["roc"] = figures.roc_curves(
        {result.model.label: _clean_and_degraded(result, rows) for result in results}, results
    )
    return {name: figures.rendered(figure) for name, figure in made.items()}


def _clean_and_degraded(result: Result, rows: Sequence[Row]) -> CleanAndDegraded:
    return CleanAndDegraded.of(judged_runs(result, rows), result.rounds.rounds())


def worst_inversions(result: Result, rows: Sequence[Row], limit: int = INVERSIONS) -> list[Inversion]:
    """The pairs of scored rounds, one at most of each initial image, in which the later image scores better by most.

    From the baseline round on, in rounds that show its state. By difference in score, the largest first.
    """
    scores = {score.image_id: score.score for score in result.scores}
    sign = 1 if result.model.higher_is_better else -1
    rounds = result.rounds.rounds()
    worst: dict[str, tuple[float, Row, Row]] = {}
    runs: dict[str, list[Row]] = {}
    for row in rows:
        usable = row.run_id is not None and scores.get(row.image_id) is not None
        if usable and row.round >= rounds.baseline and (row.round - rounds.baseline) % row.period == 0:
            runs.setdefault(row.run_id or "", []).append(row)
    for run in runs.values():
        least: tuple[float, Row] | None = None
        for row in sorted(run, key=lambda row: row.round):
            value = sign * (scores[row.image_id] or 0.0)
            if least is not None and value - least[0] > worst.get(row.initial_image, (0.0,))[0]:
                worst[row.initial_image] = (value - least[0], least[1], row)
            if least is None or value < least[0]:
                least = (value, row)
    found = sorted(worst.values(), key=lambda pair: (-pair[0], pair[1].image_id))[:limit]
    return [
        Inversion(
            image=later.initial_image,
            setting=later.setting or "",
            repetition=later.repetition,
            earlier=earlier,
            later=later,
            earlier_score=scores[earlier.image_id] or 0.0,
            later_score=scores[later.image_id] or 0.0,
        )
        for _, earlier, later in found
    ]


def _gallery(inversions: Sequence[Inversion], selection: Selection) -> list[dict[str, Any]]:
    wanted = {row.image_id for pair in inversions for row in (pair.earlier, pair.later)}
    encoded = {row.image_id: data for row, data in selection.subset(wanted).images()} if wanted else {}
    return [
        {
            "pair": pair,
            "earlier": _pictures(encoded[pair.earlier.image_id], pair.earlier.image_id),
            "later": _pictures(encoded[pair.later.image_id], pair.later.image_id),
        }
        for pair in inversions
    ]


def _pictures(data: bytes, name: str) -> dict[str, str]:
    """The whole picture, small, and its centre as large as it is, where noise can be seen; as data addresses."""
    picture = images.decode(data, name)
    x, y = max(0, (picture.width - SIDE) // 2), max(0, (picture.height - SIDE) // 2)
    centre = picture.crop((x, y, min(x + SIDE, picture.width), min(y + SIDE, picture.height)))
    whole = picture.copy()
    whole.thumbnail((SIDE, SIDE))
    found = {}
    for part, kept in (("whole", whole), ("centre", centre)):
        buffer = io.BytesIO()
        kept.save(buffer, "JPEG", quality=88)
        found[part] = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return found


def _data_notes(result: Result, groups: int) -> list[str]:
    """What a reader must know of the data before believing any number."""
    notes = []
    n = result.verdict.n_images
    if result.data.simulated:
        notes.append("SIMULATED data: no image-editing model made these images. Nothing here is about real ones.")
    if n < FEW:
        notes.append(
            f"Only {n} initial image{'s' * (n != 1)}: intervals are wide, and no test can part models well (the least "
            f"possible p-value is {2.0 ** (1 - n):.2g})."
            + (" That all models are in one group does not mean that they are equally good." if groups == 1 else "")
        )
    if result.coverage.missing:
        notes.append(
            f"The dataset lacks {result.coverage.missing} of {result.coverage.expected} compared images; the initial "
            "images concerned count as not detected."
        )
    if result.data.left_out:
        notes.append(
            f"Not judged: {table.listed(result.data.left_out)}, which show another state at some compared rounds."
        )
    return notes


def _notes(result: Result) -> list[str]:
    """What a reader must know of this model's scores."""
    notes = [f"A CHEAT, here for comparison: {CHEATING}."] if result.model.cheat else []
    gaps = result.coverage
    if gaps.nan or gaps.failed:
        notes.append(
            f"Not ranked: of {gaps.expected} scores {gaps.nan} are not a number and {gaps.failed} failed. Each "
            "counts against the verdict and the strict pass rate; the other criteria leave it out."
        )
    if (ties := result.criteria["tie_rate"]).value:
        notes.append(f"Equal scores in {ties.value:.0%} of all pairs of rounds: there it sees no difference at all.")
    if not result.controls:
        notes.append("No controls were scored: whether harmless edits would be flagged too is not known.")
    elif (flagged := result.criteria["control_flagged"]).value:
        notes.append(
            f"FALSE ALARMS: on {flagged.value:.0%} of the images harmless edits (re-encoding, resizing by a pixel, "
            "cropping) all score worse too. A detection there may be no sign of seeing the degradation."
        )
    return notes


def _criteria(result: Result) -> list[dict[str, Any]]:
    found = []
    for name, criterion in result.listed_criteria():
        by_chance = chance(result, name)
        found.append(
            {
                "name": name,
                "about": ABOUT[name],
                "first": name in FIRST,
                "shown": shown(criterion, DECIMALS.get(name, 3)),
                "value": criterion.value,
                "chance": "-" if by_chance is None else f"{by_chance:.2f}",
                "criterion": criterion,
            }
        )
    return found


def _parts(result: Result, name: str) -> tuple[str, str]:
    """The value of a criterion, and its interval in brackets."""
    criterion = result.criteria.get(name)
    if name == "first_notice" and criterion and criterion.value is None:
        return "never", ""
    value, _, interval = shown(criterion, DECIMALS.get(name, 2)).partition(" ")
    return value, interval


def _heat(result: Result) -> list[dict[str, Any]]:
    """A line for each initial image and setting: what most runs do at each later round, and the verdict."""
    lines = []
    for verdict in result.verdict.by_image:
        for setting in dict.fromkeys(change.setting for change in verdict.changes):
            cells = []
            for change in verdict.changes:
                if change.setting == setting:
                    counts: Mapping[str, int] = {
                        "worse": change.worse, "better": change.better, "tie": change.tie, "unusable": change.unusable
                    }  # fmt: skip
                    most = next((kind for kind, count in counts.items() if 2 * count > change.n_runs), "split")
                    cells.append({"kind": most, "counts": counts, "change": change})
            lines.append({"image": verdict.image, "setting": setting, "cells": cells, "outcome": verdict.outcome})
    return lines
