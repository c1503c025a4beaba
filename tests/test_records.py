import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from banana100_bench import records
from banana100_bench.errors import BananaError
from banana100_bench.records import Row, check_name, fingerprint, image_id, run_id, to_name

ROW = dict(image_id="a", initial_image="a", round=1, width=2, height=3, format="PNG", num_bytes=9, sha256="0" * 64)


def test_ids_are_as_documented():
    run = run_id("replication", "astronaut", "simulated", 0)
    assert run == "replication__astronaut__simulated__rep0"
    assert image_id(run, "astronaut", 5) == "replication__astronaut__simulated__rep0__round005"
    assert image_id(None, "astronaut", 0) == "initial__astronaut"


@pytest.mark.parametrize(
    "name", ["", "A", "a b", "a/b", "../a", "a__b", "a..b", "-a", "a-", "ä", "a\n", "x" * 81, "<b>"]
)
def test_unsafe_names_are_refused(name):
    with pytest.raises(BananaError, match="expected at most 80"):
        check_name("setting", name)


@pytest.mark.parametrize(
    ("text", "name"),
    [("Sand Dunes", "sand_dunes"), ("gemini-3.1-flash", "gemini-3.1-flash"), ("a__b", "a_b"), ("É a..b", "a.b")],
)
def test_to_name(text, name):
    assert to_name(text) == name


@given(st.text(max_size=records.MAX_NAME))
def test_to_name_gives_a_safe_name_or_nothing(text):
    name = to_name(text)
    assert name == "" or check_name("name", name) == name
    assert to_name(name) == name


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"setting_group": "objects"}, "choices: replication, variant, object, more_models"),
        ({"style": "oil"}, "choices: photo, anime, unknown"),
        ({"round": -1}, "round -1"),
        ({"period": 0}, "period 0"),
        ({"created_at": "yesterday"}, "ISO 8601"),
    ],
)
def test_a_row_refuses_what_it_cannot_mean(changed, said):
    with pytest.raises(BananaError, match=said):
        Row(**(ROW | changed))


def test_schema_has_every_column_of_the_row_and_marks_the_image():
    schema = records.arrow_schema()
    assert schema.names == ["image", *records.COLUMNS]
    assert schema.equals(records.features().arrow_schema, check_metadata=True)
    bare = records.arrow_schema(image=False)
    assert bare.equals(records.features(image=False).arrow_schema, check_metadata=True)
    assert bare.names == list(records.COLUMNS)
    assert set(Row(**ROW).as_dict()) == set(records.COLUMNS)
    assert str(schema.field("round").type) == "int16"
    assert str(schema.field("simulated").type) == "bool"


def test_fingerprint_is_the_sha_of_the_sorted_lines():
    expected = hashlib.sha256(b"a 1\nb 2\n").hexdigest()
    assert fingerprint([("a", "1"), ("b", "2")]) == expected
    assert fingerprint([("b", "2"), ("a", "1")]) == expected
    assert fingerprint([("a", "2"), ("b", "1")]) != expected
