"""The whole judgement of one model: score the images it needs, apply the criteria, return the result."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from banana100_bench.protocol import Rounds

_LOG = logging.getLogger(__name__)

if TYPE_CHECKING:
    from banana100_bench.data import Selection
    from banana100_bench.models.base import Model
    from banana100_bench.result_schema import ControlScore
    from banana100_bench.results import Result
    from banana100_bench.scoring import ScoreReport
    from banana100_bench.store import ScoreStore


@dataclass(frozen=True)
class ModelChoice:
    """A model as a person names it: its spec, and what the spec alone does not say.

    spec: as ``pyiqa:piqe`` (see models/). weights: a weight file. higher_is_better: the direction
    where the model does not declare it. options: passed to the model.
    """

    spec: str
    weights: Path | None = None
    higher_is_better: bool | None = None
    options: Mapping[str, Any] | None = None


def score(model: ModelChoice | str, data: Selection, store: Path) -> ScoreReport:
    """Score every image of `data` with `model`, keeping the scores in the folder `store`.

    What the store already holds is not computed again. BananaError if every image fails.
    """
    from banana100_bench import scoring
    from banana100_bench.store import ScoreStore

    return scoring.score(_open(model), data, ScoreStore(store))


def _open(model: ModelChoice | str) -> Model:
    from banana100_bench.models import open_model

    choice = ModelChoice(model) if isinstance(model, str) else model
    return open_model(
        choice.spec, weights=choice.weights, higher_is_better=choice.higher_is_better, options=choice.options
    )


def evaluate(
    model: ModelChoice | str,
    data: str | Path | Selection,
    *,
    rounds: Rounds | None = None,
    more_rounds: Collection[int] = (),
    store: Path = Path("scores"),
    controls: bool = True,
) -> Result:
    """Score `model` on the dataset `data` and judge it by the degradation-ordering criteria.

    data: a dataset folder, or a selection of one (`banana100_bench.data.open_data`).
    rounds: what is compared; default the paper's, 1 with 5, 10 and 20.
    more_rounds: scored as well, for curves and correlations; they change neither verdict nor rank.
    controls: score harmless edits of the initial images as well, for false-alarm rates (see controls.py).
    """
    from banana100_bench import scoring
    from banana100_bench.data import open_data
    from banana100_bench.results import make_result
    from banana100_bench.store import ScoreStore

    rounds = rounds or Rounds()
    if isinstance(data, str | Path):
        data = open_data(data, rounds={*rounds.all, *more_rounds})
    opened = _open(model)
    report = scoring.score(opened, data, ScoreStore(store))
    for line in report.warnings:
        _LOG.warning("%s: %s", report.info.id, line)
    controlled = _score_controls(opened, data, ScoreStore(store)) if controls else []
    return make_result(report.info, data, report.scores, rounds, controlled)


def _score_controls(model: Model, data: Selection, store: ScoreStore) -> list[ControlScore]:
    """The scores of the controls; none where the dataset has no initial images or the model only knows its own."""
    from banana100_bench import scoring
    from banana100_bench.controls import make_controls
    from banana100_bench.errors import BananaError
    from banana100_bench.result_schema import ControlScore

    made = make_controls(data) if model.info.kind != "file" else None  # a score file has no score of new images
    if made is None:
        return []
    try:
        scores = scoring.score(model, made, store).scores
    except BananaError as error:
        _LOG.warning("%s: no false-alarm rates, as the controls cannot be scored: %s", model.info.id, error)
        return []
    return [
        ControlScore(
            initial_image=image,
            control=control,
            sha256=scores[name].sha256,
            score=scores[name].score,
            status=scores[name].status,  # type: ignore[arg-type]
        )
        for name, (image, control) in made.names.items()
    ]


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
