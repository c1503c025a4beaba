"""Runs made up by hand."""

import numpy as np

from banana100_bench.criteria import NAN, OK, RunScores


def runs_of(*lines, images=None, settings_=None, groups=None, periods=None, rounds=(1, 5, 10, 20), status=None):
    scores = np.array(lines, dtype=float)
    n = len(lines)
    return RunScores(
        scores=scores,
        status=np.where(np.isfinite(scores), OK, NAN).astype(np.int8) if status is None else status,
        rounds=rounds,
        run_ids=tuple(f"run{i}" for i in range(n)),
        images=tuple(images or ["astronaut"] * n),
        settings=tuple(settings_ or ["replication"] * n),
        groups=tuple(groups or ["replication"] * n),
        periods=tuple(periods or [1] * n),
    )
