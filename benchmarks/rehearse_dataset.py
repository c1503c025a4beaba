"""The dataset at full size with small pictures: 28,000 images and their 13 initial ones, built, opened, read in part.

    .venv/bin/python benchmarks/rehearse_dataset.py [--keep FOLDER]

How the paper's 56 pairs of setting and image fall on the settings is a guess (`protocol.CAMPAIGNS`); the sums are not.
The pictures are noise made here: no editor, simulated or real.
"""

from __future__ import annotations

import argparse
import io
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

from banana100_bench.data import load, open_data
from banana100_bench.package.build import build
from banana100_bench.protocol import CAMPAIGNS, IMAGES, REPETITIONS, ROUNDS
from banana100_bench.verify import verify

SHARD = 130_000  # about 150 of these pictures, as 1 GB holds of the real ones


def make(folder: Path) -> None:
    random = np.random.default_rng(0)
    file = io.BytesIO()
    Image.fromarray(random.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(file, "PNG")
    number = 0
    for setting, images in CAMPAIGNS["banana100"].images.items():
        for image in range(images):
            for repetition in range(REPETITIONS):
                place = folder / setting / f"image{image:02d}" / f"rep{repetition}"
                place.mkdir(parents=True)
                for round_number in range(ROUNDS + 1):
                    number += 1  # behind the end marker: another file each; round 0 is one for all runs
                    tail = number if round_number else image
                    (place / f"step_{round_number:03d}.png").write_bytes(file.getvalue() + tail.to_bytes(4, "little"))


def timed(what: str, start: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what:34}{time.perf_counter() - start:7.1f} s   peak so far {peak:.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="Where to leave the dataset.")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as place:
        raw, out = Path(place) / "raw", (keep or Path(place)) / "banana100"
        start = time.perf_counter()
        make(raw)
        timed("28,000 files made", start)
        start = time.perf_counter()
        report = build(raw, out, constants={"editor": "rehearsal"}, max_shard_bytes=SHARD)
        timed("built", start)
        print(report.summary())
        counts = report.manifest.counts
        assert (counts.images, counts.runs, counts.initial_images) == (IMAGES, IMAGES // ROUNDS, 13), counts
        start = time.perf_counter()
        checked = verify(out, quick=True)
        timed(f"verified, quick: {len(checked.faults)} faults", start)
        assert not checked.faults

        start = time.perf_counter()
        selection = open_data(out)
        timed("opened (key rounds)", start)
        print(selection.describe())
        stored = sum(entry.bytes for entry in report.manifest.files if entry.path.startswith("data/"))
        keys = [entry for entry in report.manifest.files if "/key-" in entry.path]
        print(f"key files: {100 * sum(entry.bytes for entry in keys) / stored:.2f} % of the bytes")
        assert {entry.path for entry in selection.files} == {entry.path for entry in keys}

        run = selection.rows[1000].run_id
        one = open_data(out, rounds=None)
        one = one.subset(row.image_id for row in one.rows if row.run_id == run)
        before, start = one.bytes_read, time.perf_counter()
        assert len(list(one.images())) == ROUNDS
        sizes = {entry.path: entry.bytes for entry in one.files}
        pixels = sum(row.num_bytes for row in one.rows)
        read = one.bytes_read - before
        timed("one run read", start)
        print(
            f"  {pixels} bytes of images; {read} read, footers included; its {len(sizes)} files: {sum(sizes.values())}"
        )
        row = one.rows[0]
        start = time.perf_counter()
        streamed = load(
            out,
            settings=[row.setting],
            initial_images=[row.initial_image],
            repetitions=[row.repetition],
            streaming=True,
        )
        assert {found["run_id"] for found in streamed} == {run}
        timed("the same by load(streaming=True)", start)


if __name__ == "__main__":
    main()
