"""Build a dataset folder from raw images: find them, write the Parquet files, the card, the manifest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from banana100_bench import __version__, records
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import dump_json, sha256_bytes, sha256_file, write_bytes, write_text
from banana100_bench.package import card, croissant, manifest, reading, shards, source, strip
from banana100_bench.package.layouts import Candidate
from banana100_bench.package.licences import check_licence
from banana100_bench.package.manifest import Counts, Fault, FileEntry, Gap, Manifest, Note
from banana100_bench.package.reading import Reader, Tally
from banana100_bench.package.source import Source, few
from banana100_bench.package.storage import Folder
from banana100_bench.package.workshop import Workshop, workshop
from banana100_bench.progress import progress
from banana100_bench.raw import read_file
from banana100_bench.records import Row

README, EVAL, STRIP = "README.md", "eval.yaml", "strip.png"
WORKERS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build made. source: of what. resumed: shards that a build cut short had finished."""

    path: Path
    manifest: Manifest
    source: Source
    resumed: int = 0

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return self.manifest.gaps

    @property
    def unused(self) -> tuple[str, ...]:
        return tuple(self.source.unused)

    def summary(self) -> str:
        """What a person should know, on a few lines."""
        counts = self.manifest.counts
        size = sum(file.bytes for file in self.manifest.files)
        kind = "SIMULATED images" if self.manifest.simulated else "images"
        lines = [
            f"{self.path}: {counts.images} {kind} in {counts.runs} runs, {counts.initial_images} initial images, "
            f"{size / 1e6:.1f} MB, fingerprint {self.manifest.fingerprint[:12]}"
        ]
        if self.resumed:
            lines.append(f"continued: {self.resumed} shards were finished before and stand")
        lines += findings(self.manifest.gaps, self.manifest.faults)
        lines += [*noted(self.manifest.notes), *self.source.leftovers()]
        return "\n".join(lines)


def noted(notes: Sequence[Note]) -> list[str]:
    """What is to be known of images that are there, a line each."""
    return [f"note: {note.images} images: {note.what}: {few(note.examples)}" for note in notes]


def findings(gaps: Sequence[Gap], faults: Sequence[Fault]) -> list[str]:
    """What is missing and what was left out, a line each."""
    lines = []
    if gaps:
        lacking = sum(len(gap.rounds) for gap in gaps)
        names = few(f"{gap.run_id} rounds {card.ranges(gap.rounds)}" for gap in gaps)
        lines.append(f"gaps: {lacking} images missing from {len(gaps)} runs: {names}")
    if faults:
        names = few((f"{fault.file}: {fault.problem}" for fault in faults), between="; ")
        lines.append(f"left out: {len(faults)} images that cannot be used: {names}")
    return lines


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What a build would find, every image read."""

    source: Source
    tally: Tally

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return source.gaps(self.tally.rows, self.source.expected)

    def summary(self) -> str:
        lines = findings(self.gaps, self.tally.faults)
        lines += [*noted(reading.notes(self.tally.rows, self.tally.odd)), *self.source.leftovers()]
        return "\n".join(lines or ["every image is there and can be used"])

    def refuse(self) -> None:
        """BananaError unless nothing is missing, unreadable, there twice or left over."""
        problems = [*findings(self.gaps, self.tally.faults), *self.source.leftovers()]
        if problems:
            raise BananaError(f"{self.source.where}: refused, being strict: {'; '.join(problems)}")


def dataset_name(name: str | None, out: Path) -> str:
    """`name`, by default one made of the folder's; UsageError where that cannot be."""
    if name is not None:
        return records.check_name("dataset name", name, UsageError)
    made = records.to_name(Path(os.path.abspath(out)).name)
    return records.check_name(f"no --name given, and of the folder {out} is made the dataset name", made, UsageError)


def preview(raw: str | Path | Source, *, workers: int = WORKERS) -> Preview:
    """Read all images of a source as `build` would, and write nothing."""
    found = raw if isinstance(raw, Source) else source.find(raw)
    return Preview(source=found, tally=reading.survey(found, workers))


