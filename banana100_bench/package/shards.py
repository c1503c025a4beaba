"""The Parquet files of a dataset: which file holds which row, and how the files are written.

The parameters are measured ones (docs/architecture.md, benchmarks/row_groups.py): a row group of one image lets a
reader fetch one image alone and never holds two runs; image bytes are stored as they are (they do not compress) and
carry no statistics. Content-defined chunking, by which a changed dataset is uploaded again without sending what
stayed the same, may cut a column only between two values: with one value in a row group there is nothing to cut, so
the files have, byte for byte, what the chunker gives, and its hash over every image is saved (tests/package/
test_shards.py holds both against each other).
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from banana100_bench.files import Follower, atomic_path
from banana100_bench.protocol import KEY_ROUNDS
from banana100_bench.raw import EXTENSIONS
from banana100_bench.records import COLUMNS, Row, arrow_schema

MAX_SHARD_BYTES = 1_000_000_000
CHUNKING = {"min_chunk_size": 256 << 10, "max_chunk_size": 1 << 20, "norm_level": 0}  # as `datasets` has it
IMAGE_BYTES, IMAGE_PATH = "image.bytes", "image.path"  # the Parquet columns behind the column "image"
METADATA = "metadata/test-00000-of-00001.parquet"


class Placed(Protocol):
    """What decides on the file of an image: a `records.Row` or a `layouts.Candidate`."""

    @property
    def setting_group(self) -> str | None: ...
    @property
    def round(self) -> int: ...


class Sized(Placed, Protocol):
    @property
    def size(self) -> int: ...


Image = TypeVar("Image", bound=Sized)


def stem(row: Placed) -> str:
    """Which files hold the image of `row`: ``initial/test``, ``data/object/key`` or ``data/object/rest``."""
    if row.round == 0:
        return "initial/test"
    return f"data/{row.setting_group}/{'key' if row.round in KEY_ROUNDS else 'rest'}"


def file_name(where: str, number: int, count: int) -> str:
    """The name of file `number` of the `count` files with the stem `where`."""
    return f"{where}-{number:05d}-of-{count:05d}.parquet"


def plan(images: Iterable[Image], max_shard_bytes: int = MAX_SHARD_BYTES) -> dict[str, list[list[Image]]]:
    """Which images go into which file: for each stem, in order of the stems, the images of each file; order is kept.

    A file holds at most `max_shard_bytes` of image bytes, unless a single image is larger.
    """
    shards: dict[str, list[list[Image]]] = defaultdict(list)
    room: dict[str, int] = defaultdict(int)
    for one in images:
        where = stem(one)
        if not shards[where] or room[where] < one.size:
            shards[where].append([])
            room[where] = max(max_shard_bytes, one.size)
        shards[where][-1].append(one)
        room[where] -= one.size
    return dict(sorted(shards.items()))


def write_images(path: Path, images: Iterable[tuple[Row, bytes]]) -> tuple[str, int, int]:
    """Write one file of rows with their encoded images, holding one of them in memory at a time.

    Gives the file's SHA-256, its size in bytes and its rows; without any row there is no file.
    Raises BananaError where `path` cannot be written.
    """
    images = iter(images)
    first = next(images, None)
    if first is None:
        return "", 0, 0
    rows, schema = 0, arrow_schema()
    with atomic_path(path) as temporary, pa.OSFile(str(temporary), "wb") as file, Follower(temporary) as behind:
        with pq.ParquetWriter(file, schema, **_options()) as writer:
            writer.add_key_value_metadata({"content_defined_chunking": json.dumps(CHUNKING)})
            for row, data in chain([first], images):
                writer.write_batch(_batch(row, data, schema))
                behind.reached(file.tell())
                rows += 1
        size = file.tell()
        return behind.digest(size), size, rows


def _options() -> dict[str, Any]:
    return {
        "compression": {IMAGE_BYTES: "none", IMAGE_PATH: "none", **dict.fromkeys(COLUMNS, "snappy")},
        "use_dictionary": False,  # a dictionary of one value is a second copy of it
        "write_statistics": list(COLUMNS),
        "write_page_index": True,
    }


def _batch(row: Row, data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """One row; the image is not copied."""
    offsets = pa.py_buffer(struct.pack("<ii", 0, len(data)))
    encoded = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])
    name = pa.array([f"{row.image_id}.{EXTENSIONS[row.format]}"], pa.string())
    image = pa.StructArray.from_arrays([encoded, name], fields=list(schema.field("image").type))
    values = row.as_dict()
    others = [pa.array([values[field.name]], field.type) for field in schema if field.name != "image"]
    return pa.RecordBatch.from_arrays([image, *others], schema=schema)


def write_metadata(path: Path, rows: Iterable[Row]) -> None:
    """Write one file of rows without images."""
    rows, schema = list(rows), arrow_schema(image=False)
    columns = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in schema]
    table = pa.Table.from_arrays(columns, schema=schema)
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="snappy", write_page_index=True)
