"""A model that lives in a program of its own, in whatever environment: JSON lines in, JSON lines out.

``command:PROGRAM ARGUMENTS`` starts the program once and asks it for one image after the other: a line
``{"path": "/tmp/.../image.png", "image_id": "..."}`` on its standard input, the file as the editor made it; a
line ``{"score": 3.25}``, or ``{"error": "why not"}``, on its standard output. Its standard error goes to a
file whose end is quoted when it dies; it is then started again for the next image. RALI, for one, is run so.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from banana100_bench.errors import BananaError, UsageError, unknown_name
from banana100_bench.models.base import Asked, ModelInfo, Picture, library_versions, refuse, settle_direction, to_number

MAX_LINE = 1 << 20


@dataclass
class _Running:
    """The program and the folder of its files; both end with this object."""

    process: subprocess.Popen[bytes]
    folder: Path
    owner: int = field(default_factory=os.getpid)

    def end(self) -> None:
        if self.owner == os.getpid():  # not in a worker forked from the process that started it
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                assert pipe is not None
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
            shutil.rmtree(self.folder, ignore_errors=True)


class CommandModel:
    """A program as a model (models/base.py)."""

    def __init__(self, info: ModelInfo, words: list[str]):
        self.info = info
        self._words = words
        self._running: _Running | None = None

    def score(self, picture: Picture) -> float:
        running = self._running
        if running is None or running.owner != os.getpid() or running.process.poll() is not None:
            running = self._start()
        path = running.folder / f"image.{picture.row.format.lower()}"
        path.write_bytes(picture.data)
        question = json.dumps({"path": str(path), "image_id": picture.row.image_id}).encode() + b"\n"
        assert running.process.stdin is not None
        assert running.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            running.process.stdin.write(question)
            running.process.stdin.flush()
        line = running.process.stdout.readline(MAX_LINE)
        if not line.endswith(b"\n"):
            raise self._lost(running, line)
        try:
            answer: Any = json.loads(line)
        except ValueError:
            self._stop()  # what it says next may belong to this image
            told = line[:200].decode(errors="replace")
            raise BananaError(f'{self._words[0]} answered {told!r}, expected a line of JSON: {{"score": N}}') from None
        if isinstance(answer, dict) and "error" in answer:
            raise BananaError(str(answer["error"]))
        if not isinstance(answer, dict) or "score" not in answer:
            raise BananaError(
                f'{self._words[0]} answered {line[:200].decode(errors="replace")!r}, expected {{"score": N}}'
            )
        return to_number(float("nan") if answer["score"] is None else answer["score"])

    def _start(self) -> _Running:
        self._stop()
        folder = Path(tempfile.mkdtemp(prefix="banana100-command-"))
        with open(folder / "stderr", "wb") as errors:
            try:
                process = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
            except OSError as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise BananaError(f"cannot start {self._words[0]}: {error.strerror or error}") from error
        self._running = _Running(process, folder)
        weakref.finalize(self, self._running.end)
        return self._running

    def _stop(self) -> None:
        if self._running is not None:
            self._running.end()
            self._running = None

    def _lost(self, running: _Running, line: bytes) -> BananaError:
        """The error for a program that ended, or that talks without end, before its answer."""
        if len(line) >= MAX_LINE:
            self._stop()
            return BananaError(f"{self._words[0]} answered a line of more than {MAX_LINE} bytes")
        code = running.process.wait()
        told = (running.folder / "stderr").read_bytes()[-2000:].decode(errors="replace").strip().splitlines()
        self._stop()
        return BananaError(f"{self._words[0]} ended with exit code {code}{f': {told[-1]}' if told else ''}")


def open_command(spec: str, asked: Asked) -> CommandModel:
    """``command:PROGRAM ARGUMENTS``, split as a shell would; the caller says which direction is better.

    The option ``version`` says which version of the program it is, so that another has scores of its own.
    The program itself is started with the first image.
    """
    refuse(spec, weights=asked.weights)
    unknown = sorted(set(asked.options) - {"version"})
    if unknown:
        raise unknown_name(f"option of {spec}", unknown[0], ["version"])
    try:
        words = shlex.split(spec.partition(":")[2])
    except ValueError as error:
        raise UsageError(f"{spec}: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"{spec}: no such program {words[0] if words else ''!r}")
    direction = settle_direction(spec, None, asked.higher_is_better, "")
    info = ModelInfo(
        id=spec, kind="command", higher_is_better=direction, options=dict(asked.options), versions=library_versions()
    )
    return CommandModel(info, words)
