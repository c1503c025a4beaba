import dataclasses
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from banana100_bench.errors import BananaError
from banana100_bench.models import ModelInfo
from banana100_bench.store import Score, ScoreStore

INFO = ModelInfo(
    id="pyiqa:niqe",
    kind="pyiqa",
    higher_is_better=False,
    weights_sha256="e" * 64,
    options={"size": 3},
    versions={"torch": "2.1", "pyiqa": "0.1.14"},
)


def ok(number, value=0.5, **changes):
    return Score(**{"image_id": f"i{number}", "sha256": f"{number:064x}", "score": value, "status": "ok", **changes})


def lines(store):
    return store.path(INFO).read_text().splitlines()


def test_scores_are_kept_as_lines_after_the_key(tmp_path):
    store = ScoreStore(tmp_path / "new" / "store")
    with store.open(INFO) as scores:
        assert scores.get(f"{1:064x}") is None
        assert scores.append(ok(1, 0.1)) == ok(1, 0.1)
        assert len(lines(store)) == 2  # on its way to disk before append returns
        scores.append(ok(2, None, status="nan", message="the model gave inf"))
    key, *rows = [json.loads(line) for line in lines(store)]
    assert key == {
        "model": "pyiqa:niqe",
        "weights_sha256": "e" * 64,
        "options": {"size": 3},
        "versions": {"torch": "2.1", "pyiqa": "0.1.14"},
    }
    unknown = dict.fromkeys(("width", "height", "decode_policy", "threads", "spread"))
    common = {"seconds": 0.0, "batch": 1, **unknown}
    assert rows == [
        {"image_id": "i1", "sha256": f"{1:064x}", "score": 0.1, "status": "ok", "message": None, **common},
        {"image_id": "i2", "sha256": f"{2:064x}", "score": None, "status": "nan", "message": "the model gave inf"}
        | common,
    ]
    with store.open(INFO) as scores:
        assert scores.get(f"{1:064x}") == ok(1, 0.1)
        assert scores.get(f"{3:064x}") is None


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(), st.floats(0, 1e6))
def test_every_score_comes_back_bit_by_bit(tmp_path_factory, value, message, seconds):
    store = ScoreStore(tmp_path_factory.mktemp("store"))
    put = ok(1, value, message=message, seconds=seconds)
    with store.open(INFO) as scores:
        scores.append(put)
        assert scores.get(put.sha256) == put
    with store.open(INFO) as scores:
        assert repr(scores.get(put.sha256)) == repr(put)


def test_the_last_line_wins_only_over_a_failure(tmp_path):
    store = ScoreStore(tmp_path)
    failed = ok(1, None, status="failed", message="boom")
    with store.open(INFO) as scores:
        scores.append(failed)
        assert scores.append(ok(1, 2.0)) == ok(1, 2.0)
        assert scores.append(ok(1, 3.0)) == ok(1, 2.0)
        assert scores.append(failed) == ok(1, 2.0)
        assert scores.get(failed.sha256) == ok(1, 2.0)
    assert len(lines(store)) == 3


def test_two_on_one_file_see_each_other_and_do_not_double(tmp_path):
    store = ScoreStore(tmp_path)
    with store.open(INFO) as one, store.open(INFO) as two:
        one.append(ok(1, 1.0))
        assert two.get(f"{1:064x}") == ok(1, 1.0)
        assert two.append(ok(1, 9.0)) == ok(1, 1.0)
        two.append(ok(2, 2.0))
        assert one.append(ok(2, 9.0)) == ok(2, 2.0)
    assert len(lines(store)) == 3


@pytest.mark.parametrize("torn", ['{"image_id": "i2", "sha', "\0\0"])
def test_a_torn_last_line_is_cut_off(tmp_path, torn):
    store = ScoreStore(tmp_path)
    with store.open(INFO) as scores:
        scores.append(ok(1))
    before = store.path(INFO).read_bytes()
    with open(store.path(INFO), "a") as file:
        file.write(torn)
    with store.open(INFO) as scores:
        assert scores.get(f"{1:064x}") == ok(1)
        assert store.path(INFO).read_bytes() == before
        scores.append(ok(2))
    assert len(lines(store)) == 3


def test_a_torn_key_is_written_anew(tmp_path):
    store = ScoreStore(tmp_path)
    store.path(INFO).write_text('{"model": "pyi')
    assert store.other_versions(dataclasses.replace(INFO, options={})) == []
    with store.open(INFO) as scores:
        scores.append(ok(1))
    assert json.loads(lines(store)[0])["model"] == "pyiqa:niqe"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "line 3: not JSON"),
        ("", "line 3: not JSON"),
        ("[1]", "line 3: expected a JSON object"),
        ('{"image_id": "i"}', "line 3: not a score: .*missing"),
        (json.dumps(dataclasses.asdict(ok(2)) | {"more": 1}), "line 3: not a score: .*more"),
        (json.dumps(dataclasses.asdict(ok(2, sha256="xyz"))), "line 3: not a score: expected"),
        (json.dumps(dataclasses.asdict(ok(2, "0.5"))), "line 3: not a score: expected"),
        (json.dumps(dataclasses.asdict(ok(2, True))), "line 3: not a score: expected"),
        (json.dumps(dataclasses.asdict(ok(2, float("nan")))), "line 3: not a score: expected"),
        (json.dumps(dataclasses.asdict(ok(2, status="failed"))), "line 3: not a score: expected"),
        (json.dumps(dataclasses.asdict(ok(2, status=[]))), "line 3: not a score: expected"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    store = ScoreStore(tmp_path)
    with store.open(INFO) as scores:
        scores.append(ok(1))
    with open(store.path(INFO), "a") as file:
        file.write(line + "\n")
    with pytest.raises(BananaError, match=rf"{store.path(INFO)} {message}") as caught:
        store.open(INFO)
    assert "\n" not in str(caught.value)


def test_a_file_with_another_key_is_refused(tmp_path):
    store = ScoreStore(tmp_path)
    store.path(INFO).write_text('{"model": "other"}\n')
    with pytest.raises(BananaError, match="line 1: not the key of this model"):
        store.open(INFO)


def test_a_file_that_shrinks_while_open_is_noticed(tmp_path):
    store = ScoreStore(tmp_path)
    with store.open(INFO) as scores:
        scores.append(ok(1))
        store.path(INFO).write_text("")
        with pytest.raises(BananaError, match="became shorter"):
            scores.get(f"{1:064x}")


def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BananaError, match=r"cannot open .*file/store/pyiqa-niqe--"):
        ScoreStore(tmp_path / "file" / "store").open(INFO)


