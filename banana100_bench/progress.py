"""Progress of long work: a bar with rate and time left on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

PLAIN_LINE_EVERY = 10.0  # seconds


@contextlib.contextmanager
def progress(what: str, total: int, unit: str = "images") -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how many more of `total` are done; all output goes to stderr."""
    if sys.stderr.isatty():
        with _bar(what, total, unit) as advance:
            yield advance
    else:
        with _lines(what, total, unit) as advance:
            yield advance


@contextlib.contextmanager
def _bar(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed:.1f} {unit}/s" if speed else f"- {unit}/s")

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), Rate(), TimeLeft())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


@contextlib.contextmanager
def _lines(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    start = last = time.monotonic()
    done = 0

    def say() -> None:
        passed = time.monotonic() - start
        rate = done / passed if passed > 0 else 0.0
        left = f", {(total - done) / rate:.0f} s left" if rate > 0 and done < total else ""
        print(f"{what}: {done}/{total} {unit}, {rate:.1f} {unit}/s{left}", file=sys.stderr, flush=True)

    def advance(count: int) -> None:
        nonlocal done, last
        done += count
        if time.monotonic() - last >= PLAIN_LINE_EVERY:
            last = time.monotonic()
            say()

    yield advance
    say()
