"""For the benchmarks of the runner: the local Gemini server of tests/fakes in a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


@contextlib.contextmanager
def local_server(latency: float) -> Iterator[str]:
    """Serve until the body ends; the environment of this process points google-genai to the URL yielded."""
    command = [sys.executable, "-m", "tests.fakes.gemini", "--port", "0", "--latency", str(latency)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        os.environ |= {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "rehearsal", "NO_PROXY": "127.0.0.1"}
        os.environ.pop("GOOGLE_API_KEY", None)
        yield url
    finally:
        process.terminate()
        process.wait()


def small_pictures(folder: Path, count: int, side: int = 64) -> None:
    """Write `count` PNG files of `side` px, cut from the photographs that scikit-image and scikit-learn ship."""
    from banana100_bench import images
    from banana100_bench.generate.initial import PHOTOS, open_initial

    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        photo = open_initial([f"photos:{PHOTOS[index % len(PHOTOS)]}"])[0]
        picture = images.decode(photo.data, photo.name)
        left, top = (index // len(PHOTOS)) * 40, picture.height // 4
        file = io.BytesIO()
        picture.crop((left, top, left + 160, top + 160)).resize((side, side)).save(file, "PNG")
        (folder / f"{photo.name}-{index // len(PHOTOS)}.png").write_bytes(file.getvalue())
