"""The score of one image, and the append-only store that keeps scores between runs.

A store is a folder with one JSON-lines file for each version of each model. Its first line is the key:
all that decides the raw scores (model id, SHA-256 of its weights, options, versions of the libraries and of
the decode policy) - not the direction, which changes no score, so that a wrong one is put right at no cost.
Then follows one line a score; for the same pixels (SHA-256 of the encoded file) the last line wins.

Each line is handed to the operating system before `append` returns, and synced to disk when the file is
closed: a killed process loses at most the score in flight, a power cut perhaps the last ones. A torn last line
is cut off. Appends hold a lock (flock), under which what another process added is read first.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from banana100_bench.errors import BananaError
from banana100_bench.files import dump_json, write_text
from banana100_bench.records import to_name

if TYPE_CHECKING:
    from banana100_bench.models.base import ModelInfo

STATUSES = ("ok", "nan", "failed", "timeout", "parse_error")
RETRIED = ("failed", "timeout")  # on the next run; the others would come out the same
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Score:
    """What one model said of one image.

    score: raw, in the model's own direction; None unless status is "ok" (which means finite).
    status: one of STATUSES. message: why there is no score, which value was not finite, or the reply that
        holds no number; else None.
    seconds: wall time of the model on it, without decoding. width, height: of the picture as the model saw
        it, in pixels; None where nothing was decoded. decode_policy: of images.py, likewise.
    threads: of PyTorch and the like; their number moves the last digits of some models.
    batch: how many pictures the model was given together. spread: standard deviation over the repeats.
    """

    image_id: str
    sha256: str
    score: float | None
    status: str
    message: str | None = None
    seconds: float = 0.0
    width: int | None = None
    height: int | None = None
    decode_policy: int | None = None
    threads: int | None = None
    batch: int = 1
    spread: float | None = None


def _key(info: ModelInfo) -> dict[str, Any]:
    return {
        "model": info.id,
        "weights_sha256": info.weights_sha256,
        "options": dict(info.options),
        "versions": dict(info.versions),
    }


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, allow_nan=False).encode() + b"\n"


class ScoreStore:
    """The store in `folder`, which is made when the first model is opened."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)

    def path(self, info: ModelInfo) -> Path:
        """The file of this version of the model: ``pyiqa-piqe--<12 digits of the key's SHA-256>.jsonl``."""
        return self.folder / f"{_slug(info)}--{hashlib.sha256(_line(_key(info))).hexdigest()[:12]}.jsonl"

    def open(self, info: ModelInfo) -> ModelScores:
        """The scores of this version of the model, for reading and appending; use it in a ``with`` statement."""
        return ModelScores(self.path(info), _key(info))

    def facts(self, info: ModelInfo) -> dict[str, Any]:
        """What was found out about this version of the model besides its scores; {} if nothing, or nothing sound."""
        try:
            found = json.loads(_plain(self._facts_path(info)).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}  # it is found out again
        return found if isinstance(found, dict) else {}

    def keep_facts(self, info: ModelInfo, facts: dict[str, Any]) -> None:
        """Keep `facts` beside the scores, in the place of earlier ones."""
        write_text(self._facts_path(info), dump_json(facts))

    def _facts_path(self, info: ModelInfo) -> Path:
        return self.path(info).with_suffix(".facts.json")

    def other_versions(self, info: ModelInfo) -> list[str]:
        """One line, if the store has other versions of the same model: how many, and in what the newest differs."""
        own, others = _key(info), []
        for path in sorted(self.folder.glob(f"{_slug(info)}--*.jsonl")):
            if path == self.path(info):
                continue
            with open(_plain(path), "rb") as file:
                first = file.readline()
            if not first.endswith(b"\n"):
                continue  # its process was killed before the first score
            key = _parse(path, 1, first)
            if key.get("model") == info.id:
                others.append((path.stat().st_mtime_ns, path.name, key))
        if not others:
            return []
        _, name, key = max(others, key=lambda other: other[:2])
        more = f"; {len(others) - 1} older still" if len(others) > 1 else ""
        return [f"{name}: scores by {_differences(key, own)}{more}"]


def _slug(info: ModelInfo) -> str:
    return to_name(info.id.replace(":", "-"))[:80] or "model"