def build(
    raw: str | Path | Source,
    out: str | Path,
    *,
    pattern: str | None = None,
    constants: Mapping[str, str] | None = None,
    name: str | None = None,
    licence: str = "unknown",
    overwrite: bool = False,
    strict: bool = False,
    workers: int = WORKERS,
    max_shard_bytes: int = shards.MAX_SHARD_BYTES,
) -> BuildReport:
    """Make the dataset folder `out` of the images in `raw`; the same input gives the same bytes.

    raw, pattern, constants: see `source.find`, which also says what is refused; or what it gave.
    name: of the dataset, by default that of the folder `out`. licence: of the images, an id of the Hub's list.
    overwrite: replace `out` if a build made it and nothing was added since; anything else is left alone.
    strict: read everything once before, and refuse where an image is missing, unreadable or there twice, or a file is
        no part of a run. By default such images are left out, and told in the manifest, the card and the report.
    workers: threads that read ahead; the result does not depend on them.
    max_shard_bytes: of image bytes in one file.

    The folder appears whole or not at all. What a killed build leaves is a hidden folder beside `out`, in which the
    next call continues: shards that are finished, and whose images have not changed, stand. Raises UsageError for a
    wrong call, BananaError for input that makes no dataset and for an `out` that stands in the way or cannot be
    written.
    """
    given, out = Path(out), Path(os.path.abspath(out))
    name = dataset_name(name, out)
    check_licence(licence)
    for option, value in (("max_shard_bytes", max_shard_bytes), ("workers", workers)):
        if value < 1:
            raise UsageError(f"{option} {value}: expected 1 or more")
    if not isinstance(raw, Source) and not Path(raw).exists():
        raise BananaError(f"{raw}: no such folder or file")
    with workshop(out) as shop:
        _check_replaceable(out, raw if isinstance(raw, Source) else Path(raw), overwrite)
        found = raw if isinstance(raw, Source) else source.find(raw, pattern, constants)
        if strict:
            preview(found, workers=workers).refuse()
        _check_space(found, shop.place)
        tally = Tally(faults=list(found.faults))
        with ThreadPoolExecutor(1) as aside:
            drawing = aside.submit(_draw, found)
            files, resumed = _write_data(shop, found, tally, max_shard_bytes, workers)
            picture = drawing.result()
        tally.rows.sort(key=source.row_order)
        if not any(row.run_id for row in tally.rows):
            reasons = "; ".join(findings((), tally.faults))
            raise BananaError(f"{found.where}: none of its images can be used: {reasons}")
        shards.write_metadata(shop.folder / shards.METADATA, tally.rows)
        files.append(_entry(shop.folder, shards.METADATA, len(tally.rows)))
        facts = _describe(name, licence, tally, found, files)
        if picture:
            write_bytes(shop.folder / STRIP, picture)
        write_text(shop.folder / README, card.readme(facts, tally.rows, STRIP if picture else None))
        write_text(shop.folder / EVAL, card.eval_yaml(facts.simulated))
        write_text(shop.folder / croissant.FILE, dump_json(croissant.describe(facts)))
        texts = [README, EVAL, croissant.FILE, *([STRIP] if picture else [])]
        files += [_entry(shop.folder, text, None) for text in texts]
        facts = facts.model_copy(update={"files": tuple(sorted(files, key=lambda file: file.path))})
        write_text(shop.folder / manifest.FILE, dump_json(facts.model_dump(mode="json")))
        shop.publish()
    return BuildReport(path=given, manifest=facts, source=found, resumed=resumed)


def _draw(found: Source) -> bytes | None:
    """The picture of the card."""
    simulated = any(one.facts.get("simulated") for one in found.candidates)
    return strip.draw(strip.choose(found.candidates), lambda one: read_file(one.path), simulated)


def _write_data(
    shop: Workshop, found: Source, tally: Tally, max_shard_bytes: int, workers: int
) -> tuple[list[FileEntry], int]:
    """Write the files with images, but those that stand finished; gives their entries, and how many stood."""
    planned = {
        shards.file_name(where, number, len(parts)): part
        for where, parts in shards.plan(found.candidates, max_shard_bytes).items()
        for number, part in enumerate(parts)
    }
    for name in set(_files(shop.folder)) - planned.keys():
        (shop.folder / name).unlink()
    before = {line["file"]: line for line in shop.journal.rows}
    lines, resumed = [], 0
    with Reader(found, workers) as reader, progress("packing", len(found.candidates)) as advance:
        for name, part in planned.items():
            line, key = before.get(name), _key(found, name, part)
            if line is not None and _stands(shop.folder / name, line, key):
                tally.add(_tally_of(shop.folder / name, line))
                advance(len(part))
                resumed += 1
            else:
                line = _write_shard(shop, reader, name, part, key, tally, advance)
            lines.append(line)
    return [_named(shop.folder, line, lines) for line in lines if line["rows"]], resumed


