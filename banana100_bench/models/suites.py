"""Suites: several models by one name."""

from __future__ import annotations

from collections.abc import Sequence

from banana100_bench.errors import UsageError, unknown_name
from banana100_bench.models import baselines, pyiqa_models

PREFIX = "suite:"

_LISTED: dict[str, tuple[str, ...]] = {
    # The families that readers of the paper (arXiv 2604.03400) name; it judges 21 of pyiqa's metrics, and its
    # own list is not public.
    "paper": tuple(
        f"pyiqa:{name}"
        for name in (
            "brisque", "niqe", "piqe", "cnniqa", "dbcnn", "hyperiqa",
            "clipiqa", "liqe", "qualiclip", "musiq", "maniqa", "tres",
        )
    ),
    # pyiqa's metrics that need no file at all.
    "offline": ("pyiqa:piqe", "pyiqa:entropy"),
    "baselines": tuple(f"baseline:{name}" for name in baselines.NAMES),
}  # fmt: skip

NAMES = (*_LISTED, "pyiqa-nr")
"""pyiqa-nr: one metric of each family that the installed pyiqa has (`pyiqa_models.families`)."""


def members(name: str) -> list[str]:
    """The specs of suite `name`; UsageError for an unknown one."""
    if name not in NAMES:
        raise unknown_name("suite", name, NAMES)
    return list(_LISTED.get(name) or (f"pyiqa:{metric}" for metric in pyiqa_models.families()))


def expand(specs: Sequence[str]) -> list[str]:
    """`specs` with every ``suite:NAME`` replaced by its models, each model once; UsageError for an unknown suite.

    A model that is named twice outside the suites is a slip, and refused.
    """
    named = [spec for spec in specs if not spec.startswith(PREFIX)]
    for spec in named:
        if named.count(spec) > 1:
            raise UsageError(f"model {spec}: given twice")
    found: list[str] = []
    for spec in specs:
        found += members(spec[len(PREFIX) :]) if spec.startswith(PREFIX) else [spec]
    return list(dict.fromkeys(found))
