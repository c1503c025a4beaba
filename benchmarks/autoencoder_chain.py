"""A chain of 100 rounds on 3 photographs by an editor that runs here: pictures along it, and what metrics say of them.

    python benchmarks/autoencoder_chain.py OUT --weights ../shared/weights
    python benchmarks/autoencoder_chain.py OUT --weights ../shared/weights --editor simulated --size 512

Writes OUT/raw (a rerun continues there), OUT/pictures.jpg and prints PIQE, NIQE and BRISQUE at rounds 0, 1, 5, 10,
20, 50 and 100; each says that lower is better. By default the editor is the tiny FLUX.2 autoencoder of --weights.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta, timezone
from pathlib import Path

from PIL import Image, ImageDraw

from banana100_bench import images, raw
from banana100_bench.generate.campaign import generate
from banana100_bench.generate.editors import open_editor
from banana100_bench.generate.initial import open_initial

ROUNDS = (0, 1, 5, 10, 20, 50, 100)
METRICS = {"piqe": None, "niqe": "niqe_modelparameters.mat", "brisque": "brisque_svm_weights.pth"}
CELL = 224  # px


def pictures(folder: Path, out: Path) -> dict[int, Image.Image]:
    """The pictures of a run at ROUNDS, as far as it goes."""
    facts, entries = raw.read_run(folder)
    made = {0: images.decode(raw.read_initial(out, facts), folder.name)}
    return made | {
        entry.round: images.decode(entry.read(), str(entry.path)) for entry in entries if entry.round in ROUNDS
    }


def sheet(runs: list[dict[int, Image.Image]]) -> Image.Image:
    """A row a run, the whole picture above a detail of its middle at full size; a column a round."""
    whole = Image.new("RGB", (CELL * len(ROUNDS), 20 + len(runs) * CELL * 5 // 3), "white")
    draw = ImageDraw.Draw(whole)
    for column, number in enumerate(ROUNDS):
        draw.text((column * CELL + 8, 4), f"round {number}{' (simulated)' if number else ''}", fill="black")
        for row, run in enumerate(runs):
            if number not in run:
                continue
            picture, top = run[number], 20 + row * CELL * 5 // 3
            small = picture.copy()
            small.thumbnail((CELL - 4, CELL * 2 // 3 - 4))
            left, above = (picture.width - CELL) // 2, (picture.height - CELL) // 2
            detail = picture.crop((left, above, left + CELL - 4, above + CELL - 4))
            whole.paste(small, (column * CELL, top))
            whole.paste(detail, (column * CELL, top + CELL * 2 // 3))
    return whole


def scores(runs: dict[str, dict[int, Image.Image]], weights: Path) -> None:
    import pyiqa
    import torch
    from torchvision.transforms.functional import to_tensor

    for name, file in METRICS.items():
        metric = pyiqa.create_metric(name, **({} if file is None else {"pretrained_model_path": str(weights / file)}))
        for run, made in runs.items():
            with torch.inference_mode():
                values = [float(metric(to_tensor(picture)[None])) for picture in made.values()]
            print(f"{name:8} {run:40}" + "".join(f"{value:8.1f}" for value in values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--editor")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--photos", default="chelsea,china,coffee")
    parser.add_argument("--minutes", type=float, default=600, help="stop then; a rerun continues")
    options = parser.parse_args()
    if options.editor:
        editor, seed = open_editor(options.editor), 0
    else:
        editor, seed = open_editor(f"autoencoder:{options.weights}", {"dtype": "bfloat16"}), None
    report = generate(
        editor,
        open_initial([f"photos:{options.photos}"], options.size),
        options.out / "raw",
        seed=seed,
        repetitions=1,
        until=datetime.now(timezone.utc) + timedelta(minutes=options.minutes),
    )
    print(report.summary())
    runs = {folder.name: pictures(folder, options.out / "raw") for folder in raw.run_folders(options.out / "raw")}
    sheet(list(runs.values())).save(options.out / "pictures.jpg", quality=80)
    print(f"{'':49}" + "".join(f"{number:8}" for number in ROUNDS))
    scores(runs, options.weights)


if __name__ == "__main__":
    main()
