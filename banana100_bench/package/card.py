"""README.md of a dataset folder, from the template in dataset_card/, and the Hub's eval.yaml."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from banana100_bench.errors import BananaError
from banana100_bench.package.manifest import Manifest
from banana100_bench.protocol import KEY_ROUNDS
from banana100_bench.records import DTYPES, Row

CITATION, EVAL, TEMPLATE = "citation.bib", "eval.yaml", "README.md.j2"

CONFIGS = {  # name: (files, meaning); those whose files are absent are left out, for they would break the others
    "default": ("data/*/*.parquet", "all images of rounds 1 and later"),
    "key_rounds": ("data/*/key-*.parquet", f"rounds {', '.join(map(str, KEY_ROUNDS))} alone"),
    "replication": ("data/replication/*.parquet", "runs asked for an exact replica"),
    "variants": ("data/variant/*.parquet", "runs with other wording, sampling or round trips"),
    "objects": ("data/object/*.parquet", "runs that add or remove objects"),
    "more_models": ("data/more_models/*.parquet", "runs of further editing models"),
    "initial": ("initial/*.parquet", "the initial images, round 0"),
    "metadata": ("metadata/*.parquet", "every row, round 0 as well, without the pixels"),
}

MEANING = {
    "image": "the encoded bytes, exactly as the editor returned them (round 0: as they were given)",
    "image_id": "unique name of the image",
    "run_id": "the run it belongs to; null for an initial image, which several runs may share",
    "setting": "what was asked of the editor; null for an initial image",
    "setting_group": "kind of setting: replication, variant, object or more_models",
    "initial_image": "name of the image that the run began with",
    "style": "photo, anime or unknown",
    "repetition": "which of the runs of the same setting, initial image and editor, from 0",
    "round": 'how many edits lie behind the image; 0 is the initial image; the paper says "step"',
    "period": "rounds show the same state of the picture only if they differ by a multiple of this",
    "seed": "sampling seed sent to the editor; null if none",
    "prompt": "text sent to the editor at this round",
    "editor": "name of the editing model",
    "model_version": "what the editor said it was",
    "simulated": "true where no editing model made the image but a simulation of one",
    "temperature": "as sent to the editor",
    "resolution": "as sent to the editor",
    "width": "pixels",
    "height": "pixels",
    "format": "PNG, JPEG or WEBP",
    "num_bytes": "length of the encoded bytes",
    "sha256": "of the encoded bytes",
    "parent_sha256": "that of the image it was made from; null where that is not here",
    "reasoning_summary": "the editor's own account of its edit",
    "created_at": "when the image was made, UTC",
}


def asset(name: str) -> str:
    """The text of a file of dataset_card/: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "dataset_card", package.parent / "dataset_card"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise BananaError(f"dataset_card/{name} is missing from this installation of banana100-bench; install it again")


def configs(files: Iterable[str]) -> list[dict[str, Any]]:
    """The entries of the card's ``configs:`` that fit `files`, the names of the data files in the folder."""
    present = [Path(file) for file in files]
    return [
        {"config_name": name, "data_files": [{"split": "test", "path": glob}]}
        for name, (glob, _) in CONFIGS.items()
        if any(file.match(glob) for file in present)
    ]


def readme(manifest: Manifest, rows: Sequence[Row], picture: str | None = None) -> str:
    """The card of the dataset that `manifest` describes; its `files` need hold the data files only.

    picture: name of the file in the folder that shows some runs.
    """
    import jinja2
    import yaml

    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )  # what comes from data passes through the filter `md`, or is a name that records.check_name accepts
    environment.filters |= {"md": escape, "ranges": ranges}
    edited = [row for row in rows if row.round > 0]
    offered = configs(file.path for file in manifest.files)
    front = {
        "pretty_name": manifest.name,
        "license": manifest.licence,
        "tags": ["image-quality-assessment", "no-reference", *(["simulated"] if manifest.simulated else [])],
        "size_categories": [_size_category(len(edited))],
        "configs": offered,
    }
    return environment.from_string(asset(TEMPLATE)).render(
        front_matter=yaml.safe_dump(front, sort_keys=False, allow_unicode=True),
        name=manifest.name,
        simulated=manifest.simulated,
        counts=manifest.counts,
        runs={row.run_id for row in edited},
        bytes=sum(row.num_bytes for row in rows),
        licence_text="not stated by whoever built this" if manifest.licence == "unknown" else manifest.licence,
        fingerprint=manifest.fingerprint,
        builder=manifest.builder,
        key_rounds=KEY_ROUNDS,
        configs=offered,
        config_meaning={name: meaning for name, (_, meaning) in CONFIGS.items()},
        tables=[
            ("setting", _count(edited, "setting")),
            ("initial image", _count(edited, "initial_image")),
            ("editor", _count(edited, "editor")),
            ("model version", _count(edited, "model_version")),
        ],
        formats=sorted(Counter(f"{row.format} {row.width} x {row.height}" for row in rows).items()),
        gaps=manifest.gaps,
        faults=manifest.faults,
        picture=picture,
        notes=manifest.notes,
        columns=[("image", "Image", MEANING["image"])]
        + [(name, dtype, MEANING[name]) for name, dtype in DTYPES.items()],
        citation=asset(CITATION),
    )


def eval_yaml(simulated: bool) -> str:
    """The Hub's declaration of the dataset as a benchmark, which says so where the images are simulated."""
    import yaml

    declared = yaml.safe_load(asset(EVAL))
    if simulated:
        declared["name"] += " (SIMULATED images)"
        declared["description"] = f"SIMULATED images, made by no editing model. {declared['description']}"
    return yaml.safe_dump(declared, sort_keys=False, allow_unicode=True)


def escape(text: object) -> str:
    """`text` for one line of Markdown, with nothing in it that Markdown or HTML would read."""
    line = " ".join(str(text).split())
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~&$@-])", r"\\\1", line if len(line) <= 200 else f"{line[:199]}…")


def ranges(numbers: Iterable[int]) -> str:
    """Ascending `numbers` in short: ``0, 7-20``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


def _count(rows: Iterable[Row], column: str) -> list[tuple[str, int, int]]:
    """(value, runs, images) by value of `column`, in order of the value."""
    runs: dict[str, set[str | None]] = {}
    images: Counter[str] = Counter()
    for row in rows:
        value = getattr(row, column)
        value = "not recorded" if value is None else value
        runs.setdefault(value, set()).add(row.run_id)
        images[value] += 1
    return [(value, len(runs[value]), images[value]) for value in sorted(images)]


def _size_category(images: int) -> str:
    """The Hub's class of sizes."""
    for limit, name in ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M")):
        if images < limit:
            return name
    return "1M<n<10M"
