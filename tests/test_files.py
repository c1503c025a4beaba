import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from banana100_bench import files
from banana100_bench.errors import BananaError
from banana100_bench.leaderboard.folder import find
from banana100_bench.package.walking import walk
from banana100_bench.raw import unnamed_pictures
from banana100_bench.results import load_results


def test_atomic_path_leaves_the_old_file_where_the_body_fails(tmp_path):
    target = tmp_path / "a.txt"
    files.write_text(target, "old")
    with pytest.raises(ZeroDivisionError), files.atomic_path(target) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_unwritable_output_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BananaError, match="cannot write .*file/x"):
        files.write_text(tmp_path / "file" / "x", "")


def test_new_files_obey_the_umask(tmp_path):
    files.write_text(tmp_path / "a", "")
    (tmp_path / "b").write_text("")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_journal_drops_a_torn_line_and_goes_on(tmp_path):
    path = tmp_path / "journal.jsonl"
    with files.Journal(path) as journal:
        journal.append({"n": 1})
    with open(path, "a") as file:
        file.write('{"n": 2, "torn')
    with files.Journal(path) as journal:
        assert journal.rows == [{"n": 1}]
        journal.append({"n": 3})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"n": 1}, {"n": 3}]


@pytest.mark.parametrize("line", ["nonsense", "[1]"])
def test_journal_names_a_bad_line(tmp_path, line):
    path = tmp_path / "journal.jsonl"
    path.write_text(f'{{"n": 1}}\n{line}\n')
    with pytest.raises(BananaError, match="journal.jsonl line 2"):
        files.Journal(path)


@pytest.mark.parametrize(("text", "said"), [("{", "not a valid result"), ("[" * 100_000, "not a valid result")])
def test_read_json_says_what_is_wrong(tmp_path, text, said):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(BananaError, match=said):
        files.read_json(path, "result")


def test_read_json_refuses_what_is_missing_or_too_large(tmp_path):
    with pytest.raises(BananaError, match="cannot read result"):
        files.read_json(tmp_path / "none.json", "result")
    (tmp_path / "a.json").write_text("[1, 2, 3]")
    with pytest.raises(BananaError, match="larger than the limit of 5"):
        files.read_json(tmp_path / "a.json", "result", max_bytes=5)


def test_json_never_holds_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.dump_json({"score": float("nan")})


def test_printable_escapes_what_a_terminal_would_obey():
    assert files.printable("猫 a.png") == "猫 a.png"
    assert files.printable("a\x1b[31m\n\u202e.png") == r"a\x1b[31m\n\u202e.png"
    assert files.printable(os.fsdecode(b"\xff.png")) == r"\udcff.png"


def test_atomic_dir_replaces_only_by_a_whole_folder(tmp_path):
    target = tmp_path / "out"
    with files.atomic_dir(target) as temporary:
        (temporary / "first").write_text("1")
    with pytest.raises(ZeroDivisionError), files.atomic_dir(target) as temporary:
        (temporary / "second").write_text("2")
        raise ZeroDivisionError
    assert os.listdir(target) == ["first"]
    with files.atomic_dir(target) as temporary:
        (temporary / "third").write_text("3")
    assert os.listdir(target) == ["third"]
    assert os.listdir(tmp_path) == ["out"]
    (tmp_path / "file").write_text("")
    with pytest.raises(BananaError, match="cannot write .*file/x"), files.atomic_dir(tmp_path / "file" / "x"):
        pass


WRITER = """
import os, sys
from pathlib import Path
from banana100_bench import files
write, path, at = getattr(files, sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
rename = os.rename

def stop(*names):
    if at == "between":  # the old folder has given way, the new one has not come
        rename(*names)
    print("here", flush=True)
    sys.stdin.read()

if at != "body":
    os.rename = stop
with write(path) as temporary:
    (temporary if sys.argv[1] == "atomic_path" else temporary / "page").write_text("half")
    if at == "body":
        stop()
"""


def start_writer(kind, path, at="body"):
    command = [sys.executable, "-c", WRITER, kind, str(path), at]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "here\n"
    return process


def kill(process):
    process.kill()
    process.communicate(timeout=20)


