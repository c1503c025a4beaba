"""The real google-genai client against the fake Gemini server: what arrives, what faults look like, what is billed."""

from __future__ import annotations

import asyncio
import hashlib
import io
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.fakes.gemini import FAULTS, LONGEST_SIDE, PRICES, SIMULATED, FakeGemini, edit, price_of

genai = pytest.importorskip("google.genai", reason="needs google-genai, the client that the fake is for")
httpx2 = pytest.importorskip("httpx2", reason="google-genai 3.6 speaks through httpx2")
from google.genai import errors, types  # noqa: E402
from google.oauth2.credentials import Credentials  # noqa: E402
from pydantic import ValidationError  # noqa: E402

MODEL = "gemini-3-pro-image"
PROMPT = "Produce an exact replica of the provided image, with no alterations."
ROOT = Path(__file__).parents[2]


def _picture(width: int = 64, height: int = 48) -> bytes:
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([x * 3, y * 4, (x * y) % 256], axis=-1).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


PNG = _picture()


@pytest.fixture(scope="module")
def client() -> Any:
    """One client for all tests: making one takes longer than 20 calls. `ask` points it at its server."""
    return genai.Client(api_key="any", http_options=types.HttpOptions(client_args={"trust_env": False}))


@pytest.fixture
def server() -> Iterator[FakeGemini]:
    with FakeGemini(slow_seconds=0.5) as server:
        yield server


def _config(server: FakeGemini, timeout_ms: int = 5000, **settings: Any) -> Any:
    settings = {
        "http_options": types.HttpOptions(base_url=server.url, api_version="v1beta", timeout=timeout_ms),
        "response_modalities": ["TEXT", "IMAGE"],
        "automatic_function_calling": types.AutomaticFunctionCallingConfig(disable=True),
        **settings,
    }
    return types.GenerateContentConfig(**settings)


def _contents(image: bytes, prompt: str) -> list[Any]:
    return [types.Part.from_bytes(data=image, mime_type="image/png"), types.Part(text=prompt)]


def ask(client: Any, server: FakeGemini, image: bytes = PNG, prompt: str = PROMPT, **settings: Any) -> Any:
    """One edit; `settings` of GenerateContentConfig, and `timeout_ms`."""
    return client.models.generate_content(
        model=MODEL, contents=_contents(image, prompt), config=_config(server, **settings)
    )


def images(response: Any) -> list[bytes]:
    """The encoded images of an answer that are no thoughts."""
    content = response.candidates[0].content if response.candidates else None
    parts = (content.parts if content else None) or []
    return [part.inline_data.data for part in parts if part.inline_data and not part.thought]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---- a plain edit -------------------------------------------------------------------------------------------------


def test_an_edit_returns_the_bytes_that_the_server_made(client: Any, server: FakeGemini) -> None:
    response = ask(client, server, seed=3, temperature=0.5)
    [made] = images(response)
    [call] = server.log
    assert made == call.made == edit(PNG, PROMPT, seed=3, temperature=0.5)
    assert (call.status, call.answered, call.fault, call.prompt) == (200, True, None, PROMPT)
    assert call.images == (sha256(PNG),)
    assert response.text == "Here is the picture."
    assert response.candidates[0].finish_reason == types.FinishReason.STOP
    assert response.response_id == "simulated-00001"


def test_what_it_makes_is_labelled_simulated(client: Any, server: FakeGemini) -> None:
    response = ask(client, server)
    assert response.model_version == "gemini-3-pro-image-simulated"
    assert Image.open(io.BytesIO(images(response)[0])).info["Comment"] == SIMULATED


