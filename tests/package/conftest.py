from __future__ import annotations

from pathlib import Path

import pytest

from banana100_bench.package.build import build
from tests.package import making


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw runs; read only."""
    return making.write_raw(tmp_path_factory.mktemp("raw"))


@pytest.fixture(scope="session")
def dataset(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset folder of `raw`, called banana100; read only."""
    out = tmp_path_factory.mktemp("built") / "banana100"
    build(raw, out)
    return out
