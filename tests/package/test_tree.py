"""package/tree.py: facts from paths."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.package.tree import match, tell
from banana100_bench.protocol import REPLICA_PROMPT
from banana100_bench.records import COLUMNS, run_id

EDITOR = {"editor": "nano"}


def test_known_setting_brings_group_period_and_prompt() -> None:
    paths = ["mirror/Sand Dunes/rep3/step_012.JPEG", "mirror/Sand Dunes/rep3/notes.txt", "step_1.png"]
    facts = match(paths, "{setting}/{initial_image}/rep{repetition}/step_{round}.{ext}", EDITOR | {"seed": "9"})
    assert facts == {
        "mirror/Sand Dunes/rep3/step_012.JPEG": {
            "image_id": "mirror__sand_dunes__nano__rep3__round012",
            "run_id": "mirror__sand_dunes__nano__rep3",
            "setting": "mirror",
            "setting_group": "variant",
            "initial_image": "sand_dunes",
            "repetition": 3,
            "round": 12,
            "period": 2,
            "seed": 9,
            "prompt": "Mirror the provided image horizontally, with no other alterations.",
            "editor": "nano",
        }
    }
    assert set(facts[paths[0]]) < set(COLUMNS)


def test_prompt_of_a_round_trip_follows_the_round() -> None:
    facts = match(["a/1.png", "a/2.png"], "{initial_image}/{round}.{ext}", EDITOR | {"setting": "decolour_recolour"})
    assert facts["a/1.png"]["prompt"].startswith("Convert")
    assert facts["a/2.png"]["prompt"].startswith("Colour")


def test_round_0_is_the_initial_image_of_no_run() -> None:
    facts = match(["a/0.png"], "{initial_image}/{step}.{ext}", EDITOR | {"setting": "replication", "style": "anime"})
    assert facts == {"a/0.png": {"image_id": "initial__a", "initial_image": "a", "round": 0, "style": "anime"}}


def test_step_is_round_and_blank_takes_any_text_of_one_name() -> None:
    paths = ["a/step_001_forward.png", "a/b/step_001_x.png", "a/step_002_.png"]
    facts = match(paths, "{initial_image}/step_{step}_{_}.{ext}", EDITOR | {"setting": "replication"})
    assert {path: told["round"] for path, told in facts.items()} == {paths[0]: 1, paths[2]: 2}
    assert facts[paths[0]]["prompt"] == REPLICA_PROMPT


def test_a_field_used_twice_must_say_the_same() -> None:
    paths = ["a/a_1.png", "a/b_1.png"]
    assert (
        list(match(paths, "{initial_image}/{initial_image}_{round}.{ext}", EDITOR | {"setting": "seed"})) == paths[:1]
    )


def test_literal_text_is_no_regular_expression() -> None:
    paths = ["a.x(1)/1.png", "aYx(1)/1.png"]
    constants = EDITOR | {"setting": "seed", "initial_image": "i"}
    assert list(match(paths, "a.x(1)/{round}.{ext}", constants)) == paths[:1]


@pytest.mark.parametrize(
    ("pattern", "constants", "message"),
    [
        ("{initial_image}/x.{ext}", {}, "has no {round}"),
        ("{initial_image}/{round.{ext}", {}, "expected fields as {round}"),
        ("{initial_imge}/{round}.{ext}", {}, "unknown field in the pattern 'initial_imge'; did you mean initial_image"),
        ("{initial_image}/{round}.{ext}", {"setting": "x", "widht": "3", **EDITOR}, "unknown fact 'widht'"),
        ("{initial_image}/{round}.{ext}", {"setting": "x", "sha256": "3", **EDITOR}, "unknown fact 'sha256'"),
        ("{initial_image}/{round}.{ext}", EDITOR, "setting: neither in the pattern nor given"),
        ("{initial_image}/{round}.{ext}", {"setting": "seed"}, "editor: neither in the pattern nor given"),
        ("{round}.{ext}", {"setting": "seed", **EDITOR}, "initial_image: neither"),
        ("{setting}/{round}.{ext}", {"setting": "seed", **EDITOR}, "setting=seed: a fact that stands in the pattern"),
        ("{initial_image}/{round}.{ext}", {"round": "3", "setting": "seed", **EDITOR}, "round=3: a fact that stands"),
        (
            "{initial_image}/{round}.{ext}",
            {"setting": "seed", "period": "two", **EDITOR},
            "period=two: .*valid integer",
        ),
        ("{initial_image}/{round}.{ext}", {"setting": "seed", "period": "0", **EDITOR}, "period=0: .*or equal to 1"),
        ("{initial_image}/{round}.{ext}", {"setting": "seed", "style": "oil", **EDITOR}, "style=oil: .*'photo'"),
        ("{initial_image}/{round}.{ext}", {"setting": "seed", "temperature": "nan", **EDITOR}, "finite number"),
        ("{initial_image}/{round}.{ext}", {"setting": "seed", "simulated": "perhaps", **EDITOR}, "valid boolean"),
        ("{initial_image}/{round}.{ext}", {"setting": "猫", **EDITOR}, "setting '': expected at most 80"),
        ("{initial_image}/{round}.{ext}", {"setting": "seed", "editor": "_"}, "editor '': expected at most 80"),
        ("{initial_image}/{round}.{ext}", {"setting": "add_remove", **EDITOR}, "a/1.png: setting 'add_remove' is none"),
    ],
)
def test_wrong_calls(pattern: str, constants: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("{", r"\{")) as caught:
        match(["a/1.png"], pattern, constants)
    assert "\n" not in str(caught.value)


def test_too_large_a_round_and_a_name_of_nothing_name_the_path() -> None:
    constants = EDITOR | {"setting": "seed"}
    with pytest.raises(BananaError, match=r"^a/12345\.png: round=12345: ") as caught:
        match(["a/12345.png"], "{initial_image}/{round}.{ext}", constants)
    assert caught.value.exit_code == 1  # it is the tree that is at fault, not the call
    with pytest.raises(BananaError, match=r"^a\.png: period=two: ") as caught:
        tell({"a.png": {"initial_image": "a", "round": "1", "period": "two"}}, constants)
    assert caught.value.exit_code == 1
    with pytest.raises(BananaError, match=r"^猫/1\.png: initial image ''"):
        match(["猫/1.png"], "{initial_image}/{round}.{ext}", constants)


NAMES = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=12)


def test_two_texts_never_become_one_name() -> None:
    paths = ["\u00fcn\u00ef/1.png", "\u00e4n\u00f6/1.png"]
    with pytest.raises(
        BananaError, match="initial_image '\u00e4n\u00f6' would be called 'n', as '\u00fcn\u00ef' of .*1.png is already"
    ):
        match(paths, "{initial_image}/{round}.{ext}", EDITOR | {"setting": "replication"})
    assert len(match(["A b/1.png", "A b/2.png"], "{initial_image}/{round}.{ext}", EDITOR | {"setting": "seed"})) == 2


@given(setting=NAMES, image=NAMES, editor=NAMES, repetition=st.integers(0, 9999), number=st.integers(1, 9999))
def test_what_is_written_into_a_path_is_read_back(
    setting: str, image: str, editor: str, repetition: int, number: int
) -> None:
    path = f"{setting}/{editor}-{image}/r{repetition}_{number:03d}_final.webp"
    pattern = "{setting}/{editor}-{initial_image}/r{repetition}_{round}_{_}.{ext}"
    told = match([path], pattern, {"setting_group": "variant"})[path]
    assert told["run_id"] == run_id(setting, image, editor, repetition)
    assert (told["round"], told["setting_group"]) == (number, "variant")
