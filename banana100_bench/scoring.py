"""The scoring loop: models over the images of a selection, through the store; one decode feeds them all."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from banana100_bench import selftest
from banana100_bench.engine import calibration, machine
from banana100_bench.engine.scheduler import Need, Plan, Scheduler, describe
from banana100_bench.errors import BananaError
from banana100_bench.models.base import Model, ModelInfo, Noting, looks
from banana100_bench.progress import progress
from banana100_bench.records import Row
from banana100_bench.store import RETRIED, STATUSES, ModelScores, Score, ScoreStore

__all__ = ["Images", "Plan", "ScoreReport", "score", "score_all"]


class Images(Protocol):
    """What is scored; `data.Selection` is one."""

    @property
    def rows(self) -> Sequence[Row]: ...

    def images(self) -> Iterator[tuple[Row, bytes]]:
        """Every row with its encoded image, whose SHA-256 is the row's."""
        ...

    def subset(self, image_ids: Collection[str]) -> Images:
        """The rows with these ids alone."""
        ...

    def shuffled(self) -> Images:
        """The same rows in an order that tells nothing of rounds."""
        ...


@dataclass(frozen=True)
class ScoreReport:
    """What scoring came to.

    info: the model, its direction included. scores: of every selected row, by image_id.
    computed: images that the model was run on; the other rows had a score in the store, or the same
        pixels as another row. seconds: wall time of it all, which models scored together share.
    notes: what a person should be told, a line each.
    """

    info: ModelInfo
    scores: Mapping[str, Score]
    computed: int
    seconds: float
    notes: Sequence[str] = ()

    @property
    def reused(self) -> int:
        """Rows that needed no computation."""
        return len(self.scores) - self.computed

    @property
    def counts(self) -> dict[str, int]:
        """How many rows there are of each status, zeros included."""
        found = Counter(score.status for score in self.scores.values())
        return {status: found[status] for status in STATUSES}

    @property
    def failures(self) -> list[tuple[str, int]]:
        """The messages of failed and not finite scores with their counts, the most frequent first."""
        bad = (score.message or score.status for score in self.scores.values() if score.status != "ok")
        return Counter(bad).most_common()

    def summary(self) -> str:
        """A few lines for the terminal."""
        shown = ((status, count) for status, count in self.counts.items() if count or status in ("ok", "nan", "failed"))
        counts = ", ".join(f"{count} {status}" for status, count in shown)
        lines = [
            f"{self.info.id}: {len(self.scores)} images: {counts}; {self.computed} computed, {self.reused} reused, "
            f"{self.seconds:.1f} s; {'higher' if self.info.higher_is_better else 'lower'} is better"
        ]
        return "\n".join([*lines, *(f"  {warning}" for warning in self.warnings)])

    @property
    def warnings(self) -> list[str]:
        """What went wrong and what to know, a line each."""
        lines = [f"{count} x {message}" for message, count in self.failures[:3]]
        if len(self.failures) > 3:
            lines.append(f"and {len(self.failures) - 3} other messages")
        if any(self.counts[status] for status in RETRIED):
            lines.append("failed images are tried again on the next run")
        spreads = [score.spread for score in self.scores.values() if score.spread is not None]
        if spreads:
            lines.append(
                f"random numbers: the repeats of an image differ by a standard deviation of "
                f"{statistics.median(spreads):.3g} (median), {max(spreads):.3g} (largest)"
            )
        return [*lines, *self.notes]

    def check(self) -> ScoreReport:
        """Itself; BananaError if not one image has a score."""
        if not self.counts["ok"] and not self.counts["nan"]:
            first = next(iter(self.scores.values()))
            raise BananaError(f"{self.info.id}: every image failed ({len(self.scores)}): {first.message}")
        return self


def score(model: Model, selection: Images, store: ScoreStore, plan: Plan | None = None) -> ScoreReport:
    """`score_all` of one model; BananaError also if every image failed."""
    (report,) = score_all([model], selection, store, plan)
    return report.check()


