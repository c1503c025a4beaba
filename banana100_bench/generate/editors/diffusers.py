"""Open editing models by diffusers: FLUX.2, FLUX.1 Kontext, Qwen-Image-Edit, InstructPix2Pix.

Each is asked as its pipeline's documentation shows, with its own defaults. All but the last work at about one
megapixel whatever they are given, and answer in that size: the journal tells the working size, the row the output's.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from banana100_bench import images
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.generate.editors import check_options
from banana100_bench.generate.editors.base import Blocked, Edited, Editor, EditRequest
from banana100_bench.protocol import Setting
from banana100_bench.records import to_name

OPTIONS = ("steps", "guidance", "revision", "device", "dtype", "offload")
DTYPES = ("float32", "float16", "bfloat16")
OFFLOADS = ("none", "model", "sequential")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One family: its pipeline class, its usual weights, and how it is called.

    guidance: the name of its guidance argument and the usual value. extra: further arguments.
    sized: it must be told the picture's size, for it would answer with a square.
    """

    pipeline: str
    weights: str
    steps: int
    guidance: tuple[str, float]
    extra: Mapping[str, Any] = field(default_factory=dict)
    sized: bool = False


KINDS: dict[str, Kind] = {
    "flux2": Kind(
        pipeline="Flux2Pipeline",
        weights="black-forest-labs/FLUX.2-dev",
        steps=50,
        guidance=("guidance_scale", 4.0),
    ),
    "flux-kontext": Kind(
        pipeline="FluxKontextPipeline",
        weights="black-forest-labs/FLUX.1-Kontext-dev",
        steps=28,
        guidance=("guidance_scale", 3.5),
        sized=True,
    ),
    "qwen-image-edit": Kind(
        pipeline="QwenImageEditPlusPipeline",
        weights="Qwen/Qwen-Image-Edit-2509",
        steps=40,
        guidance=("true_cfg_scale", 4.0),
        extra={"negative_prompt": " ", "guidance_scale": 1.0},
    ),
    "instruct-pix2pix": Kind(
        pipeline="StableDiffusionInstructPix2PixPipeline",
        weights="timbrooks/instruct-pix2pix",
        steps=100,
        guidance=("guidance_scale", 7.5),
        extra={"image_guidance_scale": 1.5},
    ),
}


def open_pipeline(kind: str, target: str, options: Mapping[str, str]) -> Pipeline:
    """The editor for ``KIND`` or ``KIND:WEIGHTS``; WEIGHTS: a repository of the Hub, or a folder. options, by name:

    steps, guidance: of sampling. revision: of the repository; name a commit, for "main" may move.
    device: as torch names it (cuda where there is one). dtype: float32, float16, bfloat16 (the last on cuda).
    offload: none, model or sequential: parts wait in main memory.
    """
    check_options(kind, options, OPTIONS)
    for option, choices in (("dtype", DTYPES), ("offload", OFFLOADS)):
        if options.get(option, choices[0]) not in choices:
            raise UsageError(f"{option} {options[option]!r}: choices: {', '.join(choices)}")
    return Pipeline(
        kind,
        target or KINDS[kind].weights,
        steps=int(_number(options, "steps", KINDS[kind].steps, 1, 1000)),
        guidance=_number(options, "guidance", KINDS[kind].guidance[1], 0, 100),
        revision=options.get("revision", "main"),
        device=options.get("device"),
        dtype=options.get("dtype"),
        offload=options.get("offload", "none"),
    )


def _number(options: Mapping[str, str], name: str, usual: float, least: float, most: float) -> float:
    try:
        value = float(options.get(name, usual))
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise UsageError(f"{name} {options[name]!r}: expected {least} to {most}")
    return value


class Pipeline(Editor):
    """The editor; see `open_pipeline`. One edit at a time: a pipeline keeps state while it samples."""

    def __init__(
        self,
        kind: str,
        weights: str,
        *,
        steps: int,
        guidance: float,
        revision: str = "main",
        device: str | None = None,
        dtype: str | None = None,
        offload: str = "none",
    ):
        self._kind, self._weights, self._revision = KINDS[kind], weights, revision
        self._steps, self._guidance = steps, guidance
        self._device, self._dtype, self._offload = device, dtype, offload
        self.name = to_name(weights.rstrip("/").rpartition("/")[2])
        self.model_version = f"{weights}@{revision}; {steps} steps, {self._kind.guidance[0]} {guidance:g}"
        self._pipeline: Any = None
        self._working_size: tuple[int, int] | None = None
        self._lock = threading.Lock()

    def check(self, setting: Setting, *, seed: int | None, temperature: float | None, resolution: str | None) -> None:
        if setting.chat_turns:
            raise UsageError(f"setting {setting.name!r}: {self.name} has no chat")
        for option, value in (("temperature", temperature), ("resolution", resolution)):
            if value is not None:
                raise UsageError(f"{option} {value!r}: {self.name} has no {option} (setting {setting.name})")

    def open(self) -> None:
        """Load the weights; BananaError where that fails."""
        try:
            import diffusers
            import torch
        except ImportError as error:
            raise BananaError(f"{self.name} needs diffusers: pip install 'banana100-bench[diffusers]'") from error
        device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = self._dtype or ("bfloat16" if device.startswith("cuda") else "float32")
        try:
            pipeline = getattr(diffusers, self._kind.pipeline).from_pretrained(
                self._weights, revision=self._revision, dtype=getattr(torch, dtype), use_safetensors=True
            )
            if self._offload == "model":
                pipeline.enable_model_cpu_offload(device=device)
            elif self._offload == "sequential":
                pipeline.enable_sequential_cpu_offload(device=device)
            else:
                pipeline.to(device)
        except Exception as error:
            raise BananaError(f"{self._weights}: {type(error).__name__}: {str(error)[:300]}") from error
        pipeline.set_progress_bar_config(disable=True)
        self._watch_size(pipeline.vae)
        self._pipeline = pipeline

    def edit(self, request: EditRequest) -> Edited:
        import torch

        picture = images.decode(request.data, f"input of round {request.round}")
        generator = None if request.seed is None else torch.Generator("cpu").manual_seed(request.seed)
        size = {"width": picture.width, "height": picture.height} if self._kind.sized else {}
        with self._lock:
            if self._pipeline is None:
                self.open()
            answer = self._pipeline(
                image=picture,
                prompt=request.prompt,
                num_inference_steps=self._steps,
                generator=generator,
                **{self._kind.guidance[0]: self._guidance},
                **{**size, **self._kind.extra},
            )
            working = self._working_size
        if any(getattr(answer, "nsfw_content_detected", None) or []):
            raise Blocked("the pipeline's safety checker blacked the picture out")
        file = io.BytesIO()
        answer.images[0].save(file, "PNG", compress_level=1)
        told = {} if working is None else {"working_width": working[0], "working_height": working[1]}
        return Edited(data=file.getvalue(), told=told)

    def _watch_size(self, vae: Any) -> None:
        """Note the size of what reaches the encoder: each pipeline resizes in a way of its own."""
        encode = vae.encode

        def watched(x: Any, *args: Any, **named: Any) -> Any:
            self._working_size = int(x.shape[-1]), int(x.shape[-2])
            return encode(x, *args, **named)

        vae.encode = watched