def test_what_a_killed_writer_left_goes_with_the_next_write_and_what_a_live_one_holds_stays(tmp_path):
    target = tmp_path / "r.json"
    others = [".r.json.abcdefgh.tmp.png", ".r.json.tmp", ".r.json.x.abcdefgh.tmp", ".other.json.abcdefgh.tmp"]
    for name in others:
        (tmp_path / name).write_text("not of this target")
    (tmp_path / ".r.json.linklink.tmp").symlink_to(tmp_path / others[0])
    os.mkfifo(tmp_path / ".r.json.pipepipe.tmp")
    standing = {*others, ".r.json.linklink.tmp"}  # a link is nobody's temporary
    dead, live = start_writer("atomic_path", target), start_writer("atomic_path", target)
    kill(dead)
    left = set(os.listdir(tmp_path)) - standing
    assert len(left) == 2  # the pipe is gone
    files.write_text(target, "whole")
    (held,) = set(os.listdir(tmp_path)) - standing - {"r.json"}
    assert held in left
    assert (tmp_path / held).read_text() == "half"
    live.communicate("", timeout=20)  # it goes on, and ends as if nothing had been
    assert live.returncode == 0
    assert target.read_text() == "half"
    assert set(os.listdir(tmp_path)) == {*standing, "r.json"}


@pytest.mark.parametrize("at", ["body", "before", "between"])
def test_a_killed_writer_of_a_folder_leaves_the_old_one_to_the_next(tmp_path, at):
    target = tmp_path / "models"
    with files.atomic_dir(target) as temporary:
        (temporary / "page").write_text("old")
    process = start_writer("atomic_dir", target, at)
    with pytest.raises(ZeroDivisionError), files.atomic_dir(target):
        raise ZeroDivisionError
    assert len(list(tmp_path.glob(".models.*.tmp"))) == 1  # the live one's
    assert target.exists() == (at != "between")
    kill(process)
    with pytest.raises(ZeroDivisionError), files.atomic_dir(target):
        raise ZeroDivisionError
    assert (target / "page").read_text() == "old"
    assert os.listdir(tmp_path) == ["models"]
    with files.atomic_dir(target) as temporary:
        (temporary / "page").write_text("new")
    assert (target / "page").read_text() == "new"
    assert os.listdir(tmp_path) == ["models"]


def test_a_temporary_that_another_writer_clears_before_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    make, made = files._make_file, []

    def cleared(**where):
        made.append(make(**where))
        if len(made) == 1:
            files._clear(tmp_path / "a")
        return made[-1]

    monkeypatch.setattr(files, "_make_file", cleared)
    files.write_text(tmp_path / "a", "whole")
    assert len(made) == 2
    assert (tmp_path / "a").read_text() == "whole"
    assert os.listdir(tmp_path) == ["a"]


def test_no_reader_takes_what_a_killed_writer_left_for_its_own(tmp_path):
    (tmp_path / "runs" / "run").mkdir(parents=True)
    for name in ("result.json", "model--0123.jsonl", "key-00000-of-00001.parquet", "README.md", "runs/run/001.png"):
        kill(start_writer("atomic_path", tmp_path / name))
    assert len(list(tmp_path.rglob(".*.tmp"))) == 5
    assert walk(tmp_path) == {}
    assert unnamed_pictures(tmp_path / "runs" / "run") == {}
    for read in (load_results, find):
        with pytest.raises(BananaError, match=r"no \*\.json"):
            read([tmp_path])


def test_writers_of_one_file_at_once_all_succeed(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: files.write_text(tmp_path / "a", str(number) * 1000), range(80)))
    assert len(set((tmp_path / "a").read_text())) <= 2
    assert os.listdir(tmp_path) == ["a"]


def test_follower_hashes_a_file_while_it_is_written(tmp_path):
    data = [bytes([number]) * size for number, size in enumerate((1, 5_000_000, 0, 7, 4 << 20))]
    with open(tmp_path / "file", "wb", buffering=0) as file, files.Follower(tmp_path / "file") as behind:
        for piece in data[:-1]:
            file.write(piece)
            behind.reached(file.tell())
        file.write(data[-1])  # nobody told of it but `digest`
        assert behind.digest(file.tell()) == hashlib.sha256(b"".join(data)).hexdigest()


def test_follower_says_where_the_file_ends_too_early(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    with files.Follower(tmp_path / "file") as behind:
        behind.reached(9)
        with pytest.raises(OSError, match="ends at byte 5, not 9"):
            behind.digest(9)
