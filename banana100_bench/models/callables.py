"""The user's own Python function or torch.nn.Module from an image to a number, as ``package.module:object``.

Or ``path.py:object``, of a file.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import inspect
import logging
import operator
import re
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from banana100_bench.errors import BananaError, UsageError, message_of
from banana100_bench.models.base import (
    Asked,
    ModelInfo,
    Option,
    Picture,
    library_versions,
    refuse,
    settle_direction,
    to_number,
    to_numbers,
)
from banana100_bench.models.tensors import autocast, rgb_tensor, weights_digest
from banana100_bench.user_code import find, guarded, is_installed, load_file, load_module, source_sha256

_LOG = logging.getLogger(__name__)
INPUTS = ("pil", "numpy", "torch")
_EXPECTED = "a spec begins with pyiqa:, vlm:, command:, baseline:, scores:, a module or a file.py"
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
    device: str = "cpu"
    dtype: str = "float32"

    def score(self, picture: Picture) -> float:
        return to_number(self._call(picture))

    def _call(self, picture: Picture) -> Any:
        if self.input == "pil":
            return self.function(picture.rgb.copy())  # other models may share the picture
        if self.input == "numpy":
            import numpy as np

            return self.function(np.array(picture.rgb))
        return self._call_torch([picture])

    def _call_torch(self, pictures: Sequence[Picture]) -> Any:
        import torch

        batch = torch.cat([rgb_tensor(picture, self.device) for picture in pictures])
        with torch.inference_mode(), autocast(self.device, self.dtype):
            return self.function(batch)


class BatchedCallable(CallableModel):
    """One that says ``batched = True``: it takes a tensor N x 3 x H x W and gives N numbers."""

    def score_batch(self, pictures: Sequence[Picture]) -> list[float]:
        return to_numbers(self._call_torch(pictures), len(pictures))


def open_callable(spec: str, asked: Asked) -> CallableModel:
    """Import the callable that `spec` names; its module's code runs, with the caller's rights.

    It may be a function, an object that can be called, or a class of torch.nn.Module, of which one is made.
    The callable may carry the attributes ``higher_is_better`` (else the caller says), ``input`` (one of
    INPUTS; else the annotation of its first argument tells, else "torch" for a module and "pil" for the rest)
    and ``batched = True``. The options are handed to the function by keyword, or to the class when it is made; the
    weight file, tensors alone, is loaded into a module. The SHA-256 of the files it stands in and imports is
    among the options (`user_code.source_sha256`), so that an edited file is another model; of an installed package
    the version is named as well.
    """
    place, _, name = spec.rpartition(":")
    module = load_file(spec, Path(place)) if place.endswith(".py") else load_module(spec, place, _EXPECTED)
    function = find(spec, module, place, name)
    model_id = f"{Path(place).name}:{name}" if place.endswith(".py") else spec
    return _make(model_id, spec, module, function, asked, None)


def open_function(function: Callable[..., Any], asked: Asked) -> CallableModel:
    """A callable itself as a model, as a notebook has it; its id is ``module:qualname``, else as `open_callable`.

    Only what a module with a file holds under that name has a source that can be told from an edited one. Any
    other (of a notebook's cell, a lambda, a closure, an instance) gets a key of its own at each call, so that
    none of its scores is taken for a later one's.
    """
    place = getattr(function, "__module__", None) or type(function).__module__
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module, spec = sys.modules.get(place), f"{place}:{name}"
    fresh: str | None = secrets.token_hex(16)
    if module is not None and getattr(module, "__file__", None):
        with contextlib.suppress(AttributeError):
            fresh = None if operator.attrgetter(name)(module) is function else fresh
    if fresh:
        _LOG.warning("%s: not an object of a module's file, so a later call computes its scores anew", spec)
    return _make(spec, spec, module, function, asked, fresh)


def _make(
    model_id: str, spec: str, module: ModuleType | None, function: Any, asked: Asked, fresh: str | None
) -> CallableModel:
    """The model. fresh: what stands in its key for a source that cannot be known."""
    name = spec.rpartition(":")[2]
    given = dict(asked.options)
    network = _is_network(function)
    if network and inspect.isclass(function):
        try:
            with guarded():
                function = function(**given)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise BananaError(f"{spec}: cannot make one: {type(error).__name__}: {message_of(error)[:300]}") from error
    elif inspect.isclass(function) or not callable(function):
        kind = "a class; name an instance of it" if inspect.isclass(function) else type(function).__name__
        raise UsageError(f"{spec}: is {kind}, expected a function from an image to a number")
    if not network:
        refuse(spec, weights=asked.weights)
    declared = getattr(function, "higher_is_better", None)
    if declared is not None and not isinstance(declared, bool):
        raise UsageError(f"{spec}: its higher_is_better is {declared!r}, expected True or False")
    own: dict[str, Option] = {"unknown_source": fresh} if fresh else {}
    if module is not None and not fresh and (source := source_sha256(spec, module, function)):
        own["source_sha256"] = source
    direction = settle_direction(
        spec, declared, asked.higher_is_better, f", or set {name}.higher_is_better = True or False"
    )
    form = _input(spec, function, "torch" if network else "pil")
    batched = form == "torch" and getattr(function, "batched", False) is True
    if network:
        _prepare(spec, function, asked)
    elif given:
        function = functools.partial(function, **given)
    info = ModelInfo(
        id=model_id,
        kind="callable",
        higher_is_better=direction,
        weights_sha256=weights_digest(function) if network else None,
        options=given | own | {"input": form} | (asked.torch_options() if form == "torch" else {}),
        versions=library_versions(*_PACKAGES[form]) | (_distribution(module) if module is not None else {}),
    )
    return (BatchedCallable if batched else CallableModel)(info, function, form, asked.device, asked.dtype)


def _is_network(thing: Any) -> bool:
    """Whether it is a torch.nn.Module or a class of them; without importing PyTorch, which it must have done itself."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return isinstance(thing, torch.nn.Module) or (inspect.isclass(thing) and issubclass(thing, torch.nn.Module))


def _prepare(spec: str, network: Any, asked: Asked) -> None:
    """Load the weights, if any, and make the network ready to be asked."""
    import torch

    if asked.weights is not None:
        try:
            network.load_state_dict(torch.load(asked.weights, map_location="cpu", weights_only=True))
        except Exception as error:
            line = (str(error).strip().splitlines() or [""])[0]
            raise BananaError(f"{spec}: weights {asked.weights}: {type(error).__name__}: {line[:300]}") from error
    network.eval().to(asked.device)


def _distribution(module: ModuleType) -> dict[str, str]:
    """Name and version of the installed package that `module` is of, if it is of one."""
    file = getattr(module, "__file__", None)
    if file is None or not is_installed(Path(file)):
        return {}
    names = importlib.metadata.packages_distributions().get(module.__name__.partition(".")[0], [])
    return {name: importlib.metadata.version(name) for name in names}


def _input(spec: str, function: Callable[..., Any], usual: str) -> str:
    """Which of INPUTS the callable wants: its attribute `input`, else the annotation of its first argument."""
    declared = getattr(function, "input", None)
    if declared is not None:
        if declared not in INPUTS:
            raise UsageError(f"{spec}: its input is {declared!r}; choices: {', '.join(INPUTS)}")
        return str(declared)
    if usual == "torch":
        return usual  # a network's __call__ shows no arguments
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a function of compiled code may have none to show
        return usual
    if not parameters:
        raise UsageError(f"{spec}: takes no argument, expected one: the image")
    annotation = parameters[0].annotation
    if annotation in (inspect.Parameter.empty, Any, object, "Any", "object"):
        return usual
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    form = _BY_ANNOTATION.get(re.sub(r"\[.*\]$", "", text).rpartition(".")[2])
    if form is None:
        raise UsageError(
            f"{spec}: its first argument is annotated {text}; expected PIL.Image.Image, numpy.ndarray or "
            f"torch.Tensor, or an attribute input = {' | '.join(INPUTS)}"
        )
    return form
