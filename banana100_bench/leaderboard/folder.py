"""The files of a board: read and judge submissions and results, write leaderboard.json, leaderboard.csv, the page.

A board's folder, as it is published, holds

    submissions/*.json  dataset/            what people sent; MANIFEST.json and metadata/ of the dataset
    reported.json  verified.json            what papers say; what maintainers scored anew
    leaderboard.json  leaderboard.csv       written here, as
    index.html  models/*.html               the page of the board and one for each model
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date, datetime, timezone
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from banana100_bench import files
from banana100_bench.engine.machine import cores
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.leaderboard.board import (
    Board,
    Candidate,
    Past,
    Record,
    Rejected,
    Reported,
    build_board,
    judge,
    rejection,
)
from banana100_bench.leaderboard.submission import FOLDER, Ground, parse_submission, read_plain
from banana100_bench.progress import progress
from banana100_bench.protocol import Rounds
from banana100_bench.result_schema import CHEATING, MAX_BYTES, MAX_ROUND, first_problem, parse_result

JSON, CSV = "leaderboard.json", "leaderboard.csv"
REPORTED, VERIFIED, DATASET = "reported.json", "verified.json", "dataset"
MAX_BOARD = 1 << 30  # bytes
REASONS_SHOWN = 3
WORTH_PROCESSES = 64  # fewer files are judged before a process has started
COLUMNS = (
    *(
        "rank",
        "tie_group",
        "name",
        "kind",
        "badge",
        "baseline",
        "cheat",
        "simulated",
        "strict_pass_rate",
        "concordance",
    ),
    *("images_detected", "n_images", "interval_low", "interval_high", "reversed", "coverage_ok", "coverage_expected"),
    *("licence", "parameters", "url", "model", "weights_sha256", "first_seen", "previous_rank", "file_sha256"),
)
_T = TypeVar("_T")


def open_ground(data: str | Path, settings: Collection[str] | None = None, rounds: Rounds | None = None) -> Ground:
    """What a board on the dataset folder `data` judges by; of that it reads the rows alone.

    settings: those that the board is about, by default all. rounds: by default the paper's.
    """
    from banana100_bench.data import open_data

    every = range(MAX_ROUND + 1)  # None would leave out round 0
    rows = open_data(data, rounds=every)
    if settings is not None:
        open_data(data, rounds=every, settings=settings)  # refuses a name that the dataset does not have
    return Ground(rows, rounds or Rounds(), None if settings is None else frozenset(settings))


def build(paths: Sequence[Path], ground: Ground, out: Path, day: str | None = None) -> Board:
    """Judge submission and result files, and all the ``*.json`` directly in folders, and write the board to `out`.

    out: a folder. The leaderboard.json in it is the last board, which tells what was there before;
    reported.json and verified.json there are heeded. day: of the board, by default today (UTC).
    A file that is neither is listed as rejected. BananaError, and nothing is written, where a path does not exist,
    where there is no file at all or none that is not rejected, or where one of the three is not what it should be.
    """
    from banana100_bench.leaderboard.page import write_pages

    day = _checked_day(day) if day else datetime.now(timezone.utc).date().isoformat()
    out = Path(out)
    before = _read(out / JSON, Past)
    verified = read_records(out / VERIFIED)
    reported = _read(out / REPORTED, list[Reported]) or []
    candidates: list[Candidate] = []
    rejected: list[Rejected] = []
    for found in judge_files(find(paths), ground):
        if isinstance(found, Candidate):
            candidates.append(found)
        else:
            rejected.append(found)
    board = build_board(
        candidates,
        ground,
        rejected=rejected,
        reported=reported,
        verified={record.file_sha256: record for record in verified},
        before=before,
        day=day,
    )
    if not board.entries:
        shown = [f"{one.source}: {one.reason[:300]}" for one in board.rejected[:REASONS_SHOWN]]
        more = f"; and {len(board.rejected) - len(shown)} more" if len(board.rejected) > len(shown) else ""
        raise BananaError(
            f"{out}: nothing was written, as all {len(board.rejected)} files are rejected: {'; '.join(shown)}{more}"
        )
    write_pages(board, {one.digest: one for one in candidates}, out)
    files.write_text(out / CSV, csv_text(board))
    files.write_text(out / JSON, board.text())
    return board


def _checked_day(day: str) -> str:
    """Return `day` if there is such a day, written as 2026-05-01; UsageError otherwise."""
    with contextlib.suppress(ValueError):
        if date.fromisoformat(day).isoformat() == day:
            return day
    raise UsageError(f"day {day[:100]!r}: expected one of the calendar, as 2026-05-01")


def find(paths: Iterable[Path]) -> list[Path]:
    """The files at `paths`, and the ``*.json`` directly in folders; of a board's folder, its submissions."""
    found: set[Path] = set()
    for path in map(Path, paths):
        if not path.exists():
            raise BananaError(f"{path}: no such file or folder; expected submission or result JSON files")
        if path.is_dir():
            path = path / FOLDER if (path / FOLDER).is_dir() else path
            found.update(path.glob("*.json"))
        else:
            found.add(path)
    if not found:
        raise BananaError(f"no *.json in {', '.join(map(str, paths))}: expected submission or result files")
    return sorted(found)