def test_an_edit_depends_on_every_input_and_on_nothing_else() -> None:
    first = edit(PNG, PROMPT, seed=1, temperature=1.0)
    assert first == edit(PNG, PROMPT, seed=1, temperature=1.0)
    others = [
        edit(_picture(64, 47), PROMPT, seed=1, temperature=1.0),
        edit(PNG, PROMPT + " ", seed=1, temperature=1.0),
        edit(PNG, PROMPT, seed=2, temperature=1.0),
        edit(PNG, PROMPT, seed=None, temperature=1.0),
        edit(PNG, PROMPT, seed=1, temperature=0.0),
        edit(PNG, PROMPT, seed=1, temperature=1.0, image_size="2K"),
    ]
    assert len({first, *others}) == 7


def test_a_chain_of_edits_degrades_the_picture_but_keeps_it() -> None:
    before = np.asarray(Image.open(io.BytesIO(edit(PNG, PROMPT, 0))), dtype=float)
    data = edit(PNG, PROMPT, 0)
    distances = []
    for _ in range(10):
        data = edit(data, PROMPT, 0)
        distances.append(float(np.abs(np.asarray(Image.open(io.BytesIO(data)), dtype=float) - before).mean()))
    assert distances[0] < distances[4] < distances[9] < 64


@pytest.mark.parametrize("size", LONGEST_SIDE)
def test_image_size_and_aspect_ratio_are_obeyed(size: str) -> None:
    for ratio, shape in ((None, (4, 3)), ("16:9", (16, 9)), ("1:1", (1, 1))):
        picture = Image.open(io.BytesIO(edit(PNG, PROMPT, aspect_ratio=ratio, image_size=size)))
        assert max(picture.size) == LONGEST_SIDE[size]
        assert picture.width / picture.height == pytest.approx(shape[0] / shape[1], rel=0.04)


def test_settings_arrive_on_the_wire(client: Any, server: FakeGemini) -> None:
    ask(
        client,
        server,
        seed=7,
        temperature=0.25,
        image_config=types.ImageConfig(aspect_ratio="4:3", image_size="2K"),
        thinking_config=types.ThinkingConfig(include_thoughts=True),
        service_tier="flex",
    )
    [call] = server.log
    assert (call.api, call.version, call.model, call.turns) == ("gemini", "v1beta", MODEL, 1)
    assert (call.seed, call.temperature, call.aspect_ratio, call.image_size) == (7, 0.25, "4:3", "2K")
    assert (call.service_tier, call.include_thoughts, call.modalities) == ("flex", True, ("TEXT", "IMAGE"))
    assert call.num_bytes > len(PNG) * 4 / 3


def test_nothing_is_sent_that_was_not_set_and_the_default_version_is_v1(client: Any, server: FakeGemini) -> None:
    ask(client, server, http_options=types.HttpOptions(base_url=server.url), response_modalities=None)
    [call] = server.log
    assert (call.version, call.seed, call.temperature, call.image_size) == ("v1", None, None, None)
    assert (call.service_tier, call.include_thoughts, call.modalities) == (None, False, ())


def test_thoughts_come_only_when_asked_for_and_before_the_result(client: Any, server: FakeGemini) -> None:
    plain = ask(client, server).candidates[0].content.parts
    assert [(bool(p.thought), bool(p.inline_data)) for p in plain] == [(False, False), (False, True)]
    thinking = types.ThinkingConfig(include_thoughts=True)
    parts = ask(client, server, thinking_config=thinking).candidates[0].content.parts
    assert [(bool(p.thought), bool(p.inline_data)) for p in parts] == [
        (True, False),
        (True, True),
        (False, False),
        (False, True),
    ]
    assert parts[1].inline_data.data != parts[3].inline_data.data
    assert parts[3].thought_signature == hashlib.sha256(parts[3].inline_data.data).digest()


# ---- chats --------------------------------------------------------------------------------------------------------


def test_a_chat_sends_every_image_again_thought_images_too(client: Any, server: FakeGemini) -> None:
    config = _config(server, thinking_config=types.ThinkingConfig(include_thoughts=True))
    chat = client.chats.create(model=MODEL, config=config)
    first = chat.send_message(_contents(PNG, PROMPT))
    second = chat.send_message(PROMPT)
    thought = first.candidates[0].content.parts[1].inline_data.data
    assert [call.turns for call in server.log] == [1, 3]
    assert server.log[1].images == (sha256(PNG), sha256(thought), sha256(images(first)[0]))
    assert images(second) == [edit(images(first)[0], PROMPT)]


