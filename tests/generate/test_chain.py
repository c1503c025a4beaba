from __future__ import annotations

import fcntl
import json
import logging
import random
import re
import subprocess
import sys
import time

import pytest

from banana100_bench import raw
from banana100_bench.errors import BananaError
from banana100_bench.files import Journal, sha256_bytes, sha256_file, write_bytes
from banana100_bench.generate.chain import ChainReport, run_chain
from banana100_bench.generate.control import Control
from banana100_bench.generate.editors import Edited
from banana100_bench.generate.editors.simulated import Simulated

from .conftest import INITIAL, encode, facts, pixels

RUN = facts().run_id


def chain(out, editor=None, initial=INITIAL, redo=False, **changes) -> ChainReport:
    return run_chain(editor or Simulated(), facts(**changes), initial, out, redo=redo)


def shas(out) -> dict[str, str]:
    return {path.name: sha256_file(path) for path in sorted(raw.run_folder(out, RUN).glob("*.png"))}


def everything(out) -> dict[str, tuple[int, bytes]]:
    """Time of change and content of each file of the run."""
    files = [path for path in raw.run_folder(out, RUN).iterdir() if path.is_file()]
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def journal(out) -> list[dict]:
    return [json.loads(line) for line in (raw.run_folder(out, RUN) / raw.JOURNAL_FILE).read_text().splitlines()]


def test_a_run_is_written_as_raw_py_says(tmp_path):
    assert chain(tmp_path) == ChainReport(run_id=RUN, found=0, made=4, redone=0)
    found, entries = raw.read_run(raw.run_folder(tmp_path, RUN))
    assert found == facts()
    assert [entry.path.name for entry in entries] == ["001.png", "002.png", "003.png", "004.png"]
    assert [entry.parent_sha256 for entry in entries] == [sha256_bytes(INITIAL), *(e.sha256 for e in entries[:3])]
    assert raw.first_fault(found, entries) is None
    assert {entry.model_version for entry in entries} == {"simulated-1"}
    assert [(row["event"], row["round"]) for row in journal(tmp_path)] == [
        (event, number) for number in (1, 2, 3, 4) for event in ("start", "image")
    ]


def test_a_finished_run_is_found_and_left_alone(tmp_path):
    chain(tmp_path)
    before = journal(tmp_path)
    assert chain(tmp_path) == ChainReport(run_id=RUN, found=4, made=0, redone=0)
    assert journal(tmp_path) == before


def test_a_longer_run_goes_on_and_equals_one_made_at_once(tmp_path):
    chain(tmp_path / "a", rounds=2)
    assert chain(tmp_path / "a", rounds=6) == ChainReport(run_id=RUN, found=2, made=4, redone=0)
    chain(tmp_path / "b", rounds=6)
    assert shas(tmp_path / "a") == shas(tmp_path / "b")
    assert raw.read_run(raw.run_folder(tmp_path / "a", RUN))[0].rounds == 6
    with pytest.raises(BananaError, match=r"run\.json: a run begun otherwise cannot go on: rounds 6 there, 5 now"):
        chain(tmp_path / "a", rounds=5)


