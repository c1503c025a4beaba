"""The whole line on three photographs: generate, build, score, evaluate, rank. No key and no network.

The images come from the simulated editor, so all that the demo prints and writes is labelled simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from banana100_bench import harness
from banana100_bench.data import open_data
from banana100_bench.generate import campaign
from banana100_bench.generate.initial import open_initial
from banana100_bench.harness import ModelChoice
from banana100_bench.leaderboard import folder
from banana100_bench.package.build import build
from banana100_bench.report.table import show

PHOTOS = "photos:astronaut,chelsea,china"
LONG_SIDE = 1024  # pixels; half of the paper's "2K", so that the demo ends within three minutes on two cores
REPETITIONS = 2
ROUNDS = 20
CURVE_ROUNDS = (2, 3, 15)  # scored besides the key rounds, for the figures
MODELS = (
    "baseline:constant",
    "baseline:random",
    "baseline:file-size",
    "baseline:noise",
    "pyiqa:piqe",
    "pyiqa:entropy",
)


def run(out: Path, weights: Mapping[str, Path]) -> None:
    """Run the demo in folder `out`, continuing what stands there; prints the table and the files made.

    weights: further pyiqa models, by name, with their weight files.
    """
    raw, dataset, store, results = out / "raw", out / "banana100", out / "scores", out / "results"
    print(f"1/4  {REPETITIONS} runs of {ROUNDS} rounds from each of 3 photographs, by the SIMULATED editor")
    images = open_initial([PHOTOS], LONG_SIDE, style="photo")
    made = campaign.generate(
        "simulated", images, raw, repetitions=REPETITIONS, rounds=ROUNDS, max_concurrency=2, redo=True
    )
    print(f"     {made.summary()}")

    print("2/4  the dataset, as Parquet")
    print(f"     {build(raw, dataset, overwrite=True).summary()}")

    print("3/4  scores and verdicts")
    choices = [ModelChoice(spec) for spec in MODELS]
    choices += [ModelChoice(f"pyiqa:{name}", weights=file) for name, file in weights.items()]
    selection = open_data(dataset, rounds={1, 5, 10, 20, *CURVE_ROUNDS})
    judged = harness.evaluate_all(choices, selection, store=store, out=results)

    print("4/4  the leaderboard, recomputed from the raw scores")
    folder.build([results], folder.open_ground(dataset), out / "leaderboard")

    show(judged.results)
    for line in judged.problems:
        print(f"no result: {line}")
    print("\nFiles:")
    board = out / "leaderboard"
    for path in [dataset, *judged.files, board / "leaderboard.json", board / "index.html"]:
        print(f"  {path}{'/' if path.is_dir() else ''}")
