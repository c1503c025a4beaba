"""A whole campaign against the local Gemini server: time, memory, open files, journals; then build, verify, evaluate.

    python benchmarks/rehearse_campaign.py OUT           # 13 images x 5 repetitions x 100 rounds = 6,500 calls

Runs `banana100 generate` in a process of its own, kills it (-9) once half-way, lets it go on, and watches it. All
images are 64 px and simulated. OUT is kept; a rerun continues there.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

from _gemini import local_server, small_pictures

from banana100_bench import raw

COMMAND = "from banana100_bench.cli import main; main()"


def banana100(*words: str) -> list[str]:
    return [sys.executable, "-c", COMMAND, *words]


class Usage:
    """The largest memory and number of open files of a process, by /proc."""

    def __init__(self) -> None:
        self.rss_mb = 0.0
        self.files = 0

    def look(self, pid: int) -> None:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            self.rss_mb = max(self.rss_mb, int(status.partition("VmRSS:")[2].split()[0]) / 1024)
            self.files = max(self.files, len(list(Path(f"/proc/{pid}/fd").iterdir())))
        except (OSError, IndexError):
            pass  # it has just ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=13)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--budget-usd", type=float, default=1000.0)
    options = parser.parse_args()
    out: Path = options.out
    small_pictures(out / "initial", options.images)
    calls = options.images * options.repetitions * options.rounds
    generate = banana100("generate", str(out / "raw"), "--editor", "gemini", "--option", "rehearsal=true")
    generate += ["--initial", str(out / "initial"), "--min-side", "0", "--repetitions", str(options.repetitions)]
    generate += ["--rounds", str(options.rounds), "--max-concurrency", str(options.concurrency)]
    generate += ["--budget-usd", str(options.budget_usd)]
    usage = Usage()
    began = time.monotonic()
    with local_server(0.0):
        for kill_at in (calls // 2, None):
            process = subprocess.Popen(generate)
            while process.poll() is None:
                usage.look(process.pid)
                if kill_at and len(list((out / "raw").glob("runs/*/*.png"))) >= kill_at:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                time.sleep(0.2)
    seconds = time.monotonic() - began
    folders = raw.run_folders(out / "raw")
    pasts = [raw.read_past(folder) for folder in folders]
    journals = sum((folder / raw.JOURNAL_FILE).stat().st_size for folder in folders)
    made = sum(len(raw.read_run(folder)[1]) for folder in folders)
    print(f"{made} of {calls} images in {seconds:.0f} s, {made / seconds:.0f} a second, one kill -9 half-way")
    print(f"memory {usage.rss_mb:.0f} MB, {usage.files} open files, journals {journals / 1e6:.2f} MB")
    print(f"calls lost by the kill: {sum(past.lost for past in pasts)} (at most {options.concurrency})")
    print(f"spent {sum(p.usd for p in pasts):.2f} USD, and up to {sum(p.unsure_usd for p in pasts):.2f} for lost calls")
    data, store, results = (str(out / name) for name in ("banana100", "scores", "results"))
    models = ["baseline:noise", "baseline:file-size", "pyiqa:piqe"]
    for words in (
        ["build", str(out / "raw"), "--out", data, "--overwrite"],
        ["verify", data],
        ["evaluate", *models, "--data", data, "--store", store, "--out", results],
    ):
        began = time.monotonic()
        subprocess.run(banana100(*words), check=True)
        print(f"{words[0]}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