def test_it_stops_between_rounds_when_told(tmp_path):
    done: list[int] = []
    control = Control()

    def advance(count: int) -> None:
        done.append(count)
        if sum(done) == 2:
            control.stop("two are enough")

    report = run_chain(Simulated(), facts(), INITIAL, tmp_path, advance=advance, control=control)
    assert (report.made, done) == (2, [0, 1, 1])
    assert chain(tmp_path).found == 2


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        ("missing", r"cannot read \S+/002\.png: No such file or directory; rounds 2 to 4"),
        ("changed", r"\S+/002\.png: SHA-256 [0-9a-f]{12}\.\.\., expected [0-9a-f]{12}\.\.\.; rounds 2 to 4"),
        ("parents", r"\S+/003\.png: not made from round 2 as it now stands; rounds 3 to 4"),
        ("last", r"cannot read \S+/004\.png: No such file or directory; round 4"),
    ],
)
def test_a_run_that_is_not_what_its_journal_says_is_not_touched(tmp_path, fake, harm, why):
    chain(tmp_path, fake)
    folder = raw.run_folder(tmp_path, RUN)
    if harm == "changed":
        (folder / "002.png").write_bytes(encode(pixels()))
    elif harm == "parents":
        rows = journal(tmp_path)
        rows[5]["parent_sha256"] = "0" * 64  # round 3
        (folder / raw.JOURNAL_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        (folder / ("004.png" if harm == "last" else "002.png")).unlink()
    (folder / ".005.png.abc.tmp").write_bytes(b"cut off")
    before = everything(tmp_path)
    for rounds in (4, 6):
        with pytest.raises(BananaError) as caught:
            chain(tmp_path, fake, rounds=rounds)
        assert re.fullmatch(rf"{why} would be made anew, which takes --redo \(redo=True\)", str(caught.value))
    assert len(fake.requests) == 4
    assert everything(tmp_path) == before


@pytest.mark.parametrize("harm", ["changed", "missing", "linked", "not a file"])
def test_with_redo_rounds_from_the_first_harmed_image_on_are_made_anew_and_said(tmp_path, caplog, harm):
    chain(tmp_path)
    before = shas(tmp_path)
    victim = raw.run_folder(tmp_path, RUN) / "002.png"
    victim.unlink()
    if harm == "changed":
        victim.write_bytes(encode(pixels()[::-1]))
    elif harm == "linked":
        victim.symlink_to("001.png")
    elif harm == "not a file":
        # a folder cannot be replaced by a file, so this is told and nothing is lost
        victim.mkdir()
        with pytest.raises(BananaError, match=r"cannot write .*002\.png: Is a directory"):
            chain(tmp_path, redo=True)
        victim.rmdir()
        caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert chain(tmp_path, redo=True) == ChainReport(run_id=RUN, found=1, made=3, redone=3)
    assert shas(tmp_path) == before
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{RUN}: makes rounds 2 to 4 anew: ")
    assert chain(tmp_path).found == 4


def test_a_journal_whose_parents_do_not_fit_is_trusted_no_further(tmp_path, caplog):
    chain(tmp_path)
    before = shas(tmp_path)
    path = raw.run_folder(tmp_path, RUN) / raw.JOURNAL_FILE
    rows = journal(tmp_path)
    rows[5]["parent_sha256"] = "0" * 64  # round 3
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert chain(tmp_path, redo=True) == ChainReport(run_id=RUN, found=2, made=2, redone=2)
    assert "makes rounds 3 to 4 anew: " in caplog.text
    assert shas(tmp_path) == before


@pytest.mark.parametrize("harm", ["journal", "rows", "all"])
def test_a_journal_that_lost_its_rows_costs_no_picture(tmp_path, harm):
    chain(tmp_path)
    folder = tmp_path / "runs" / RUN
    pictures = {path.name: path.read_bytes() for path in folder.glob("*.png")}
    journal = folder / "journal.jsonl"
    if harm == "rows":
        journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:2]))
    else:
        journal.unlink()
    if harm == "all":
        (folder / "run.json").unlink()
    with pytest.raises(BananaError, match=r"00[34]\.png: a picture that no row of the journal names; .* takes --redo"):
        chain(tmp_path)
    assert {path.name: path.read_bytes() for path in folder.glob("*.png")} == pictures
    assert chain(tmp_path, redo=True).made == (3 if harm == "rows" else 4)
    assert {path.name: path.read_bytes() for path in folder.glob("*.png")} == pictures


