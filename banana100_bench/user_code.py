"""Code that the user named, ``path.py:object`` or ``package.module:object``: it runs with the caller's rights."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import operator
import os
import posix
import re
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

from banana100_bench.errors import BananaError, UsageError, message_of
from banana100_bench.files import sha256_file

_os_exit = os._exit
_guard = threading.local()
_DYNAMIC = re.compile(r"import_module|__import__|exec_module|runpy|pkgutil")
_loaded: dict[str, tuple[Any, str]] = {}  # by name: the spec it was last (re)loaded by, and its file's SHA-256 then


class _Fresh(SourceFileLoader):
    """Compiles the file as it is: a cached compilation is told from an older one by its second and size only."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def load_file(spec: str, path: Path) -> ModuleType:
    """Run the Python file at `path` as a module; what lies beside it can be imported.

    spec: what the user wrote, for the error: UsageError where there is no such file, BananaError where it fails.
    """
    if not path.is_file():
        raise UsageError(f"{spec}: no such file {path}")
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    name = f"_banana100_{path.stem}_{sha256_file(path)[:12]}"
    loader = importlib.util.spec_from_file_location(name, path, loader=_Fresh(name, str(path)))
    assert loader is not None
    assert loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    sys.modules[loader.name] = module  # as import does, for dataclasses and pickle
    try:
        with guarded():
            loader.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
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
        with guarded():
            return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
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
    return BananaError(f"{spec}: cannot import {what}: {type(error).__name__}: {message_of(error)[:300]}")


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """While it lasts, code of this thread that calls ``os._exit`` gets SystemExit instead of ending all at once.

    Code that took hold of that function before the first guard, another thread, and a crash end the process still.
    """
    if os._exit is not _exit:
        os._exit = posix._exit = _exit  # type: ignore[assignment]
    before, _guard.pid = getattr(_guard, "pid", None), os.getpid()
    try:
        yield
    finally:
        _guard.pid = before


@contextlib.contextmanager
def prints_aside() -> Iterator[None]:
    """While it lasts, what is printed to stdout goes to stderr: for a caller whose own output is JSON alone."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _exit(code: int) -> NoReturn:
    if getattr(_guard, "pid", None) == os.getpid():  # a child that it forked may end
        raise SystemExit(f"it called os._exit({code})")
    _os_exit(code)


def is_installed(file: Path) -> bool:
    """Whether `file` is of the standard library, of an installed package or of this one: versions tell those."""
    homes = (*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")), str(Path(__file__).parent))
    return bool({"site-packages", "dist-packages"} & set(file.parts)) or any(map(file.is_relative_to, homes))


def source_sha256(spec: str, module: ModuleType, thing: Any) -> str | None:
    """One SHA-256 of the sources that `thing`, found in `module`, follows from; None if there is no file.

    These are the files of the module, of the one where `thing` is defined, and of all that they import, and so on;
    of installed packages only the first two (their versions tell the rest). Imports are read from the text, so that
    neither is a late import missed nor counts what else is loaded; a file that imports by computed names counts as
    importing all that is loaded from its folder or package. Of a single file it is simply that file's SHA-256.
    BananaError where a file is no longer what this process has loaded.
    """
    digests: dict[str, str] = {}
    todo = [module.__name__] if getattr(module, "__file__", None) else []
    defined = getattr(thing, "__module__", None) or type(thing).__module__
    if isinstance(defined, str):
        todo += _prefixes(defined)
    named = {module.__name__, defined}
    while todo:
        name = todo.pop()
        place, _ = _locate(name)
        if name in digests or place is None or not place.is_file():
            continue
        if is_installed(place) and name not in named:
            continue
        data = place.read_bytes()
        digests[name] = hashlib.sha256(data).hexdigest()
        loaded = sys.modules.get(name)
        if loaded is not None and name != "__main__":
            by = getattr(loaded, "__spec__", None)
            known, was = _loaded.setdefault(name, (by, digests[name]))
            if known is not by:
                _loaded[name] = (by, digests[name])
            elif was != digests[name]:
                raise BananaError(f"{spec}: {place} was edited after it was loaded; reload it or start Python anew")
        if place.suffix == ".py":
            todo += _imports(name, place, data)
    if len(digests) < 2:
        return next(iter(digests.values()), None)
    own = {"" if name == module.__name__ else name: digest for name, digest in digests.items()}
    return hashlib.sha256("".join(f"{name} {own[name]}\n" for name in sorted(own)).encode()).hexdigest()


def _imports(name: str, file: Path, source: bytes) -> Iterator[str]:
    """Names of the modules, and perhaps of things in them, that the text of module `name` imports."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    yield from _prefixes(name)
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _prefixes(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
            yield from _prefixes(base)
            yield from (f"{base}.{alias.name}" for alias in node.names)
            if any(alias.name == "*" for alias in node.names):
                exported = getattr(sys.modules.get(base), "__all__", ())
                yield from (f"{base}.{export}" for export in exported)
    if _DYNAMIC.search(source.decode(errors="replace")):
        root = file.parents[package.count(".")]
        for other, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if path and not other.startswith("_banana100_") and Path(path).is_relative_to(root):
                yield other


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _locate(name: str) -> tuple[Path | None, Sequence[str] | None]:
    """The file of module `name`, loaded or not, and where its submodules lie; nothing is imported for it."""
    if name in sys.modules:
        module = sys.modules[name]
        file, folders = getattr(module, "__file__", None), getattr(module, "__path__", None)
        return Path(file).resolve() if isinstance(file, str) else None, folders
    parent, _, _ = name.rpartition(".")
    within = None
    if parent:
        file, within = _locate(parent)
        if within is None:
            return None, None
    for finder in sys.meta_path:
        with contextlib.suppress(Exception):  # of whatever finders there are
            found = finder.find_spec(name, within)
            if found is not None:
                file = found.origin if found.has_location else None
                return Path(file).resolve() if file else None, found.submodule_search_locations
    return None, None
