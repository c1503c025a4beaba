"""banana100-bench: is your no-reference image quality metric blind to iterative degradation?

The public verbs, each loaded when first used:

load(source, config)        the dataset as a `datasets.Dataset`
open_data(source, ...)      a selection of its rows, with their encoded images
score(model, data, store)   raw scores of a model, kept in a store
evaluate(model, data)       score and judge: a `results.Result`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from banana100_bench.data import load, open_data
    from banana100_bench.harness import evaluate, score

_HOMES = {"load": "data", "open_data": "data", "score": "harness", "evaluate": "harness"}
__all__ = ["evaluate", "load", "open_data", "score"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
