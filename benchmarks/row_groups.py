"""How many rows a row group should hold, 1 to 4: bytes and requests to read one row, one run, the key rounds.

    .venv/bin/python benchmarks/row_groups.py [--image-kb 3000]

The same 2 runs of 40 images in one file each way, read from disk and over HTTP from the local Hub of the tests.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from banana100_bench.data import ParquetPart
from banana100_bench.package import shards
from banana100_bench.package.storage import Folder, HubDataset, Storage
from banana100_bench.protocol import KEY_ROUNDS
from banana100_bench.records import Row, image_id
from tests.fakes.hub import FakeHub

ROUNDS = 40
NAME = "data/replication/rest-00000-of-00001.parquet"


def rows(size: int) -> list[tuple[Row, bytes]]:
    random = np.random.default_rng(0)
    made = []
    for run in ("replication__a__x__rep0", "replication__a__x__rep1"):
        for number in range(1, ROUNDS + 1):
            facts = {"initial_image": "a", "setting": "replication", "setting_group": "replication", "editor": "x"}
            row = Row(
                image_id=image_id(run, "a", number),
                run_id=run,
                round=number,
                width=2048,
                height=2048,
                format="PNG",
                num_bytes=size,
                sha256="0" * 64,
                parent_sha256="1" * 64,
                prompt="Produce an exact replica of the provided image, with no alterations.",
                created_at="2026-01-01T00:00:00Z",
                **facts,
            )
            made.append((row, random.bytes(size)))
    return made


def write(path: Path, images: list[tuple[Row, bytes]], per_group: int) -> None:
    path.parent.mkdir(parents=True)
    if per_group == 1:
        shards.write_images(path, images)
        return
    schema = shards.arrow_schema()
    with pq.ParquetWriter(path, schema, use_content_defined_chunking=shards.CHUNKING, **shards._options()) as writer:
        for at in range(0, len(images), per_group):
            batch = [
                {**row.as_dict(), "image": {"bytes": data, "path": "x.png"}}
                for row, data in images[at : at + per_group]
            ]
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=schema))


def read(storage: Storage, wanted: list[int], needed: int) -> str:
    """Read rows 16 MB at a time, as `Selection.images` does."""
    start = time.perf_counter()
    part = ParquetPart(storage, NAME)
    step = max(1, (16 << 20) // needed)
    for at in range(0, len(wanted), step):
        assert all(part.images(wanted[at : at + step]))
    seconds = time.perf_counter() - start
    extra = storage.traffic.bytes / (needed * len(wanted))
    return f"{extra:5.2f} x bytes {storage.traffic.requests:3} reads {1000 * seconds:6.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image-kb", type=int, default=3000)
    size = parser.parse_args().image_kb * 1000
    images = rows(size)
    patterns = {
        "one row": [ROUNDS + 7],
        "one run": list(range(ROUNDS, 2 * ROUNDS)),
        "key rounds": [run * ROUNDS + number - 1 for run in (0, 1) for number in KEY_ROUNDS],
    }
    print(f"{len(images)} images of {size / 1e6:.1f} MB; bytes are multiples of those of the images asked for")
    with tempfile.TemporaryDirectory() as place, FakeHub() as hub:
        import pytest

        for per_group in (1, 2, 3, 4):
            folder = Path(place) / str(per_group)
            write(folder / NAME, images, per_group)
            over = (folder / NAME).stat().st_size / (size * len(images)) - 1
            print(f"{per_group} rows a group: file {100 * over:.3f} % above the images, ", end="")
            print(f"footer {pq.ParquetFile(folder / NAME).metadata.serialized_size / 1000:.0f} kB")
            hub.add_repo("dataset", f"org/rows{per_group}", {NAME: folder / NAME})
            for what, wanted in patterns.items():
                print(f"  {what:11} disk {read(Folder(folder), wanted, size)}", end="")
                with pytest.MonkeyPatch.context() as patch:
                    hub.connect(patch, Path(place) / "home")
                    remote = HubDataset(f"org/rows{per_group}")
                    _ = remote.commit
                    remote.traffic.requests = 0
                    print(f"   http {read(remote, wanted, size)}")


if __name__ == "__main__":
    main()
