"""Metrics of pyiqa (IQA-PyTorch) that score one image without a reference."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import logging
import os
import pickle
import socket
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from banana100_bench.errors import BananaError, UsageError, unknown_name
from banana100_bench.files import sha256_file
from banana100_bench.models.base import (
    Asked,
    ModelInfo,
    Option,
    Picture,
    library_versions,
    settle_direction,
    to_number,
    to_numbers,
)
from banana100_bench.models.tensors import autocast, rgb_tensor, weights_digest

_NOT_OF_ONE_IMAGE = {"FID": "a set of images", "InceptionScore": "a set of images", "CLIPScore": "a caption"}
_REMOTE_CODE = ("QAlign", "Compare2Score")  # they run Python that comes with the weights
_LARGE = ("QAlign", "QReAlign")  # several billion parameters
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


def families() -> list[str]:
    """One metric for each kind of architecture, the first that pyiqa lists.

    Left out are judges of several billion parameters, and what runs code that comes with its weights.
    """
    first: dict[str, str] = {}
    for name, config in _configs().items():
        kind = config["metric_opts"]["type"]
        if _single_image(config) and kind not in (*_REMOTE_CODE, *_LARGE):
            first.setdefault(kind, name)
    return sorted(first.values())


def facts(name: str) -> tuple[bool, str]:
    """Whether a higher score is better, and pyiqa's rough range, as ``0, 100``."""
    config = _configs()[name]
    return not config.get("lower_better", False), str(config.get("score_range", ""))


@dataclass(frozen=True)
class PyiqaModel:
    """A metric of pyiqa as a model (models/base.py)."""

    info: ModelInfo
    metric: Any
    device: str = "cpu"
    dtype: str = "float32"

    def score(self, picture: Picture) -> float:
        return to_number(self._call([picture]))

    def score_batch(self, pictures: Sequence[Picture]) -> list[float]:
        return to_numbers(self._call(pictures), len(pictures))

    def _call(self, pictures: Sequence[Picture]) -> Any:
        import torch

        batch = torch.cat([rgb_tensor(picture, self.device) for picture in pictures])
        with _quiet(), torch.inference_mode(), autocast(self.device, self.dtype):
            try:
                return self.metric(batch)
            except RuntimeError as error:
                if "view size is not compatible" not in str(error):
                    raise
                self.metric.to(memory_format=torch.contiguous_format)  # its code holds for no other layout
                return self.metric(batch)


def open_pyiqa(spec: str, asked: Asked) -> PyiqaModel:
    """``pyiqa:NAME``: that metric with pyiqa's settings and direction, and its weights or the file `asked.weights`.

    The options are those of the metric's architecture, as ``crop_size=384``. Of a weight file only tensors and
    MATLAB arrays are loaded, never pickled code. Without a network a metric whose weights are not in the
    cache fails at once, with one line that names the file. A metric that runs code that comes with its weights is
    refused but with the option ``trust_remote_code=true``.
    """
    name = spec.partition(":")[2]
    weights = asked.weights
    if not _configs():
        raise BananaError(f"{spec}: pyiqa is not installed; it comes with the extra [pyiqa] of banana100-bench")
    config = _configs().get(name)
    if config is None:
        raise unknown_name("pyiqa metric", name, names())
    if config["metric_mode"] != "NR":
        raise UsageError(f"{spec}: needs a reference image; only no-reference metrics can be judged here")
    kind = config["metric_opts"]["type"]
    if not _single_image(config):
        needs = _NOT_OF_ONE_IMAGE[kind]
        raise UsageError(f"{spec}: scores {needs}, not one image alone" if "set" in needs else f"{spec}: needs {needs}")
    options = {key: _value(value) for key, value in asked.options.items()}
    if "pretrained_model_path" in options:
        raise UsageError(f"{spec}: name the weight file by --weights")
    if options.pop("trust_remote_code", False) is not True and kind in _REMOTE_CODE:
        raise UsageError(
            f"{spec}: runs Python code that comes with its weights; --option trust_remote_code=true allows it"
        )
    direction = settle_direction(spec, not config.get("lower_better", False), asked.higher_is_better, "")
    digest = None
    if weights is not None:
        try:
            digest = sha256_file(weights)
        except OSError as error:
            raise BananaError(f"{spec}: cannot read weights {weights}: {error.strerror or error}") from error
    try:
        metric = _create(name, weights, options, asked.device)
    except UsageError:
        raise
    except Exception as error:
        raise BananaError(f"{spec}: {_why(error, weights)}") from error
    info = ModelInfo(
        id=spec,
        kind="pyiqa",
        higher_is_better=direction,
        weights_sha256=digest or weights_digest(metric.net),
        options=options | asked.torch_options(),
        versions=library_versions("pyiqa", "torch", "torchvision", "numpy", "pillow"),
    )
    _lay_out(metric, asked.device)
    _lay_out(metric, asked.device)  # after the digest of its weights
    return PyiqaModel(info, metric, asked.device, asked.dtype)


