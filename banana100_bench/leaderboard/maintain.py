"""What a maintainer does with submissions and pull requests: judge them against the board that stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from banana100_bench import __version__
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.harness import ModelChoice
from banana100_bench.leaderboard import review
from banana100_bench.leaderboard.board import Record
from banana100_bench.leaderboard.folder import DATASET, VERIFIED, add_record, find, open_ground
from banana100_bench.leaderboard.rescore import own_spec, rescore
from banana100_bench.leaderboard.submission import (
    FOLDER,
    MAX_BYTES,
    Ground,
    Submission,
    load_submission,
    parse_submission,
    read_plain,
)
from banana100_bench.leaderboard.verify import Rivals, Verdict, Word, verify
from banana100_bench.protocol import Rounds


@dataclass(frozen=True)
class Again:
    """How to score a sample anew; see `rescore.rescore`. data: a dataset with its images."""

    n_images: int
    data: str | Path | None
    model: str | None = None
    weights: Path | None = None
    higher_is_better: bool | None = None
    seed: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def verdicts(
    board: Path,
    ground: Ground,
    paths: Sequence[Path],
    hub: str | None = None,
    again: Again | None = None,
    comment: bool = False,
    record: bool = False,
) -> Iterator[tuple[str, Verdict]]:
    """The verdict on each submission file of `paths`, or on each open pull request of the repository `hub`.

    board: the folder of the board, whose other submissions they are compared with. hub: as ORG/NAME or
    ORG/NAME#NUMBER. comment: answer the pull request. record: note a sample that agrees in verified.json.
    """
    others = _standing(board, ground)
    if hub is None:
        for path in paths:
            try:
                text = read_plain(path, MAX_BYTES)
            except BananaError as error:
                yield str(path), Verdict("rejected", [str(error)])
                continue
            yield str(path), _judge(text, Path(path).name, ground, others, board, again, record)
        return
    repo_id, _, number = hub.partition("#")
    if number and not number.isdecimal():
        raise UsageError(f"--hub {hub}: expected ORG/NAME or ORG/NAME#NUMBER")
    for one in review.proposals(repo_id, [int(number)] if number else None):
        if one.text is None:
            verdict = Verdict("rejected", [one.fault or "it cannot be read"])
        else:
            verdict = _judge(one.text, one.name, ground, others, board, again, record)
        if comment:
            review.comment(repo_id, one, verdict.text(one.name or "this pull request"))
        yield f"{one.url} {one.title!r:.100}", verdict


def _standing(board: Path, ground: Ground) -> list[tuple[str, Submission, Verdict]]:
    """The submissions that are on the board, with their files' names; none for a board that is just beginning."""
    folder = Path(board) / FOLDER
    if not folder.is_dir():
        raise UsageError(f"{board}: not a board's folder: it has no {FOLDER}/")
    found = []
    for path in find([folder]) if any(folder.glob("*.json")) else []:
        try:
            submission = load_submission(path)
        except BananaError:
            continue  # the build lists it as rejected
        found.append((path.name, submission, verify(submission, ground)))
    return found


def _judge(
    text: bytes,
    name: str,
    ground: Ground,
    others: Iterable[tuple[str, Submission, Verdict]],
    board: Path,
    again: Again | None,
    record: bool,
) -> Verdict:
    try:
        submission = parse_submission(text)
    except BananaError as error:
        return Verdict("rejected", [str(error)])
    expected = f"{submission.card.slug}.json"
    if name != expected:
        return Verdict("rejected", [f"the file is called {name[:100]!r}; expected {expected}, as its name has it"])
    found = verify(submission, ground)
    notes = list(found.notes)
    rivals = Rivals()
    for other_name, other, verdict in others:
        if other_name == name:
            if other.digest != submission.digest:
                notes.append(f"it would replace the row of that name ({other.digest[:12]}): is it by the same people?")
        elif not verdict.faults:
            rivals.fault(other, verdict.order)
    fault = rivals.fault(submission, found.order)
    faults = [*found.faults, *([fault] if fault else [])]
    word: Word = "rejected" if faults else found.word
    if again and not faults:
        faults, word, note = _again(submission, again, board if record else None)
        notes.append(note)
    return replace(found, word=word, faults=faults, notes=notes)


def _again(submission: Submission, again: Again, board: Path | None) -> tuple[list[str], Word, str]:
    """Score a sample anew, and note it in verified.json of `board` if it agrees: faults, verdict and a note."""
    from banana100_bench.data import open_data
    from banana100_bench.result_schema import MAX_ROUND

    if again.data is None:
        raise UsageError("--rescore: needs the images: --data DATASET")
    data = open_data(again.data, rounds=range(MAX_ROUND + 1))
    if data.dataset_fingerprint != submission.data.dataset_fingerprint:
        raise BananaError(f"{again.data}: another dataset than the board's, {data.dataset_fingerprint[:12]}")
    spec = again.model or own_spec(submission)
    seed = {name: value for name, value in submission.model.options.items() if name == "seed"}
    options = again.options or (seed if submission.model.kind == "baseline" else {})
    model = ModelChoice(spec, again.weights, again.higher_is_better, options)
    found = rescore(submission, data, again.n_images, model, again.seed)
    note = f"{found.n_images} images scored anew; largest difference {found.largest:.2g} standard deviations"
    if found.faults:
        return [f"scored anew: {fault}" for fault in found.faults], "rejected", note
    if board:
        day = datetime.now(timezone.utc).date().isoformat()
        add_record(
            board / VERIFIED,
            Record(
                file_sha256=submission.digest,
                name=submission.card.name,
                n_images=found.n_images,
                largest=found.largest,
                day=day,
                harness=__version__,
            ),
        )
    return [], "verified", note


def ground(board: Path, settings: Sequence[str] | None, rounds: Rounds) -> Ground:
    """What the board in the folder `board` judges by."""
    return open_ground(Path(board) / DATASET, settings, rounds)