def test_a_torn_journal_line_costs_that_round_alone(tmp_path):
    chain(tmp_path)
    before = shas(tmp_path)
    path = raw.run_folder(tmp_path, RUN) / raw.JOURNAL_FILE
    path.write_bytes(path.read_bytes()[:-30])
    assert chain(tmp_path) == ChainReport(run_id=RUN, found=3, made=1, redone=0)
    assert shas(tmp_path) == before
    assert chain(tmp_path).found == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 8}, "seed 7 there, 8 now"),
        ({"prompts": ("Again.",)}, "prompts .*Produce an exact replica.* there, .*Again.* now"),
        ({"model_version": "simulated-2"}, "model_version 'simulated-1' there, 'simulated-2' now"),
        ({"initial_sha256": "0" * 64}, "initial_sha256 '[0-9a-f]{64}' there, '0{64}' now"),
        ({"style": "anime", "period": 2}, "period 1 there, 2 now; style 'photo' there, 'anime' now"),
    ],
)
def test_a_run_does_not_go_on_with_other_facts(tmp_path, changes, message):
    chain(tmp_path, rounds=1)
    before = journal(tmp_path)
    with pytest.raises(
        BananaError, match=f"{RUN}/run.json: a run begun otherwise cannot go on: {message}; use another folder$"
    ):
        chain(tmp_path, **changes)
    assert journal(tmp_path) == before


def test_a_journal_without_its_facts_is_refused(tmp_path):
    chain(tmp_path, rounds=1)
    (raw.run_folder(tmp_path, RUN) / raw.RUN_FILE).unlink()
    with pytest.raises(BananaError, match=r"a journal without run\.json"):
        chain(tmp_path)


def test_two_writers_of_one_run_exclude_each_other(tmp_path):
    chain(tmp_path, rounds=1)
    with open(raw.run_folder(tmp_path, RUN) / ".lock") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(BananaError, match=f"{RUN}: another process is writing this run"):
            chain(tmp_path)
    assert chain(tmp_path).made == 3


