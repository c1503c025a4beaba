"""From raw scores to a result and back: judge a model, recompute a result, rank results.

`make_result` writes down the raw scores and all that follows from them; `recompute` derives the latter
anew from the raw scores and the dataset's rows, trusting nothing else.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import ValidationError

from banana100_bench import __version__, criteria, stats
from banana100_bench.criteria import CONTROLS, FAILED, MISSING, NAN, OK, OUTCOMES, ControlScores, RunScores
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.measures import INFERENCE, measure
from banana100_bench.models.base import ModelInfo
from banana100_bench.protocol import Rounds
from banana100_bench.records import Row, fingerprint
from banana100_bench.result_schema import (
    SCHEMA_VERSION,
    ComparedRounds,
    Concordance,
    ControlScore,
    Coverage,
    DataFacts,
    Hardware,
    ImageScore,
    ModelFacts,
    Outcomes,
    Result,
    StrictPassRate,
    Verdict,
    first_problem,
    json_schema,
    load_result,
)
from banana100_bench.store import Score

__all__ = [
    "Data",
    "Result",
    "data_facts",
    "json_schema",
    "judged_runs",
    "load_result",
    "load_results",
    "make_result",
    "ranks",
    "recompute",
    "run_scores",
    "score_problems",
]

STATUS_CODES = {"ok": OK, "nan": NAN, "failed": FAILED, "timeout": FAILED, "parse_error": FAILED}


class Data(Protocol):
    """What is needed of a `data.Selection`. rows: of every round that was scored, or, for a board, may be."""

    @property
    def name(self) -> str: ...
    @property
    def dataset_fingerprint(self) -> str: ...
    @property
    def rows(self) -> Sequence[Row]: ...


@dataclass(frozen=True)
class _Run:
    """What all rows of a run must agree on."""

    image: str
    setting: str
    group: str
    period: int


def run_scores(rows: Iterable[Row], scores: Mapping[str, Score | ImageScore], higher_is_better: bool) -> RunScores:
    """The scores of `rows`, by image id, as a line for each run and a column for each round; see `RunScores`.

    Round 0, the initial image, belongs to every run that starts from it. Every row needs a score.
    BananaError where rows of one run contradict each other, or where there is no run at all.
    """
    runs: dict[str, _Run] = {}
    cells: dict[tuple[str, int], Score | ImageScore] = {}  # by run, and for round 0 by initial image
    for row in rows:
        if row.run_id is not None:
            if row.setting is None:
                raise BananaError(f"{row.image_id}: a run without a setting")
            run = _Run(row.initial_image, row.setting, row.setting_group or "", row.period)
            if runs.setdefault(row.run_id, run) != run:
                raise BananaError(f"{row.image_id}: {run} contradicts {runs[row.run_id]} of the same run {row.run_id}")
        cell = (row.run_id or row.initial_image, row.round)
        if cell in cells or (row.run_id is None) != (row.round == 0):
            raise BananaError(f"{row.image_id}: expected one image for round {row.round} of {cell[0]}, of a run if > 0")
        cells[cell] = scores[row.image_id]
    if not runs:
        raise BananaError("no run to judge: expected images of the compared rounds")
    ids = sorted(runs)
    rounds = sorted({number for _, number in cells})
    values = np.full((len(ids), len(rounds)), np.nan)
    status = np.full(values.shape, MISSING, np.int8)
    sign = 1.0 if higher_is_better else -1.0
    for line, run_id in enumerate(ids):
        for column, number in enumerate(rounds):
            score = cells.get((run_id if number else runs[run_id].image, number))
            if score is not None:
                status[line, column] = STATUS_CODES[score.status]
                if score.score is not None:
                    values[line, column] = sign * score.score
    return RunScores(
        scores=values,
        status=status,
        rounds=tuple(rounds),
        run_ids=tuple(ids),
        images=tuple(runs[i].image for i in ids),
        settings=tuple(runs[i].setting for i in ids),
        groups=tuple(runs[i].group for i in ids),
        periods=tuple(runs[i].period for i in ids),
    )


def model_facts(info: ModelInfo) -> ModelFacts:
    """`info` as a result file holds it; BananaError where it cannot, as with a control character in the id."""
    try:
        return ModelFacts(
            id=info.id,
            kind=info.kind,
            higher_is_better=info.higher_is_better,
            weights_sha256=info.weights_sha256,
            options=dict(info.options),
            versions=dict(info.versions),
        )
    except ValidationError as error:
        raise BananaError(f"the model {info.id!r:.200} has no place in a result: {first_problem(error)}") from error


def make_result(
    info: ModelInfo,
    data: Data,
    scores: Mapping[str, Score],
    rounds: Rounds,
    controls: Sequence[ControlScore] = (),
) -> Result:
    """Judge the model `info` by its `scores` (by image id; one for every row of `data`) at these `rounds`.

    The result holds the scores in the order of the rows. Rows of rounds that are not compared change neither
    verdict nor rank, but some of the other criteria read them. A setting that shows another state at a compared
    round is left out, and named. controls: scores of harmless edits of the initial images.
    BananaError where a score is absent or is of another image than the row's; UsageError where no setting
    fits the rounds.
    """
    absent = [row.image_id for row in data.rows if row.image_id not in scores]
    if absent:
        raise BananaError(f"no score for {len(absent)} of {len(data.rows)} images, the first {absent[0]}")
    for row in data.rows:
        if scores[row.image_id].sha256 != row.sha256:
            raise BananaError(f"{row.image_id}: the score is of another image, sha256 {scores[row.image_id].sha256}")
    try:
        kept = [
            ImageScore(image_id=s.image_id, sha256=s.sha256, score=s.score, status=s.status)  # type: ignore[arg-type]
            for s in (scores[row.image_id] for row in data.rows)
        ]
        return Result(
            schema_version=SCHEMA_VERSION,
            harness=__version__,
            created_at=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            seconds=(seconds := sum(scores[row.image_id].seconds for row in data.rows)),
            seconds_per_1000_images=1000 * seconds / len(data.rows) if data.rows else 0.0,
            hardware=_hardware(),
            model=model_facts(info),
            rounds=ComparedRounds.of(rounds),
            scores=kept,
            controls=list(controls),
            **_derive(data.rows, kept, controls, info.higher_is_better, rounds, data.name, data.dataset_fingerprint),
        )
    except ValidationError as error:
        raise BananaError(f"the result of {info.id} cannot be written: {first_problem(error)}") from error


def load_results(paths: Iterable[Path]) -> list[Result]:
    """The results in these files, and in all the ``*.json`` directly in folders; BananaError for one that is none."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise BananaError(f"{path}: no such file or folder; expected result JSON files or a folder of them")
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise BananaError(f"{path}: no *.json in it; expected result files")
        found += [file for file in inside if file not in found]
    return [load_result(path) for path in found]