def _plain(path: Path) -> Path:
    """`path` itself; BananaError if it is there but no file of its own: a link leads elsewhere, a pipe never ends."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        kind = "a symbolic link" if path.is_symlink() else "a folder" if path.is_dir() else "not a regular file"
        raise BananaError(f"{path}: is {kind}; expected a file of scores, so move it away")
    return path


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """How key `old` differs from `new`: ``torch 2.1 (now 2.2), weights_sha256 ab12cd34 (now none)``."""

    def flat(key: dict[str, Any]) -> dict[str, str]:
        parts = {"weights_sha256": key.get("weights_sha256")}
        for name in ("options", "versions"):
            if isinstance(key.get(name), dict):
                parts |= key[name]
        short = {name: str(value)[: 12 if name.endswith("sha256") else 60] for name, value in parts.items()}
        return {name: "none" if parts[name] is None else text for name, text in short.items()}

    was, now = flat(old), flat(new)
    names = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
    return ", ".join(f"{name} {was.get(name, 'none')} (now {now.get(name, 'none')})" for name in names)


class ModelScores:
    """The scores of one version of one model; safe with several processes on the same file."""

    def __init__(self, path: Path, key: dict[str, Any]):
        self.path = path
        self._scores: dict[str, Score] = {}
        self._read = 0  # bytes of the file that are in _scores
        self._lines = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = open(_plain(path), "a+b", buffering=0)  # noqa: SIM115 - held open for appends
        except OSError as error:
            raise BananaError(f"cannot open {path}: {error.strerror or error}") from error
        try:
            with self._locked():
                if self._lines == 0:
                    self._write(_line(key))
                    self._refresh()
            self._check_key(key)
        except BaseException:
            self._file.close()
            raise

    def get(self, sha256: str) -> Score | None:
        """The last score of the image with this SHA-256, also if another process has added it since."""
        self._refresh()
        return self._scores.get(sha256)

    def append(self, score: Score) -> Score:
        """Keep `score`; return the score that stands.

        That is another process's if it came first with one that is not to be tried again.
        """
        with self._locked():
            standing = self._scores.get(score.sha256)
            if standing is not None and standing.status not in RETRIED:
                return standing
            self._write(_line(dataclasses.asdict(score)))
            self._refresh()
            return score

    def close(self) -> None:
        try:
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise BananaError(f"cannot write {self.path}: {error.strerror or error}") from error

    def __enter__(self) -> ModelScores:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file's lock, having read all that it holds and cut off a torn last line."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError as error:  # some network file systems have no locks
            raise BananaError(f"cannot lock {self.path}: {error.strerror or error}") from error
        try:
            self._refresh()
            if os.fstat(self._file.fileno()).st_size > self._read:
                self._file.truncate(self._read)  # whoever wrote it was killed: we have the lock
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _write(self, line: bytes) -> None:
        try:
            written = self._file.write(line)
            if written != len(line):
                raise OSError("the disk is full")
        except OSError as error:
            raise BananaError(f"cannot write {self.path}: {error.strerror or error}") from error

    def _refresh(self) -> None:
        """Read the whole lines that were added since the last call, by whomever."""
        size = os.fstat(self._file.fileno()).st_size
        if size < self._read:
            raise BananaError(f"{self.path}: became shorter while it was in use")
        if size == self._read:
            return
        data = os.pread(self._file.fileno(), size - self._read, self._read)
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._lines += 1
            row = _parse(self.path, self._lines, line)
            if self._lines == 1:
                self._key = row
            else:
                score = _score(self.path, self._lines, row)
                self._scores[score.sha256] = score
        self._read += len(whole)

    def _check_key(self, key: dict[str, Any]) -> None:
        if self._key != key:
            raise BananaError(f"{self.path} line 1: not the key of this model; move the file away to score it anew")


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BananaError(f"{path} line {number}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise BananaError(f"{path} line {number}: expected a JSON object")
    return row


def _finite(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def _score(path: Path, number: int, row: dict[str, Any]) -> Score:
    """The Score of a line; BananaError, naming the line, unless it is one that `append` could have written."""
    try:
        score = Score(**row)
    except TypeError as error:
        raise BananaError(f"{path} line {number}: not a score: {error}") from error
    value = score.score
    if (
        not isinstance(score.image_id, str)
        or not isinstance(score.sha256, str)
        or not _SHA256.fullmatch(score.sha256)
        or score.status not in STATUSES
        or not (_finite(value) if score.status == "ok" else value is None)
        or not isinstance(score.message, str | None)
        or not _finite(score.seconds)
        or not (score.spread is None or _finite(score.spread))
        or not isinstance(score.batch, int)
        or any(
            not isinstance(fact, int | None) for fact in (score.width, score.height, score.decode_policy, score.threads)
        )
    ):
        raise BananaError(
            f"{path} line {number}: not a score: expected image_id, sha256 (64 hex digits), status (one of "
            f"{', '.join(STATUSES)}), a finite score if ok, else null; seconds and spread finite"
        )
    return score
