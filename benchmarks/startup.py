"""How long `banana100 --help` takes, beside a bare Python and beside pyiqa's own command (where installed).

.venv/bin/python benchmarks/startup.py [--runs 10]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.executable).parent


def seconds(command: list[str], runs: int) -> list[float]:
    """Wall times of `runs` runs of `command`, after one that warms the file cache."""
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return times[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    ours = [str(BIN / "banana100"), "--help"]
    cases = {"banana100 --help": ours, "python -c pass": [sys.executable, "-c", "pass"]}
    if (BIN / "pyiqa").exists():
        cases["pyiqa --help"] = [str(BIN / "pyiqa"), "--help"]
    median = {}
    for name, command in cases.items():
        times = seconds(command, runs if command is ours else min(runs, 3))
        median[name] = statistics.median(times)
        print(f"{name:20} median {median[name]:6.3f} s   worst {max(times):6.3f} s   of {len(times)} runs")
    if "pyiqa --help" in median:
        print(f"ratio pyiqa / ours: {median['pyiqa --help'] / median['banana100 --help']:.0f} x")
    print(f"target 0.4 s: {'met' if median['banana100 --help'] < 0.4 else 'MISSED'}")


if __name__ == "__main__":
    main()
