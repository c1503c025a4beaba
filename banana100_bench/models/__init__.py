"""Models to be judged, each opened by a spec, as ``pyiqa:piqe``, ``metric.py:score``, ``scores:mine.csv``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from banana100_bench.errors import unknown_name
from banana100_bench.models import baselines, callables, pyiqa_models, score_file
from banana100_bench.models.base import Model, ModelInfo, Picture

__all__ = ["OPENERS", "Model", "ModelInfo", "Opener", "Picture", "known_models", "open_model"]


class Opener(Protocol):
    """Makes the model of a whole `spec`; raises UsageError on what it does not take, BananaError where it cannot."""

    def __call__(
        self,
        spec: str,
        *,
        weights: Path | None,
        higher_is_better: bool | None,
        options: Mapping[str, str | int | float | bool],
    ) -> Model: ...


OPENERS: dict[str, Opener] = {
    "pyiqa": pyiqa_models.open_pyiqa,
    "scores": score_file.open_score_file,
    "baseline": baselines.open_baseline,
}
"""Opener by the part of the spec before the first colon; any other spec with a colon names a Python callable."""


def open_model(
    spec: str,
    *,
    weights: Path | None = None,
    higher_is_better: bool | None = None,
    options: Mapping[str, str | int | float | bool] | None = None,
) -> Model:
    """The model that `spec` names, ready to score.

    spec: ``pyiqa:NAME``, ``baseline:NAME``, ``scores:FILE.csv`` (``.jsonl``, ``.parquet``), or a Python
        callable, ``package.module:object`` or ``path.py:object``, whose code then runs.
    weights: a weight file (pyiqa). higher_is_better: the direction, where the model declares none.
    options: by name; ``seed`` of ``baseline:random`` is the only one at present.
    UsageError for an unknown name or a call that does not fit, BananaError where the model cannot be made.
    """
    prefix, _, name = spec.partition(":")
    if not name:
        known = known_models()
        raise unknown_name("model", spec, [model for model in known if model.endswith(f":{spec}")] or known)
    opener = OPENERS.get(prefix, callables.open_callable)
    return opener(spec, weights=weights, higher_is_better=higher_is_better, options=options or {})


def known_models() -> list[str]:
    """Specs of the models that need no file: baselines, then pyiqa's where that is installed (it is not imported)."""
    return [f"baseline:{name}" for name in baselines.NAMES] + [f"pyiqa:{name}" for name in pyiqa_models.names()]
