"""Rows and scores made up in memory, in the shape of a dataset's selection: no pictures behind them."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from banana100_bench.files import sha256_file
from banana100_bench.models.base import ModelInfo
from banana100_bench.package.manifest import Counts, FileEntry, Manifest
from banana100_bench.package.shards import stem
from banana100_bench.protocol import KEY_ROUNDS, Rounds
from banana100_bench.records import Row, arrow_schema, fingerprint, image_id, run_id
from banana100_bench.results import Result, make_result
from banana100_bench.store import Score


@dataclass(frozen=True)
class FakeData:
    rows: list[Row]
    name: str = "made-up"

    @property
    def dataset_fingerprint(self) -> str:
        return fingerprint((row.image_id, row.sha256) for row in self.rows)


def make_rows(
    images: Sequence[str] = ("astronaut", "chelsea", "china"),
    repetitions: int = 2,
    rounds: Sequence[int] = KEY_ROUNDS,
    *,
    setting: str = "replication",
    group: str = "replication",
    period: int = 1,
    simulated: bool = True,
) -> list[Row]:
    """A row for each image, repetition and round (round 0 once an image), sorted by run and round."""
    editor = "simulated" if simulated else "nano-banana-pro"
    rows = [_row(image, None, 0, simulated=simulated) for image in images if 0 in rounds]
    for image in images:
        for repetition in range(repetitions):
            run = run_id(setting, image, editor, repetition)
            rows += [
                _row(
                    image,
                    run,
                    number,
                    setting=setting,
                    setting_group=group,
                    repetition=repetition,
                    period=period,
                    editor=editor,
                    simulated=simulated,
                )
                for number in rounds
                if number > 0
            ]
    return rows


def _row(image: str, run: str | None, number: int, **facts: object) -> Row:
    name = image_id(run, image, number)
    digest = hashlib.sha256(name.encode()).hexdigest()
    return Row(  # type: ignore[arg-type]
        image_id=name,
        run_id=run,
        initial_image=image,
        round=number,
        width=64,
        height=64,
        format="PNG",
        num_bytes=1,
        sha256=digest,
        **facts,
    )


def scores_of(rows: Sequence[Row], function: Callable[[Row], float]) -> dict[str, Score]:
    """`function` of each row as its score; NaN becomes status "nan" and infinity status "failed"."""
    found = {}
    for row in rows:
        value = function(row)
        status = "nan" if math.isnan(value) else "failed" if math.isinf(value) else "ok"
        score = value if status == "ok" else None
        found[row.image_id] = Score(image_id=row.image_id, sha256=row.sha256, score=score, status=status, seconds=0.5)
    return found


def info(name: str = "pyiqa:piqe", *, higher_is_better: bool = True, **facts: object) -> ModelInfo:
    facts.setdefault("kind", name.split(":")[0])
    return ModelInfo(id=name, higher_is_better=higher_is_better, **facts)  # type: ignore[arg-type]


def save_rows(rows: Sequence[Row], folder: Path, name: str = "made-up") -> Path:
    """A dataset folder with the metadata of `rows` and no images, as a board keeps it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "metadata").mkdir(parents=True)
    table = pa.Table.from_pylist([row.as_dict() for row in rows], schema=arrow_schema(image=False))
    path = folder / "metadata" / "test-00000-of-00001.parquet"
    pq.write_table(table, path)
    entry = FileEntry(
        path=str(path.relative_to(folder)), sha256=sha256_file(path), bytes=path.stat().st_size, rows=len(rows)
    )
    absent = [  # where the images would be
        FileEntry(path=f"{where}-00000-of-00001.parquet", sha256="0" * 64, bytes=1, rows=count)
        for where, count in sorted(Counter(map(stem, rows)).items())
    ]
    manifest = Manifest(
        name=name,
        builder="tests",
        fingerprint=FakeData(list(rows)).dataset_fingerprint,
        simulated=any(row.simulated for row in rows),
        licence="unknown",
        counts=Counts(rows=len(rows), images=0, runs=0, initial_images=0, settings=0),
        gaps=(),
        files=(*absent, entry),
    )
    (folder / "MANIFEST.json").write_text(manifest.model_dump_json())
    return folder


def judge(
    rows: Sequence[Row],
    function: Callable[[Row], float],
    model: ModelInfo | None = None,
    rounds: Rounds | None = None,
) -> Result:
    """The result of a model whose score of a row is `function` of it."""
    data = FakeData(list(rows))
    return make_result(model or info(), data, scores_of(rows, function), rounds or Rounds())
