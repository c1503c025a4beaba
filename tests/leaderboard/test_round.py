"""The whole round, as people go it: submit, pull request, verify, merge, build, page; real commands, a local Hub."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.judged import info, judge, make_rows, save_rows
from tests.leaderboard.conftest import BOARD
from tests.leaderboard.making import ROWS, metric, submission

REAL = make_rows(simulated=False)


@pytest.fixture
def call(hub, tmp_path):
    """Run `banana100` as the owner of a token, in tmp_path."""
    root = str(Path(__file__).parents[2])

    def call(*words, token=None, check=0):
        done = subprocess.run(
            [sys.executable, "-c", "from banana100_bench.cli import main; main()", *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, **hub.env(tmp_path / "hf", token), "COLUMNS": "80", "PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == check, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return call


def fetch(hub, home):
    """What a maintainer's clone has after a pull."""
    hub.api.snapshot_download(BOARD, repo_type="dataset", local_dir=home, allow_patterns="submissions/*.json")


def test_submit_pull_request_verify_merge_build_page(hub, call, tmp_path):
    data, home = save_rows(REAL, tmp_path / "banana100"), tmp_path / "board"
    (home / "submissions").mkdir(parents=True)
    save_rows(REAL, home / "dataset")
    repo = hub.add_repo("model", "org/metric", {"README.md": b"# Metric"})
    judge(REAL, metric(1), info("scores:metric.csv", kind="file")).save(tmp_path / "result.json")
    stranger = hub.add_token("hf_stranger", "stranger")
    submit = ("submit", "result.json", "--name", "Metric", "--url", "https://example.org/m", "--licence", "mit")
    send = (*submit, "--data", data, "--to", BOARD, "--hub-repo", "org/metric", "--hub-dataset", "org/banana100")

    assert call(*submit, "--data", data, "--check").stdout == "Metric: consistent\n"
    first = call(*send, token=stranger).stdout
    assert first.count("opened a pull request") == 2  # the board's, and the model's own
    assert call(*send, token=stranger).stdout.count("the pull request is open already") == 2
    assert (len(hub.board.discussions), len(repo.discussions)) == (1, 1)

    said = call("leaderboard", "verify", "--board", home, "--hub", BOARD, "--comment").stdout
    assert said.endswith("discussions/1 'Submission: Metric': consistent\n")
    call("leaderboard", "verify", "--board", home, "--hub", f"{BOARD}#1", "--comment")
    comments = [e["data"]["latest"]["raw"] for e in hub.board.discussions[0].events if e["type"] == "comment"]
    assert [text for text in comments if "metric.json: consistent" in text] == comments[
        1:
    ]  # the second says nothing new
    assert len(comments) == 2

    hub.api.merge_pull_request(BOARD, 1, repo_type="dataset")
    fetch(hub, home)
    assert "1 ranked, 0 incomplete, 0 rejected" in call("leaderboard", "build", home, "--day", "2026-05-01").stdout
    (entry,) = json.loads((home / "leaderboard.json").read_text())["entries"]
    assert (entry["rank"], entry["name"], entry["strict_pass_rate"]) == (1, "Metric", 1.0)
    assert "Metric</a>" in (home / "index.html").read_text()
    assert "SIMULATED" not in (home / "index.html").read_text()

    hub.add_repo("space", "org/board", sdk="static")
    hub.api.upload_folder(repo_id="org/board", repo_type="space", folder_path=home)
    published = hub.repo("space", "org/board").files()
    assert {"index.html", "leaderboard.json", "leaderboard.csv", "models/metric.html"} <= set(published)
    assert call(*send, token=stranger).stdout.count("has it already, merged") == 1


