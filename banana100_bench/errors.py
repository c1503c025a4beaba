"""The two errors a person can cause; every other exception is a bug of ours.

The command line prints their text as one line, without a traceback unless ``--debug`` is given.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BananaError(Exception):
    """Something failed: a broken file, a full disk, a dataset that does not fit. Exit code 1."""

    exit_code = 1


class UsageError(BananaError):
    """The call itself is wrong: an unknown name, an option out of range. Exit code 2."""

    exit_code = 2


def message_of(error: BaseException) -> str:
    """What `error` says, also of a class whose ``__str__`` itself fails."""
    try:
        return str(error)
    except Exception:
        return "its message cannot be shown"


def unknown_name(kind: str, name: str, choices: Iterable[str], limit: int = 12) -> UsageError:
    """The error for a `name` that is none of the `choices`: near ones first, else the first few."""
    known = sorted(choices)
    folded = {choice.lower(): choice for choice in known}
    near = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=5, cutoff=0.5)]
    shown = near or known[:limit]
    more = len(known) - len(shown)
    hint = f"did you mean {', '.join(near)}?" if near else f"choices: {', '.join(shown)}"
    tail = f" ({more} more)" if more > 0 and not near else ""
    return UsageError(f"unknown {kind} {name!r}; {hint}{tail}")
