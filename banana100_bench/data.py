"""Open a dataset, on this machine or on the Hub: select rows, and read only the images that are selected.

A dataset may come from a stranger, so every row is checked before it is believed, every image is
compared with its row's SHA-256, and nothing is read outside the dataset.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from numbers import Integral
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from banana100_bench import records
from banana100_bench.errors import BananaError, UsageError, unknown_name
from banana100_bench.files import sha256_bytes
from banana100_bench.images import MAX_BYTES
from banana100_bench.package import manifest as manifests
from banana100_bench.package.card import CONFIGS, configs, ranges
from banana100_bench.package.manifest import FileEntry, Manifest
from banana100_bench.package.shards import IMAGE_BYTES, METADATA, stem
from banana100_bench.package.source import row_order
from banana100_bench.package.storage import HubDataset, Storage, open_storage
from banana100_bench.protocol import GROUPS, IMAGES, KEY_ROUNDS
from banana100_bench.records import COLUMNS, Row

if TYPE_CHECKING:
    import datasets

MAX_ROWS = 1_000_000
MAX_METADATA_BYTES = 1 << 30  # decompressed
BATCH_BYTES = 16 << 20  # of image bytes, read at once
_SHA256 = re.compile("[0-9a-f]{64}")

Place = tuple[FileEntry, int]
"""Where an image is: the file, and which of its rows it is."""


@dataclass(kw_only=True)
class Selection:
    """Rows of a dataset, in row order, and the way to their images.

    storage: where the dataset is. manifest: of the whole dataset, whatever is selected of it.
    """

    storage: Storage
    manifest: Manifest
    rows: list[Row]
    places: Mapping[str, Place]

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def dataset_fingerprint(self) -> str:
        return self.manifest.fingerprint

    @property
    def simulated(self) -> bool:
        return self.manifest.simulated

    @property
    def bytes_read(self) -> int:
        """All bytes read of the dataset's files so far, those of its list of rows included."""
        return self.storage.traffic.bytes

    @cached_property
    def fingerprint(self) -> str:
        """`records.fingerprint` of the selected rows."""
        return records.fingerprint((row.image_id, row.sha256) for row in self.rows)

    @property
    def files(self) -> list[FileEntry]:
        """The files that hold the selected images."""
        found = {entry.path: entry for entry, _ in (self.places[row.image_id] for row in self.rows)}
        return [found[path] for path in sorted(found)]

    def __len__(self) -> int:
        return len(self.rows)

    def describe(self) -> str:
        """What the dataset holds, and what reading this selection takes, on a few lines."""
        whole, counts = self.manifest, self.manifest.counts
        stored = sum(entry.bytes for entry in whole.files if entry.path.startswith(("data/", "initial/")))
        pixels = sum(row.num_bytes for row in self.rows)
        runs = len({row.run_id for row in self.rows})
        lines = [
            f"{self.storage}: {whole.name}, {'SIMULATED, ' if whole.simulated else ''}fingerprint "
            f"{whole.fingerprint[:12]}, licence {whole.licence}, by {whole.builder}",
            f"  {counts.images} images of rounds 1 and later ({IMAGES} in the paper) in {counts.runs} runs of "
            f"{counts.settings} settings; {counts.initial_images} initial images; {stored / 1e6:.1f} MB",
        ]
        for config in configs(entry.path for entry in whole.files):
            name, glob = config["config_name"], config["data_files"][0]["path"]
            files = [entry for entry in whole.files if PurePosixPath(entry.path).match(glob)]
            rows, size = sum(entry.rows or 0 for entry in files), sum(entry.bytes for entry in files)
            lines.append(f"  {name:12} {rows:7} rows {size / 1e6:10.1f} MB in {len(files)} files")
        lacking = sum(len(gap.rounds) for gap in whole.gaps)
        lines.append(f"  gaps: {lacking} images missing from {len(whole.gaps)} runs; {len(whole.faults)} unusable")
        share = f" ({100 * pixels / stored:.1f} %)" if stored else ""
        lines.append(
            f"  selected: {len(self.rows)} images of {runs} runs, {pixels / 1e6:.1f} MB"
            f"{share} in {len(self.files)} files; read so far: {self.bytes_read / 1e6:.2f} MB"
        )
        return "\n".join(lines)

    def subset(self, image_ids: Iterable[str]) -> Selection:
        """The selection of these of its images, still in row order; UsageError for one that it lacks."""
        wanted = set(image_ids)
        rows = [row for row in self.rows if row.image_id in wanted]
        if len(rows) < len(wanted):
            lacking = min(wanted.difference(row.image_id for row in rows))
            raise unknown_name("image", lacking, (row.image_id for row in self.rows))
        return replace(self, rows=rows)

    def shuffled(self) -> Selection:
        """The same rows in the order of their SHA-256, which tells nothing of rounds.

        A model that changes while it scores (a running mean, a counter) would profit from images in order of
        round: its drift alone would look like degradation.
        """
        return replace(self, rows=sorted(self.rows, key=lambda row: row.sha256))

    def images(self, checked: bool = True) -> Iterator[tuple[Row, bytes]]:
        """Each row with its encoded image, in the order of `rows`; some BATCH_BYTES of each open file are in memory.

        Opens only the files, and reads only the row groups, that hold selected images. Raises
        BananaError where an image is absent, or, being `checked`, not the one that its row describes.
        """
        wanted: dict[str, deque[Row]] = defaultdict(deque)
        for row in self.rows:
            wanted[self.places[row.image_id][0].path].append(row)
        read: dict[str, dict[str, bytes]] = {path: {} for path in wanted}
        opened: dict[str, ParquetPart] = {}
        for row in self.rows:
            entry, _ = self.places[row.image_id]
            if row.image_id not in read[entry.path]:
                if entry.path not in opened:
                    opened[entry.path] = ParquetPart(self.storage, entry.path, entry)
                read[entry.path] = self._batch(opened[entry.path], wanted[entry.path])
                if not wanted[entry.path]:
                    del opened[entry.path]
            data = read[entry.path].pop(row.image_id)
            if checked and sha256_bytes(data) != row.sha256:
                raise BananaError(f"{self.storage}: the bytes of image {row.image_id} are not those its row describes")
            yield row, data

    def _batch(self, file: ParquetPart, wanted: deque[Row]) -> dict[str, bytes]:
        """The next images that are wanted of `file`, by id, taken from `wanted`."""
        rows: list[Row] = []
        size = 0
        while wanted and (not rows or size + wanted[0].num_bytes <= BATCH_BYTES):
            rows.append(wanted.popleft())
            size += rows[-1].num_bytes
        rows.sort(key=lambda row: self.places[row.image_id][1])
        images = file.images([self.places[row.image_id][1] for row in rows])
        return {row.image_id: data for row, data in zip(rows, images, strict=True)}


