"""Watching a campaign: a live table on a terminal, a plain line now and then elsewhere; all of it on stderr."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from banana100_bench.generate.control import Control
from banana100_bench.generate.plan import duration, money
from banana100_bench.progress import PLAIN_LINE_EVERY

if TYPE_CHECKING:
    from rich.console import Group

SHOWN_RUNS = 16  # rows of the table; the others are counted
STATES = ("running", "finished", "stopped", "blocked", "failed")


class Watch:
    """Counts what happens in a campaign of `runs` runs and `total` images; any thread may tell it."""

    def __init__(self, runs: int, total: int, control: Control, budget: bool):
        self._runs, self._total, self._control, self._priced = runs, total, control, budget
        self._began = time.monotonic()
        self._round: dict[str, tuple[int, int]] = {}  # of the running ones: (done, asked for)
        self._states: Counter[str] = Counter()
        self._found = self._made = 0
        self._lock = threading.Lock()

    def start(self, run: str, rounds: int) -> Callable[[int], None]:
        """A run begins; the function returned takes how many more of its rounds are done: first those found."""
        first = True
        with self._lock:
            self._round[run] = (0, rounds)

        def advance(count: int) -> None:
            nonlocal first
            with self._lock:
                done, asked = self._round[run]
                self._round[run] = (done + count, asked)
                if first:
                    self._found += count
                else:
                    self._made += count
                first = False

        return advance

    def end(self, run: str, state: str) -> None:
        """A run is over for now; state: one of STATES."""
        with self._lock:
            self._round.pop(run, None)
            self._states[state] += 1

    def line(self) -> str:
        """All of it as one line."""
        with self._lock:
            states = Counter(self._states) + Counter(running=len(self._round))
            found, made = self._found, self._made
        seconds = time.monotonic() - self._began
        rate = made / seconds if seconds > 0 else 0.0
        left = self._total - found - made
        parts = [
            f"generate: {found + made}/{self._total} images",
            f"{rate:.1f} a second" if rate >= 1 else f"{rate * 60:.1f} a minute",
        ]
        parts += [f"runs: {', '.join(f'{states[state]} {state}' for state in STATES if states[state])} of {self._runs}"]
        if self._priced:
            of = "" if self._control.budget_usd is None else f" of {self._control.budget_usd:.2f}"
            parts += [money(self._control.spent_usd, self._control.unsure_usd) + of]
        if made and left:
            parts += [f"{duration(left / rate)} left"]
        return "; ".join(parts)

    def view(self) -> Group:
        """The running runs with their round as a table, and the line below it."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            running = sorted(self._round.items())
        table = Table(box=None)
        table.add_column("run", no_wrap=True)
        table.add_column("round", justify="right")
        for run, (done, asked) in running[:SHOWN_RUNS]:
            table.add_row(run, f"{done} / {asked}")
        if len(running) > SHOWN_RUNS:
            table.add_row(f"and {len(running) - SHOWN_RUNS} more", "")
        return Group(table, Text(self.line()))


@contextlib.contextmanager
def shown(watch: Watch) -> Iterator[Callable[[], None]]:
    """Yield a function to be called often, which shows `watch` when it is time; the last state is always shown."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        with Live(watch.view(), console=Console(stderr=True), auto_refresh=False) as live:
            yield lambda: live.update(watch.view(), refresh=True)
            live.update(watch.view(), refresh=True)
        return
    last = time.monotonic()

    def tick() -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_LINE_EVERY:
            last = time.monotonic()
            print(watch.line(), file=sys.stderr, flush=True)

    try:
        yield tick
    finally:
        print(watch.line(), file=sys.stderr, flush=True)
