import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file
from banana100_bench.models import open_model, score_file
from tests.models.making import picture, texture

FIRST, SECOND, THIRD = (picture(texture(number), number) for number in (1, 2, 3))
COLUMNS = {
    "image_id": [FIRST.row.image_id, SECOND.row.image_id, "elsewhere"],
    "score": [1.25, None, 7.0],
    "comment": ["a", "b", "c"],
}


def write(path, columns):
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [
            ",".join(columns),
            *(",".join("" if cell is None else str(cell) for cell in row.values()) for row in rows),
        ]
        path.write_text("\n".join(lines))
    return f"scores:{path}"


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_the_three_kinds_of_file_say_the_same(tmp_path, kind):
    path = tmp_path / f"mine.{kind}"
    model = open_model(write(path, COLUMNS), higher_is_better=False)
    assert model.score(FIRST) == 1.25
    assert math.isnan(model.score(SECOND))
    with pytest.raises(BananaError, match=rf"^not in mine\.{kind}$"):
        model.score(THIRD)
    rows = [FIRST.row, SECOND.row, THIRD.row]
    assert model.notes(rows) == [f"mine.{kind}: 1 of 3 scores are of no selected image, as 'elsewhere'"]
    assert (model.info.id, model.info.kind, model.info.higher_is_better) == (f"scores:mine.{kind}", "file", False)
    assert model.info.options == {"file_sha256": sha256_file(path)}


def test_sha256_is_the_key_where_there_is_one(tmp_path):
    columns = {"image_id": ["x", "y"], "sha256": [FIRST.row.sha256.upper(), SECOND.row.sha256], "score": [1, "-inf"]}
    model = open_model(write(tmp_path / "s.csv", columns), higher_is_better=True)
    assert model.score(FIRST) == 1.0
    assert model.score(SECOND) == -math.inf
    assert model.notes([FIRST.row, SECOND.row]) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.csv", "", r"s\.csv: no scores in it"),
        ("s.csv", "image_id,score\n", "no scores in it"),
        ("s.csv", "id,score\na,1\n", "columns id, score; expected score and one of sha256, image_id"),
        ("s.csv", "image_id,value\na,1\n", "columns image_id, value; expected score"),
        ("s.csv", "image_id,score\na,1\nb,high\n", "line 3: score 'high', expected a number"),
        ("s.csv", "image_id,score\na,1_0\n", "line 2: score '1_0', expected a number"),
        ("s.csv", "image_id,score\na,1\nb,2\na,3\n", "line 4: a has another score in line 2"),
        ("s.csv", "image_id,score\na,-21,25\n", "line 2: 3 cells, expected 2"),
        ("s.csv", "image_id,score,score\na,1,2\n", "line 1: column 'score' stands there twice"),
        ("s.csv", "image_id,score\n,1\n", "line 2: image_id '', expected text"),
        ("s.csv", b"image_id,score\n\xff\xfe,1\n", "not UTF-8 text"),
        ("s.csv", "image_id,score\n" + "a" * 200_000 + ",1\n", "line 2: field larger than field limit"),
        ("s.jsonl", '{"image_id": "a", "score": 1}\n\n{"image_id": "b", "score": [1]}\n', r"line 3: score \[1\]"),
        ("s.jsonl", '{"image_id": "a", "score": true}\n', "line 1: score True, expected a number"),
        ("s.jsonl", '{"image_id": 3, "score": 1}\n', "line 1: image_id 3, expected text"),
        ("s.jsonl", '{"image_id"\n', "line 1: not JSON"),
        ("s.jsonl", "[" * 100_000, "line 1: not JSON"),
        ("s.jsonl", "[1]\n", "line 1: expected a JSON object"),
        ("s.jsonl", '{"image_id": "a", "score": 1' + "0" * 400 + "}\n", "line 1: score 10+, expected a number"),
        ("s.parquet", "PAR1 no", r"s\.parquet: not a readable Parquet file|cannot read .*s\.parquet"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BananaError, match=message) as caught:
        open_model(f"scores:{path}", higher_is_better=True)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_parquet_faults_name_the_row_and_the_columns(tmp_path):
    columns = {"image_id": ["a", "a"], "score": [1.0, 2.0]}
    with pytest.raises(BananaError, match="row 2: a has another score in row 1"):
        open_model(write(tmp_path / "s.parquet", columns), higher_is_better=True)
    with pytest.raises(BananaError, match="columns name, score; expected score and one of sha256, image_id"):
        open_model(write(tmp_path / "s.parquet", {"name": ["a"], "score": [1.0]}), higher_is_better=True)


def test_the_same_score_twice_is_no_contradiction(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("sha256,score\naa,1.0\naa,1\nbb,\nbb,nan\n")
    assert len(open_model(f"scores:{path}", higher_is_better=True).scores) == 2


def test_calls_that_do_not_fit(tmp_path, monkeypatch):
    spec = write(tmp_path / "s.csv", COLUMNS)
    with pytest.raises(UsageError, match="--higher-is-better or --lower-is-better"):
        open_model(spec)
    with pytest.raises(UsageError, match=r"\.txt file type; choices: \.csv, \.jsonl, \.parquet"):
        open_model("scores:s.txt", higher_is_better=True)
    with pytest.raises(BananaError, match=r"cannot read .*no\.csv: No such file"):
        open_model(f"scores:{tmp_path}/no.csv", higher_is_better=True)
    monkeypatch.setattr(score_file, "MAX_BYTES", 10)
    with pytest.raises(BananaError, match="bytes, above the limit of 10"):
        open_model(spec, higher_is_better=True)
    monkeypatch.setattr(score_file, "MAX_BYTES", 10_000)
    monkeypatch.setattr(score_file, "MAX_ROWS", 2)
    with pytest.raises(BananaError, match="more than 2 scores"):
        open_model(spec, higher_is_better=True)


def test_image_id_and_sha256_that_disagree_are_refused_with_their_line(tmp_path):
    one, two = picture(texture(1), 1).row, picture(texture(2), 2).row
    table = tmp_path / "s.csv"
    table.write_text(f"image_id,sha256,score\n{one.image_id},{one.sha256},1\n{two.image_id},{'0' * 64},2\n")
    model = open_model(f"scores:{table}", higher_is_better=True)
    assert model.notes([one])[0].startswith("s.csv: 1 of 2 scores are of no selected image")
    with pytest.raises(BananaError, match=rf"s\.csv line 3: image_id {two.image_id} is sha256 .* here, not 0{{12}}$"):
        model.notes([one, two])
    table.write_text(f"image_id,sha256,score\n{one.image_id},{one.sha256},1\n{one.image_id},{'0' * 64},2\n")
    with pytest.raises(BananaError, match=rf"s\.csv line 3: image_id {one.image_id} has another sha256 in line 2"):
        open_model(f"scores:{table}", higher_is_better=True)


def test_json_lines_with_a_byte_order_mark_are_read(tmp_path):
    table = tmp_path / "s.jsonl"
    table.write_text('{"image_id": "a", "score": 1.5}\n', encoding="utf-8-sig")
    assert open_model(f"scores:{table}", higher_is_better=True).scores == {"a": 1.5}
