"""A local Gemini API for tests: the real google-genai client talks to it, no key, no network, no money.

::

    with FakeGemini(latency=0.05) as server:
        server.fault("unavailable", times=3, at=2)  # calls 2, 3 and 4 are answered with 503
        client = genai.Client(api_key="any", http_options=HttpOptions(base_url=server.url, api_version="v1beta"))
        ...
        assert [call.status for call in server.log] == [200, 503, 503, 503, 200]
        assert spent_by_our_accounting == pytest.approx(server.billed_usd)

`edit` makes the images: 32-128 px, a function of (input bytes, prompt, seed, settings) alone, so a chain killed
and resumed ends with the SHA-256 of one that was not. They are simulated and say so, in the PNG and in modelVersion.
`FAULTS` lists what can go wrong, each with its source: [M], [D] and [U] as in shared/reference/gemini.md
(measured, documented, seen by users), [C] the behaviour of google-genai 3.6.1 as test_gemini.py records it.
``python -m tests.fakes.gemini --port 0 --latency 1.0`` prints its URL and serves until it is killed.

Billing: an answer with status 200 costs what its usageMetadata says when it leaves the model, whether or not the
client lives to read it; an error costs nothing [D]. The charge is made when the call arrives, so a client killed
in flight has paid.

What google-genai 3.6.1 does that one would not expect, beyond gemini.md (test_gemini.py holds it to each):

- A 200 whose body is empty, a list, or ``{"error": ...}`` raises nothing: the answer has no candidates, no usage.
- Its timeout bounds each silence, not the call: a body that trickles in may take any time.
- ``finishReason: CONTINUATION`` makes one call of ours several billed requests, their images and usage added up, unless
  automatic_continuation=False. The sync client sends nothing else again; the async one does after 1 to 10 s.
- A connection closed unanswered is httpx2.RemoteProtocolError, one that is reset httpx2.ReadError; a body cut short
  is RemoteProtocolError, or JSONDecodeError where it had no length.
- An image of no bytes is b"". Fields and parts that it does not know are dropped in silence.
- Chats send thought images back as well: with include_thoughts every turn adds two images to the context.
- Vertex by API key posts to /v1beta1/publishers/google/models/..., without a project; with credentials and a project
  but no location, to "/" of a base_url of ours.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import math
import re
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from email.message import Message
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageFilter
from PIL.PngImagePlugin import PngInfo

SIMULATED = "simulated by tests/fakes/gemini.py"
LONGEST_SIDE = {"512": 32, "1K": 48, "2K": 64, "4K": 128}  # px we make for an image_size
DEFAULT_IMAGE_SIZE = "1K"
THOUGHT_TOKENS = 214
TEXT = "Here is the picture."
TEXT_TOKENS = 5

Json = dict[str, Any]
Wire = Literal["whole", "drop_before", "drop", "reset", "truncate", "no_length", "hang", "slow", "trickle"]


# ---- prices -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Price:
    """US dollars a token, and tokens an image (`image_out` by image_size). Secondary sources, see gemini.md."""

    input: float
    text: float
    image: float
    image_in: int
    image_out: Mapping[str, int]


PRICES: dict[str, Price] = {  # also the models there are; gemini-3-pro-image-preview is shut down: 404
    "gemini-3-pro-image": Price(2e-6, 12e-6, 120e-6, 560, {"1K": 1120, "2K": 1120, "4K": 2000}),
    "gemini-3.1-flash-image": Price(5e-7, 3e-6, 60e-6, 1120, {"512": 747, "1K": 1120, "2K": 1680, "4K": 2520}),
}


def price_of(usage: Json, price: Price, service_tier: str | None) -> float:
    """US dollars for one answer's usageMetadata: thoughts at the text price, image tokens apart; flex is half."""
    image = sum(d["tokenCount"] for d in usage.get("candidatesTokensDetails", []) if d["modality"] == "IMAGE")
    text = usage.get("candidatesTokenCount", 0) - image + usage.get("thoughtsTokenCount", 0)
    usd = usage["promptTokenCount"] * price.input + text * price.text + image * price.image
    return usd / 2 if service_tier == "flex" else usd


# ---- images -------------------------------------------------------------------------------------------------------


