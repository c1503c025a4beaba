"""The leaderboard: models ranked by numbers recomputed from their raw scores; nothing they claim is trusted.

A board is about the images of one dataset at one choice of rounds, so simulated and real images never
share one. The same files in any order, after the same board, give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, StringConstraints

from banana100_bench import files, stats
from banana100_bench.criteria import HEADLINE_GROUP, strict_pass_chance
from banana100_bench.errors import BananaError
from banana100_bench.leaderboard.submission import Card, Ground, Name, PlainLine, Submission, Url, select, slug
from banana100_bench.leaderboard.verify import Rivals, verify
from banana100_bench.records import Row
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
)
from banana100_bench.results import data_facts, ranks, recompute

SCHEMA_VERSION: Final = 2
TOLERANCE = 1e-9  # relative; other versions of a library may differ in the last digits
DIFFERENCES_SHOWN = 5
CRITERIA = {
    "rank": "by strict pass rate, then concordance; equal in both, equal rank; null if the model failed on an image or "
    "gave no number",
    "tie_group": "1 for the best model and all that cannot be told from it by the strict pass rates on the initial "
    "images (exact sign flips, Holm); the best of the rest begins group 2",
    "strict_pass_rate": "share of runs whose score is strictly worse than the baseline's at every later round; mean "
    "over repetitions, then settings, then initial images",
    "concordance": "share of pairs of compared rounds whose later one has the strictly worse score; mean as above",
    "images_detected": "initial images on which the score is worse at every later round in most runs (the paper's "
    "verdict, arXiv 2604.03400)",
    "reversed": "initial images on which it is better at every later round in most runs",
    "interval": "95 % Clopper-Pearson interval of images_detected / n_images",
    "coverage": "usable scores of those expected: one for each run and compared round",
    "badge": "verified: its scores were computed anew, all or a random sample, and agree; consistent: every number "
    "follows from its scores, which were not computed anew",
}
Badge = Literal["verified", "consistent"]
Day = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\d$")]
MAX_REASON = 3000
Reason = Annotated[str, StringConstraints(min_length=1, max_length=MAX_REASON)]


class Entry(Strict):
    """One model on the board; every number is recomputed.

    rank, tie_group: None if not every expected image has a usable score. slug: what names its page. card: None if the
    file is a result that no one has submitted. baseline: True for our own reference models, which judge
    nothing. cheat: True for the one that reads the round off the label. outcomes: of each initial image, one of
    `criteria.OUTCOMES`. first_seen: the day of the first board that had it. previous_rank: on the last board that
    was not the same. seconds_per_image: as its result says, on the machine of whoever made it. file_sha256: of its
    file.
    """

    rank: int | None
    tie_group: int | None
    name: Line
    slug: Line
    card: Card | None
    model: ModelFacts
    baseline: bool
    cheat: bool
    simulated: bool
    badge: Badge
    strict_pass_rate: Share
    concordance: Share
    images_detected: Count
    n_images: Count
    interval: tuple[Share, Share]
    reversed: Count
    outcomes: dict[Line, Line]
    coverage: Coverage
    seconds_per_image: float
    harness: Line
    created_at: Utc
    first_seen: Day | None
    previous_rank: int | None
    file_sha256: Sha256


class Rejected(Strict):
    """A file that is not on the board. source: the row it names, or the file if it could not be read."""

    source: Line
    file_sha256: Sha256 | None
    reason: Reason


class Reported(Strict):
    """What a paper says of a model; no scores stand behind it here, so it has no rank. source: where it says so."""

    name: Name
    statement: PlainLine
    source: PlainLine
    url: Url


class Record(Strict):
    """A maintainer's word that a random sample of a submission's scores was computed anew and agrees.

    n_images: of the sample. largest: difference found, as a share of the standard deviation of the scores.
    harness: version that computed them.
    """

    file_sha256: Sha256
    name: Name
    n_images: Annotated[int, Field(ge=1)]
    largest: Annotated[float, Field(ge=0)]
    day: Day
    harness: Line


class Board(Strict):
    """What leaderboard.json holds. simulated: True if the images were made by a simulation.

    chance: what scores in random order reach, by criterion.
    """

    schema_version: Literal[2]
    simulated: bool
    data: DataFacts
    rounds: ComparedRounds
    chance: dict[Line, Share]
    criteria: dict[Line, Line]
    entries: list[Entry]
    reported: list[Reported]
    rejected: list[Rejected]

    def text(self) -> str:
        """The file's text."""
        return files.dump_json(self.model_dump(mode="json"))


class PastEntry(BaseModel):
    """What is still wanted of a row of the last board."""

    slug: Line
    rank: int | None
    first_seen: Day | None
    previous_rank: int | None
    file_sha256: Sha256


class Past(BaseModel):
    """The last board, of whatever version of this package."""

    entries: list[PastEntry]


# Of one initial image: the rounds, and at each the mean, least and greatest raw score over its headline runs.
Curves = dict[str, tuple[list[int], NDArray[np.float32]]]


