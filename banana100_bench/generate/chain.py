"""One run: an editor fed its own output, round after round. It may be killed at any moment and goes on from there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from banana100_bench import images
from banana100_bench.errors import BananaError
from banana100_bench.files import Journal, dump_json, locked, sha256_bytes, write_bytes, write_text
from banana100_bench.generate.asking import Answer, ask, now
from banana100_bench.generate.control import Control
from banana100_bench.generate.editors.base import EditError, Editor, EditRequest, Halt, Turn
from banana100_bench.raw import (
    JOURNAL_FILE,
    RUN_FILE,
    ImageEntry,
    Made,
    RunFacts,
    first_fault,
    read_facts,
    read_run,
    refuse_links,
    run_folder,
    unnamed_pictures,
)

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ChainReport:
    """What `run_chain` did. found: rounds that were there and sound. made: new images, of which
    `redone` take the place of images that were there but not sound, and `drifted` have another width or
    height than what they were made from.

    why: the editor's error where that ended the run; None where it is finished, or was stopped.
    """

    run_id: str
    found: int
    made: int
    redone: int
    drifted: int = 0
    why: EditError | None = None


@dataclass(frozen=True, kw_only=True)
class Harm:
    """Rounds `first` to `last` of a run cannot be kept: the first is not as the journal says; `why` names its file.

    No kill leads here, for a picture is on disk before its row: somebody, or a disk, took or changed a file.
    """

    first: int
    last: int
    why: str

    @property
    def rounds(self) -> str:
        """``round 7`` or ``rounds 7 to 20``."""
        return f"round {self.first}" if self.first == self.last else f"rounds {self.first} to {self.last}"

    @property
    def refusal(self) -> str:
        """Why the run is left alone, and what to do, as one line."""
        return f"{self.why}; {self.rounds} would be made anew, which takes --redo (redo=True)"


def find_harm(folder: Path, facts: RunFacts, entries: Sequence[ImageEntry]) -> Harm | None:
    """What is not as the journal says in the rounds `entries` of `folder`; None if all is sound. Reads every image.

    A kill leaves at most one picture that the journal does not name; more mean that the journal lost rows.
    """
    if fault := first_fault(facts, list(entries)):
        return Harm(first=fault[0], last=len(entries), why=fault[1])
    next_round = len(entries) + 1
    unnamed = {number: path for number, path in unnamed_pictures(folder).items() if number > next_round}
    if not unnamed:
        return None
    last = max(unnamed)
    return Harm(first=next_round, last=last, why=f"{unnamed[last]}: a picture that no row of the journal names")


def run_chain(
    editor: Editor,
    facts: RunFacts,
    initial: bytes,
    raw: Path,
    *,
    advance: Callable[[int], None] = lambda count: None,
    control: Control | None = None,
    redo: bool = False,
) -> ChainReport:
    """Make, or go on with, the run that `facts` describe in the raw folder `raw` (layout: raw.py).

    Rounds that the journal tells of are kept. Where a file is not there unchanged, or not made from the one
    before, the run is left as it is, unless `redo`: then that round and all after it are made anew, over the
    files there, with a warning. More rounds than a finished run has make it longer; no other fact may change.

    initial: the encoded initial image. advance: called with the number of rounds just found or made.
    control: asked before each call, and may end the run early; stopped where the editor says that no call can go well.

    Raises BananaError where the folder holds a run with other facts, one whose files are not what its journal
    says, or one that another process is writing. What the editor raises besides EditError comes through, told in
    the journal.
    """
    control = control or Control()
    folder = run_folder(raw, facts.run_id)
    refuse_links(folder)
    with locked(folder, "another process is writing this run"):
        done, lost = _resume(folder, facts, redo)
        for cut_off in folder.glob(".*.tmp"):  # left by a kill during a write
            cut_off.unlink()
        found = len(done)
        advance(found)
        drifted, why = 0, None
        parent = done[-1].read() if done else initial
        with Journal(folder / JOURNAL_FILE) as journal:
            while len(done) < facts.rounds:
                try:
                    answer = ask(editor, _request(facts, parent, initial, done), facts.run_id, journal, control)
                except EditError as error:
                    why = error
                    if isinstance(error, Halt):
                        control.stop(str(error))
                    break
                if answer is None:
                    break
                before = images.probe(parent, f"{facts.run_id}: input of round {len(done) + 1}")
                drifted += (before.width, before.height) != (answer.picture.width, answer.picture.height)
                entry = _keep(answer, editor, parent, len(done) + 1, folder, journal)
                if done and entry.model_version != done[-1].model_version:
                    told = facts.run_id, entry.round, entry.model_version, done[-1].model_version
                    _LOG.warning("%s: round %d was answered by %s, the round before by %s", *told)
                done.append(entry)
                parent = answer.edited.data
                advance(1)
    made = len(done) - found
    return ChainReport(run_id=facts.run_id, found=found, made=made, redone=min(made, lost), drifted=drifted, why=why)


def _request(facts: RunFacts, parent: bytes, initial: bytes, done: Sequence[ImageEntry]) -> EditRequest:
    """What to ask in the round after `done`; in a chat, with its first turns and its latest."""
    context: list[ImageEntry] = []
    if facts.chat_turns:
        first = facts.chat_turns - 1
        context = [*done[:first], *done[first:][-1:]]
    return EditRequest(
        data=parent,
        prompt=facts.prompt(len(done) + 1),
        round=len(done) + 1,
        seed=facts.seed,
        temperature=facts.temperature,
        resolution=facts.resolution,
        initial=initial if context else None,
        turns=tuple(Turn(prompt=facts.prompt(e.round), data=e.read(), signature=e.signature) for e in context),
    )


def _keep(answer: Answer, editor: Editor, parent: bytes, number: int, folder: Path, journal: Journal) -> ImageEntry:
    """Store the picture of round `number`, then the journal's row that makes it part of the run."""
    edited = answer.edited
    file = f"{number:03d}.{answer.extension}"
    write_bytes(folder / file, edited.data)
    made = Made(
        round=number,
        file=file,
        sha256=sha256_bytes(edited.data),
        parent_sha256=sha256_bytes(parent),
        created_at=now(),
        model_version=edited.model_version or editor.model_version,
        reasoning_summary=edited.reasoning_summary,
        usd=edited.usd,
        seconds=round(answer.seconds, 3),
        told=dict(edited.told),
        signature=edited.signature,
    )
    journal.append(made.model_dump(exclude_none=True) | {"usd": made.usd})
    return made.entry(folder)


