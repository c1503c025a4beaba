"""All files of a folder that may come from a stranger, or from the Hub's cache."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from banana100_bench.errors import BananaError
from banana100_bench.files import printable


@dataclass(frozen=True)
class File:
    """A regular file: where it is, its bytes, its time of change in ns, and its SHA-256 where someone told it."""

    path: Path
    size: int
    changed: int
    sha256: str | None = None


def walk(folder: Path) -> dict[str, File]:
    """The files under `folder` by relative name parted by ``/``, sorted; hidden files and folders are left out.

    A symbolic link raises BananaError, for it could lead out of the folder. One kind alone is followed: in a
    snapshot of the Hub's cache (``datasets--ORG--NAME/snapshots/REVISION``), a link to a file of its ``blobs``.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BananaError(f"{folder}: not a folder")
    blobs = _blobs(folder)
    found: dict[str, File] = {}
    folders = [("", os.fspath(folder))]
    while folders:
        inside, place = folders.pop()
        try:
            entries = [entry for entry in os.scandir(place) if not entry.name.startswith(".")]
            for entry in entries:
                name = inside + entry.name
                if entry.is_symlink():
                    found[name] = _linked(Path(entry.path), blobs)
                elif entry.is_dir():
                    folders.append((f"{name}/", entry.path))
                else:
                    facts = entry.stat()
                    found[name] = File(Path(entry.path), facts.st_size, facts.st_mtime_ns)
        except OSError as error:
            raise BananaError(f"cannot list {printable(place)}: {error.strerror}") from error
    return dict(sorted(found.items()))


def _blobs(folder: Path) -> Path | None:
    """The folder that links in `folder` may lead to: its blobs, if it lies in a snapshot of the Hub's cache."""
    place = folder.resolve()
    for snapshot in (place, *place.parents):
        cache = snapshot.parent.parent
        if snapshot.parent.name == "snapshots" and re.fullmatch("(datasets|models|spaces)--.+", cache.name):
            return cache / "blobs"
    return None


def inside(folder: Path, name: str) -> Path:
    """Where the file `name` of `folder` is; BananaError where a symbolic link leads out of it (but see `walk`)."""
    target = (Path(folder) / name).resolve()
    if not target.is_relative_to(Path(folder).resolve()) and target.parent != _blobs(folder):
        raise BananaError(f"{folder / name}: a symbolic link that leads out of the dataset folder")
    return target


def _linked(link: Path, blobs: Path | None) -> File:
    target = link.resolve()
    if blobs is None or target.parent != blobs or not target.is_file():
        raise BananaError(f"{printable(str(link))}: a symbolic link; expected files and folders only")
    facts = target.stat()
    return File(target, facts.st_size, facts.st_mtime_ns)
