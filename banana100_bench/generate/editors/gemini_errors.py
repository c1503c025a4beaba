"""What went wrong with a call to the Gemini API, and whether another try can help.

google-genai's own retries are off: they ignore the delay that a 429 asks for, and miss bodies cut short.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from banana100_bench.generate.editors.base import EditError, Halt, RateLimited, Transient

MAX_MESSAGE = 300
NO_IMAGE_TRIES = 4  # an answer without an image is billed
FREE_TRIES = 60  # about an hour: what costs nothing may go on for long (503 "for minutes", a network that is down)
RETRIED_CODES = (408, 500, 502, 503, 504)


def classify(error: Exception, now: datetime | None = None) -> Exception:
    """The EditError that `error`, raised by google-genai, means; `error` itself where it is a fault of ours.

    An HTTP error is not billed; where the connection or the body broke, the answer may have been.
    """
    import httpx2
    import pydantic
    from google.auth.exceptions import GoogleAuthError
    from google.genai import errors

    if isinstance(error, errors.APIError):
        return _of_status(error, now or datetime.now(timezone.utc))
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return Transient(f"no connection: {short(error)}", tries=FREE_TRIES)
    if isinstance(error, httpx2.TransportError):
        return Transient(f"the connection broke: {type(error).__name__} {short(error)}", usd=None)
    if isinstance(error, json.JSONDecodeError | pydantic.ValidationError | errors.UnknownApiResponseError):
        return Transient(f"an unreadable answer: {type(error).__name__} {short(error)}", usd=None)
    if isinstance(error, GoogleAuthError):
        return Halt(f"Google does not accept the credentials: {short(error)}")
    return error


def _of_status(error: Any, now: datetime) -> EditError:
    message = f"HTTP {error.code} {error.status or ''}: {short(error.message or '')}"
    if error.code == 429:
        return _over_quota(error, message, now)
    if error.code in RETRIED_CODES:
        return Transient(message, wait_s=_delay(error), tries=FREE_TRIES)
    if error.code == 400 and "thought_signature" in message:
        return Transient(message, tries=NO_IMAGE_TRIES)
    if error.code == 400 and not _is_about_the_caller(error, message):
        return EditError(message)
    return Halt(message)


def _is_about_the_caller(error: Any, message: str) -> bool:
    """True for a 400 that every call will get: a wrong key, a place that is not served, an unknown field."""
    reasons = {detail.get("reason") for detail in _details(error)}
    return "API_KEY_INVALID" in reasons or error.status == "FAILED_PRECONDITION" or "Unknown name" in message


def _over_quota(error: Any, message: str, now: datetime) -> EditError:
    violations = [one for detail in _details(error) for one in detail.get("violations", []) if isinstance(one, dict)]
    if any(str(one.get("quotaValue")) == "0" for one in violations):
        return Halt("HTTP 429: this project has no quota for this model at all (limit 0); is billing switched on?")
    if any("PerDay" in str(one.get("quotaId", "")) for one in violations):
        reset = next_reset(now)
        return Halt(
            f"HTTP 429: the requests of this day are used up; they are counted anew from "
            f"{reset.isoformat(timespec='minutes')} ({reset.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC)"
        )
    return RateLimited(message, wait_s=_delay(error), tries=FREE_TRIES)


def next_reset(now: datetime) -> datetime:
    """When Google counts a day's requests anew: midnight in California."""
    pacific = ZoneInfo("America/Los_Angeles")
    tomorrow = now.astimezone(pacific).date() + timedelta(days=1)
    return datetime.combine(tomorrow, time(), pacific)


def _details(error: Any) -> list[dict[str, Any]]:
    body = error.details if isinstance(error.details, dict) else {}
    inner = body.get("error", {})
    details = inner.get("details", []) if isinstance(inner, dict) else []
    return [one for one in details if isinstance(one, dict)] if isinstance(details, list) else []


def _delay(error: Any) -> float | None:
    """The seconds that the server asks to wait (RetryInfo), an hour at most; None where it does not say."""
    for detail in _details(error):
        if match := re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)s", str(detail.get("retryDelay", ""))):
            return min(float(match[1]), 3600.0)
    return None


def short(error: object) -> str:
    """The first words of an error on one line, with nothing in it that looks like a key."""
    text = " ".join(str(error).split())[:MAX_MESSAGE]
    return re.sub(r"AIza[\w-]{10,}|AQ\.[\w-]{10,}|ya29\.[\w.-]{10,}|(?<=key=)[^&\s]+", "***", text)
