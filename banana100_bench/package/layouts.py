"""The ways in which images lie on a disk: raw runs, a tree whose paths tell the facts, a table that lists files.

Each gives the candidates for a dataset. Nothing here reads an image.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from banana100_bench import raw as layout
from banana100_bench.errors import BananaError
from banana100_bench.files import printable
from banana100_bench.package import tree
from banana100_bench.package.walking import File
from banana100_bench.records import image_id

TABLES = (".csv", ".jsonl", ".parquet")
PATH_COLUMNS = ("file_name", "file", "path", "image")  # file_name is what `datasets` calls it in metadata.csv
MAX_TABLE_BYTES = 256 << 20
MAX_TABLE_ROWS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An image that no one has read yet.

    name: of the file, relative to the source, fit to be shown. facts: fields of `records.Row`, those that do not
    follow from the bytes. size, changed: as in `walking.File`. sha256: what someone says of the bytes.
    """

    path: Path
    name: str
    facts: dict[str, Any]
    size: int
    changed: int
    sha256: str | None = None

    @property
    def image_id(self) -> str:
        return self.facts["image_id"]

    @property
    def run_id(self) -> str | None:
        return self.facts.get("run_id")

    @property
    def setting(self) -> str | None:
        return self.facts.get("setting")

    @property
    def setting_group(self) -> str | None:
        return self.facts.get("setting_group")

    @property
    def initial_image(self) -> str:
        return self.facts["initial_image"]

    @property
    def round(self) -> int:
        return self.facts["round"]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What a layout gives. says: what was read, for a person. planned: rounds asked for, by run id, where known."""

    says: str
    candidates: list[Candidate]
    planned: dict[str, int] = field(default_factory=dict)
    starts: dict[str, str] = field(default_factory=dict)  # initial image by run id, of runs without an image too


def _candidate(name: str, file: File, facts: dict[str, Any], sha256: str | None = None) -> Candidate:
    return Candidate(
        path=file.path,
        name=printable(name),
        facts=facts,
        size=file.size,
        changed=file.changed,
        sha256=sha256 or file.sha256,
    )


def from_tree(raw: str, files: Mapping[str, File], pattern: str, constants: Mapping[str, str]) -> Listing:
    """The files that `pattern` fits; see `tree.match`."""
    facts = tree.match(files, pattern, constants)
    if not facts:
        example = f"; the first is {printable(next(iter(files)))}" if files else ""
        raise BananaError(f"{raw}: the pattern {pattern!r} fits none of its {len(files)} files{example}")
    return Listing(
        says=f"pattern {pattern}",
        candidates=[_candidate(name, files[name], told) for name, told in facts.items()],
    )


def from_runs(raw: Path) -> Listing:
    """The raw runs in the folder `raw`, by their journals (`banana100_bench.raw`).

    A file that a journal names but that is not there is a candidate all the same, of size 0: reading it says so.
    """
    found: dict[Path, Candidate] = {}
    planned, starts = {}, {}

    def add(path: Path, facts: dict[str, Any], sha256: str) -> None:
        layout.refuse_links(path)
        try:
            seen = path.stat()
        except OSError:
            file = File(path, 0, 0)
        else:
            file = File(path, seen.st_size, seen.st_mtime_ns)
        one = _candidate(path.relative_to(raw).as_posix(), file, facts, sha256)
        if found.setdefault(path, one).sha256 != sha256:
            raise BananaError(f"{path}: runs began with different bytes under this name")

    for folder in layout.run_folders(raw):
        run, entries = layout.read_run(folder)
        planned[run.run_id], starts[run.run_id] = run.rounds, run.initial_image
        start = layout.initial_path(raw, run.initial_image, run.initial_extension)
        initial = {"image_id": image_id(None, run.initial_image, 0), "initial_image": run.initial_image, "round": 0}
        if entries:
            add(start, initial | {"style": run.style}, run.initial_sha256)
        shared = run.model_dump(
            include={"setting", "setting_group", "initial_image", "style", "repetition", "period", "seed"}
            | {"editor", "simulated", "temperature", "resolution"}
        )
        parent = run.initial_sha256
        for entry in entries:
            if entry.parent_sha256 != parent:
                raise BananaError(f"{entry.path}: not made from round {entry.round - 1} as it now stands")
            parent = entry.sha256
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
            add(entry.path, facts, entry.sha256)
    return Listing(says="raw runs", candidates=list(found.values()), planned=planned, starts=starts)


def is_bookkeeping(name: str) -> bool:
    """True for a file that raw runs keep beside the images."""
    return Path(name).name in (layout.RUN_FILE, layout.JOURNAL_FILE)


def from_table(table: Path, files: Mapping[str, File], constants: Mapping[str, str]) -> Listing:
    """The files that the CSV, JSON-lines or Parquet file `table` lists, among `files`, those of its folder.

    A column of PATH_COLUMNS names the file, relative to the table's folder; the others are facts as in
    `tree.match`, or ``sha256``; columns of other names are left alone. Raises BananaError for a path that leads
    out of the folder; a file that is not there is a candidate of size 0, so that reading it says so.
    """
    lines: dict[str, dict[str, str]] = {}
    digests: dict[str, str] = {}
    ignored: set[str] = set()
    for number, row in enumerate(_table_rows(table), 1):
        column = next((name for name in PATH_COLUMNS if row.get(name)), None)
        if column is None:
            raise BananaError(f"{table}: row {number}: no file named; expected a column {', '.join(PATH_COLUMNS)}")
        name = row.pop(column)
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts or "\\" in name or "\0" in name:
            raise BananaError(f"{table}: row {number}: {printable(name)[:200]!r} leads out of the table's folder")
        name = inside.as_posix()
        if name in lines:
            raise BananaError(f"{table}: row {number}: {printable(name)[:200]} stands there twice")
        if digest := row.pop("sha256", ""):
            digests[name] = digest.lower()
        lines[name] = {key: text for key, text in row.items() if tree.is_fact(key)}
        ignored |= row.keys() - lines[name].keys()
    if not lines:
        raise BananaError(f"{table}: lists no file")
    facts = tree.tell(lines, constants)
    left = f"; columns not read: {', '.join(sorted(map(printable, ignored)))}" if ignored else ""
    return Listing(
        says=f"table {table.name}{left}",
        candidates=[
            _candidate(name, files.get(name, File(table.parent / name, 0, 0)), told, digests.get(name))
            for name, told in facts.items()
        ],
    )


def _table_rows(table: Path) -> Iterator[dict[str, str]]:
    """Each row of a table, every value as text, "" where there is none."""
    try:
        if table.stat().st_size > MAX_TABLE_BYTES:
            raise BananaError(f"{table}: {table.stat().st_size} bytes, above the limit of {MAX_TABLE_BYTES}")
        for number, row in enumerate(_READERS[table.suffix.lower()](table)):
            if number >= MAX_TABLE_ROWS:
                raise BananaError(f"{table}: more than {MAX_TABLE_ROWS} rows")
            yield {str(key): _text(value) for key, value in row.items() if key is not None}
    except (OSError, ValueError, csv.Error, RecursionError) as error:
        raise BananaError(f"{table}: not a readable {table.suffix[1:].upper()} table: {error}") from error


def _text(value: object) -> str:
    if isinstance(value, dict):  # `datasets` has images as {"bytes", "path"}
        value = value.get("path")
    return "" if value is None else str(value)


def _csv(table: Path) -> Iterable[dict[str, Any]]:
    with open(table, newline="", encoding="utf-8-sig") as file:
        yield from csv.DictReader(file)


def _jsonl(table: Path) -> Iterable[dict[str, Any]]:
    with open(table, encoding="utf-8-sig") as file:
        for line in filter(str.strip, file):
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"expected an object on each line, found {line[:40]!r}")
            yield row


def _parquet(table: Path) -> Iterable[dict[str, Any]]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(table)
    if file.metadata.num_rows > MAX_TABLE_ROWS:
        raise BananaError(f"{table}: more than {MAX_TABLE_ROWS} rows")
    wanted = [name for name in file.schema_arrow.names if tree.is_fact(name) or name in (*PATH_COLUMNS, "sha256")]
    for batch in file.iter_batches(batch_size=1000, columns=wanted):
        yield from batch.to_pylist()


_READERS = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