def recompute(result: Result, rows: Sequence[Row], every_criterion: bool = True) -> Result:
    """`result` with all that follows from its raw scores and the dataset's `rows` derived anew.

    every_criterion: False derives no `criteria`, whose intervals take nearly all of the time.

    The rows are those that a valid result covers, at the compared rounds at least; of the others it
    may hold any. BananaError if its scores are not those of the rows (see `score_problems`).
    """
    problems = score_problems(result, rows)
    if problems:
        raise BananaError("; ".join(problems))
    scored = {score.image_id for score in result.scores}
    used = [row for row in rows if row.image_id in scored]
    facts, data = result.model, result.data
    derived = _derive(
        used,
        result.scores,
        result.controls,
        facts.higher_is_better,
        result.rounds.rounds(),
        data.name,
        data.dataset_fingerprint,
        every_criterion,
    )
    return result.model_copy(update=derived)


def score_problems(result: Result, rows: Sequence[Row]) -> list[str]:
    """What is wrong with the raw scores of `result`, were they of `rows`; empty if nothing is."""
    by_id = {row.image_id: row for row in rows}
    scored = Counter(score.image_id for score in result.scores)
    compared = {row.image_id for row in judged_rows(rows, result.rounds.rounds())[0]}
    found = {
        "images scored more than once": sorted(name for name, count in scored.items() if count > 1),
        "images not in the dataset": sorted(scored.keys() - by_id.keys()),
        "images whose sha256 is another than the dataset's": [
            s.image_id for s in result.scores if s.image_id in by_id and by_id[s.image_id].sha256 != s.sha256
        ],
        "images without a score": [
            row.image_id for row in rows if row.image_id in compared and row.image_id not in scored
        ],
    }
    return [f"{what}: {len(names)}, the first {names[0]}" for what, names in found.items() if names]


