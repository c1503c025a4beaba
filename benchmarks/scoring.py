"""Scoring 2K images: ours beside the pyiqa command line, a for-loop over load_dataset, and a DataLoader.

    .venv/bin/python benchmarks/scoring.py --weights FOLDER [--images 40] [--models "piqe;nima,piqe"] [--repeats 3]

Every contestant is a process of its own, timed from its start to its end, the import of PyTorch included, on the
same images; the contestants take turns, and medians are shown. CNNs get random weights, the same for all
(STAND_IN), since only their speed is looked at. All scores are compared; `pyiqa-1` is the pyiqa command line
with one thread, as each of our workers has: the number of threads moves BRISQUE in the third decimal. The bound
is the total work of one thread (decoding, and forward passes as our own rows tell) over the cores, plus start-up.
``--ours "--workers 1 --threads 2"`` times another plan of ours, ``--ours "--device cuda"`` a GPU; what our summary
says of the plan, and of waiting for decoding, is shown.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
WEIGHTS = {
    "niqe": "niqe_modelparameters.mat",
    "brisque": "brisque_svm_weights.pth",
    "ilniqe": "ILNIQE_templateModel.mat",
}
SHOWN = ("  plan:", "  calibrated:", "  the models waited")  # lines of our summary
OURS = "from banana100_bench.cli import main; main()"
PYIQA = "from pyiqa.pyiqa_cmd import main; main()"
LOOP = """
import json, sys
import numpy as np, pyiqa, torch
from datasets import load_dataset
metrics = {name: pyiqa.create_metric(name, device=torch.device("cpu")) for name in sys.argv[3:]}
rows = load_dataset(sys.argv[1], split="test")
scores = {name: {} for name in metrics}
def tensor(image):
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)[None].float() / 255
with torch.inference_mode():
    for row in rows:
        for name, metric in metrics.items():
            scores[name][row["image_id"]] = float(metric(tensor(row["image"])))
json.dump(scores, open(sys.argv[2], "w"))
"""
LOADER = """
import json, sys
import numpy as np, pyiqa, torch
from datasets import load_dataset
from torch.utils.data import DataLoader
metrics = {name: pyiqa.create_metric(name, device=torch.device("cpu")) for name in sys.argv[3:]}
class Rows(torch.utils.data.Dataset):
    def __init__(self, rows): self.rows = rows
    def __len__(self): return len(self.rows)
    def __getitem__(self, number):
        row = self.rows[number]
        pixels = torch.from_numpy(np.array(row["image"].convert("RGB"))).permute(2, 0, 1).float() / 255
        return row["image_id"], pixels
scores = {name: {} for name in metrics}
with torch.inference_mode():
    for (image,), pixels in DataLoader(Rows(load_dataset(sys.argv[1], split="test")), num_workers=2):
        for name, metric in metrics.items():
            scores[name][image] = float(metric(pixels))
json.dump(scores, open(sys.argv[2], "w"))
"""
STAND_IN = '''"""First on PYTHONPATH: the weights that pyiqa would download are local files, or random ones."""
import importlib.abc, importlib.util, os, sys

LOCAL = {local!r}

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in ("timm", "pyiqa.archs.arch_util", "pyiqa.utils.download_util"):
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        sys.meta_path.insert(0, self)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            if name == "timm":
                import torch
                create = module.create_model
                def create_model(*args, **given):
                    torch.manual_seed(0)
                    return create(*args, **(given | dict(pretrained=False)))
                module.create_model = create_model
            elif name == "pyiqa.utils.download_util":
                fetch = module.load_file_from_url
                def load_file(url, *args, **given):
                    return LOCAL.get(os.path.basename(url)) or fetch(url, *args, **given)
                module.load_file_from_url = load_file
            else:
                import torch
                def load(net, *args, **given):
                    generator = torch.Generator().manual_seed(0)
                    with torch.no_grad():
                        for key, value in net.state_dict().items():
                            if value.dim() > 1:
                                fan = value[0].numel()
                                value.copy_(torch.randn(value.shape, generator=generator) * (1.0 / fan) ** 0.5)
                module.load_pretrained_network = load
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
'''


def make_images(folder: Path, count: int, side: int) -> tuple[Path, Path]:
    """`count` PNGs of side x side (photographs that libraries ship, enlarged, with noise), and their dataset folder."""
    import numpy as np
    from PIL import Image

    from banana100_bench.generate.initial import open_initial
    from banana100_bench.package.build import build

    tree, dataset = folder / "tree", folder / f"data-{count}"
    photos = open_initial(["photos"], None)
    draw = np.random.default_rng(0)
    for number in range(count):
        photo, round_number = photos[number % len(photos)], 1 + number // len(photos)
        path = tree / photo.name / f"{round_number}.png"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            large = Image.open(io.BytesIO(photo.data)).convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
            noisy = np.asarray(large) + draw.normal(0, 1 + round_number, (side, side, 3))
            Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(path, compress_level=3)
    facts = {"setting": "replication", "editor": "noise-simulated"}
    build(tree, dataset, pattern="{initial_image}/{round}.{ext}", constants=facts, overwrite=True)
    flat = folder / f"flat-{count}"
    flat.mkdir(exist_ok=True)
    for path in tree.glob("*/*.png"):
        link = flat / f"{path.parent.name}__{path.stem}.png"
        if not link.exists():
            os.link(path, link)
    return flat, dataset


def run(command: list[str], environment: dict[str, str], scratch: Path) -> tuple[float, float]:
    """Seconds of a command, and by how many MB it and its children lessened the memory that others might have."""
    from banana100_bench.engine.machine import available_memory

    before = least = available_memory()
    start = time.perf_counter()
    with open(scratch / "stdout", "w") as out, open(scratch / "stderr", "w") as err:
        child = subprocess.Popen(command, env=environment, stdout=out, stderr=err)
        while child.poll() is None:
            least = min(least, available_memory())
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.1)
    seconds = time.perf_counter() - start
    if child.returncode:
        told = "".join((scratch / name).read_text()[-3000:] for name in ("stdout", "stderr"))
        sys.exit(f"{' '.join(command[:6])}: exit code {child.returncode}\n{told}")
    return seconds, (before - least) / 1e6


def our_rows(store: Path) -> dict[str, list[dict]]:
    """The score rows in a store, by metric."""
    found = {}
    for path in store.glob("*.jsonl"):
        first, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        found[first["model"].partition(":")[2]] = rows
    return found


def pyiqa_scores(text: str, names: list[str]) -> dict[str, dict[str, float]]:
    """What `pyiqa -v` prints: a dictionary by file."""
    import ast

    printed = ast.literal_eval(re.sub(r"np\.float64\(([^)]*)\)", r"\1", text[text.index("{") :]))
    named = {}
    for name in names:
        named[name] = {Path(file).stem: score for file, score in printed[name].items() if file != "mean"}
    return named


def plain(image_id: str) -> str:
    """``replication__china__noise-simulated__rep0__round003`` as the flat folder's ``china__3``."""
    return re.sub(r".*?__(.*?)__.*round0*(\d+)$", r"\1__\2", image_id)