def _write_shard(
    shop: Workshop,
    reader: Reader,
    name: str,
    part: Sequence[Candidate],
    key: str,
    tally: Tally,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Write one file and its line in the journal, which is given."""
    own = Tally()
    (shop.folder / name).unlink(missing_ok=True)  # no row may come of it, and so no file

    def told() -> Iterator[tuple[Row, bytes]]:
        for image in reader.read(part, own):
            yield image
            advance(1)

    sha256, size, rows = shards.write_images(shop.folder / name, told())
    advance(len(part) - rows)
    line = {
        "file": name,
        "key": key,
        "sha256": sha256,
        "bytes": size,
        "rows": rows,
        "faults": [fault.model_dump() for fault in own.faults],
        "odd": own.odd,
    }
    shop.journal.append(line)
    tally.add(own)
    return line


def _key(found: Source, name: str, part: Sequence[Candidate]) -> str:
    """A digest of all that the bytes of a file follow from, as far as it can be told without reading the images."""

    def told(one: Candidate | None) -> list[Any]:
        return [] if one is None else [one.name, one.size, one.changed, one.sha256]

    facts = [[*told(one), one.facts, *told(found.parent(one))] for one in part]
    return sha256_bytes(dump_json([__version__, pa.__version__, name, facts]).encode())


def _stands(path: Path, line: Mapping[str, Any], key: str) -> bool:
    if line["key"] != key:
        return False
    return path.is_file() and path.stat().st_size == line["bytes"] if line["rows"] else True


def _tally_of(path: Path, line: Mapping[str, Any]) -> Tally:
    """What was entered when the file at `path` was written."""
    rows = pq.read_table(path, columns=list(records.COLUMNS)).to_pylist() if line["rows"] else []
    return Tally(
        rows=[Row(**row) for row in rows],
        faults=[Fault.model_validate(fault) for fault in line["faults"]],
        odd=line["odd"],
    )


def _named(folder: Path, line: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> FileEntry:
    """The entry of a file, renamed if others of its kind came to nothing: the numbers must be without a gap."""
    where = line["file"].rsplit("-", 3)[0]
    kin = [other["file"] for other in lines if other["rows"] and other["file"].rsplit("-", 3)[0] == where]
    name = shards.file_name(where, kin.index(line["file"]), len(kin))
    if name != line["file"]:
        (folder / line["file"]).rename(folder / name)
    return FileEntry(path=name, sha256=line["sha256"], bytes=line["bytes"], rows=line["rows"])


def _entry(folder: Path, file: str, rows: int | None) -> FileEntry:
    path = folder / file
    return FileEntry(path=file, sha256=sha256_file(path), bytes=path.stat().st_size, rows=rows)


def _describe(name: str, licence: str, tally: Tally, found: Source, files: Sequence[FileEntry]) -> Manifest:
    edited = [row for row in tally.rows if row.round > 0]
    return Manifest(
        name=name,
        builder=f"banana100-bench {__version__}",
        fingerprint=records.fingerprint((row.image_id, row.sha256) for row in tally.rows),
        simulated=any(row.simulated for row in edited),
        licence=licence,
        counts=Counts.of(tally.rows),
        gaps=source.gaps(tally.rows, found.expected),
        faults=tuple(sorted(tally.faults, key=lambda fault: (fault.image_id, fault.file))),
        notes=reading.notes(tally.rows, tally.odd),
        files=tuple(files),
    )


def _check_space(found: Source, place: Path) -> None:
    """BananaError where the disk cannot hold the images; files that stand finished count as room."""
    stand = sum(path.stat().st_size for path in place.rglob("*.parquet"))
    free = shutil.disk_usage(place).free
    if found.bytes > free + stand:
        raise BananaError(f"{place.parent}: {free / 1e9:.1f} GB free, but the images have {found.bytes / 1e9:.1f} GB")


def _check_replaceable(out: Path, raw: Path | Source, overwrite: bool) -> None:
    """BananaError unless `out` is absent, or may be replaced without losing what no build made."""
    if not os.path.lexists(out):
        return
    if out.is_symlink() or not out.is_dir():
        raise BananaError(f"{out}: exists and is no dataset folder; choose another")
    try:
        own = {manifest.FILE, *(file.path for file in manifest.read(Folder(out)).files)}
    except BananaError as error:
        raise BananaError(f"{out}: exists and was not built by us, so it stays ({error}); choose another") from error
    if not overwrite:
        raise BananaError(f"{out}: exists; pass overwrite (--overwrite) to replace it")
    read = [raw] if isinstance(raw, Path) else [one.path for one in raw.candidates]
    if any(path.resolve().is_relative_to(out.resolve()) for path in read):
        raise BananaError(f"{out}: holds the raw images {read[0]}; choose another folder for the dataset")
    foreign = sorted(path for path in _files(out) if path not in own)
    if foreign:
        raise BananaError(f"{out}: holds {len(foreign)} files that no build made ({few(foreign)}); move them first")


def _files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(folder).as_posix()
