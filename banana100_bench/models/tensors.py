"""Pictures as PyTorch tensors, and calculating with less than 32 bits; PyTorch is imported when it is needed."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from banana100_bench.files import sha256_file
from banana100_bench.models.base import Picture


def rgb_tensor(picture: Picture, device: str = "cpu") -> Any:
    """The pixels as a float32 tensor of shape (1, 3, H, W), RGB in [0, 1]."""
    import numpy as np
    import torch

    pixels = torch.from_numpy(np.array(picture.rgb)).to(device)
    return pixels.permute(2, 0, 1).unsqueeze(0).contiguous().float().div(255)


def autocast(device: str, dtype: str) -> contextlib.AbstractContextManager[Any]:
    """Calculate in `dtype` where PyTorch holds that safe; and in full float32, not TF32, where that is asked."""
    import torch

    if device.startswith("cuda"):
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.partition(":")[0], getattr(torch, dtype))


def weights_digest(net: Any) -> str | None:
    """SHA-256 over the parameters and buffers of a torch.nn.Module and the files that its attributes name.

    It tells one set of weights from another wherever they came from; None where there are none.
    """
    import torch

    digest, some = hashlib.sha256(), False
    for name, tensor in sorted(net.state_dict().items()):
        if isinstance(tensor, torch.Tensor):
            some = True
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    for module in net.modules():
        for name, value in sorted(vars(module).items()):
            if isinstance(value, str) and 0 < len(value) < 4096 and Path(value).is_file():
                some = True
                digest.update(f"{name} {sha256_file(Path(value))}\n".encode())
    return digest.hexdigest() if some else None
