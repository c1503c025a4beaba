"""The hidden folder beside a dataset in which it is made, so that it appears whole, and a killed build continues.

::

    .NAME.build/dataset/      the folder to be
    .NAME.build/shards.jsonl  a line for each finished shard
    .NAME.build/old/          what stood at NAME, while the new folder takes its place
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from banana100_bench.errors import BananaError
from banana100_bench.files import Journal, fsync_dir


@dataclass(frozen=True)
class Workshop:
    """folder: where the dataset is made. journal: of its finished shards, those of a killed build included."""

    out: Path
    place: Path
    journal: Journal

    @property
    def folder(self) -> Path:
        return self.place / "dataset"

    def publish(self) -> None:
        """Put the folder in the place of `out`."""
        try:
            if self.out.exists():
                os.rename(self.out, self.place / "old")
            os.rename(self.folder, self.out)
            fsync_dir(self.out.parent)
        except OSError as error:
            raise BananaError(f"cannot write {self.out}: {error.strerror or error}") from error


@contextlib.contextmanager
def workshop(out: Path) -> Iterator[Workshop]:
    """The workshop of `out`, for one build at a time, after what a killed build left half-done was undone.

    It goes when the body has published the dataset, or failed before a shard was finished; else it stays for the
    next call. Raises BananaError where another build is at work or the system refuses.
    """
    place = out.parent / f".{out.name}.build"
    if place.is_symlink():
        raise BananaError(f"{place}: a symbolic link; remove it")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BananaError(f"cannot write {out}: {error.strerror or error}") from error
    with _locked(place, out):
        _recover(place, out)
        (place / "dataset").mkdir(exist_ok=True)
        with Journal(place / "shards.jsonl") as journal:
            shop = Workshop(out, place, journal)
            try:
                yield shop
            finally:
                if not journal.rows or not shop.folder.exists():
                    shutil.rmtree(place, ignore_errors=True)


def _recover(place: Path, out: Path) -> None:
    """Undo the exchange of old and new that a kill has cut in two."""
    old = place / "old"
    if os.path.lexists(old) and not os.path.lexists(out):
        old.rename(out)
    elif os.path.lexists(old) or not (place / "dataset").is_dir():  # it was done
        shutil.rmtree(old, ignore_errors=True)
        shutil.rmtree(place / "dataset", ignore_errors=True)
        (place / "shards.jsonl").unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path, out: Path) -> Iterator[None]:
    """Hold a lock on `folder` that ends with the process, however it ends."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise BananaError(f"cannot open {folder}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BananaError(f"{out}: another build of it is at work") from error
        if not folder.is_dir() or os.stat(folder).st_ino != os.fstat(handle).st_ino:
            raise BananaError(f"{out}: another build of it has just ended; try again")
        yield
    finally:
        os.close(handle)