@dataclass(frozen=True)
class Candidate:
    """A file that was judged by itself. result: without its scores. faults: why it is not on the board.

    submission: without its scores; None for a result that no one submitted. n_scores: how many it has.
    """

    source: str
    digest: str
    faults: Sequence[str]
    notes: Sequence[str] = ()
    result: Result | None = None
    submission: Submission | None = None
    badge: Badge = "consistent"
    order: str = ""
    n_scores: int = 0
    curves: Curves | None = None

    @property
    def name(self) -> str:
        return self.submission.card.name if self.submission else self.source


def judge(item: Submission | Result, ground: Ground) -> Candidate:
    """`item` judged by itself: every number derived from its scores and the rows of `ground`."""
    if isinstance(item, Submission):
        found = verify(item, ground)
        rows = ground.selection(item.data.rounds, item.data.settings).rows if found.result else []
        scores = np.array([np.nan if isinstance(cell, str) else cell for cell in item.scores], float)
        return Candidate(
            source=item.card.name,
            digest=item.digest,
            faults=found.faults,
            notes=found.notes,
            result=found.result and found.result.model_copy(update={"scores": []}),
            submission=item.model_copy(update={"scores": []}),
            badge="verified" if found.word == "verified" else "consistent",
            order=found.order,
            n_scores=len(item.scores),
            curves=curves(rows, scores) if found.result and not found.faults else None,
        )
    digest = files.sha256_bytes(item.text().encode())
    try:
        result = _checked(item, ground)
    except BananaError as error:
        return Candidate(item.model.id, digest, [str(error)])
    of_id = {score.image_id: score.score for score in item.scores}
    rows = [row for row in ground.data.rows if row.image_id in of_id]
    scores = np.array([np.nan if of_id[row.image_id] is None else of_id[row.image_id] for row in rows], float)
    return Candidate(
        source=item.model.id,
        digest=digest,
        faults=(),
        result=result.model_copy(update={"scores": []}),
        n_scores=len(scores),
        curves=curves(rows, scores),
    )


def curves(rows: Sequence[Row], scores: NDArray[np.float64]) -> Curves:
    """Raw `scores` (n,) of `rows` by initial image and round, over the runs that the verdict is about."""
    headline = any(row.setting_group == HEADLINE_GROUP for row in rows)
    found: dict[str, dict[int, list[float]]] = {}
    for row, score in zip(rows, scores.tolist(), strict=True):
        if row.run_id is not None and (not headline or row.setting_group == HEADLINE_GROUP):
            found.setdefault(row.initial_image, {}).setdefault(row.round, []).append(score)
    summed: Curves = {}
    for image, by_round in sorted(found.items()):
        lines = []
        for number in sorted(by_round):
            usable = [score for score in by_round[number] if math.isfinite(score)]
            mean = sum(score / len(usable) for score in usable) if usable else math.nan
            lines.append((mean, min(usable, default=math.nan), max(usable, default=math.nan)))
        with np.errstate(over="ignore"):
            summed[image] = (sorted(by_round), np.array(lines).T.astype(np.float32))
    return summed


def build_board(
    candidates: Iterable[Candidate],
    ground: Ground,
    *,
    rejected: Collection[Rejected] = (),
    reported: Sequence[Reported] = (),
    verified: Mapping[str, Record] | None = None,
    before: Board | Past | None = None,
    day: str | None = None,
) -> Board:
    """The board of `candidates`: its rows are those that each must cover at the rounds of `ground`.

    rejected: files that could not be read. verified: what maintainers scored anew, by digest. before: the last
    board, which tells who was first. day: of this board, as 2026-05-01.
    A candidate is rejected, with the reason, for its faults. Of several results of one model with the same
    weights, options and versions the one made last stands; a submission that looks like, scores like or
    claims to be the model of one that was here first does not. A file given twice counts once.
    """
    known: dict[str, Entry | PastEntry] = {entry.slug: entry for entry in before.entries} if before else {}
    refused = list(rejected)
    accepted: dict[str, Candidate] = {}  # by slug, or for results by what names the model
    rivals = Rivals()

    def turn(candidate: Candidate) -> tuple[Any, ...]:
        seen = known.get(slug(candidate.name)) if candidate.submission else None
        created = candidate.result.created_at if candidate.result else ""
        return (seen is None, seen.first_seen or "" if seen else "", created, candidate.digest)

    for candidate in sorted({one.digest: one for one in candidates}.values(), key=turn):
        if candidate.faults:
            refused.append(rejection(candidate.name, candidate.digest, "; ".join(candidate.faults)))
        elif candidate.submission:
            fault = rivals.fault(candidate.submission, candidate.order)
            if fault:
                refused.append(rejection(candidate.name, candidate.digest, fault))
            else:
                accepted[slug(candidate.name)] = candidate
        elif candidate.result:
            key = files.dump_json(candidate.result.model.model_dump(mode="json"))
            if key in accepted:
                reason = f"replaced by the newer result of this model {candidate.digest[:12]}"
                refused.append(rejection(candidate.name, accepted[key].digest, reason))
            accepted[key] = candidate
    facts = data_facts(ground.compared, ground.rounds, ground.data.name, ground.data.dataset_fingerprint)
    return Board(
        schema_version=SCHEMA_VERSION,
        simulated=facts.simulated,
        data=facts,
        rounds=ComparedRounds.of(ground.rounds),
        chance={"strict_pass_rate": strict_pass_chance(ground.rounds), "concordance": 0.5},
        criteria=CRITERIA,
        entries=_with_history(_entries(list(accepted.values()), verified or {}), known, day),
        reported=sorted(reported, key=lambda r: (r.name, r.statement)),
        rejected=sorted(refused, key=lambda r: (r.source, r.file_sha256 or "", r.reason)),
    )


