"""Gemini image models (Nano Banana) by google-genai: the Gemini API or Vertex AI.

Facts behind this file are in the docs (reproducing.md). In short: one synchronous request for each try, no
automatic function calls or continuations (each is a further billed request), a limit to the time and size of
an answer, the last image that is no thought, its bytes kept and fed back as they came.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from banana100_bench import images
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.generate.editors import check_options
from banana100_bench.generate.editors.base import (
    Blocked,
    Edited,
    EditError,
    Editor,
    EditRequest,
    Estimate,
    Halt,
    Transient,
)
from banana100_bench.generate.editors.gemini_errors import NO_IMAGE_TRIES, classify, short
from banana100_bench.generate.editors.gemini_prices import (
    MAX_OUTPUT_TOKENS,
    TIERS,
    cost,
    estimate,
    price_of,
)
from banana100_bench.protocol import Setting
from banana100_bench.records import to_name

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.types import Candidate, Content, GenerateContentConfig, GenerateContentResponse

MODEL = "gemini-3-pro-image"  # the paper's gemini-3-pro-image-preview was shut down on 2026-06-25
OPTIONS = ("tier", "price", "timeout", "rehearsal")
KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
TIMEOUT_S = {"standard": 300.0, "flex": 900.0}  # flex waits for idle machines
MAX_ANSWER_BYTES = 256 << 20
MAX_REQUEST_BYTES = 18 << 20  # of pictures; base64 adds a third, and the API takes 20 MB and more
MAX_SUMMARY = 20_000  # characters
BLOCKED = {
    *("SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION", "MODEL_ARMOR", "ESCALATION"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
}
MIME = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}


def open_gemini(target: str, options: Mapping[str, str], vertex: bool = False) -> Gemini:
    """The editor for ``gemini:MODEL`` or ``vertex:MODEL``. options, by name:

    tier: standard, or flex (half the price, slower). price: USD a million tokens, INPUT,TEXT,IMAGE.
    timeout: seconds without a byte, and of the whole body. rehearsal: true, against a local server
    (GOOGLE_GEMINI_BASE_URL): all that it answers is labelled simulated.
    """
    check_options("vertex" if vertex else "gemini", options, OPTIONS)
    tier = options.get("tier", "standard")
    if tier not in TIERS or (vertex and tier != "standard"):
        raise UsageError(f"tier {tier!r}: choices: {'standard (Vertex)' if vertex else ', '.join(TIERS)}")
    if options.get("rehearsal", "false") not in ("true", "false"):
        raise UsageError(f"rehearsal {options['rehearsal']!r}: choices: true, false")
    try:
        timeout = float(options.get("timeout", TIMEOUT_S[tier]))
    except ValueError:
        timeout = 0.0
    if not 0.1 <= timeout <= 7200:
        raise UsageError(f"timeout {options['timeout']!r}: expected 0.1 to 7200 seconds")
    return Gemini(
        target or MODEL,
        tier=tier,
        dollars=options.get("price"),
        timeout_s=timeout,
        vertex=vertex,
        rehearsal=options.get("rehearsal") == "true",
    )


class Gemini(Editor):
    """The editor; see `open_gemini`. One client serves all threads."""

    default_resolution = "2K"

    def __init__(
        self,
        model: str = MODEL,
        *,
        tier: str = "standard",
        dollars: str | None = None,
        timeout_s: float = 300.0,
        vertex: bool = False,
        rehearsal: bool = False,
    ):
        self._model = model
        self._tier = tier
        self._price = price_of(model, dollars)
        self._timeout_s = timeout_s
        self._vertex = vertex
        self.simulated = rehearsal
        self.name = to_name(f"{model}{'-vertex' if vertex else ''}{'-rehearsal' if rehearsal else ''}")
        self.model_version = model

    def check(self, setting: Setting, *, seed: int | None, temperature: float | None, resolution: str | None) -> None:
        if resolution not in self._price.image_out:
            raise UsageError(f"resolution {resolution!r}: {self._model} has {', '.join(self._price.image_out)}")
        if seed is not None and seed > 2**31 - 10_000:
            raise UsageError(f"seed {seed}: Gemini takes seeds below 2**31")
        if temperature is not None and not 0 <= temperature <= 2:
            raise UsageError(f"temperature {temperature}: Gemini takes 0 to 2")

    def estimate(self, resolution: str | None, pictures: int = 1) -> Estimate:
        known = resolution if resolution in self._price.image_out else self.default_resolution
        return estimate(self._price, known or "2K", pictures, self._tier)

    def open(self) -> None:
        """UsageError where the environment lacks the key or, for Vertex, the project and location."""
        _ = self._client

    def edit(self, request: EditRequest) -> Edited:
        try:
            answer = self._client.models.generate_content(
                model=self._model, contents=_contents(request), config=self._config(request)
            )
        except Exception as error:
            meaning = classify(error)
            raise meaning from (None if meaning is error else error)
        return self._read(answer)

    @cached_property
    def _client(self) -> Client:
        try:
            from google import genai
            from google.genai.types import HttpOptions
        except ImportError as error:
            raise BananaError("Gemini needs google-genai: pip install 'banana100-bench[gemini]'") from error
        options = HttpOptions(
            api_version="v1beta1" if self._vertex else "v1beta",  # v1, the default, knows no image settings
            timeout=round(self._timeout_s * 1000),
            client_args={"event_hooks": {"response": [_bounded(self._timeout_s)]}, "limits": _limits()},
        )
        key = next((os.environ[name] for name in KEYS if os.environ.get(name)), None)
        if not self._vertex:
            if key is None:
                raise UsageError(f"Gemini needs a key in the environment: {' or '.join(KEYS)}")
            return genai.Client(vertexai=False, api_key=key, http_options=options)
        project, location = (os.environ.get(f"GOOGLE_CLOUD_{name}") for name in ("PROJECT", "LOCATION"))
        if project and location:
            return genai.Client(vertexai=True, project=project, location=location, http_options=options)
        if key is None:
            raise UsageError(
                "Vertex AI needs GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION in the environment, or a key in "
                f"{' or '.join(KEYS)}"
            )
        return genai.Client(vertexai=True, api_key=key, http_options=options)

    def _config(self, request: EditRequest) -> GenerateContentConfig:
        from google.genai import types

        return types.GenerateContentConfig(
            response_modalities=["TEXT", "IMAGE"],
            image_config=types.ImageConfig(image_size=request.resolution),
            seed=request.seed,
            temperature=request.temperature,
            max_output_tokens=MAX_OUTPUT_TOKENS,
            thinking_config=types.ThinkingConfig(include_thoughts=True),
            service_tier=types.ServiceTier.FLEX if self._tier == "flex" else None,
            automatic_continuation=False,
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )

    def _read(self, answer: GenerateContentResponse) -> Edited:
        """The result in `answer`, or the EditError that it means."""
        usd = cost(answer.usage_metadata, self._price, self._tier)
        self._refuse_mixing(answer.model_version, usd)
        if answer.prompt_feedback and answer.prompt_feedback.block_reason:
            raise Blocked(f"the prompt was blocked: {_name(answer.prompt_feedback.block_reason)}", usd=usd)
        candidate = answer.candidates[0] if answer.candidates else None
        finish = _name(candidate.finish_reason) if candidate and candidate.finish_reason else None
        parts = (candidate.content.parts if candidate and candidate.content else None) or []
        found = [part for part in parts if part.inline_data and not part.thought]
        if not found:
            raise self._no_image(candidate, finish, usd)
        last = found[-1].inline_data
        data = (last.data if last else None) or b""
        try:
            images.decode(data, "the answer's image")
            facts = images.probe(data, "the answer's image")
        except BananaError as error:
            raise Transient(str(error), usd=usd, tries=NO_IMAGE_TRIES) from error
        summary = "\n\n".join(part.text for part in parts if part.thought and part.text)[:MAX_SUMMARY]
        declared = (last.mime_type if last else None) or "none"
        signature = found[-1].thought_signature
        return Edited(
            data=data,
            model_version=answer.model_version,
            reasoning_summary=summary or None,
            usd=usd,
            told=self._told(answer, finish)
            | ({} if len(found) == 1 else {"images": len(found)})
            | ({} if declared == MIME[facts.format] else {"declared": declared[:40]}),
            signature=base64.b64encode(signature).decode() if signature else None,
        )

    def _refuse_mixing(self, version: str | None, usd: float | None) -> None:
        """Halt where a test server answers that is not named as one, or a model answers in a rehearsal."""
        if version and version.endswith("-simulated") != self.simulated:
            if self.simulated:
                raise Halt(f"a rehearsal, but {version[:80]} answered, which is no test server", usd=usd)
            raise Halt("a local test server answered; name it as one: --option rehearsal=true", usd=usd)

    def _no_image(self, candidate: Candidate | None, finish: str | None, usd: float | None) -> EditError:
        if candidate is None:
            return Transient("an answer without candidates", usd=usd, tries=NO_IMAGE_TRIES)
        if finish in BLOCKED:
            return Blocked(f"the image was blocked: {finish}", usd=usd)
        if finish == "PUP_LIMITED_DISABLED":
            return Halt("Google has limited this account (prohibited use policy)", usd=usd)
        said = f": {short(candidate.finish_message)}" if candidate.finish_message else ""
        return Transient(f"no image ({finish}){said}", usd=usd, tries=NO_IMAGE_TRIES)

    def _told(self, answer: GenerateContentResponse, finish: str | None) -> dict[str, str | int | float]:
        usage = answer.usage_metadata
        told: dict[str, str | int | float | None] = {
            "response_id": answer.response_id,
            "finish": finish if finish != "STOP" else None,
            "tier": self._tier if self._tier != "standard" else None,
            "prompt_tokens": usage.prompt_token_count if usage else None,
            "output_tokens": usage.candidates_token_count if usage else None,
            "thought_tokens": usage.thoughts_token_count if usage else None,
        }
        return {name: value for name, value in told.items() if value is not None}


def _contents(request: EditRequest) -> list[Content]:
    """The conversation. Pictures go by `Part.from_bytes`: a Part made of a Pillow image is encoded anew, lossily.

    In a chat, an answer that was not signed is shown by the user: the API refuses it in the model's mouth.
    Clean pictures are left out, latest first, where all would be too large for a request.
    """
    from google.genai.types import Content, Part

    if not request.turns or request.initial is None:
        return [Content(role="user", parts=[_picture(request.data), Part(text=request.prompt)])]
    turns = list(request.turns)
    while len(turns) > 1 and len(request.initial) + sum(len(turn.data) for turn in turns) > MAX_REQUEST_BYTES:
        del turns[-2]
    contents, shown = [], request.initial
    for turn in turns:
        asked = [Part(text=turn.prompt)] if not shown else [_picture(shown), Part(text=turn.prompt)]
        contents.append(Content(role="user", parts=asked))
        shown = b""
        if turn.signature:
            part = _picture(turn.data)
            part.thought_signature = base64.b64decode(turn.signature)
            contents.append(Content(role="model", parts=[part]))
        else:
            shown = turn.data
    parts = [Part(text=request.prompt)] if not shown else [_picture(shown), Part(text=request.prompt)]
    return [*contents, Content(role="user", parts=parts)]


def _picture(data: bytes) -> Any:
    from google.genai.types import Part

    return Part.from_bytes(data=data, mime_type=MIME[images.probe(data, "the picture to send").format])


def _name(reason: Any) -> str:
    return str(getattr(reason, "value", reason))[:80]


def _limits() -> Any:
    import httpx2

    return httpx2.Limits(max_connections=None, max_keepalive_connections=None)  # the runner limits them


def _bounded(seconds: float) -> Callable[[Any], None]:
    """A hook that ends an answer whose body takes longer than `seconds`, or is too large.

    The client's own timeout starts anew with each piece, so that a body may trickle in for ever.
    """
    import httpx2

    class Bounded(httpx2.SyncByteStream):
        def __init__(self, stream: Any):
            self._stream = stream

        def __iter__(self) -> Any:
            until, size = time.monotonic() + seconds, 0
            for piece in self._stream:
                size += len(piece)
                if time.monotonic() > until:
                    raise httpx2.ReadTimeout(f"the body was not complete after {seconds:.0f} s")
                if size > MAX_ANSWER_BYTES:
                    raise httpx2.ReadError(f"the body is larger than {MAX_ANSWER_BYTES} bytes")
                yield piece

        def close(self) -> None:
            self._stream.close()

    def hook(response: Any) -> None:
        response.stream = Bounded(response.stream)

    return hook
