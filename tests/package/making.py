"""Raw images for tests: small pictures, raw runs as `generate` leaves them, trees of other people's."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
from PIL import Image

from banana100_bench import protocol, raw
from banana100_bench.files import Journal, sha256_bytes, write_bytes, write_text
from banana100_bench.package.build import preview
from banana100_bench.package.source import find
from banana100_bench.records import Row

TIME = "2026-01-02T03:04:05Z"


def picture(number: int, size: tuple[int, int] = (40, 32), kind: str = "PNG") -> bytes:
    """An encoded picture of noise; another one for each number."""
    pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def write_run(
    folder: Path,
    setting: str = "replication",
    initial_image: str = "ramp",
    *,
    repetition: int = 0,
    planned: int = 20,
    made: int = 20,
    kinds: Sequence[str] = ("PNG",),
    size: tuple[int, int] = (40, 32),
    **facts: object,
) -> Path:
    """A raw run of `made` rounds out of `planned`, as banana100_bench.raw lays it down; gives its folder."""
    known = protocol.setting(setting)
    start = picture(sum(initial_image.encode()))
    write_bytes(folder / "initial" / f"{initial_image}.png", start)
    run = raw.RunFacts(
        **{
            "setting": setting,
            "setting_group": known.group,
            "period": known.period,
            "prompts": known.prompts,
            "initial_image": initial_image,
            "initial_sha256": sha256_bytes(start),
            "initial_extension": "png",
            "style": "photo",
            "repetition": repetition,
            "rounds": planned,
            "seed": 7 + repetition,
            "editor": "simulated",
            "model_version": "simulated-1",
            "simulated": True,
            "temperature": None,
            "resolution": None,
            **facts,
        }
    )
    place = folder / "runs" / run.run_id
    write_text(place / raw.RUN_FILE, run.model_dump_json())
    parent = run.initial_sha256
    with Journal(place / raw.JOURNAL_FILE) as journal:
        for number in range(1, made + 1):
            kind = kinds[number % len(kinds)]
            data = picture(crc32(f"{run.run_id} {number}".encode()), size, kind)
            event = raw.Made(
                round=number,
                file=f"{number:03d}.{raw.EXTENSIONS[kind]}",
                sha256=sha256_bytes(data),
                parent_sha256=parent,
                created_at=TIME,
                model_version=f"{run.model_version}.{number % 2}",
                reasoning_summary=f"round {number}",
            )
            write_bytes(place / event.file, data)
            journal.append(event.model_dump())
            parent = event.sha256
    return place


def write_raw(folder: Path) -> Path:
    """Five simulated runs, one setting of each group, with one gap: 20 + 6 + 3 + 6 + 2 images, 3 initial ones."""
    write_run(folder, kinds=("PNG", "JPEG", "WEBP"))
    write_run(folder, repetition=1, made=6)
    write_run(folder, "mirror", "disc", planned=3, made=3)
    write_run(folder, "add_apple", "disc", planned=6, made=6)
    write_run(folder, "cross_model_replication", "comb", planned=2, made=2)
    return folder


def images(raw: Path, *how: object) -> list[tuple[Row, Path]]:
    """The rows of a source, each with its file; see `source.find` for `how`."""
    source = find(raw, *how)
    paths = {one.image_id: one.path for one in source.candidates}
    return [(row, paths[row.image_id]) for row in preview(source).tally.rows]


PATTERN = "{initial_image}/step_{round}_{_}.{ext}"
FACTS = {"setting": "add_remove", "setting_group": "object", "period": "2", "editor": "FLUX.1 Kontext"}


def write_tree(folder: Path, names: Sequence[str] = ("plant", "chair"), rounds: Sequence[int] = range(7)) -> Path:
    """A tree that `PATTERN` and `FACTS` describe."""
    for at, name in enumerate(names):
        for number in rounds:
            write_bytes(folder / name / f"step_{number:03d}_x.png", picture(1000 * at + number))
    return folder
