"""Vision-language models as judges, through transformers: asked greedily, so that the same image gets the same score.

Three ways to read a score off a model:

- ``levels`` (Q-Align, Wu et al., ICML 2024): no text is made. The probabilities of the next token for the five
  words excellent, good, fair, poor, bad, among each other, weigh 5, 4, 3, 2, 1.
- ``answer`` (VisualQuality-R1, Wu et al., 2025): the number between <answer> and </answer> of its reply.
- ``number``: the last number in its reply.

A reply that holds no number in the range asked for is a failed score that keeps the reply, never a made-up number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from banana100_bench.errors import BananaError, UsageError, unknown_name
from banana100_bench.models.base import (
    Asked,
    ModelInfo,
    Option,
    Picture,
    ReplyError,
    library_versions,
    refuse,
    settle_direction,
)
from banana100_bench.models.tensors import weights_digest

LEVELS = {"excellent": 5.0, "good": 4.0, "fair": 3.0, "poor": 2.0, "bad": 1.0}
PARSERS = ("levels", "answer", "number")
PROMPTS = {
    "levels": "How would you rate the quality of this image?",
    "answer": "You are doing the image quality assessment task. Here is the question: What is your overall rating on "
    "the quality of this picture? The rating should be a float between 1 and 5, rounded to two decimal places, "
    "with 1 representing very poor quality and 5 representing excellent quality. First output the thinking "
    "process in <think> </think> tags and then output the final answer with only one score in <answer> </answer> tags.",
    "number": "Rate the quality of this image from 1 (bad) to 5 (excellent). Answer with the number alone.",
}
_LEAD = "The quality of the image is"  # what the model has said already, for levels
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
OPTIONS = ("parser", "prompt", "max_new_tokens", "revision", "lowest", "highest")


@dataclass(frozen=True)
class VlmModel:
    """A vision-language model as a model (models/base.py)."""

    info: ModelInfo
    network: Any
    processor: Any
    parser: str
    prompt: str
    max_new_tokens: int
    lowest: float
    highest: float

    def score(self, picture: Picture) -> float:
        import torch

        talk = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": self.prompt}]}]
        text = self.processor.apply_chat_template(talk, add_generation_prompt=True, tokenize=False)
        if self.parser == "levels":
            text += _LEAD
        inputs = self.processor(text=[text], images=[picture.rgb], return_tensors="pt").to(self.network.device)
        with torch.inference_mode():
            if self.parser == "levels":
                return self._level(self.network(**inputs).logits[0, -1])
            made = self.network.generate(
                **inputs,
                max_new_tokens=self.max_new_tokens,
                do_sample=False,
                num_beams=1,
                temperature=None,
                top_p=None,
                top_k=None,
            )
        reply = self.processor.batch_decode(made[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)[0]
        return parse(reply, self.parser, self.lowest, self.highest)

    def _level(self, logits: Any) -> float:
        import torch

        chances = torch.softmax(logits[_level_tokens(self.processor.tokenizer)].double(), dim=0)
        return float(chances @ torch.tensor(list(LEVELS.values()), dtype=torch.float64, device=chances.device))


def parse(reply: str, parser: str, lowest: float, highest: float) -> float:
    """The number in `reply`; ReplyError with the reply where there is none, or none from `lowest` to `highest`."""
    text = reply
    if parser == "answer":
        answers = re.findall(r"<answer>(.*?)</answer>", reply, flags=re.DOTALL)
        text = answers[-1] if answers else ""
    numbers = _NUMBER.findall(text)
    if not numbers or (parser == "answer" and len(numbers) > 1) or not lowest <= float(numbers[-1]) <= highest:
        raise ReplyError("reply: " + " ".join(reply.split())[-400:])
    return float(numbers[-1])


def _level_tokens(tokenizer: Any) -> list[int]:
    """The first token of each level's word, as it comes after a space; BananaError where two share one."""
    tokens = [tokenizer.encode(f" {word}", add_special_tokens=False)[0] for word in LEVELS]
    if len(set(tokens)) < len(tokens):
        raise BananaError("its tokenizer gives two of the levels the same first token; use --option parser=number")
    return tokens


def open_vlm(spec: str, asked: Asked) -> VlmModel:
    """``vlm:MODEL``, a model id of the Hub or a folder that transformers' image-text-to-text classes open.

    options: parser (one of PARSERS; default "answer"), prompt, max_new_tokens (default 1024), revision, lowest
    and highest (what a reply may say, default 1 and 5). No code that comes with a model is run.
    """
    refuse(spec, weights=asked.weights)
    name = spec.partition(":")[2]
    options = {key: str(value) for key, value in asked.options.items()}
    for option in options:
        if option not in OPTIONS:
            raise unknown_name(f"option of {spec}", option, OPTIONS)
    parser = options.get("parser", "answer")
    if parser not in PARSERS:
        raise unknown_name("parser", parser, PARSERS)
    try:
        length = int(options.get("max_new_tokens", 1024))
        lowest, highest = float(options.get("lowest", 1)), float(options.get("highest", 5))
    except ValueError as error:
        raise UsageError(f"{spec}: max_new_tokens, lowest and highest are numbers: {error}") from error
    direction = settle_direction(spec, True, asked.higher_is_better, "")
    try:
        import torch
        from transformers import AutoModelForImageTextToText, AutoProcessor
    except ImportError as error:
        raise BananaError(f"{spec}: needs transformers and PyTorch, of the extra [vlm] ({error})") from error
    revision = options.get("revision")
    try:
        processor = AutoProcessor.from_pretrained(name, revision=revision)
        network = AutoModelForImageTextToText.from_pretrained(
            name, revision=revision, dtype=getattr(torch, asked.dtype)
        )
    except Exception as error:
        line = " ".join(str(error).split())[:300]
        raise BananaError(f"{spec}: cannot be opened: {type(error).__name__}: {line}") from error
    network = network.eval().to(asked.device)
    prompt = options.get("prompt", PROMPTS[parser])
    own: dict[str, Option] = {"parser": parser, "prompt": prompt, "max_new_tokens": length}
    own |= {"lowest": lowest, "highest": highest} | ({"revision": revision} if revision else {})
    is_folder = Path(name).is_dir()
    info = ModelInfo(
        id=f"vlm:{Path(name).name}" if is_folder else spec,
        kind="vlm",
        higher_is_better=direction,
        weights_sha256=weights_digest(network),
        options=own | asked.torch_options(),
        versions=library_versions("transformers", "torch", "numpy", "pillow"),
    )
    model = VlmModel(info, network, processor, parser, prompt, length, lowest, highest)
    if parser == "levels":
        _level_tokens(processor.tokenizer)
    return model
