"""The round trip through an autoencoder: encode, decode, and no model between.

What a latent editing model cannot help doing to a picture, even if it changes nothing. It reads no prompt and
is no editing model, so its images are labelled simulated; but the network is real, and runs on a CPU.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from banana100_bench import images
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file
from banana100_bench.generate.editors import check_options
from banana100_bench.generate.editors.base import Edited, Editor, EditRequest
from banana100_bench.protocol import REPLICA_PROMPT, Setting
from banana100_bench.records import to_name

OPTIONS = ("device", "dtype")
DTYPES = ("float32", "bfloat16")
WEIGHT_SUFFIXES = (".safetensors", ".pth")
MULTIPLE = 16  # px: sides are padded (mirrored) to a multiple of it, and cropped again


def open_autoencoder(target: str, options: Mapping[str, str]) -> Autoencoder:
    """The editor for ``autoencoder:TARGET``. options: device, as torch names it (cpu by default), and dtype:
    float32, or bfloat16, three times as fast where a CPU has it, and how latent editors usually run.

    TARGET: a folder, or a repository of the Hub, as diffusers saves an AutoencoderTiny or AutoencoderKL; or a
        folder with the two weight files of a TAESD-like autoencoder, NAME_encoder.pth and NAME_decoder.pth
        (or .safetensors).
    """
    check_options("autoencoder", options, OPTIONS)
    if not target:
        raise UsageError("editor autoencoder: name the weights, as autoencoder:FOLDER or autoencoder:madebyollin/taef1")
    if options.get("dtype", DTYPES[0]) not in DTYPES:
        raise UsageError(f"dtype {options['dtype']!r}: choices: {', '.join(DTYPES)}")
    return Autoencoder(target, options.get("device", "cpu"), options.get("dtype", DTYPES[0]))


class Autoencoder(Editor):
    """The editor; see `open_autoencoder`. `model_version` holds the SHA-256 of the weights, if they are local."""

    simulated = True

    def __init__(self, target: str, device: str = "cpu", dtype: str = DTYPES[0]):
        self._target = target
        self._device, self._dtype = device, dtype
        self._pair = _weight_pair(Path(target))
        self.name = to_name(
            f"autoencoder-{self._pair[0].name.split('_encoder')[0] if self._pair else Path(target).name}"
        )
        self.model_version = f"{self.name} {_digest(self._pair or _files(Path(target))) or target} {dtype}"
        self._model: Any = None
        self._lock = threading.Lock()

    def check(self, setting: Setting, *, seed: int | None, temperature: float | None, resolution: str | None) -> None:
        if setting.prompts != (REPLICA_PROMPT,) or setting.chat_turns:
            raise UsageError(f"setting {setting.name!r}: an autoencoder reads no prompt, it can only replicate")
        for option, value in (("seed", seed), ("temperature", temperature), ("resolution", resolution)):
            if value is not None:
                hint = "; pass --seed none, and --repetitions 1, for all would be equal" if option == "seed" else ""
                raise UsageError(f"{option} {value!r}: an autoencoder has no {option}{hint}")

    def open(self) -> None:
        """Load the weights; BananaError where they cannot be read."""
        try:
            import diffusers
            import torch
        except ImportError as error:
            raise BananaError("autoencoder needs diffusers: pip install 'banana100-bench[diffusers]'") from error
        try:
            if self._pair:
                model: Any = tiny_autoencoder(*(_state(path) for path in self._pair))
            else:
                model = diffusers.AutoModel.from_pretrained(self._target)
            # channels last: a quarter faster on a CPU
            self._model = model.to(self._device, getattr(torch, self._dtype), memory_format=torch.channels_last).eval()
        except Exception as error:
            raise BananaError(f"autoencoder:{self._target}: {type(error).__name__}: {str(error)[:300]}") from error

    def edit(self, request: EditRequest) -> Edited:
        import numpy as np
        import torch
        from PIL import Image

        picture = images.decode(request.data, f"input of round {request.round}")
        pixels = np.asarray(picture)
        height, width = pixels.shape[:2]
        padding = (0, -height % MULTIPLE), (0, -width % MULTIPLE), (0, 0)
        padded = np.pad(pixels, padding, mode="symmetric")
        x = torch.from_numpy(padded).to(self._device).permute(2, 0, 1)[None].float() / 127.5 - 1
        with self._lock, torch.inference_mode():
            if self._model is None:
                self.open()
            y = round_trip(self._model, x.to(getattr(torch, self._dtype))).float()
        made = ((y[0].clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(made[:height, :width])).save(file, "PNG", compress_level=1)
        told = {"working_width": padded.shape[1], "working_height": padded.shape[0]}
        return Edited(data=file.getvalue(), told=told)


def round_trip(model: Any, x: Any) -> Any:
    """Encode and decode `x`, 1 x 3 x H x W in [-1, 1], without chance: where the code is a distribution, its mode."""
    code = model.encode(x)
    latents = code.latents if hasattr(code, "latents") else code.latent_dist.mode()
    return model.decode(latents).sample


def tiny_autoencoder(encoder: Mapping[str, Any], decoder: Mapping[str, Any]) -> Any:
    """diffusers' AutoencoderTiny with the weights of a TAESD-like pair of state dicts (madebyollin/taesd).

    Their decoder counts a clamp as layer 0 which diffusers does not. In the FLUX.2 variant the blocks next to
    the code have a further branch, ``pool``, which diffusers' block lacks.
    """
    from diffusers import AutoencoderTiny
    from diffusers.models.unets.unet_2d_blocks import AutoencoderTinyBlock
    from torch import nn

    class PooledBlock(AutoencoderTinyBlock):
        def __init__(self, width: int, inner: int):
            super().__init__(width, width, "relu")
            self.pool = nn.Sequential(
                nn.Conv2d(width, inner, 1, bias=False),
                nn.GroupNorm(4, inner),
                nn.ReLU(),
                nn.Conv2d(inner, width, 1, bias=False),
            )

        def forward(self, x: Any) -> Any:
            return super().forward(x + self.pool(x))

    model: Any = AutoencoderTiny(latent_channels=decoder["1.weight"].shape[1])
    for half, weights, first in ((model.encoder, encoder, 0), (model.decoder, decoder, 1)):
        moved = {}
        for key, value in weights.items():
            layer, _, rest = key.partition(".")
            moved[f"{int(layer) - first}.{rest}"] = value
            if rest == "pool.0.weight":
                half.layers[int(layer) - first] = PooledBlock(value.shape[1], value.shape[0])
        half.layers.load_state_dict(moved)
    return model


def _weight_pair(folder: Path) -> tuple[Path, Path] | None:
    """The encoder's and the decoder's weight file in `folder`, if they are there."""
    for suffix in WEIGHT_SUFFIXES:
        for encoder in sorted(folder.glob(f"*_encoder{suffix}")) if folder.is_dir() else []:
            decoder = encoder.with_name(encoder.name.replace("_encoder", "_decoder"))
            if decoder.is_file():
                return encoder, decoder
    return None


def _files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob("*.safetensors"))) if folder.is_dir() else ()


def _digest(paths: tuple[Path, ...]) -> str:
    """12 digits over the files' SHA-256; empty if there are none."""
    return hashlib.sha256("".join(map(sha256_file, paths)).encode()).hexdigest()[:12] if paths else ""


def _state(path: Path) -> dict[str, Any]:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(path))
    import torch

    return dict(torch.load(path, map_location="cpu", weights_only=True))
