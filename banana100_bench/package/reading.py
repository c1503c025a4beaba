"""Read candidates, some ahead of the one that is wanted, and say what each is: a row with its bytes, or a fault."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from banana100_bench.errors import BananaError
from banana100_bench.files import printable, sha256_bytes
from banana100_bench.images import ImageFacts, probe
from banana100_bench.package.layouts import Candidate
from banana100_bench.package.manifest import Fault, Note
from banana100_bench.package.source import Source
from banana100_bench.progress import progress
from banana100_bench.raw import EXTENSIONS, read_file
from banana100_bench.records import Row

EXAMPLES = 3


@dataclass(kw_only=True)
class Tally:
    """What was read so far. odd: what is to be known of an image, by its id."""

    rows: list[Row] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    odd: dict[str, list[str]] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        self.rows += other.rows
        self.faults += other.faults
        self.odd |= other.odd


@dataclass(frozen=True)
class _Seen:
    data: bytes
    facts: ImageFacts
    sha256: str


class Reader:
    """Reads images of one source; `workers` threads are at work ahead, each on one image."""

    def __init__(self, source: Source, workers: int):
        self._source = source
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="read")
        self._ahead = workers + 1
        self._digests: dict[str, str | None] = {}  # by image id, of what was read; None: it is unreadable

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def read(self, candidates: Sequence[Candidate], tally: Tally) -> Iterator[tuple[Row, bytes]]:
        """The rows of those of `candidates` that are sound, in order, with their encoded images.

        All is entered in `tally`, what is unsound as well. At most `workers` + 2 images are in memory.
        """
        upcoming = iter(candidates)
        waiting: deque[tuple[Candidate, Future[_Seen]]] = deque()
        for one in islice(upcoming, self._ahead):
            waiting.append((one, self._pool.submit(_look, one)))
        while waiting:
            one, future = waiting.popleft()
            for following in islice(upcoming, 1):
                waiting.append((following, self._pool.submit(_look, following)))
            yield from self._take(one, future, tally)

    def _take(self, one: Candidate, future: Future[_Seen], tally: Tally) -> Iterator[tuple[Row, bytes]]:
        try:
            seen = future.result()
        except _Changed:
            raise
        except BananaError as error:
            self._digests[one.image_id] = None
            tally.faults.append(Fault(image_id=one.image_id, file=one.name, problem=_short(error, one)))
            return
        self._digests[one.image_id] = seen.sha256
        facts = seen.facts
        odd = [*facts.odd]
        if _EXTENSION.get(one.path.suffix.lower(), facts.format) != facts.format:
            odd.append(f"a {facts.format} file called {one.path.suffix.lower()}")
        row = Row(
            **{**one.facts, "parent_sha256": self._parent(one)},
            width=facts.width,
            height=facts.height,
            format=facts.format,
            num_bytes=len(seen.data),
            sha256=seen.sha256,
        )
        tally.rows.append(row)
        if odd:
            tally.odd[row.image_id] = odd
        yield row, seen.data

    def _parent(self, one: Candidate) -> str | None:
        """The SHA-256 of the image that `one` was made from: as a journal tells it, else by reading that."""
        told: str | None = one.facts.get("parent_sha256")
        parent = self._source.parent(one) if told is None and one.run_id else None
        if parent is None:
            return told
        if parent.image_id not in self._digests:  # it stands in another file
            try:
                self._digests[parent.image_id] = _look(parent).sha256
            except _Changed:
                raise
            except BananaError:  # told when its own turn comes
                self._digests[parent.image_id] = None
        return self._digests[parent.image_id]


_EXTENSION = {f".{ending}": kind for kind, ending in EXTENSIONS.items()} | {".jpeg": "JPEG"}


class _Changed(BananaError):
    """A file is another than when it was found; what was read of it before, as of a parent, may not hold."""


def _look(one: Candidate) -> _Seen:
    data = read_file(one.path)
    facts = probe(data, str(one.path))
    now = one.path.stat()
    if (now.st_size, now.st_mtime_ns) != (one.size, one.changed):
        raise _Changed(f"{printable(str(one.path))}: changed while the images were read; the same call begins anew")
    sha256 = sha256_bytes(data)
    if one.sha256 not in (None, sha256):
        raise BananaError(f"{one.path}: SHA-256 {sha256[:12]}..., expected {str(one.sha256)[:12]}...")
    return _Seen(data, facts, sha256)


def _short(error: BananaError, one: Candidate) -> str:
    """What is wrong, without the path, which differs from machine to machine."""
    return printable(str(error).removeprefix(f"{one.path}: ").replace(str(one.path), one.name))


def survey(source: Source, workers: int) -> Tally:
    """Read all of `source` and keep no image."""
    tally = Tally(faults=list(source.faults))
    with Reader(source, workers) as reader, progress("checking", len(source.candidates)) as advance:
        for _ in reader.read(source.candidates, tally):
            advance(1)
    return tally


def notes(rows: Iterable[Row], odd: Mapping[str, Iterable[str]]) -> tuple[Note, ...]:
    """What there is to know of the images: what their headers say, sizes that change in a run, equal bytes."""
    found: dict[str, list[str]] = defaultdict(list)
    runs: dict[str, list[Row]] = defaultdict(list)
    same: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        for what in odd.get(row.image_id, ()):
            found[what].append(row.image_id)
        same[row.sha256].append(row)
        if row.run_id:
            runs[row.run_id].append(row)
            if row.sha256 == row.parent_sha256:
                found["the bytes of the image it was made from, unchanged"].append(row.image_id)
    for ones in runs.values():
        size, _ = Counter((row.width, row.height) for row in ones).most_common(1)[0]
        found["another size than most images of its run"] += [
            row.image_id for row in ones if (row.width, row.height) != size
        ]
    for ones in same.values():
        if len(ones) > 1:
            found["the bytes of another image of the dataset as well"] += [row.image_id for row in ones]
    return tuple(
        Note(what=what, images=len(ids), examples=tuple(ids[:EXAMPLES])) for what, ids in sorted(found.items()) if ids
    )
