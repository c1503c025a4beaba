from __future__ import annotations

import json
import os
import re

import pytest

from banana100_bench import raw
from banana100_bench.errors import BananaError
from banana100_bench.files import sha256_bytes

from .generate.conftest import INITIAL, facts

IMAGES = [b"one", b"two", b"three"]
SHAS = [sha256_bytes(data) for data in (INITIAL, *IMAGES)]


def made(number: int, **changes: object) -> dict[str, object]:
    return {
        "event": "image",
        "round": number,
        "file": f"{number:03d}.png",
        "sha256": SHAS[number],
        "parent_sha256": SHAS[number - 1],
        "created_at": "2026-01-02T03:04:05+00:00",
        "model_version": "v1",
        **changes,
    }


@pytest.fixture
def run(tmp_path):
    """A sound run of three rounds."""
    folder = raw.run_folder(tmp_path, facts().run_id)
    folder.mkdir(parents=True)
    (folder / raw.RUN_FILE).write_text(facts(rounds=3).model_dump_json())
    for number, data in enumerate(IMAGES, 1):
        (folder / f"{number:03d}.png").write_bytes(data)
    write_journal(folder, [made(1), made(2, reasoning_summary="grain?"), made(3)])
    (tmp_path / "initial").mkdir()
    raw.initial_path(tmp_path, "ramp", "png").write_bytes(INITIAL)
    return folder


def write_journal(folder, rows, tail=""):
    (folder / raw.JOURNAL_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)


def test_a_sound_run_is_read_as_it_was_written(run, tmp_path):
    found, entries = raw.read_run(run)
    assert found == facts(rounds=3)
    assert [(entry.round, entry.path, entry.sha256, entry.parent_sha256) for entry in entries] == [
        (1, run / "001.png", SHAS[1], SHAS[0]),
        (2, run / "002.png", SHAS[2], SHAS[1]),
        (3, run / "003.png", SHAS[3], SHAS[2]),
    ]
    assert [entry.reasoning_summary for entry in entries] == [None, "grain?", None]
    assert entries[1].read() == b"two"
    assert raw.first_fault(found, entries) is None
    assert raw.read_initial(tmp_path, found) == INITIAL
    assert raw.run_folders(tmp_path) == [run]


def test_a_later_row_replaces_its_round_and_all_after_it(run):
    other = "f" * 64
    write_journal(run, [made(1), made(2), made(3), made(2, sha256=other, file="002.jpg")])
    _, entries = raw.read_run(run)
    assert [(entry.round, entry.path.name, entry.sha256) for entry in entries] == [
        (1, "001.png", SHAS[1]),
        (2, "002.jpg", other),
    ]


def test_a_run_killed_at_its_start_or_in_a_line_is_read_as_far_as_it_goes(run):
    start = {"event": "start", "round": 2, "created_at": "2026-01-02T03:04:05Z"}
    fail = {"event": "fail", "round": 2, "created_at": "2026-01-02T03:04:05.5Z", "message": "503"}
    write_journal(run, [made(1), start, fail], tail='{"event": "image", "rou')
    assert [entry.round for entry in raw.read_run(run)[1]] == [1]
    (run / raw.JOURNAL_FILE).unlink()
    assert raw.read_run(run)[1] == []


def test_what_the_calls_cost_is_added_up_and_what_is_not_told_counts_at_most(run):
    start = {"event": "start", "created_at": "2026-01-02T03:04:05Z", "usd_at_most": 0.5}
    retry = {
        "event": "retry",
        "created_at": "2026-01-02T03:04:05Z",
        "kind": "transient",
        "message": "503",
        "wait_s": 1.0,
    }
    rows = [
        {**start, "round": 1},
        {**retry, "round": 1, "usd": 0.0},
        {**start, "round": 1},
        {**retry, "round": 1, "usd": None},  # perhaps billed: 0.5 at most
        {**start, "round": 1},  # cut off: 0.5 at most
        {**start, "round": 1},
        made(1, usd=0.125, seconds=3.0, told={"response_id": "r", "prompt_tokens": 577}),
        {**start, "round": 2},
        made(2, usd=None, seconds=5.0, signature="c2ln"),  # 0.5 at most
    ]
    write_journal(run, rows)
    assert raw.read_past(run) == raw.Past(usd=0.125, unsure_usd=1.5, lost=1, retries=2, seconds=4.0)
    assert [entry.signature for entry in raw.read_run(run)[1]] == [None, "c2ln"]
    blocked = {
        "event": "fail",
        "round": 3,
        "created_at": "2026-01-02T03:04:05Z",
        "message": "SAFETY",
        "kind": "blocked",
    }
    write_journal(run, [*rows, {**start, "round": 3}, {**blocked, "usd": 0.25}])
    past = raw.read_past(run)
    assert (past.usd, past.unsure_usd, past.failures, past.blocked) == (0.375, 1.5, 1, "SAFETY")
    write_journal(run, [*rows, {**start, "round": 3}, {**blocked, "usd": 0.25}, {**start, "round": 3}])
    past = raw.read_past(run)
    assert (past.unsure_usd, past.lost, past.blocked) == (2.0, 2, None)


