"""A pattern for a tree of images, guessed from the names of its files, for a person to look at before it is used.

A path is taken apart into folders and the file's stem. What all paths share stays as it is; what differs becomes a
field: a number after rep, run, ... is the repetition, the number with the most values of the file's name the round,
a name that the protocol knows the setting, and so on. Pure functions on names.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from banana100_bench.package.tree import compile_pattern
from banana100_bench.protocol import SETTINGS, STYLES
from banana100_bench.records import to_name

_IMAGE = re.compile(r"(?i)(.+)\.(?:png|jpe?g|webp)")
_NUMBERED = (  # the word before a number, and what the number is
    ("repetition", re.compile(r"(?i)(?:^|[^a-z])(?:r|rep|repeat|repetition|run|trial|try|sample|chain)[^a-z0-9]*$")),
    ("seed", re.compile(r"(?i)(?:^|[^a-z])seed[^a-z0-9]*$")),
    ("round", re.compile(r"(?i)(?:^|[^a-z])(?:step|round|iter|iteration|turn|edit|generation|gen|s|t)[^a-z0-9]*$")),
)
_EDITOR = re.compile(r"(?i)gemini|nano|banana|flux|qwen|gpt|kontext|seedream|imagen|pix2pix|step1x|bagel|omnigen")


@dataclass(frozen=True)
class Proposal:
    """pattern: in the terms of `tree.match`. fits: how many of the images it takes, of how many there are."""

    pattern: str
    fits: int
    images: int


def propose(names: Iterable[str]) -> Proposal | None:
    """The pattern that fits most of the images among the files `names`; None where nothing looks like a round."""
    images = [name for name in names if _IMAGE.fullmatch(name) and "{" not in name and "}" not in name]
    found = []
    for depth, _ in Counter(name.count("/") for name in images).most_common(3):
        pattern = _pattern([name for name in images if name.count("/") == depth])
        if "{round}" in pattern:
            shape = compile_pattern(pattern)
            found.append(Proposal(pattern, sum(1 for name in images if shape.fullmatch(name)), len(images)))
    return max(found, key=lambda one: one.fits, default=None)


def _pattern(images: Sequence[str]) -> str:
    """One pattern for paths of one depth."""
    *folders, files = zip(*(name.split("/") for name in images), strict=True)
    taken: set[str] = set()
    parts = [_folder(level, taken) for level in folders]
    texts = [at for at, part in enumerate(parts) if part is None]  # folders named we know not after what
    stems = [_IMAGE.sub(r"\1", file) for file in files]
    stem = _stem(stems, taken, named=bool(texts))
    names = [name for name in ("initial_image", "setting") if name not in taken]
    for at in reversed(texts):  # the innermost is the image
        parts[at] = f"{{{names.pop(0)}}}" if names else "{_}"
    endings = {file[len(stem_) + 1 :] for file, stem_ in zip(files, stems, strict=True)}
    return "/".join([*map(str, parts), f"{stem}.{endings.pop() if len(endings) == 1 else '{ext}'}"])


def _folder(level: Sequence[str], taken: set[str]) -> str | None:
    """The part of a pattern for one level of folders; None where it could be any name. Adds its field to `taken`."""
    values = set(level)
    if len(values) == 1:
        return level[0]
    numbered = [re.fullmatch(r"(.*?)(\d+)", value) for value in values]
    prefixes = {found[1] for found in numbered if found}
    if all(numbered) and len(prefixes) == 1:
        prefix = prefixes.pop()
        name = next((name for name, word in _NUMBERED if word.search(prefix)), None if prefix else "repetition")
        return None if name is None or name in taken else prefix + _take(name, taken)
    for name, known in (
        ("setting", lambda value: to_name(value) in SETTINGS),
        ("style", lambda value: value in STYLES),
        ("editor", _EDITOR.search),
    ):
        if name not in taken and 2 * sum(1 for value in values if known(value)) > len(values):
            return _take(name, taken)
    return None


def _stem(stems: Sequence[str], taken: set[str], named: bool) -> str:
    """The part of a pattern for the names of files. named: the folders tell the initial image."""
    split = [re.split(r"(\d+)", stem) for stem in stems]  # text, number, text, ..., text
    length = Counter(map(len, split)).most_common(1)[0][0]
    columns = list(zip(*(pieces for pieces in split if len(pieces) == length), strict=True))
    fields: dict[int, str] = {}
    for at in range(1, length, 2):
        before = columns[at - 1][0]
        name = next((name for name, word in _NUMBERED if word.search(before)), None)
        if name and name not in taken:
            fields[at] = name
            taken.add(name)
    free = [at for at in range(1, length, 2) if at not in fields and len(set(columns[at])) > 1]
    for at in sorted(free, key=lambda at: -len(set(columns[at]))):
        name = next((name for name in ("round", "repetition") if name not in taken), "_")
        fields[at] = name
        taken.add(name)
    text = ""
    for at, column in enumerate(columns):
        if at in fields:
            text += f"{{{fields[at]}}}"
        elif len(set(column)) == 1:
            text += column[0]
        elif at % 2:
            text += "{_}"
        else:
            text += _text(column, taken, named)
    return text


def _text(column: Sequence[str], taken: set[str], named: bool) -> str:
    """The part of a pattern for a piece of text that differs: what its values share stays."""
    start = os.path.commonprefix(list(column))  # noqa: RUF071 - of characters, indeed
    rest = [value[len(start) :] for value in column]
    end = os.path.commonprefix([value[::-1] for value in rest])[::-1]  # noqa: RUF071
    free = not named and "initial_image" not in taken
    return start + (_take("initial_image", taken) if free else "{_}") + end


def _take(name: str, taken: set[str]) -> str:
    taken.add(name)
    return f"{{{name}}}"
