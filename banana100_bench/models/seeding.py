"""Random numbers that depend on the image alone, so that a model that crops at random repeats its scores."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def seeded(sha256: str) -> Iterator[None]:
    """Seed `random`, NumPy and (where loaded) PyTorch from an image's hash; put their states back afterwards."""
    import numpy as np

    seed = int(sha256[:8], 16)  # NumPy takes 32 bits
    states = random.getstate(), np.random.get_state()
    with contextlib.ExitStack() as stack:
        if "torch" in sys.modules:
            import torch

            stack.enter_context(torch.random.fork_rng(devices=[]))
            torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
