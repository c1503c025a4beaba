"""The whole judgement of one model: score the images it needs, apply the criteria, return the result."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.protocol import Rounds

_LOG = logging.getLogger(__name__)

if TYPE_CHECKING:
    from banana100_bench.data import Selection
    from banana100_bench.engine.scheduler import Plan
    from banana100_bench.models import Model
    from banana100_bench.result_schema import ControlScore
    from banana100_bench.results import Result
    from banana100_bench.scoring import ScoreReport
    from banana100_bench.store import ScoreStore


@dataclass(frozen=True)
class ModelChoice:
    """A model as a person names it: its spec, and what the spec alone does not say.

    spec: as ``pyiqa:piqe`` (see models/), or a Python callable itself. weights: a weight file.
    higher_is_better: the direction where the model does not declare it. options: passed to the model.
    of_suite: named by a suite and not by itself.
    """

    spec: str | Callable[..., Any]
    weights: Path | None = None
    higher_is_better: bool | None = None
    options: Mapping[str, Any] | None = None
    of_suite: bool = False


@dataclass(frozen=True)
class Machine:
    """How to use the machine; every default is what serves most.

    device: auto, cpu, cuda, cuda:1 or mps. dtype: float32, bfloat16 or float16. workers: processes, 0 for this
    process itself, None for as many as there are cores for (as memory admits them: engine/scheduler.py).
    threads: for each, None for what the cores allow. batch: the most pictures at a time, for models that take
    several. repeats: how often a model that draws random numbers is asked. max_pixels: larger pictures are made
    smaller. timeout: seconds for a picture. engine: local or ray.
    """

    device: str = "cpu"
    dtype: str = "float32"
    workers: int | None = None
    threads: int | None = None
    batch: int = 1
    repeats: int = 1
    max_pixels: int | None = None
    timeout: float | None = None
    engine: str = "local"

    def plan(self, models: Sequence[Model], images: int) -> Plan:
        """The plan for these models and so many images; UsageError for what cannot be done here."""
        from banana100_bench.engine import machine
        from banana100_bench.engine.scheduler import Plan
        from banana100_bench.models import find_device
        from banana100_bench.models.base import looks

        workers, cores = self.workers, machine.cores()
        forks = sys.platform == "linux" and find_device(self.device) == "cpu"
        if workers is None:
            workers = min(images, max(1, cores // (self.threads or 1)))
            if not forks or not any(map(looks, models)):
                workers = 0
            elif any(model.info.kind == "command" for model in models):
                workers = 1  # each worker would start its own program
        elif workers and not forks:
            raise UsageError(f"--workers {workers}: only on the CPU of Linux; use 0, or --engine ray")
        if self.timeout is not None and not workers:
            if self.workers == 0 or not forks:
                raise UsageError(f"--timeout {self.timeout:g}: needs worker processes, on the CPU of Linux")
            workers = 1
        return Plan(
            workers=workers,
            threads=self.threads,
            cores=cores,
            batch=self.batch,
            repeats=self.repeats,
            max_pixels=self.max_pixels,
            timeout=self.timeout,
            calibrate=self.workers is None and self.threads is None and workers > 1,
        )


def _choice(
    model: ModelChoice | str | Callable[..., Any], higher_is_better: bool | None, weights: Path | None
) -> ModelChoice:
    choice = model if isinstance(model, ModelChoice) else ModelChoice(model)
    if higher_is_better is not None:
        choice = dataclasses.replace(choice, higher_is_better=higher_is_better)
    return choice if weights is None else dataclasses.replace(choice, weights=Path(weights))


def score(
    model: ModelChoice | str | Callable[..., Any],
    data: Selection,
    store: Path,
    machine: Machine | None = None,
    *,
    higher_is_better: bool | None = None,
    weights: Path | None = None,
) -> ScoreReport:
    """Score every image of `data` with `model`, keeping the scores in the folder `store`.

    model: a spec, or a Python function or torch.nn.Module itself (models/callables.py `open_function`).
    higher_is_better: the direction, where the model declares none. weights: a weight file.
    What the store already holds is not computed again. BananaError if every image fails.
    """
    (report,), _ = score_all([_choice(model, higher_is_better, weights)], data, store, machine)
    return report.check()


def score_all(
    models: Sequence[ModelChoice | str], data: Selection, store: Path, machine: Machine | None = None
) -> tuple[list[ScoreReport], list[str]]:
    """Score every image of `data` with every model, in one process start and with one decode of each image.

    Also gives one line for each model of a suite that cannot be opened here; a model that was named by itself
    raises what opening it raises, before anything is scored.
    """
    from banana100_bench.store import ScoreStore

    machine = machine or Machine()
    opened, skipped = _open_all(models, machine)
    return _score(opened, data, ScoreStore(store), machine), skipped


def _score(
    opened: Sequence[tuple[ModelChoice, Model]], data: Selection, store: ScoreStore, machine: Machine
) -> list[ScoreReport]:
    from banana100_bench import scoring

    if machine.engine == "ray":
        from banana100_bench.engine import ray_engine

        return ray_engine.score_all(opened, data, store, machine)
    models = [model for _, model in opened]
    return scoring.score_all(models, data, store, machine.plan(models, len(data.rows)))


def _open_all(
    models: Sequence[ModelChoice | str], machine: Machine
) -> tuple[list[tuple[ModelChoice, Model]], list[str]]:
    """The models that can be opened, and a line for each of a suite that cannot."""
    opened, skipped = [], []
    for model in models:
        choice = ModelChoice(model) if isinstance(model, str) else model
        try:
            opened.append((choice, open_choice(choice, machine)))
        except BananaError as error:
            if not choice.of_suite:
                raise
            skipped.append(str(error))
    if not opened:
        raise BananaError(f"no model of the suite can be opened here; the first: {skipped[0]}")
    return opened, skipped


def open_choice(choice: ModelChoice, machine: Machine) -> Model:
    """The model, ready to score on that machine."""
    from banana100_bench.models import open_model

    return open_model(
        choice.spec,
        weights=choice.weights,
        higher_is_better=choice.higher_is_better,
        options=choice.options,
        device=machine.device,
        dtype=machine.dtype,
    )


def evaluate(
    model: ModelChoice | str | Callable[..., Any],
    data: str | Path | Selection,
    *,
    rounds: Rounds | None = None,
    more_rounds: Collection[int] = (),
    store: Path = Path("scores"),
    controls: bool = True,
    machine: Machine | None = None,
    higher_is_better: bool | None = None,
    weights: Path | None = None,
) -> Result:
    """Score `model` on the dataset `data` and judge it by the degradation-ordering criteria.

    model, higher_is_better, weights: as in `score`.
    data: a dataset folder, or a selection of one (`banana100_bench.data.open_data`).
    rounds: what is compared; default the paper's, 1 with 5, 10 and 20.
    more_rounds: scored as well, for curves and correlations; they change neither verdict nor rank.
    controls: score harmless edits of the initial images as well, for false-alarm rates (see controls.py).
    """
    from banana100_bench.data import open_data

    rounds = rounds or Rounds()
    if isinstance(data, str | Path):
        data = open_data(data, rounds={*rounds.all, *more_rounds})
    choice = _choice(model, higher_is_better, weights)
    judged = evaluate_all([choice], data, rounds=rounds, store=store, controls=controls, machine=machine)
    if judged.problems:
        raise BananaError(judged.problems[0])
    return judged.results[0]


@dataclass(frozen=True)
class Judged:
    """What `evaluate_all` came to: the results, the files made, and a line for each model that has no result."""

    results: Sequence[Result]
    files: Sequence[Path]
    problems: Sequence[str]


def evaluate_all(
    models: Sequence[ModelChoice | str],
    data: Selection,
    *,
    rounds: Rounds | None = None,
    store: Path = Path("scores"),
    controls: bool = True,
    machine: Machine | None = None,
    out: Path | None = None,
) -> Judged:
    """Score `models` together, judge each, and write a result JSON and a figure of each into folder `out`, if given.

    A model of a suite that cannot be opened, or a model that fails on every image, costs the others nothing.
    Raises, before anything is scored, where no run has a round that is to be compared, where a model that was
    named by itself cannot be opened, where `out` cannot be written, or where two results would take the same
    file (see `_claim`).
    """
    from banana100_bench.results import make_result
    from banana100_bench.store import ScoreStore

    rounds, machine = rounds or Rounds(), machine or Machine()
    there = {row.round for row in data.rows}
    absent = [number for number in rounds.all if number not in there]
    if absent:
        raise UsageError(
            f"{data.name}: no image of round {absent[0]}, which is to be compared; rounds there, of those asked for: "
            f"{', '.join(map(str, sorted(there)))}"
        )
    opened, problems = _open_all(models, machine)
    if out is not None:
        _claim(out, [model for _, model in opened], data, rounds)
    scored = []
    for (_, model), report in zip(opened, _score(opened, data, ScoreStore(store), machine), strict=True):
        for line in report.warnings:
            _LOG.warning("%s: %s", report.info.id, line)
        try:
            scored.append((model, report.check()))
        except BananaError as error:
            problems.append(str(error))
    able = [model for model, _ in scored]
    controlled = _score_controls(able, data, ScoreStore(store), machine) if controls and able else {}
    results = [
        make_result(report.info, data, report.scores, rounds, controlled.get(number, []))
        for number, (_, report) in enumerate(scored)
    ]
    return Judged(results, save(results, data, out) if out is not None else [], problems)


def _claim(out: Path, models: Sequence[Model], data: Selection, rounds: Rounds) -> None:
    """Refuse, before hours of scoring, what could not be written after them or would take another's place.

    A file in `out` is replaced by a newer result of the same model id on the same images and rounds, by no other.
    """
    from banana100_bench.files import check_folder
    from banana100_bench.results import data_facts, load_result, model_facts

    compared = data_facts(data.rows, rounds, data.name, data.dataset_fingerprint).fingerprint
    taken: dict[str, str] = {}
    for model in models:
        facts = model_facts(model.info)
        if facts.file_stem in taken:
            raise UsageError(
                f"{taken[facts.file_stem]} and {facts.id}: both results would be {facts.file_stem}.json; "
                "evaluate them one by one, each with an --out of its own"
            )
        taken[facts.file_stem] = facts.id
        path = Path(out) / f"{facts.file_stem}.json"
        if path.exists():
            other = load_result(path)
            if (other.model.id, other.data.fingerprint, other.rounds.rounds()) != (facts.id, compared, rounds):
                raise UsageError(
                    f"{path}: holds the result of {other.model.id} on {other.data.name} at rounds "
                    f"{', '.join(map(str, other.rounds.rounds().all))}, on other images, rounds or of another model; "
                    "choose another --out"
                )
    check_folder(out)


def _score_controls(
    models: Sequence[Model], data: Selection, store: ScoreStore, machine: Machine
) -> dict[int, list[ControlScore]]:
    """The scores of the controls, by the model's place; none where the dataset has no initial images or the model
    only knows its own."""
    from banana100_bench import scoring
    from banana100_bench.controls import make_controls
    from banana100_bench.result_schema import ControlScore

    numbers = [number for number, model in enumerate(models) if model.info.kind != "file"]
    made = make_controls(data) if numbers else None  # a score file has no score of new images
    if made is None:
        return {}
    able = [models[number] for number in numbers]
    found = {}
    for number, report in zip(
        numbers, scoring.score_all(able, made, store, machine.plan(able, len(made.rows))), strict=True
    ):
        try:
            scores = report.check().scores
        except BananaError as error:
            _LOG.warning("%s: no false-alarm rates, as the controls cannot be scored: %s", report.info.id, error)
            continue
        found[number] = [
            ControlScore(
                initial_image=image,
                control=control,
                sha256=scores[name].sha256,
                score=scores[name].score,
                status=scores[name].status,  # type: ignore[arg-type]
            )
            for name, (image, control) in made.names.items()
        ]
    return found


def save(results: Sequence[Result], data: Selection, out: Path) -> list[Path]:
    """Write a result JSON and a figure of score against round for each of `results` into folder `out`.

    Returns the paths, JSON before figure. The files of a model are named by its id.
    """
    from banana100_bench.report.figures import score_by_round

    paths = []
    for result in results:
        name = result.file_stem
        json_path, figure_path = Path(out) / f"{name}.json", Path(out) / f"{name}.png"
        result.save(json_path)
        score_by_round(result, data.rows, figure_path)
        paths += [json_path, figure_path]
    return paths