class ParquetPart:
    """An open Parquet file of a dataset, whose errors name it; BananaError where it is none or has too many rows.

    entry: what the manifest says of it, which must be so.
    """

    def __init__(self, storage: Storage, name: str, entry: FileEntry | None = None):
        self.name = f"{storage}/{name}"
        try:
            self._file = storage.open(name, entry.bytes if entry else None)
            self._parquet = pq.ParquetFile(self._file.local())
        except (OSError, pa.ArrowException) as error:
            raise BananaError(f"{self.name}: not a readable Parquet file: {error}") from error
        self.facts = self._parquet.metadata
        self.schema = self._parquet.schema_arrow
        if self.facts.num_rows > MAX_ROWS:
            raise BananaError(f"{self.name}: {self.facts.num_rows} rows, above the limit of {MAX_ROWS}")
        if entry is not None and entry.rows != self.facts.num_rows:
            raise BananaError(f"{self.name}: {self.facts.num_rows} rows, but its manifest says {entry.rows}")

    def table(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Some leaf columns, as ``image.bytes``, of some row groups."""
        try:
            self._file.hold(self._ranges(groups, columns))
            table = self._parquet.read_row_groups(list(groups), columns=list(columns)).flatten()
            self._file.hold(())
            return table
        except (OSError, pa.ArrowException) as error:
            raise BananaError(f"{self.name}: {', '.join(columns)} cannot be read: {error}") from error

    def images(self, rows: Sequence[int]) -> list[bytes]:
        """The encoded images of these rows, given in ascending order."""
        ends = list(accumulate(self.facts.row_group(group).num_rows for group in range(self.facts.num_row_groups)))
        homes = [bisect_right(ends, row) for row in rows]
        groups = sorted(set(homes))
        for group in groups:
            size = self._size(group)
            if size > MAX_BYTES:
                raise BananaError(f"{self.name}: row group {group} holds {size} bytes, above the limit of {MAX_BYTES}")
        column = self.table(groups, [IMAGE_BYTES]).column(IMAGE_BYTES)
        lengths = [self.facts.row_group(group).num_rows for group in groups]
        begins = dict(zip(groups, accumulate(lengths, initial=0), strict=False))  # of each group, in `column`
        found = []
        for row, group in zip(rows, homes, strict=True):
            data = column[begins[group] + row - (ends[group - 1] if group else 0)].as_py()
            if not isinstance(data, bytes):
                raise BananaError(f"{self.name}: row {row} has no image bytes")
            found.append(data)
        return found

    def _ranges(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Where these columns of these row groups lie in the file."""
        for group in groups:
            facts = self.facts.row_group(group)
            for number in range(facts.num_columns):
                leaf = facts.column(number)
                if leaf.path_in_schema in columns:
                    start = leaf.dictionary_page_offset or leaf.data_page_offset
                    yield start, start + leaf.total_compressed_size

    def _size(self, group: int) -> int:
        """How large the images of one row group are in memory, in bytes."""
        facts = self.facts.row_group(group)
        for number in range(facts.num_columns):
            leaf = facts.column(number)
            if leaf.path_in_schema == IMAGE_BYTES:
                return int(leaf.total_uncompressed_size)
        raise BananaError(f"{self.name}: has no column {IMAGE_BYTES}")


def open_data(
    source: str | Path | Storage,
    *,
    rounds: Collection[int] | None = KEY_ROUNDS,
    setting_groups: Collection[str] | None = None,
    settings: Collection[str] | None = None,
    initial_images: Collection[str] | None = None,
    repetitions: Collection[int] | None = None,
) -> Selection:
    """A selection of the dataset at `source`: a folder as `banana100 build` writes it, or ``ORG/NAME[@REVISION]`` on
    the Hub, of which only what is needed is fetched.

    rounds: default those of the paper's criterion; None for all from 1 on. Round 0, if asked for,
    gives the initial images of the selected runs. The other arguments select runs; None takes all.
    Reads the rows, not the images. Raises UsageError for a name or a number that the dataset does not
    have and for a selection without images, BananaError for what is not a sound dataset.
    """
    _check_collections(Integral, rounds=rounds, repetitions=repetitions)
    _check_collections(str, setting_groups=setting_groups, settings=settings, initial_images=initial_images)
    storage = open_storage(source)
    manifest = manifests.read(storage)
    rows = read_rows(storage)
    fingerprint = records.fingerprint((row.image_id, row.sha256) for row in rows)
    if fingerprint != manifest.fingerprint:
        raise BananaError(f"{storage}: its rows have fingerprint {fingerprint[:12]}, its manifest says otherwise")
    if any(row.simulated for row in rows) != manifest.simulated:
        raise BananaError(f"{storage}: its rows and its manifest do not agree on whether the images are simulated")

    edited = [row for row in rows if row.round > 0]
    for column, wanted in (
        ("setting_group", setting_groups),
        ("setting", settings),
        ("initial_image", initial_images),
        ("repetition", repetitions),
    ):
        if wanted is not None:
            choices = {getattr(row, column) for row in edited}
            for value in wanted:
                if value not in choices:
                    raise unknown_name(column.replace("_", " "), str(value), map(str, choices))
            edited = [row for row in edited if getattr(row, column) in wanted]
    present = sorted({row.round for row in edited})
    starts = {row.initial_image for row in edited}
    chosen = [row for row in edited if rounds is None or row.round in rounds]
    if rounds is not None and 0 in rounds:
        chosen += [row for row in rows if row.round == 0 and row.initial_image in starts]
    if not chosen:
        asked = "all" if rounds is None else ranges(sorted(rounds)) or "none"
        raise UsageError(f"{storage}: no image has the rounds asked for ({asked}); rounds there: {ranges(present)}")
    return Selection(
        storage=storage,
        manifest=manifest,
        rows=sorted(chosen, key=row_order),
        places=places(storage, rows, manifest),
    )


def _check_collections(kind: type, **asked: Any) -> None:
    """UsageError where one is neither None nor a collection of `kind`; a text is none, though it holds texts."""
    what = "names" if kind is str else "whole numbers"
    for name, wanted in asked.items():
        sound = isinstance(wanted, Collection) and not isinstance(wanted, str | bytes)
        if wanted is not None and not (sound and all(isinstance(v, kind) and v is not True for v in wanted)):
            raise UsageError(f"{name} {wanted!r:.80}: expected a list of {what}, or None for all")


def places(storage: Storage, rows: Iterable[Row], manifest: Manifest) -> dict[str, Place]:
    """Where each image is. No file need be asked: all files of one stem hold its rows in `row_order`, one after
    the other, and the manifest says how many each."""
    files: dict[str, list[FileEntry]] = defaultdict(list)
    for entry in manifest.files:
        if entry.rows is not None:
            files[entry.path.rsplit("-", 3)[0]].append(entry)
    ids: dict[str, list[str]] = defaultdict(list)
    for row in sorted(rows, key=row_order):
        ids[stem(row)].append(row.image_id)
    found: dict[str, Place] = {}
    for where, names in ids.items():
        kept = sum(entry.rows or 0 for entry in files[where])
        if kept != len(names):
            raise BananaError(f"{storage}: {len(names)} rows have their image in {where}-*, whose files hold {kept}")
        entries = sorted(files[where], key=lambda entry: entry.path)
        slots = [(entry, number) for entry in entries for number in range(entry.rows or 0)]
        found |= zip(names, slots, strict=True)
    return found


def load(
    source: str | Path = "banana100",
    config: str = "default",
    split: str = "test",
    *,
    rounds: Collection[int] | None = None,
    settings: Collection[str] | None = None,
    setting_groups: Collection[str] | None = None,
    initial_images: Collection[str] | None = None,
    repetitions: Collection[int] | None = None,
    **kwargs: Any,
) -> datasets.Dataset:
    """`datasets.load_dataset` of a dataset folder or of ``ORG/NAME[@REVISION]`` on the Hub.

    config: default, key_rounds, replication, variants, objects, more_models, initial or metadata, as far
    as the dataset has them. rounds and the rest: as in `open_data`, but that None takes all rounds of the config;
    only the files, and with ``streaming=True`` only the row groups, that hold such images are read.
    kwargs: passed on to `load_dataset`, as streaming=True. Raises UsageError and BananaError with one clear line.
    """
    from datasets import load_dataset

    storage = open_storage(source)
    manifest = manifests.read(storage)  # `datasets` would take any folder of files for a dataset
    offered = [entry["config_name"] for entry in configs(entry.path for entry in manifest.files)]
    if config not in offered:
        raise unknown_name("config", config, offered)
    try:
        if rounds is setting_groups is settings is initial_images is repetitions is None:
            options = {"path": str(source), "name": config}
            if isinstance(storage, HubDataset):
                options = {"path": storage.repo_id, "name": config, "revision": storage.commit}
        else:
            chosen = open_data(
                storage,
                rounds=range(1, 10_000) if rounds is None else rounds,
                setting_groups=setting_groups,
                settings=settings,
                initial_images=initial_images,
                repetitions=repetitions,
            )
            options = _narrow(chosen, config)
        return load_dataset(**options, split=split, **kwargs)
    except BananaError:
        raise
    except Exception as error:  # `datasets` has no common class for: offline, another split, a broken file
        raise BananaError(f"{source}: cannot be opened as a dataset: {str(error).splitlines()[0]}") from error


def _narrow(chosen: Selection, config: str) -> dict[str, Any]:
    """What `load_dataset` must be told to read the rows of `chosen` in `config` from the files that hold them alone."""
    glob, _ = CONFIGS[config]
    names = [METADATA] if config == "metadata" else [entry.path for entry in chosen.files]
    names = [name for name in names if PurePosixPath(name).match(glob)]
    if not names:
        raise UsageError(f"{chosen.storage}: nothing of config {config} is selected")
    edited = [row for row in chosen.rows if row.round]
    starts = [row.initial_image for row in chosen.rows if not row.round]
    filters = [
        [
            ("run_id", "in", sorted({row.run_id or "" for row in edited})),
            ("round", "in", sorted({row.round for row in edited})),
        ],
        [("round", "==", 0), ("initial_image", "in", starts)],
    ]
    wanted = [part for part, there in zip(filters, (edited, starts), strict=True) if there]
    return {
        "path": "parquet",
        "data_files": {"test": [f"{chosen.storage.address}/{name}" for name in names]},
        "filters": wanted,
    }


def read_rows(storage: Storage) -> list[Row]:
    """All rows of the dataset, each checked."""
    table = _metadata_table(storage)
    where = f"{storage}/metadata"
    try:
        rows = TypeAdapter(list[Row]).validate_python(table.to_pylist())
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        number, *column = fault["loc"]
        raise BananaError(f"{where}: row {number}: {'.'.join(map(str, column))}: {fault['msg']}") from error
    seen = set()
    for row in rows:
        _check(row, where)
        if row.image_id in seen:
            raise BananaError(f"{where}: image {row.image_id} stands twice in the dataset")
        seen.add(row.image_id)
    if len({row.simulated for row in rows if row.round > 0}) > 1:
        raise BananaError(f"{where}: simulated and real images in one dataset")
    return rows


def _metadata_table(storage: Storage) -> pa.Table:
    file = ParquetPart(storage, METADATA)
    groups = range(file.facts.num_row_groups)
    size = sum(file.facts.row_group(group).total_byte_size for group in groups)
    if size > MAX_METADATA_BYTES:
        raise BananaError(f"{file.name}: {size} bytes, above the limit of {MAX_METADATA_BYTES}")
    lacking = [name for name in COLUMNS if name not in file.schema.names]
    if lacking:
        raise BananaError(f"{file.name}: has no column {', '.join(lacking)}")
    return file.table(groups, COLUMNS)


def _check(row: Row, where: str) -> None:
    """BananaError unless the names of `row` are safe and agree: they go into paths, pages and other files."""
    if not _SHA256.fullmatch(row.sha256):
        raise BananaError(f"{where}: {row.image_id}: sha256 {row.sha256[:80]!r}, expected 64 of 0-9 a-f")
    run = None
    if row.round > 0:
        if row.setting_group not in GROUPS:
            raise BananaError(f"{where}: {row.image_id}: setting_group is missing")
        if row.repetition is None or row.repetition < 0:
            raise BananaError(f"{where}: {row.image_id}: repetition {row.repetition}, expected 0 or more")
        run = records.run_id(row.setting or "", row.initial_image, row.editor or "", row.repetition)
    records.check_name(f"{where}: initial image", row.initial_image)
    image = records.image_id(run, row.initial_image, row.round)
    if (row.run_id, row.image_id) != (run, image):
        raise BananaError(f"{where}: {row.image_id} of run {row.run_id}: by its columns it is {image} of {run}")
