"""package/shards.py: which file holds what, and how it is stored."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from banana100_bench.errors import BananaError
from banana100_bench.files import write_bytes
from banana100_bench.package import shards
from banana100_bench.package.source import find
from banana100_bench.records import COLUMNS, Row, image_id
from tests.package.making import FACTS, PATTERN, picture, write_tree


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


def test_plan_by_hand() -> None:
    rows = [row(0), row(1, 40), row(2, 40), row(3, 50), row(4, 20), row(5, 200), row(6, 30)]
    planned = shards.plan([(one, Path("x")) for one in rows], max_shard_bytes=100)
    assert {name: [one.round for one, _ in part] for name, part in planned.items()} == {
        "data/object/key-00000-of-00002.parquet": [1],
        "data/object/key-00001-of-00002.parquet": [5],
        "data/object/rest-00000-of-00002.parquet": [2, 3],
        "data/object/rest-00001-of-00002.parquet": [4, 6],
        "initial/test-00000-of-00001.parquet": [0],
    }


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60)), max_size=60))
def test_plan_keeps_every_image_in_order_and_every_file_small(numbers: list[tuple[int, int]]) -> None:
    images = [(row(number, size), Path("x")) for number, size in numbers]
    planned = shards.plan(images, max_shard_bytes=100)
    for where in {shards.stem(one) for one, _ in images}:
        parts = [part for name, part in planned.items() if name.startswith(f"{where}-")]
        assert list(chain(*parts)) == [image for image in images if shards.stem(image[0]) == where]
    for part in planned.values():
        assert part
        assert sum(one.num_bytes for one, _ in part) <= 100
    assert sum(map(len, planned.values())) == len(images)


@given(st.lists(st.integers(1, 9), max_size=8), st.integers(1, 5))
def test_a_row_group_never_holds_two_runs(lengths: list[int], rows: int) -> None:
    images = [(row(at + 1, run=f"r{run}"), Path("x")) for run, length in enumerate(lengths) for at in range(length)]
    groups = list(shards.row_groups(images, rows))
    assert list(chain(*groups)) == images
    assert all(len({one.run_id for one, _ in group}) == 1 and len(group) <= rows for group in groups)
    assert len(groups) == sum(-(-length // rows) for length in lengths)


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


def test_an_image_changed_after_the_check_stops_the_write(tmp_path: Path) -> None:
    images = find(write_tree(tmp_path / "tree", ["plant"]), PATTERN, FACTS).images
    write_bytes(images[3][1], picture(77))
    with pytest.raises(BananaError, match=r"plant/step_003_x\.png: has changed since it was checked"):
        shards.write_images(tmp_path / "out" / "x.parquet", images, lambda count: None)
    assert list((tmp_path / "out").iterdir()) == []