def edit(
    data: bytes,
    prompt: str,
    seed: int | None = None,
    temperature: float | None = None,
    aspect_ratio: str | None = None,
    image_size: str | None = None,
) -> bytes:
    """The PNG that the server answers to these arguments: resampled, a little sharper, a little noisier.

    data: the encoded picture last in the request; aspect_ratio ("4:3"; None keeps the picture's own) and image_size
    (a key of LONGEST_SIDE; None is 1K) as on the wire.
    """
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    wide, high = map(int, aspect_ratio.split(":")) if aspect_ratio else picture.size
    longest = LONGEST_SIDE[image_size or DEFAULT_IMAGE_SIZE]
    size = (max(1, round(longest * wide / max(wide, high))), max(1, round(longest * high / max(wide, high))))
    picture = picture.resize(size, Image.Resampling.BICUBIC)

    asked = json.dumps([hashlib.sha256(data).hexdigest(), prompt, seed, temperature, size])
    rng = np.random.default_rng(list(hashlib.sha256(asked.encode()).digest()))
    pixels = np.asarray(picture, dtype=np.float64)
    blurred = np.asarray(picture.filter(ImageFilter.GaussianBlur(1)), dtype=np.float64)
    pixels = pixels + 0.1 * (pixels - blurred) + rng.normal(0, 2, pixels.shape)
    return _encoded(Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8)), "PNG")


def _encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    if kind == "PNG":
        note = PngInfo()
        note.add_text("Comment", SIMULATED)
        options["pnginfo"] = note
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def _png(width: int, height: int, depth: int, colour: int, samples: bytes) -> bytes:
    """A PNG of a kind that Pillow does not write; `samples` are the rows without filter bytes."""
    stride = len(samples) // height
    rows = b"".join(b"\0" + samples[y * stride : (y + 1) * stride] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _open(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png))


