"""The criteria as an `evaluate` metric: `evaluate.load("loading_script/banana100_ordering.py")`.

A thin door to `results`: the same numbers as the harness, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import datasets
import evaluate
import numpy as np

from banana100_bench import criteria, measures
from banana100_bench.criteria import OK, RunScores
from banana100_bench.errors import UsageError
from banana100_bench.protocol import Rounds

REFERENCE = {
    "run_id": "string",
    "initial_image": "string",
    "setting": "string",
    "setting_group": "string",
    "period": "int64",
    "round": "int64",
}
DESCRIPTION = """Does a no-reference image quality metric notice iterative degradation? The verdict of Banana100 (arXiv
2604.03400), the strict pass rate that ranks metrics, and the other criteria of banana100-bench."""
INPUTS = f"""
Args:
    predictions (list of float): the score of each image, finite.
    references (list of dict): of each image the columns {", ".join(REFERENCE)} of a Banana100 dataset, as in
        dataset.select_columns([...]).to_list(). Rounds from 1 on; the paper says "step".
    higher_is_better (bool): whether a higher score means a better image. Required.
    baseline (int), later (list of int): the round compared with, and those compared; the paper's 1 and 5, 10, 20.
Returns:
    dict: images_detected, n_images, strict_pass_rate, concordance, and each further criterion that has a value.
Examples:
    >>> metric = evaluate.load("loading_script/banana100_ordering.py")
    >>> rows = [dict(run_id="r", initial_image="moss", setting="replication", setting_group="replication",
    ...              period=1, round=n) for n in (1, 5, 10, 20)]
    >>> metric.compute(predictions=[4.0, 3.0, 2.0, 1.0], references=rows, higher_is_better=True)["images_detected"]
    1
"""
CITATION = """@article{banana100, title={Banana100}, journal={arXiv preprint arXiv:2604.03400}, year={2026}}"""


class Banana100Ordering(evaluate.Metric):
    """See `DESCRIPTION` and `INPUTS`."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation=CITATION,
            inputs_description=INPUTS,
            features=datasets.Features(
                {
                    "predictions": datasets.Value("float64"),  # evaluate's usual float32 would make ties
                    "references": {name: datasets.Value(kind) for name, kind in REFERENCE.items()},
                }
            ),
            homepage="https://arxiv.org/abs/2604.03400",
            reference_urls=["https://arxiv.org/abs/2604.03400"],
            license="Apache-2.0",
        )

    def _compute(
        self,
        predictions: Sequence[float],
        references: Sequence[Mapping[str, Any]],
        higher_is_better: bool | None = None,
        baseline: int = 1,
        later: Sequence[int] = (5, 10, 20),
    ) -> dict[str, float]:
        if higher_is_better is None:
            raise UsageError("higher_is_better: pass True or False; the verdict depends on it")
        rounds = Rounds(baseline, tuple(later))
        runs = _runs(predictions, references, higher_is_better)
        shown = criteria.verdicts(criteria.headline(runs), rounds)
        found = {
            "images_detected": sum(image.outcome == "detected" for image in shown),
            "n_images": len(shown),
            "strict_pass_rate": criteria.strict_pass_rate(runs, rounds),
            "concordance": criteria.concordance(runs, rounds),
        }
        others = measures.values(runs, rounds)
        return found | {name: value for name, value in others.items() if name not in found and not math.isnan(value)}


def _runs(predictions: Sequence[float], references: Sequence[Mapping[str, Any]], higher_is_better: bool) -> RunScores:
    """The runs in order of their ids, as `results.run_scores` gives them; UsageError for what cannot be judged."""
    facts: dict[str, tuple[str, str, str, int]] = {}
    cells: dict[tuple[str, int], float] = {}
    for position, (score, row) in enumerate(zip(predictions, references, strict=True)):
        where = f"references[{position}]"
        if not math.isfinite(score):
            raise UsageError(f"predictions[{position}] is {score}: expected a finite number; the harness counts such")
        run = row["run_id"]
        if not run or row["round"] < 1:
            raise UsageError(f"{where}: run_id {run!r}, round {row['round']}: expected an image of a run, from round 1")
        if row["period"] < 1:
            raise UsageError(f"{where}: period {row['period']}, expected 1 or more")
        fact = (row["initial_image"], row["setting"], row["setting_group"] or "", row["period"])
        if facts.setdefault(run, fact) != fact:
            raise UsageError(f"{where}: {fact} contradicts {facts[run]} of the same run {run}")
        if (run, row["round"]) in cells:
            raise UsageError(f"{where}: round {row['round']} of run {run} is given twice")
        cells[run, row["round"]] = score if higher_is_better else -score
    ids = sorted(facts)
    numbers = sorted({number for _, number in cells})
    scores = np.array([[cells.get((run, number), np.nan) for number in numbers] for run in ids]).reshape(len(ids), -1)
    return RunScores(
        scores=scores,
        status=np.where(np.isfinite(scores), OK, criteria.MISSING).astype(np.int8),
        rounds=tuple(numbers),
        run_ids=tuple(ids),
        images=tuple(facts[run][0] for run in ids),
        settings=tuple(facts[run][1] for run in ids),
        groups=tuple(facts[run][2] for run in ids),
        periods=tuple(facts[run][3] for run in ids),
    )
