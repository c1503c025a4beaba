"""What an editor is, and the editors by name. An editor is one file here and one line in EDITORS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from banana100_bench.errors import unknown_name
from banana100_bench.protocol import Setting


@dataclass(frozen=True, kw_only=True)
class EditRequest:
    """One edit: the encoded picture `data`, what to do with it, and which round of the run this is (from 1).

    seed, temperature, resolution: sampling options; None leaves each to the editor.
    """

    data: bytes
    prompt: str
    round: int
    seed: int | None = None
    temperature: float | None = None
    resolution: str | None = None


@dataclass(frozen=True, kw_only=True)
class Edited:
    """What came back: the encoded picture exactly as made (PNG, JPEG or WebP), and what was said of it.

    model_version: what answered, None where that is the editor's own `model_version`.
    """

    data: bytes
    model_version: str | None = None
    reasoning_summary: str | None = None


class Editor(Protocol):
    """Anything with these can make runs. Runs share one editor and may call it from several threads."""

    @property
    def name(self) -> str:
        """Part of run ids: valid by `records.check_name`."""
        ...

    @property
    def simulated(self) -> bool:
        """True where no editing model makes the images but a simulation of one."""
        ...

    @property
    def model_version(self) -> str:
        """What decides the images; a run begun with one version is not continued with another."""
        ...

    def check(self, setting: Setting, *, seed: int | None, temperature: float | None, resolution: str | None) -> None:
        """Raise UsageError, saying why, where the editor cannot do this; called once, before any edit."""
        ...

    def edit(self, request: EditRequest) -> Edited:
        """Edit one picture; BananaError where none came back."""
        ...


def _simulated() -> Editor:
    from banana100_bench.generate.editors.simulated import Simulated

    return Simulated()


EDITORS: dict[str, Callable[[], Editor]] = {"simulated": _simulated}


def open_editor(spec: str) -> Editor:
    """The editor called `spec`; UsageError with the choices where there is none."""
    if spec not in EDITORS:
        raise unknown_name("editor", spec, EDITORS)
    return EDITORS[spec]()