def test_a_journal_of_the_first_version_costs_nothing(run):
    old = {"event": "start", "round": 1, "created_at": "2026-01-02T03:04:05Z"}
    fail = {"event": "fail", "round": 1, "created_at": "2026-01-02T03:04:05Z", "message": "503"}
    write_journal(run, [old, fail, old, made(1)])
    assert raw.read_past(run) == raw.Past(failures=1)
    (run / raw.JOURNAL_FILE).unlink()
    assert raw.read_past(run) == raw.Past()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (made(1, usd=-1.0), "line 1: image.usd: "),
        (made(1, usd=1e9), "line 1: image.usd: "),
        (made(1, told={"a": []}), "line 1: image.told.a"),
        (made(1, file="../001.png"), "line 1: image.file"),
        (made(1, file="/001.png"), "line 1: image.file"),
        (made(1, file="001.png\n"), "line 1: image.file"),
        (made(1, file="002.png"), "line 1: round 1 is said to be in 002.png"),
        (made(2), "line 1: round 2 comes after round 0"),
        (made(1, round=4, file="004.png"), "line 1: round 4 in a run of 3 rounds"),
        (made(1, round=0), "line 1: image.round"),
        (made(1, round="1"), "line 1: image.round"),
        (made(1, sha256="F" * 64), "line 1: image.sha256"),
        (made(1, created_at="yesterday"), "line 1: image.created_at"),
        (made(1, extra=1), "line 1: image.extra: Extra inputs"),
        ({"event": "pay"}, "line 1: "),
        ([1], "line 1: "),
    ],
)
def test_a_bad_journal_line_is_named(run, row, message):
    write_journal(run, [row])
    with pytest.raises(BananaError, match=rf"journal\.jsonl {re.escape(message)}"):
        raw.read_run(run)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initial_image": "other"}, "describes run replication__other__simulated__rep0, but"),
        ({"initial_image": "../x"}, "initial image '../x': expected"),
        ({"initial_extension": "exe"}, "initial_extension: "),
        ({"period": 0}, "period: "),
        ({"prompts": []}, "prompts: "),
        ({"seed": -1}, "seed: "),
        ({"simulated": "no"}, "simulated: "),
        ({"unknown": 1}, "unknown: Extra inputs"),
        ({"schema_version": 2}, "schema_version: "),
    ],
)
def test_bad_facts_are_named(run, changes, message):
    text = {**facts().model_dump(mode="json"), **changes}
    (run / raw.RUN_FILE).write_text(json.dumps(text))
    with pytest.raises(BananaError, match=rf"run\.json: .*{re.escape(message)}") as caught:
        raw.read_run(run)
    assert "\n" not in str(caught.value)


def test_faults_of_the_files_are_found(run):
    found, entries = raw.read_run(run)
    (run / "003.png").write_bytes(b"drei")
    assert raw.first_fault(found, entries) == (
        3,
        f"{run}/003.png: SHA-256 {sha256_bytes(b'drei')[:12]}..., expected {SHAS[3][:12]}...",
    )
    (run / "002.png").unlink()
    assert raw.first_fault(found, entries) == (2, f"cannot read {run}/002.png: No such file or directory")
    number, why = raw.first_fault(facts(initial_sha256="0" * 64), entries)
    assert (number, why) == (1, f"{run}/001.png: not made from round 0 as it now stands")


def test_no_link_is_followed(run, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(IMAGES[0])
    found, entries = raw.read_run(run)
    (run / "001.png").unlink()
    (run / "001.png").symlink_to(secret)
    assert raw.first_fault(found, entries) == (1, f"{run}/001.png: a symbolic link; raw folders may hold none")

    (tmp_path / "initial").rename(tmp_path / "elsewhere")
    (tmp_path / "initial").symlink_to("elsewhere")
    with pytest.raises(BananaError, match="initial: a symbolic link"):
        raw.read_initial(tmp_path, found)

    alias = tmp_path / "alias"
    alias.symlink_to(run.parent)
    with pytest.raises(BananaError, match="alias: a symbolic link"):
        raw.read_run(alias / run.name)
    (run / raw.RUN_FILE).rename(tmp_path / "facts")
    (run / raw.RUN_FILE).symlink_to(tmp_path / "facts")
    with pytest.raises(BananaError, match=r"run\.json: a symbolic link"):
        raw.read_run(run)


def test_a_pipe_and_a_large_file_are_refused_at_once(run):
    os.mkfifo(run / "004.png")
    with pytest.raises(BananaError, match=r"004\.png: not a regular file"):
        raw.read_file(run / "004.png")
    with pytest.raises(BananaError, match=r"001\.png: 3 bytes, above the limit of 2"):
        raw.read_file(run / "001.png", 2)


def test_what_is_no_raw_folder_is_refused(tmp_path):
    with pytest.raises(BananaError, match="not a folder of raw runs: cannot list .*No such file"):
        raw.run_folders(tmp_path)
    (tmp_path / "runs" / ".tmp").mkdir(parents=True)
    with pytest.raises(BananaError, match="runs: no runs"):
        raw.run_folders(tmp_path)
    with pytest.raises(BananaError, match=r"cannot read .*run\.json: No such file"):
        raw.read_run(tmp_path / "runs" / "a")
