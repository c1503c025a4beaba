"""Find the images of a dataset and check them, so that all is known to be sound before anything is written."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from banana100_bench import raw as layout
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_bytes
from banana100_bench.images import probe
from banana100_bench.package import tree
from banana100_bench.package.manifest import Gap
from banana100_bench.progress import progress
from banana100_bench.records import Row, image_id

SHOWN = 3  # problems named in an error; the others are counted


@dataclass(frozen=True, kw_only=True)
class Source:
    """The sound images of a dataset.

    images: (row, file), in `row_order`. gaps: what is missing, by run id.
    unused: files under the raw folder that are no part of any run, relative to it.
    """

    images: list[tuple[Row, Path]]
    gaps: list[Gap]
    unused: list[str]


@dataclass(frozen=True, kw_only=True)
class _Found:
    """An image before its bytes are read. sha256: what a journal says of them, None if nothing does."""

    path: Path
    facts: dict[str, Any]
    sha256: str | None = None

    @property
    def run(self) -> str | None:
        return self.facts.get("run_id")

    @property
    def round(self) -> int:
        return self.facts["round"]


def row_order(row: Row) -> tuple[str, int, str]:
    """The key by which rows are sorted everywhere: by run, then round; initial images come first."""
    return (row.run_id or "", row.round, row.initial_image)


def find(raw: Path, pattern: str | None = None, constants: Mapping[str, str] | None = None) -> Source:
    """Find and check the images in the folder `raw`; each file is read once, one at a time.

    Without a pattern `raw` is a folder of raw runs (`banana100_bench.raw`); with one, any tree of
    images whose paths tell the facts, the others being given as `constants` (`tree.match`).

    A run should have the rounds that were asked for, or, where no one recorded that, as many as the
    longest run of its setting and editor; what is missing is listed as gaps. Raises BananaError for
    what would make a dataset wrong: an unreadable file, two files for one round, a run without
    round 1, initial images of one name that differ, a broken chain, simulated beside real images, a
    symbolic link. It names the first few and counts the others.
    """
    raw = Path(raw)
    files = _walk(raw)
    planned: dict[str, int] = {}
    if pattern is not None:
        found = _in_tree(raw, files, pattern, constants or {})
    elif constants:
        raise UsageError("facts can be given only with a pattern: raw runs carry their own")
    elif not (raw / "runs").is_dir():
        raise BananaError(
            f"{raw}: holds no runs/ folder, as `banana100 generate` writes; give a pattern to read another layout"
        )
    else:
        found, planned = _in_runs(raw)
    if not any(one.run for one in found):
        raise BananaError(f"{raw}: no images of any round after 0 ({len(files)} files looked at)")

    _refuse(raw, _structural_problems(raw, found))
    rows = _read(raw, found)
    used = {one.path for one in found}
    unused = [name for name in files if raw / name not in used and not (pattern is None and _is_bookkeeping(name))]
    images = sorted(rows.values(), key=lambda image: row_order(image[0]))
    return Source(images=images, gaps=_gaps([row for row, _ in images], planned), unused=unused)


def _walk(raw: Path) -> list[str]:
    """All files under `raw`, relative, sorted; BananaError on a symbolic link, which could lead out of it."""
    if not raw.is_dir():
        raise BananaError(f"{raw}: not a folder")
    names = []
    folders = [raw]
    while folders:
        try:
            entries = list(folders.pop().iterdir())
        except OSError as error:
            raise BananaError(f"cannot list {error.filename}: {error.strerror}") from error
        for entry in entries:
            if entry.is_symlink():
                raise BananaError(f"{entry}: a symbolic link; expected files and folders only")
            if entry.is_dir():
                folders.append(entry)
            else:
                names.append(entry.relative_to(raw).as_posix())
    return sorted(names)


def _is_bookkeeping(name: str) -> bool:
    """True for a file that raw runs keep beside the images."""
    return Path(name).name in (layout.RUN_FILE, layout.JOURNAL_FILE) or Path(name).name.startswith(".")


def _in_tree(raw: Path, files: list[str], pattern: str, constants: Mapping[str, str]) -> list[_Found]:
    facts = tree.match(files, pattern, constants)
    if not facts:
        example = f"; the first is {files[0]}" if files else ""
        raise BananaError(f"{raw}: the pattern {pattern!r} fits none of its {len(files)} files{example}")
    return [_Found(path=raw / name, facts=told) for name, told in facts.items()]


def _in_runs(raw: Path) -> tuple[list[_Found], dict[str, int]]:
    """What raw runs hold, and how many rounds were asked for in each."""
    found: dict[Path, _Found] = {}
    planned = {}
    empty = []
    for folder in layout.run_folders(raw):
        run, entries = layout.read_run(folder)
        if not entries:
            empty.append(f"{folder}: no round 1")
            continue
        planned[run.run_id] = run.rounds
        start = layout.initial_path(raw, run.initial_image, run.initial_extension)
        initial = {"image_id": image_id(None, run.initial_image, 0), "initial_image": run.initial_image, "round": 0}
        found[start] = _Found(path=start, facts=initial | {"style": run.style}, sha256=run.initial_sha256)
        shared = run.model_dump(
            include={"setting", "setting_group", "initial_image", "style", "repetition", "period", "seed"}
            | {"editor", "simulated", "temperature", "resolution"}
        )
        for entry in entries:
            facts = {
                **shared,
                "image_id": image_id(run.run_id, run.initial_image, entry.round),
                "run_id": run.run_id,
                "round": entry.round,
                "prompt": run.prompt(entry.round),
                "model_version": entry.model_version,
                "parent_sha256": entry.parent_sha256,
                "reasoning_summary": entry.reasoning_summary,
                "created_at": entry.created_at,
            }
            found[entry.path] = _Found(path=entry.path, facts=facts, sha256=entry.sha256)
    _refuse(raw, empty)
    return list(found.values()), planned


def _structural_problems(raw: Path, found: Iterable[_Found]) -> list[str]:
    """What is wrong that can be told without reading an image."""
    problems = []
    runs: dict[str, dict[int, _Found]] = defaultdict(dict)
    for one in found:
        if one.run:
            first = runs[one.run].setdefault(one.round, one)
            if first is not one:
                names = f"{first.path.relative_to(raw)} and {one.path.relative_to(raw)}"
                problems.append(f"{names} are both round {one.round} of {one.run}")
    for run, rounds in sorted(runs.items()):
        if 1 not in rounds:
            problems.append(f"{run}: no round 1")
        for name in ("setting_group", "period", "style", "simulated"):
            if len({one.facts.get(name) for one in rounds.values()}) > 1:
                problems.append(f"{run}: {name} differs between its rounds")
    examples = {one.facts.get("simulated", False): run for run, rounds in runs.items() for one in rounds.values()}
    if len(examples) > 1:
        problems.append(f"simulated images ({examples[True]}) and real ones ({examples[False]}) do not go together")
    return problems


def _read(raw: Path, found: list[_Found]) -> dict[str, tuple[Row, Path]]:
    """The rows of `found` by image id, with what follows from the bytes, which are read once and let go."""
    rows: dict[str, tuple[Row, Path]] = {}
    problems = []
    with progress("checking", len(found)) as advance:
        for one in found:
            try:
                row = _row(one)
            except BananaError as error:
                problems.append(str(error))
            else:
                first = rows.setdefault(row.image_id, (row, one.path))
                if first[0].sha256 != row.sha256:
                    names = f"{first[1].relative_to(raw)} and {one.path.relative_to(raw)}"
                    problems.append(f"{names} differ, but are both the initial image {row.initial_image}")
            advance(1)
    _refuse(raw, problems)
    for name, (row, path) in rows.items():
        before = rows.get(image_id(row.run_id if row.round > 1 else None, row.initial_image, row.round - 1))
        if row.round and before:
            if row.parent_sha256 not in (None, before[0].sha256):
                problems.append(f"{path.relative_to(raw)}: not made from round {row.round - 1} as it now stands")
            rows[name] = (dataclasses.replace(row, parent_sha256=before[0].sha256), path)
    _refuse(raw, problems)
    return rows


def _row(one: _Found) -> Row:
    data = layout.read_file(one.path)
    seen = probe(data, str(one.path))
    sha256 = sha256_bytes(data)
    if one.sha256 not in (None, sha256):
        raise BananaError(f"{one.path}: SHA-256 {sha256[:12]}..., but the journal says {one.sha256[:12]}...")
    return Row(
        **one.facts,
        width=seen.width,
        height=seen.height,
        format=seen.format,
        num_bytes=len(data),
        sha256=sha256,
    )


def _gaps(rows: Iterable[Row], planned: Mapping[str, int]) -> list[Gap]:
    """What is missing of the rounds 0 to the planned one, or to the last of the longest run of that kind."""
    initial = set()
    rounds: dict[str, set[int]] = defaultdict(set)
    sample: dict[str, Row] = {}
    longest: dict[tuple[str | None, str | None], int] = defaultdict(int)
    for row in rows:
        if row.run_id is None:
            initial.add(row.initial_image)
        else:
            rounds[row.run_id].add(row.round)
            sample[row.run_id] = row
            longest[row.setting, row.editor] = max(longest[row.setting, row.editor], row.round)
    gaps = []
    for run, present in sorted(rounds.items()):
        one = sample[run]
        expected = range(1, planned.get(run, longest[one.setting, one.editor]) + 1)
        missing = [] if one.initial_image in initial else [0]
        missing += sorted(set(expected) - present)
        if missing:
            gaps.append(Gap(run_id=run, rounds=tuple(missing)))
    return gaps


def _refuse(raw: Path, problems: list[str]) -> None:
    if problems:
        more = len(problems) - SHOWN
        tail = f"; and {more} more" if more > 0 else ""
        raise BananaError(f"{raw}: {len(problems)} of its parts cannot be used: {'; '.join(problems[:SHOWN])}{tail}")
