"""Every criterion with its intervals for 23 models on the whole of Banana100, and a plain scipy loop beside it.

    python benchmarks/criteria.py

Ours: 280 runs x 101 rounds x 23 models, 10,000 resamples of 13 initial images. The loop does what a careful user
writes: for each model, resample and run the function of scipy or scikit-learn. Even a tenth of the work would take it
hours, so it does 3 of the criteria for 2 models and 5 resamples, and its time is multiplied; the numbers that it
finds are compared with ours.
Memory: the largest resident size of the process.
"""

from __future__ import annotations

import resource
import time

import numpy as np

from banana100_bench import stats
from banana100_bench.criteria import OK, CleanAndDegraded, RunScores, Within, correlations, separation
from banana100_bench.measures import measure
from banana100_bench.protocol import Rounds

IMAGES = [f"image{k:02d}" for k in range(13)]
# 56 pairs of setting and image: the replication of all images, the rest spread over ten more settings.
PAIRS = [("replication", image) for image in IMAGES] + [(f"setting{k % 11}", IMAGES[k // 11]) for k in range(43)]
RUNS = [(setting, image) for setting, image in PAIRS for _ in range(5)]
MODELS = 23
PAPER = Rounds()


def model(seed: int) -> RunScores:
    random = np.random.default_rng(seed)
    n = len(RUNS)
    scores = random.normal(0, 1, (n, 101)) - np.arange(101) * random.normal(0.02, 0.03, (n, 1))
    return RunScores(
        scores=scores,
        status=np.full(scores.shape, OK, np.int8),
        rounds=tuple(range(101)),
        run_ids=tuple(f"run{k:03d}" for k in range(n)),
        images=tuple(image for _, image in RUNS),
        settings=tuple(setting for setting, _ in RUNS),
        groups=("replication",) * n,
        periods=(1,) * n,
    )


def ours(models: list[RunScores]) -> tuple[float, float]:
    """Seconds on the clock, and of processor time over all threads."""
    start, busy = time.perf_counter(), time.process_time()
    for runs in models:
        measure(runs, PAPER)
    return time.perf_counter() - start, time.process_time() - busy


def loop(models: list[RunScores], resamples: int) -> tuple[float, list[list[float]]]:
    """Three of the criteria (SRCC, KRCC, AUC) by scipy and scikit-learn."""
    from scipy.stats import kendalltau, spearmanr
    from sklearn.metrics import roc_auc_score

    start = time.perf_counter()
    places = np.arange(1, 21)
    weights = stats.resample_weights(len(IMAGES))[:resamples]
    found = []
    for runs in models:
        for weight in weights:
            srcc, krcc, total = 0.0, 0.0, 0.0
            labels, scores, sample = [], [], []
            for image, count in zip(IMAGES, weight, strict=True):
                if not count:
                    continue
                by_setting: dict[str, list[tuple[float, float]]] = {}
                mine = [i for i, name in enumerate(runs.images) if name == image]
                for i in mine:
                    line = runs.scores[i, 1:21]
                    pair = (-spearmanr(places, line).statistic, -kendalltau(places, line).statistic)
                    by_setting.setdefault(runs.settings[i], []).append(pair)
                    labels += [1] + [0] * 81
                    scores += [runs.scores[i, 1], *runs.scores[i, 20:]]
                    sample += [count / len(mine)] + [count / len(mine) / 81] * 81
                mean = np.mean([np.mean(values, axis=0) for values in by_setting.values()], axis=0)
                srcc, krcc, total = srcc + count * mean[0], krcc + count * mean[1], total + count
            found.append([srcc / total, krcc / total, roc_auc_score(labels, scores, sample_weight=sample)])
    return time.perf_counter() - start, found


def same_numbers(models: list[RunScores], resamples: int, found: list[list[float]]) -> float:
    """The largest difference between the loop's numbers and ours."""
    weights = stats.resample_weights(len(IMAGES))[:resamples]
    mine = []
    for runs in models:
        ranks = correlations(Within(runs, PAPER, 20), "early")(weights)
        auc = separation(CleanAndDegraded.of(runs, PAPER))(weights)[:, :1]
        mine.append(np.hstack([ranks, auc]))
    return float(np.abs(np.vstack(mine) - np.array(found)).max())


def main() -> None:
    models = [model(seed) for seed in range(MODELS)]
    measure(models[0], PAPER)  # imports
    best, busy = min(ours(models) for _ in range(2))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    criteria = len(measure(models[0], PAPER))
    print(f"ours: {MODELS} models, {len(RUNS)} runs x 101 rounds, {criteria} criteria, {stats.RESAMPLES} resamples: ")
    print(f"      {best:.2f} s (best of 2; {busy:.2f} s of processor time), largest resident size {peak:.0f} MB")
    few, resamples = models[:2], 5
    seconds, found = loop(few, resamples)
    each = seconds / (len(few) * resamples)
    print(f"loop: 3 criteria, {len(few)} models, {resamples} resamples: {seconds:.2f} s, {each:.3f} s for one of each")
    whole = each * MODELS * stats.RESAMPLES
    print(f"      so {whole / 10:.0f} s for a tenth of the work (1,000 resamples), against {best / 10:.2f} s")
    print(f"      ratio {whole / best:.0f} (the loop does 3 criteria, ours {criteria})")
    print(f"      largest difference between the numbers: {same_numbers(few, resamples, found):.1e}")


if __name__ == "__main__":
    main()