def test_a_full_disk_is_said_and_costs_no_score_before(tmp_path):
    code = """
import resource, signal, sys
from pathlib import Path
from banana100_bench.errors import BananaError
from banana100_bench.store import ScoreStore
from tests.test_store import INFO, ok
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
with ScoreStore(Path(sys.argv[1])).open(INFO) as scores:
    try:
        for number in range(100):
            scores.append(ok(number))
    except BananaError as error:
        print(number, error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    number, message = done.stdout.split(" ", 1)
    assert message.startswith(f"cannot write {ScoreStore(tmp_path).path(INFO)}")
    assert int(number) > 3
    with ScoreStore(tmp_path).open(INFO) as scores:
        kept = [known for known in range(100) if scores.get(f"{known:064x}")]
    assert kept == list(range(int(number)))


def test_what_decides_the_numbers_decides_the_file(tmp_path):
    store = ScoreStore(tmp_path)
    path = store.path(INFO)
    assert path.name.startswith("pyiqa-niqe--")
    assert store.path(dataclasses.replace(INFO, higher_is_better=True)) == path
    assert store.path(dataclasses.replace(INFO, versions={"pyiqa": "0.1.14", "torch": "2.1"})) == path
    others = [
        dataclasses.replace(INFO, weights_sha256=None),
        dataclasses.replace(INFO, options={"size": 4}),
        dataclasses.replace(INFO, versions={"torch": "2.2", "pyiqa": "0.1.14"}),
        dataclasses.replace(INFO, id="pyiqa:piqe"),
    ]
    assert len({path, *map(store.path, others)}) == 5
    assert store.path(dataclasses.replace(INFO, id="../../x:y" + "z" * 300)).parent == tmp_path


def test_of_many_other_versions_the_newest_is_told_in_one_line(tmp_path):
    store = ScoreStore(tmp_path)
    for age, size in enumerate((4, 6, 5)):
        other = dataclasses.replace(INFO, options={"size": size})
        store.open(other).close()
        os.utime(store.path(other), (10**9 - age, 10**9 - age))
    newest = store.path(dataclasses.replace(INFO, options={"size": 4})).name
    assert store.other_versions(INFO) == [f"{newest}: scores by size 4 (now 3); 2 older still"]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_of_its_own_is_refused_and_not_written_through(tmp_path, kind):
    store, outside = ScoreStore(tmp_path / "store"), tmp_path / "outside"
    store.folder.mkdir()
    outside.write_text("mine")
    older = dataclasses.replace(INFO, options={})
    path = store.path(INFO)
    make = {"link": lambda: path.symlink_to(outside), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}
    make[kind]()
    said = {"link": "is a symbolic link", "pipe": "is not a regular file", "folder": "is a folder"}[kind]
    for use in (lambda: store.open(INFO), lambda: store.other_versions(older)):
        with pytest.raises(BananaError, match=f"{path.name}: {said}; expected a file of scores"):
            use()
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("fact", ["seconds", "spread"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, 10**400])
def test_a_line_with_a_number_that_is_none_is_refused(tmp_path, fact, value):
    store = ScoreStore(tmp_path)
    store.open(INFO).close()
    with open(store.path(INFO), "a") as file:
        file.write(json.dumps(dataclasses.asdict(ok(1)) | {fact: value}) + "\n")
    with pytest.raises(BananaError, match=r"\.jsonl line 2: not a score: .*seconds and spread finite"):
        store.open(INFO)


def test_other_versions_say_what_differs(tmp_path):
    store = ScoreStore(tmp_path)
    assert store.other_versions(INFO) == []
    newer = dataclasses.replace(INFO, weights_sha256=None, versions={"torch": "2.2", "pyiqa": "0.1.14", "numpy": "2"})
    for info in (INFO, newer, dataclasses.replace(INFO, id="pyiqa:niqe--x")):
        store.open(info).close()
    assert store.other_versions(INFO) == [
        f"{store.path(newer).name}: scores by numpy 2 (now none), torch 2.2 (now 2.1), "
        "weights_sha256 none (now eeeeeeeeeeee)"
    ]
    store.path(newer).write_text("broken\n")
    with pytest.raises(BananaError, match="line 1: not JSON"):
        store.other_versions(INFO)
