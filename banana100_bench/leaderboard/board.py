"""The leaderboard: results ranked by numbers recomputed from their raw scores; nothing they claim is trusted.

A board is about the images of one dataset at one choice of rounds, so simulated and real images never
share one. The same results in any order give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from banana100_bench import files
from banana100_bench.criteria import strict_pass_chance
from banana100_bench.errors import BananaError
from banana100_bench.protocol import Rounds
from banana100_bench.result_schema import (
    MAX_ROUND,
    ComparedRounds,
    Count,
    Coverage,
    DataFacts,
    Line,
    ModelFacts,
    Result,
    Sha256,
    Share,
    Strict,
    Utc,
    load_result,
)
from banana100_bench.results import Data, data_facts, ranks, recompute

SCHEMA_VERSION: Final = 1
TOLERANCE = 1e-9  # relative; other versions of a library may differ in the last digits
DIFFERENCES_SHOWN = 5
CRITERIA = {
    "rank": "by strict pass rate, then concordance; equal in both, equal rank; null if the model failed on an image or "
    "gave no number",
    "strict_pass_rate": "share of runs whose score is strictly worse than the baseline's at every later round; mean "
    "over repetitions, then settings, then initial images",
    "concordance": "share of pairs of compared rounds whose later one has the strictly worse score; mean as above",
    "images_detected": "initial images on which the score is worse at every later round in most runs (the paper's "
    "verdict, arXiv 2604.03400)",
    "reversed": "initial images on which it is better at every later round in most runs",
    "interval": "95 % Clopper-Pearson interval of images_detected / n_images",
    "coverage": "usable scores of those expected: one for each run and compared round",
}


class Entry(Strict):
    """One model on the board; every number is recomputed.

    rank: None if not every expected image has a usable score. baseline: True for our own reference
    models, which judge nothing. result_sha256: of the result file as `Result.save` writes it.
    """

    rank: int | None
    model: ModelFacts
    baseline: bool
    simulated: bool
    strict_pass_rate: Share
    concordance: Share
    images_detected: Count
    n_images: Count
    interval: tuple[Share, Share]
    reversed: Count
    coverage: Coverage
    harness: Line
    created_at: Utc
    result_sha256: Sha256


class Rejected(Strict):
    """A result that is not on the board. source: the model it names, or the file that could not be read."""

    source: Line
    result_sha256: Sha256 | None
    reason: Line


class Board(Strict):
    """What leaderboard.json holds. simulated: True if the images were made by a simulation.

    chance: what scores in random order reach, by criterion.
    """

    schema_version: Literal[1]
    simulated: bool
    data: DataFacts
    rounds: ComparedRounds
    chance: dict[Line, Share]
    criteria: dict[Line, Line]
    entries: list[Entry]
    rejected: list[Rejected]


def build_board(
    results: Iterable[Result], data: Data, rounds: Rounds | None = None, rejected: Collection[Rejected] = ()
) -> Board:
    """The board of `results` on `data`: its rows are those that every result must cover at `rounds`.

    rounds: those that the board compares, by default the paper's. rejected: files that gave no result.
    A result is rejected, with the reason, if it is on other data or rounds, if its scores are not of
    the rows, or if a number it claims is not the one recomputed. Of several results of one model
    with the same weights, options and versions the one made last stands; a result given twice counts once.
    """
    rounds = rounds or Rounds()
    accepted: dict[str, tuple[str, Result]] = {}  # by what names the model: the digest and what was recomputed
    refused = list(rejected)
    unique = {files.sha256_bytes(result.text().encode()): result for result in results}
    for digest, result in sorted(unique.items(), key=lambda item: (item[1].created_at, item[0])):
        try:
            found = _checked(result, data, rounds)
        except BananaError as error:
            refused.append(_rejected(result.model.id, digest, str(error)))
            continue
        key = files.dump_json(result.model.model_dump(mode="json"))
        if key in accepted:
            older, _ = accepted[key]
            refused.append(
                _rejected(result.model.id, older, f"replaced by the newer result of this model {digest[:12]}")
            )
        accepted[key] = (digest, found)
    compared = [row for row in data.rows if row.round in rounds.all]
    facts = data_facts(compared, rounds, data.name, data.dataset_fingerprint)
    return Board(
        schema_version=SCHEMA_VERSION,
        simulated=facts.simulated,
        data=facts,
        rounds=ComparedRounds.of(rounds),
        chance={"strict_pass_rate": strict_pass_chance(rounds), "concordance": 0.5},
        criteria=CRITERIA,
        entries=_entries(list(accepted.values())),
        rejected=sorted(refused, key=lambda r: (r.source, r.result_sha256 or "", r.reason)),
    )


def _checked(result: Result, data: Data, rounds: Rounds) -> Result:
    """`result` recomputed; BananaError where it does not belong on this board or claims what is not so."""
    if result.rounds.rounds() != rounds:
        raise BananaError(f"it compares rounds {result.rounds.rounds().all}, this board {rounds.all}")
    if result.data.dataset_fingerprint != data.dataset_fingerprint:
        simulated = "simulated " if result.data.simulated else ""
        raise BananaError(
            f"it is about another {simulated}dataset, {result.data.name} {result.data.dataset_fingerprint[:12]}; "
            f"this board is about {data.name} {data.dataset_fingerprint[:12]}"
        )
    found = recompute(result, data.rows)
    claimed, true = (one.model_dump(mode="json", exclude={"scores"}) for one in (result, found))
    differences = list(_differences(claimed, true, ""))
    if differences:
        more = f"; {len(differences) - DIFFERENCES_SHOWN} more" if len(differences) > DIFFERENCES_SHOWN else ""
        raise BananaError(f"it claims {'; '.join(differences[:DIFFERENCES_SHOWN])}{more}")
    return found


def _differences(claimed: Any, found: Any, where: str) -> Iterator[str]:
    if isinstance(claimed, dict) and isinstance(found, dict) and claimed.keys() == found.keys():
        for key in claimed:
            yield from _differences(claimed[key], found[key], f"{where}.{key}" if where else key)
    elif isinstance(claimed, list) and isinstance(found, list) and len(claimed) == len(found):
        for position, pair in enumerate(zip(claimed, found, strict=True)):
            yield from _differences(*pair, f"{where}.{position}")
    elif isinstance(claimed, float) and isinstance(found, float):
        if not math.isclose(claimed, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{where} = {claimed}, recomputed {found}"
    elif claimed != found:
        yield f"{where} = {claimed!r:.80}, recomputed {found!r:.80}"


def _entries(accepted: Sequence[tuple[str, Result]]) -> list[Entry]:
    entries = [
        Entry(
            rank=rank,
            model=result.model,
            baseline=result.model.kind == "baseline",
            simulated=result.data.simulated,
            strict_pass_rate=result.strict_pass_rate.value,
            concordance=result.concordance.value,
            images_detected=result.verdict.detected,
            n_images=result.verdict.n_images,
            interval=result.verdict.interval,
            reversed=result.verdict.reversed,
            coverage=result.coverage,
            harness=result.harness,
            created_at=result.created_at,
            result_sha256=digest,
        )
        for rank, (digest, result) in zip(ranks([result for _, result in accepted]), accepted, strict=True)
    ]
    return sorted(entries, key=lambda e: (e.rank is None, e.rank or 0, e.model.id, e.result_sha256))


def _rejected(source: str, digest: str | None, reason: str) -> Rejected:
    """Reasons quote what strangers wrote, so whatever a terminal or page would not show is replaced."""
    source, reason = ("".join(c if c.isprintable() else "?" for c in text)[:500] for text in (source, reason))
    return Rejected(source=source, result_sha256=digest, reason=reason)


def build_from_files(
    paths: Iterable[Path],
    data: str | Path,
    *,
    settings: Collection[str] | None = None,
    rounds: Rounds | None = None,
) -> Board:
    """`build_board` of result files, and of all the ``*.json`` directly in folders, on the dataset `data`.

    settings: those that the board is about, by default all of the dataset. A file that is no valid
    result is listed as rejected. BananaError where a path does not exist or there is no file at all.
    """
    from banana100_bench.data import open_data

    found: set[Path] = set()
    for path in map(Path, paths):
        if not path.exists():
            raise BananaError(f"{path}: no such file or folder; expected result JSON files or a folder of them")
        found.update(path.glob("*.json") if path.is_dir() else [path])
    if not found:
        raise BananaError(f"no *.json in {', '.join(map(str, paths))}: expected result files")
    results, rejected = [], []
    for path in sorted(found):
        try:
            results.append(load_result(path))
        except BananaError as error:
            rejected.append(_rejected(path.name, None, str(error).replace(str(path), path.name)))
    every = range(MAX_ROUND + 1)  # None would leave out round 0
    return build_board(results, open_data(data, rounds=every, settings=settings), rounds, rejected)


def save_board(board: Board, path: Path) -> None:
    """Write `board` as JSON to `path`, whole or not at all."""
    files.write_text(path, files.dump_json(board.model_dump(mode="json")))


def summary(board: Board, path: Path) -> str:
    """What `path` holds, in a line, and a line for each result that is not ranked, saying why."""
    ranked = sum(entry.rank is not None for entry in board.entries)
    mark = " on SIMULATED data" if board.simulated else ""
    lines = [f"{path}: {ranked} ranked, {len(board.entries) - ranked} incomplete, {len(board.rejected)} rejected{mark}"]
    lines += [
        f"  incomplete: {entry.model.id}, {entry.coverage.ok} of {entry.coverage.expected} scores usable"
        for entry in board.entries
        if entry.rank is None
    ]
    lines += [f"  rejected: {entry.source}: {entry.reason}" for entry in board.rejected]
    return "\n".join(lines)
