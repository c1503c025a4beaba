"""Metrics of pyiqa (IQA-PyTorch) that score one image without a reference."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import logging
import os
import pickle
import socket
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from banana100_bench.errors import BananaError, UsageError, unknown_name
from banana100_bench.files import sha256_file
from banana100_bench.models.base import ModelInfo, Picture, library_versions, refuse, settle_direction, to_number
from banana100_bench.models.seeding import seeded

_NOT_OF_ONE_IMAGE = {"FID": "a set of images", "InceptionScore": "a set of images", "CLIPScore": "a caption"}
_CONNECT_SECONDS = 10.0


@cache
def _configs() -> dict[str, dict[str, Any]]:
    """pyiqa's own table of metrics, read without importing pyiqa (and torch, which takes seconds); {} if absent."""
    package = importlib.util.find_spec("pyiqa")
    if package is None or not package.submodule_search_locations:
        return {}
    path = Path(package.submodule_search_locations[0]) / "default_model_configs.py"
    table = importlib.util.spec_from_file_location("_banana100_pyiqa_configs", path)
    assert table is not None
    assert table.loader is not None
    module = importlib.util.module_from_spec(table)
    table.loader.exec_module(module)
    return dict(module.DEFAULT_CONFIGS)


def _single_image(config: Mapping[str, Any]) -> bool:
    return config["metric_mode"] == "NR" and config["metric_opts"]["type"] not in _NOT_OF_ONE_IMAGE


def names() -> list[str]:
    """Names of pyiqa's metrics that score one image without a reference; [] where pyiqa is not installed."""
    return sorted(name for name, config in _configs().items() if _single_image(config))


@dataclass(frozen=True)
class PyiqaModel:
    """A metric of pyiqa as a model (models/base.py), on the CPU."""

    info: ModelInfo
    metric: Any

    def score(self, picture: Picture) -> float:
        import torch

        batch = rgb_tensor(picture)
        with _quiet(), seeded(picture.row.sha256), torch.inference_mode():
            return to_number(self.metric(batch))


def rgb_tensor(picture: Picture) -> Any:
    """The pixels as a float32 tensor of shape (1, 3, H, W), RGB in [0, 1]."""
    import numpy as np
    import torch

    pixels = torch.from_numpy(np.array(picture.rgb))
    return pixels.permute(2, 0, 1).unsqueeze(0).contiguous().float().div(255)


def open_pyiqa(
    spec: str,
    *,
    weights: Path | None,
    higher_is_better: bool | None,
    options: Mapping[str, str | int | float | bool],
) -> PyiqaModel:
    """``pyiqa:NAME``: that metric with pyiqa's settings and direction, and its weights or the file `weights`.

    Of a weight file only tensors and MATLAB arrays are loaded, never pickled code. Without a network a
    metric whose weights are not in the cache fails at once, with one line.
    """
    name = spec.partition(":")[2]
    if not _configs():
        raise BananaError(f"{spec}: pyiqa is not installed; it comes with the extra [pyiqa] of banana100-bench")
    config = _configs().get(name)
    if config is None:
        raise unknown_name("pyiqa metric", name, names())
    if config["metric_mode"] != "NR":
        raise UsageError(f"{spec}: needs a reference image; only no-reference metrics can be judged here")
    if not _single_image(config):
        needs = _NOT_OF_ONE_IMAGE[config["metric_opts"]["type"]]
        raise UsageError(f"{spec}: scores {needs}, not one image alone" if "set" in needs else f"{spec}: needs {needs}")
    refuse(spec, options=options)
    direction = settle_direction(spec, not config.get("lower_better", False), higher_is_better, "")
    digest = None
    if weights is not None:
        try:
            digest = sha256_file(weights)
        except OSError as error:
            raise BananaError(f"{spec}: cannot read weights {weights}: {error.strerror or error}") from error
    try:
        metric = _create(name, weights)
    except Exception as error:
        raise BananaError(f"{spec}: {_why(error, weights)}") from error
    info = ModelInfo(
        id=spec,
        kind="pyiqa",
        higher_is_better=direction,
        weights_sha256=digest,
        versions=library_versions("pyiqa", "torch", "torchvision", "numpy", "pillow"),
    )
    return PyiqaModel(info, metric)


def _why(error: Exception, weights: Path | None) -> str:
    """One line on why a metric could not be made."""
    text = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    if weights is not None and isinstance(error, pickle.UnpicklingError):
        return f"weights {weights} refused: it is no file of plain tensors, and pickled code is never run"
    if isinstance(error, OSError):
        more = "further files that it needs besides --weights" if weights else "its weights; pass --weights FILE"
        return f"cannot download {more} ({text[:300]})"
    if isinstance(error, ImportError):
        return f"pyiqa cannot load it ({text[:300]})"
    if weights is not None:
        return f"weights {weights} do not fit this metric ({text[:300]})"
    return f"pyiqa cannot make it ({text[:300]})"


def _create(name: str, weights: Path | None) -> Any:
    """pyiqa's metric `name`, from the Hub's cache where that suffices: without a network, asking takes a minute."""
    try:
        with _hub_offline():
            return _create_once(name, weights)
    except OSError:
        if not _hub_answers():
            raise
    return _create_once(name, weights)


def _create_once(name: str, weights: Path | None) -> Any:
    own = {} if weights is None else {"pretrained_model_path": str(weights)}
    with _quiet(), _tensors_only(weights is not None), _socket_timeout(_CONNECT_SECONDS):
        import pyiqa
        import torch

        metric = pyiqa.create_metric(name, device=torch.device("cpu"), **own)
    if own and "pretrained_model_path" not in inspect.signature(type(metric.net)).parameters:
        raise TypeError("it takes no weight file")
    return metric


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what pyiqa prints, logs and warns off the terminal; progress bars of downloads stay (stderr)."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _tensors_only(enabled: bool) -> Iterator[None]:
    """Make every `torch.load` unpickle tensors alone, though pyiqa asks for ``weights_only=False``."""
    wanted = {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0"} if enabled else {}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """`torch.hub` sets no timeout of its own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@contextlib.contextmanager
def _hub_offline() -> Iterator[None]:
    """Let huggingface_hub use its cache alone."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _hub_answers() -> bool:
    """Whether the Hub can be reached; huggingface_hub itself would try each file for most of a minute."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=_CONNECT_SECONDS)
    except Exception:
        return False
    return True
