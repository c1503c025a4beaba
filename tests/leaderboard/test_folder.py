import csv
import json
import os

import pytest

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.leaderboard import folder
from banana100_bench.leaderboard.board import Record
from banana100_bench.leaderboard.submission import load_submission
from tests.fakes.judged import info, judge, save_rows
from tests.leaderboard.making import ROWS, metric, submission

DAY = "2026-05-01"


@pytest.fixture
def home(tmp_path):
    """A board's folder with two submissions."""
    home = tmp_path / "board"
    (home / "submissions").mkdir(parents=True)
    save_rows(ROWS, home / "dataset")
    for made in (submission("Metric", seed=1), submission("Other", seed=2, function=metric(2, slope=0.2))):
        made.save(home / "submissions" / f"{made.card.slug}.json")
    return home


def build(home, day=DAY):
    return folder.build([home], folder.open_ground(home / "dataset"), home, day)


def contents(home):
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and path.suffix in (".json", ".csv", ".html")
    }


def test_a_build_writes_json_csv_and_pages_and_again_the_same_bytes(home):
    board = build(home)
    assert [(e.rank, e.name) for e in board.entries] == [(1, "Metric"), (2, "Other")]
    first = contents(home)
    assert {"leaderboard.json", "leaderboard.csv", "index.html", "models/metric.html", "models/other.html"} <= set(
        first
    )
    assert json.loads(first["leaderboard.json"]) == board.model_dump(mode="json")
    rows = list(csv.DictReader(first["leaderboard.csv"].decode().splitlines()))
    assert [(row["rank"], row["name"], row["badge"], row["simulated"]) for row in rows] == [
        ("1", "Metric", "consistent", "True"),
        ("2", "Other", "consistent", "True"),
    ]
    assert (rows[0]["coverage_ok"], rows[0]["first_seen"], rows[0]["previous_rank"]) == ("24", DAY, "")
    build(home, day="2027-01-01")
    assert contents(home) == first


def test_what_cannot_be_read_is_listed_and_harms_no_other(home):
    submissions = home / "submissions"
    (submissions / "broken.json").write_text("{")
    (submissions / "bomb.json").write_bytes(b"\x1f\x8b" + b"\0" * 1000)
    (submissions / "a\u202eb\x1b.json").write_text('{"card": 1}')
    (submissions / "link.json").symlink_to("/etc/passwd")
    (submissions / "wrong_name.json").write_text((submissions / "metric.json").read_text())
    os.mkfifo(submissions / "pipe.json")
    board = build(home)
    assert [entry.name for entry in board.entries] == ["Metric", "Other"]
    reasons = {one.source: one.reason for one in board.rejected}
    assert set(reasons) == {"broken.json", "bomb.json", "a?b?.json", "link.json", "wrong_name.json", "pipe.json"}
    assert "is a link" in reasons["link.json"]
    assert reasons["wrong_name.json"] == "expected the file to be called metric.json, as its name has it"
    assert reasons["pipe.json"] == "not a plain file"
    text = (home / "leaderboard.json").read_text() + (home / "index.html").read_text()
    assert str(home) not in text
    assert "root:" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_results_and_submissions_may_be_mixed_and_a_result_file_is_named_by_digest(home, tmp_path):
    result = judge(ROWS, metric(9), info("pyiqa:=evil"))
    result.save(tmp_path / "result.json")
    ground = folder.open_ground(home / "dataset")
    board = folder.build([home / "submissions", tmp_path / "result.json"], ground, tmp_path / "out", DAY)
    assert {(e.name, e.card is None) for e in board.entries} == {
        ("Metric", False),
        ("Other", False),
        ("pyiqa:=evil", True),
    }
    entry = next(e for e in board.entries if e.card is None)
    import hashlib

    assert entry.file_sha256 == hashlib.sha256((tmp_path / "result.json").read_bytes()).hexdigest()
    assert entry.slug == f"pyiqa_evil-{entry.file_sha256[:8]}"


def test_no_cell_of_the_csv_is_a_formula(home, tmp_path):
    judge(ROWS, metric(9), info("=cmd|calc", kind="file")).save(tmp_path / "result.json")
    board = folder.build([tmp_path / "result.json"], folder.open_ground(home / "dataset"), tmp_path / "out", DAY)
    assert "'=cmd|calc" in folder.csv_text(board)
    assert ",=cmd" not in folder.csv_text(board)


