"""Results in words and as a ranked table for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from banana100_bench.errors import UsageError
from banana100_bench.result_schema import CHEATING
from banana100_bench.results import Result, ranks

if TYPE_CHECKING:
    from rich.table import Table

NAMES_SHOWN = 4

# What a picture says of an image.
OUTCOME_WORDS = {
    "detected": "DETECTED",
    "reversed": "REVERSED: degraded looks better to it",
    "mixed": "not detected: no consistent fall",
    "tie": "not detected: equal scores",
    "unscored": "not detected: no usable score",
    "missing": "not detected: image missing",
}

# What is said of the images with each outcome other than "detected".
_SAID = {
    "reversed": "it scores the degraded image better",
    "mixed": "its scores show no consistent fall",
    "tie": "it gives equal scores where they should fall",
    "unscored": "it lacks a usable score (counted as not detected)",
    "missing": "an image of a compared round is missing (counted as not detected)",
}


def listed(words: Sequence[str], limit: int = NAMES_SHOWN) -> str:
    """``"a, b and c"``; of more than `limit` words the first ones and how many others."""
    shown = list(words) if len(words) <= limit else [*words[: limit - 1], f"{len(words) - limit + 1} others"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def rounds_compared(result: Result) -> str:
    """``"rounds 5, 10 and 20 against round 1"``."""
    later = listed([str(number) for number in result.rounds.later], 9)
    return f"round{'s' * (len(result.rounds.later) > 1)} {later} against round {result.rounds.baseline}"


def sentence(result: Result) -> str:
    """The verdict on one model in a sentence, with its uncertainty, and what happens where it fails."""
    verdict = result.verdict
    low, high = verdict.interval
    parts = [
        f"{'SIMULATED data: ' if result.data.simulated else ''}{result.model.label} detects the degradation on "
        f"{verdict.detected} of {verdict.n_images} image{'s' * (verdict.n_images != 1)} "
        f"({verdict.interval_level * 100:.0f} % interval {low:.2f} to {high:.2f})"
    ]
    for outcome, said in _SAID.items():
        images = verdict.images(outcome)
        if images:
            where = f"all {len(images)} images" if len(images) == verdict.n_images > 1 else listed(images)
            parts.append(f"on {where} {said}")
    flagged = result.criteria.get("control_flagged")
    if flagged and flagged.value is not None:
        parts.append(
            f"false alarms on harmless edits: {round(flagged.value * flagged.n_images)} of {flagged.n_images} "
            f"image{'s' * (flagged.n_images != 1)}"
        )
    if result.model.cheat:
        parts.append(f"a CHEAT: {CHEATING}")
    unusable = result.coverage.nan + result.coverage.failed
    if unusable:
        parts.append(f"NOT RANKED: {unusable} of {result.coverage.expected} scores are unusable")
    return "; ".join(parts) + "."


def ranked(results: Sequence[Result]) -> list[tuple[int | None, Result]]:
    """The results with their ranks, best first; those that are not complete come last, without a rank."""
    return sorted(zip(ranks(results), results, strict=True), key=lambda r: (r[0] is None, r[0] or 0, r[1].model.id))


def ranking_table(results: Sequence[Result]) -> Table:
    """The results as a `rich` table, in the order of `ranked`.

    UsageError where there is none, or where they may not be ranked together (see `results.ranks`).
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not results:
        raise UsageError("no result to show: expected one or more")
    table = Table(
        title=Text(_title(results[0]), justify="left"),
        caption=Text(_caption(results[0]), justify="left"),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("Rank", justify="right", no_wrap=True)
    table.add_column("Model", overflow="fold")
    for name in ("Images\ndetected", "Re-\nversed", "Strict\npass", "Concor-\ndance", "Coverage"):
        table.add_column(name, justify="right", no_wrap=True)
    for rank, result in ranked(results):
        cells = (
            "-" if rank is None else str(rank),
            result.model.label,
            f"{result.verdict.detected} of {result.verdict.n_images}",
            str(result.verdict.reversed),
            f"{result.strict_pass_rate.value:.3f}",
            f"{result.concordance.value:.3f}",
            f"{result.coverage.ok}/{result.coverage.expected}",
        )
        table.add_row(*map(Text, cells))  # Text, so that no name is read as markup
    return table


def _title(result: Result) -> str:
    mark = "SIMULATED data, no image-editing model: " if result.data.simulated else ""
    return f"{mark}{result.data.name}, {rounds_compared(result)}"


def _caption(result: Result) -> str:
    return (
        "Images detected: at every later round the score is worse in most runs. Reversed: it is better at every one. "
        "Strict pass, by which models are ranked: mean share of runs with a worse score at every later round "
        f"(chance {result.strict_pass_rate.chance:.2f}). Concordance, the tie-break: share of pairs of rounds "
        f"scored in the right order (chance {result.concordance.chance:.2f}). "
        "Rank -: not ranked, as the model failed on an image or gave no number."
    )


def comparison_table(results: Sequence[Result]) -> Table:
    """How sure the ranks are: tie groups, rank intervals, tests against the leader; see `comparison.Standing`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from banana100_bench.report.exports import ordered, shown

    n = len(results[0].data.initial_images) if results else 0
    table = Table(
        title=Text(_title(results[0]) if results else "", justify="left"),
        caption=Text(
            "Group: models of one group cannot be told apart from the best of it. Rank: of this sample, and in "
            f"95 % of resamples of the {n} initial images. p: exact paired sign-flip test against the leader, "
            f"adjusted by Holm; with {n} images it is never below {2.0 ** (1 - n):.2g} before that.",
            justify="left",
        ),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("Group", justify="right", no_wrap=True)
    table.add_column("Rank", justify="right", no_wrap=True)
    table.add_column("Model", overflow="fold")
    for name in ("Images\ndetected", "Strict pass\n[95 % interval]", "p against\nleader"):
        table.add_column(name, justify="right", no_wrap=True)
    for standing, result in ordered(results):
        cells = (
            str(standing.tie_group) if standing else "-",
            f"{standing.rank} ({standing.rank_interval[0]}-{standing.rank_interval[1]})" if standing else "-",
            result.model.label,
            f"{result.verdict.detected} of {result.verdict.n_images}",
            shown(result.criteria["strict_pass_rate"]),
            "-" if not standing else "leader" if standing.p_value is None else f"{standing.p_value:.2g}",
        )
        table.add_row(*map(Text, cells))
    return table


def show(results: Sequence[Result]) -> None:
    """Print the ranked table of `results`, then the sentence on each, to standard output."""
    from rich.console import Console

    Console().print(ranking_table(results))
    for _, result in ranked(results):
        print(sentence(result))
