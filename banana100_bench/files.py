"""Writing so that nothing is lost: every file appears whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from banana100_bench.errors import BananaError

LOCK_FILE = ".lock"
NEW, OLD = "new", "old"  # in a temporary folder: what is to come, and what gives way to it
_UMASK = os.umask(0)  # asking means setting, so ask once, before there are threads
os.umask(_UMASK)


def printable(text: str) -> str:
    """`text`, perhaps a stranger's file name, with what is no printable character written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def sha256_bytes(data: bytes) -> str:
    """Hex SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of the file at `path`, read in blocks."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class Follower:
    """The SHA-256 of a file while it is written: a thread reads what stands there already, and so needs no copy.

    What it has read, the system need not keep in memory: it begins to write that to the disk at once, and a file of
    any size takes little of the page cache from others.
    """

    def __init__(self, path: Path):
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - read until `digest`
        self._digest = hashlib.sha256()
        self._block = memoryview(bytearray(1 << 22))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sha256")

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._file.close()

    def reached(self, end: int) -> None:
        """Tell that the first `end` bytes of the file are written and stay as they are."""
        self._thread.submit(self._read, end)

    def digest(self, size: int) -> str:
        """Hex SHA-256 of the whole file of `size` bytes, which is finished. OSError where it cannot be read."""
        self._thread.submit(self._read, size).result()
        return self._digest.hexdigest()

    def _read(self, end: int) -> None:
        at = self._file.tell()
        while at < end:
            count = self._file.readinto(self._block[: end - at])
            if not count:
                raise OSError(f"ends at byte {at}, not {end}")
            self._digest.update(self._block[:count])
            at += count
        if hasattr(os, "posix_fadvise"):  # not on macOS
            os.posix_fadvise(self._file.fileno(), 0, at, os.POSIX_FADV_DONTNEED)


def fsync_dir(path: Path) -> None:
    """Make a rename inside directory `path` durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is fsynced and renamed to `path`.

    If the body raises, the temporary file is removed and `path` is left as it was. What a killed call left is
    removed by the next one. Raises BananaError, naming `path`, where the operating system refuses to write.
    """
    path = Path(path)
    with _writing(path), _temporary(path, _make_file) as temporary:
        try:
            os.chmod(temporary, 0o666 & ~_UMASK)
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
            fsync_dir(path.parent)
        finally:
            _remove(temporary, path)


@contextlib.contextmanager
def atomic_dir(path: Path) -> Iterator[Path]:
    """As `atomic_path`, for a folder, which is there from the beginning; an existing `path` gives way at the end."""
    path = Path(path)
    with _writing(path), _temporary(path, tempfile.mkdtemp) as shop:
        try:
            (shop / NEW).mkdir()
            yield shop / NEW
            if path.exists():
                os.rename(path, shop / OLD)
            os.rename(shop / NEW, path)
            fsync_dir(path.parent)
        finally:
            _remove(shop, path)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BananaError(f"cannot write {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def _temporary(path: Path, make: Callable[..., str]) -> Iterator[Path]:
    """Something that `make` makes beside `path`, locked as long as this process lives: without a lock it is left over.

    Whatever killed writers of `path` left is removed before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path)
    made, handle = _make_locked(path, make)
    try:
        yield made
    finally:
        os.close(handle)


def _make_locked(path: Path, make: Callable[..., str]) -> tuple[Path, int]:
    while True:
        made = Path(make(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
        with contextlib.suppress(FileNotFoundError):
            handle = _open(made)
            with contextlib.suppress(OSError):  # a file system without locks: then nobody clears there either
                fcntl.flock(handle, fcntl.LOCK_EX)
            if made.exists():
                return made, handle
            os.close(handle)  # another writer cleared it before it was locked


def _clear(path: Path) -> None:
    left = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.tmp")  # as `tempfile` names them
    for name in os.listdir(path.parent):  # plain names: this stands before every write
        if left.fullmatch(name):
            other = path.parent / name
            with contextlib.suppress(OSError):
                handle = _open(other)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(other, path)
                finally:
                    os.close(handle)


def _remove(temporary: Path, path: Path) -> None:
    """Remove a temporary of `path`; a folder that gave way to one that did not come comes back."""
    if temporary.is_dir():
        if not os.path.lexists(path) and (temporary / OLD).exists():
            os.rename(temporary / OLD, path)
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)


def _open(path: Path) -> int:
    """A handle to lock `path` by (NFS wants a file writable for that); it follows no link and waits for no pipe."""
    access = os.O_RDONLY if path.is_dir() else os.O_RDWR
    return os.open(path, access | os.O_NOFOLLOW | os.O_NONBLOCK)


def _make_file(**where: Any) -> str:
    handle, name = tempfile.mkstemp(**where)
    os.close(handle)
    return name


def check_folder(path: Path) -> None:
    """Make folder `path` if it is not there; BananaError, naming it, where a file cannot be written into it."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise BananaError(f"cannot write into {path}: {error.strerror or error}") from error


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically and durably."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8, atomically and durably."""
    write_bytes(path, text.encode())


def dump_json(value: Any) -> str:
    """Canonical, readable JSON: sorted keys, two spaces, no NaN or Infinity (ValueError)."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path, what: str, max_bytes: int = 256 << 20) -> Any:
    """Parse the JSON file at `path`, called `what` in errors; refuses files above `max_bytes`."""
    try:
        size = os.path.getsize(path)
        if size > max_bytes:
            raise BananaError(f"{path}: {what} of {size} bytes is larger than the limit of {max_bytes}")
        return json.loads(Path(path).read_bytes())
    except OSError as error:
        raise BananaError(f"cannot read {what} {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise BananaError(f"{path}: not a valid {what}: {error}") from error


@contextlib.contextmanager
def locked(folder: Path, busy: str) -> Iterator[None]:
    """Keep other processes and threads out of `folder`, made if it is not there; the lock dies with its holder.

    BananaError, naming `folder` and saying `busy`, where another holds it.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        handle = os.open(Path(folder) / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise BananaError(f"cannot write {folder}: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BananaError(f"{folder}: {busy}") from error
        yield
    finally:
        os.close(handle)


class Journal:
    """An append-only JSON-lines file: each line is on disk before `append` returns.

    A torn last line, left by a kill or a power cut, is dropped when the journal is opened.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        self.rows: list[dict[str, Any]] = []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            raw = self.path.read_bytes() if self.path.exists() else b""
            whole = raw[: raw.rfind(b"\n") + 1]
            for number, line in enumerate(whole.splitlines(), 1):
                self.rows.append(self._parse(line, number))
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - held open for appends
            if len(whole) != len(raw):
                self._file.truncate(len(whole))
        except OSError as error:
            raise BananaError(f"cannot open {self.path}: {error.strerror or error}") from error

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BananaError(f"{self.path} line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise BananaError(f"{self.path} line {number}: expected a JSON object")
        return row

    def append(self, row: dict[str, Any]) -> None:
        """Add one row; BananaError where the disk refuses it."""
        line = json.dumps(row, sort_keys=True, allow_nan=False) + "\n"
        try:
            self._file.write(line.encode())
            os.fsync(self._file.fileno())
        except OSError as error:
            raise BananaError(f"cannot write {self.path}: {error.strerror or error}") from error
        self.rows.append(row)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