def test_many_files_are_judged_by_processes_with_the_same_bytes(home, monkeypatch):
    build(home)
    alone = contents(home)
    for path in home.glob("leaderboard.*"):
        path.unlink()
    monkeypatch.setattr(folder, "WORTH_PROCESSES", 1)
    build(home)
    assert contents(home) == alone


def test_records_and_reported_rows_are_heeded(home):
    made = load_submission(home / "submissions" / "metric.json")  # one made now may be a second younger
    record = Record(file_sha256=made.digest, name="Metric", n_images=4, largest=0.001, day=DAY, harness="0.1.0")
    folder.add_record(home / "verified.json", record)
    folder.add_record(home / "verified.json", record.model_copy(update={"n_images": 9}))
    assert [one.n_images for one in folder.read_records(home / "verified.json")] == [9]
    reported = [{"name": "RALI", "statement": "No failure.", "source": "A paper", "url": "https://example.org/p"}]
    (home / "reported.json").write_text(json.dumps(reported))
    board = build(home)
    assert [entry.badge for entry in board.entries] == ["verified", "consistent"]
    assert [one.name for one in board.reported] == ["RALI"]
    page = (home / "index.html").read_text()
    assert "No failure." in page
    assert "RALI" not in (home / "leaderboard.csv").read_text()  # no scores, no row


@pytest.mark.parametrize("name", ["leaderboard.json", "verified.json", "reported.json"])
def test_a_broken_file_of_the_board_is_named_and_nothing_is_written(home, name):
    (home / name).write_text('{"schema_version": 1}')
    before = contents(home)
    with pytest.raises(BananaError, match=f"{name}: not what it should be: .*move it away"):
        build(home)
    assert contents(home) == before


def test_a_folder_that_holds_other_things_is_not_replaced(home):
    (home / "models").mkdir()
    (home / "models" / "weights.pt").write_text("precious")
    with pytest.raises(BananaError, match="holds other things than the pages of a board"):
        build(home)
    assert (home / "models" / "weights.pt").read_text() == "precious"
    assert not (home / "leaderboard.json").exists()


def test_no_files_at_all_is_an_error(home, tmp_path):
    with pytest.raises(BananaError, match="no such file or folder"):
        folder.find([tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(BananaError, match=r"no \*\.json in .*expected submission or result files"):
        folder.find([tmp_path / "empty"])
    with pytest.raises(UsageError, match="unknown setting"):
        folder.open_ground(home / "dataset", ["nowhere"])


def test_a_board_of_which_nothing_is_left_is_not_written(home):
    build(home)
    before = contents(home)
    for number in range(4):
        (home / "submissions" / f"{number}.json").write_text("{")
    for name in ("metric.json", "other.json"):
        path = home / "submissions" / name
        path.write_text(path.read_text().replace('"simulated": true', '"simulated": false'))
        before[f"submissions/{name}"] = path.read_bytes()
    with pytest.raises(BananaError) as caught:
        build(home)
    said = str(caught.value)
    assert said.startswith(f"{home}: nothing was written, as all 6 files are rejected: 0.json: not a valid result: ")
    assert said.endswith("; and 3 more")
    assert "\n" not in said
    assert {name: data for name, data in contents(home).items() if not name[-6:-5].isdigit()} == before
    (home / "submissions" / "metric.json").write_text(submission("Metric", seed=1).text())
    assert [entry.name for entry in build(home).entries] == ["Metric"]


@pytest.mark.parametrize("day", ["tomorrow", "2026-02-31", "20260501", "2026-5-1"])
def test_a_day_that_is_none_is_refused_before_it_spoils_the_board(home, day):
    build(home)
    before = contents(home)
    with pytest.raises(UsageError, match=f"day '{day}': expected one of the calendar, as 2026-05-01"):
        build(home, day)
    assert contents(home) == before


def test_the_summary_says_who_has_no_rank_and_why(home):
    def gappy(row):
        return float("nan") if row is ROWS[0] else metric(5)(row)

    made = submission("Gappy", function=gappy)
    made.save(home / "submissions" / "gappy.json")
    (home / "submissions" / "broken.json").write_text("{")
    said = folder.summary(build(home), home).splitlines()
    assert said[0] == f"{home}: 2 ranked, 1 incomplete, 1 rejected on SIMULATED data"
    assert said[1] == "  incomplete: Gappy, 23 of 24 scores usable"
    assert said[2].startswith("  rejected: broken.json: not a valid result: ")