def judge_files(paths: Sequence[Path], ground: Ground) -> Iterator[Candidate | Rejected]:
    """Each file judged by itself, in order; with as many processes as there are cores, if there are many files."""
    if len(paths) < WORTH_PROCESSES:
        for path in paths:
            yield judge_file(path, ground)
        return
    with (
        progress("judging", len(paths), "files") as advance,
        ProcessPoolExecutor(cores(), initializer=_take, initargs=(ground,)) as pool,
    ):
        for found in pool.map(_judge_here, paths, chunksize=8):
            advance(1)
            yield found


_GROUND: list[Ground] = []  # of a worker process, once for all its files


def _take(ground: Ground) -> None:
    _GROUND[:] = [ground]


def _judge_here(path: Path) -> Candidate | Rejected:
    return judge_file(path, _GROUND[0])


def judge_file(path: Path, ground: Ground) -> Candidate | Rejected:
    """The submission or result in the file at `path`, judged; whatever it holds, this raises nothing."""
    try:
        text = read_plain(path, MAX_BYTES)
        if b'"card"' in text[:4096]:  # the first of a submission's names
            found = judge(parse_submission(text), ground)
            if found.submission and Path(path).stem != found.submission.card.slug:
                expected = f"{found.submission.card.slug}.json"
                return rejection(
                    path.name, found.digest, f"expected the file to be called {expected}, as its name has it"
                )
            return found
        return judge(parse_result(text), ground)
    except BananaError as error:
        return rejection(path.name, None, str(error))


def read_records(path: Path) -> list[Record]:
    """The records of verified.json, none if there is no such file."""
    return _read(path, list[Record]) or []


def add_record(path: Path, record: Record) -> None:
    """Put `record` into the file, in place of an older one of the same submission."""
    kept = [one for one in read_records(path) if one.file_sha256 != record.file_sha256]
    records = sorted([*kept, record], key=lambda one: (one.name, one.file_sha256))
    files.write_text(path, files.dump_json([one.model_dump(mode="json") for one in records]))


def _read(path: Path, kind: type[_T]) -> _T | None:
    """What the JSON file at `path` holds; None if there is no such file."""
    if not path.exists():
        return None
    try:
        return TypeAdapter(kind).validate_json(read_plain(path, MAX_BOARD))
    except ValidationError as error:
        fault = first_problem(error)
        raise BananaError(f"{path}: not what it should be: {fault}; move it away to start anew") from error
    except BananaError as error:
        raise BananaError(f"{path}: {error}") from error


def csv_text(board: Board) -> str:
    """The entries of `board` as CSV; no cell is taken for a formula by a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for entry in board.entries:
        card = entry.card
        cells = {
            **entry.model_dump(include=set(COLUMNS)),
            "kind": entry.model.kind,
            "interval_low": entry.interval[0],
            "interval_high": entry.interval[1],
            "coverage_ok": entry.coverage.ok,
            "coverage_expected": entry.coverage.expected,
            "licence": card and card.licence,
            "parameters": card and card.parameters,
            "url": card and card.url,
            "model": entry.model.id,
            "weights_sha256": entry.model.weights_sha256,
        }
        writer.writerow(["" if cells[name] is None else _harmless(cells[name]) for name in COLUMNS])
    return text.getvalue()


def _harmless(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t" else cell


def summary(board: Board, out: Path) -> str:
    """What the folder `out` now holds, in a line, and a line for each file that is a cheat or not ranked."""
    ranked = sum(entry.rank is not None for entry in board.entries)
    mark = " on SIMULATED data" if board.simulated else ""
    lines = [f"{out}: {ranked} ranked, {len(board.entries) - ranked} incomplete, {len(board.rejected)} rejected{mark}"]
    lines += [
        f"  incomplete: {entry.name}, {entry.coverage.ok} of {entry.coverage.expected} scores usable"
        for entry in board.entries
        if entry.rank is None
    ]
    lines += [f"  cheat: {entry.name}: {CHEATING}" for entry in board.entries if entry.cheat]
    lines += [f"  rejected: {entry.source}: {entry.reason}" for entry in board.rejected]
    return "\n".join(lines)