def test_a_chat_fails_on_the_turn_after_an_unsigned_image(client: Any, server: FakeGemini) -> None:
    server.fault("unsigned")
    chat = client.chats.create(model=MODEL, config=_config(server))
    assert images(chat.send_message(_contents(PNG, PROMPT))) == [server.log[0].made]
    with pytest.raises(errors.ClientError, match="missing a thought_signature in content position 2, part position 2"):
        chat.send_message(PROMPT)


# ---- Vertex -------------------------------------------------------------------------------------------------------


def _vertex(server: FakeGemini, **how: Any) -> Any:
    options = types.HttpOptions(base_url=server.url, client_args={"trust_env": False})
    client = genai.Client(vertexai=True, http_options=options, **how)
    config = types.GenerateContentConfig(seed=5, image_config=types.ImageConfig(image_size="4K"))
    return client.models.generate_content(model=MODEL, contents=_contents(PNG, PROMPT), config=config)


@pytest.mark.parametrize(
    "how",
    [{"api_key": "any"}, {"credentials": Credentials(token="any"), "project": "p", "location": "global"}],
    ids=["api_key", "credentials"],
)
def test_vertex(server: FakeGemini, how: dict[str, Any]) -> None:
    response = _vertex(server, **how)
    [call] = server.log
    assert (call.api, call.version, call.model, call.image_size) == ("vertex", "v1beta1", MODEL, "4K")
    assert images(response) == [call.made] == [edit(PNG, PROMPT, seed=5, image_size="4K")]


def test_vertex_without_a_location_posts_to_no_model(server: FakeGemini, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_LOCATION", raising=False)
    with pytest.raises(errors.ClientError, match="404 Not Found"):
        _vertex(server, credentials=Credentials(token="any"), project="p")
    assert server.calls == 0


# ---- what the server refuses in itself ----------------------------------------------------------------------------


def _refused(client: Any, server: FakeGemini, **call: Any) -> Any:
    with pytest.raises(errors.ClientError) as caught:
        client.models.generate_content(**{"model": MODEL, "config": _config(server), **call})
    assert server.billed_usd == 0
    return caught.value


def test_unknown_model(client: Any, server: FakeGemini) -> None:
    error = _refused(client, server, model="gemini-3-pro-image-preview", contents=_contents(PNG, PROMPT))
    assert (error.code, error.status) == (404, "NOT_FOUND")
    assert server.log[0].model == "gemini-3-pro-image-preview"


@pytest.mark.parametrize("data", [b"no picture", PNG[:200]], ids=["no picture", "cut short"])
def test_unreadable_picture(client: Any, server: FakeGemini, data: bytes) -> None:
    error = _refused(client, server, contents=_contents(data, PROMPT))
    assert (error.code, error.message[:29]) == (400, "Unable to process input image")


def test_no_picture(client: Any, server: FakeGemini) -> None:
    assert "the request holds none" in _refused(client, server, contents=PROMPT).message


@pytest.mark.parametrize(
    "image",
    [types.ImageConfig(image_size="512"), types.ImageConfig(image_size="2k"), types.ImageConfig(aspect_ratio="wide")],
)
def test_image_settings_that_the_model_does_not_have(client: Any, server: FakeGemini, image: Any) -> None:
    error = _refused(client, server, contents=_contents(PNG, PROMPT), config=_config(server, image_config=image))
    assert (error.code, error.status) == (400, "INVALID_ARGUMENT")


def test_request_above_the_limit(client: Any, server: FakeGemini) -> None:
    server.max_request_bytes = 4000
    error = _refused(client, server, contents=_contents(edit(PNG, PROMPT, image_size="4K"), PROMPT))
    assert (error.code, error.message) == (400, "Request payload size exceeds the limit: 4000 bytes.")
    ask(client, server, _picture(16, 12))
    assert [call.status for call in server.log] == [400, 200]


@pytest.mark.parametrize(("key", "body", "code"), [("", b"{}", 403), ("any", b"{", 400)])
def test_no_key_and_no_json(server: FakeGemini, key: str, body: bytes, code: int) -> None:
    url = f"{server.url}/v1beta/models/{MODEL}:generateContent"
    request = urllib.request.Request(url, body, {"x-goog-api-key": key})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request)
    assert caught.value.code == code
    caught.value.close()


