"""A worker: it holds the models, decodes ahead, and runs the model it is told on the pictures it was given.

On Linux's CPU each worker is a forked process: the models are shared with it as they are, it has random
numbers and a heap of its own, it can be timed out, and if it dies it takes one image with it. Elsewhere, and on a
GPU, there is one worker, a thread of this process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from banana100_bench import selftest
from banana100_bench.engine import machine
from banana100_bench.engine.measure import measure, measure_batch
from banana100_bench.errors import BananaError
from banana100_bench.models.base import Batched, Model, Picture
from banana100_bench.models.seeding import Draws
from banana100_bench.records import Row
from banana100_bench.store import Score
from banana100_bench.user_code import guarded

START_SECONDS = 60.0  # for a worker to come up on a busy machine
PROBE_SECONDS = 5.0  # for it to have calculated with several threads


@dataclass(frozen=True)
class Load:
    """Take this image and begin to decode it."""

    row: Row
    data: bytes


@dataclass(frozen=True)
class Run:
    """Run a model on images that were loaded, together if there are several. No image: the self-test.

    threads: to calculate with. release: hand the memory back afterwards, and say how much was needed.
    """

    model: int
    image_ids: tuple[str, ...]
    threads: int
    release: bool


@dataclass(frozen=True)
class Drop:
    """Forget these images."""

    image_ids: tuple[str, ...]


@dataclass(frozen=True)
class Done:
    """What came of a `Run`. needed: bytes, 0 if not asked. kept: bytes it holds now, above those at rest.

    waited: seconds for decoding.
    """

    run: Run
    scores: Sequence[Score]
    selftest: Sequence[float | None]
    needed: int
    kept: int
    waited: float


@dataclass(frozen=True)
class WorkerSettings:
    """decode: whether any model looks at pixels. decoders: threads that decode ahead. threads: the most for a model."""

    decode: bool = True
    decoders: int = 1
    threads: int = 1
    repeats: int = 1
    max_pixels: int | None = None


class Worker:
    """A worker as the scheduler sees it: `channel` takes Load, Run and Drop, and gives Done."""

    def __init__(self, models: Sequence[Model], settings: WorkerSettings, process: bool):
        context = multiprocessing.get_context("fork") if process else None
        self.channel, theirs = multiprocessing.Pipe()
        self.process: Any = None
        if context is None:
            threading.Thread(target=_work, args=(theirs, models, settings, False), daemon=True).start()
        else:
            self.process = context.Process(target=_in_process, args=(theirs, models, settings), daemon=True)
            self.process.start()
            theirs.close()

    def ready(self, seconds: float) -> bool:
        """Whether it says so within `seconds`: first that it has come up, then that it can use several threads.

        The latter hangs where the caller has used several threads before the fork.
        """
        return self.channel.poll(seconds) and self.channel.recv() == "ready"

    def died(self) -> str:
        """How it came to its end, when its channel has closed."""
        assert self.process is not None
        self.process.join(5)
        code = self.process.exitcode
        self.end()
        if code is None:
            return "closed its channel"
        if code < 0:
            name = signal.Signals(-code).name
            return f"was killed by {name}" + (": out of memory?" if name == "SIGKILL" else "")
        return f"ended by itself, exit code {code}"

    def end(self) -> None:
        """End it, whatever it does."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        else:
            with contextlib.suppress(OSError):
                self.channel.send(None)
        self.channel.close()


def _in_process(channel: Connection, models: Sequence[Model], settings: WorkerSettings) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    machine.die_with_parent()
    machine.keep_freed_memory()
    machine.set_threads(settings.threads)
    channel.send("ready")
    if settings.threads > 1:
        _touch_threads()  # hangs if it is to hang, before any image is at stake
        channel.send("ready")
    _work(channel, models, settings, True)


def _touch_threads() -> None:
    import sys

    if "torch" in sys.modules:
        import torch

        torch.ones(1 << 20).exp_()


def _work(channel: Connection, models: Sequence[Model], settings: WorkerSettings, process: bool) -> None:
    """Answer Runs until the channel closes; an interrupt or a bug of ours goes to the other end as an exception."""
    try:
        _Bench(channel, models, settings, process).serve()
    except (BrokenPipeError, ConnectionResetError):
        pass
    except BaseException as error:
        problem = error if isinstance(error, KeyboardInterrupt | BananaError) else BananaError(f"worker: {error!r}")
        with contextlib.suppress(OSError):
            channel.send(problem)


class _Bench:
    """The worker's own side."""

    def __init__(self, channel: Connection, models: Sequence[Model], settings: WorkerSettings, process: bool):
        self.channel = channel
        self.models = models
        self.settings = settings
        self.process = process
        self.orders: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self.pictures: dict[str, Picture] = {}
        self.decoded: dict[str, Future[None]] = {}
        self.drawing: dict[int, bool] = {}  # whether a model draws random numbers: if so it takes no batch
        self.threads = 0
        self.rest = machine.resident()

    def serve(self) -> None:
        with ThreadPoolExecutor(self.settings.decoders) as pool:
            threading.Thread(target=self._receive, args=(pool,), daemon=True).start()
            while (order := self.orders.get()) is not None:
                with contextlib.nullcontext() if self.process else guarded():  # a process may end as it likes
                    done = self._run(order)
                self.channel.send(done)

    def _receive(self, pool: ThreadPoolExecutor) -> None:
        try:
            while (message := self.channel.recv()) is not None:
                if isinstance(message, Load):
                    picture = Picture(message.row, message.data, self.settings.max_pixels)
                    self.pictures[message.row.image_id] = picture
                    if self.settings.decode:
                        self.decoded[message.row.image_id] = pool.submit(_decode, picture)
                elif isinstance(message, Drop):
                    for name in message.image_ids:
                        self.pictures.pop(name, None)
                        self.decoded.pop(name, None)
                else:
                    self.orders.put(message)
        except (EOFError, OSError):
            pass
        self.orders.put(None)

    def _run(self, order: Run) -> Done:
        model = self.models[order.model]
        start = time.perf_counter()
        for name in order.image_ids:
            if name in self.decoded:
                self.decoded[name].result()
        waited = time.perf_counter() - start
        before = 0
        if self.process:
            if order.release:
                machine.release_freed_memory()
                machine.reset_peak()
                before = machine.resident()
            if order.threads != self.threads:
                self.threads = order.threads
                machine.set_threads(order.threads)
        scores: list[Score] = []
        tested: list[float | None] = []
        if order.image_ids:
            scores = self._scores(order.model, [self.pictures[name] for name in order.image_ids])
        else:
            tested = selftest.ask(model)
        needed = 0
        if self.process and order.release:
            needed = max(1, machine.peak() - before)
            machine.release_freed_memory()
        kept = max(0, machine.resident() - self.rest)
        return Done(order, scores, tested, needed, kept, waited)

    def _scores(self, number: int, pictures: list[Picture]) -> list[Score]:
        model = self.models[number]
        threads = self.threads or None
        if isinstance(model, Batched) and len(pictures) > 1 and self.drawing.get(number) is False:
            return measure_batch(model, pictures, threads=threads)
        draws = Draws()
        scores = []
        for picture in pictures:
            scores.append(measure(model, picture, repeats=self.settings.repeats, threads=threads, draws=draws))
            self.drawing[number] = self.drawing.get(number, False) or draws.drawn
        return scores


def _decode(picture: Picture) -> None:
    with contextlib.suppress(BananaError):  # the model meets it again, and its score says why
        picture.rgb  # noqa: B018 - cached
