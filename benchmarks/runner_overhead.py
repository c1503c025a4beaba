"""What the campaign runner adds to the time that the editor takes: journals, fsync, hashes, checks, google-genai.

    python benchmarks/runner_overhead.py                 # 16 runs of 20 rounds, 1 s a call

The local Gemini server answers each call after the same latency, so that without overhead 16 runs at once end
after rounds x latency. google-genai alone, in as many threads and with the same pictures, is measured beside it.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

from _gemini import local_server, small_pictures

from banana100_bench.generate.campaign import generate
from banana100_bench.generate.editors import EditRequest, open_editor
from banana100_bench.generate.initial import open_initial


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    ideal = options.latency * options.rounds
    with local_server(options.latency), tempfile.TemporaryDirectory() as folder:
        small_pictures(Path(folder) / "initial", options.concurrency)
        initial = open_initial([f"{folder}/initial"])
        editor = open_editor("gemini", {"rehearsal": "true"})
        editor.open()

        def chain(data: bytes) -> None:
            for number in range(options.rounds):
                data = editor.edit(EditRequest(data=data, prompt="p", round=number + 1, resolution="2K")).data

        threads = [threading.Thread(target=chain, args=(image.data,)) for image in initial]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        alone = time.monotonic() - began

        out = Path(folder) / "raw"
        began = time.monotonic()
        generate(editor, initial, out, repetitions=1, rounds=options.rounds, max_concurrency=options.concurrency)
        whole = time.monotonic() - began
    calls = options.rounds * options.concurrency
    print(f"{calls} calls of {options.latency} s, {options.concurrency} at once: {ideal:.1f} s without any overhead")
    for name, seconds in (("google-genai alone", alone), ("the runner", whole)):
        print(f"{name:20} {seconds:6.2f} s, {100 * (seconds / ideal - 1):.1f} % above it")


if __name__ == "__main__":
    main()