# ---- faults -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Raises:
    """google-genai raises `error`, with HTTP status `code` where the server answered with one."""

    error: type[Exception]
    code: int | None = None
    billed: bool = False


@dataclass(frozen=True)
class Answers:
    """google-genai returns an answer with this finish reason and images of these formats ("?": not an image)."""

    finish: str | None = "STOP"
    images: tuple[str, ...] = ("PNG",)
    billed: bool = True


NOTHING = Answers(finish=None, images=())

EXPECTED: dict[str, Raises | Answers] = {
    "rate_limit": Raises(errors.ClientError, 429),
    "rate_limit_bare": Raises(errors.ClientError, 429),
    "quota_day": Raises(errors.ClientError, 429),
    "quota_zero": Raises(errors.ClientError, 429),
    "internal": Raises(errors.ServerError, 500),
    "bad_gateway": Raises(errors.ServerError, 502),
    "unavailable": Raises(errors.ServerError, 503),
    "deadline": Raises(errors.ServerError, 504),
    "request_timeout": Raises(errors.ClientError, 408),
    "key_invalid": Raises(errors.ClientError, 400),
    "unauthenticated": Raises(errors.ClientError, 401),
    "forbidden": Raises(errors.ClientError, 403),
    "model_gone": Raises(errors.ClientError, 404),
    "thought_signature": Raises(errors.ClientError, 400),
    "unknown_name": Raises(errors.ClientError, 400),
    "location": Raises(errors.ClientError, 400),
    "drop_before": Raises(httpx2.RemoteProtocolError),
    "drop": Raises(httpx2.RemoteProtocolError, billed=True),
    "reset": Raises(httpx2.ReadError, billed=True),
    "truncated": Raises(httpx2.RemoteProtocolError, billed=True),
    "truncated_unseen": Raises(JSONDecodeError, billed=True),
    "hang": Raises(httpx2.ReadTimeout, billed=True),
    "slow": Raises(httpx2.ReadTimeout, billed=True),
    "trickle": Answers(),
    "bad_json": Raises(JSONDecodeError, billed=True),
    "html": Raises(JSONDecodeError, billed=True),
    "empty_body": NOTHING,
    "json_list": NOTHING,
    "error_as_200": NOTHING,
    "wrong_shape": Raises(ValidationError, billed=True),
    "bad_base64": Raises(ValidationError, billed=True),
    "new_fields": Answers(),
    "no_usage": Answers(),
    "no_modalities": Answers(),
    "no_candidates": NOTHING,
    "prompt_blocked": NOTHING,
    "image_safety": Answers("IMAGE_SAFETY", ()),
    "prohibited_content": Answers("PROHIBITED_CONTENT", ()),
    "recitation": Answers("RECITATION", ()),
    "image_recitation": Answers("IMAGE_RECITATION", ()),
    "no_image": Answers("NO_IMAGE", ()),
    "image_other": Answers("IMAGE_OTHER", ()),
    "max_tokens": Answers("MAX_TOKENS", ()),
    "unknown_finish": Answers("BRAND_NEW_REASON", ()),
    "text_only": Answers("STOP", ()),
    "thought_image_only": Answers("STOP", ()),
    "two_images": Answers("STOP", ("PNG", "PNG")),
    "unsigned": Answers(),
    "continuation": Answers("STOP", ("PNG", "PNG")),
    "price_surprise": Answers(),
    "other_model": Answers(),
    "jpeg": Answers(images=("JPEG",)),
    "mislabelled": Answers(images=("JPEG",)),
    "webp": Answers(images=("WEBP",)),
    "gif": Answers(images=("GIF",)),
    "not_an_image": Answers(images=("?",)),
    "empty_image": Answers(images=("?",)),
    "truncated_image": Answers(images=("PNG",)),
    "drifted": Answers(),
    "bomb": Answers(),
    "alpha": Answers(),
    "sixteen_bit": Answers(),
    "turned": Answers(images=("JPEG",)),
}


