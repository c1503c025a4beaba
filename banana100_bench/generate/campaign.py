"""Many runs: settings x initial images x repetitions, several at once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from banana100_bench import protocol
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_bytes, write_bytes
from banana100_bench.generate.chain import ChainReport, refuse_changes, run_chain
from banana100_bench.generate.editors import Editor, open_editor
from banana100_bench.generate.initial import InitialImage
from banana100_bench.progress import progress
from banana100_bench.raw import EXTENSIONS, MAX_ROUNDS, RunFacts, initial_path, read_file, run_folder
from banana100_bench.records import check_name

_LOG = logging.getLogger(__name__)
SHOWN_FAILURES = 3


@dataclass(frozen=True, kw_only=True)
class CampaignReport:
    """What `generate` did, in numbers. found, made, redone: of images, as in `chain.ChainReport`."""

    editor: str
    simulated: bool
    runs: int
    found: int
    made: int
    redone: int
    seconds: float

    def summary(self) -> str:
        """The numbers as one line."""
        label = ", a simulation and no editing model" if self.simulated else ""
        redone = f", {self.redone} of them anew" if self.redone else ""
        return (
            f"{self.runs} runs by editor {self.editor}{label}: {self.made} images made{redone}, "
            f"{self.found} found already there, {self.seconds:.1f} s"
        )


def generate(
    editor: str | Editor,
    initial: Sequence[InitialImage],
    out: Path,
    *,
    settings: Sequence[str] = ("replication",),
    repetitions: int = protocol.REPETITIONS,
    rounds: int = protocol.ROUNDS,
    seed: int | None = 0,
    temperature: float | None = None,
    resolution: str | None = None,
    workers: int = 1,
) -> CampaignReport:
    """Make every run of `settings` x `initial` x `repetitions`, or what is missing of them, in raw folder `out`.

    editor: the name of one (editors.EDITORS), or one. initial: see `initial.open_initial`.
    settings: names of protocol.SETTINGS. rounds: of each run. seed: of repetition 0; repetition r has
    seed + r; None sends none. temperature, resolution: as the editor takes them.
    workers: runs at once, in threads: numpy's work on whole pictures and a wait for a network both
    leave Python's lock, so threads speed up either kind of editor as much as processes would.

    A run that fails is told in its journal and does not stop the others; at the end BananaError names
    those that failed. Ctrl-C lets the edits in hand finish. Either way a rerun goes on.
    Raises UsageError where the call makes no sense for this editor, and BananaError where a run that
    stands in `out` was begun otherwise: both before anything is written.
    """
    began = time.monotonic()
    if isinstance(editor, str):
        editor = open_editor(editor)
    for name, value, most in (
        ("repetitions", repetitions, 9999),
        ("rounds", rounds, MAX_ROUNDS),
        ("workers", workers, 256),
    ):
        if not 1 <= value <= most:
            raise UsageError(f"{name} {value}: expected 1 to {most}")
    if seed is not None and not 0 <= seed < 2**63 - repetitions:
        raise UsageError(f"seed {seed}: expected 0 or more, below 2**63")
    _refuse_twice("setting", settings)
    _refuse_twice("initial image", [image.name for image in initial])
    chosen = [protocol.setting(name) for name in settings]
    for setting in chosen:
        editor.check(setting, seed=seed, temperature=temperature, resolution=resolution)
    common = {
        "rounds": rounds,
        "editor": editor.name,
        "model_version": editor.model_version,
        "simulated": editor.simulated,
        "temperature": temperature,
        "resolution": resolution,
    }
    plan = [
        (_facts(image, setting, repetition, None if seed is None else seed + repetition, common), image.data)
        for image in initial
        for setting in chosen
        for repetition in range(repetitions)
    ]
    for image in initial:
        _refuse_other_picture(image, out)
    for facts, _ in plan:
        refuse_changes(run_folder(out, facts.run_id), facts)
    for image in initial:
        path = initial_path(out, image.name, image.extension)
        if not path.exists():
            write_bytes(path, image.data)
    reports, failures = _run_all(editor, plan, out, workers)
    if failures:
        names = sorted(failures)
        shown = "; ".join(f"{name}: {_why(failures[name])}" for name in names[:SHOWN_FAILURES])
        more = f"; and {len(names) - SHOWN_FAILURES} more" if len(names) > SHOWN_FAILURES else ""
        raise BananaError(f"{len(names)} of {len(plan)} runs failed: {shown}{more}") from failures[names[0]]
    return CampaignReport(
        editor=editor.name,
        simulated=editor.simulated,
        runs=len(reports),
        found=sum(report.found for report in reports),
        made=sum(report.made for report in reports),
        redone=sum(report.redone for report in reports),
        seconds=time.monotonic() - began,
    )


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, BananaError) else f"{type(error).__name__}: {error}"


def _refuse_twice(kind: str, names: Sequence[str]) -> None:
    if not names:
        raise UsageError(f"no {kind} given")
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{kind} {name!r} given twice")


def _facts(
    image: InitialImage, setting: protocol.Setting, repetition: int, seed: int | None, common: dict[str, Any]
) -> RunFacts:
    return RunFacts.model_validate(
        {
            "setting": setting.name,
            "setting_group": setting.group,
            "period": setting.period,
            "prompts": setting.prompts,
            "initial_image": check_name("initial image", image.name),
            "initial_sha256": sha256_bytes(image.data),
            "initial_extension": image.extension,
            "style": image.style,
            "repetition": repetition,
            "seed": seed,
            **common,
        }
    )


def _refuse_other_picture(image: InitialImage, raw: Path) -> None:
    for extension in EXTENSIONS.values():
        path = initial_path(raw, image.name, extension)
        if path.exists() and (extension != image.extension or read_file(path) != image.data):
            raise BananaError(f"{path} is not the picture {image.source}; use another name or another folder")


def _run_all(
    editor: Editor, plan: Sequence[tuple[RunFacts, bytes]], raw: Path, workers: int
) -> tuple[list[ChainReport], dict[str, Exception]]:
    reports: list[ChainReport] = []
    failures: dict[str, Exception] = {}
    stop, lock = threading.Event(), threading.Lock()
    total = sum(facts.rounds for facts, _ in plan)
    with progress("generate", total) as advance, ThreadPoolExecutor(workers) as pool:

        def advance_safely(count: int) -> None:
            with lock:
                advance(count)

        waiting = {
            pool.submit(
                run_chain, editor, facts, initial, raw, advance=advance_safely, stopped=stop.is_set
            ): facts.run_id
            for facts, initial in plan
        }
        try:
            for future in as_completed(waiting):
                try:
                    reports.append(future.result())
                except Exception as error:
                    failures[waiting[future]] = error
                    _LOG.warning("%s failed: %s", waiting[future], _why(error))
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return reports, failures
