"""Build a dataset folder from raw images: find and check, write the Parquet files, the card, the manifest."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from banana100_bench import __version__, records
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import atomic_dir, dump_json, sha256_file, write_text
from banana100_bench.package import card, manifest, shards, source
from banana100_bench.package.manifest import Counts, FileEntry, Gap, Manifest
from banana100_bench.progress import progress
from banana100_bench.records import Row

README, EVAL = "README.md", "eval.yaml"


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build made. unused: files of the raw folder that are no part of any run, relative to it."""

    path: Path
    manifest: Manifest
    unused: tuple[str, ...]

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return self.manifest.gaps

    def summary(self) -> str:
        """What a person should know, on a few lines."""
        counts = self.manifest.counts
        size = sum(file.bytes for file in self.manifest.files)
        kind = "SIMULATED images" if self.manifest.simulated else "images"
        lines = [
            f"{self.path}: {counts.images} {kind} in {counts.runs} runs, {counts.initial_images} initial images, "
            f"{size / 1e6:.1f} MB, fingerprint {self.manifest.fingerprint[:12]}"
        ]
        if self.gaps:
            lacking = sum(len(gap.rounds) for gap in self.gaps)
            lines.append(f"gaps: {lacking} images missing from {len(self.gaps)} runs: {_few(map(_gap, self.gaps))}")
        if self.unused:
            lines.append(f"not used: {len(self.unused)} files that are no part of a run: {_few(self.unused)}")
        return "\n".join(lines)


def build(
    raw: str | Path,
    out: str | Path,
    *,
    pattern: str | None = None,
    constants: Mapping[str, str] | None = None,
    name: str | None = None,
    licence: str = "unknown",
    overwrite: bool = False,
    max_shard_bytes: int = shards.MAX_SHARD_BYTES,
) -> BuildReport:
    """Make the dataset folder `out` of the images in `raw`; the same input gives the same bytes.

    pattern, constants: where `raw` is no folder of raw runs; see `source.find`, which also says what
    is refused. name: of the dataset, by default that of the folder `out`. licence: of the images, an id of
    the Hub's list.
    overwrite: replace `out` if a build made it and nothing was added since; anything else is left alone.
    max_shard_bytes: of image bytes in one file.

    The folder appears whole or not at all. What a killed build leaves is a hidden folder beside
    `out`, which the next build removes. Raises UsageError for a wrong call, BananaError for input that
    makes no dataset and for an `out` that stands in the way or cannot be written.
    """
    raw, given = Path(raw), Path(out)
    out = Path(os.path.abspath(out))
    name = records.check_name("dataset name", name or records.to_name(out.name))
    card.check_licence(licence)
    if max_shard_bytes < 1:
        raise UsageError(f"max_shard_bytes {max_shard_bytes}: expected 1 or more")
    if not raw.is_dir():
        raise BananaError(f"{raw}: not a folder")
    _recover(out)
    _check_replaceable(out, raw, overwrite)
    with _sole_build(out) as folder:
        found = source.find(raw, pattern, constants)
        rows = [row for row, _ in found.images]
        files = _write_data(folder, found, rows, max_shard_bytes)
        facts = _describe(name, licence, rows, found.gaps, files)
        write_text(folder / README, card.readme(facts, rows))
        write_text(folder / EVAL, card.eval_yaml(facts.simulated))
        texts = [_entry(folder, text, None) for text in (README, EVAL)]
        facts = facts.model_copy(update={"files": tuple(sorted((*files, *texts), key=lambda file: file.path))})
        write_text(folder / manifest.FILE, dump_json(facts.model_dump(mode="json")))
    return BuildReport(path=given, manifest=facts, unused=tuple(found.unused))


def _write_data(folder: Path, found: source.Source, rows: list[Row], max_shard_bytes: int) -> list[FileEntry]:
    planned = shards.plan(found.images, max_shard_bytes)
    entries = []
    with progress("packing", len(rows)) as advance:
        for file, images in planned.items():
            shards.write_images(folder / file, images, advance)
            entries.append(_entry(folder, file, len(images)))
    shards.write_metadata(folder / shards.METADATA, rows)
    return [*entries, _entry(folder, shards.METADATA, len(rows))]


def _entry(folder: Path, file: str, rows: int | None) -> FileEntry:
    path = folder / file
    return FileEntry(path=file, sha256=sha256_file(path), bytes=path.stat().st_size, rows=rows)


def _describe(name: str, licence: str, rows: list[Row], gaps: Iterable[Gap], files: Iterable[FileEntry]) -> Manifest:
    edited = [row for row in rows if row.round > 0]
    return Manifest(
        name=name,
        builder=f"banana100-bench {__version__}",
        fingerprint=records.fingerprint((row.image_id, row.sha256) for row in rows),
        simulated=any(row.simulated for row in edited),
        licence=licence,
        counts=Counts(
            rows=len(rows),
            images=len(edited),
            runs=len({row.run_id for row in edited}),
            initial_images=len({row.initial_image for row in edited}),
            settings=len({row.setting for row in edited}),
        ),
        gaps=tuple(gaps),
        files=tuple(files),
    )


def _check_replaceable(out: Path, raw: Path, overwrite: bool) -> None:
    """BananaError unless `out` is absent, or may be replaced without losing what no build made."""
    if not os.path.lexists(out):
        return
    if out.is_symlink() or not out.is_dir():
        raise BananaError(f"{out}: exists and is no dataset folder; choose another")
    try:
        own = {manifest.FILE, *(file.path for file in manifest.read(out).files)}
    except BananaError as error:
        raise BananaError(f"{out}: exists and was not built by us, so it stays ({error}); choose another") from error
    if not overwrite:
        raise BananaError(f"{out}: exists; pass overwrite (--overwrite) to replace it")
    if raw.resolve().is_relative_to(out.resolve()):
        raise BananaError(f"{out}: holds the raw images {raw}; choose another folder for the dataset")
    foreign = sorted(path for path in _files(out) if path not in own)
    if foreign:
        raise BananaError(f"{out}: holds {len(foreign)} files that no build made ({_few(foreign)}); move them first")


def _files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(folder).as_posix()


@contextlib.contextmanager
def _sole_build(out: Path) -> Iterator[Path]:
    """`atomic_dir` under a lock, so that two builds of one folder do not meet."""
    with atomic_dir(out) as folder, _locked(folder, out):
        yield folder


def _recover(out: Path) -> None:
    """Undo what a killed build of `out` left beside it; BananaError where another build is at work.

    `atomic_dir` names its folders so: .tmp is half-written, .old is the dataset that was being replaced.
    """
    shape = re.compile(rf"\.{re.escape(out.name)}\.[a-z0-9_]{{8}}\.(tmp|old)")
    try:
        left = [path for path in out.parent.iterdir() if shape.fullmatch(path.name) and not path.is_symlink()]
    except OSError:  # no parent yet, or one that cannot be read: `atomic_dir` will say so
        return
    for path in sorted(left, key=lambda path: path.suffix, reverse=True):  # .tmp first: it bears the lock
        with _locked(path, out):
            if path.suffix == ".old" and not os.path.lexists(out):
                path.rename(out)
            else:
                shutil.rmtree(path, ignore_errors=True)


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
        yield
    finally:
        os.close(handle)


def _gap(gap: Gap) -> str:
    return f"{gap.run_id} rounds {card.ranges(gap.rounds)}"


def _few(names: Iterable[str], shown: int = 3) -> str:
    listed = list(names)
    more = f", and {len(listed) - shown} more" if len(listed) > shown else ""
    return ", ".join(listed[:shown]) + more