def _format(data: bytes) -> str:
    try:
        return str(Image.open(io.BytesIO(data)).format)
    except Exception:
        return "?"


def test_every_fault_is_tested_and_says_what_it_is() -> None:
    assert set(EXPECTED) == set(FAULTS)
    assert all(len(fault.says) > 5 for fault in FAULTS.values())


@pytest.mark.filterwarnings("ignore:BRAND_NEW_REASON", "ignore:Image size:PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("kind", FAULTS)
def test_fault(client: Any, server: FakeGemini, kind: str) -> None:
    expected = EXPECTED[kind]
    timeout_ms = 250 if kind in ("hang", "slow", "trickle") else 10_000
    server.fault(kind)
    if isinstance(expected, Raises):
        with pytest.raises(expected.error) as caught:
            ask(client, server, timeout_ms=timeout_ms)
        assert getattr(caught.value, "code", None) == expected.code
    else:
        response = ask(client, server, timeout_ms=timeout_ms)
        candidate = response.candidates[0] if response.candidates else None
        assert (candidate.finish_reason.name if candidate else None) == expected.finish
        assert tuple(_format(data) for data in images(response)) == expected.images
        if len(expected.images) == 1:
            assert images(response) == [server.log[0].made]
    assert server.calls == (2 if kind == "continuation" else 1), "the sync client sends nothing again"
    call = server.log[0]
    assert call.fault == kind
    assert (call.billed_usd > 0) == expected.billed
    assert call.status in (None, expected.code if isinstance(expected, Raises) and expected.code else 200)
    assert images(ask(client, server)) == [edit(PNG, PROMPT)], "the next call is well again"


def test_rate_limit_says_how_long_to_wait_and_the_daily_quota_does_not(client: Any, server: FakeGemini) -> None:
    server.retry_delay = 2.5

    def details(kind: str) -> dict[str, Any]:
        server.fault(kind)
        with pytest.raises(errors.ClientError) as caught:
            ask(client, server)
        assert caught.value.status == "RESOURCE_EXHAUSTED"
        return {d["@type"].rpartition(".")[2]: d for d in caught.value.details["error"]["details"]}

    def quota_ids(found: dict[str, Any]) -> list[str]:
        return [violation["quotaId"] for violation in found["QuotaFailure"]["violations"]]

    minute, day, zero, bare = map(details, ("rate_limit", "quota_day", "quota_zero", "rate_limit_bare"))
    assert minute["RetryInfo"]["retryDelay"] == zero["RetryInfo"]["retryDelay"] == "2.5s"
    assert quota_ids(minute) == ["GenerateRequestsPerMinutePerProjectPerModel"]
    assert quota_ids(day) == ["GenerateRequestsPerDayPerProjectPerModel"]
    assert "RetryInfo" not in day
    assert zero["QuotaFailure"]["violations"][0]["quotaValue"] == "0"
    assert bare == {}


def test_the_clients_timeout_bounds_a_silence_but_not_the_call(client: Any, server: FakeGemini) -> None:
    server.fault("trickle")
    start = time.monotonic()
    assert images(ask(client, server, timeout_ms=250)) == [server.log[0].made]
    assert time.monotonic() - start >= 0.5


def test_a_finish_reason_newer_than_the_client_warns(client: Any, server: FakeGemini) -> None:
    server.fault("unknown_finish")
    with pytest.warns(UserWarning, match="BRAND_NEW_REASON is not a valid FinishReason"):
        ask(client, server)


def test_a_blocked_prompt_says_why(client: Any, server: FakeGemini) -> None:
    server.fault("prompt_blocked")
    assert ask(client, server).prompt_feedback.block_reason == types.BlockedReason.PROHIBITED_CONTENT


def test_the_last_of_two_images_and_no_thought_is_the_result(client: Any, server: FakeGemini) -> None:
    for kind in ("two_images", "thought_image_only"):
        server.fault(kind)
    first, last = images(ask(client, server))
    assert last == server.log[0].made != first
    only = ask(client, server).candidates[0].content.parts
    assert [(part.thought, bool(part.inline_data)) for part in only] == [(True, True)]
    assert server.log[1].made is None


def test_another_model_may_answer(client: Any, server: FakeGemini) -> None:
    server.fault("other_model")
    assert ask(client, server).model_version == "gemini-2.5-flash-image-simulated"


def test_declared_and_true_formats(client: Any, server: FakeGemini) -> None:
    declared = {}
    for kind in ("jpeg", "mislabelled", "webp", "turned"):
        server.fault(kind)
        declared[kind] = ask(client, server).candidates[0].content.parts[-1].inline_data.mime_type
    assert declared == {
        "jpeg": "image/jpeg",
        "mislabelled": "image/png",
        "webp": "image/png",
        "turned": "image/png",
    }


def test_odd_pictures_are_what_they_are_said_to_be(client: Any, server: FakeGemini) -> None:
    def made(kind: str) -> bytes:
        server.fault(kind)
        return images(ask(client, server))[0]

    plain = Image.open(io.BytesIO(edit(PNG, PROMPT)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        bomb = Image.open(io.BytesIO(made("bomb")))
    assert bomb.size == (12_000, 12_000)
    assert server.log[0].made is not None
    assert len(server.log[0].made) < 30_000

    alpha = Image.open(io.BytesIO(made("alpha")))
    assert alpha.mode == "RGBA"
    assert np.ptp(np.asarray(alpha.getchannel("A"))) > 200
    deep = made("sixteen_bit")
    assert (deep[24], deep[25]) == (16, 2)  # IHDR: bit depth, colour type RGB
    assert Image.open(io.BytesIO(deep)).tobytes() == plain.tobytes()
    assert Image.open(io.BytesIO(made("turned"))).getexif()[0x0112] == 6
    assert Image.open(io.BytesIO(made("drifted"))).size == (45, 38)
    assert plain.size == (48, 36)
    with pytest.raises(OSError, match="truncated"):
        Image.open(io.BytesIO(made("truncated_image"))).load()


def test_the_client_asks_for_more_by_itself_and_pays_twice(client: Any, server: FakeGemini) -> None:
    server.fault("continuation", times=2)
    twice = ask(client, server, automatic_continuation=False)
    assert twice.candidates[0].finish_reason == types.FinishReason.CONTINUATION
    assert server.calls == 1
    both = ask(client, server)
    assert [call.continuation for call in server.log] == [False, False, True]
    assert both.usage_metadata.candidates_token_count == 2 * twice.usage_metadata.candidates_token_count


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
def test_the_async_client_sends_again_by_itself_and_pays_twice(
    server: FakeGemini, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiohttp", reason="the async client resends where it speaks through aiohttp")
    monkeypatch.setattr("google.genai._api_client.random.randint", lambda *_: -1)  # it waits 1 + randint(0, 9) s
    server.fault("drop")

    async def one() -> Any:
        async with genai.Client(api_key="any").aio as client:
            return await client.models.generate_content(
                model=MODEL, contents=_contents(PNG, PROMPT), config=_config(server)
            )

    assert images(asyncio.run(one())) == [edit(PNG, PROMPT)]
    first, second = server.log
    assert (first.answered, second.answered) == (False, True)
    assert first.billed_usd == second.billed_usd > 0


# ---- planning faults ----------------------------------------------------------------------------------------------


def _kinds(client: Any, server: FakeGemini, count: int) -> list[str | None]:
    for number in range(count):
        try:
            ask(client, server, seed=number)
        except errors.APIError:
            pass
    return [call.fault for call in server.log]


def test_faults_strike_in_the_order_they_were_planned(client: Any, server: FakeGemini) -> None:
    server.fault("unavailable", times=2)
    server.fault("internal")
    assert _kinds(client, server, 4) == ["unavailable", "unavailable", "internal", None]


def test_a_fault_from_a_call_number_on(client: Any, server: FakeGemini) -> None:
    server.fault("unavailable", times=2, at=2)
    assert _kinds(client, server, 5) == [None, "unavailable", "unavailable", None, None]


def test_a_fault_for_ever(client: Any, server: FakeGemini) -> None:
    server.fault("unavailable", times=None, at=3)
    assert _kinds(client, server, 5) == [None, None, *["unavailable"] * 3]


def test_a_fault_by_what_is_asked(client: Any, server: FakeGemini) -> None:
    server.fault("internal", times=None, at=lambda call: call.seed is not None and call.seed % 2 == 1)
    assert _kinds(client, server, 4) == [None, "internal", None, "internal"]


def test_an_unknown_fault(server: FakeGemini) -> None:
    with pytest.raises(ValueError, match=r"unknown fault 'flood'; choices: alpha, bad_base64, "):
        server.fault("flood")


# ---- billing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "usd"),
    [
        # 68 characters = 17 tokens, 560 for the image: 577 x 2e-6; 5 of text + 214 of thoughts: 219 x 12e-6
        ({}, 0.001154 + 0.002628 + 1120 * 120e-6),
        ({"image_config": types.ImageConfig(image_size="4K")}, 0.001154 + 0.002628 + 2000 * 120e-6),
        ({"service_tier": "flex"}, (0.001154 + 0.002628 + 0.1344) / 2),
        ({"response_modalities": ["IMAGE"]}, 0.001154 + 214 * 12e-6 + 0.1344),
    ],
)
def test_the_price_of_an_edit(client: Any, server: FakeGemini, settings: dict[str, Any], usd: float) -> None:
    usage = ask(client, server, **settings).usage_metadata
    assert server.billed_usd == pytest.approx(usd, rel=1e-12)
    told = usage.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert price_of(told, PRICES[MODEL], settings.get("service_tier")) == pytest.approx(usd, rel=1e-12)
    assert usage.total_token_count == (
        usage.prompt_token_count + usage.candidates_token_count + usage.thoughts_token_count
    )


def test_prices_that_surprise(client: Any, server: FakeGemini) -> None:
    plain = 0.001154 + 0.002628 + 0.1344
    for kind in ("price_surprise", "no_usage", "no_modalities", "two_images", "image_safety", "no_candidates"):
        server.fault(kind)
    answers = [ask(client, server) for _ in range(6)]
    surprise, no_usage, no_modalities, two, safety, nothing = (call.billed_usd for call in server.log)
    assert surprise == pytest.approx(0.001154 + (5 + 21400) * 12e-6 + 2 * 0.1344)
    assert no_usage == no_modalities == pytest.approx(plain)
    assert two == pytest.approx(plain + 0.1344)
    assert safety == pytest.approx(0.001154 + 214 * 12e-6)
    assert nothing == pytest.approx(0.001154)
    assert answers[1].usage_metadata is None
    told = answers[2].usage_metadata
    assert (told.candidates_token_count, told.candidates_tokens_details) == (1125, None)


def test_lost_answers_are_billed_and_errors_are_not(client: Any, server: FakeGemini) -> None:
    lost = ["drop", "reset", "truncated", "truncated_unseen", "bad_json", "bad_base64"]
    free = ["unavailable", "rate_limit", "drop_before", "bad_gateway"]
    for kind in lost + free:
        server.fault(kind)
        with pytest.raises((errors.APIError, httpx2.TransportError, ValueError)):
            ask(client, server)
    ask(client, server)
    price = server.log[-1].billed_usd
    assert price > 0.13
    assert [call.billed_usd for call in server.log] == [price] * 6 + [0.0] * 4 + [price]
    assert server.billed_usd == pytest.approx(7 * price)
    answered = [call.fault for call in server.log if call.answered]
    assert answered == ["bad_json", "bad_base64", "unavailable", "rate_limit", "bad_gateway", None]


# ---- many at once, and killed ones --------------------------------------------------------------------------------


def test_one_client_in_turn_is_never_two_in_flight(client: Any, server: FakeGemini) -> None:
    for _ in range(20):
        ask(client, server)
    assert server.max_in_flight == 1


def test_threads(client: Any) -> None:
    with FakeGemini(latency=0.5) as server:
        threads = [threading.Thread(target=ask, args=(client, server), kwargs={"seed": n}) for n in range(8)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - start < 8 * 0.5
        log = server.log
    assert [call.number for call in log] == list(range(1, 9))
    assert server.max_in_flight == 8
    assert {call.seed: call.made for call in log} == {n: edit(PNG, PROMPT, seed=n) for n in range(8)}
    assert all(call.answered for call in log)


_CHAIN = """
import sys
from pathlib import Path
from tests.fakes.test_gemini import PROMPT, ask, genai, images, types
class Server: url = sys.argv[1]
client = genai.Client(api_key="any", http_options=types.HttpOptions(client_args={"trust_env": False}))
folder = Path(sys.argv[2])
while (done := len(list(folder.glob("*.png")))) < 5:
    data = images(ask(client, Server, (folder / f"{done - 1}.png").read_bytes()))[0]
    (folder / "new").write_bytes(data)
    (folder / "new").rename(folder / f"{done}.png")
"""


def test_a_chain_killed_in_flight_has_paid_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(PNG)
    with FakeGemini(latency=0.05) as server:
        command = [sys.executable, "-c", _CHAIN, server.url, str(tmp_path)]
        server.fault("slow", at=3)
        server.slow_seconds = 30
        with subprocess.Popen(command, cwd=ROOT) as process:
            server.wait_for_calls(3, timeout=30)
            process.send_signal(signal.SIGKILL)
        subprocess.run(command, cwd=ROOT, check=True, timeout=30)
        log = server.log
    assert [call.answered for call in log] == [True, True, False, True, True]
    assert log[2].status is None
    assert len({call.billed_usd for call in log}) == 1
    assert log[2].made == log[3].made
    expected = PNG
    for _ in range(4):
        expected = edit(expected, PROMPT)
    assert (tmp_path / "4.png").read_bytes() == expected


def test_waiting_in_vain(server: FakeGemini) -> None:
    with pytest.raises(TimeoutError, match=r"0 calls after 0.05 s, expected 1"):
        server.wait_for_calls(1, timeout=0.05)


def test_closing_does_not_wait_for_what_hangs(client: Any) -> None:
    server = FakeGemini()
    caught: list[BaseException] = []

    def hang() -> None:
        try:
            ask(client, server, timeout_ms=20_000)
        except httpx2.TransportError as error:
            caught.append(error)

    with server:
        server.fault("hang")
        thread = threading.Thread(target=hang)
        thread.start()
        server.wait_for_calls(1)
        start = time.monotonic()
    thread.join()
    assert time.monotonic() - start < 1
    assert isinstance(caught[0], httpx2.RemoteProtocolError)
    with pytest.raises(httpx2.ConnectError):
        ask(client, server)


def test_as_a_program(client: Any) -> None:
    command = [sys.executable, "-m", "tests.fakes.gemini", "--port", "0", "--latency", "0.3"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            server = _Remote(process.stdout.readline().strip())
            start = time.monotonic()
            assert images(ask(client, server)) == [edit(PNG, PROMPT)]  # type: ignore[arg-type]
            assert time.monotonic() - start > 0.3
        finally:
            process.terminate()


@dataclass(frozen=True)
class _Remote:
    url: str
