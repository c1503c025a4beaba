"""A `datasets` builder that makes Banana100 examples straight from raw runs, without the dataset folder.

Whom it is for: people who build or change raw runs and want them in `datasets` at once. Everyone else opens the dataset
that `banana100 build` wrote, which needs no code: ``load_dataset("banana100")``.

By class, on any `datasets` (4 and later refuse scripts, but not classes)::

    from loading_script.banana100 import Banana100
    builder = Banana100(raw="raw")
    builder.download_and_prepare()
    examples = builder.as_dataset("test")

By path, on datasets 3.x alone, with banana100_bench importable::

    load_dataset("loading_script/banana100.py", "key_rounds", raw="raw", split="test", trust_remote_code=True)

This file must not lie in a dataset folder or at the root of the published repository: `datasets` refuses to load those
(`banana100 verify` calls it an orphan there, and `banana100 push` does not send it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import datasets

import banana100_bench
from banana100_bench import records
from banana100_bench.package import card
from banana100_bench.package.layouts import Candidate
from banana100_bench.package.reading import Reader, Tally
from banana100_bench.package.source import find
from banana100_bench.protocol import KEY_ROUNDS
from banana100_bench.raw import EXTENSIONS


@dataclass
class Banana100Config(datasets.BuilderConfig):
    """raw, pattern: as in `banana100_bench.package.source.find`. constants: facts as ``"editor=x,setting=y"``.

    key_only: the rounds of the paper's criterion alone. initial: round 0 instead of the later ones.
    """

    raw: str = "raw"
    pattern: str | None = None
    constants: str = ""
    key_only: bool = False
    initial: bool = False

    def takes(self, one: Candidate) -> bool:
        if self.initial or one.round == 0:
            return self.initial and one.round == 0
        return not self.key_only or one.round in KEY_ROUNDS


class Banana100(datasets.GeneratorBasedBuilder):
    """Examples with the columns of `banana100_bench.records.Row` and the encoded image."""

    BUILDER_CONFIG_CLASS = Banana100Config
    BUILDER_CONFIGS = [  # noqa: RUF012 - the name and type that `datasets` expects
        Banana100Config(name="default", description="all images of rounds 1 and later"),
        Banana100Config(name="key_rounds", key_only=True, description=card.CONFIGS["key_rounds"][1]),
        Banana100Config(name="initial", initial=True, description=card.CONFIGS["initial"][1]),
    ]
    DEFAULT_CONFIG_NAME = "default"
    VERSION = datasets.Version(banana100_bench.__version__)

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(features=records.features(), citation=card.asset(card.CITATION))

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        return [datasets.SplitGenerator(name="test")]

    def _generate_examples(self) -> Iterator[tuple[str, dict[str, Any]]]:
        facts = dict(fact.split("=", 1) for fact in self.config.constants.split(",") if fact)
        source = find(self.config.raw, self.config.pattern, facts)
        tally = Tally(faults=list(source.faults))
        with Reader(source, workers=2) as reader:
            for row, data in reader.read([one for one in source.candidates if self.config.takes(one)], tally):
                name = f"{row.image_id}.{EXTENSIONS[row.format]}"
                yield row.image_id, {**row.as_dict(), "image": {"bytes": data, "path": name}}
        for fault in tally.faults:
            datasets.logging.get_logger(__name__).warning("left out: %s: %s", fault.file, fault.problem)
