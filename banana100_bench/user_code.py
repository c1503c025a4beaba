"""Code that the user named, ``path.py:object`` or ``package.module:object``: it runs with the caller's rights."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file


def load_file(spec: str, path: Path) -> ModuleType:
    """Run the Python file at `path` as a module; what lies beside it can be imported.

    spec: what the user wrote, for the error: UsageError where there is no such file, BananaError where it fails.
    """
    if not path.is_file():
        raise UsageError(f"{spec}: no such file {path}")
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    loader = importlib.util.spec_from_file_location(f"_banana100_{path.stem}_{sha256_file(path)[:12]}", path)
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


def load_module(spec: str, name: str, expected: str) -> ModuleType:
    """Import module `name`, which may also lie in the working directory.

    expected: what else a spec may be, for the UsageError where there is no such module; BananaError where it fails.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # last, so that nothing there hides an installed package
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(f"{spec}: no module {error.name}; {expected}") from error
        raise _cannot_import(spec, name, error) from error


def find(spec: str, module: ModuleType, place: str, name: str) -> Any:
    """The object `name`, which may have dots, of a module loaded from `place`; UsageError with what is there."""
    try:
        return operator.attrgetter(name)(module)
    except AttributeError as error:
        public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UsageError(f"{spec}: {place} has no {name!r}; callables there: {', '.join(public) or 'none'}") from error


def _cannot_import(spec: str, what: str, error: BaseException) -> BananaError:
    return BananaError(f"{spec}: cannot import {what}: {type(error).__name__}: {str(error)[:300]}")
