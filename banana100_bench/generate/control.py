"""What all runs of a campaign share: the money, the pause after a rate limit, and the order to stop."""

from __future__ import annotations

import re
import threading
import time
from datetime import datetime, timedelta, timezone

from banana100_bench.errors import UsageError


def parse_until(text: str, now: datetime | None = None) -> datetime:
    """The end of a time, ``2026-05-01T08:00`` (local unless it names a zone), or of a span from now: ``90m 8h 2d``."""
    now = now or datetime.now(timezone.utc)
    if match := re.fullmatch(r"(\d{1,5}(?:\.\d+)?)([mhd])", text):
        return now + timedelta(minutes=float(match[1]) * {"m": 1, "h": 60, "d": 1440}[match[2]])
    try:
        until = datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone()
    except ValueError as error:
        raise UsageError(f"until {text!r}: expected a time, as 2026-05-01T08:00, or a span, as 90m, 8h, 2d") from error
    if until <= now:
        raise UsageError(f"until {text!r}: that is over")
    return until


class Control:
    """Says to each run, before each call, whether it may call. All of it may be used from any thread.

    budget_usd: what may be spent, None for no limit. spent_usd, unsure_usd: what was spent before, and may have been.
    until: when no further call is begun (with a time zone).

    A call counts with the most it can cost from before it begins until its cost is told, and ever after where
    it is not told. So the sum never passes the budget as long as no call costs more than its editor's `usd_at_most`.
    """

    def __init__(
        self,
        budget_usd: float | None = None,
        *,
        spent_usd: float = 0.0,
        unsure_usd: float = 0.0,
        until: datetime | None = None,
    ):
        self.budget_usd = budget_usd
        self.spent_usd = spent_usd
        self.unsure_usd = unsure_usd
        self._until = until
        self._reserved: list[float] = []  # of the calls in flight; a running sum would not come back to 0
        self._hold_until = 0.0  # time.monotonic
        self._reason: str | None = None
        self._changed = threading.Condition()

    @property
    def stopped(self) -> bool:
        """True as soon as no further call may begin."""
        with self._changed:
            return self._is_stopped()

    @property
    def reason(self) -> str | None:
        """Why it stopped; None while it has not."""
        with self._changed:
            return self._reason

    @property
    def committed_usd(self) -> float:
        """Spent, perhaps spent, and in flight at most."""
        with self._changed:
            return self._committed()

    def stop(self, reason: str) -> None:
        """Let no further call begin; who waits, wakes. The first reason stays."""
        with self._changed:
            self._reason = self._reason or reason
            self._changed.notify_all()

    def hold(self, seconds: float) -> None:
        """Let no call of any run begin for so long: the other side said that there are too many."""
        with self._changed:
            self._hold_until = max(self._hold_until, time.monotonic() + seconds)

    def sleep(self, seconds: float) -> None:
        """Wait, but no longer than until it stops."""
        until = time.monotonic() + seconds
        with self._changed:
            while not self._is_stopped() and (left := until - time.monotonic()) > 0:
                self._changed.wait(min(left, 1.0))  # 1 s: the clock of `until` is another

    def begin(self, usd_at_most: float) -> bool:
        """Wait for leave to make a call that costs so much at most; False where none may begin any more.

        True reserves the money; `end` must follow.
        """
        with self._changed:
            while not self._is_stopped():
                held = self._hold_until - time.monotonic()
                if self.budget_usd is not None and self._committed() + usd_at_most > self.budget_usd:
                    if not self._reserved:
                        self._reason = (
                            f"the budget: {self._committed():.2f} of {self.budget_usd:.2f} USD are spent or may be, "
                            f"and the next call may cost up to {usd_at_most:.2f}"
                        )
                        self._changed.notify_all()
                        return False
                    self._changed.wait(1.0)
                elif held > 0:
                    self._changed.wait(min(held, 1.0))
                else:
                    self._reserved.append(usd_at_most)
                    return True
            return False

    def end(self, usd_at_most: float, usd: float | None) -> None:
        """A call that began with `usd_at_most` is over and cost `usd`; None: perhaps billed, not told."""
        with self._changed:
            self._reserved.remove(usd_at_most)
            if usd is None:
                self.unsure_usd += usd_at_most
            else:
                self.spent_usd += usd
            self._changed.notify_all()

    def _committed(self) -> float:
        return self.spent_usd + self.unsure_usd + sum(self._reserved)

    def _is_stopped(self) -> bool:
        if self._reason is None and self._until is not None and datetime.now(timezone.utc) >= self._until:
            self._reason = f"the time is over ({self._until.isoformat(timespec='seconds')})"
            self._changed.notify_all()
        return self._reason is not None
