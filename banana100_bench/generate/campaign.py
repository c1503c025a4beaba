"""Many runs: settings x initial images x repetitions, several at once, for a week if need be."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from banana100_bench.errors import BananaError
from banana100_bench.files import locked, write_bytes
from banana100_bench.generate.chain import ChainReport, run_chain
from banana100_bench.generate.control import Control
from banana100_bench.generate.editors import Editor, open_editor
from banana100_bench.generate.editors.base import Blocked, Halt
from banana100_bench.generate.initial import InitialImage
from banana100_bench.generate.plan import Plan, PlannedRun, make_plan, money
from banana100_bench.generate.watch import Watch, shown
from banana100_bench.raw import initial_path

_LOG = logging.getLogger(__name__)
SHOWN_FAILURES = 3
TICK_S = 0.25


@dataclass(frozen=True, kw_only=True)
class CampaignReport:
    """What `generate` did, in numbers. found, made, redone, drifted: of images, as in `chain.ChainReport`.

    unfinished: runs with rounds still to make, `blocked` ones among them. stopped: why it ended before its end.
    spent_usd, unsure_usd: in this folder since its first call; the second is what calls with an unknown outcome
    may have cost at most.
    """

    editor: str
    simulated: bool
    runs: int
    found: int
    made: int
    redone: int
    drifted: int = 0
    unfinished: int = 0
    blocked: Sequence[str] = field(default_factory=tuple)
    stopped: str | None = None
    spent_usd: float = 0.0
    unsure_usd: float = 0.0
    seconds: float

    def summary(self) -> str:
        """The numbers as one line."""
        label = ", a simulation and no editing model" if self.simulated else ""
        redone = f", {self.redone} of them anew" if self.redone else ""
        drifted = f", {self.drifted} of another size than their input" if self.drifted else ""
        parts = [
            f"{self.runs} runs by editor {self.editor}{label}: {self.made} images made{redone}{drifted}, "
            f"{self.found} found already there, {self.seconds:.1f} s"
        ]
        if self.spent_usd or self.unsure_usd:
            parts += [f"spent in this folder: {money(self.spent_usd, self.unsure_usd)}"]
        if self.unfinished:
            parts += [f"{self.unfinished} runs are not finished"]
        if self.blocked:
            parts += [f"{len(self.blocked)} blocked, by the journal of each: {_some(self.blocked)}"]
        if self.stopped:
            parts += [f"stopped: {self.stopped}; the same call continues"]
        return "; ".join(parts)


def generate(
    editor: str | Editor,
    initial: Sequence[InitialImage],
    out: Path,
    *,
    budget_usd: float | None = None,
    until: datetime | None = None,
    retry_blocked: bool = False,
    **what: Any,
) -> CampaignReport:
    """Make every run of a plan, or what is missing of them, in raw folder `out`.

    editor: the spec of one (`editors.open_editor`), or one. initial: see `initial.open_initial`.
    what: as `plan.make_plan` takes it: settings, images, repetitions, rounds, seed, temperature, resolution, redo
        (without it a run whose files are not what its journal says fails and is not touched), max_concurrency
        (runs at once, in threads: numpy's work on whole pictures and a wait for a network both leave Python's lock).
    budget_usd: of the folder, all that was spent in it before counted, as `control.Control` counts.
    until: no call begins after it. retry_blocked: try runs that were blocked before.

    A run that fails or is blocked is told in its journal and does not stop the others; at the end BananaError
    names those that failed. Ctrl-C lets no further call begin and waits for those in flight; a second one leaves
    them. Either way a rerun goes on. Raises UsageError where the call makes no sense for this editor, and
    BananaError where a run that stands in `out` was begun otherwise: both before anything is written.
    """
    if isinstance(editor, str):
        editor = open_editor(editor)
    plan = make_plan(editor, initial, out, **what)
    return run_plan(plan, out, budget_usd=budget_usd, until=until, retry_blocked=retry_blocked)


def run_plan(
    plan: Plan,
    out: Path,
    *,
    budget_usd: float | None = None,
    until: datetime | None = None,
    retry_blocked: bool = False,
) -> CampaignReport:
    """Make what `plan` says; see `generate`."""
    began = time.monotonic()
    control = Control(budget_usd, spent_usd=plan.spent_usd, unsure_usd=plan.unsure_usd, until=until)
    skipped = [run for run in plan.runs if run.past.blocked and run.calls and not retry_blocked]
    todo = [run for run in plan.runs if run not in skipped]
    if skipped:
        _LOG.warning("%d runs that were blocked before are left out: %s", len(skipped), _ids(skipped))
    if any(run.calls for run in todo):
        plan.editor.open()
    with locked(out, "another process is generating into this folder"):
        for image in plan.initial:
            path = initial_path(out, image.name, image.extension)
            if not path.exists():
                write_bytes(path, image.data)
        reports, failures = _run_all(plan, todo, out, control)
    _raise(reports, failures, len(plan.runs))
    done = {report.run_id: report.found + report.made for report in reports}
    blocked = [report.run_id for report in reports if isinstance(report.why, Blocked)]
    return CampaignReport(
        editor=plan.editor.name,
        simulated=plan.editor.simulated,
        runs=len(plan.runs),
        found=sum(report.found for report in reports) + sum(run.found for run in skipped),
        made=sum(report.made for report in reports),
        redone=sum(report.redone for report in reports),
        drifted=sum(report.drifted for report in reports),
        unfinished=sum(done.get(run.facts.run_id, run.found) < run.facts.rounds for run in plan.runs),
        blocked=sorted(blocked + [run.facts.run_id for run in skipped]),
        stopped=control.reason,
        spent_usd=control.spent_usd,
        unsure_usd=control.unsure_usd,
        seconds=time.monotonic() - began,
    )


def _raise(reports: Sequence[ChainReport], failures: Mapping[str, Exception], runs: int) -> None:
    """BananaError with what stopped the campaign, and with the runs that failed; nothing where all went well."""
    told: list[str] = []
    halt = next((report.why for report in reports if isinstance(report.why, Halt)), None)
    if halt:
        made = sum(report.made for report in reports)
        told += [f"{halt}; {made} images were made before, the same call continues"]
    if failures:
        names = sorted(failures)
        whys = "; ".join(f"{name}: {_why(failures[name])}" for name in names[:SHOWN_FAILURES])
        more = f"; and {len(names) - SHOWN_FAILURES} more" if len(names) > SHOWN_FAILURES else ""
        told += [f"{len(names)} of {runs} runs failed: {whys}{more}"]
    if told:
        raise BananaError("; ".join(told)) from (halt or failures[min(failures)])


def _run_all(
    plan: Plan, todo: Sequence[PlannedRun], raw: Path, control: Control
) -> tuple[list[ChainReport], dict[str, Exception]]:
    """Run all of `todo` in threads; what came of each, and what failed.

    The threads are daemons, so that a second Ctrl-C ends the process while they wait for an answer.
    """
    reports: list[ChainReport] = []
    failures: dict[str, Exception] = {}
    waiting: queue.SimpleQueue[PlannedRun | None] = queue.SimpleQueue()
    over: queue.SimpleQueue[tuple[PlannedRun, ChainReport | Exception]] = queue.SimpleQueue()
    priced = control.budget_usd is not None or any(run.estimate.usd_at_most for run in plan.runs)
    watch = Watch(len(todo), sum(run.facts.rounds for run in todo), control, priced)

    def work() -> None:
        while (run := waiting.get()) is not None:
            if control.stopped:
                over.put((run, ChainReport(run_id=run.facts.run_id, found=run.found, made=0, redone=0)))
                continue
            advance = watch.start(run.facts.run_id, run.facts.rounds)
            try:
                report = run_chain(
                    plan.editor, run.facts, run.initial, raw, advance=advance, control=control, redo=plan.redo
                )
                over.put((run, report))
            except Exception as error:
                over.put((run, error))

    workers = min(plan.max_concurrency, len(todo))
    for item in [*todo, *[None] * workers]:
        waiting.put(item)
    for _ in range(workers):
        threading.Thread(target=work, daemon=True).start()

    def collect(tick: Any) -> None:
        while len(reports) + len(failures) < len(todo):
            tick()
            with contextlib.suppress(queue.Empty):
                run, outcome = over.get(timeout=TICK_S)
                watch.end(run.facts.run_id, _settle(run, outcome, reports, failures))

    with shown(watch) as tick:
        try:
            collect(tick)
        except KeyboardInterrupt:
            control.stop("Ctrl-C")
            _LOG.warning(
                "no further call begins; waiting for those in flight (Ctrl-C again leaves them, billed or not)"
            )
            collect(tick)
            raise
    return reports, failures


def _settle(
    run: PlannedRun,
    outcome: ChainReport | Exception,
    reports: list[ChainReport],
    failures: dict[str, Exception],
) -> str:
    """Sort the outcome of a run into `reports` or `failures`; its state for the watch."""
    name = run.facts.run_id
    if isinstance(outcome, Exception) or not isinstance(outcome.why, Blocked | Halt | None):
        error = outcome if isinstance(outcome, Exception) else outcome.why
        assert error is not None
        failures[name] = error
        _LOG.warning("%s failed: %s", name, _why(error))
        return "failed"
    reports.append(outcome)
    if isinstance(outcome.why, Halt):
        return "failed"
    if outcome.why:
        _LOG.warning("%s is blocked after round %d: %s", name, outcome.found + outcome.made, outcome.why)
        return "blocked"
    return "finished" if outcome.found + outcome.made == run.facts.rounds else "stopped"


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, BananaError) else f"{type(error).__name__}: {error}"


def _ids(runs: Sequence[PlannedRun]) -> str:
    return _some([run.facts.run_id for run in runs])


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_FAILURES} more" if len(names) > SHOWN_FAILURES else ""
    return ", ".join(names[:SHOWN_FAILURES]) + more
