"""What models there are, and which can run without a network."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from banana100_bench.errors import BananaError, unknown_name
from banana100_bench.models import known_models, pyiqa_models, suites
from banana100_bench.progress import progress


@dataclass(frozen=True)
class Listed:
    """A model in the list. range: rough, as its library states it."""

    id: str
    higher_is_better: bool
    range: str


@dataclass(frozen=True)
class Checked:
    """Whether a model opens without a network. parameters: of its network, None if it does not open.

    missing: why it does not open, naming the file that is not there; "" if it does.
    """

    parameters: int | None
    missing: str


def listed(pattern: str = "*") -> list[Listed]:
    """The models whose id matches `pattern`, a ``suite:NAME`` or a shell pattern, as ``pyiqa:musiq*``."""
    known = known_models()
    if pattern.startswith(suites.PREFIX):
        wanted = suites.expand([pattern])
    else:
        wanted = fnmatch.filter(known, pattern)
        if not wanted:
            raise unknown_name("model", pattern, known)
    return [_listed(spec) for spec in wanted]


def _listed(spec: str) -> Listed:
    kind, _, name = spec.partition(":")
    if kind == "baseline":
        return Listed(spec, True, "")
    return Listed(spec, *pyiqa_models.facts(name))


def licence() -> str:
    """One line on the licence of the weights: what pyiqa says of itself, which states none for its weight files."""
    code = importlib.metadata.metadata("pyiqa").json.get("license_expression", "unknown")
    return f"pyiqa is {code}; it states no licence for single weight files: ask their authors before commercial use"


def check(spec: str) -> Checked:
    """Open the model with what is on this machine, and no network."""
    kind, _, name = spec.partition(":")
    if kind != "pyiqa":
        return Checked(0, "")
    try:
        return Checked(pyiqa_models.parameters(name), "")
    except BananaError as error:
        return Checked(None, str(error))


def fetch(specs: Sequence[str], to: Path) -> Iterator[tuple[str, Checked]]:
    """Download the weights of the models into the folder `to`, and say of each whether it then opens.

    The folder serves on a machine without a network by the variables of `variables`. It must be asked for
    before huggingface_hub or PyTorch is loaded, which read them once.
    """
    loaded = sorted({"torch", "huggingface_hub"} & set(sys.modules))
    if loaded:
        raise BananaError(f"fetch: {loaded[0]} is loaded already, with its own cache folder; use a new process")
    os.environ.update(variables(to))
    for spec in specs:
        kind, _, name = spec.partition(":")
        try:
            yield spec, Checked(pyiqa_models.parameters(name, network=True) if kind == "pyiqa" else 0, "")
        except BananaError as error:
            yield spec, Checked(None, str(error))


def variables(folder: Path) -> dict[str, str]:
    """The environment variables that make `folder` the cache of the Hub's clients and of PyTorch."""
    whole = folder.resolve()
    return {"HF_HOME": str(whole / "huggingface"), "TORCH_HOME": str(whole / "torch")}


def show(pattern: str, checked: bool) -> None:
    """Print the list, and with `checked` also parameters and presence, which opens every model."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    found = listed(pattern)
    table = Table(box=None, pad_edge=False)
    columns = ["model", "better", "range", *(["parameters", "offline"] if checked else [])]
    for column in columns:
        table.add_column(column, overflow="fold")
    facts: dict[str, Checked] = {}
    if checked:
        with progress("opening", len(found), "models") as advance:
            for model in found:
                facts[model.id] = check(model.id)
                advance(1)
    for model in found:
        cells = [model.id, "higher" if model.higher_is_better else "lower", model.range]
        if checked:
            count = facts[model.id].parameters
            cells += ["" if count is None else f"{count / 1e6:.1f} M", facts[model.id].missing or "present"]
        table.add_row(*map(escape, cells))
    Console().print(table)
    if any(model.id.startswith("pyiqa:") for model in found):
        print(licence())
    print(f"{len(found)} models; suites: {', '.join(f'suite:{name}' for name in suites.NAMES)}")
    if not checked:
        print("--check opens each, without a network, for its parameters and what is missing")
