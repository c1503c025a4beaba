"""Check a dataset, on this machine or on the Hub: that it is what its manifest says, and what a build writes."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from banana100_bench import data, images, records
from banana100_bench.data import ParquetPart, Selection
from banana100_bench.errors import BananaError
from banana100_bench.files import printable, sha256_bytes
from banana100_bench.package import manifest as manifests
from banana100_bench.package.manifest import Counts, FileEntry, Manifest
from banana100_bench.package.shards import METADATA, stem
from banana100_bench.package.source import row_order
from banana100_bench.package.storage import Storage, open_storage
from banana100_bench.progress import progress
from banana100_bench.protocol import GROUPS, IMAGES
from banana100_bench.records import COLUMNS, Row, arrow_schema

_DATA = re.compile(rf"(?:data/(?:{'|'.join(GROUPS)})/(?:key|rest)|initial/test)-\d{{5}}-of-\d{{5}}\.parquet")
BLOCK = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What was found: `faults`, a line each; none where the dataset is sound. full: every byte and pixel was read."""

    where: str
    manifest: Manifest | None
    faults: list[str]
    full: bool
    bytes_read: int

    def summary(self) -> str:
        how = "full: every byte hashed, every image decoded" if self.full else "quick: no image was read"
        if self.manifest is None or self.faults:
            return f"{self.where}: {len(self.faults)} faults ({how})"
        counts = self.manifest.counts
        kind = "SIMULATED images" if self.manifest.simulated else "images"
        lacking = sum(len(gap.rounds) for gap in self.manifest.gaps)
        return (
            f"{self.where}: sound ({how}); {counts.images} {kind} in {counts.runs} runs, {lacking} declared missing; "
            f"the paper's dataset has {IMAGES}; {self.bytes_read / 1e6:.1f} MB read"
        )


def verify(source: str | Path | Storage, *, quick: bool = False, workers: int = 2) -> Verified:
    """Check the dataset at `source` (as in `data.open_data`).

    quick: the manifest, the list of files with their sizes (on the Hub their SHA-256 as well, which it tells), the
        schema, rows and row groups of each Parquet file, the list of rows, counts, gaps and parents.
    Else also the SHA-256 of each file, and of each image its SHA-256, header and pixels; `workers` threads decode.
    """
    storage = open_storage(source)
    manifest = None
    faults = []
    try:
        manifest = manifests.read(storage)
        for fault in _faults(storage, manifest, quick, workers):
            faults.append(printable(fault))
    except BananaError as error:
        faults.append(printable(str(error)))
    return Verified(
        where=str(storage), manifest=manifest, faults=faults, full=not quick, bytes_read=storage.traffic.bytes
    )


def _faults(storage: Storage, manifest: Manifest, quick: bool, workers: int) -> Iterator[str]:
    listed = {entry.path: entry for entry in manifest.files}
    if len(listed) < len(manifest.files):
        yield f"{manifests.FILE}: names a file twice"
    there = storage.files()
    whole = []
    for name in sorted(listed.keys() | there.keys() - {manifests.FILE}):
        if name not in there:
            yield f"{name}: missing"
        elif name not in listed:
            yield f"{name}: an orphan, which the manifest does not name"
        elif there[name].size != listed[name].bytes:
            yield f"{name}: {there[name].size} bytes, the manifest says {listed[name].bytes}"
        elif there[name].sha256 not in (None, listed[name].sha256):
            yield f"{name}: SHA-256 {str(there[name].sha256)[:12]}..., the manifest says {listed[name].sha256[:12]}..."
        else:
            whole.append(listed[name])
    rows = data.read_rows(storage)
    yield from _faults_of_rows(manifest, rows)
    sound = []
    for entry in whole:
        if entry.rows is not None:
            found = list(_faults_of_file(storage, entry))
            yield from found
            if not found:
                sound.append(entry)
    if not quick:
        yield from _faults_of_bytes(storage, whole)
        yield from _faults_of_images(storage, manifest, rows, {entry.path for entry in sound}, workers)


def _faults_of_rows(manifest: Manifest, rows: list[Row]) -> Iterator[str]:
    fingerprint = records.fingerprint((row.image_id, row.sha256) for row in rows)
    if fingerprint != manifest.fingerprint:
        yield f"metadata: fingerprint {fingerprint[:12]}, the manifest says {manifest.fingerprint[:12]}"
    if rows != sorted(rows, key=row_order):
        yield "metadata: the rows are not in order of run and round"
    for name, found in Counts.of(rows):
        if found != getattr(manifest.counts, name):
            yield f"metadata: {found} {name.replace('_', ' ')}, the manifest says {getattr(manifest.counts, name)}"
    if any(row.simulated for row in rows) != manifest.simulated:
        yield "metadata: simulated or not: the rows and the manifest do not agree"
    files: dict[str, int] = defaultdict(int)
    for entry in manifest.files:
        files[entry.path.rsplit("-", 3)[0]] += entry.rows or 0
    wanted: dict[str, int] = defaultdict(int)
    for row in rows:
        wanted[stem(row)] += 1
    for where in sorted(wanted.keys() | {name for name in files if name.startswith(("data/", "initial/"))}):
        if files[where] != wanted[where]:
            yield f"{where}-*: {files[where]} rows in the files, {wanted[where]} in the metadata"
    yield from _faults_of_runs(manifest, rows)


