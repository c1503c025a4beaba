"""A small simulated dataset with pictures, in a second or two."""

from pathlib import Path

from banana100_bench.generate import campaign
from banana100_bench.generate.initial import open_initial
from banana100_bench.package.build import build


def make_dataset(folder: Path) -> Path:
    images = open_initial(["photos:astronaut,china"], 64, style="photo")
    campaign.generate("simulated", images, folder / "raw", repetitions=2, rounds=20)
    build(folder / "raw", folder / "data")
    return folder / "data"
