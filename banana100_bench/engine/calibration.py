"""How many workers are the fastest here: the first images are scored by all of them, then by fewer, and timed.

A worker for each core is not always best, since cores may share caches, memory bandwidth and execution units. Only the
number of workers is tried; each has the threads that it would have anyway. A thread more moves the last digits of some
models, and of scores that are compared none may depend on the trial that its image fell into.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Rates = Mapping[int, float]  # images a second, by number of workers; empty where nothing was compared

PICTURES = 4  # that each worker scores in a trial, at least
SECONDS = 2.0  # that a trial lasts, at least
LEFT = 15  # times the length of a trial that must remain: one at half the speed then costs 3 %
GAIN = 1.1  # times as fast as more workers must fewer be; less is noise


def calibrate(
    images: Iterator[T],
    count: int,
    workers: int,
    run: Callable[[Iterator[T], int], None],
    fits: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
) -> Rates:
    """Score the first of `count` images, with half as many workers again while that is faster; say how fast each was.

    Nothing is tried, and nothing said, where the images are too few to win the time back, or where memory does not
    admit all workers. run: scores images with so many workers. fits: whether memory admits them, as far as is known.
    """
    if workers < 2 or count < (LEFT + 2) * PICTURES * workers or not fits():
        return {}
    run(itertools.islice(images, 2 * workers), workers)  # so that all are warm, and the memory is known
    if not fits():
        return {}
    count -= 2 * workers
    rates: dict[int, float] = {}

    def trial(workers: int) -> float:
        """Enters the rate, if it is the best so far; gives the images that could be scored in LEFT such trials."""
        nonlocal count
        start = clock()
        some = _Some(images, PICTURES * workers, start + SECONDS, clock)
        run(iter(some), workers)
        seconds = clock() - start
        count -= some.taken
        rates[workers] = max(rates.get(workers, 0.0), some.taken / seconds)
        return LEFT * seconds * max(rates.values())

    enough = trial(workers)
    while workers > 1 and count > enough:
        enough = trial(workers // 2)
        if fastest(rates) < workers:  # a surprise, or something else disturbed the trial of more: both once more
            trial(workers)
            enough = trial(workers // 2)
        if fastest(rates) == workers:
            break
        workers //= 2
    return rates if len(rates) > 1 else {}


class _Some(Generic[T]):
    """The next of `images`: at least so many, and until `end`. taken: how many it were."""

    def __init__(self, images: Iterator[T], least: int, end: float, clock: Callable[[], float]):
        self.images, self.least, self.end, self.clock, self.taken = images, least, end, clock, 0

    def __iter__(self) -> Iterator[T]:
        for image in self.images:
            self.taken += 1
            yield image
            if self.taken >= self.least and self.clock() >= self.end:
                return


def fastest(rates: Rates) -> int:
    """The number of workers to use: the most, unless fewer are clearly faster."""
    best = max(rates)
    for workers in sorted(rates, reverse=True):
        if rates[workers] >= GAIN * rates[best]:
            best = workers
    return best


def remember(facts: dict[str, Any], place: str, rates: Rates) -> None:
    """Keep `rates` among the facts about a model; place: the machine, and the models that were scored together."""
    others = facts.get("calibrated")
    facts["calibrated"] = {**(others if isinstance(others, dict) else {}), place: [*rates.items()]}


def remembered(facts: Mapping[str, Any], place: str, workers: int) -> Rates:
    """What `remember` kept for this place; empty if nothing, or nothing sound: the file may be a stranger's."""
    try:
        rates = {int(count): float(rate) for count, rate in facts["calibrated"][place]}
    except (KeyError, TypeError, ValueError, OverflowError):
        return {}
    sound = len(rates) > 1 and min(rates) > 0 and max(rates) == workers
    return rates if sound and all(0 < rate < math.inf for rate in rates.values()) else {}


def describe(rates: Rates) -> str:
    """The choice in words: ``calibrated: 8 workers, 4.1 images/s; tried 16: 3.2, 4: 2.3 images/s``."""
    best = fastest(rates)
    others = ", ".join(f"{workers}: {rate:.3g}" for workers, rate in rates.items() if workers != best)
    return f"calibrated: {best} worker{'s' * (best > 1)}, {rates[best]:.3g} images/s; tried {others} images/s"
