"""Asking an editor for one picture until it comes: each call, its cost and its failure are in the journal."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timezone

from banana100_bench import images
from banana100_bench.errors import BananaError, message_of
from banana100_bench.files import Journal
from banana100_bench.generate.control import Control
from banana100_bench.generate.editors.base import (
    Edited,
    EditError,
    Editor,
    EditRequest,
    RateLimited,
    Transient,
)
from banana100_bench.raw import EXTENSIONS, Failed, Retried, Started
from banana100_bench.user_code import guarded

_LOG = logging.getLogger(__name__)
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0  # between tries, doubling, where the other side names no time
MAX_MESSAGE = 500


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A usable answer: what the editor returned, what the picture is, and the seconds it took."""

    edited: Edited
    picture: images.ImageFacts
    seconds: float

    @property
    def extension(self) -> str:
        return EXTENSIONS[self.picture.format]


def ask(editor: Editor, request: EditRequest, run: str, journal: Journal, control: Control) -> Answer | None:
    """The editor's answer to `request` of the run `run`; None where `control` lets no call begin any more.

    A kill in here loses the call in flight alone, and its start row tells what it may have cost. Raises the
    EditError that another try does not help, and whatever else the editor raises, both told in the journal.
    """
    at_most = editor.estimate(request.resolution, 1 + len(request.turns)).usd_at_most
    alike: Counter[int] = Counter()  # failures by their limit: hours of 503 leave a rare empty answer its tries
    for tries in itertools.count(1):
        if not control.begin(at_most):
            return None
        usd: float | None = None  # not known, until told
        try:
            journal.append(Started(round=request.round, created_at=now(), usd_at_most=at_most).model_dump())
            outcome = _call(editor, request, run)
            usd = _cost(outcome)
            if usd is not None and usd > at_most:
                _LOG.warning("%s: a call cost %.4f USD, more than the %.4f thought possible", run, usd, at_most)
            if isinstance(outcome, Answer):
                return outcome
            alike[outcome.tries if isinstance(outcome, Transient) else 0] += 1
            if not isinstance(outcome, Transient) or alike[outcome.tries] >= outcome.tries:
                _tell_failure(journal, request.round, outcome, usd, tries)
                raise outcome
            wait = _wait(outcome, tries)
            _tell_retry(journal, request.round, outcome, usd, wait)
        finally:
            control.end(at_most, usd)
        if isinstance(outcome, RateLimited):
            control.hold(wait)
        else:
            control.sleep(wait)
    raise AssertionError("unreachable")


def now() -> str:
    """The time as journals write it: ISO 8601, UTC, whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _call(editor: Editor, request: EditRequest, run: str) -> Answer | Exception:
    """One call: what came, or the error that came instead of it.

    Code that ends its process would end this thread alone, for which the campaign would then wait for ever.
    """
    began = time.monotonic()
    try:
        with guarded():
            edited = editor.edit(request)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        return error
    except BaseException as stop:
        return EditError(f"{type(stop).__name__}: {message_of(stop)}", usd=None)
    seconds = time.monotonic() - began
    try:
        picture = images.probe(edited.data, f"{run}: output of round {request.round}")
    except BananaError as error:
        return EditError(str(error), usd=edited.usd)
    return Answer(edited=edited, picture=picture, seconds=seconds)


def _cost(outcome: Answer | Exception) -> float | None:
    """US dollars of a call; None where it may have been billed and nothing was told."""
    if isinstance(outcome, Answer):
        return outcome.edited.usd
    return outcome.usd if isinstance(outcome, EditError) else None


def _wait(error: Transient, tries: int) -> float:
    """Seconds before the next try: as asked for, else doubling; up to a quarter more, so that runs spread."""
    wait = min(FIRST_WAIT_S * 2 ** (tries - 1), LONGEST_WAIT_S) if error.wait_s is None else error.wait_s
    return round(wait * (1 + random.random() / 4), 3)


def _tell_retry(journal: Journal, number: int, error: Transient, usd: float | None, wait: float) -> None:
    row = Retried(
        round=number, created_at=now(), kind=error.kind, message=str(error)[:MAX_MESSAGE], wait_s=wait, usd=usd
    )
    journal.append(row.model_dump())


def _tell_failure(journal: Journal, number: int, error: Exception, usd: float | None, tries: int) -> None:
    kind = error.kind if isinstance(error, EditError) else "failed"
    message = f"{type(error).__name__}: {error}"[:MAX_MESSAGE] + (f" ({tries} tries)" if tries > 1 else "")
    journal.append(Failed(round=number, created_at=now(), message=message, kind=kind, usd=usd).model_dump())