def test_the_faults_a_person_meets(hub, call, tmp_path):
    data = save_rows(ROWS, tmp_path / "banana100")
    judge(ROWS, metric(1), info("scores:metric.csv", kind="file")).save(tmp_path / "result.json")
    submit = ("submit", "result.json", "--name", "Metric", "--url", "https://example.org/m", "--licence", "mit")

    def error(*words, check=1, token=None):
        lines = [
            line for line in call(*words, check=check, token=token).stderr.splitlines() if line.startswith("error")
        ]
        assert len(lines) == 1
        return lines[0]

    late = hub.add_token("hf_late", "late", expired=True)
    assert "does not accept the token, or it has expired" in error(*submit, "--data", data, "--to", BOARD, token=late)
    assert "org/nowhere: no such repository" in error(*submit, "--data", data, "--to", "org/nowhere")
    hub.drop("POST", "/commit/main", when="after")
    assert "the connection failed" in error(*submit, "--data", data, "--to", BOARD)
    assert "the pull request is open already" in call(*submit, "--data", data, "--to", BOARD).stdout
    assert len(hub.board.discussions) == 1
    assert "simulated" in error(
        *submit, "--data", data, "--to", BOARD, "--hub-repo", "org/m", "--hub-dataset", "org/d", check=2
    )
    assert "give one of them" in error(*submit, "--data", data, "--to", BOARD, "--check", check=2)
    assert "--name: " in error(*submit[:2], "--name", "<b>", *submit[4:], "--data", data, check=2)
    judge(ROWS, lambda row: -row.round, info("scores:metric.csv", kind="file")).save(tmp_path / "leak.json")
    done = call("submit", "leak.json", *submit[2:], "--data", data, "--check", check=1)
    assert "Metric: rejected\n  - suspicious: the scores are a function of the round" in done.stdout
    assert "it would be rejected; nothing was sent" in done.stderr


def test_a_submission_is_written_to_a_file_or_a_clone(call, tmp_path):
    data, home = save_rows(ROWS, tmp_path / "banana100"), tmp_path / "board"
    (home / "submissions").mkdir(parents=True)
    judge(ROWS, metric(1), info("scores:metric.csv", kind="file")).save(tmp_path / "result.json")
    submit = ("submit", "result.json", "--name", "My metric", "--url", "https://example.org/m", "--licence", "mit")
    assert call(*submit, "--data", data).stdout.endswith("wrote my_metric.json\n")
    assert call(*submit, "--data", data, "--to", "board").stdout.endswith("wrote board/submissions/my_metric.json\n")
    assert "it stands already" in call(*submit, "--data", data, "--to", "board").stdout
    text = (tmp_path / "my_metric.json").read_text()
    assert text == (home / "submissions" / "my_metric.json").read_text()


def propose(hub, files, title="Some files", **options):
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    operations = [
        CommitOperationDelete(path) if content is None else CommitOperationAdd(path, content)
        for path, content in files.items()
    ]
    hub.api.create_commit(BOARD, operations, commit_message=title, repo_type="dataset", create_pr=True, **options)


def test_pull_requests_that_do_more_than_submit_are_rejected(hub, call, home):
    good = submission("Good", seed=7)
    hub.board.commit({"submissions/other.json": submission("Other").text().encode()}, "Merged")
    fetch(hub, home)
    propose(hub, {"submissions/metric.json": good.text().encode(), "verified.json": b"[]"})
    propose(hub, {"submissions/other.json": None})
    propose(hub, {"submissions/a/b.json": good.text().encode()})
    propose(hub, {"submissions/huge.json": b"x" * (9 << 20)})
    propose(hub, {"submissions/copy.json": submission("Copy", seed=1).text().encode()}, "`````")
    propose(hub, {"submissions/metric.json": good.text().encode()})
    hub.board.commit({"leaderboard.json": b"{}"}, "Main moves on")
    propose(hub, {"submissions/good.json": good.text().encode()})
    hub.log.clear()
    done = call("leaderboard", "verify", "--board", home, "--hub", BOARD, "--comment", check=1)
    told = done.stdout.split(f"{hub.url}/datasets/{BOARD}/discussions/")[1:]
    expected = (
        "it changes submissions/metric.json, verified.json; expected one file, submissions/NAME.json",
        "it changes submissions/other.json; expected one file",
        "it changes submissions/a/b.json; expected one file",
        "9437184 bytes, larger than the limit of 8388608 bytes; not downloaded",
        "its scores put the images in the same order as those of Other, which was here first",
        "the file is called 'metric.json'; expected good.json, as its name has it",
        ": consistent\n",
    )
    assert len(told) == len(expected)
    for number, (said, part) in enumerate(zip(told, expected, strict=True), 1):
        assert said.startswith(f"{number} ")
        assert part in said
    assert "6 rejected" in done.stderr
    assert hub.requests("GET", "huge.json") == []
    assert (
        "there is no open pull request 99"
        in call("leaderboard", "verify", "--board", home, "--hub", f"{BOARD}#99", check=1).stderr
    )


def test_a_replacement_is_pointed_out(hub, call, home):
    hub.board.commit({"submissions/metric.json": submission("Metric", seed=1).text().encode()}, "Merged")
    fetch(hub, home)
    propose(hub, {"submissions/metric.json": submission("Metric", seed=2).text().encode()})
    said = call("leaderboard", "verify", "--board", home, "--hub", BOARD).stdout
    assert "consistent\n  note: it would replace the row of that name (" in said
