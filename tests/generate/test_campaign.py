from __future__ import annotations

import fcntl
import json
import logging
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone

import numpy as np
import pytest

from banana100_bench import raw
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file
from banana100_bench.generate.campaign import generate
from banana100_bench.generate.editors.base import Halt
from banana100_bench.generate.initial import InitialImage

from .conftest import INITIAL, encode, pixels

RAMP = InitialImage("ramp", INITIAL, "photo", "in/ramp.png")
DUNE = InitialImage("dune", encode(pixels(32, 20)[::-1], "JPEG"), "unknown", "in/dune.jpg")


def shas(out) -> dict[str, str]:
    return {str(path.relative_to(out)): sha256_file(path) for path in sorted(out.rglob("*.png"))}


def test_every_run_is_made_and_found_again(tmp_path):
    report = generate("simulated", [RAMP, DUNE], tmp_path, repetitions=2, rounds=3, seed=40)
    assert (report.runs, report.made, report.found, report.redone) == (4, 12, 0, 0)
    assert report.summary().startswith(
        "4 runs by editor simulated, a simulation and no editing model: 12 images made, 0 found already there, "
    )
    runs = [raw.read_run(folder)[0] for folder in raw.run_folders(tmp_path)]
    assert [(run.run_id, run.seed, run.style, run.simulated) for run in runs] == [
        ("replication__dune__simulated__rep0", 40, "unknown", True),
        ("replication__dune__simulated__rep1", 41, "unknown", True),
        ("replication__ramp__simulated__rep0", 40, "photo", True),
        ("replication__ramp__simulated__rep1", 41, "photo", True),
    ]
    assert raw.initial_path(tmp_path, "dune", "jpg").read_bytes() == DUNE.data
    assert raw.initial_path(tmp_path, "ramp", "png").read_bytes() == INITIAL
    again = generate("simulated", [RAMP, DUNE], tmp_path, repetitions=2, rounds=3, seed=40)
    assert (again.runs, again.made, again.found) == (4, 0, 12)


def test_the_images_do_not_depend_on_the_number_of_workers(tmp_path):
    for workers in (1, 3):
        generate("simulated", [RAMP, DUNE], tmp_path / str(workers), repetitions=2, rounds=4, max_concurrency=workers)
    assert len(shas(tmp_path / "1")) == 17  # 16 and the initial image that is a PNG
    assert shas(tmp_path / "1") == shas(tmp_path / "3")


def test_a_harmed_image_is_counted_as_made_anew(tmp_path):
    generate("simulated", [RAMP], tmp_path, repetitions=1, rounds=3)
    (tmp_path / "runs" / "replication__ramp__simulated__rep0" / "002.png").unlink()
    report = generate("simulated", [RAMP], tmp_path, repetitions=1, rounds=3, redo=True)
    assert (report.found, report.made, report.redone) == (1, 2, 2)
    assert "2 images made, 2 of them anew, 1 found" in report.summary()


def test_a_harmed_run_fails_untouched_and_the_others_go_on(tmp_path, fake):
    generate(fake, [RAMP], tmp_path, repetitions=3, rounds=3)
    harmed = tmp_path / "runs" / "replication__ramp__fake__rep1"
    (harmed / "002.png").unlink()
    before = {path.name: path.read_bytes() for path in harmed.iterdir()}
    fake.requests.clear()
    with pytest.raises(BananaError) as caught:
        generate(fake, [RAMP], tmp_path, repetitions=3, rounds=5)
    assert str(caught.value) == (
        f"1 of 3 runs failed: {harmed.name}: cannot read {harmed}/002.png: No such file or directory; "
        "rounds 2 to 3 would be made anew, which takes --redo (redo=True)"
    )
    assert {path.name: path.read_bytes() for path in harmed.iterdir()} == before
    assert sorted((request.seed, request.round) for request in fake.requests) == [(0, 4), (0, 5), (2, 4), (2, 5)]
    report = generate(fake, [RAMP], tmp_path, repetitions=3, rounds=5, redo=True)
    assert (report.found, report.made, report.redone) == (11, 4, 2)


