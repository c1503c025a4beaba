"""Results as other tools and papers want them: plain data, tidy CSV, Markdown, LaTeX, Every Eval Ever."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from banana100_bench import files
from banana100_bench.comparison import Standing, compare
from banana100_bench.criteria import ABOUT
from banana100_bench.errors import UsageError
from banana100_bench.result_schema import Criterion, Result

EVERY_EVAL_EVER = "0.2.2"  # the version of its schema that `every_eval_ever` writes
TIDY = (
    "model", "cheat", "simulated", "data", "data_fingerprint", "rounds", "criterion", "value", "low", "high", "level",
    "interval_method", "chance", "higher_is_better", "n_images", "used", "expected", "note",
)  # fmt: skip
# What a table for a paper holds: the head, the criterion (None: from elsewhere), decimals.
COLUMNS = (
    ("Strict pass", "strict_pass_rate", 2),
    ("SRCC", "srcc_early", 2),
    ("AUC", "auc", 2),
    ("Escape 95 %", "filter_escape_95", 2),
    ("False alarm", "control_flagged", 2),
)


def ordered(results: Sequence[Result]) -> list[tuple[Standing | None, Result]]:
    """The results with their standings (see `comparison.compare`), best first, those not ranked last."""
    if not results:
        raise UsageError("no result to show: expected one or more")
    pairs = zip(compare(results), results, strict=True)
    return sorted(pairs, key=lambda pair: (pair[0] is None, pair[0].rank if pair[0] else 0, pair[1].model.id))


def plain(results: Sequence[Result]) -> list[dict[str, Any]]:
    """What `--json` prints: for each model all but the raw scores, and where it stands."""
    found = []
    for standing, result in ordered(results):
        tree = result.model_dump(mode="json", exclude={"scores", "controls"})
        tree["model"]["cheat"] = result.model.cheat
        tree["standing"] = standing and {
            "rank": standing.rank,
            "rank_interval": list(standing.rank_interval),
            "tie_group": standing.tie_group,
            "p_value_against_leader": standing.p_value,
        }
        found.append(tree)
    return found


def tidy_csv(results: Sequence[Result]) -> str:
    """A line for each model and criterion, the verdict's share of images among them; floats to the last digit."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, TIDY, lineterminator="\n")
    writer.writeheader()
    for _, result in ordered(results):
        shared = {
            "model": _cell(result.model.id),
            "cheat": result.model.cheat,
            "simulated": result.data.simulated,
            "data": _cell(result.data.name),
            "data_fingerprint": result.data.fingerprint,
            "rounds": " ".join(map(str, result.rounds.rounds().all)),
            "level": result.inference.level,
        }
        verdict = result.verdict
        writer.writerow(
            shared
            | {
                "criterion": "images_detected",
                "value": verdict.detected / verdict.n_images,
                "low": verdict.interval[0],
                "high": verdict.interval[1],
                "interval_method": verdict.interval_method,
                "higher_is_better": True,
                "n_images": verdict.n_images,
                "used": result.coverage.ok,
                "expected": result.coverage.expected,
            }
        )
        for name, criterion in result.listed_criteria():
            writer.writerow(
                shared
                | criterion.model_dump(exclude={"interval"})
                | {"criterion": name, "higher_is_better": ABOUT[name].higher_is_better, "chance": chance(result, name)}
                | dict(zip(("low", "high"), criterion.interval or (), strict=False))
            )
    return buffer.getvalue()


def _cell(text: str) -> str:
    """`text` so that a spreadsheet does not take it for a formula."""
    return f"'{text}" if text[0] in "=+-@" else text


def chance(result: Result, name: str) -> float | None:
    """What scores in random order reach in this criterion, with this result's rounds."""
    if name == "strict_pass_rate":
        return result.strict_pass_rate.chance
    return ABOUT[name].chance


def shown(criterion: Criterion | None, decimals: int = 2) -> str:
    """``"0.62 [0.40, 0.81]"``, or a dash where there is no value."""
    if criterion is None or criterion.value is None:
        return "-"
    text = f"{criterion.value:.{decimals}f}"
    if criterion.interval:
        text += f" [{criterion.interval[0]:.{decimals}f}, {criterion.interval[1]:.{decimals}f}]"
    return text


def _table(results: Sequence[Result], escape: Callable[[str], str]) -> list[list[str]]:
    head = ["Rank", "Group", "Model", "Detected", *(escape(name) for name, _, _ in COLUMNS)]
    lines = [head]
    for standing, result in ordered(results):
        lines.append(
            [
                str(standing.rank) if standing else "-",
                str(standing.tie_group) if standing else "-",
                escape(result.model.label),
                f"{result.verdict.detected} of {result.verdict.n_images}",
                *(shown(result.criteria.get(name), decimals) for _, name, decimals in COLUMNS),
            ]
        )
    return lines


def markdown(results: Sequence[Result]) -> str:
    """A table in Markdown, with a line under it that says what it is about."""
    head, *lines = _table(results, _markdown)
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", _markdown(caption(results[0])), ""])


