"""Find the images that a dataset can be made of and how they belong together, before any of them is read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from banana100_bench import images
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import printable, sha256_bytes
from banana100_bench.package import layouts
from banana100_bench.package.layouts import Candidate, Listing
from banana100_bench.package.manifest import Fault, Gap
from banana100_bench.package.proposal import propose
from banana100_bench.package.storage import HubDataset
from banana100_bench.package.walking import File, walk
from banana100_bench.raw import read_file
from banana100_bench.records import Row, image_id

SHOWN = 3  # problems named in a message; the others are counted


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a dataset can be made of. Its images may turn out unreadable: see `reading`.

    where, says: the source and how it was read, for a person. candidates: one an image, in `row_order`.
    expected: the initial image and the last round of each run, by run id. faults: images left out already.
    repeats: files that are another file again. unused: files that are no part of any run.
    hub: where the files are, if they are not here.
    """

    where: str
    says: str
    candidates: list[Candidate]
    expected: dict[str, tuple[str, int]]
    faults: list[Fault]
    repeats: list[str]
    unused: list[str]
    hub: HubDataset | None = None

    @property
    def bytes(self) -> int:
        return sum(one.size for one in self.candidates)

    def parent(self, one: Candidate) -> Candidate | None:
        """The image that `one` was made from, where it is here."""
        return self._by_id.get(image_id(one.run_id if one.round > 1 else None, one.initial_image, one.round - 1))

    @cached_property
    def _by_id(self) -> dict[str, Candidate]:
        return {one.image_id: one for one in self.candidates}

    def describe(self) -> str:
        """How the files were understood, on a few lines, for a person to check before they are packed."""
        edited = [one for one in self.candidates if one.run_id]
        runs = {one.run_id for one in edited}
        lines = [
            f"{self.where}: {self.says}: {len(edited)} images in {len(runs)} runs, "
            f"{len(self.candidates) - len(edited)} initial images, {self.bytes / 1e6:.1f} MB"
        ]
        for name in ("setting", "setting_group", "initial_image", "editor", "repetition", "round", "period"):
            values = sorted(
                {one.facts.get(name) for one in edited} - {None}, key=lambda value: (str(type(value)), value)
            )
            if values:
                shown = f"{values[0]} to {values[-1]}" if name == "round" else few(map(str, values), 6)
                lines.append(f"  {name + ':':15}{len(values)} ({shown})")
        for one in edited[:: max(1, len(edited) // 3)][:3]:
            lines.append(f"  {one.name} -> {one.image_id}")
        return "\n".join(lines)

    def leftovers(self) -> list[str]:
        """Files that nothing is made of, a line each kind."""
        lines = []
        if self.repeats:
            lines.append(f"files there twice: {len(self.repeats)}: {few(self.repeats)}")
        if self.unused:
            lines.append(f"not used: {len(self.unused)} files that are no part of a run: {few(self.unused)}")
        return lines


def row_order(row: Row | Candidate) -> tuple[str, int, str]:
    """The key by which rows are sorted everywhere: by run, then round; initial images come first."""
    return (row.run_id or "", row.round, row.initial_image)


def few(names: Iterable[str], shown: int = SHOWN, between: str = ", ") -> str:
    """The first of `names`, and how many more there are."""
    listed = list(names)
    more = f"{between}and {len(listed) - shown} more" if len(listed) > shown else ""
    return between.join(listed[:shown]) + more


def find(
    raw: str | Path,
    pattern: str | None = None,
    constants: Mapping[str, str] | None = None,
    files: Mapping[str, File] | None = None,
) -> Source:
    """Find the images in `raw`, reading none of them.

    raw: a folder of raw runs (`banana100_bench.raw`); or a CSV, JSON-lines or Parquet table that lists files
        (`layouts.from_table`); or any tree of images, a snapshot in the Hub's cache as well.
    pattern, constants: how paths tell the facts, and facts that all images share (`tree.match`). Without a pattern
        a tree gets the one that `proposal.propose` guesses; `Source.describe` shows what came of it.
    files: what `walk` gave for the folder, where that is known already.

    A run should have the rounds that were asked for, or, where no one recorded that, as many as the longest run of
    its setting and editor. Of several files for one image the first is taken if their bytes are the same; else none
    is, for no one can say which is right. Raises BananaError for what no dataset can truly say: facts that change
    within a run, initial images of one name that differ, a broken chain, simulated beside real images; for a symbolic
    link and a path that leads out of the folder; and where there is no image at all. It names the first few problems
    and counts the others.
    """
    raw, constants = Path(raw), constants or {}
    table = raw if raw.suffix.lower() in layouts.TABLES and raw.is_file() else None
    if table and pattern is not None:
        raise UsageError(f"{raw}: a table lists its files; a pattern is for a folder")
    folder = raw.parent if table else raw
    files = walk(folder) if files is None else files
    listing = _list(raw, table, files, pattern, constants)
    if not any(one.run_id for one in listing.candidates):
        raise BananaError(f"{raw}: no images of any round after 0 ({len(files)} files looked at)")
    _refuse(raw, _contradictions(listing.candidates))
    candidates, faults, repeats = _one_file_each(raw, listing.candidates)
    used = {one.path for one in listing.candidates}
    bookkeeping = layouts.is_bookkeeping if listing.planned else {table.name if table else ""}.__contains__
    return Source(
        where=printable(str(raw)),
        says=listing.says,
        candidates=sorted(candidates, key=row_order),
        expected=_expected(listing),
        faults=faults,
        repeats=repeats,
        unused=[printable(name) for name, file in files.items() if file.path not in used and not bookkeeping(name)],
    )


def _list(
    raw: Path, table: Path | None, files: Mapping[str, File], pattern: str | None, constants: Mapping[str, str]
) -> Listing:
    if table:
        return layouts.from_table(table, files, constants)
    if pattern is None and any(PurePosixPath(name).match("runs/*/run.json") for name in files):
        if constants:
            raise UsageError("facts can be given only with a pattern or a table: raw runs carry their own")
        return layouts.from_runs(raw)
    if pattern is None:
        guess = propose(files)
        if guess is None:
            raise BananaError(
                f"{raw}: holds no runs/ folder, as `banana100 generate` writes, and none of its {len(files)} files "
                "looks like an image of a round; give a pattern to read another layout"
            )
        try:
            listing = layouts.from_tree(str(raw), files, guess.pattern, constants)
        except UsageError as error:
            raise UsageError(f"{error} (pattern guessed: {guess.pattern})") from error
        said = f"{listing.says}, guessed, fits {guess.fits} of {guess.images} image files"
        return Listing(says=said, candidates=listing.candidates)
    return layouts.from_tree(str(raw), files, pattern, constants)


def _expected(listing: Listing) -> dict[str, tuple[str, int]]:
    """The initial image and the last round of each run: as asked for, or that of the longest run of its kind."""
    longest: Counter[tuple[str | None, str | None]] = Counter()
    runs: dict[str, Candidate] = {}
    for one in listing.candidates:
        if one.run_id:
            runs[one.run_id] = one
            kind = (one.facts.get("setting"), one.facts.get("editor"))
            longest[kind] = max(longest[kind], one.round)
    expected = {
        run: (one.initial_image, longest[one.facts.get("setting"), one.facts.get("editor")])
        for run, one in runs.items()
    }
    return expected | {run: (listing.starts[run], rounds) for run, rounds in listing.planned.items()}


def gaps(rows: Iterable[Row], expected: Mapping[str, tuple[str, int]]) -> tuple[Gap, ...]:
    """What `rows` lack of the rounds 0 to the last expected one, run by run."""
    initial = set()
    rounds: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        if row.run_id is None:
            initial.add(row.initial_image)
        else:
            rounds[row.run_id].add(row.round)
    missing = {
        run: ([] if start in initial else [0]) + sorted(set(range(1, last + 1)) - rounds[run])
        for run, (start, last) in sorted(expected.items())
    }
    return tuple(Gap(run_id=run, rounds=tuple(numbers)) for run, numbers in missing.items() if numbers)


def _contradictions(candidates: Iterable[Candidate]) -> list[str]:
    """What no dataset can truly say, as far as it can be told without reading an image."""
    problems = []
    runs: dict[str, list[Candidate]] = defaultdict(list)
    for one in candidates:
        if one.run_id:
            runs[one.run_id].append(one)
    for run, ones in sorted(runs.items()):
        for name in ("setting_group", "period", "style", "simulated"):
            if len({one.facts.get(name) for one in ones}) > 1:
                problems.append(f"{run}: {name} differs between its rounds")
    examples = {one.facts.get("simulated", False): run for run, ones in runs.items() for one in ones}
    if len(examples) > 1:
        problems.append(f"simulated images ({examples[True]}) and real ones ({examples[False]}) do not go together")
    return problems


def _one_file_each(raw: Path, candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[Fault], list[str]]:
    """One candidate an image, the images for which there are several that differ, and the files not needed."""
    files: dict[str, list[Candidate]] = defaultdict(list)
    for one in candidates:
        files[one.image_id].append(one)
    chosen, faults, repeats, problems = [], [], [], []
    for image, ones in files.items():
        first, *others = ones
        if not others or len({_digest(one) for one in ones}) == 1:
            chosen.append(first)
            repeats += [one.name for one in others]
        elif first.run_id is None:
            problems.append(f"{first.name} and {others[0].name} differ, but are both {image}")
        else:
            names = few(one.name for one in others)
            faults.append(Fault(image_id=image, file=first.name, problem=f"another file is the same round: {names}"))
    _refuse(raw, problems)
    return chosen, faults, repeats


def _digest(one: Candidate) -> str:
    """The SHA-256 of the file's bytes; where it cannot be read, something that no other file has."""
    if one.sha256:
        return one.sha256
    try:
        return sha256_bytes(read_file(one.path, images.MAX_BYTES))
    except BananaError:
        return one.name


def _refuse(raw: Path, problems: list[str]) -> None:
    if problems:
        raise BananaError(f"{raw}: {len(problems)} contradictions: {few(problems, between='; ')}")