def score_all(
    models: Sequence[Model], selection: Images, store: ScoreStore, plan: Plan | None = None
) -> list[ScoreReport]:
    """Score every image of `selection` with every model, keeping each score in `store` as it comes.

    Images come in an order that tells nothing of their rounds, so that no model gains by changing while it scores.
    An image is decoded once for all models, and scored once for its SHA-256. What the store holds is not
    computed again, but an image that failed or took too long is. An error of a model makes that image
    "failed", NaN or an infinity makes it "nan" with that value as message; neither ends the run.
    plan: how to use the machine; default: one image after the other, in this process.
    BananaError if nothing is selected.
    """
    start = time.perf_counter()
    plan = plan or Plan()
    rows = selection.rows
    if not rows:
        raise BananaError("nothing to score: no image is selected")
    infos = [asked_info(model, plan) for model in models]
    notes = first_notes(models, infos, rows, store)
    computed = [0] * len(models)
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(store.open(info)) for info in infos]

        def missing(row: Row) -> list[int]:
            return [number for number, scores in enumerate(kept) if lacks(scores, row)]

        lacking = {row.sha256: (row.image_id, asked) for row in reversed(rows) if (asked := tuple(missing(row)))}
        total = sum(len(asked) for _, asked in lacking.values())
        facts = [store.facts(info) for info in infos]
        if total:
            needs = [_need(fact) for fact in facts]
            untested = [
                number
                for number, model in enumerate(models)
                if looks(model) and "selftest" not in facts[number] and any(lacks(kept[number], row) for row in rows)
            ]
            with (
                progress(_what(infos, len(rows), lacking), total, _unit(models)) as advance,
                Scheduler(models, plan, needs, any(map(looks, models)), untested) as scheduler,
            ):

                def keep(number: int, found: Score) -> None:
                    kept[number].append(found)
                    computed[number] += 1
                    advance(1)

                def run(images: Iterator[tuple[Row, bytes]], workers: int | None = None) -> None:
                    scheduler.run(images, missing, keep, workers)

                def learn() -> None:
                    for number, info in enumerate(infos):
                        if number in scheduler.tested:
                            facts[number]["selftest"] = list(scheduler.tested[number])
                        if needs[number].bytes:
                            facts[number]["need"] = dataclasses.asdict(needs[number])
                        if facts[number] != store.facts(info):
                            store.keep_facts(info, facts[number])

                todo = selection.subset({name for name, _ in lacking.values()}).shuffled().images()
                asked, *others = {asked for _, asked in lacking.values()}
                rates: calibration.Rates = {}
                if plan.calibrate and not others:  # else the images of one trial would ask for more than another's
                    among = [(infos[number], facts[number], needs[number]) for number in asked]
                    rates = _rates(among, plan, todo, len(lacking), run)
                    learn()
                workers = calibration.fastest(rates) if rates else None
                run(todo, workers)
                learn()
            if rates:
                notes[asked[0]].append(calibration.describe(rates))
            for number, info in enumerate(infos):
                notes[number] += describe(scheduler.plan, info.id, needs[number], workers)
            share = scheduler.waited / max(1e-9, scheduler.waited + scheduler.busy)
            if not plan.workers and (share > 0.1 or any("device" in info.options for info in infos)):
                notes[0].append(f"the models waited for decoding {share:.0%} of the time")
        for number, model in enumerate(models):
            if looks(model) and "selftest" in facts[number]:
                told = selftest.verdict(facts[number]["selftest"], model.info.higher_is_better)
                notes[number] += [told] if told else []
        found = [{row.image_id: of(row, scores.get(row.sha256)) for row in rows} for scores in kept]
    seconds = time.perf_counter() - start
    return [
        ScoreReport(info, found[number], computed[number], seconds, notes[number]) for number, info in enumerate(infos)
    ]


def asked_info(model: Model, plan: Plan) -> ModelInfo:
    """The model's info, with what of the plan changes its scores."""
    own: dict[str, Any] = {}
    if plan.repeats > 1:
        own["repeats"] = plan.repeats
    if plan.max_pixels is not None and looks(model):
        own["max_pixels"] = plan.max_pixels
    return dataclasses.replace(model.info, options={**model.info.options, **own})


def first_notes(
    models: Sequence[Model], infos: Sequence[ModelInfo], rows: Sequence[Row], store: ScoreStore
) -> list[list[str]]:
    """What is to be said of each model before it scores; BananaError where it refuses these `rows`."""
    return [
        [*store.other_versions(info), *(model.notes(rows) if isinstance(model, Noting) else ())]
        for model, info in zip(models, infos, strict=True)
    ]


def lacks(scores: ModelScores, row: Row) -> bool:
    """Whether the image is to be scored, for the first time or once more."""
    known = scores.get(row.sha256)
    return known is None or known.status in RETRIED


def _rates(
    models: Sequence[tuple[ModelInfo, dict[str, Any], Need]],
    plan: Plan,
    images: Iterator[tuple[Row, bytes]],
    count: int,
    run: Callable[[Iterator[tuple[Row, bytes]], int], None],
) -> calibration.Rates:
    """How fast the models are by number of workers, as their facts have it, or else by trials on the first images."""

    def fits() -> bool:
        return all(plan.at_once(need.bytes) == plan.workers for _, _, need in models)

    place = f"{machine.name()}: {' '.join(sorted(info.id for info, _, _ in models))}"
    rates = calibration.remembered(models[0][1], place, plan.workers)
    if not rates:
        rates = calibration.calibrate(images, count, plan.workers, run, fits)
        for _, facts, _ in models if rates else ():
            calibration.remember(facts, place, rates)
    return rates


def _need(facts: Mapping[str, Any]) -> Need:
    """The need that was measured before, or one that is not known; the file may be of a stranger."""
    try:
        need = Need(**facts["need"])
        return need if need.bytes is None or (need.bytes > 0 and need.pixels > 0) else Need()
    except (KeyError, TypeError):
        return Need()


def _unit(models: Sequence[Model]) -> str:
    return "images" if len(models) == 1 else "scores"


def _what(infos: Sequence[ModelInfo], rows: int, lacking: Collection[str]) -> str:
    if len(infos) > 1:
        return f"{len(infos)} models"
    reused = rows - len(lacking)
    return f"{infos[0].id} ({reused} of {rows} reused)" if reused else infos[0].id


def of(row: Row, score: Score | None) -> Score:
    """`score`, which other rows may share, as that of `row`; BananaError where there is none."""
    if score is None:
        raise BananaError(f"{row.image_id}: the dataset gave no image for this row")
    return dataclasses.replace(score, image_id=row.image_id)
