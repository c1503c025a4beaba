"""Where a dataset lies: a folder on this machine, or a repository on the Hub that is read by ranges, at one commit.

Both give the same: the list of files, whole small files, and files to read parts of, with every byte counted.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import printable
from banana100_bench.package.walking import File, inside, walk

_ID = r"[\w.-]{1,96}/[\w.-]{1,96}"
_HUB = re.compile(rf"(?:hf://datasets/)?(?P<repo>{_ID})(?:@(?P<revision>[\w./-]+))?")


NEAR = 64 << 10  # bytes that are rather read than asked for apart
TAIL = 64 << 10  # bytes at the end of a Parquet file that are likely to hold its footer


@dataclass
class Traffic:
    """What was read so far: bytes, and how many times something was asked for."""

    bytes: int = 0
    requests: int = 0

    def add(self, count: int) -> None:
        self.bytes += count
        self.requests += 1


class Storage(Protocol):
    """A dataset folder, wherever it is. Its text is what a person would call it."""

    traffic: Traffic

    @property
    def address(self) -> str:
        """What `open_storage` finds the same state by, in any process."""
        ...

    def files(self) -> dict[str, File]:
        """All files by name, hidden ones left out; File.sha256 where the place tells it."""
        ...

    def open(self, name: str, size: int | None = None) -> Counted:
        """The file to read parts of; `size` saves a question where it is known. BananaError where it is not there."""
        ...

    def read(self, name: str, max_bytes: int) -> bytes:
        """The whole file; BananaError where it is not there or larger."""
        ...


def open_storage(source: str | Path | Storage) -> Storage:
    """The dataset at `source`: a folder, ``ORG/NAME[@REVISION]`` or ``hf://datasets/ORG/NAME[@REVISION]``.

    A folder comes first where both could be meant. Raises BananaError where there is neither.
    """
    if not isinstance(source, str | Path):
        return source
    text = str(source)
    if not text.startswith("hf://"):
        if Path(source).is_dir():
            return Folder(Path(source))
        if isinstance(source, Path) or not _HUB.fullmatch(text) or Path(source).exists():
            raise BananaError(
                f"{source}: no such folder; expected a dataset folder, as `banana100 build` writes it, "
                "or ORG/NAME of a dataset on the Hub"
            )
    return HubDataset.parse(text)


def check_inside(name: str) -> str:
    """Return `name`, a path relative to a dataset; BananaError where it would lead out of it."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or path.as_posix() != name:
        raise BananaError(f"{printable(name)[:200]!r}: expected the name of a file inside the dataset")
    return name