def decode_seconds(flat: Path) -> float:
    """Seconds that one thread needs to decode all images."""
    from banana100_bench.images import decode

    paths = sorted(flat.glob("*.png"))
    start = time.perf_counter()
    for path in paths[:5]:
        decode(path.read_bytes(), path.name)
    return (time.perf_counter() - start) / 5 * len(paths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--models", default="piqe;brisque;niqe;nima;piqe,brisque,nima")
    parser.add_argument("--contestants", default="ours,pyiqa,pyiqa-1,loop,loader")
    parser.add_argument("--ours", default="", help="further options of ours")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--weights", type=Path, required=True, help="folder with the files of NIQE, BRISQUE, IL-NIQE")
    parser.add_argument("--work", type=Path, default=Path("/tmp/banana100-bench-scoring"))
    wanted = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    wanted.work.mkdir(parents=True, exist_ok=True)
    flat, dataset = make_images(wanted.work, wanted.images, wanted.side)
    local = {name: str((wanted.weights / name).resolve()) for name in WEIGHTS.values()}
    stand_in = wanted.work / "stand-in"
    stand_in.mkdir(exist_ok=True)
    (stand_in / "sitecustomize.py").write_text(STAND_IN.replace("{local!r}", repr(local)))
    environment = os.environ | {"PYTHONPATH": f"{stand_in}:{ROOT}", "HF_HUB_OFFLINE": "1"}
    cores, decoding = len(os.sched_getaffinity(0)), decode_seconds(flat)
    print(f"{wanted.images} PNGs of {wanted.side} x {wanted.side}, {cores} cores, load {os.getloadavg()[0]:.1f}")
    for group in wanted.models.split(";"):
        names = group.split(",")
        seconds: dict[str, list[float]] = {}
        peaks: dict[str, float] = {}
        scores: dict[str, dict[str, dict[str, float]]] = {}
        for _ in range(wanted.repeats):
            for who in wanted.contestants.split(","):
                out = wanted.work / "scores.json"
                store = wanted.work / f"store-{time.time_ns()}"
                own = wanted.ours.split()
                places = ["--data", str(dataset), "--store", str(store)]
                commands = {
                    "ours": [OURS, "score", *(f"pyiqa:{name}" for name in names), "--rounds", "all", *places, *own],
                    "pyiqa": [PYIQA, *names, "-t", str(flat), "-v"],
                    "loop": [LOOP, str(dataset), str(out), *names],
                    "loader": [LOADER, str(dataset), str(out), *names],
                }
                commands["pyiqa-1"] = commands["pyiqa"]
                threads = {"OMP_NUM_THREADS": "1"} if who == "pyiqa-1" else {}
                took, peak = run([sys.executable, "-c", *commands[who]], environment | threads, wanted.work)
                seconds.setdefault(who, []).append(took)
                peaks[who] = max(peak, peaks.get(who, 0))
                if who == "ours":
                    words = (wanted.work / "stdout").read_text().splitlines()
                    plan = [line for line in words if line.startswith(SHOWN)]
                    rows = our_rows(store)
                    work = sum(row["seconds"] for name in names for row in rows[name]) + decoding
                    scores[who] = {name: {plain(row["image_id"]): row["score"] for row in rows[name]} for name in names}
                elif who.startswith("pyiqa"):
                    scores[who] = pyiqa_scores((wanted.work / "stdout").read_text(), names)
                else:
                    told = json.loads(out.read_text())
                    scores[who] = {name: {plain(image): value for image, value in told[name].items()} for name in names}
        median = {who: statistics.median(times) for who, times in seconds.items()}
        print(f"\n{group}  (load {os.getloadavg()[0]:.1f})")
        for who, value in median.items():
            line = f"  {who:7} {value:7.1f} s  worst {max(seconds[who]):7.1f}  peak {peaks[who]:6.0f} MB"
            if who != "ours":
                worst = max(
                    abs(scores["ours"][name][image] - other) / max(1.0, abs(other))
                    for name in names
                    for image, other in scores[who][name].items()
                )
                line += f"  ours is {value / median['ours']:.2f} x as fast; scores differ by at most {worst:.1e}"
            print(line, flush=True)
        if "ours" in median:
            for line in plan:
                print(f"  {line}")
            print(
                f"  one thread's work of ours {work:.1f} s, over {cores} cores {work / cores:.1f} s, without start-up"
            )


if __name__ == "__main__":
    main()
