"""Models to be judged, each opened by a spec, as ``pyiqa:piqe``, ``metric.py:score``, ``scores:mine.csv``."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from banana100_bench.errors import BananaError, UsageError, unknown_name
from banana100_bench.models import baselines, callables, command, pyiqa_models, score_file, suites, vlm
from banana100_bench.models.base import DEVICES, DTYPES, Asked, Model, ModelInfo, Option, Picture

__all__ = ["OPENERS", "Asked", "Model", "ModelInfo", "Opener", "Picture", "find_device", "known_models", "open_model"]

Opener = Callable[[str, Asked], Model]
"""Makes the model of a whole spec; raises UsageError on what it does not take, BananaError where it cannot."""

OPENERS: dict[str, Opener] = {
    "pyiqa": pyiqa_models.open_pyiqa,
    "vlm": vlm.open_vlm,
    "command": command.open_command,
    "scores": score_file.open_score_file,
    "baseline": baselines.open_baseline,
}
"""Opener by the part of the spec before the first colon; any other spec with a colon names a Python callable."""

DECLARING = ("pyiqa", "vlm", "baseline")
"""Kinds whose models all declare their direction."""

ENTRY_POINTS = "banana100_bench.models"
"""A third party adds its own kind by an entry point of this group: its name is the prefix, its object an `Opener`."""


def open_model(
    spec: str | Callable[..., Any],
    *,
    weights: Path | None = None,
    higher_is_better: bool | None = None,
    options: Mapping[str, Option] | None = None,
    device: str = "cpu",
    dtype: str = "float32",
) -> Model:
    """The model that `spec` names, ready to score.

    spec: ``pyiqa:NAME``, ``vlm:MODEL``, ``command:PROGRAM ARGUMENTS``, ``baseline:NAME``, ``scores:FILE.csv``
        (``.jsonl``, ``.parquet``), one of a third party, or a Python callable or torch.nn.Module,
        ``package.module:object`` or ``path.py:object``, whose code then runs; or such a callable itself.
    weights: a weight file. higher_is_better: the direction, where the model declares none.
    options: by name, as the kind of model takes them. device: "auto", "cpu", "cuda", "cuda:1" or "mps".
    dtype: "float32", "bfloat16" or "float16".
    UsageError for an unknown name or a call that does not fit, BananaError where the model cannot be made.
    """
    if not isinstance(spec, str) and not callable(spec):
        raise UsageError(f"a model is a spec or a callable, not {type(spec).__name__}")
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    asked = Asked(
        weights=weights,
        higher_is_better=higher_is_better,
        options=options or {},
        device=find_device(device),
        dtype=dtype,
    )
    if isinstance(spec, str):
        return _opener(spec)(spec, asked)
    return callables.open_function(spec, asked)


def _opener(spec: str) -> Opener:
    """What opens `spec`; UsageError where it names no one model."""
    prefix, _, name = spec.partition(":")
    if not name:
        known = known_models()
        raise unknown_name("model", spec, [model for model in known if model.endswith(f":{spec}")] or known)
    if prefix == "suite":
        raise UsageError(f"{spec}: a suite is several models; this call takes one: {', '.join(suites.expand([spec]))}")
    return OPENERS.get(prefix) or _third_party(prefix) or callables.open_callable


def find_device(name: str) -> str:
    """`name` as PyTorch takes it, "auto" decided; UsageError where there is no such device here."""
    kind = name.partition(":")[0]
    if kind not in DEVICES:
        raise unknown_name("device", name, DEVICES)
    if name == "cpu":
        return name
    try:
        import torch
    except ImportError:
        if name == "auto":
            return "cpu"
        raise BananaError(f"device {name}: PyTorch is not installed") from None
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return next((device for device, there in present.items() if there), "cpu")
    if not present[kind]:
        raise UsageError(f"device {name}: PyTorch finds none here; choices: auto, cpu")
    return name


def _third_party(prefix: str) -> Opener | None:
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS, name=prefix):
        try:
            opener: Opener = entry.load()
        except Exception as error:
            raise BananaError(f"{prefix}: its opener {entry.value} cannot be loaded: {error}") from error
        return opener
    return None


def known_models() -> list[str]:
    """Specs of the models that need no file: baselines, then pyiqa's where that is installed (it is not imported)."""
    return [f"baseline:{name}" for name in baselines.NAMES] + [f"pyiqa:{name}" for name in pyiqa_models.names()]
