"""Who runs what, and when: parallel work is admitted by the memory it was measured to need, never by cores alone."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from banana100_bench.engine import machine
from banana100_bench.engine.measure import failure
from banana100_bench.engine.workers import (
    PROBE_SECONDS,
    START_SECONDS,
    Done,
    Drop,
    Load,
    Run,
    Worker,
    WorkerSettings,
)
from banana100_bench.errors import BananaError
from banana100_bench.models.base import Batched, Model, Picture
from banana100_bench.records import Row
from banana100_bench.selftest import SIDE
from banana100_bench.store import Score

SHARE = 0.8  # of the memory that is available at the start
Image = tuple[Row, bytes]
_forks_hang: list[bool] = []  # filled once a worker has hung with several threads: this process has a thread pool


@dataclass
class Need:
    """Memory that a model was measured to need on one picture, above the worker's own.

    bytes: None where it is not known yet. pixels: of the picture, or pictures, it was measured on.
    seconds: that it took.
    """

    bytes: int | None = None
    pixels: int = 1
    seconds: float = 0.0

    def on(self, pixels: int) -> int | None:
        """Bytes for pictures of so many pixels: never less than was measured, more in proportion."""
        return None if self.bytes is None else int(self.bytes * max(1.0, pixels / self.pixels))


@dataclass(frozen=True)
class Plan:
    """How the machine is used. workers: processes; 0 is this process itself. threads: None for what fits.

    memory: bytes that all models running at one time may need. batch: the most pictures at a time.
    timeout: seconds a picture may take, None for as long as it will. calibrate: fewer of the workers may be used
    where that is faster (calibration.py).
    """

    workers: int = 0
    threads: int | None = None
    cores: int = field(default_factory=machine.cores)
    memory: int = field(default_factory=lambda: int(SHARE * machine.available_memory()))
    batch: int = 1
    repeats: int = 1
    max_pixels: int | None = None
    timeout: float | None = None
    calibrate: bool = False

    def at_once(self, need: int | None) -> int:
        """How many pictures may be in a model that needs so much for each."""
        most = max(1, self.workers)
        return most if not need else max(1, min(most, self.memory // need))

    def threads_for(self, need: int | None) -> int:
        """Threads for each of them, so that all cores have work."""
        return self.threads or max(1, self.cores // self.at_once(need))


@dataclass
class _Group:
    """Images that a worker holds, and the models that each has yet to meet."""

    images: dict[str, Image]
    pending: dict[int, list[str]]

    @property
    def pixels(self) -> int:
        return max(row.width * row.height for row, _ in self.images.values())


@dataclass
class _Seat:
    """A worker, what it holds, what it runs, and the memory that must be counted for it."""

    worker: Worker
    groups: list[_Group] = field(default_factory=list)
    running: Run | None = None
    since: float = 0.0
    claim: int = 0
    kept: int = 0


class Scheduler:
    """Runs `models` over images; see `run`. Its workers live on until the ``with`` block ends.

    needs: what was measured, by model, also of earlier calls. untested: models that the self-test is put to;
    `tested` has what they said.
    """

    def __init__(
        self, models: Sequence[Model], plan: Plan, needs: Sequence[Need], decode: bool, untested: Sequence[int] = ()
    ):
        self.models = models
        self.plan = plan
        self.needs = needs
        self.settings = WorkerSettings(
            decode=decode,
            decoders=1 if plan.workers else min(plan.cores, 16),
            threads=plan.threads or plan.cores,
            repeats=plan.repeats,
            max_pixels=plan.max_pixels,
        )
        self.window = 2 if plan.workers else 2 + self.settings.decoders // max(1, plan.batch)
        self.waited = 0.0
        self.busy = 0.0
        self.tested: dict[int, Sequence[float | None]] = {}
        self._untested = list(untested)
        self._alone: set[tuple[int, str]] = set()  # killed once beside others: once more, alone
        self._unbatched: set[int] = set()
        self._seats: list[_Seat] = []

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self._staff(0)

    def run(
        self,
        images: Iterator[Image],
        missing: Callable[[Row], list[int]],
        keep: Callable[[int, Score], None],
        workers: int | None = None,
    ) -> None:
        """Give every image to the models that `missing` names for it, and each score to `keep` as it comes.

        workers: how many to use of those in the plan, None for all. The threads of each are the plan's whatever their
        number, so that no score depends on it.
        """
        groups = self._groups(images, missing)
        self._staff(max(1, self.plan.workers if workers is None else workers))
        while self._feed(groups) or self._untested or any(seat.running for seat in self._seats):
            self._start()
            self._answers(keep)

    def _staff(self, count: int) -> None:
        """Have so many workers: those that are there stay, as far as they are needed."""
        while len(self._seats) > count:
            self._seats.pop().worker.end()
        while len(self._seats) < count:
            self._seats.append(self._seat())

    def _seat(self) -> _Seat:
        """A new worker; with one thread from now on if several hang, as after a fork they may."""
        if self.plan.workers and _forks_hang and self.settings.threads > 1:
            self.plan = dataclasses.replace(self.plan, threads=1)
            self.settings = dataclasses.replace(self.settings, threads=1)
        worker = Worker(self.models, self.settings, process=self.plan.workers > 0)
        if self.plan.workers:
            if not worker.ready(START_SECONDS):
                worker.end()
                raise BananaError("a worker process does not start; --workers 0 does without")
            if self.settings.threads > 1 and not worker.ready(PROBE_SECONDS):
                worker.end()
                _forks_hang.append(True)
                return self._seat()
        return _Seat(worker)

    def _groups(self, images: Iterator[Image], missing: Callable[[Row], list[int]]) -> Iterator[_Group]:
        """The images one by one, or, where batches are allowed, with their neighbours of the same size."""
        group: _Group | None = None
        size: tuple[int, int, list[int]] | None = None
        for row, data in images:
            models = missing(row)
            if not models:
                continue
            if group is not None and (len(group.images) == self.plan.batch or size != (row.width, row.height, models)):
                yield group
                group = None
            size = (row.width, row.height, models)
            group = group or _Group({}, {model: [] for model in models})
            group.images[row.image_id] = (row, data)
            for model in models:
                group.pending[model].append(row.image_id)
        if group is not None:
            yield group

    def _feed(self, groups: Iterator[_Group]) -> bool:
        """Hand images out until every worker has enough ahead; False when nothing is left to do."""
        for _ in range(self.window):
            for seat in self._seats:
                if len(seat.groups) < self.window and (group := next(groups, None)) is not None:
                    seat.groups.append(group)
                    for row, data in group.images.values():
                        seat.worker.channel.send(Load(row, data))
        return any(seat.groups for seat in self._seats)

    def _start(self) -> None:
        """Start what may be started on every idle worker."""
        for seat in self._seats:
            if seat.running is None:
                order = self._next(seat)
                if order is None:
                    continue
                need = self.needs[order.model].on(self._pixels(seat, order))
                seat.claim = self.plan.memory if need is None else need
                seat.running, seat.since = order, time.monotonic()
                seat.worker.channel.send(order)

    def _next(self, seat: _Seat) -> Run | None:
        """What the idle worker should run, None if it must wait for memory."""
        others = [other for other in self._seats if other is not seat]
        used = sum(max(other.claim, other.kept) for other in others)
        idle = not any(other.running for other in others)
        for model in self._untested:  # a first image has told what it needs: then others need not wait for it
            need = self.needs[model].on(SIDE**2)
            awaited = self.plan.workers and any(model in group.pending for group in seat.groups)
            if (idle and not (need is None and awaited)) or (need is not None and used + need <= self.plan.memory):
                self._untested.remove(model)
                return Run(model, (), self.plan.threads_for(need), False)
        for group in seat.groups:
            for model, names in group.pending.items():
                batched = isinstance(self.models[model], Batched) and model not in self._unbatched
                names = names if batched else names[:1]
                order = Run(model, tuple(names), 1, False)
                need = self.needs[model].on(self._pixels(seat, order))
                alone = need is None or any((model, name) in self._alone for name in names)
                if idle or (not alone and need is not None and used + need <= self.plan.memory):
                    fits = self.plan.at_once(need)
                    return Run(
                        model, tuple(names), self.plan.threads_for(need), need is None or fits < len(self._seats)
                    )
                if alone:
                    return None  # and nothing else either, or its turn would never come
        return None

    def _pixels(self, seat: _Seat, order: Run) -> int:
        if not order.image_ids:
            return SIDE**2
        images = [group.images[name] for group in seat.groups for name in order.image_ids if name in group.images]
        return max(1, sum(row.width * row.height for row, _ in images))

    def _answers(self, keep: Callable[[int, Score], None]) -> None:
        """Wait for what comes next from the workers: scores, a death, or a time that has run out."""
        running = [seat for seat in self._seats if seat.running]
        left = None
        if self.plan.timeout is not None:
            ends = [seat.since + self._limit(seat) for seat in running]
            left = max(0.0, min(ends, default=0.0) - time.monotonic())
        ready = wait([seat.worker.channel for seat in running], timeout=left)
        for seat in running:
            if seat.worker.channel in ready:
                try:
                    answer = seat.worker.channel.recv()
                except (EOFError, OSError):
                    self._died(seat, keep)
                    continue
                if isinstance(answer, BaseException):
                    raise answer
                self._done(seat, answer, keep)
            elif self.plan.timeout is not None and time.monotonic() - seat.since >= self._limit(seat):
                self._fail(seat, "timeout", f"no score within {self.plan.timeout:g} s", keep)

    def _limit(self, seat: _Seat) -> float:
        assert seat.running is not None
        return (self.plan.timeout or 0.0) * max(3 * (not seat.running.image_ids), len(seat.running.image_ids))

    def _done(self, seat: _Seat, answer: Done, keep: Callable[[int, Score], None]) -> None:
        order = answer.run
        if not order.image_ids:
            self.tested[order.model] = answer.selftest
        else:
            seconds = sum(score.seconds for score in answer.scores)
            self.waited += answer.waited
            self.busy += seconds
            pixels, need = self._pixels(seat, order), self.needs[order.model]
            known = need.on(pixels)
            if self.plan.workers and (known is None or answer.needed > known):
                need.bytes, need.pixels, need.seconds = answer.needed, pixels, seconds
            self._met(seat, order)
            for score in answer.scores:
                keep(order.model, score)
        seat.running, seat.claim, seat.kept = None, 0, answer.kept

    def _met(self, seat: _Seat, order: Run) -> None:
        """Strike the images of `order` off its model's list, and drop a group that has met all its models."""
        for group in list(seat.groups):
            names = group.pending.get(order.model)
            if names is not None and order.image_ids[0] in names:
                group.pending[order.model] = [name for name in names if name not in order.image_ids]
                if not group.pending[order.model]:
                    del group.pending[order.model]
                if not group.pending:
                    seat.groups.remove(group)
                    if seat.worker.channel.closed is False:
                        seat.worker.channel.send(Drop(tuple(group.images)))
                return

    def _died(self, seat: _Seat, keep: Callable[[int, Score], None]) -> None:
        order = seat.running
        assert order is not None
        how = seat.worker.died()
        crowd = any(other.running for other in self._seats if other is not seat)
        once_more = [(order.model, name) for name in order.image_ids]
        if len(order.image_ids) > 1:
            self._unbatched.add(order.model)
            self._renew(seat)
        elif order.image_ids and crowd and "SIGKILL" in how and not self._alone.issuperset(once_more):
            self._alone.update(once_more)
            self._renew(seat)
        else:
            self._fail(seat, "failed", f"the worker process {how}", keep)

    def _fail(self, seat: _Seat, status: str, message: str, keep: Callable[[int, Score], None]) -> None:
        """Give up on what the worker runs, and go on with a new worker."""
        order, seconds = seat.running, time.monotonic() - seat.since
        assert order is not None
        images = {name: image for group in seat.groups for name, image in group.images.items()}
        if not order.image_ids:
            self.tested[order.model] = []
        else:
            self._met(seat, order)
            for name in order.image_ids:
                row, data = images[name]
                keep(order.model, failure(Picture(row, data), status, message, seconds, order.threads))
        self._renew(seat)

    def _renew(self, seat: _Seat) -> None:
        """A new worker in the place of one that is dead or hangs; it gets the images that the old one had."""
        if not seat.worker.channel.closed:
            seat.worker.end()
        seat.worker = self._seat().worker
        seat.running, seat.claim, seat.kept = None, 0, 0
        for group in seat.groups:
            for row, data in group.images.values():
                seat.worker.channel.send(Load(row, data))


def describe(plan: Plan, name: str, need: Need, workers: int | None = None) -> list[str]:
    """The plan for a model in words, a line, if its need is known and worth a word. workers: None for all."""
    if not need.bytes or need.bytes < 50_000_000:
        return []
    most = plan.at_once(need.bytes)
    return [
        f"plan: {min(most, workers or most)} at once x {plan.threads_for(need.bytes)} threads; {name} needs "
        f"{need.bytes / 1e9:.1f} GB for {need.pixels / 1e6:.1f} megapixels, there are {plan.memory / 1e9:.1f} GB "
        f"and {plan.cores} cores"
    ]