def test_a_failing_run_is_named_and_does_not_stop_the_others(tmp_path, fake):
    fake.failing[1, 2] = BananaError("blocked: SAFETY")
    fake.failing[3, 1] = KeyError("usage")
    with pytest.raises(BananaError) as caught:
        generate(fake, [RAMP], tmp_path, repetitions=4, rounds=3, max_concurrency=2)
    assert str(caught.value) == (
        "2 of 4 runs failed: replication__ramp__fake__rep1: blocked: SAFETY; "
        "replication__ramp__fake__rep3: KeyError: 'usage'"
    )
    made = {folder.name[-4:]: len(raw.read_run(folder)[1]) for folder in raw.run_folders(tmp_path)}
    assert made == {"rep0": 3, "rep1": 1, "rep2": 3, "rep3": 0}
    fake.failing.clear()
    report = generate(fake, [RAMP], tmp_path, repetitions=4, rounds=3)
    assert (report.found, report.made) == (7, 5)


def test_what_stops_the_campaign_and_what_failed_before_are_both_told(tmp_path, fake):
    fake.failing[0, 1] = KeyError("usage")
    fake.failing[1, 2] = Halt("the key was withdrawn")
    with pytest.raises(BananaError) as caught:
        generate(fake, [RAMP], tmp_path, repetitions=4, rounds=3)
    assert str(caught.value) == (
        "the key was withdrawn; 1 images were made before, the same call continues; "
        "1 of 4 runs failed: replication__ramp__fake__rep0: KeyError: 'usage'"
    )
    assert len(raw.run_folders(tmp_path)) == 2  # the other two never began


def test_of_many_failing_runs_three_are_shown(tmp_path, fake):
    fake.failing = {(seed, 1): BananaError("no key") for seed in range(5)}
    with pytest.raises(BananaError, match=r"^5 of 5 runs failed: .*rep0: no key; .*rep2: no key; and 2 more$"):
        generate(fake, [RAMP], tmp_path, rounds=1)


def test_other_settings_bring_their_prompts(tmp_path, fake):
    generate(fake, [RAMP], tmp_path, settings=["mirror", "add_apple"], repetitions=1, rounds=1, seed=None)
    runs = {run.setting: run for run in (raw.read_run(folder)[0] for folder in raw.run_folders(tmp_path))}
    assert (runs["mirror"].period, runs["mirror"].setting_group) == (2, "variant")
    assert (runs["add_apple"].period, runs["add_apple"].setting_group) == (1, "object")
    assert {request.prompt[:7] for request in fake.requests} == {"Mirror ", "Add one"}
    assert {request.seed for request in fake.requests} == {None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": ["mirror"]}, "setting 'mirror': the simulated editor reads no prompt"),
        ({"settings": ["replicate"]}, "unknown setting 'replicate'; did you mean replication"),
        ({"settings": ["replication", "replication"]}, "setting 'replication' given twice"),
        ({"settings": []}, "no setting given"),
        ({"initial": []}, "no initial image given"),
        ({"initial": [RAMP, RAMP]}, "initial image 'ramp' given twice"),
        ({"editor": "gimp"}, "unknown editor 'gimp'; choices: .*simulated"),
        ({"repetitions": 0}, "repetitions 0: expected 1 to 9999"),
        ({"rounds": 10000}, "rounds 10000: expected 1 to 9999"),
        ({"max_concurrency": 0}, "max concurrency 0: expected 1 to 256"),
        ({"seed": -1}, "seed -1: expected 0 or more"),
        ({"seed": 2**63 - 1}, "seed 9223372036854775807: expected 0 or more"),
    ],
)
def test_bad_calls_are_refused_before_anything_is_written(tmp_path, changes, message):
    call = {"editor": "simulated", "initial": [RAMP], "out": tmp_path / "out", "rounds": 1, **changes}
    with pytest.raises(UsageError, match=message):
        generate(**call)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_another_initial_image_of_the_same_name_is_refused(tmp_path, kind):
    generate("simulated", [RAMP], tmp_path, repetitions=1, rounds=1)
    other = InitialImage("ramp", encode(np.zeros((20, 20, 3), np.uint8), kind), "photo", "other/ramp")
    with pytest.raises(BananaError, match=r"initial/ramp\.png is not the picture other/ramp"):
        generate("simulated", [other], tmp_path, repetitions=1, rounds=1)