def parameters(name: str, network: bool = False) -> int:
    """How many parameters the metric has; BananaError where it does not open, without a network unless `network`."""
    try:
        if network:
            metric = _create(name, None, {}, "cpu")
        else:
            with _hub_offline():
                metric = _create_once(name, None, {}, "cpu")
    except OSError as error:
        raise BananaError(f"lacks {_wanted_file(error)}") from error
    except Exception as error:
        raise BananaError(_why(error, None)) from error
    return sum(parameter.numel() for parameter in metric.parameters())


def _value(value: Option) -> Option:
    """What an option given as text means: ``384``, ``0.5`` and ``true`` are no text."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(value)
    return value


def _why(error: Exception, weights: Path | None) -> str:
    """One line on why a metric could not be made."""
    text = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    if weights is not None and isinstance(error, pickle.UnpicklingError):
        return f"weights {weights} refused: it is no file of plain tensors, and pickled code is never run"
    if isinstance(error, OSError):
        file = _wanted_file(error)
        more = f"further files that it needs besides --weights, {file}" if weights else f"its weights, {file}"
        if _hub_is_off():
            return f"HF_HUB_OFFLINE is set and the cache lacks {more}; fetch it where there is a network"
        return f"cannot download {more}; pass --weights FILE ({text[:300]})"
    if isinstance(error, ImportError):
        return f"pyiqa cannot load it ({text[:300]})"
    if weights is not None:
        return f"weights {weights} do not fit this metric ({text[:300]})"
    return f"pyiqa cannot make it ({text[:300]})"


def _wanted_file(error: BaseException) -> str:
    """Which file was being fetched when `error` arose, as the frames that raised it know."""
    found = "a file"
    for frame, _ in traceback.walk_tb(error.__traceback__):
        known = frame.f_locals
        if isinstance(known.get("repo_id"), str) and isinstance(known.get("filename"), str):
            found = f"{known['repo_id']}/{known['filename']}"
        elif isinstance(known.get("url"), str):
            found = Path(urlparse(known["url"]).path).name
    return found


def _create(name: str, weights: Path | None, options: Mapping[str, Option], device: str) -> Any:
    """pyiqa's metric `name`, from the Hub's cache where that suffices: without a network, asking takes a minute."""
    try:
        with _hub_offline():
            return _create_once(name, weights, options, device)
    except OSError:
        if _hub_is_off() or not _hub_answers():
            raise
    return _create_once(name, weights, options, device)


def _lay_out(metric: Any, device: str) -> None:
    """Have convolutions on a CPU work channels last: up to 1.6 times as fast, scores within 1e-6 of the others."""
    import torch

    if device == "cpu":
        with _one_thread():
            metric.to(memory_format=torch.channels_last)


def _create_once(name: str, weights: Path | None, options: Mapping[str, Option], device: str) -> Any:
    own = {} if weights is None else {"pretrained_model_path": str(weights)}
    with _quiet(), _tensors_only(weights is not None), _socket_timeout(_CONNECT_SECONDS), _one_thread():
        import pyiqa
        import torch

        try:
            metric = pyiqa.create_metric(name, device=torch.device(device), **own, **options)
        except TypeError as error:
            for option in options:
                if f"unexpected keyword argument '{option}'" in str(error):
                    raise UsageError(f"pyiqa:{name}: takes no option {option}") from error
            raise
    takes = inspect.signature(type(metric.net)).parameters
    if own and "pretrained_model_path" not in takes:
        raise TypeError("it takes no weight file")
    for option in options:
        if option not in takes:  # a constructor that takes anything would have ignored it
            raise unknown_name(f"option of pyiqa:{name}", option, set(takes) - {"pretrained_model_path"})
    return metric


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Have PyTorch start no thread pool, which workers that are forked later would find dead."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
    """Let nothing be downloaded: huggingface_hub keeps to its cache, and no connection is made."""
    from huggingface_hub import constants

    def refuse(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("not in the cache")

    before = constants.HF_HUB_OFFLINE, socket.create_connection
    constants.HF_HUB_OFFLINE, socket.create_connection = True, refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, socket.create_connection = before


def _hub_is_off() -> bool:
    """Whether the user says so, by HF_HUB_OFFLINE."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _hub_answers() -> bool:
    """Whether the Hub can be reached; huggingface_hub itself would try each file for most of a minute."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=_CONNECT_SECONDS)
    except Exception:
        return False
    return True
