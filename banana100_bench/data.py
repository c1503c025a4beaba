"""Open a dataset folder: select rows, and read only the images that are selected.

A folder may come from a stranger, so every row is checked before it is believed, every image is
compared with its row's SHA-256, and nothing is read outside the folder.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from banana100_bench import records
from banana100_bench.errors import BananaError, UsageError, unknown_name
from banana100_bench.files import sha256_bytes
from banana100_bench.images import MAX_BYTES
from banana100_bench.package import manifest as manifests
from banana100_bench.package.card import ranges
from banana100_bench.package.shards import IMAGE_BYTES, METADATA, stem
from banana100_bench.package.source import row_order
from banana100_bench.protocol import GROUPS, KEY_ROUNDS
from banana100_bench.records import COLUMNS, Row

if TYPE_CHECKING:
    import datasets

MAX_ROWS = 1_000_000
MAX_METADATA_BYTES = 1 << 30  # decompressed
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(kw_only=True)
class Selection:
    """Rows of a dataset, in row order, and the way to their images.

    name, dataset_fingerprint, simulated: of the whole dataset, whatever is selected of it.
    bytes_read: of the Parquet columns that `images` has read so far.
    """

    path: Path
    name: str
    dataset_fingerprint: str
    simulated: bool
    rows: list[Row]
    bytes_read: int = field(default=0, compare=False)

    @cached_property
    def fingerprint(self) -> str:
        """`records.fingerprint` of the selected rows."""
        return records.fingerprint((row.image_id, row.sha256) for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def subset(self, image_ids: Iterable[str]) -> Selection:
        """The selection of these of its images, still in row order; UsageError for one that it lacks."""
        wanted = set(image_ids)
        rows = [row for row in self.rows if row.image_id in wanted]
        if len(rows) < len(wanted):
            lacking = min(wanted.difference(row.image_id for row in rows))
            raise unknown_name("image", lacking, (row.image_id for row in self.rows))
        return Selection(
            path=self.path,
            name=self.name,
            dataset_fingerprint=self.dataset_fingerprint,
            simulated=self.simulated,
            rows=rows,
        )

    def images(self) -> Iterator[tuple[Row, bytes]]:
        """Each row with its encoded image, in row order, one row group in memory at a time.

        Opens only the files, and reads only the row groups, that hold selected images. Raises
        BananaError where an image is absent, or not the one that its row describes.
        """
        shelves: dict[str, _Shelf] = {}
        for row in self.rows:
            where = stem(row)
            if where not in shelves:
                shelves[where] = _Shelf(self.path, where)
            data, read = shelves[where].read(row.image_id)
            self.bytes_read += read
            if sha256_bytes(data) != row.sha256:
                raise BananaError(f"{self.path}: the bytes of image {row.image_id} are not those its row describes")
            yield row, data


class _Shelf:
    """The files of one stem, as data/object/key-*.parquet, opened one after the other when they are needed."""

    def __init__(self, folder: Path, where: str):
        self._folder = folder
        self._where = where
        self._unopened = iter(_parquet_files(folder, where))
        self._places: dict[str, tuple[Path, int, int]] = {}  # image id: file, row group, row in it
        self._open: _File | None = None
        self._group: tuple[Path, int, pa.ChunkedArray] | None = None  # the row group read last

    def read(self, image_id: str) -> tuple[bytes, int]:
        """The image's bytes, and how many bytes were read to get them."""
        read = 0
        while image_id not in self._places:
            path = next(self._unopened, None)
            if path is None:
                raise BananaError(f"{self._folder}: image {image_id} is not in its files {self._where}-*.parquet")
            read += self._index(path)
        path, group, at = self._places[image_id]
        if self._group is None or self._group[:2] != (path, group):
            file = self._file(path)
            size, stored = file.size(group, IMAGE_BYTES)
            if size > MAX_BYTES:
                raise BananaError(f"{path}: row group {group} holds {size} bytes, above the limit of {MAX_BYTES}")
            self._group = (path, group, file.column([group], IMAGE_BYTES))
            read += stored
        data = self._group[2][at].as_py()
        if not isinstance(data, bytes):
            raise BananaError(f"{path}: image {image_id} has no bytes")
        return data, read

    def _index(self, path: Path) -> int:
        """Note where the images of the file at `path` are; gives how many bytes were read."""
        file = self._file(path)
        groups = range(file.facts.num_row_groups)
        names = iter(file.column(list(groups), "image_id").to_pylist())
        for group in groups:
            for at in range(file.facts.row_group(group).num_rows):
                name = next(names)
                if name in self._places:
                    raise BananaError(f"{path}: image {name} stands twice in the dataset")
                self._places[name] = (path, group, at)
        return sum(file.size(group, "image_id")[1] for group in groups)

    def _file(self, path: Path) -> _File:
        """The file at `path`, kept open until another is wanted: a large footer takes a while to read."""
        if self._open is None or self._open.path != path:
            self._open = _File(path)
        return self._open


