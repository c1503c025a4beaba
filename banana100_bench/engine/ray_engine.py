"""The same scoring on a Ray cluster: actors hold the models and read the Parquet shards; the scores come home.

Ray Data deals out the image ids that the store lacks; each actor reads only the row groups that hold its
images, from the dataset folder, which every node must see under the same path. The store stays on the driver, so
that a killed driver loses what is under way, and nothing else. docs/scaling.md says how to run it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from banana100_bench import selftest
from banana100_bench.engine import machine as here
from banana100_bench.engine.measure import measure
from banana100_bench.engine.scheduler import Plan
from banana100_bench.errors import BananaError
from banana100_bench.models import find_device
from banana100_bench.models.base import Model, Picture, looks
from banana100_bench.progress import progress
from banana100_bench.scoring import ScoreReport, asked_info, first_notes, lacks, of
from banana100_bench.store import Score, ScoreStore

if TYPE_CHECKING:
    from banana100_bench.data import Selection
    from banana100_bench.harness import Machine, ModelChoice

BATCH = 4  # images that an actor is dealt at a time: few, so that a lost actor repeats little


class Scorer:
    """An actor: the models, opened once, and the dataset."""

    def __init__(self, choices: Sequence[ModelChoice], machine: Machine, path: str, rounds: Sequence[int]):
        from banana100_bench.data import open_data
        from banana100_bench.harness import open_choice

        here.keep_freed_memory()
        self.machine = machine
        self.models = [open_choice(choice, machine) for choice in choices]
        self.threads = machine.threads or 1
        here.set_threads(self.threads)
        self.data = open_data(path, rounds=rounds)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        wanted = dict(zip(batch["image_id"], batch["models"], strict=True))
        lines = []
        for row, data in self.data.subset(map(str, wanted)).shuffled().images():
            picture = Picture(row, data, self.machine.max_pixels)
            for number in json.loads(wanted[row.image_id]):
                with contextlib.suppress(BananaError):  # decoding is no model's time; its score says what is wrong
                    _ = picture.rgb if looks(self.models[number]) else None
                score = measure(self.models[number], picture, repeats=self.machine.repeats, threads=self.threads)
                lines.append(json.dumps([number, dataclasses.asdict(score)]))
        return {"line": lines}


def score_all(
    opened: Sequence[tuple[ModelChoice, Model]], data: Selection, store: ScoreStore, machine: Machine
) -> list[ScoreReport]:
    """`scoring.score_all` on the Ray cluster that RAY_ADDRESS names, or, without one, on one of this machine.

    machine.workers: actors; None for one a GPU, or a core. Scores are those of the local loop.
    """
    try:
        import ray
    except ImportError as error:
        raise BananaError("--engine ray: Ray is not installed; it comes with the extra [ray]") from error
    start = time.perf_counter()
    rows, models = data.rows, [model for _, model in opened]
    if not rows:
        raise BananaError("nothing to score: no image is selected")
    infos = [asked_info(model, Plan(repeats=machine.repeats, max_pixels=machine.max_pixels)) for model in models]
    notes = first_notes(models, infos, rows, store)
    computed = [0] * len(models)
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(store.open(info)) for info in infos]
        todo = {
            row.sha256: {"image_id": row.image_id, "models": json.dumps(missing)}
            for row in reversed(rows)
            if (missing := [number for number, scores in enumerate(kept) if lacks(scores, row)])
        }
        if todo:
            total = sum(len(json.loads(item["models"])) for item in todo.values())
            with progress(f"{len(models)} models on Ray", total, "scores") as advance:
                try:
                    for number, score in _scores(ray, [todo[sha256] for sha256 in sorted(todo)], opened, data, machine):
                        kept[number].append(score)
                        computed[number] += 1
                        advance(1)
                except ray.exceptions.RayError as error:
                    line = next(
                        (line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__
                    )
                    raise BananaError(f"--engine ray: {line.strip()[:300]}") from error
        for number, model in enumerate(models):
            facts = store.facts(infos[number])
            if looks(model) and computed[number] and "selftest" not in facts:
                facts["selftest"] = selftest.ask(model)
                store.keep_facts(infos[number], facts)
            if looks(model) and "selftest" in facts:
                told = selftest.verdict(facts["selftest"], model.info.higher_is_better)
                notes[number] += [told] if told else []
        found = [{row.image_id: of(row, scores.get(row.sha256)) for row in rows} for scores in kept]
    seconds = time.perf_counter() - start
    return [
        ScoreReport(info, found[number], computed[number], seconds, notes[number]) for number, info in enumerate(infos)
    ]


def _scores(
    ray: Any,
    items: list[dict[str, str]],
    opened: Sequence[tuple[ModelChoice, Model]],
    data: Selection,
    machine: Machine,
) -> Any:
    """(model's number, score) pairs as the actors give them."""
    import ray.data

    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="error")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    gpus = 1 if find_device(machine.device).startswith("cuda") else 0
    cores = machine.threads or 1
    there = ray.cluster_resources().get("GPU" if gpus else "CPU", 1)
    actors = machine.workers or max(1, int(there) // (1 if gpus else cores))
    actors = min(actors, -(-len(items) // BATCH))
    dealt = ray.data.from_items(items, override_num_blocks=-(-len(items) // BATCH))
    answers = dealt.map_batches(
        Scorer,
        fn_constructor_kwargs={
            "choices": [choice for choice, _ in opened],
            "machine": machine,
            "path": data.storage.address,
            "rounds": sorted({row.round for row in data.rows}),
        },
        batch_size=BATCH,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_gpus=gpus,
        num_cpus=0 if gpus else cores,
    )
    for answer in answers.iter_rows():
        number, score = json.loads(answer["line"])
        yield number, Score(**score)
