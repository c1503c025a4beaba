from pathlib import Path

import numpy as np
import pytest

from banana100_bench.criteria import ABOUT, CONTROLS, ControlScores, RunScores, battery
from banana100_bench.criteria.battery import markdown
from banana100_bench.measures import measure
from banana100_bench.protocol import Rounds
from banana100_bench.stats import resample_weights
from tests.criteria.making import runs_of

DOCS = Path(__file__).parents[2] / "docs" / "criteria.md"


def some_runs(seed=0, gaps=True):
    random = np.random.default_rng(seed)
    scores = random.normal(size=(24, 6)).round(1)  # rounding makes ties
    if gaps:
        scores[random.random(scores.shape) < 0.1] = np.nan
    images = [f"image{k // 4}" for k in range(24)]
    return runs_of(
        *scores,
        images=images,
        settings_=["replication", "replication", "apple", "apple"] * 6,
        rounds=(1, 2, 5, 10, 20, 40),
    )


CONTROL = ControlScores(np.random.default_rng(1).normal(size=(6, len(CONTROLS))), 30, 30)


def test_the_documentation_lists_every_criterion():
    assert markdown() in DOCS.read_text(), "docs/criteria.md: replace its table by criteria.battery.markdown()"


def test_with_controls_and_late_rounds_there_is_every_criterion_but_gaps_without_a_pair():
    found = measure(some_runs(), Rounds(), CONTROL)
    assert ABOUT.keys() - found.keys() == {"pairwise_gap_50_9999"}
    assert list(found) == [name for name in ABOUT if name in found]


@pytest.mark.parametrize("gaps", [True, False])
def test_a_resample_is_the_statistic_of_the_runs_drawn(gaps):
    # The weights' whole promise: counting an image twice is the same as having its runs twice, under another name.
    runs = some_runs(3, gaps)
    weights = resample_weights(6)[:12]
    for piece_number, piece in enumerate(battery(runs, Rounds())):
        replicates = piece(weights)
        for weight, replicate in zip(weights, replicates, strict=True):
            drawn = [
                (i, copy)
                for name, count in zip(runs.image_names, weight, strict=True)
                for copy in range(int(count))
                for i, image in enumerate(runs.images)
                if image == name
            ]
            again = RunScores(
                scores=runs.scores[[i for i, _ in drawn]],
                status=runs.status[[i for i, _ in drawn]],
                rounds=runs.rounds,
                run_ids=tuple(f"{runs.run_ids[i]} {copy}" for i, copy in drawn),
                images=tuple(f"{runs.images[i]} {copy}" for i, copy in drawn),
                settings=tuple(runs.settings[i] for i, _ in drawn),
                groups=tuple(runs.groups[i] for i, _ in drawn),
                periods=tuple(runs.periods[i] for i, _ in drawn),
            )
            other = battery(again, Rounds())[piece_number]
            expected = other(np.ones((1, len(again.image_names))))[0]
            for name, one, two in zip(piece.names, replicate, expected, strict=True):
                if not name.endswith("inversion_size") and name != "large_inversion_rate":  # their unit is the sample's
                    assert one == pytest.approx(two, abs=1e-12, nan_ok=True), name