def test_a_campaign_begun_otherwise_is_refused_before_anything_is_written(tmp_path):
    generate("simulated", [RAMP], tmp_path, repetitions=1, rounds=1)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BananaError, match=r"^[^ ]*ramp__simulated__rep0/run\.json: .*: seed 0 there, 5 now; use"):
        generate("simulated", [DUNE, RAMP], tmp_path, repetitions=2, rounds=1, seed=5)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_initial_image_with_an_unsafe_name_or_bytes_is_refused(tmp_path):
    with pytest.raises(BananaError, match=r"initial image '\.\./x': expected"):
        generate("simulated", [InitialImage("../x", INITIAL, "photo", "s")], tmp_path)
    with pytest.raises(BananaError, match=r"in/b\.png: not a readable"):
        generate("simulated", [InitialImage("b", b"no", "photo", "in/b.png")], tmp_path)
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
import sys
from pathlib import Path
from banana100_bench.generate.campaign import generate
from banana100_bench.generate.initial import InitialImage
image = InitialImage("ramp", Path(sys.argv[1]).read_bytes(), "photo", "test")
try:
    generate("simulated", [image], Path(sys.argv[2]), repetitions=3, rounds=400, max_concurrency=2)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_lets_the_edits_in_hand_finish(tmp_path):
    (tmp_path / "ramp.png").write_bytes(INITIAL)
    out = tmp_path / "out"
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "ramp.png"), str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while len(list(out.rglob("0*.png"))) < 10 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=20)
    assert (printed, process.returncode) == ("interrupted\n", 0), errors
    folders = raw.run_folders(out)
    assert len(folders) == 2  # the third was never begun
    for folder in folders:
        found, entries = raw.read_run(folder)
        assert raw.first_fault(found, entries) is None
        events = [json.loads(line)["event"] for line in (folder / raw.JOURNAL_FILE).read_text().splitlines()]
        assert events == ["start", "image"] * len(entries)  # none was cut off
        assert len(entries) < 400


def test_a_second_campaign_in_the_same_folder_is_refused(tmp_path):
    generate("simulated", [RAMP], tmp_path, repetitions=1, rounds=1)
    with open(tmp_path / ".lock") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(BananaError, match="another process is generating into this folder"):
            generate("simulated", [RAMP], tmp_path, repetitions=1, rounds=2)
    assert generate("simulated", [RAMP], tmp_path, repetitions=1, rounds=2).made == 1


def test_images_of_another_size_are_counted(tmp_path, fake):
    report = generate(fake, [RAMP], tmp_path, repetitions=2, rounds=3)
    assert report.drifted == 2  # 48 x 40 to 16 x 16 once a run
    assert "6 images made, 2 of another size than their input, 0 found" in report.summary()


def test_another_model_version_in_the_middle_of_a_run_is_said(tmp_path, fake, caplog):
    fake.versions = {2: "fake-2"}
    with caplog.at_level(logging.WARNING):
        generate(fake, [RAMP], tmp_path, repetitions=1, rounds=3)
    assert [record.getMessage() for record in caplog.records] == [
        "replication__ramp__fake__rep0: round 2 was answered by fake-2, the round before by fake-1",
        "replication__ramp__fake__rep0: round 3 was answered by fake-1, the round before by fake-2",
    ]


def test_no_call_begins_after_the_time(tmp_path, fake):
    report = generate(fake, [RAMP], tmp_path, repetitions=2, rounds=3, until=datetime.now(timezone.utc))
    assert (report.made, report.unfinished, fake.requests) == (0, 2, [])
    assert report.stopped is not None
    assert report.stopped.startswith("the time is over")
    assert "2 runs are not finished; stopped: the time is over" in report.summary()