def _resume(folder: Path, facts: RunFacts, redo: bool) -> tuple[list[ImageEntry], int]:
    """The rounds that can be kept, and how many that were there cannot; writes run.json where it is new.

    BananaError, before anything is written, where some cannot and `redo` does not allow to make them anew.
    """
    text = dump_json(facts.model_dump(mode="json"))
    if not refuse_changes(folder, facts):
        if (harm := find_harm(folder, facts, [])) and not redo:
            raise BananaError(harm.refusal)
        write_text(folder / RUN_FILE, text)
        return [], 0
    there, entries = read_run(folder)
    harm = find_harm(folder, facts, entries)
    if harm and not redo:
        raise BananaError(harm.refusal)
    kept = entries[: harm.first - 1] if harm else entries
    if harm:
        _LOG.warning("%s: makes %s anew: %s", facts.run_id, harm.rounds, harm.why)
    if there.rounds != facts.rounds:
        write_text(folder / RUN_FILE, text)
    return kept, len(entries) - len(kept)


def refuse_changes(folder: Path, facts: RunFacts) -> bool:
    """True where a run stands in `folder` that can go on as `facts` say, False where there is none yet.

    BananaError naming what differs, unless it is a larger number of rounds alone.
    """
    path = folder / RUN_FILE
    if not os.path.lexists(path):
        if os.path.lexists(folder / JOURNAL_FILE):
            raise BananaError(f"{folder}: a journal without {RUN_FILE}, so what was asked is not known")
        return False
    differing = [
        f"{name} {before!r:.80} there, {after!r:.80} now"
        for name, before in read_facts(folder)
        if (after := getattr(facts, name)) != before and not (name == "rounds" and after > before)
    ]
    if differing:
        raise BananaError(f"{path}: a run begun otherwise cannot go on: {'; '.join(differing)}; use another folder")
    return True