class _File:
    """An open Parquet file whose errors name it; BananaError where it is none or has too many rows."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self._parquet = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise BananaError(f"{path}: not a readable Parquet file: {error}") from error
        self.facts = self._parquet.metadata
        self.names = self._parquet.schema_arrow.names
        if self.facts.num_rows > MAX_ROWS:
            raise BananaError(f"{path}: {self.facts.num_rows} rows, above the limit of {MAX_ROWS}")

    def table(self, groups: list[int], columns: list[str]) -> pa.Table:
        """Some leaf columns, as ``image.bytes``, of some row groups."""
        try:
            return self._parquet.read_row_groups(groups, columns=columns).flatten()
        except (OSError, pa.ArrowException) as error:
            raise BananaError(f"{self.path}: {', '.join(columns)} cannot be read: {error}") from error

    def column(self, groups: list[int], column: str) -> pa.ChunkedArray:
        table = self.table(groups, [column])
        if column not in table.column_names:
            raise BananaError(f"{self.path}: has no column {column}")
        return table.column(column)

    def size(self, group: int, column: str) -> tuple[int, int]:
        """How large one leaf column of one row group is in memory, and on disk, in bytes."""
        facts = self.facts.row_group(group)
        for number in range(facts.num_columns):
            leaf = facts.column(number)
            if leaf.path_in_schema == column:
                return leaf.total_uncompressed_size, leaf.total_compressed_size
        raise BananaError(f"{self.path}: has no column {column}")


def open_data(
    source: str | Path,
    *,
    rounds: Collection[int] | None = KEY_ROUNDS,
    setting_groups: Collection[str] | None = None,
    settings: Collection[str] | None = None,
    initial_images: Collection[str] | None = None,
    repetitions: Collection[int] | None = None,
) -> Selection:
    """A selection of the dataset in the folder `source`, as `banana100 build` writes it.

    rounds: default those of the paper's criterion; None for all from 1 on. Round 0, if asked for,
    gives the initial images of the selected runs. The other arguments select runs; None takes all.
    Reads the rows, not the images. Raises UsageError for a name or a number that the dataset does not
    have and for a selection without images, BananaError for a folder that is not a sound dataset.
    """
    folder = Path(source)
    if not folder.is_dir():
        raise BananaError(f"{source}: no such folder; expected a dataset folder, as `banana100 build` writes it")
    manifest = manifests.read(folder)
    rows = _read_rows(folder)
    fingerprint = records.fingerprint((row.image_id, row.sha256) for row in rows)
    if fingerprint != manifest.fingerprint:
        raise BananaError(f"{folder}: its rows have fingerprint {fingerprint[:12]}, its manifest says otherwise")

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
        raise UsageError(f"{folder}: no image has the rounds asked for ({asked}); rounds there: {ranges(present)}")
    return Selection(
        path=folder,
        name=manifest.name,
        dataset_fingerprint=fingerprint,
        simulated=any(row.simulated for row in rows),
        rows=sorted(chosen, key=row_order),
    )


def load(
    source: str | Path = "banana100", config: str = "default", split: str = "test", **kwargs: Any
) -> datasets.Dataset:
    """`datasets.load_dataset` of a dataset folder or Hub id, with one clear line where there is none.

    config: default, key_rounds, replication, variants, objects, more_models, initial or metadata, as far
    as the dataset has them. kwargs: passed on, as streaming=True.
    """
    from datasets import get_dataset_config_names, load_dataset

    if Path(source).is_dir():
        manifests.read(Path(source))  # `datasets` would take any folder of files for a dataset
    try:
        configs = get_dataset_config_names(str(source))
    except Exception as error:  # `datasets` has no common class for: not found, offline, not a dataset
        raise BananaError(f"{source}: cannot be opened as a dataset: {str(error).splitlines()[0]}") from error
    if config not in configs:
        raise unknown_name("config", config, configs)
    return load_dataset(str(source), config, split=split, **kwargs)


def _read_rows(folder: Path) -> list[Row]:
    """All rows of the dataset, each checked."""
    tables = [_metadata_table(file) for file in _parquet_files(folder, METADATA.partition("-")[0])]
    if not tables:
        raise BananaError(f"{folder}: has no metadata/test-*.parquet")
    where = f"{folder}/metadata"
    try:
        rows = TypeAdapter(list[Row]).validate_python([row for table in tables for row in table.to_pylist()])
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


def _metadata_table(path: Path) -> pa.Table:
    file = _File(path)
    groups = list(range(file.facts.num_row_groups))
    size = sum(file.facts.row_group(group).total_byte_size for group in groups)
    if size > MAX_METADATA_BYTES:
        raise BananaError(f"{path}: {size} bytes, above the limit of {MAX_METADATA_BYTES}")
    lacking = [name for name in COLUMNS if name not in file.names]
    if lacking:
        raise BananaError(f"{path}: has no column {', '.join(lacking)}")
    return file.table(groups, list(COLUMNS))


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


def _parquet_files(folder: Path, where: str) -> list[Path]:
    """The files ``<where>-*.parquet`` of `folder`, sorted; BananaError where one leads out of it."""
    files = sorted((folder / where).parent.glob(f"{Path(where).name}-*.parquet"))
    for file in files:
        if not file.resolve().is_relative_to(folder.resolve()):
            raise BananaError(f"{file}: a symbolic link that leads out of the dataset folder")
    return files