def test_a_linked_run_folder_is_refused(tmp_path):
    (tmp_path / "else").mkdir()
    (tmp_path / "runs").mkdir()
    raw.run_folder(tmp_path, RUN).symlink_to(tmp_path / "else")
    with pytest.raises(BananaError, match="a symbolic link"):
        chain(tmp_path)
    assert list((tmp_path / "else").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(BananaError, match=f"cannot write .*{RUN}: "):
        chain(tmp_path)


def test_the_editor_is_asked_as_the_facts_say(tmp_path, fake):
    chain(tmp_path, fake, prompts=("grey", "colour"), period=2, rounds=3, temperature=0.5, resolution="2K")
    images = [(raw.run_folder(tmp_path, RUN) / f"00{number}.png").read_bytes() for number in (1, 2)]
    assert [request.data for request in fake.requests] == [INITIAL, *images]
    assert [(request.prompt, request.round) for request in fake.requests] == [("grey", 1), ("colour", 2), ("grey", 3)]
    assert {(request.seed, request.temperature, request.resolution) for request in fake.requests} == {(7, 0.5, "2K")}


def test_what_the_editor_says_is_kept_and_its_bytes_are_untouched(tmp_path, fake):
    data = encode(pixels(), "WEBP")
    fake.answer = Edited(data=data, model_version="fake-1-0426", reasoning_summary="I see grain.\n")
    chain(tmp_path, fake, rounds=1)
    (entry,) = raw.read_run(raw.run_folder(tmp_path, RUN))[1]
    assert (entry.path.name, entry.read()) == ("001.webp", data)
    assert (entry.model_version, entry.reasoning_summary) == ("fake-1-0426", "I see grain.\n")


def test_a_failed_edit_is_in_the_journal_and_keeps_what_was_made(tmp_path, fake):
    fake.failing[7, 3] = BananaError("blocked: SAFETY")
    with pytest.raises(BananaError, match="blocked: SAFETY"):
        chain(tmp_path, fake)
    assert [(row["event"], row["round"]) for row in journal(tmp_path)][-2:] == [("start", 3), ("fail", 3)]
    assert journal(tmp_path)[-1]["message"] == "BananaError: blocked: SAFETY"
    fake.failing.clear()
    assert chain(tmp_path, fake) == ChainReport(run_id=RUN, found=2, made=2, redone=0)


@pytest.mark.parametrize(
    ("data", "message"), [(b"", "the file is empty"), (b"<html>", "not a readable"), (INITIAL[:-9], "cut short")]
)
def test_an_answer_that_is_no_image_fails_the_round(tmp_path, fake, data, message):
    fake.answer = Edited(data=data)
    assert re.match(f"{RUN}: output of round 1: .*{message}", str(chain(tmp_path, fake).why))
    assert journal(tmp_path)[-1]["event"] == "fail"
    assert shas(tmp_path) == {}


def test_an_image_is_on_disk_before_its_row_so_that_a_kill_between_them_costs_no_redo(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def append(self, row, plain=Journal.append):
        if row["event"] == "image":
            path = raw.run_folder(tmp_path, RUN) / row["file"]
            assert sha256_file(path) == row["sha256"]
            if row["round"] == 3 and not killed:
                killed.append(path)
                raise Killed
        plain(self, row)

    killed: list = []
    monkeypatch.setattr(Journal, "append", append)
    with pytest.raises(Killed):
        chain(tmp_path)
    assert sorted(shas(tmp_path)) == ["001.png", "002.png", "003.png"]
    assert chain(tmp_path) == ChainReport(run_id=RUN, found=2, made=2, redone=0)


def test_a_redo_cut_off_goes_on_without_another(tmp_path):
    chain(tmp_path, rounds=6)
    before = shas(tmp_path)
    (raw.run_folder(tmp_path, RUN) / "002.png").unlink()
    control = Control()
    made: list[int] = []

    def advance(count: int) -> None:
        made.append(count)
        if len(made) == 3:  # one found, two made
            control.stop("cut off")

    run_chain(Simulated(), facts(rounds=6), INITIAL, tmp_path, advance=advance, control=control, redo=True)
    assert made == [1, 1, 1]
    assert chain(tmp_path, rounds=6) == ChainReport(run_id=RUN, found=3, made=3, redone=0)
    assert shas(tmp_path) == before


KILLED = """
import sys
from pathlib import Path
from banana100_bench.generate.campaign import generate
from banana100_bench.generate.initial import InitialImage
image = InitialImage("ramp", Path(sys.argv[1]).read_bytes(), "photo", "test")
generate("simulated", [image], Path(sys.argv[2]), repetitions=1, rounds=60, seed=7)
"""


def test_killed_at_random_moments_a_run_ends_with_the_same_images(tmp_path):
    initial = tmp_path / "initial.png"
    write_bytes(initial, INITIAL)
    command = [sys.executable, "-c", KILLED, str(initial)]
    out = tmp_path / "killed"
    folder = raw.run_folder(out, RUN)
    randomly = random.Random(1)
    for target in (1, 9, 20, 33):  # images that must be there before the kill
        process = subprocess.Popen([*command, str(out)], stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 20
            while len(list(folder.glob("*.png"))) < target and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(randomly.random() * 0.02)
            assert process.poll() is None, "it ended before it could be killed"
        finally:
            process.kill()
            process.wait()
        found, entries = raw.read_run(folder)
        assert raw.first_fault(found, entries) is None
        assert target - 1 <= len(entries) < 60
    (folder / ".061.png.abc.tmp").write_bytes(b"cut off")
    subprocess.run([*command, str(out)], check=True, stderr=subprocess.DEVNULL)
    chain(tmp_path / "whole", rounds=60)
    assert len(shas(out)) == 60
    assert list(folder.glob(".*")) == [folder / ".lock"]
    assert shas(out) == shas(tmp_path / "whole")
    events = [(row["event"], row["round"]) for row in journal(out)]
    assert sum(event == "start" for event, _ in events) <= 60 + 4  # a kill loses the edit in flight, no more
    assert [number for event, number in events if event == "image"] == list(range(1, 61))
