"""How long it takes to build a board of many submissions, how that grows, and how much memory it needs.

    .venv/bin/python benchmarks/leaderboard.py [--full 100,300,1000] [--small 1000,10000]

full: submissions of 28,000 scores on made-up rows; small: of 24 scores, as many as a flood would bring. The peer
is what any board must do at least: read each file as JSON (one process), which checks and derives nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from banana100_bench.leaderboard import folder
from banana100_bench.leaderboard.submission import Ground
from banana100_bench.models.baselines import uniform
from banana100_bench.protocol import Rounds
from tests.fakes.judged import FakeData, make_rows
from tests.leaderboard.making import submission


def write(home: Path, rows: list, count: int) -> None:
    """`count` submissions of honest-looking scores; only the first is derived, the others are its text made anew."""
    (home / "submissions").mkdir(parents=True)
    # Seeds that pass every run, so that the claims of the first are those of all.
    made = submission("Model 0", rows=rows, function=lambda row: -row.round + 0.4 * uniform(row.sha256, 0))
    text = made.model_dump(mode="json")
    for number in range(count):
        text["card"]["name"] = f"Model {number}"
        text["model"]["id"] = f"scores:model{number}.csv"
        text["scores"] = [-row.round + 0.4 * uniform(row.sha256, number) for row in rows]
        out = json.dumps(text, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        (home / "submissions" / f"model_{number}.json").write_text(out)


def measure(kind: str, rows: list, count: int) -> float:
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        write(home, rows, count)
        paths = folder.find([home])
        size = sum(path.stat().st_size for path in paths)
        start = time.perf_counter()
        for path in paths:
            json.loads(path.read_bytes())
        peer = time.perf_counter() - start
        start = time.perf_counter()
        board = folder.build([home], Ground(FakeData(rows), Rounds()), home, "2026-05-01")
        seconds = time.perf_counter() - start
        assert len(board.entries) == count, board.rejected[:3]
        whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        own, worker = (resource.getrusage(who).ru_maxrss / 1024 for who in whose)
        page = (home / "index.html").stat().st_size + (home / folder.JSON).stat().st_size
        print(
            f"{kind:5} {count:7,} submissions {size / 1e6:8.1f} MB: {seconds:7.1f} s, "
            f"{1000 * seconds / count:6.1f} ms each; reading alone {peer:6.1f} s, ratio {seconds / peer:5.1f}; "
            f"peak {own:6.0f} MB + {worker:4.0f} MB a worker; index.html and JSON {page / 1e6:.1f} MB",
            flush=True,
        )
        shutil.rmtree(home / "submissions")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", default="100,300,1000")
    parser.add_argument("--small", default="1000,10000")
    asked = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    full = make_rows([f"image{n}" for n in range(14)], repetitions=20, rounds=range(1, 101), simulated=False)
    for kind, rows, counts in (("full", full, asked.full), ("small", make_rows(), asked.small)):
        times = {count: measure(kind, rows, count) for count in map(int, filter(None, counts.split(",")))}
        if len(times) > 1:
            (few, first), *_, (many, last) = times.items()
            print(f"{kind}: {many / few:.0f} times as many take {last / first:.1f} times as long")


if __name__ == "__main__":
    main()
