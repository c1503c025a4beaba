from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banana100_bench.errors import UsageError
from banana100_bench.generate.control import Control, parse_until

NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)


@given(
    budget=st.floats(0, 20),
    calls=st.lists(st.tuples(st.floats(0.1, 3), st.none() | st.floats(0, 1)), max_size=30),
)
@settings(max_examples=200, deadline=None)
def test_what_is_spent_and_perhaps_spent_never_passes_the_budget(budget, calls):
    control = Control(budget)
    for at_most, share in calls:
        before = control.committed_usd
        if not control.begin(at_most):
            assert before + at_most > budget
            break
        assert control.committed_usd == pytest.approx(before + at_most)
        control.end(at_most, None if share is None else share * at_most)
        assert control.committed_usd <= budget + 1e-9
        assert control.committed_usd == pytest.approx(before + at_most * (1 if share is None else share))


def test_money_for_calls_in_flight_is_kept_back_and_given_back():
    control = Control(1.0, spent_usd=0.2, unsure_usd=0.1)
    assert control.begin(0.3)
    assert control.begin(0.3)
    done = []
    waiting = threading.Thread(target=lambda: done.append(control.begin(0.3)))
    waiting.start()  # 0.9 are taken: it may fit once one of the two is over
    time.sleep(0.05)
    assert done == []
    control.end(0.3, 0.1)
    waiting.join(timeout=3)
    assert done == [True]
    control.end(0.3, None)
    control.end(0.3, 0.3)
    assert (control.spent_usd, control.unsure_usd) == (pytest.approx(0.6), pytest.approx(0.4))
    assert not control.begin(0.01)
    assert control.reason == ("the budget: 1.00 of 1.00 USD are spent or may be, and the next call may cost up to 0.01")


def test_many_threads_never_pass_the_budget_and_none_hangs():
    control, most = Control(10.0), []

    def work() -> None:
        while control.begin(0.7):
            most.append(control.committed_usd)
            control.end(0.7, 0.1)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert not any(thread.is_alive() for thread in threads)
    assert max(most) <= 10.0 + 1e-9
    assert 9.3 < control.spent_usd <= 10.0 + 1e-9


def test_a_stop_wakes_who_waits_and_the_first_reason_stays():
    control = Control()
    control.hold(60)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(control.begin(0.0))),
        threading.Thread(target=lambda: results.append(control.sleep(60))),
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    control.stop("Ctrl-C")
    control.stop("something else")
    for thread in threads:
        thread.join(timeout=5)
    assert time.monotonic() - began < 2
    assert sorted(results, key=str) == [False, None]
    assert control.stopped
    assert control.reason == "Ctrl-C"


def test_no_call_begins_after_the_time():
    control = Control(until=datetime.now(timezone.utc) + timedelta(seconds=0.2))
    assert control.begin(0.0)
    began = time.monotonic()
    control.sleep(60)
    assert 0.1 < time.monotonic() - began < 3
    assert not control.begin(0.0)
    assert control.reason is not None
    assert control.reason.startswith("the time is over (20")


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("90m", datetime(2026, 5, 1, 13, 30, tzinfo=timezone.utc)),
        ("1.5h", datetime(2026, 5, 1, 13, 30, tzinfo=timezone.utc)),
        ("2d", datetime(2026, 5, 3, 12, tzinfo=timezone.utc)),
        ("2026-05-01T14:00+01:00", datetime(2026, 5, 1, 13, tzinfo=timezone.utc)),
        ("2026-05-02T00:00:00Z", datetime(2026, 5, 2, tzinfo=timezone.utc)),
    ],
)
def test_times_and_spans(text, until):
    assert parse_until(text, NOON) == until


@pytest.mark.parametrize(
    ("text", "message"), [("soon", "expected a time"), ("5", "expected a time"), ("2026-04-30", "is over")]
)
def test_what_is_no_time_to_come_is_refused(text, message):
    with pytest.raises(UsageError, match=f"until '{text}': .*{message}"):
        parse_until(text, NOON)
