"""Packing 2K images into Parquet: `banana100_bench.package.build` beside what `datasets` offers, and `cp` as the floor.

    .venv/bin/python benchmarks/build_dataset.py [--images 88] [--repeats 3]
    .venv/bin/python benchmarks/build_dataset.py --memory     # ours on 60 and on 600 images

Each contender runs in a process of its own on the same files, in turn, and is checked to have embedded every byte.
Ours writes sha256 of images, rows and files, all columns, page index, chunking, card and manifest; the others do not.
`load_dataset("imagefolder").to_parquet` stores paths, not bytes, so it is no contender.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
FACTS = {"setting": "replication", "editor": "bench", "initial_image": "noise"}


def make(folder: Path, count: int) -> None:
    """PNG and JPEG of 2048 x 2048, about 6 and 2.5 MB, each another."""
    import numpy as np
    from PIL import Image

    scene = np.add.outer(np.arange(2048), np.arange(2048))[..., None] // np.array([16, 20, 24])
    for kind, save in (("png", {"compress_level": 1}), ("jpg", {"quality": 95})):
        noise = np.random.default_rng(0).normal(0, 4, scene.shape)
        file = io.BytesIO()
        Image.fromarray(np.clip(scene + noise, 0, 255).astype(np.uint8)).save(
            file, "PNG" if kind == "png" else "JPEG", **save
        )
        for number in range(1 if kind == "png" else 2, count + 1, 2):
            # behind the end marker: another file each, and no time spent on encoding
            (folder / f"{number:03d}.{kind}").write_bytes(file.getvalue() + number.to_bytes(4, "little"))


def ours(source: Path, out: Path) -> None:
    from banana100_bench.package.build import build

    build(source, out / "banana100", pattern="{round}.{ext}", constants=FACTS)


def examples(source: str):
    for path in sorted(Path(source).iterdir()):
        data = path.read_bytes()
        yield {"image": {"bytes": data, "path": path.name}, "round": int(path.stem)}


def push_to_hub(source: Path, out: Path) -> None:
    """What push_to_hub does before it sends: Dataset._push_parquet_shards_to_hub_single, without the network."""
    from datasets import load_dataset
    from datasets.table import embed_table_storage

    whole = load_dataset("imagefolder", data_dir=str(source), split="train", cache_dir=str(out / "cache"))
    size = sum(path.stat().st_size for path in source.iterdir())
    shards = max(1, size // 500_000_000 + 1)
    for index in range(shards):
        shard = whole.shard(shards, index, contiguous=True).with_format("arrow")
        shard = shard.map(embed_table_storage, batched=True, batch_size=100, keep_in_memory=True).with_format(None)
        shard.to_parquet(out / f"{index}.parquet", batch_size=100)
        with open(out / f"{index}.parquet", "rb") as file:  # as CommitOperationAdd does
            hashlib.file_digest(file, "sha256")


def from_generator(source: Path, out: Path) -> None:
    from datasets import Dataset, Features, Image, Value

    features = Features({"image": Image(), "round": Value("int16")})
    made = Dataset.from_generator(
        examples, features=features, gen_kwargs={"source": str(source)}, cache_dir=str(out / "cache")
    )
    made.to_parquet(out / "all.parquet")


def builder(source: Path, out: Path) -> None:
    from datasets import load_dataset_builder

    folder = load_dataset_builder("imagefolder", data_dir=str(source), cache_dir=str(out / "cache"))
    folder.download_and_prepare(str(out / "built"), file_format="parquet")


def cp(source: Path, out: Path) -> None:
    shutil.copytree(source, out / "copy")


CONTENDERS = {f.__name__: f for f in (cp, ours, push_to_hub, from_generator, builder)}


def embedded(out: Path) -> set[str]:
    """SHA-256 of every image embedded in the Parquet files of `out`."""
    import pyarrow.parquet as pq

    found = set()
    for path in out.rglob("*.parquet"):
        if "metadata" not in path.parts:
            for batch in pq.ParquetFile(path).iter_batches(batch_size=4, columns=["image"]):
                found |= {hashlib.sha256(image["bytes"] or b"").hexdigest() for image in batch["image"].to_pylist()}
    return found


def fetch_memory() -> None:
    """Touch 6 GB and free them: else whoever comes first pays for what the host of a virtual machine took back."""
    with mmap.mmap(-1, 6 << 30) as memory:
        for _ in range(6):
            memory.write(bytes(1 << 30))
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew


def run(name: str, source: Path, out: Path) -> None:
    import datasets
    import pyarrow.parquet  # noqa: F401

    datasets.disable_progress_bars()
    fetch_memory()
    start, cpu = time.perf_counter(), time.process_time()
    CONTENDERS[name](source, out)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    status = Path("/proc/self/status").read_text()  # getrusage tells of the parent as well
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps({"seconds": seconds, "peak": peak, "cpu": cpu}))


def memory(place: Path, environment: dict[str, str]) -> None:
    peaks = []
    for count in (60, 600):
        source, out = place / f"raw{count}", place / f"out{count}"
        source.mkdir()
        out.mkdir()
        make(source, count)
        call = [sys.executable, __file__, "--run", "ours", str(source), str(out)]
        told = json.loads(subprocess.run(call, env=environment, check=True, capture_output=True, text=True).stdout)
        size = sum(path.stat().st_size for path in source.iterdir()) / 1e6
        peaks.append(told["peak"])
        print(
            f"{count} images, {size:.0f} MB: peak {told['peak']:.0f} MB, {size / told['seconds']:.0f} MB/s", flush=True
        )
        shutil.rmtree(source)
        shutil.rmtree(out)
    print(f"600 against 60 images: {100 * (peaks[1] / peaks[0] - 1):+.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=88)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        return run(given.run[0], Path(given.run[1]), Path(given.run[2]))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as place:
        if given.memory:
            return memory(Path(place), environment)
        source = Path(place) / "raw"
        source.mkdir()
        make(source, given.images)
        files = list(source.iterdir())
        size = sum(path.stat().st_size for path in files) / 1e6
        wanted = {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
        print(f"{len(files)} images, {size:.0f} MB, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        speed: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        cpu: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        peak: dict[str, float] = {}
        for repeat in range(given.repeats):
            for name in CONTENDERS:
                out = Path(place) / "out"
                out.mkdir()
                os.sync()  # nobody waits for what another left to be written
                call = [sys.executable, __file__, "--run", name, str(source), str(out)]
                done = subprocess.run(call, env=environment, check=True, capture_output=True, text=True)
                told = json.loads(done.stdout.splitlines()[-1])
                speed[name].append(size / told["seconds"])
                cpu[name].append(told["cpu"])
                peak[name] = max(peak.get(name, 0), told["peak"])
                if name != "cp" and repeat == 0 and embedded(out) != wanted:
                    raise SystemExit(f"{name}: did not embed the bytes")
                shutil.rmtree(out)
    medians = {name: statistics.median(values) for name, values in speed.items()}
    for name, value in medians.items():
        ratio = f"ours is {medians['ours'] / value:5.2f} x" if name != "ours" else ""
        seconds = statistics.median(cpu[name])  # says more than the clock where others use the machine
        print(f"{name:16}{value:8.0f} MB/s   {seconds:6.2f} s of CPU   peak {peak[name]:6.0f} MB   {ratio}")


if __name__ == "__main__":
    main()
