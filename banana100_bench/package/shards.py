"""The Parquet files of a dataset: which file holds which row, and how the files are written.

The parameters are measured ones: a row group of one image lets a reader fetch one image alone, image
bytes are stored as they are (they do not compress), and content-defined chunking lets a changed
dataset be uploaded again without sending what stayed the same.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from banana100_bench.errors import BananaError
from banana100_bench.files import atomic_path, sha256_bytes
from banana100_bench.protocol import KEY_ROUNDS
from banana100_bench.raw import EXTENSIONS, read_file
from banana100_bench.records import COLUMNS, Row, arrow_schema

ROW_GROUP_ROWS = 1  # of a file with images; a row group never holds rows of two runs
MAX_SHARD_BYTES = 1_000_000_000
CHUNKING = {"min_chunk_size": 256 << 10, "max_chunk_size": 1 << 20, "norm_level": 0}  # as `datasets` has it
IMAGE_BYTES, IMAGE_PATH = "image.bytes", "image.path"  # the Parquet columns behind the column "image"
METADATA = "metadata/test-00000-of-00001.parquet"

Image = tuple[Row, Path]


def stem(row: Row) -> str:
    """Which files hold the image of `row`: ``initial/test``, ``data/object/key`` or ``data/object/rest``."""
    if row.round == 0:
        return "initial/test"
    return f"data/{row.setting_group}/{'key' if row.round in KEY_ROUNDS else 'rest'}"


def plan(images: Iterable[Image], max_shard_bytes: int = MAX_SHARD_BYTES) -> dict[str, list[Image]]:
    """Which images go into which file, by the file's name in the dataset folder; order is kept.

    A file holds at most `max_shard_bytes` of image bytes, unless a single image is larger.
    """
    shards: dict[str, list[list[Image]]] = defaultdict(list)
    room: dict[str, int] = defaultdict(int)
    for row, path in images:
        where = stem(row)
        if room[where] < row.num_bytes:
            shards[where].append([])
            room[where] = max(max_shard_bytes, row.num_bytes)
        shards[where][-1].append((row, path))
        room[where] -= row.num_bytes
    return {
        f"{where}-{number:05d}-of-{len(parts):05d}.parquet": part
        for where, parts in sorted(shards.items())
        for number, part in enumerate(parts)
    }


def row_groups(images: Iterable[Image], rows: int = ROW_GROUP_ROWS) -> Iterator[list[Image]]:
    """`images` in lists of at most `rows`, never of two runs."""
    for _, run in groupby(images, key=lambda image: image[0].run_id):
        whole = list(run)
        for start in range(0, len(whole), rows):
            yield whole[start : start + rows]


def write_images(path: Path, images: Sequence[Image], advance: Callable[[int], None]) -> None:
    """Write one file of rows with their encoded images, holding the bytes of one row group at a time.

    advance: called with the number of images just written. Raises BananaError where an image is no
    longer the one that its row describes, or `path` cannot be written.
    """
    schema = arrow_schema()
    columns = list(COLUMNS)
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(
            temporary,
            schema,
            compression={IMAGE_BYTES: "none", IMAGE_PATH: "none", **dict.fromkeys(columns, "snappy")},
            use_dictionary=False,  # a dictionary of one value is a second copy of it
            write_statistics=columns,
            write_page_index=True,
            use_content_defined_chunking=CHUNKING,
        ) as writer,
    ):
        writer.add_key_value_metadata({"content_defined_chunking": json.dumps(CHUNKING)})
        for group in row_groups(images):
            rows = [{**row.as_dict(), "image": _image(row, file)} for row, file in group]
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
            advance(len(rows))


def _image(row: Row, file: Path) -> dict[str, bytes | str]:
    data = read_file(file)
    if sha256_bytes(data) != row.sha256:
        raise BananaError(f"{file}: has changed since it was checked; build again when nothing writes there")
    return {"bytes": data, "path": f"{row.image_id}.{EXTENSIONS[row.format]}"}


def write_metadata(path: Path, rows: Iterable[Row]) -> None:
    """Write one file of rows without images."""
    table = pa.Table.from_pylist([row.as_dict() for row in rows], schema=arrow_schema(image=False))
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="snappy", write_page_index=True)
