"""What other people's tools make of a dataset folder. `datasets` itself: test_build.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SETTINGS = {"add_apple": 6, "cross_model_replication": 2, "mirror": 3, "replication": 26}
METADATA = "metadata/*.parquet"


def test_pyarrow(dataset: Path) -> None:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    key = ds.dataset(str(dataset / "data"), format="parquet")
    table = key.to_table(columns=["image_id", "image"], filter=pc.field("round") == 5)
    assert table.num_rows == 3
    assert table["image"][0].as_py()["bytes"][:4] == b"\x89PNG"


def test_pandas(dataset: Path) -> None:
    import pandas as pd

    frame = pd.read_parquet(dataset / "metadata")
    assert frame[frame["round"] > 0].groupby("setting").size().to_dict() == SETTINGS


def test_polars(dataset: Path) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.scan_parquet(dataset / METADATA).filter(pl.col("round") > 0).group_by("setting").len().collect()
    assert dict(frame.iter_rows()) == SETTINGS
    images = pl.scan_parquet(dataset / "data/object/*.parquet").select(pl.col("image").struct.field("bytes").bin.size())
    assert images.collect().height == 6


def test_duckdb(dataset: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    query = f"SELECT setting, count(*) FROM '{dataset / METADATA}' WHERE round > 0 GROUP BY setting"
    assert dict(duckdb.sql(query).fetchall()) == SETTINGS
    query = f"SELECT octet_length(image.bytes) = num_bytes FROM '{dataset}/data/*/*.parquet'"
    assert set(duckdb.sql(query).fetchall()) == {(True,)}


def test_croissant(dataset: Path) -> None:
    mlc = pytest.importorskip("mlcroissant")
    described = mlc.Dataset(jsonld=str(dataset / "croissant.json"))
    assert described.metadata.issues.errors == set()
    rows = list(described.records("metadata"))
    assert len(rows) == 40
    assert {row["metadata/image_id"] for row in rows if row["metadata/round"] == 0} == {
        b"initial__comb",
        b"initial__disc",
        b"initial__ramp",
    }
    assert json.loads((dataset / "croissant.json").read_text())["license"] == "unknown"
