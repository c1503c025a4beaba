"""package/shards.py: which file holds what, and how it is stored."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from banana100_bench.files import sha256_bytes, sha256_file
from banana100_bench.package import shards
from banana100_bench.records import COLUMNS, Row, image_id
from tests.package.making import picture


def row(number: int, size: int = 10, run: str = "r", group: str | None = "object") -> Row:
    return Row(
        image_id=image_id(run, "a", number),
        run_id=run if number else None,
        setting_group=group if number else None,
        initial_image="a",
        round=number,
        width=1,
        height=1,
        format="PNG",
        num_bytes=size,
        sha256="0" * 64,
    )


def test_stem() -> None:
    assert shards.stem(row(0)) == "initial/test"
    keys = [number for number in range(1, 101) if shards.stem(row(number)) == "data/object/key"]
    assert keys == [1, 5, 10, 20]
    assert shards.stem(row(2, group="more_models")) == "data/more_models/rest"


@dataclass(frozen=True)
class One:
    """An image to be planned, of `size` bytes."""

    round: int
    size: int
    setting_group: str = "object"


def test_plan_by_hand() -> None:
    sizes = {0: 10, 1: 40, 2: 40, 3: 50, 4: 20, 5: 200, 6: 30}
    planned = shards.plan([One(*pair) for pair in sizes.items()], max_shard_bytes=100)
    assert {where: [[one.round for one in part] for part in parts] for where, parts in planned.items()} == {
        "data/object/key": [[1], [5]],
        "data/object/rest": [[2, 3], [4, 6]],
        "initial/test": [[0]],
    }
    assert shards.file_name("data/object/key", 1, 2) == "data/object/key-00001-of-00002.parquet"


def test_empty_files_have_a_place_too() -> None:
    assert shards.plan([One(2, 0), One(3, 0)], max_shard_bytes=5) == {"data/object/rest": [[One(2, 0), One(3, 0)]]}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60)), max_size=60))
def test_plan_keeps_every_image_in_order_and_every_file_small(numbers: list[tuple[int, int]]) -> None:
    images = [One(*pair) for pair in numbers]
    planned = shards.plan(images, max_shard_bytes=100)
    for where, parts in planned.items():
        assert list(chain(*parts)) == [one for one in images if shards.stem(one) == where]
        for part in parts:
            assert 0 < sum(one.size for one in part) <= 100
    assert sum(len(part) for parts in planned.values() for part in parts) == len(images)


def test_the_chunker_would_cut_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [(row(number), picture(number, (900, 700))) for number in (1, 2, 3)]
    images = [(dataclasses.replace(one, num_bytes=len(data), sha256=sha256_bytes(data)), data) for one, data in images]
    assert all(len(data) > shards.CHUNKING["max_chunk_size"] for _, data in images)
    first = shards.write_images(tmp_path / "ours.parquet", images)
    options = shards._options() | {"use_content_defined_chunking": shards.CHUNKING}
    monkeypatch.setattr(shards, "_options", lambda: options)
    second = shards.write_images(tmp_path / "chunked.parquet", images)
    assert first == second == (sha256_file(tmp_path / "ours.parquet"), (tmp_path / "ours.parquet").stat().st_size, 3)
    assert (tmp_path / "ours.parquet").read_bytes() == (tmp_path / "chunked.parquet").read_bytes()


def test_no_row_no_file(tmp_path: Path) -> None:
    assert shards.write_images(tmp_path / "x.parquet", iter(())) == ("", 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_how_it_is_stored(dataset: Path) -> None:
    import datasets

    assert shards.CHUNKING == datasets.config.DEFAULT_CDC_OPTIONS
    facts = pq.ParquetFile(dataset / "data/replication/rest-00000-of-00001.parquet").metadata
    assert facts.num_rows == facts.num_row_groups == 16 + 4
    assert facts.metadata[b"content_defined_chunking"].startswith(
        b'{"min_chunk_size": 262144, "max_chunk_size": 1048576'
    )
    assert b'"image": {"_type": "Image"}' in facts.metadata[b"huggingface"]
    for group in range(facts.num_row_groups):
        leaves = [facts.row_group(group).column(at) for at in range(facts.num_columns)]
        assert [leaf.path_in_schema for leaf in leaves] == ["image.bytes", "image.path", *COLUMNS]
        for leaf in leaves:
            pixels = leaf.path_in_schema.startswith("image.")
            assert leaf.compression == ("UNCOMPRESSED" if pixels else "SNAPPY")
            assert set(leaf.encodings) == {"PLAIN", "RLE"}  # RLE: of the levels; no dictionary
            assert leaf.has_offset_index
            assert leaf.is_stats_set != pixels
            assert leaf.has_column_index != pixels


def test_metadata_has_every_row_and_no_pixels(dataset: Path) -> None:
    table = pq.read_table(dataset / "metadata/test-00000-of-00001.parquet")
    assert table.column_names == list(COLUMNS)
    assert table.num_rows == 40
    assert table["round"].to_pylist()[:4] == [0, 0, 0, 1]
