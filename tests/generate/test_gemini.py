"""The Gemini editor and the runner against the server of tests/fakes/gemini.py, by the real google-genai client."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import ssl
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timezone

import pytest
from PIL import Image

from banana100_bench import raw
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_bytes, write_bytes
from banana100_bench.generate import asking
from banana100_bench.generate.campaign import generate
from banana100_bench.generate.chain import run_chain
from banana100_bench.generate.control import Control
from banana100_bench.generate.editors import EditRequest, open_editor
from banana100_bench.generate.editors.base import Blocked, EditError, Halt, Transient
from banana100_bench.generate.initial import InitialImage
from banana100_bench.protocol import REPLICA_PROMPT

pytest.importorskip("google.genai", reason="needs google-genai (the extra gemini)")
from tests.fakes.gemini import FAULTS, PRICES, FakeGemini, edit, price_of

from .conftest import INITIAL, facts, pixels

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
pytestmark = pytest.mark.filterwarnings("ignore:BRAND_NEW_REASON")


@pytest.fixture
def server(monkeypatch):
    for name in ("GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GEMINI_API_KEY", "AIzaNotARealKey0123456789")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(asking, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(ssl, "create_default_context", lambda *_, **__: NO_TLS)  # a client loads it three times: 60 ms
    with FakeGemini(retry_delay=0.05, slow_seconds=1.6) as server:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        monkeypatch.setenv("GOOGLE_VERTEX_BASE_URL", server.url)
        yield server


@pytest.fixture
def editor(server):
    return open_editor("gemini", {"rehearsal": "true", "timeout": "20"})


def gemini_facts(editor, **changes):
    told = {"editor": editor.name, "model_version": editor.model_version, "simulated": True, "resolution": "2K"}
    return facts(**{**told, "rounds": 2, "initial_sha256": sha256_bytes(INITIAL), **changes})


def chain(editor, out, **changes):
    asked = gemini_facts(editor, **changes)
    control = Control()
    report = run_chain(editor, asked, INITIAL, out, control=control)
    return report, journal(raw.run_folder(out, asked.run_id)), control


def journal(folder):
    return [json.loads(line) for line in (folder / raw.JOURNAL_FILE).read_text().splitlines()]


def wanted(rounds: int, seed: int | None = 7) -> list[bytes]:
    """What the server makes of INITIAL, round after round, if nothing goes wrong."""
    made, data = [], INITIAL
    for _ in range(rounds):
        data = edit(data, REPLICA_PROMPT, seed=seed, image_size="2K")
        made.append(data)
    return made


def test_a_run_records_all_that_an_answer_tells(server, editor, tmp_path):
    report, events, control = chain(editor, tmp_path)
    assert (report.made, report.why, report.drifted) == (2, None, 1)  # 48 x 40 became 64 x 53, which it stayed
    folder = raw.run_folder(tmp_path, report.run_id)
    assert [(folder / f"00{n}.png").read_bytes() for n in (1, 2)] == wanted(2)
    [first, second] = server.log
    assert (first.version, first.image_size, first.seed, first.temperature) == ("v1beta", "2K", 7, None)
    assert first.include_thoughts
    assert (second.images, second.turns) == ((sha256_bytes(first.made),), 1)
    assert [event["event"] for event in events] == ["start", "image", "start", "image"]
    made = events[1]
    assert made["model_version"] == "gemini-3-pro-image-simulated"
    assert made["reasoning_summary"] == "**Copying**\n\nI keep it as it is."
    tokens = {"prompt_tokens": 577, "output_tokens": 1125, "thought_tokens": 214}
    assert made["told"] == {"response_id": "simulated-00001", **tokens}
    # by hand: 577 at 2, 1,120 image tokens at 120, 5 + 214 at 12 USD a million
    assert made["usd"] == pytest.approx(0.138182, abs=1e-9)
    assert made["usd"] == pytest.approx(first.billed_usd, abs=1e-9)
    assert made["seconds"] > 0
    assert control.spent_usd == pytest.approx(server.billed_usd)
    # by hand: 64 + 560 at 2, 8,192 at 120
    assert events[0]["usd_at_most"] == pytest.approx(0.984288)
    [entry, _] = raw.read_run(folder)[1]
    assert (entry.model_version, entry.reasoning_summary) == (made["model_version"], made["reasoning_summary"])


def test_flex_is_asked_for_and_costs_half(server, tmp_path):
    editor = open_editor("gemini", {"rehearsal": "true", "tier": "flex"})
    report, events, _ = chain(editor, tmp_path, rounds=1)
    assert report.made == 1
    assert server.log[0].service_tier == "flex"
    assert events[1]["usd"] == pytest.approx(0.138182 / 2)
    assert events[1]["told"]["tier"] == "flex"
    assert events[1]["usd"] == pytest.approx(server.billed_usd)


OK, BROKEN, BLOCKED, HALT, FAILED = "image", "retry", "blocked", "halt", "failed"
OUTCOMES = {
    BROKEN: "rate_limit rate_limit_bare internal bad_gateway unavailable deadline request_timeout thought_signature "
    "drop_before drop reset truncated truncated_unseen hang slow trickle bad_json html empty_body json_list "
    "error_as_200 wrong_shape bad_base64 no_candidates no_image image_other max_tokens unknown_finish text_only "
    "thought_image_only gif not_an_image empty_image truncated_image bomb",
    BLOCKED: "prompt_blocked image_safety prohibited_content recitation image_recitation",
    HALT: "quota_day quota_zero key_invalid unauthenticated forbidden model_gone unknown_name location",
    OK: "new_fields no_usage no_modalities two_images unsigned continuation price_surprise jpeg mislabelled webp "
    "drifted alpha sixteen_bit turned other_model",
}
EXPECTED = {fault: outcome for outcome, faults in OUTCOMES.items() for fault in faults.split()}
NOT_TOLD = {
    *("drop", "reset", "truncated", "truncated_unseen", "hang", "slow", "trickle", "drop_before"),
    *("bad_json", "html", "empty_body", "json_list", "error_as_200", "wrong_shape", "bad_base64", "no_usage"),
}  # the answer may have been billed, and says nothing of it
BY_IMAGE_TOKENS = {"no_modalities"}  # counted too high rather than too low


def test_every_fault_of_the_server_is_expected_here():
    assert set(EXPECTED) == set(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_met_and_told(server, editor, tmp_path, fault):
    if fault in ("hang", "slow", "trickle"):
        editor = open_editor("gemini", {"rehearsal": "true", "timeout": "0.8"})
    server.fault(fault)
    report, events, control = chain(editor, tmp_path)
    kinds = [event["event"] for event in events]
    outcome = EXPECTED[fault]
    if outcome == BROKEN:
        assert kinds == ["start", "retry", "start", "image", "start", "image"]
        assert server.calls == 3
        folder = raw.run_folder(tmp_path, report.run_id)
        assert [(folder / f"00{n}.png").read_bytes() for n in (1, 2)] == wanted(2)
        assert events[1]["kind"] == ("rate_limited" if fault.startswith("rate_limit") else "transient")
    elif outcome == OK:
        assert kinds == ["start", "image", "start", "image"]
        kept = next(raw.run_folder(tmp_path, report.run_id).glob("001.*"))
        assert kept.read_bytes() == server.log[0].made  # untouched
        assert server.log[1].images == (sha256_bytes(kept.read_bytes()),)  # and fed back so
    else:
        assert kinds == ["start", "fail"]
        assert events[1]["kind"] == outcome
        assert type(report.why) is {BLOCKED: Blocked, HALT: Halt, FAILED: EditError}[outcome]
    unsure = {event["round"] for event in events if event["event"] != "start" and event["usd"] is None}
    assert unsure == ({1} if fault in NOT_TOLD else set())
    if fault in NOT_TOLD:
        assert control.spent_usd < server.billed_usd + 1e-9
        assert control.unsure_usd == pytest.approx(0.984288)
    elif fault in BY_IMAGE_TOKENS:
        assert server.billed_usd < control.spent_usd < server.billed_usd + 0.001
    else:
        assert control.spent_usd == pytest.approx(server.billed_usd)
    assert server.billed_usd <= control.committed_usd + 1e-9
    past = raw.read_past(raw.run_folder(tmp_path, report.run_id))
    assert (past.usd, past.unsure_usd, past.lost) == (control.spent_usd, control.unsure_usd, 0)
    assert (past.blocked is not None) == (outcome == BLOCKED)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "quota_day",
            r"the requests of this day are used up; they are counted anew from 20.*T00:00-0[78]:00 \(20.* UTC\)",
        ),
        ("quota_zero", r"no quota for this model at all \(limit 0\)"),
        ("key_invalid", "HTTP 400 INVALID_ARGUMENT: API key not valid"),
        ("model_gone", "HTTP 404 NOT_FOUND: This model is no longer available"),
    ],
)
def test_what_stops_every_run_stops_the_campaign_and_says_why(server, editor, tmp_path, fault, message):
    server.fault(fault, times=None, at=3)
    with pytest.raises(BananaError, match=f"{message}.*; [1-4] images were made before, the same call continues"):
        generate(editor, [RAMP], tmp_path, repetitions=6, rounds=3, max_concurrency=2)
    assert server.calls <= 4  # two good ones, and those in flight


def test_the_reset_of_the_day_is_told_in_both_times():
    from banana100_bench.generate.editors.gemini_errors import next_reset

    assert next_reset(datetime(2026, 7, 1, 6, 59, tzinfo=timezone.utc)).isoformat() == "2026-07-01T00:00:00-07:00"
    assert next_reset(datetime(2026, 7, 1, 7, 1, tzinfo=timezone.utc)).isoformat() == "2026-07-02T00:00:00-07:00"
    assert next_reset(datetime(2026, 1, 1, 7, 59, tzinfo=timezone.utc)).isoformat() == "2026-01-01T00:00:00-08:00"


def test_a_rate_limit_holds_all_runs_as_long_as_asked(server, editor, tmp_path):
    server.retry_delay = 0.6
    server.fault("rate_limit")
    began = time.monotonic()
    generate(editor, [RAMP], tmp_path, repetitions=2, rounds=4, max_concurrency=2)
    assert 0.6 < time.monotonic() - began < 4
    [retry] = [event for folder in raw.run_folders(tmp_path) for event in journal(folder) if event["event"] == "retry"]
    assert 0.6 <= retry["wait_s"] <= 0.6 * 1.25
    assert server.calls == 9


def test_it_gives_up_after_so_many_tries_and_a_rerun_goes_on(server, editor, tmp_path):
    server.fault("text_only", times=4, at=2)
    report, events, control = chain(editor, tmp_path)
    assert isinstance(report.why, Transient)
    assert report.made == 1
    assert Counter(event["event"] for event in events) == {"start": 5, "image": 1, "retry": 3, "fail": 1}
    assert events[-1]["message"] == "Transient: no image (STOP) (4 tries)"
    assert control.spent_usd == pytest.approx(server.billed_usd)
    report, _, _ = chain(editor, tmp_path)
    assert (report.found, report.made, report.why) == (1, 1, None)


def test_tries_are_counted_by_kind(server, editor, tmp_path):
    for _ in range(3):
        server.fault("internal", times=2)
        server.fault("text_only")
    report, events, _ = chain(editor, tmp_path, rounds=1)
    assert (report.made, report.why) == (1, None)
    assert Counter(event["event"] for event in events) == {"start": 10, "retry": 9, "image": 1}


def test_a_blocked_run_is_marked_left_out_and_tried_again_when_asked(server, editor, tmp_path):
    first_of_seed_1 = sha256_bytes(wanted(1, seed=1)[0])
    server.fault("image_safety", at=lambda call: call.images[-1] == first_of_seed_1)
    what = {"repetitions": 3, "rounds": 2, "max_concurrency": 2}
    report = generate(editor, [RAMP], tmp_path, **what)
    name = f"replication__ramp__{editor.name}__rep1"
    assert (report.made, report.unfinished, report.blocked) == (5, 1, [name])
    assert f"1 runs are not finished; 1 blocked, by the journal of each: {name}" in report.summary()
    calls = server.calls
    again = generate(editor, [RAMP], tmp_path, **what)
    assert (again.made, again.found, again.blocked, server.calls) == (0, 5, [name], calls)
    last = generate(editor, [RAMP], tmp_path, **what, retry_blocked=True)
    assert (last.made, last.found, last.unfinished, last.blocked) == (1, 5, 0, [])
    assert last.spent_usd == pytest.approx(server.billed_usd)


@pytest.mark.parametrize("fault", ["price_surprise", "drop", "no_usage", None])
@pytest.mark.parametrize("budget", [0.5, 3.3])
def test_the_bill_never_passes_the_budget(server, editor, tmp_path, budget, fault):
    server.latency = 0.02
    if fault:
        server.fault(fault, times=None, at=lambda call: call.number % 3 == 0)
    report = generate(editor, [RAMP], tmp_path, repetitions=4, rounds=6, max_concurrency=4, budget_usd=budget)
    assert report.stopped is not None
    assert report.stopped.startswith("the budget: ")
    assert report.unfinished > 0
    assert server.billed_usd <= report.spent_usd + report.unsure_usd + 1e-9 <= budget
    assert budget - (report.spent_usd + report.unsure_usd) < 0.984288  # as near to it as one call may cost
    assert (server.calls > 0) == (budget > 1)
    more = generate(editor, [RAMP], tmp_path, repetitions=4, rounds=6, max_concurrency=4, budget_usd=budget)
    assert more.made == 0  # what was spent before counts


def test_a_chat_sends_the_clean_pictures_and_survives_a_restart(server, editor, tmp_path):
    changes = {"setting": "multi_turn", "setting_group": "variant", "chat_turns": 3}
    chain(editor, tmp_path, rounds=3, **changes)
    report, _, _ = chain(editor, tmp_path, rounds=6, **changes)
    assert (report.found, report.made) == (3, 3)
    sent = [call.images for call in server.log]
    shas = [sha256_bytes(INITIAL), *(sha256_bytes(data) for data in wanted(6))]
    assert sent == [
        (shas[0],),
        (shas[0], shas[1]),
        (shas[0], shas[1], shas[2]),
        (shas[0], shas[1], shas[2], shas[3]),
        (shas[0], shas[1], shas[2], shas[4]),
        (shas[0], shas[1], shas[2], shas[5]),
    ]
    assert [call.turns for call in server.log] == [1, 3, 5, 7, 7, 7]
    folder = raw.run_folder(tmp_path, report.run_id)
    assert [(folder / f"00{n}.png").read_bytes() for n in range(1, 7)] == wanted(6)


def test_an_unsigned_answer_is_shown_by_the_user_in_the_next_turn(server, editor, tmp_path):
    server.fault("unsigned")
    report, events, _ = chain(editor, tmp_path, setting="multi_turn", setting_group="variant", chat_turns=9, rounds=3)
    assert (report.made, report.why) == (3, None)
    assert "signature" not in events[1]
    assert [call.turns for call in server.log] == [1, 2, 4]


@pytest.mark.parametrize("by", ["key", "project"])
def test_vertex(server, tmp_path, monkeypatch, by):
    if by == "project":
        import google.auth
        from google.oauth2.credentials import Credentials

        monkeypatch.delenv("GEMINI_API_KEY")
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
        monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "global")
        monkeypatch.setattr(google.auth, "default", lambda **_: (Credentials(token="any"), "p"))
    editor = open_editor("vertex", {"rehearsal": "true"})
    assert editor.name == "gemini-3-pro-image-vertex-rehearsal"
    report, _, _ = chain(editor, tmp_path, rounds=1)
    assert report.made == 1
    assert (server.log[0].api, server.log[0].version) == ("vertex", "v1beta1")


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("gemini:gemini-3-pro-image-preview", {}, "did you mean gemini-3-pro-image.*--option price=INPUT,TEXT,IMAGE"),
        ("gemini", {"tier": "batch"}, "tier 'batch': choices: standard, flex"),
        ("vertex", {"tier": "flex"}, r"tier 'flex': choices: standard \(Vertex\)"),
        ("gemini", {"timeout": "soon"}, "timeout 'soon': expected 0.1 to 7200 seconds"),
        ("gemini", {"price": "1,2"}, "price '1,2': expected USD a million tokens"),
        ("gemini", {"rehearsal": "yes"}, "rehearsal 'yes': choices: true, false"),
        ("gemini", {"retries": "3"}, "unknown option of editor gemini 'retries'; did you mean"),
    ],
)
def test_bad_options_are_refused(spec, options, message):
    with pytest.raises(UsageError, match=message):
        open_editor(spec, options)


def test_a_model_of_unknown_price_takes_the_callers():
    editor = open_editor("gemini:gemini-nano-banana-9", {"price": "1,6,60"})
    # by hand: 64 + 560 at 1, 1,120 at 60, 250 at 6 USD a million
    assert editor.estimate("2K").usd == pytest.approx(0.069324)
    assert editor.estimate("2K").usd_at_most == pytest.approx(0.492144)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"resolution": "8K"}, "resolution '8K': gemini-3-pro-image has 1K, 2K, 4K"),
        ({"seed": 2**31}, "seed 2147483648: Gemini takes seeds below"),
        ({"temperature": 2.5}, "temperature 2.5: Gemini takes 0 to 2"),
    ],
)
def test_what_gemini_does_not_take_is_refused_before_a_call(tmp_path, what, message):
    with pytest.raises(UsageError, match=message):
        generate("gemini", [RAMP], tmp_path / "out", **what)
    assert not (tmp_path / "out").exists()


def test_without_a_key_nothing_is_written_and_the_plan_needs_none(server, tmp_path, monkeypatch):
    from banana100_bench.generate.plan import make_plan

    monkeypatch.delenv("GEMINI_API_KEY")
    editor = open_editor("gemini")
    plan = make_plan(editor, [RAMP], tmp_path / "out", settings=["replication", "resolution"], max_concurrency=4)
    assert [run.facts.resolution for run in plan.runs] == ["2K"] * 5 + ["1K"] * 5
    # by hand: 64 + 560 at 2, 1,120 at 120, 250 at 12 USD a million
    assert plan.usd == pytest.approx(1000 * 0.138648)
    assert plan.seconds == pytest.approx(1000 * 30 / 4)
    assert "a call costs 0.98 USD at most" in plan.text()
    with pytest.raises(UsageError, match="Gemini needs a key in the environment: GEMINI_API_KEY or GOOGLE_API_KEY"):
        generate(editor, [RAMP], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_key_is_in_no_file_and_no_message(server, editor, tmp_path, caplog):
    key = os.environ["GEMINI_API_KEY"]
    server.fault("internal")
    chain(editor, tmp_path)
    server.fault("key_invalid")
    with pytest.raises(BananaError) as caught:
        generate(editor, [RAMP], tmp_path, repetitions=1, rounds=4, seed=9)
    told = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(told) == 5
    assert not any(key.encode() in data for data in told)
    assert key not in str(caught.value) + caplog.text


def test_a_test_server_is_taken_for_a_model_only_if_named_a_rehearsal(server, tmp_path):
    editor = open_editor("gemini")
    report, _, _ = chain(editor, tmp_path, simulated=False)
    assert "a local test server answered; name it as one: --option rehearsal=true" in str(report.why)
    assert report.made == 0


def test_provenance_blocks_are_kept_as_delivered(server, editor, tmp_path, monkeypatch):
    from tests.fakes import gemini

    exif = Image.Exif()
    exif[0x013B] = "Made with Google AI"
    file = io.BytesIO()
    Image.fromarray(pixels()).save(file, "JPEG", exif=exif)
    c2pa = b"\xff\xeb" + (2 + 24).to_bytes(2, "big") + b"JP\x00\x01\x00\x00\x00\x01jumb c2pa..."  # APP11
    delivered = file.getvalue()[:2] + c2pa + file.getvalue()[2:]
    fault = gemini.Fault("an image with EXIF and C2PA", image=lambda _: delivered, mime="image/jpeg")
    monkeypatch.setitem(gemini.FAULTS, "provenance", fault)
    server.fault("provenance")
    report, _, _ = chain(editor, tmp_path)
    folder = raw.run_folder(tmp_path, report.run_id)
    assert (folder / "001.jpg").read_bytes() == delivered
    assert server.log[1].images == (sha256_bytes(delivered),)


def test_a_network_that_is_down_costs_nothing_and_is_waited_for(server, monkeypatch):
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(Transient, match="no connection: .*refused") as caught:
        open_editor("gemini").edit(EditRequest(data=INITIAL, prompt="p", round=1, resolution="2K"))
    assert (caught.value.usd, caught.value.tries) == (0.0, 60)


def test_a_body_that_trickles_is_cut_off_in_time(server, tmp_path):
    server.slow_seconds = 3.0
    server.fault("trickle")
    editor = open_editor("gemini", {"rehearsal": "true", "timeout": "0.3"})
    began = time.monotonic()
    with pytest.raises(Transient, match="ReadTimeout the body was not complete after 0 s"):
        editor.edit(EditRequest(data=INITIAL, prompt="p", round=1, resolution="2K"))
    assert time.monotonic() - began < 1.5


def test_prices_agree_with_the_servers():
    usage = {"promptTokenCount": 700, "candidatesTokenCount": 2005, "thoughtsTokenCount": 300}
    details = {"candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 2000}]}
    from google.genai.types import GenerateContentResponseUsageMetadata

    from banana100_bench.generate.editors.gemini_prices import PRICES as OURS
    from banana100_bench.generate.editors.gemini_prices import cost

    assert set(OURS) == set(PRICES)
    for model, theirs in PRICES.items():
        told = GenerateContentResponseUsageMetadata.model_validate({**usage, **details})
        for tier in ("standard", "flex"):
            assert cost(told, OURS[model], tier) == pytest.approx(price_of({**usage, **details}, theirs, tier))
        assert {**OURS[model].image_out} == {**theirs.image_out}


RAMP = InitialImage("ramp", INITIAL, "photo", "in/ramp.png")
RUN_CLI = """
from banana100_bench.cli import main
from banana100_bench.generate import asking
asking.FIRST_WAIT_S = 0.01
main()
"""


def cli(out, initial, *more):
    """`banana100 generate` of 3 runs of 20 rounds against the local server, in a process of its own."""
    words = ["generate", str(out), "--editor", "gemini", "--option", "rehearsal=true", "--option", "timeout=2"]
    words += ["--initial", str(initial), "--min-side", "0", "--repetitions", "3", "--rounds", "20"]
    words += ["--max-concurrency", "3", *more]
    return [sys.executable, "-c", RUN_CLI, *words]


def test_chains_of_20_killed_at_random_and_hit_by_faults_end_as_uninterrupted_ones(server, tmp_path):
    initial = tmp_path / "ramp.png"
    write_bytes(initial, INITIAL)
    faults = [fault for fault, outcome in EXPECTED.items() if outcome == BROKEN and fault != "hang"]
    assert len(faults) >= 20
    for number, fault in enumerate(random.Random(5).sample(faults, len(faults))):  # no four without image in a row
        server.fault(fault, at=2 * number + 1)
    server.latency = 0.03
    out, budget = tmp_path / "out", 60.0
    randomly = random.Random(3)
    kills = 0
    for target in (5, 22, 41, 58):  # calls before the kill
        process = subprocess.Popen(cli(out, initial, "--budget-usd", str(budget)), stderr=subprocess.PIPE)
        try:
            server.wait_for_calls(target, timeout=20)
            time.sleep(randomly.random() * 0.05)
            assert process.poll() is None, "it ended before it could be killed"
            kills += 1
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    last = subprocess.run(cli(out, initial, "--budget-usd", str(budget)), capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    folders = raw.run_folders(out)
    assert len(folders) == 3
    for folder in folders:
        asked, entries = raw.read_run(folder)
        assert [entry.sha256 for entry in entries] == [sha256_bytes(data) for data in wanted(20, asked.seed)]
        assert raw.first_fault(asked, entries) is None
    events = [event for folder in folders for event in journal(folder)]
    kinds = Counter(event["event"] for event in events)
    hit = [call for call in server.log if call.fault]
    assert len(hit) == len(faults)
    pasts = [raw.read_past(folder) for folder in folders]
    lost = sum(past.lost for past in pasts)
    assert lost <= 3 * kills  # at most the calls in flight
    assert kinds["image"] == 60
    assert kinds["start"] == kinds["image"] + kinds["retry"] + lost
    assert kinds["retry"] + lost >= len(faults)
    assert sum(past.usd for past in pasts) <= server.billed_usd + 1e-9
    assert server.billed_usd <= sum(past.usd + past.unsure_usd for past in pasts) <= budget
    assert not list(out.rglob(".*.tmp"))


def test_ctrl_c_pauses_within_seconds_and_a_second_one_leaves_at_once(server, tmp_path):
    initial = tmp_path / "ramp.png"
    write_bytes(initial, INITIAL)
    server.latency = 0.4
    out = tmp_path / "out"
    process = subprocess.Popen(cli(out, initial), stderr=subprocess.PIPE, text=True)
    server.wait_for_calls(4, timeout=20)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert time.monotonic() - began < 3
    assert process.returncode == 130
    assert "no further call begins; waiting for those in flight" in errors
    assert sum(raw.read_past(folder).lost for folder in raw.run_folders(out)) == 0

    server.latency = 30.0
    calls = server.calls
    process = subprocess.Popen(cli(out, initial), stderr=subprocess.DEVNULL)
    server.wait_for_calls(calls + 3, timeout=20)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.6)
    assert process.poll() is None  # it waits for the calls in flight
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 130
    assert time.monotonic() - began < 5
    pasts = [raw.read_past(folder) for folder in raw.run_folders(out)]
    assert sum(past.lost for past in pasts) == 3
    assert sum(past.unsure_usd for past in pasts) == pytest.approx(3 * 0.984288)