class Counted(io.RawIOBase):
    """Read-only access to parts of something of a known size; what is read is counted."""

    def __init__(self, size: int, traffic: Traffic):
        self._size, self._at, self._traffic = size, 0, traffic

    def local(self) -> Path:
        """A file that a Parquet reader may open: its footer is there, and whatever `hold` was called for.

        Not this object itself: a reader calls Python's file objects from threads of its own, which may end the
        process with an abort when they meet the end of the program.
        """
        raise NotImplementedError

    def hold(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Have these (start, end) in the file of `local`, near ones fetched at once, and no others."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            if merged and start - merged[-1][1] <= NEAR:
                start, end = merged[-1][0], max(end, merged.pop()[1])
            merged.append((start, end))
        self._hold(merged)

    def _hold(self, ranges: list[tuple[int, int]]) -> None:
        raise NotImplementedError

    def fetch(self, start: int, end: int) -> bytes:
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        data = self.fetch(self._at, end)
        self._traffic.add(len(data))
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Local(Counted):
    def __init__(self, path: Path, traffic: Traffic):
        self._path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by `close`
        super().__init__(path.stat().st_size, traffic)

    def fetch(self, start: int, end: int) -> bytes:
        self._file.seek(start)
        return self._file.read(end - start)

    def local(self) -> Path:
        self.seek(-min(8, self._size), io.SEEK_END)
        self._traffic.add(int.from_bytes(self.read(8)[:4], "little"))  # the footer, which the reader will read
        return self._path

    def _hold(self, ranges: list[tuple[int, int]]) -> None:
        for start, end in ranges:
            self._traffic.add(end - start)

    def close(self) -> None:
        self._file.close()
        super().close()


@dataclass
class Folder:
    """A dataset on this machine; nothing outside it is read, but for the Hub's cache if it is a snapshot there."""

    path: Path
    traffic: Traffic = field(default_factory=Traffic)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def address(self) -> str:
        return str(self.path.resolve())

    def files(self) -> dict[str, File]:
        return walk(self.path)

    def _place(self, name: str) -> Path:
        return inside(self.path, check_inside(name))

    def open(self, name: str, size: int | None = None) -> Counted:
        try:
            return _Local(self._place(name), self.traffic)
        except OSError as error:
            raise BananaError(f"cannot read {self.path / name}: {error.strerror or error}") from error

    def read(self, name: str, max_bytes: int) -> bytes:
        with self.open(name) as file:
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise BananaError(f"{self.path / name}: larger than the limit of {max_bytes} bytes")
        return data


class _Ranges(Counted):
    """A file on the Hub; each read is a request for a range."""

    def __init__(self, url: str, size: int, traffic: Traffic, headers: dict[str, str], name: str):
        super().__init__(size, traffic)
        self._url, self._headers, self._name = url, headers, name
        self._copy: IO[bytes] | None = None  # as large as the file, but only what was fetched takes room

    def local(self) -> Path:
        self._copy = tempfile.NamedTemporaryFile(prefix="banana100-")  # noqa: SIM115 - gone with this object
        self._copy.truncate(self._size)
        start = max(0, self._size - TAIL)
        self._fetch_to_copy(start, self._size)
        self._copy.seek(max(0, self._size - 8))
        footer = self._size - 8 - int.from_bytes(self._copy.read(4), "little")
        if 0 <= footer < start:
            self._fetch_to_copy(footer, start)
        return Path(self._copy.name)

    def _hold(self, ranges: list[tuple[int, int]]) -> None:
        assert self._copy is not None
        self._copy.truncate(0)
        self._copy.truncate(self._size)
        for start, end in ranges:
            self._fetch_to_copy(start, min(end, self._size))

    def _fetch_to_copy(self, start: int, end: int) -> None:
        assert self._copy is not None
        self.seek(start)
        self._copy.seek(start)
        self._copy.write(self.read(end - start))
        self._copy.flush()

    def fetch(self, start: int, end: int) -> bytes:
        from huggingface_hub.utils import hf_raise_for_status, http_backoff

        with hub_errors(self._name):
            headers = {**self._headers, "range": f"bytes={start}-{end - 1}"}
            answer = http_backoff("GET", self._url, headers=headers, timeout=60, follow_redirects=True)
            hf_raise_for_status(answer)
        if len(answer.content) != end - start:
            raise BananaError(f"{self._name}: {len(answer.content)} bytes came, {end - start} were asked for")
        return answer.content


@dataclass
class HubDataset:
    """A dataset repository on the Hub, at one commit. revision: as asked for."""

    repo_id: str
    revision: str = "main"
    traffic: Traffic = field(default_factory=Traffic)

    @classmethod
    def parse(cls, text: str) -> HubDataset:
        """``ORG/NAME``, ``hf://datasets/ORG/NAME``, each perhaps with ``@REVISION``; UsageError for anything else."""
        found = _HUB.fullmatch(text)
        if not found or ".." in text:
            raise UsageError(f"{printable(text)}: expected hf://datasets/ORG/NAME, perhaps with @REVISION")
        return cls(found["repo"], found["revision"] or "main")

    def __str__(self) -> str:
        return f"hf://datasets/{self.repo_id}" + (f"@{self.revision}" if self.revision != "main" else "")

    @property
    def address(self) -> str:
        return f"hf://datasets/{self.repo_id}@{self.commit}"

    @cached_property
    def commit(self) -> str:
        """The commit that `revision` named when it was first asked for: all is read as of that moment."""
        from huggingface_hub import HfApi

        with hub_errors(str(self)):
            self.traffic.add(0)
            return str(HfApi().dataset_info(self.repo_id, revision=self.revision, expand=["sha"]).sha)

    def files(self) -> dict[str, File]:
        from huggingface_hub import HfApi
        from huggingface_hub.hf_api import RepoFile

        with hub_errors(str(self)):
            self.traffic.add(0)
            listed = HfApi().list_repo_tree(self.repo_id, repo_type="dataset", revision=self.commit, recursive=True)
            found = {
                entry.path: File(Path(entry.path), entry.size, 0, entry.lfs.sha256 if entry.lfs else None)
                for entry in listed
                if isinstance(entry, RepoFile)
            }
        return {name: found[name] for name in sorted(found) if not any(p.startswith(".") for p in name.split("/"))}

    def open(self, name: str, size: int | None = None) -> Counted:
        from huggingface_hub import HfApi, hf_hub_url
        from huggingface_hub.hf_api import RepoFile
        from huggingface_hub.utils import build_hf_headers

        full = f"{self}/{check_inside(name)}"
        if size is None:
            with hub_errors(full):
                self.traffic.add(0)
                found = HfApi().get_paths_info(self.repo_id, name, repo_type="dataset", revision=self.commit)
                size = next((entry.size for entry in found if isinstance(entry, RepoFile)), None)
            if size is None:
                raise BananaError(f"{full}: no such file")
        url = hf_hub_url(self.repo_id, name, repo_type="dataset", revision=self.commit)
        return _Ranges(url, size, self.traffic, build_hf_headers(), full)

    def read(self, name: str, max_bytes: int) -> bytes:
        with self.open(name) as file:
            size = file.seek(0, io.SEEK_END)
            if size > max_bytes:
                raise BananaError(f"{self}/{name}: {size} bytes, larger than the limit of {max_bytes}")
            file.seek(0)
            return file.read()


@contextlib.contextmanager
def hub_errors(what: str) -> Iterator[None]:
    """Turn the errors of the Hub's client into one line that names `what` and says what to do."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise BananaError(f"{what}: its owner must let you in: ask for access on its page on the Hub") from error
    except errors.RepositoryNotFoundError as error:
        said = "no such dataset on the Hub, or one that your token may not see; `hf auth login` sets a token"
        raise BananaError(f"{what}: {said}") from error
    except errors.RevisionNotFoundError as error:
        raise BananaError(f"{what}: no such branch, tag or commit") from error
    except errors.EntryNotFoundError as error:
        raise BananaError(f"{what}: no such file") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else None
        hint = {
            401: "the token is not valid; `hf auth login` sets another",
            403: "the token may not do this",
            429: "the Hub asks for patience; try again later",
        }.get(status or 0, "")
        words = " ".join(str(error.server_message or error).split())[:300]
        raise BananaError(f"{what}: {status or 'error'}: {printable(words)}{'; ' if hint else ''}{hint}") from error
    except (errors.OfflineModeIsEnabled, OSError) as error:
        raise BananaError(f"{what}: the Hub cannot be reached: {' '.join(str(error).split())[:300]}") from error
    except Exception as error:
        if not is_network_error(error):
            raise
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise BananaError(f"{what}: the Hub cannot be reached: {said}") from error


def is_network_error(error: BaseException) -> bool:
    """True for an error of the Hub client's connection: no answer came. (The library beneath it has changed names.)"""
    return type(error).__module__.partition(".")[0] in ("httpx2", "httpx", "httpcore2", "httpcore")