def ranks(results: Sequence[Result]) -> list[int | None]:
    """The rank of each: by strict pass rate, then concordance; equal in both, equal rank. None if incomplete.

    For complete see `Coverage`. UsageError where the results do
    not judge the same images at the same rounds.
    """
    for other in results[1:]:
        if (other.data.fingerprint, other.rounds) != (results[0].data.fingerprint, results[0].rounds):
            raise UsageError(
                f"{results[0].model.id} and {other.model.id} cannot be ranked together: they were judged on other "
                f"images or rounds ({_basis(results[0])}; {_basis(other)})"
            )
    complete = [i for i, result in enumerate(results) if result.coverage.complete]
    keys = [(results[i].strict_pass_rate.value, results[i].concordance.value) for i in complete]
    place: dict[int, int] = dict(zip(complete, stats.rank_with_ties(keys), strict=True))
    return [place.get(i) for i in range(len(results))]


def _basis(result: Result) -> str:
    simulated = ", simulated" if result.data.simulated else ""
    return (
        f"{result.data.name} {result.data.fingerprint[:12]}{simulated}, "
        f"rounds {', '.join(map(str, result.rounds.rounds().all))}"
    )


def data_facts(rows: Sequence[Row], rounds: Rounds, name: str, dataset_fingerprint: str) -> DataFacts:
    """The facts of these scored `rows`; all but n_rows are about those at `rounds`, which are compared."""
    compared, left_out = judged_rows(rows, rounds)
    in_runs = [row for row in compared if row.run_id is not None]
    return DataFacts(
        name=name,
        dataset_fingerprint=dataset_fingerprint,
        fingerprint=fingerprint((row.image_id, row.sha256) for row in compared),
        simulated=any(row.simulated for row in compared),
        editors=sorted({row.editor for row in in_runs if row.editor is not None}),
        settings=sorted({row.setting for row in in_runs if row.setting is not None}),
        left_out=left_out,
        initial_images=sorted({row.initial_image for row in in_runs}),
        n_rows=len(rows),
        n_runs=len({row.run_id for row in in_runs}),
    )


def judged_rows(rows: Iterable[Row], rounds: Rounds) -> tuple[list[Row], list[str]]:
    """The rows at the compared rounds of the settings that fit them, and the settings that do not.

    Where none fits all are kept: the criteria then refuse them with the reason.
    """
    compared = [row for row in rows if row.round in rounds.all]
    unfit = {row.setting or "" for row in compared if not rounds.fits(row.period)}
    fitting = [row for row in compared if row.run_id is None or row.setting not in unfit]
    if not any(row.run_id is not None for row in fitting):
        return compared, []
    starts = {row.initial_image for row in fitting if row.run_id is not None}
    return [row for row in fitting if row.initial_image in starts], sorted(unfit)


