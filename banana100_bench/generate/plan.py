"""What a campaign will do, before anything is written or spent: its runs, calls, cost and time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from banana100_bench import protocol
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_bytes
from banana100_bench.generate.chain import Harm, find_harm, refuse_changes
from banana100_bench.generate.editors.base import Editor, Estimate
from banana100_bench.generate.initial import InitialImage
from banana100_bench.raw import (
    EXTENSIONS,
    MAX_ROUNDS,
    Past,
    RunFacts,
    initial_path,
    read_file,
    read_past,
    read_run,
    run_folder,
)
from banana100_bench.records import check_name

MAX_CONCURRENCY = 256
SHOWN_HARMED = 3


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run: what is asked, its encoded initial image, the rounds found, what it may have cost so far.

    found: by its journal; where the files were checked, up to the first that is not what the journal says.
    harm: what the check found; such a run is left alone, unless `redo`.
    """

    facts: RunFacts
    initial: bytes
    found: int
    past: Past
    estimate: Estimate
    harm: Harm | None = None
    redo: bool = False

    @property
    def calls(self) -> int:
        """To be made, if each goes well."""
        return 0 if self.harm and not self.redo else self.facts.rounds - self.found


@dataclass(frozen=True, kw_only=True)
class SettingPlan:
    """The runs of one setting in numbers. usd: of the calls to be made, as usual."""

    setting: str
    images: int
    runs: int
    rounds: int
    found: int
    calls: int
    usd: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A campaign as it would go on from what stands in its folder.

    runs: with those that are finished, in order. spent_usd, unsure_usd: by the journals of all runs in the folder.
    seconds: of the calls to be made; None where neither the editor nor a journal tells how long one takes.
    redo: rounds whose files are not what the journal says are made anew.
    notes: what a person should know before they start.
    """

    editor: Editor
    initial: Sequence[InitialImage]
    runs: Sequence[PlannedRun]
    spent_usd: float
    unsure_usd: float
    max_concurrency: int
    redo: bool = False
    notes: Sequence[str] = ()

    @property
    def calls(self) -> int:
        return sum(run.calls for run in self.runs)

    @property
    def usd(self) -> float:
        """Usual cost of the calls to be made."""
        return sum(run.calls * run.estimate.usd for run in self.runs)

    @property
    def call_seconds(self) -> float | None:
        """Of a call: the mean that the journals tell, else what the editor is thought to take."""
        measured = [run.past.seconds for run in self.runs if run.past.seconds is not None]
        return sum(measured) / len(measured) if measured else self.runs[0].estimate.seconds

    @property
    def seconds(self) -> float | None:
        """As many runs at once as may be; no run is shorter than its calls one after the other."""
        if self.call_seconds is None:
            return None
        longest = max(run.calls for run in self.runs)
        return self.call_seconds * max(self.calls / self.max_concurrency, longest)

    @property
    def by_setting(self) -> list[SettingPlan]:
        """One entry a setting, in the order of the runs."""
        names = dict.fromkeys(run.facts.setting for run in self.runs)
        groups = [[run for run in self.runs if run.facts.setting == name] for name in names]
        return [
            SettingPlan(
                setting=name,
                images=len({run.facts.initial_image for run in group}),
                runs=len(group),
                rounds=max(run.facts.rounds for run in group),
                found=sum(run.found for run in group),
                calls=sum(run.calls for run in group),
                usd=sum(run.calls * run.estimate.usd for run in group),
            )
            for name, group in zip(names, groups, strict=True)
        ]

    def text(self) -> str:
        """The plan as lines for a terminal."""
        label = ", SIMULATED: no editing model" if self.editor.simulated else ""
        lines = [f"editor {self.editor.name} ({self.editor.model_version}){label}; {len(self.initial)} initial images"]
        lines += [f"{'setting':24} {'images':>6} {'runs':>5} {'rounds':>6} {'there':>6} {'calls':>6} {'USD':>9}"]
        lines += [
            f"{one.setting:24} {one.images:6} {one.runs:5} {one.rounds:6} {one.found:6} {one.calls:6} {one.usd:9.2f}"
            for one in self.by_setting
        ]
        total = sum(run.found for run in self.runs)
        lines += [f"{'all':24} {'':6} {len(self.runs):5} {'':6} {total:6} {self.calls:6} {self.usd:9.2f}"]
        time = "not known"
        if self.seconds is not None:
            time = f"{duration(self.seconds)}, at {self.call_seconds:.3g} s a call"
        lines += [f"time with {self.max_concurrency} runs at once: {time}"]
        if self.spent_usd or self.unsure_usd:
            lines += [f"spent so far in this folder: {money(self.spent_usd, self.unsure_usd)}"]
        at_most = max((run.estimate.usd_at_most for run in self.runs), default=0.0)
        if at_most:
            lines += [f"a call costs {at_most:.2f} USD at most; a budget keeps that back for each call in flight"]
        return "\n".join([*lines, *self.notes])


def make_plan(
    editor: Editor,
    initial: Sequence[InitialImage],
    out: Path,
    *,
    settings: Sequence[str | protocol.Setting] = ("replication",),
    images: Mapping[str, int] | None = None,
    repetitions: int = protocol.REPETITIONS,
    rounds: int = protocol.ROUNDS,
    seed: int | None = 0,
    temperature: float | None = None,
    resolution: str | None = None,
    max_concurrency: int = 1,
    redo: bool = False,
    check_files: bool = False,
) -> Plan:
    """The plan of `settings` x `initial` x `repetitions` in raw folder `out`; nothing is written and nothing sent.

    settings: names of protocol.SETTINGS, or one's own. images: by setting, how many of the initial images it
        takes (the first ones); a setting not named takes all.
    rounds: of each run. seed: of repetition 0; repetition r has seed + r; None sends none.
    temperature, resolution: as the editor takes them; None leaves it to the setting, then to the editor.
    redo: where files of a run are not what its journal says, make that round and all after it anew, over the files
        there; otherwise such a run fails and is not touched.
    check_files: count that: read every image that is there, as the runs themselves will do. With redo always.

    Raises UsageError where the call makes no sense for this editor, BananaError where a run that stands in `out`
    was begun otherwise.
    """
    for name, value, most in (
        ("repetitions", repetitions, 9999),
        ("rounds", rounds, MAX_ROUNDS),
        ("max concurrency", max_concurrency, MAX_CONCURRENCY),
    ):
        if not 1 <= value <= most:
            raise UsageError(f"{name} {value}: expected 1 to {most}")
    check_name("editor", editor.name, UsageError)
    if temperature is not None and not math.isfinite(temperature):
        raise UsageError(f"temperature {temperature}: expected a finite number")
    chosen = [protocol.setting(one) if isinstance(one, str) else one for one in settings]
    _refuse_twice("setting", [setting.name for setting in chosen])
    _refuse_twice("initial image", [image.name for image in initial])
    notes = [
        f"note: setting {setting.name} asks for {images[setting.name]} initial images, {len(initial)} are given"
        for setting in chosen
        if images and images.get(setting.name, 0) > len(initial)
    ]
    taken: list[tuple[protocol.Setting, dict[str, Any]]] = []
    for setting in chosen:
        sampling = _sampling(editor, setting, seed, temperature, resolution, repetitions)
        editor.check(setting, **sampling)
        taken.append((setting, sampling))
    runs = []
    for index, image in enumerate(initial):
        _refuse_other_picture(image, out)
        for setting, sampling in taken:
            if index >= (images or {}).get(setting.name, len(initial)):
                continue
            for repetition in range(repetitions):
                facts = _facts(editor, image, setting, repetition, rounds, sampling)
                runs.append(_planned(editor, facts, image.data, out, redo, check_files or redo))
    if not runs:
        raise UsageError("no runs: every setting takes 0 of the initial images")
    notes += _notes_of_harm(runs)
    before = _spent(out)
    return Plan(
        editor=editor,
        initial=initial,
        runs=runs,
        spent_usd=sum(past.usd for past in before),
        unsure_usd=sum(past.unsure_usd for past in before),
        max_concurrency=min(max_concurrency, len(runs)),
        redo=redo,
        notes=notes,
    )


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.4 h`` or ``2.1 days``."""
    for limit, divisor, unit in ((90, 1, "s"), (90 * 60, 60, "min")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def money(usd: float, unsure_usd: float) -> str:
    """``12.34 USD, and up to 0.98 more that may have been billed``."""
    return f"{usd:.2f} USD" + (f", and up to {unsure_usd:.2f} more that may have been billed" if unsure_usd else "")


def _sampling(
    editor: Editor,
    setting: protocol.Setting,
    seed: int | None,
    temperature: float | None,
    resolution: str | None,
    repetitions: int,
) -> dict[str, Any]:
    """What is sent: the setting's own value, else the campaign's, else the editor's."""
    seed = seed if setting.seed is None else setting.seed
    if seed is not None and not 0 <= seed < 2**63 - repetitions:
        raise UsageError(f"seed {seed}: expected 0 or more, below 2**63")
    wanted = setting.resolution or resolution or editor.default_resolution
    return {
        "seed": seed,
        "temperature": temperature if setting.temperature is None else setting.temperature,
        "resolution": wanted,
    }


def _facts(
    editor: Editor,
    image: InitialImage,
    setting: protocol.Setting,
    repetition: int,
    rounds: int,
    sampling: Mapping[str, Any],
) -> RunFacts:
    seed = sampling["seed"]
    return RunFacts.model_validate(
        {
            **sampling,
            "setting": check_name("setting", setting.name),
            "setting_group": setting.group,
            "period": setting.period,
            "prompts": setting.prompts,
            "initial_image": check_name("initial image", image.name),
            "initial_sha256": sha256_bytes(image.data),
            "initial_extension": image.extension,
            "style": image.style,
            "repetition": repetition,
            "rounds": rounds,
            "seed": None if seed is None else seed + repetition,
            "editor": editor.name,
            "model_version": editor.model_version,
            "simulated": editor.simulated,
            "chat_turns": setting.chat_turns,
        }
    )


def _planned(editor: Editor, facts: RunFacts, initial: bytes, out: Path, redo: bool, check_files: bool) -> PlannedRun:
    folder = run_folder(out, facts.run_id)
    begun = refuse_changes(folder, facts)
    entries = read_run(folder)[1] if begun else []
    harm = find_harm(folder, facts, entries) if check_files else None
    pictures = 1 + min(facts.chat_turns, facts.rounds - 1)
    return PlannedRun(
        facts=facts,
        initial=initial,
        found=harm.first - 1 if harm else len(entries),
        past=read_past(folder) if begun else Past(),
        estimate=editor.estimate(facts.resolution, pictures),
        harm=harm,
        redo=redo,
    )


def _notes_of_harm(runs: Sequence[PlannedRun]) -> list[str]:
    """A line for each of the first runs whose files are not what their journals say, and one for the rest."""
    lines = []
    for run in runs:
        if run.harm and run.redo:
            lines += [f"note: {run.facts.run_id}: {run.harm.rounds} will be made anew: {run.harm.why}"]
        elif run.harm:
            lines += [f"note: {run.facts.run_id} will fail: {run.harm.refusal}"]
    more = len(lines) - SHOWN_HARMED
    return lines[:SHOWN_HARMED] + ([f"note: and {more} more runs like that"] if more > 0 else [])


def _spent(out: Path) -> list[Past]:
    """What each run in the folder tells of its calls, whoever asked for it."""
    runs = Path(out) / "runs"
    return [read_past(folder) for folder in sorted(runs.iterdir()) if folder.is_dir()] if runs.is_dir() else []


def _refuse_twice(kind: str, names: Sequence[str]) -> None:
    if not names:
        raise UsageError(f"no {kind} given")
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{kind} {name!r} given twice")


def _refuse_other_picture(image: InitialImage, raw: Path) -> None:
    for extension in EXTENSIONS.values():
        path = initial_path(raw, image.name, extension)
        if path.exists() and (extension != image.extension or read_file(path) != image.data):
            raise BananaError(f"{path} is not the picture {image.source}; use another name or another folder")
