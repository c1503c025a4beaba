"""The user's own Python function from an image to a number, as ``package.module:object`` or ``path.py:object``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import operator
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file
from banana100_bench.models.base import ModelInfo, Picture, library_versions, refuse, settle_direction, to_number
from banana100_bench.models.seeding import seeded

INPUTS = ("pil", "numpy", "torch")
_BY_ANNOTATION = {"Image": "pil", "ndarray": "numpy", "NDArray": "numpy", "Tensor": "torch"}
_PACKAGES = {"pil": ("pillow",), "numpy": ("pillow", "numpy"), "torch": ("pillow", "numpy", "torch")}


@dataclass(frozen=True)
class CallableModel:
    """A Python callable as a model (models/base.py).

    input: what it is handed: "pil" an RGB PIL.Image.Image, "numpy" a uint8 array H x W x 3, "torch" a
        float32 tensor 1 x 3 x H x W in [0, 1].
    """

    info: ModelInfo
    function: Callable[[Any], Any]
    input: str

    def score(self, picture: Picture) -> float:
        with seeded(picture.row.sha256):
            return to_number(self._call(picture))

    def _call(self, picture: Picture) -> Any:
        if self.input == "pil":
            return self.function(picture.rgb.copy())  # other models may share the picture
        if self.input == "numpy":
            import numpy as np

            return self.function(np.array(picture.rgb))
        import torch

        from banana100_bench.models.pyiqa_models import rgb_tensor

        with torch.inference_mode():
            return self.function(rgb_tensor(picture))


def open_callable(
    spec: str,
    *,
    weights: Path | None,
    higher_is_better: bool | None,
    options: Mapping[str, str | int | float | bool],
) -> CallableModel:
    """Import the callable that `spec` names; its module's code runs, with the caller's rights.

    The callable may carry the attributes ``higher_is_better`` (else the caller says) and ``input`` (one of
    INPUTS; else the annotation of its first argument tells, else "pil"). The SHA-256 of the file it stands
    in is among the options, so that an edited file is another model; what that file imports is not.
    """
    refuse(spec, weights=weights, options=options)
    place, _, name = spec.rpartition(":")
    module = _load_file(spec, Path(place)) if place.endswith(".py") else _load_module(spec, place)
    try:
        function = operator.attrgetter(name)(module)
    except AttributeError as error:
        public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UsageError(f"{spec}: {place} has no {name!r}; callables there: {', '.join(public) or 'none'}") from error
    if inspect.isclass(function) or not callable(function):
        kind = "a class; name an instance of it" if inspect.isclass(function) else type(function).__name__
        raise UsageError(f"{spec}: is {kind}, expected a function from an image to a number")
    declared = getattr(function, "higher_is_better", None)
    if declared is not None and not isinstance(declared, bool):
        raise UsageError(f"{spec}: its higher_is_better is {declared!r}, expected True or False")
    direction = settle_direction(spec, declared, higher_is_better, f", or set {name}.higher_is_better = True or False")
    form = _input(spec, function)
    info = ModelInfo(
        id=f"{Path(place).name}:{name}" if place.endswith(".py") else spec,
        kind="callable",
        higher_is_better=direction,
        options=_source(module) | {"input": form},
        versions=library_versions(*_PACKAGES[form]),
    )
    return CallableModel(info, function, form)


def _load_module(spec: str, name: str) -> ModuleType:
    """Import module `name`, which may also lie in the working directory."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # last, so that nothing there hides an installed package
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"{spec}: no module {error.name}; a spec begins with pyiqa:, baseline:, scores:, a module or a file.py"
            ) from error
        raise _cannot_import(spec, name, error) from error


def _load_file(spec: str, path: Path) -> ModuleType:
    """Run the Python file at `path` as a module; what lies beside it can be imported."""
    if not path.is_file():
        raise UsageError(f"{spec}: no such file {path}")
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    loader = importlib.util.spec_from_file_location(f"_banana100_callable_{path.stem}_{sha256_file(path)[:12]}", path)
    assert loader is not None
    assert loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    sys.modules[loader.name] = module  # as import does, for dataclasses and pickle
    try:
        loader.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[loader.name]
        raise _cannot_import(spec, str(path), error) from error
    return module


def _cannot_import(spec: str, what: str, error: BaseException) -> BananaError:
    return BananaError(f"{spec}: cannot import {what}: {type(error).__name__}: {str(error)[:300]}")


def _source(module: ModuleType) -> dict[str, str | int | float | bool]:
    file = getattr(module, "__file__", None)
    return {"source_sha256": sha256_file(Path(file))} if file else {}


def _input(spec: str, function: Callable[..., Any]) -> str:
    """Which of INPUTS the callable wants: its attribute `input`, else the annotation of its first argument."""
    declared = getattr(function, "input", None)
    if declared is not None:
        if declared not in INPUTS:
            raise UsageError(f"{spec}: its input is {declared!r}; choices: {', '.join(INPUTS)}")
        return str(declared)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a function of compiled code may have none to show
        return "pil"
    if not parameters:
        raise UsageError(f"{spec}: takes no argument, expected one: the image")
    annotation = parameters[0].annotation
    if annotation in (inspect.Parameter.empty, Any, object, "Any", "object"):
        return "pil"
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    form = _BY_ANNOTATION.get(re.sub(r"\[.*\]$", "", text).rpartition(".")[2])
    if form is None:
        raise UsageError(
            f"{spec}: its first argument is annotated {text}; expected PIL.Image.Image, numpy.ndarray or "
            f"torch.Tensor, or an attribute input = {' | '.join(INPUTS)}"
        )
    return form