def _faults_of_runs(manifest: Manifest, rows: Iterable[Row]) -> Iterator[str]:
    """Chains that are broken, facts that change within a run, and rounds that lack without being declared."""
    runs: dict[str, dict[int, Row]] = defaultdict(dict)
    initial: dict[str, Row] = {}
    for row in rows:
        if row.run_id is None:
            initial[row.initial_image] = row
        else:
            runs[row.run_id][row.round] = row
    declared = {gap.run_id: set(gap.rounds) for gap in manifest.gaps}
    for run, rounds in runs.items():
        start = next(iter(rounds.values()))
        chain = {0: initial[start.initial_image], **rounds} if start.initial_image in initial else dict(rounds)
        for name in ("setting_group", "period", "style", "simulated"):
            if len({getattr(row, name) for row in rounds.values()}) > 1:
                yield f"{run}: {name} differs between its rounds"
        for number, row in sorted(rounds.items()):
            if number - 1 in chain and row.parent_sha256 != chain[number - 1].sha256:
                yield f"{row.image_id}: parent_sha256 is not the SHA-256 of round {number - 1}"
        lacking = set(range(max(rounds) + 1)) - chain.keys() - declared.get(run, set())
        if lacking:
            yield f"{run}: rounds missing that are not declared: {', '.join(map(str, sorted(lacking)))}"
        for number in sorted(declared.get(run, set()) & chain.keys()):
            yield f"{run}: round {number} is declared missing, but is there"


def _faults_of_file(storage: Storage, entry: FileEntry) -> Iterator[str]:
    """What the footer of a Parquet file tells."""
    with_images = entry.path != METADATA
    if with_images and not _DATA.fullmatch(entry.path):
        yield f"{entry.path}: no name of a file of a dataset"
        return
    try:
        file = ParquetPart(storage, entry.path, entry)
    except BananaError as error:
        yield str(error)
        return
    if not file.schema.equals(arrow_schema(image=with_images)):
        yield f"{entry.path}: its columns or their types are not those of a dataset"
    elif with_images and file.facts.num_row_groups != file.facts.num_rows:
        yield f"{entry.path}: {file.facts.num_rows} rows in {file.facts.num_row_groups} row groups, expected one each"


def _faults_of_bytes(storage: Storage, entries: list[FileEntry]) -> Iterator[str]:
    with progress("hashing", len(entries), "files") as advance:
        for entry in entries:
            digest = hashlib.sha256()
            with storage.open(entry.path, entry.bytes) as file:
                while block := file.read(BLOCK):
                    digest.update(block)
            if digest.hexdigest() != entry.sha256:
                yield f"{entry.path}: SHA-256 {digest.hexdigest()[:12]}..., the manifest says {entry.sha256[:12]}..."
            advance(1)


def _faults_of_images(
    storage: Storage, manifest: Manifest, rows: list[Row], sound: set[str], workers: int
) -> Iterator[str]:
    """The images, and the columns beside them, of the files `sound`."""
    try:
        places = data.places(storage, rows, manifest)
    except BananaError as error:
        yield str(error)
        return
    for path in sorted(sound - {METADATA}):
        mine = [row for row in rows if places[row.image_id][0].path == path]
        beside = ParquetPart(storage, path).table(range(len(mine)), COLUMNS)
        for row, found in zip(sorted(mine, key=row_order), beside.to_pylist(), strict=True):
            if found != row.as_dict():
                wrong = ", ".join(name for name in COLUMNS if found[name] != getattr(row, name))
                yield f"{path}: {row.image_id}: not as in the metadata: {wrong}"
    readable = [row for row in rows if places[row.image_id][0].path in sound]
    selection = Selection(storage=storage, manifest=manifest, rows=sorted(readable, key=row_order), places=places)
    with ThreadPoolExecutor(workers) as pool, progress("decoding", len(readable)) as advance:
        waiting = []
        for row, encoded in selection.images(checked=False):
            waiting.append(pool.submit(_faults_of_image, row, encoded))
            while len(waiting) > 2 * workers:
                yield from waiting.pop(0).result()
                advance(1)
        for future in waiting:
            yield from future.result()
            advance(1)


def _faults_of_image(row: Row, encoded: bytes) -> list[str]:
    if sha256_bytes(encoded) != row.sha256:
        return [f"{row.image_id}: the bytes are not those its row describes"]
    try:
        facts = images.probe(encoded, row.image_id)
        images.decode(encoded, row.image_id)
    except BananaError as error:
        return [str(error)]
    told = (facts.width, facts.height, facts.format, len(encoded))
    if told != (row.width, row.height, row.format, row.num_bytes):
        return [f"{row.image_id}: width, height, format and bytes are {told}, its row says otherwise"]
    return []