def _entries(accepted: Sequence[Candidate], verified: Mapping[str, Record]) -> list[Entry]:
    results = [candidate.result for candidate in accepted if candidate.result]
    entries = []
    places = ranks(results)
    groups = _tie_groups(results, places)
    for rank, group, candidate, result in zip(places, groups, accepted, results, strict=True):
        submission = candidate.submission
        entries.append(
            Entry(
                rank=rank,
                tie_group=group,
                name=candidate.name,
                slug=slug(candidate.name) if submission else f"{slug(candidate.name)}-{candidate.digest[:8]}",
                card=submission.card if submission else None,
                model=result.model,
                baseline=result.model.kind == "baseline",
                cheat=result.model.cheat,
                simulated=result.data.simulated,
                badge="verified" if candidate.digest in verified else candidate.badge,
                strict_pass_rate=result.strict_pass_rate.value,
                concordance=result.concordance.value,
                images_detected=result.verdict.detected,
                n_images=result.verdict.n_images,
                interval=result.verdict.interval,
                reversed=result.verdict.reversed,
                outcomes={image.image: image.outcome for image in result.verdict.by_image},
                coverage=result.coverage,
                seconds_per_image=result.seconds / max(candidate.n_scores, 1),
                harness=result.harness,
                created_at=result.created_at,
                first_seen=None,
                previous_rank=None,
                file_sha256=candidate.digest,
            )
        )
    return sorted(entries, key=lambda e: (e.rank is None, e.rank or 0, e.slug))


def _tie_groups(results: Sequence[Result], places: Sequence[int | None]) -> list[int | None]:
    """See `stats.tie_groups`; None where the model is not ranked."""
    ranked = [i for i, place in enumerate(places) if place is not None]
    groups: list[int | None] = [None] * len(results)
    if ranked:
        rates = np.array([list(results[i].strict_pass_rate.by_image.values()) for i in ranked]).T
        for i, group in zip(ranked, stats.tie_groups(rates), strict=True):
            groups[i] = group
    return groups


def _with_history(entries: Sequence[Entry], known: Mapping[str, Entry | PastEntry], day: str | None) -> list[Entry]:
    same = {e.slug: (e.rank, e.file_sha256) for e in entries} == {
        e.slug: (e.rank, e.file_sha256) for e in known.values()
    }
    found = []
    for entry in entries:
        old = known.get(entry.slug)
        previous = (old.previous_rank if same else old.rank) if old else None
        found.append(entry.model_copy(update={"first_seen": old.first_seen if old else day, "previous_rank": previous}))
    return found


def rejection(source: str, digest: str | None, reason: str) -> Rejected:
    """Reasons quote what strangers wrote, so whatever a terminal or page would not show is replaced."""
    source, reason = ("".join(c if c.isprintable() else "?" for c in text) for text in (source, reason))
    return Rejected(source=source[:500] or "?", file_sha256=digest, reason=reason[:MAX_REASON])


def _checked(result: Result, ground: Ground) -> Result:
    """`result` recomputed; BananaError where it does not belong on this board or claims what is not so."""
    data, rounds = ground.data, ground.rounds
    if result.rounds.rounds() != rounds:
        raise BananaError(f"it compares rounds {result.rounds.rounds().all}, this board {rounds.all}")
    if result.data.dataset_fingerprint != data.dataset_fingerprint:
        simulated = "simulated " if result.data.simulated else ""
        raise BananaError(
            f"it is about another {simulated}dataset, {result.data.name} {result.data.dataset_fingerprint[:12]}; "
            f"this board is about {data.name} {data.dataset_fingerprint[:12]}"
        )
    rows = data.rows
    if ground.settings is not None:
        rows = select(rows, range(MAX_ROUND + 1), ground.settings)
    found = recompute(result, rows)
    claimed, true = (one.model_dump(mode="json", exclude={"scores"}) for one in (result, found))
    unlike = list(_differences(claimed, true, ""))
    if unlike:
        more = f"; {len(unlike) - DIFFERENCES_SHOWN} more" if len(unlike) > DIFFERENCES_SHOWN else ""
        raise BananaError(f"it claims {'; '.join(unlike[:DIFFERENCES_SHOWN])}{more}")
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
