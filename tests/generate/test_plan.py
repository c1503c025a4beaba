from __future__ import annotations

import pytest

from banana100_bench import protocol
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.generate.campaign import generate
from banana100_bench.generate.control import Control
from banana100_bench.generate.editors.base import Estimate
from banana100_bench.generate.initial import InitialImage, open_initial
from banana100_bench.generate.plan import duration, make_plan, money
from banana100_bench.generate.watch import Watch

from .conftest import INITIAL, Fake, encode, pixels

IMAGES = [InitialImage(f"i{number:02}", INITIAL, "photo", "s") for number in range(13)]


class Paid(Fake):
    name = "paid"
    simulated = False

    def estimate(self, resolution, pictures=1):
        return Estimate(usd=0.1 * pictures, usd_at_most=0.5, seconds=20.0)


def test_the_papers_campaign_is_planned_as_it_counts(tmp_path):
    campaign = protocol.campaign("banana100")
    plan = make_plan(
        Paid(), IMAGES, tmp_path, settings=list(campaign.images), images=campaign.images, max_concurrency=16
    )
    assert (len(plan.runs), plan.calls) == (280, 28_000)
    counts = {one.setting: (one.images, one.runs, one.calls) for one in plan.by_setting}
    assert counts["replication"] == (13, 65, 6500)
    assert counts["mirror"] == (4, 20, 2000)
    assert counts["add_fruits"] == (3, 15, 1500)
    assert len(counts) == 12
    # by hand: 26,000 calls with one picture, 2,000 turns of a chat with 14
    assert plan.usd == pytest.approx(2600 + 2000 * 1.4)
    assert plan.seconds == pytest.approx(28_000 * 20 / 16)
    assert plan.text().splitlines()[-2:] == [
        "time with 16 runs at once: 9.7 h, at 20 s a call",
        "a call costs 0.50 USD at most; a budget keeps that back for each call in flight",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_no_shorter_than_its_calls_one_after_the_other(tmp_path):
    plan = make_plan(Paid(), IMAGES[:1], tmp_path, repetitions=3, rounds=7, max_concurrency=16)
    assert plan.seconds == 140.0
    assert plan.max_concurrency == 3


def test_what_is_there_is_not_planned_again_and_its_time_is_measured(tmp_path):
    editor = Paid()
    generate(editor, IMAGES[:2], tmp_path, repetitions=1, rounds=2)
    plan = make_plan(editor, IMAGES[:2], tmp_path, repetitions=2, rounds=5)
    assert [(one.runs, one.found, one.calls) for one in plan.by_setting] == [(4, 4, 16)]
    assert plan.seconds is not None
    assert plan.seconds < 16 * 1.0  # by the journals, not the 20 s of the estimate
    assert make_plan(Fake(), IMAGES[:1], tmp_path / "new").seconds is None


def test_a_harmed_run_is_planned_as_it_will_go(tmp_path):
    editor = Paid()
    generate(editor, IMAGES[:5], tmp_path, repetitions=1, rounds=4)
    for number in range(5):
        (tmp_path / "runs" / f"replication__i{number:02}__paid__rep0" / "003.png").unlink()
    generate(editor, IMAGES[5:6], tmp_path, repetitions=1, rounds=4)
    what = {"repetitions": 1, "rounds": 6}
    unread = make_plan(editor, IMAGES[:6], tmp_path, **what)
    assert (unread.by_setting[0].found, unread.calls, unread.notes) == (24, 12, [])
    plan = make_plan(editor, IMAGES[:6], tmp_path, **what, check_files=True)
    assert (plan.by_setting[0].found, plan.calls, plan.usd) == (5 * 2 + 4, 2, pytest.approx(0.2))
    path = tmp_path / "runs" / "replication__i00__paid__rep0" / "003.png"
    assert plan.text().splitlines()[-4] == (
        f"note: replication__i00__paid__rep0 will fail: cannot read {path}: No such file or directory; "
        "rounds 3 to 4 would be made anew, which takes --redo (redo=True)"
    )
    assert plan.text().splitlines()[-1] == "note: and 2 more runs like that"
    plan = make_plan(editor, IMAGES[:6], tmp_path, **what, redo=True)
    assert (plan.by_setting[0].found, plan.calls, plan.usd) == (14, 5 * 4 + 2, pytest.approx(2.2))
    assert plan.notes[0] == (
        "note: replication__i00__paid__rep0: rounds 3 to 4 will be made anew: "
        f"cannot read {path}: No such file or directory"
    )


def test_too_few_images_for_a_campaign_are_said(tmp_path):
    campaign = protocol.campaign("replication")
    plan = make_plan(Paid(), IMAGES[:2], tmp_path, settings=list(campaign.images), images=campaign.images, rounds=1)
    assert len(plan.runs) == 10
    assert plan.text().endswith("note: setting replication asks for 13 initial images, 2 are given")


def test_small_initial_images_are_refused_where_asked(tmp_path):
    (tmp_path / "a.png").write_bytes(INITIAL)
    (tmp_path / "b.png").write_bytes(encode(pixels(64, 20)))
    assert len(open_initial([str(tmp_path)], min_side=48)) == 2
    with pytest.raises(
        BananaError, match=r"^1 initial images below 64 px, as the paper's were not: .*a\.png \(48 x 40\); "
    ):
        open_initial([str(tmp_path)], min_side=64)
    assert len(open_initial([str(tmp_path)], 64, min_side=64)) == 2  # after resizing


@pytest.mark.parametrize("what", [{"rounds": 0}, {"max_concurrency": 257}, {"images": {"replication": 0}}])
def test_numbers_out_of_range_are_refused(tmp_path, what):
    with pytest.raises(UsageError, match="expected 1 to|every setting takes 0"):
        make_plan(Fake(), IMAGES, tmp_path, **what)


def test_spans_and_sums_in_words():
    assert [duration(s) for s in (5, 89, 91, 3600, 6000, 200_000)] == [
        "5 s",
        "89 s",
        "2 min",
        "60 min",
        "1.7 h",
        "2.3 days",
    ]
    assert money(1.234, 0.0) == "1.23 USD"
    assert money(1.234, 0.5) == "1.23 USD, and up to 0.50 more that may have been billed"


def test_the_watch_tells_runs_rate_money_and_time_left():
    control = Control(5.0, spent_usd=1.0)
    watch = Watch(3, 30, control, True)
    first, second = watch.start("run-a", 10), watch.start("run-b", 10)
    first(4)  # found
    for _ in range(3):
        first(1)
    second(0)
    watch.end("run-b", "blocked")
    line = watch.line()
    assert line.startswith("generate: 7/30 images; ")
    assert "; runs: 1 running, 1 blocked of 3; 1.00 USD of 5.00; " in line
    assert line.endswith(" left")
    table, below = watch.view().renderables
    assert [list(column.cells) for column in table.columns] == [["run-a"], ["7 / 10"]]
    assert str(below).startswith("generate: 7/30 images")
    for number in range(20):
        watch.start(f"run-{number}", 5)
    assert list(watch.view().renderables[0].columns[0].cells)[-1] == "and 5 more"