def _drifted(png: bytes) -> bytes:
    picture = _open(png)
    return _encoded(picture.resize((picture.width * 15 // 16, picture.height + 2)), "PNG")


def _with_alpha(png: bytes) -> bytes:
    picture = _open(png).convert("RGBA")
    picture.putalpha(Image.linear_gradient("L").resize(picture.size))
    return _encoded(picture, "PNG")


def _sixteen_bit(png: bytes) -> bytes:
    pixels = np.asarray(_open(png), dtype=">u2") * 257
    return _png(pixels.shape[1], pixels.shape[0], 16, 2, pixels.astype(">u2").tobytes())


def _turned(png: bytes) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6  # Orientation: to be turned by 90 degrees
    return _encoded(_open(png), "JPEG", exif=exif)


@lru_cache(maxsize=1)
def _bomb() -> bytes:
    side = 12_000  # 144 million pixels in 20 kB, and it decodes
    return _png(side, side, 1, 0, bytes(side * side // 8))


# ---- faults -------------------------------------------------------------------------------------------------------


class Refusal(Exception):
    """An error answer: HTTP status, and the JSON (or the page of a proxy between) that comes with it."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body


@dataclass(frozen=True)
class Fault:
    """One way to go wrong: what happens, from which source, and the step of answering where it acts.

    refusal: an error instead of an answer, made from the seconds that the server wants the client to wait.
    image: the answer's image, from the PNG that was made; `mime` is what the answer declares it to be.
    answer: changes the answer's JSON before it is billed.
    body: what is sent in place of the answer's JSON, after billing.
    wire: how the bytes are, or are not, sent. "drop" and "reset" come after the work was done and billed.
    """

    says: str
    refusal: Callable[[float], Refusal] | None = None
    image: Callable[[bytes], bytes] | None = None
    mime: str = "image/png"
    answer: Callable[[Json], None] | None = None
    body: Callable[[Json], bytes] | None = None
    wire: Wire = "whole"


def _refuse(code: int, status: str, message: str, *details: Json) -> Callable[[float], Refusal]:
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return lambda _delay: Refusal(code, _dump({"error": error}))


def _over_quota(*periods: str, limit: int, wait: bool) -> Callable[[float], Refusal]:
    """429 as Google words it: a QuotaFailure with one violation a period, and RetryInfo where `wait`."""

    def refusal(delay: float) -> Refusal:
        violations = [
            {
                "quotaMetric": "generativelanguage.googleapis.com/generate_requests_per_model",
                "quotaId": f"GenerateRequests{period}PerProjectPerModel",
                "quotaDimensions": {"location": "global", "model": "gemini-3-pro-image"},
                "quotaValue": str(limit),
            }
            for period in periods
        ]
        details: list[Json] = [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations}]
        message = (
            "You exceeded your current quota, please check your plan and billing details.\n* Quota exceeded for metric:"
            f" {violations[0]['quotaMetric']}, limit: {limit}, model: gemini-3-pro-image"
        )
        if wait:
            details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{delay:.9g}s"})
            message += f"\nPlease retry in {delay:.9g}s."
        return _refuse(429, "RESOURCE_EXHAUSTED", message, *details)(delay)

    return refusal


def _stopped(reason: str, text: str = "") -> Callable[[Json], None]:
    """The model stopped for `reason` without an image; prompt and thoughts are billed."""

    def change(answer: Json) -> None:
        candidate: Json = {"index": 0, "finishReason": reason}
        if text:
            candidate["content"] = {"role": "model", "parts": [{"text": text}]}
        if reason not in ("STOP", "MAX_TOKENS"):
            candidate["finishMessage"] = f"Unable to show the generated image ({reason})."
        answer["candidates"] = [candidate]
        _use(answer, image=0, text=TEXT_TOKENS if text else 0)

    return change


def _use(answer: Json, image: int, text: int, thoughts: int = THOUGHT_TOKENS) -> None:
    """Set the tokens that the model put out."""
    usage = answer["usageMetadata"]
    usage["candidatesTokenCount"] = image + text
    usage["candidatesTokensDetails"] = [{"modality": "IMAGE", "tokenCount": image}] if image else []
    usage["thoughtsTokenCount"] = thoughts
    usage["totalTokenCount"] = usage["promptTokenCount"] + image + text + thoughts


def _parts(answer: Json) -> list[Json]:
    parts: list[Json] = answer["candidates"][0]["content"]["parts"]
    return parts


def _no_candidates(answer: Json) -> None:
    del answer["candidates"]
    _use(answer, image=0, text=0, thoughts=0)


def _prompt_blocked(answer: Json) -> None:
    _no_candidates(answer)
    answer["promptFeedback"] = {"blockReason": "PROHIBITED_CONTENT"}


def _only_thought_image(answer: Json) -> None:
    parts = _parts(answer)
    parts[:] = [{**parts[-1], "thought": True}]
    _use(answer, image=0, text=0)


def _two_images(answer: Json) -> None:
    parts = _parts(answer)
    first = _open(base64.b64decode(parts[-1]["inlineData"]["data"])).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    parts.insert(-1, _image_part(_encoded(first, "PNG")))
    tokens = answer["usageMetadata"]["candidatesTokensDetails"][0]["tokenCount"]
    _use(answer, image=2 * tokens, text=answer["usageMetadata"]["candidatesTokenCount"] - tokens)


def _long_thoughts(answer: Json) -> None:
    tokens = answer["usageMetadata"]["candidatesTokensDetails"][0]["tokenCount"]
    _use(answer, image=2 * tokens, text=TEXT_TOKENS, thoughts=100 * THOUGHT_TOKENS)


def _unsigned(answer: Json) -> None:
    for part in _parts(answer):
        part.pop("thoughtSignature", None)


def _continuation(answer: Json) -> None:
    answer["candidates"][0]["finishReason"] = "CONTINUATION"
    answer["candidates"][0]["continuationToken"] = base64.b64encode(b"more").decode()


def _other_model(answer: Json) -> None:
    answer["modelVersion"] = "gemini-2.5-flash-image-simulated"


def _without(*path: str) -> Callable[[Json], bytes]:
    """The answer told without the field at `path`."""

    def body(answer: Json) -> bytes:
        inner = answer
        for key in path[:-1]:
            inner = inner[key]
        inner.pop(path[-1])
        return _dump(answer)

    return body


def _bad_base64(answer: Json) -> bytes:
    inline = _parts(answer)[-1]["inlineData"]
    inline["data"] = inline["data"][:-7] + "*"
    return _dump(answer)


def _new_fields(answer: Json) -> bytes:
    _parts(answer).insert(0, {"hologram": {"depth": 3}})
    return _dump({**answer, "watermark": {"kind": "SynthID"}})


def _dump(value: object) -> bytes:
    return json.dumps(value).encode()


_OVERLOADED = "The model is overloaded. Please try again later."
_INTERNAL = "An internal error has occurred. Please retry or report in the developer forum."
_NO_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
_PROXY_PAGE = b"<html><body><h1>502 Bad Gateway</h1></body></html>"

FAULTS: dict[str, Fault] = {
    # Refused: an HTTP error, nothing is billed.
    "rate_limit": Fault(
        "429, requests per minute, with RetryInfo.retryDelay [M]",
        refusal=_over_quota("PerMinute", limit=20, wait=True),
    ),
    "rate_limit_bare": Fault(
        "429 without any details, as Vertex words it [U gemini-cli 14811]",
        refusal=_refuse(429, "RESOURCE_EXHAUSTED", "Resource exhausted. Please try again later."),
    ),
    "quota_day": Fault(
        "429, requests per day: no use to wait minutes [M]", refusal=_over_quota("PerDay", limit=250, wait=False)
    ),
    "quota_zero": Fault(
        "429 with limit 0: no quota at all, and still a retryDelay [U js-genai 1322]",
        refusal=_over_quota("PerDay", "PerMinute", limit=0, wait=True),
    ),
    "internal": Fault("500 [D]", refusal=_refuse(500, "INTERNAL", _INTERNAL)),
    "bad_gateway": Fault("502 from a proxy, an HTML page [C]", refusal=lambda _delay: Refusal(502, _PROXY_PAGE)),
    "unavailable": Fault("503, once or for minutes [U]", refusal=_refuse(503, "UNAVAILABLE", _OVERLOADED)),
    "deadline": Fault("504 [D]", refusal=_refuse(504, "DEADLINE_EXCEEDED", "Deadline expired before completion.")),
    "request_timeout": Fault("408 [D]", refusal=_refuse(408, "CANCELLED", "The request timed out.")),
    "key_invalid": Fault(
        "400 for a wrong key: not 401 [U]",
        refusal=_refuse(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", _NO_KEY),
    ),
    "unauthenticated": Fault(
        "401, token expired [D]",
        refusal=_refuse(401, "UNAUTHENTICATED", "Request had invalid authentication credentials."),
    ),
    "forbidden": Fault(
        "403, key leaked or without the right [D]",
        refusal=_refuse(403, "PERMISSION_DENIED", "Your API key was reported as leaked. Please use another API key."),
    ),
    "model_gone": Fault(
        "404, the model was shut down in the middle of a campaign [D]",
        refusal=_refuse(404, "NOT_FOUND", "This model is no longer available."),
    ),
    "thought_signature": Fault(
        "400 on a later turn, though the signature was sent [U]",
        refusal=_refuse(
            400,
            "INVALID_ARGUMENT",
            "Image part is missing a thought_signature in content position 2, part position 1.",
        ),
    ),
    "unknown_name": Fault(
        "400, the API version does not know responseModalities: v1, by default [U js-genai 1322]",
        refusal=_refuse(
            400,
            "INVALID_ARGUMENT",
            "Invalid JSON payload received. Unknown name \"responseModalities\" at 'generation_config': Cannot find"
            " field.",
        ),
    ),
    "location": Fault(
        "400, the API is not offered where the client is [D]",
        refusal=_refuse(400, "FAILED_PRECONDITION", "User location is not supported for the API use."),
    ),
    # The model did its work (billed), the answer is lost or late.
    "drop_before": Fault("connection closed before any work: not billed [M]", wire="drop_before"),
    "drop": Fault("connection closed, unanswered, after the work was billed [M]", wire="drop"),
    "reset": Fault("connection reset (RST) after the work was billed [M]", wire="reset"),
    "truncated": Fault("the body breaks off half-way, its length was announced [M]", wire="truncate"),
    "truncated_unseen": Fault("the body breaks off half-way, no length was announced [M]", wire="no_length"),
    "hang": Fault("no answer until the client hangs up: there is no default timeout [M]", wire="hang"),
    "slow": Fault("the answer comes `slow_seconds` late [U]", wire="slow"),
    "trickle": Fault("the body takes `slow_seconds`, in pieces quicker than any read timeout [C]", wire="trickle"),
    # Status 200, but the body is not what the API promises.
    "bad_json": Fault("JSON that breaks off, of the right length [M]", body=lambda answer: _dump(answer)[:-20]),
    "html": Fault("a page instead of JSON, status 200 (captive portal, proxy) [C]", body=lambda _: _PROXY_PAGE),
    "empty_body": Fault("nothing at all [C: read as an answer without candidates]", body=lambda _: b""),
    "json_list": Fault(
        "the answer in a list, as streams send it [C: read as an answer without candidates]",
        body=lambda answer: _dump([answer]),
    ),
    "error_as_200": Fault(
        "an error under status 200 [C: read as an answer without candidates]",
        body=lambda _: _dump({"error": {"code": 500, "message": _INTERNAL, "status": "INTERNAL"}}),
    ),
    "wrong_shape": Fault(
        "JSON of another shape: parts is no list [M]",
        body=lambda _: _dump({"candidates": [{"content": {"parts": {"text": TEXT}}}]}),
    ),
    "bad_base64": Fault("the image's base64 is damaged [M]", body=_bad_base64),
    "new_fields": Fault("fields and a part of a kind that the client does not know [C]", body=_new_fields),
    "no_usage": Fault("usageMetadata missing: billed, but not told [U]", body=_without("usageMetadata")),
    "no_modalities": Fault(
        "no candidatesTokensDetails: priced as text, image tokens come out far too cheap [U]",
        body=_without("usageMetadata", "candidatesTokensDetails"),
    ),
    # Status 200 and well-formed, but there is no image, or not the one that was asked for.
    "no_candidates": Fault("candidates missing, no reason given [M]", answer=_no_candidates),
    "prompt_blocked": Fault("promptFeedback.blockReason and no candidates [M]", answer=_prompt_blocked),
    "image_safety": Fault("finishReason IMAGE_SAFETY [D]", answer=_stopped("IMAGE_SAFETY")),
    "prohibited_content": Fault("finishReason PROHIBITED_CONTENT [D]", answer=_stopped("PROHIBITED_CONTENT")),
    "recitation": Fault("finishReason RECITATION [D]", answer=_stopped("RECITATION")),
    "image_recitation": Fault("finishReason IMAGE_RECITATION [D]", answer=_stopped("IMAGE_RECITATION")),
    "no_image": Fault("finishReason NO_IMAGE [D]", answer=_stopped("NO_IMAGE")),
    "image_other": Fault("finishReason IMAGE_OTHER [D]", answer=_stopped("IMAGE_OTHER")),
    "max_tokens": Fault("finishReason MAX_TOKENS after some text [D]", answer=_stopped("MAX_TOKENS", text="Here is")),
    "unknown_finish": Fault("a finishReason newer than the client: it warns [M]", answer=_stopped("BRAND_NEW_REASON")),
    "text_only": Fault("finishReason STOP, text, no image [U]", answer=_stopped("STOP", text=TEXT)),
    "thought_image_only": Fault("the only image is a thought: not the result [M]", answer=_only_thought_image),
    "two_images": Fault("two images: the last one is the result [M]", answer=_two_images),
    "unsigned": Fault("no thoughtSignature: the next turn of a chat will get a 400 [U]", answer=_unsigned),
    "continuation": Fault("finishReason CONTINUATION: the client asks for more by itself [C]", answer=_continuation),
    "price_surprise": Fault("thoughts 100 times as long, image tokens doubled; billed so [U]", answer=_long_thoughts),
    "other_model": Fault("another model answered: see modelVersion [D]", answer=_other_model),
    # The image's own bytes. PNG or JPEG varies by call [U].
    "jpeg": Fault("a JPEG, declared so [U]", image=lambda png: _encoded(_open(png), "JPEG"), mime="image/jpeg"),
    "mislabelled": Fault("declared PNG, bytes JPEG [U]", image=lambda png: _encoded(_open(png), "JPEG")),
    "webp": Fault("declared PNG, bytes WebP [U]", image=lambda png: _encoded(_open(png), "WEBP", lossless=True)),
    "gif": Fault("a format that the dataset does not hold", image=lambda png: _encoded(_open(png), "GIF")),
    "not_an_image": Fault("bytes that are no image", image=lambda png: hashlib.sha512(png).digest() * 4),
    "empty_image": Fault("an image of no bytes [C: b'']", image=lambda _: b""),
    "truncated_image": Fault("a PNG cut short", image=lambda png: png[: len(png) // 2]),
    "drifted": Fault("other size and aspect ratio than the input and the request [U]", image=_drifted),
    "bomb": Fault("144 million pixels in 20 kB, decodable", image=lambda _: _bomb()),
    "alpha": Fault("PNG with transparency", image=_with_alpha),
    "sixteen_bit": Fault("PNG with 16 bits a sample", image=_sixteen_bit),
    "turned": Fault("declared PNG, a JPEG that EXIF turns by 90 degrees", image=_turned),
}


# ---- the model ----------------------------------------------------------------------------------------------------


@dataclass
class Call:
    """One request to generateContent and what became of it.

    number: 1 for the first. images: SHA-256 of every inline image sent, in order; the last is what is edited.
    prompt: the last text sent. turns: length of `contents`. continuation: the client asked for more by itself.
    made: the encoded image that is the result, None where there is none. status: of the HTTP answer, None until it
    is sent. answered: the whole answer went to a client that was still there.
    """

    number: int
    api: Literal["gemini", "vertex"]
    version: str
    model: str
    prompt: str = ""
    images: tuple[str, ...] = ()
    turns: int = 0
    seed: int | None = None
    temperature: float | None = None
    aspect_ratio: str | None = None
    image_size: str | None = None
    include_thoughts: bool = False
    modalities: tuple[str, ...] = ()
    service_tier: str | None = None
    continuation: bool = False
    num_bytes: int = 0
    fault: str | None = None
    status: int | None = None
    made: bytes | None = field(default=None, repr=False)
    billed_usd: float = 0.0
    answered: bool = False


def _invalid(message: str) -> Refusal:
    return _refuse(400, "INVALID_ARGUMENT", message)(0)


def _snake(value: Any) -> Any:
    """JSON with every key in snake_case: the client writes both cases into one request."""
    if isinstance(value, dict):
        return {re.sub("[A-Z]", lambda m: "_" + m[0].lower(), key): _snake(inner) for key, inner in value.items()}
    return [_snake(inner) for inner in value] if isinstance(value, list) else value


def _inline(part: Json) -> bytes | None:
    data = part.get("inline_data", {}).get("data")
    return None if data is None else base64.b64decode(data.translate(str.maketrans("-_", "+/")))


def _image_part(data: bytes, mime: str = "image/png", **more: object) -> Json:
    return {"inlineData": {"mimeType": mime, "data": base64.b64encode(data).decode()}, **more}


def _read(call: Call, request: Json) -> bytes:
    """Fill `call` from the request; the picture to edit. Raises Refusal as the real API refuses."""
    contents = request.get("contents", [])
    config = request.get("generation_config", {})
    image = config.get("image_config", {})
    parts = [part for content in contents for part in content.get("parts", [])]
    pictures = [data for part in parts if (data := _inline(part)) is not None]
    call.prompt = next((part["text"] for part in reversed(parts) if "text" in part), "")
    call.images = tuple(hashlib.sha256(data).hexdigest() for data in pictures)
    call.turns = len(contents)
    call.seed, call.temperature = config.get("seed"), config.get("temperature")
    call.aspect_ratio, call.image_size = image.get("aspect_ratio"), image.get("image_size")
    call.include_thoughts = bool(config.get("thinking_config", {}).get("include_thoughts"))
    call.modalities = tuple(config.get("response_modalities", ()))
    call.service_tier = request.get("service_tier")
    call.continuation = "continuation_token" in request

    for position, content in enumerate(contents, 1):
        for index, part in enumerate(content.get("parts", []), 1):
            unsigned = "inline_data" in part and not part.get("thought") and not part.get("thought_signature")
            if content.get("role") == "model" and unsigned:
                raise _invalid(
                    f"Image part is missing a thought_signature in content position {position}, part position {index}."
                )
    if call.aspect_ratio and not re.fullmatch(r"[1-9]\d?:[1-9]\d?", call.aspect_ratio):
        raise _invalid(f"Invalid aspect_ratio {call.aspect_ratio!r}.")
    if not pictures:
        raise _invalid("tests/fakes/gemini.py edits pictures: the request holds none.")
    try:
        _open(pictures[-1]).load()
    except Exception as error:
        raise _invalid("Unable to process input image. Please retry or report in the developer forum.") from error
    return pictures[-1]


def _answer(call: Call, picture: bytes, price: Price, fault: Fault | None) -> Json:
    """The model's answer, before any fault but the image's own; sets `call.made`."""
    png = edit(picture, call.prompt, call.seed, call.temperature, call.aspect_ratio, call.image_size)
    made, mime = (fault.image(png), fault.mime) if fault and fault.image else (png, "image/png")
    call.made = made
    parts: list[Json] = []
    if call.include_thoughts:
        draft = _open(picture).convert("RGB").resize((32, 32))
        parts += [{"text": "**Copying**\n\nI keep it as it is.", "thought": True}]
        parts += [_image_part(_encoded(draft, "PNG"), thought=True)]
    text = 0
    if "TEXT" in call.modalities:
        parts += [{"text": TEXT}]
        text = TEXT_TOKENS
    signature = base64.b64encode(hashlib.sha256(made).digest()).decode()
    parts += [_image_part(made, mime, thoughtSignature=signature)]

    prompt = {"TEXT": math.ceil(len(call.prompt) / 4), "IMAGE": price.image_in * len(call.images)}
    answer: Json = {
        "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": parts}}],
        "usageMetadata": {
            "promptTokenCount": sum(prompt.values()),
            "promptTokensDetails": [{"modality": kind, "tokenCount": count} for kind, count in prompt.items()],
        },
        "modelVersion": f"{call.model}-simulated",
        "responseId": f"simulated-{call.number:05d}",
    }
    _use(answer, image=price.image_out[call.image_size or DEFAULT_IMAGE_SIZE], text=text)
    return answer


# ---- the server ---------------------------------------------------------------------------------------------------

_PATH = re.compile(
    r"/(?P<version>v1|v1beta|v1beta1|v1alpha)/"
    r"(?P<vertex>(?:projects/[^/]+/locations/[^/]+/)?publishers/google/)?"
    r"models/(?P<model>[^/:]+):generateContent"
)


@dataclass(frozen=True)
class _Reply:
    call: Call
    status: int
    body: bytes
    wire: Wire = "whole"


@dataclass
class _Planned:
    kind: str
    left: int | None
    applies: Callable[[Call], bool]


class FakeGemini:
    """The server, as a context manager; all of it may be used from any thread.

    latency: seconds before each answer; may be changed while serving.
    retry_delay: the seconds that a 429 asks the client to wait. slow_seconds: of the faults "slow" and "trickle".
    max_request_bytes: above it, a request gets a 400 (chats resend every image).
    prices: the models there are; a 404 for every other.
    url: for HttpOptions(base_url=...), both for the Gemini API and for Vertex.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        latency: float = 0.0,
        retry_delay: float = 0.2,
        slow_seconds: float = 1.0,
        max_request_bytes: int = 20 << 20,
        prices: Mapping[str, Price] = PRICES,
    ) -> None:
        self.latency = latency
        self.retry_delay = retry_delay
        self.slow_seconds = slow_seconds
        self.max_request_bytes = max_request_bytes
        self.max_in_flight = 0
        self._prices = prices
        self._calls: list[Call] = []
        self._planned: list[_Planned] = []
        self._in_flight = 0
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._http = _Server(("127.0.0.1", port), self)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> FakeGemini:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        with self._changed:
            self._changed.wait_for(lambda: self._in_flight == 0, timeout=5)

    def fault(self, kind: str, times: int | None = 1, at: int | Callable[[Call], bool] | None = None) -> None:
        """Plan a fault: `kind` of FAULTS, on the next `times` calls (None: every one) to which `at` applies.

        at: a call number, from which on it applies; a predicate of the call as it came in; None applies to every call.
        A call has one fault at most, that of the first plan which applies; a request refused in itself has none.
        In chains that are killed and resumed, call numbers shift: go by `call.images[-1]`. ValueError where there is no
        such kind.
        """
        if kind not in FAULTS:
            raise ValueError(f"unknown fault {kind!r}; choices: {', '.join(sorted(FAULTS))}")
        first = at if isinstance(at, int) else 1
        applies = at if callable(at) else (lambda call: call.number >= first)
        with self._changed:
            self._planned.append(_Planned(kind, times, applies))

    @property
    def log(self) -> list[Call]:
        """Every call so far, in order of arrival, as it stands now."""
        with self._changed:
            return [replace(call) for call in self._calls]

    @property
    def calls(self) -> int:
        """How many calls came in."""
        with self._changed:
            return len(self._calls)

    @property
    def billed_usd(self) -> float:
        """What all calls cost, those whose answer was lost included."""
        return math.fsum(call.billed_usd for call in self.log)

    def wait_for_calls(self, count: int, timeout: float = 10.0) -> None:
        """Return when `count` calls have come in, so that a test can kill a client in flight; TimeoutError else."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._calls) >= count, timeout):
                raise TimeoutError(f"{len(self._calls)} calls after {timeout} s, expected {count}")

    def _next_fault(self, call: Call) -> Fault | None:
        for plan in self._planned:
            if plan.left != 0 and plan.applies(call):
                plan.left = None if plan.left is None else plan.left - 1
                call.fault = plan.kind
                return FAULTS[plan.kind]
        return None

    def _begin(self, match: re.Match[str], headers: Message, body: bytes) -> _Reply:
        """Take in one call, decide its answer and bill it."""
        with self._changed:
            number = len(self._calls) + 1
            api: Literal["gemini", "vertex"] = "vertex" if match["vertex"] else "gemini"
            call = Call(number, api, match["version"], match["model"], num_bytes=len(body))
            try:
                picture = self._admit(call, headers, body)
                fault = self._next_fault(call)
                reply = _Reply(call, 200, self._work(call, picture, fault), fault.wire if fault else "whole")
            except Refusal as refusal:
                reply = _Reply(call, refusal.status, refusal.body)
            self._calls.append(call)
            self._in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self._in_flight)
            self._changed.notify_all()
            return reply

    def _admit(self, call: Call, headers: Message, body: bytes) -> bytes:
        """The picture to edit; Refusal where the real API refuses."""
        if not headers.get("x-goog-api-key") and not headers.get("Authorization"):
            raise _refuse(403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers.")(0)
        if call.model not in self._prices:
            message = f"models/{call.model} is not found for API version {call.version}, or is not supported."
            raise _refuse(404, "NOT_FOUND", message)(0)
        if len(body) > self.max_request_bytes:
            raise _invalid(f"Request payload size exceeds the limit: {self.max_request_bytes} bytes.")
        try:
            request = json.loads(body)
        except ValueError as error:
            raise _invalid("Invalid JSON payload received.") from error
        picture = _read(call, _snake(request))
        if call.image_size not in (None, *self._prices[call.model].image_out):
            raise _invalid(f"Invalid image_size {call.image_size!r}.")
        return picture

    def _work(self, call: Call, picture: bytes, fault: Fault | None) -> bytes:
        """Let the model answer, bill it, and damage it as `fault` says: the body to send."""
        if fault and fault.refusal:
            raise fault.refusal(self.retry_delay)
        if fault and fault.wire == "drop_before":
            return b""
        price = self._prices[call.model]
        answer = _answer(call, picture, price, fault)
        if fault and fault.answer:
            fault.answer(answer)
        if not answer["usageMetadata"]["candidatesTokensDetails"]:
            call.made = None
        call.billed_usd = price_of(answer["usageMetadata"], price, call.service_tier)
        return fault.body(answer) if fault and fault.body else _dump(answer)

    def _end(self, reply: _Reply, sent: bool, answered: bool) -> None:
        """Called just before the last byte leaves, so that a client which has its answer finds it in the log."""
        with self._changed:
            self._in_flight -= 1
            reply.call.status = reply.status if sent else None
            reply.call.answered = answered
            self._changed.notify_all()

    def _wait(self, seconds: float, connection: socket.socket) -> bool:
        """Wait; False as soon as the client is gone or the server closes."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._closing.wait(min(left, 0.02)) or _gone(connection):
                return False
        return not _gone(connection)


def _gone(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], fake: FakeGemini) -> None:
        self.fake = fake
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Silent where a client went away; anything else is a fault of ours."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        super().server_close()
        for connection in list(self._open):  # idle keep-alive connections
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else every answer on a kept connection waits 40 ms for an acknowledgement
    server: _Server

    def do_POST(self) -> None:
        fake = self.server.fake
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match = _PATH.fullmatch(self.path.partition("?")[0])
        if not match:  # as Google: a page, not JSON
            self._send(404, b"<html><title>Error 404 (Not Found)</title></html>")
            return
        reply = fake._begin(match, self.headers, body)
        delay = math.inf if reply.wire == "hang" else fake.latency + (fake.slow_seconds if reply.wire == "slow" else 0)
        here = fake._wait(delay, self.connection)
        if not here or reply.wire in ("drop_before", "drop", "reset"):
            fake._end(reply, sent=False, answered=False)
            self._hang_up(reset=reply.wire == "reset")
        elif reply.wire in ("truncate", "no_length"):
            fake._end(reply, sent=True, answered=False)
            length = len(reply.body) if reply.wire == "truncate" else None
            self._send(reply.status, reply.body[: len(reply.body) // 2], length)
            self._hang_up()
        elif reply.wire == "trickle":
            self._trickle(reply)
        else:
            fake._end(reply, sent=True, answered=True)
            try:
                self._send(reply.status, reply.body)
            except OSError:
                reply.call.answered = False
                raise

    def _trickle(self, reply: _Reply) -> None:
        fake, pieces = self.server.fake, 16
        step = math.ceil(len(reply.body) / pieces)
        self._send(reply.status, b"", len(reply.body))
        here = True
        for piece in range(pieces):
            here = here and fake._wait(fake.slow_seconds / pieces, self.connection)
            if piece == pieces - 1:
                fake._end(reply, sent=True, answered=here)
            if here:
                self.wfile.write(reply.body[piece * step : (piece + 1) * step])

    def _send(self, status: int, body: bytes, length: int | None = -1) -> None:
        """Send the head and `body` at once. length: what Content-Length says (-1: the truth; None: not sent)."""
        self.send_response(status)
        kind = "text/html" if body.startswith(b"<") else "application/json"
        self.send_header("Content-Type", f"{kind}; charset=UTF-8")
        if length is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(body) if length == -1 else length))
        self.end_headers()
        self.wfile.write(body)

    def _hang_up(self, reset: bool = False) -> None:
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            for end in (self.rfile, self.wfile, self.connection):
                end.close()
            raise ConnectionResetError  # past the flushing of what is closed; see _Server.handle_error

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the log is `FakeGemini.log`."""


def main() -> None:
    """Serve until killed; the URL is the first line on standard output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    options = parser.parse_args()
    with FakeGemini(options.port, latency=options.latency) as server:
        print(server.url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