def latex(results: Sequence[Result]) -> str:
    """A tabular for LaTeX, with booktabs."""
    head, *lines = _table(results, _latex)
    rows = [f"  {' & '.join(row)} \\\\" for row in lines]
    return "\n".join(
        [
            f"% {caption(results[0])}".replace("\n", " "),
            f"\\begin{{tabular}}{{rrl{'r' * (len(head) - 3)}}}",
            "  \\toprule",
            f"  {' & '.join(head)} \\\\",
            "  \\midrule",
            *rows,
            "  \\bottomrule",
            "\\end{tabular}",
            "",
        ]
    )


def caption(result: Result) -> str:
    """What the table is about, for its reader: data, rounds, what the brackets and groups mean."""
    from banana100_bench.report.table import rounds_compared

    return (
        f"{'SIMULATED data: ' if result.data.simulated else ''}{result.data.name}, {rounds_compared(result)}. "
        f"Brackets: {result.inference.level:.0%} bootstrap intervals over {len(result.data.initial_images)} initial "
        "images. "
        "Models of one group cannot be told apart from the best of it (exact sign-flip tests, Holm)."
    )


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&$-])", r"\\\1", text)


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text)


def every_eval_ever(result: Result, retrieved: str) -> dict[str, Any]:
    """The result as an aggregate record of Every Eval Ever (its schema 0.2.2).

    retrieved: when the record is made, seconds since 1970, as text. Criteria without a value are left out, since
    the schema has no place for them. The raw scores stay in our own file.
    """
    about = {
        "simulated": str(result.data.simulated).lower(),
        "data_fingerprint": result.data.fingerprint,
        "dataset_fingerprint": result.data.dataset_fingerprint,
        "rounds": " ".join(map(str, result.rounds.rounds().all)),
        "coverage": f"{result.coverage.ok} of {result.coverage.expected}",
    }
    name = f"banana100{'-simulated' if result.data.simulated else ''}"
    verdict = result.verdict
    images = Criterion(
        value=verdict.detected / verdict.n_images,
        interval=verdict.interval,
        interval_method=verdict.interval_method,
        n_images=verdict.n_images,
        used=result.coverage.ok,
        expected=result.coverage.expected,
        note=None,
    )
    every: Mapping[str, Criterion] = {"images_detected": images, **result.criteria}
    return {
        "schema_version": EVERY_EVAL_EVER,
        "evaluation_id": f"{name}/{result.model.id}/{retrieved}",
        "evaluation_timestamp": result.created_at,
        "retrieved_timestamp": retrieved,
        "source_metadata": {
            "source_name": "banana100-bench",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "banana100-bench", "version": result.harness},
        "model_info": {
            "name": result.model.id,
            "id": result.model.id,
            "additional_details": {
                "kind": result.model.kind,
                "cheat": str(result.model.cheat).lower(),
                "weights_sha256": result.model.weights_sha256 or "none",
                **{f"version:{package}": version for package, version in result.model.versions.items()},
                **{f"option:{option}": str(value) for option, value in result.model.options.items()},
            },
        },
        "evaluation_results": [
            {
                "evaluation_name": f"{name}/{key}",
                "source_data": {
                    "dataset_name": result.data.name,
                    "source_type": "other",
                    "source_id": result.data.dataset_fingerprint,
                    "additional_details": about,
                },
                "metric_config": _metric_config(key),
                "score_details": {
                    "score": criterion.value,
                    "details": {"used": str(criterion.used), "expected": str(criterion.expected)},
                    "uncertainty": _uncertainty(result, criterion),
                },
            }
            for key, criterion in every.items()
            if criterion.value is not None
        ],
    }


def _metric_config(name: str) -> dict[str, Any]:
    low: float | None
    high: float | None
    if name == "images_detected":
        says, low, high, better = "Initial images on which the score falls at every later round", 0.0, 1.0, True
    else:
        about = ABOUT[name]
        says, low, high, better = about.says, about.low, about.high, about.higher_is_better
    bounds = {} if low is None or high is None else {"score_type": "continuous", "min_score": low, "max_score": high}
    return {
        "evaluation_description": says,
        "metric_id": f"banana100.{name}",
        "metric_name": name,
        "lower_is_better": not better,
        **bounds,
    }


def _uncertainty(result: Result, criterion: Criterion) -> dict[str, Any]:
    if criterion.interval is None or criterion.interval_method is None:
        return {"num_samples": criterion.n_images}
    bootstrap = criterion.interval_method != "clopper-pearson"
    return {
        "confidence_interval": {
            "lower": criterion.interval[0],
            "upper": criterion.interval[1],
            "confidence_level": result.inference.level,
            "method": criterion.interval_method,
        },
        "num_samples": criterion.n_images,
        **({"num_bootstrap_samples": result.inference.resamples} if bootstrap else {}),
    }


FORMATS: Mapping[str, Callable[[Sequence[Result]], str]] = {
    "json": lambda results: files.dump_json(plain(results)),
    "csv": tidy_csv,
    "markdown": markdown,
    "latex": latex,
}
