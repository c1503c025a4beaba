import hashlib
import json
import os

import pytest

from banana100_bench import files
from banana100_bench.errors import BananaError


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
