from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from banana100_bench.files import sha256_bytes
from banana100_bench.generate.editors import Edited, Editor, EditRequest
from banana100_bench.protocol import REPLICA_PROMPT
from banana100_bench.raw import RunFacts


def pixels(height: int = 40, width: int = 48) -> np.ndarray:
    """A picture by arithmetic: ramps, an edge and a chequered corner."""
    y, x = np.mgrid[:height, :width]
    red = 60 + 3 * x
    green = 200 - 4 * y
    blue = np.where(x > width // 2, 40, 180) + 20 * ((x // 2 + y // 2) % 2) * (y < 12)
    return np.clip(np.stack([red, green, blue], axis=-1), 0, 255).astype(np.uint8)


def encode(array: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind, **options)
    return file.getvalue()


INITIAL = encode(pixels())


def facts(**changes: Any) -> RunFacts:
    return RunFacts.model_validate(
        {
            "setting": "replication",
            "setting_group": "replication",
            "period": 1,
            "prompts": (REPLICA_PROMPT,),
            "initial_image": "ramp",
            "initial_sha256": sha256_bytes(INITIAL),
            "initial_extension": "png",
            "style": "photo",
            "repetition": 0,
            "rounds": 4,
            "seed": 7,
            "editor": "simulated",
            "model_version": "simulated-1",
            "simulated": True,
            "temperature": None,
            "resolution": None,
            **changes,
        }
    )


class Fake(Editor):
    """An editor that keeps the requests it gets, returns a new picture each round, and fails where told to."""

    name = "fake"
    simulated = True
    model_version = "fake-1"

    def __init__(self) -> None:
        self.requests: list[EditRequest] = []
        self.failing: dict[tuple[int | None, int], Exception] = {}  # by (seed, round)
        self.answer: Edited | None = None
        self.versions: dict[int, str] = {}  # by round

    def edit(self, request: EditRequest) -> Edited:
        self.requests.append(request)
        if error := self.failing.get((request.seed, request.round)):
            raise error
        made = encode(np.full((16, 16, 3), request.round, np.uint8))
        return self.answer or Edited(data=made, model_version=self.versions.get(request.round))


@pytest.fixture
def fake() -> Fake:
    return Fake()
