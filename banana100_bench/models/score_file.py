"""Scores computed elsewhere, read from a CSV, JSON-lines or Parquet file."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file
from banana100_bench.models.base import Asked, ModelInfo, Picture, library_versions, refuse, settle_direction
from banana100_bench.records import Row

KEYS = ("sha256", "image_id")  # the first that the file has is used
MAX_BYTES = 256 << 20
MAX_ROWS = 1_000_000


@dataclass(frozen=True)
class ScoreFileModel:
    """Given scores as a model (models/base.py): key of an image -> its score, NaN where the cell is empty."""

    pixels = False  # it looks none up
    info: ModelInfo
    key: str
    scores: Mapping[str, float]
    name: str
    hashes: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # image id: sha256 and place; with both columns

    def score(self, picture: Picture) -> float:
        try:
            return self.scores[getattr(picture.row, self.key)]
        except KeyError:
            raise BananaError(f"not in {self.name}") from None

    def notes(self, rows: Iterable[Row]) -> list[str]:
        """How many scores of the file belong to none of the `rows`, if any; BananaError where id and hash disagree."""
        rows = list(rows)
        for row in rows:
            sha256, place = self.hashes.get(row.image_id, (row.sha256, ""))
            if sha256 != row.sha256:
                raise BananaError(
                    f"{self.name} {place}: image_id {row.image_id} is sha256 {row.sha256[:12]} here, not {sha256[:12]}"
                )
        unknown = self.scores.keys() - {getattr(row, self.key) for row in rows}
        if not unknown:
            return []
        return [
            f"{self.name}: {len(unknown)} of {len(self.scores)} scores are of no selected image, as {min(unknown)!r}"
        ]


def open_score_file(spec: str, asked: Asked) -> ScoreFileModel:
    """``scores:FILE``: a table with columns `score` and `sha256` or `image_id`; other columns are ignored.

    An empty score, ``nan`` or ``inf`` counts as NaN; any other text, and a second, different score of the
    same image, are refused with their line (in Parquet: row).
    """
    path = Path(spec.partition(":")[2])
    refuse(spec, weights=asked.weights, options=asked.options)
    readers = {".csv": _csv_rows, ".jsonl": _jsonl_rows, ".parquet": _parquet_rows}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"{spec}: {path.suffix or 'no'} file type; choices: {', '.join(readers)}")
    direction = settle_direction(spec, None, asked.higher_is_better, "")
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise BananaError(f"{path}: {size} bytes, above the limit of {MAX_BYTES}")
        key, scores, hashes = _table(path, reader(path))
        digest = sha256_file(path)
    except OSError as error:
        raise BananaError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BananaError(f"{path}: not UTF-8 text: {error.reason}") from error
    info = ModelInfo(
        id=f"scores:{path.name}",
        kind="file",
        higher_is_better=direction,
        options={"file_sha256": digest},
        versions=library_versions(),
    )
    return ScoreFileModel(info, key, scores, path.name, hashes)


def _table(
    path: Path, rows: Iterable[tuple[str, Mapping[str, Any]]]
) -> tuple[str, dict[str, float], dict[str, tuple[str, str]]]:
    """The key column in use, the scores by it, and each image id's hash and place, from ("line 7", cells) pairs."""
    hashes: dict[str, tuple[str, str]] = {}
    scores: dict[str, float] = {}
    places: dict[str, str] = {}
    key: str | None = None
    for place, cells in rows:
        if key is None:
            key = next((column for column in KEYS if column in cells), None)
            if key is None or "score" not in cells:
                found = ", ".join(str(column) for column in list(cells)[:10]) or "none"
                raise BananaError(f"{path}: columns {found}; expected score and one of {', '.join(KEYS)}")
        name = cells.get(key)
        if not isinstance(name, str) or not name.strip():
            raise BananaError(f"{path} {place}: {key} {name!r:.80}, expected text")
        name = name.strip()
        if key == "sha256":
            name = name.lower()
            if isinstance(image := cells.get("image_id"), str) and image.strip():
                before, where = hashes.setdefault(image.strip(), (name, place))
                if before != name:
                    raise BananaError(f"{path} {place}: image_id {image.strip()} has another sha256 in {where}")
        value = _number(path, place, cells.get("score"))
        if name in scores and repr(scores[name]) != repr(value):
            raise BananaError(f"{path} {place}: {name} has another score in {places[name]}")
        scores[name] = value
        places[name] = place
        if len(scores) > MAX_ROWS:
            raise BananaError(f"{path}: more than {MAX_ROWS} scores")
    if key is None:
        raise BananaError(f"{path}: no scores in it")
    return key, scores, hashes


def _number(path: Path, place: str, cell: Any) -> float:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return float("nan")
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        raise BananaError(f"{path} {place}: score {cell!r:.80}, expected a number")
    try:
        return float("?" if "_" in str(cell) else cell)  # Python reads 1_0 as ten
    except (ValueError, OverflowError):
        raise BananaError(f"{path} {place}: score {cell!r:.80}, expected a number") from None


def _csv_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        try:
            header = reader.fieldnames or ()
            if double := [name for name, count in Counter(header).items() if count > 1]:
                raise BananaError(f"{path} line 1: column {double[0]!r:.80} stands there twice")
            for cells in reader:
                if None in cells:  # a decimal comma, perhaps
                    found = len(header) + len(cells[None])
                    raise BananaError(f"{path} line {reader.line_num}: {found} cells, expected {len(header)}")
                yield f"line {reader.line_num}", cells
        except csv.Error as error:
            raise BananaError(f"{path} line {reader.line_num + 1}: {error}") from error


def _jsonl_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                cells = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BananaError(f"{path} line {number}: not JSON: {error}") from error
            if not isinstance(cells, dict):
                raise BananaError(f"{path} line {number}: expected a JSON object")
            yield f"line {number}", cells


def _parquet_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = file.schema_arrow.names
            wanted = [column for column in (*KEYS, "score") if column in columns]
            if "score" not in wanted or len(wanted) < 2:
                yield "row 1", dict.fromkeys(columns)
                return
            number = 0
            for batch in file.iter_batches(batch_size=4096, columns=wanted):
                for cells in batch.to_pylist():
                    number += 1
                    yield f"row {number}", cells
    except pa.ArrowException as error:
        raise BananaError(f"{path}: not a readable Parquet file: {str(error)[:200]}") from error
