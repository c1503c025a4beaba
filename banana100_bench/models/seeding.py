"""Random numbers that depend on the image alone, so that a model that crops at random repeats its scores."""

from __future__ import annotations

import contextlib
import hashlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass
class Draws:
    """Whether random numbers were drawn; known when the block of `seeded` has ended."""

    drawn: bool = False


@contextlib.contextmanager
def seeded(sha256: str, repeat: int = 0) -> Iterator[Draws]:
    """Seed `random`, NumPy and (where loaded) PyTorch from an image's hash; put their states back afterwards.

    repeat: 0 for the score of record; other numbers give other, equally repeatable seeds.
    """
    import numpy as np

    text = sha256 if repeat == 0 else hashlib.sha256(f"{sha256} {repeat}".encode()).hexdigest()
    seed = int(text[:8], 16)  # NumPy takes 32 bits
    before = random.getstate(), np.random.get_state()
    draws = Draws()
    with contextlib.ExitStack() as stack:
        if "torch" in sys.modules:
            import torch

            stack.enter_context(torch.random.fork_rng(devices=range(torch.cuda.device_count()) if _cuda() else []))
            torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        start = _states()
        try:
            yield draws
        finally:
            draws.drawn = _states() != start
            random.setstate(before[0])
            np.random.set_state(before[1])


def _states() -> list[Any]:
    """The states of all generators, to be compared."""
    import numpy as np

    numpy = np.random.get_state(legacy=False)["state"]
    states: list[Any] = [random.getstate(), numpy["key"].tobytes(), numpy["pos"]]
    if "torch" in sys.modules:
        import torch

        states.append(torch.get_rng_state().numpy().tobytes())
        if _cuda():
            states += [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    return states


def _cuda() -> bool:
    import torch

    return torch.cuda.is_initialized()