def _derive(
    rows: Sequence[Row],
    scores: Sequence[ImageScore],
    controls: Sequence[ControlScore],
    higher_is_better: bool,
    rounds: Rounds,
    name: str,
    dataset_fingerprint: str,
    every_criterion: bool = True,
) -> dict[str, Any]:
    """The fields of a result that follow from the rows and their raw scores."""
    by_id = {score.image_id: score for score in scores}
    runs = run_scores(judged_rows(rows, rounds)[0], by_id, higher_is_better)
    measured = {}
    if every_criterion:
        every = run_scores(_judged_everywhere(rows, rounds), by_id, higher_is_better)
        measured = measure(every, rounds, _control_scores(controls, runs.image_names, higher_is_better))
    passed = criteria.passes(runs, rounds)
    pass_rates = criteria.ranking(runs, rounds).values[:, 0].tolist()
    status = runs.at(rounds.all).status
    return {
        "data": data_facts(rows, rounds, name, dataset_fingerprint),
        "coverage": Coverage(
            expected=status.size,
            ok=int((status == OK).sum()),
            nan=int((status == NAN).sum()),
            failed=int((status == FAILED).sum()),
            missing=int((status == MISSING).sum()),
        ),
        "verdict": _verdict(criteria.headline(runs), rounds),
        "by_setting": [
            Outcomes(**{name: getattr(verdict, name) for name in Outcomes.model_fields})
            for setting in sorted(set(runs.settings))
            for verdict in [_verdict(runs.select([i for i, s in enumerate(runs.settings) if s == setting]), rounds)]
        ],
        "strict_pass_rate": StrictPassRate(
            value=criteria.strict_pass_rate(runs, rounds),
            chance=criteria.strict_pass_chance(rounds),
            passed=int(passed.sum()),
            n_runs=len(passed),
            by_image=dict(zip(runs.image_names, pass_rates, strict=True)),
        ),
        "concordance": Concordance(value=criteria.concordance(runs, rounds), chance=0.5),
        "inference": INFERENCE,
        "criteria": measured,
    }


def _judged_everywhere(rows: Sequence[Row], rounds: Rounds) -> list[Row]:
    """`judged_rows`, and of the same runs the rows at all other rounds."""
    compared, _ = judged_rows(rows, rounds)
    judged = {row.run_id for row in compared if row.run_id is not None}
    return [*compared, *(row for row in rows if row.run_id in judged and row.round not in rounds.all)]


def judged_runs(result: Result, rows: Sequence[Row]) -> RunScores:
    """The scores that the criteria of `result` read, at every scored round; `rows` are those of its dataset."""
    by_id = {score.image_id: score for score in result.scores}
    scored = [row for row in rows if row.image_id in by_id]
    return run_scores(_judged_everywhere(scored, result.rounds.rounds()), by_id, result.model.higher_is_better)


def _verdict(runs: RunScores, rounds: Rounds) -> Verdict:
    by_image = criteria.verdicts(runs, rounds)
    counts = {outcome: sum(image.outcome == outcome for image in by_image) for outcome in OUTCOMES}
    return Verdict(
        settings=sorted(set(runs.settings)),
        n_images=len(by_image),
        **counts,
        interval=stats.clopper_pearson(counts["detected"], len(by_image)),
        interval_level=stats.LEVEL,
        interval_method="clopper-pearson",
        by_image=by_image,
    )


def _control_scores(
    controls: Sequence[ControlScore], images: Sequence[str], higher_is_better: bool
) -> ControlScores | None:
    """The controls of these initial images as an array; None if there is none. BananaError for one given twice."""
    found: dict[tuple[str, str], ControlScore] = {}
    for control in controls:
        if (control.initial_image, control.control) in found:
            raise BananaError(f"control {control.control} of {control.initial_image}: scored more than once")
        found[control.initial_image, control.control] = control
    of_images = [score for (image, _), score in found.items() if image in images]
    if not of_images:
        return None
    sign = 1.0 if higher_is_better else -1.0
    values = np.full((len(images), len(CONTROLS)), np.nan)
    for score in of_images:
        if score.score is not None:
            values[images.index(score.initial_image), CONTROLS.index(score.control)] = sign * score.score
    return ControlScores(values, used=int((~np.isnan(values)).sum()), expected=len(of_images))


def _hardware() -> Hardware:
    cpu = platform.processor() or platform.machine() or "unknown"
    try:  # Linux names the processor only here
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    except OSError:
        pass
    return Hardware(
        cpu=cpu,
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        platform=platform.platform(terse=True),
        libraries={name: importlib.metadata.version(name) for name in ("numpy", "scipy")},
    )


if __name__ == "__main__":
    import json

    print(json.dumps(json_schema(), indent=2))
