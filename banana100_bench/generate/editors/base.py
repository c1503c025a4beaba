"""What an editor is: one call, one picture. Retries, money and the journal are the runner's (chain.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from banana100_bench.errors import BananaError
from banana100_bench.protocol import Setting


@dataclass(frozen=True, kw_only=True)
class Turn:
    """An earlier round of the same chat: what was asked, the encoded picture answered, and its signature if any."""

    prompt: str
    data: bytes
    signature: str | None = None


@dataclass(frozen=True, kw_only=True)
class EditRequest:
    """One edit: the encoded picture `data`, what to do with it, and which round of the run this is (from 1).

    seed, temperature, resolution: sampling options; None leaves each to the editor.
    initial, turns: in a chat, the picture it began with and the earlier rounds in its context, whose last one
        answered `data`; None and empty otherwise, and in a chat's first round.
    """

    data: bytes
    prompt: str
    round: int
    seed: int | None = None
    temperature: float | None = None
    resolution: str | None = None
    initial: bytes | None = None
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Edited:
    """What came back: the encoded picture exactly as made (PNG, JPEG or WebP), and what was said of it.

    model_version: what answered, None where that is the editor's own `model_version`.
    usd: what the call cost; None where it was billed and the sum not told.
    told: facts for the journal (tokens, response id, sizes). signature: of the turn, for chats.
    """

    data: bytes
    model_version: str | None = None
    reasoning_summary: str | None = None
    usd: float | None = 0.0
    told: Mapping[str, str | int | float] = field(default_factory=dict)
    signature: str | None = None


class EditError(BananaError):
    """A call that gave no usable picture; this run ends, a rerun tries again.

    usd: what it cost all the same; None where it may have been billed and nothing was told.
    """

    kind: ClassVar[str] = "failed"

    def __init__(self, message: str, *, usd: float | None = 0.0):
        super().__init__(message)
        self.usd = usd


class Transient(EditError):
    """May go well the next time.

    wait_s: as the other side asks, None: ours to choose. tries: for one picture at most; counted apart by limit.
    """

    kind = "transient"

    def __init__(self, message: str, *, usd: float | None = 0.0, wait_s: float | None = None, tries: int = 12):
        super().__init__(message, usd=usd)
        self.wait_s = wait_s
        self.tries = tries


class RateLimited(Transient):
    """Too many calls a minute: no run calls before `wait_s` is over."""

    kind = "rate_limited"


class Blocked(EditError):
    """The other side refuses this picture or prompt: the run is marked and not tried again unless asked for."""

    kind = "blocked"


class Halt(EditError):
    """No call of any run can go well now: wrong key, used-up daily quota, a model that is gone."""

    kind = "halt"


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Of one call: the usual cost, what it cannot exceed (US dollars), and the usual seconds (None: not known)."""

    usd: float = 0.0
    usd_at_most: float = 0.0
    seconds: float | None = None


class Editor(ABC):
    """An editor has a name, a version and `edit`; the rest has defaults. Runs share one, from several threads.

    name: part of run ids, valid by `records.check_name`.
    model_version: what decides the images; a run begun with one version is not continued with another.
    simulated: True where no editing model makes the images, but a simulation of one.
    default_resolution: sent where the caller names none.
    """

    name: str
    model_version: str
    simulated: bool = False
    default_resolution: str | None = None

    def check(self, setting: Setting, *, seed: int | None, temperature: float | None, resolution: str | None) -> None:
        """Raise UsageError, saying why, where the editor cannot do this; called for each setting, before any edit."""
        return

    def estimate(self, resolution: str | None, pictures: int = 1) -> Estimate:
        """Of one call with so many `pictures` in it."""
        return Estimate()

    def open(self) -> None:
        """Load weights, find the key: called before anything is written where a run lacks rounds.

        `edit` must do without: with redo, files of a finished run may be harmed after it was planned.
        """
        return

    @abstractmethod
    def edit(self, request: EditRequest) -> Edited:
        """Edit one picture; EditError where none came back. Any other exception is taken for a fault of the editor."""
