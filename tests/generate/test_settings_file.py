from __future__ import annotations

import pytest

from banana100_bench import raw
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.generate.campaign import generate
from banana100_bench.generate.initial import InitialImage
from banana100_bench.generate.settings_file import choose_settings, read_settings
from banana100_bench.protocol import Setting, setting

from .conftest import INITIAL

TEXT = """
settings:
  warmer:
    group: variant
    prompts: ["Make it warmer.", "Make it colder."]
    period: 2
    temperature: 0.5
  tiny: {group: object, prompts: [Add a dot.], resolution: 1K, seed: 9, chat_turns: 2}
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return path

    return write


def test_settings_are_read(write):
    assert read_settings(write(TEXT)) == [
        Setting(
            name="warmer",
            group="variant",
            prompts=("Make it warmer.", "Make it colder."),
            period=2,
            temperature=0.5,
        ),
        Setting(name="tiny", group="object", prompts=("Add a dot.",), resolution="1K", seed=9, chat_turns=2),
    ]


def test_they_are_chosen_among_the_protocols(write):
    own = read_settings(write(TEXT))
    assert choose_settings([], own) == own
    assert choose_settings([], []) == [setting("replication")]
    assert choose_settings(["mirror", "tiny"], own) == [setting("mirror"), own[1]]
    with pytest.raises(UsageError, match="unknown setting 'warmr'; did you mean warmer"):
        choose_settings(["warmr"], own)


def test_they_are_sent_and_recorded(write, tmp_path, fake):
    own = read_settings(write(TEXT))
    generate(
        fake, [InitialImage("ramp", INITIAL, "photo", "s")], tmp_path / "out", settings=own, repetitions=2, rounds=2
    )
    sent = {(r.prompt, r.round, r.seed, r.temperature, r.resolution, len(r.turns)) for r in fake.requests}
    assert sent == {
        *{("Make it warmer.", 1, seed, 0.5, None, 0) for seed in (0, 1)},
        *{("Make it colder.", 2, seed, 0.5, None, 0) for seed in (0, 1)},
        *{("Add a dot.", 1, seed, None, "1K", 0) for seed in (9, 10)},
        *{("Add a dot.", 2, seed, None, "1K", 1) for seed in (9, 10)},
    }
    runs = [raw.read_run(folder)[0] for folder in raw.run_folders(tmp_path / "out")]
    assert {(run.setting, run.setting_group, run.period, run.temperature) for run in runs} == {
        ("warmer", "variant", 2, 0.5),
        ("tiny", "object", 1, None),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("settings: [a", "not YAML: while parsing"),
        ("!!python/object/apply:os.system ['true']", "not YAML: could not determine a constructor"),
        ("[]", "expected one mapping, settings:"),
        ("settings: {}\nmore: 1", "expected one mapping, settings:"),
        ("settings: {a: 3}", "'a': expected a name and its fields: group, prompts"),
        ("settings: {mirror: {}}", "mirror: a setting of the protocol has that name"),
        ("settings: {A b: {group: variant, prompts: [x]}}", "A b: setting 'A b': expected at most 80 of a-z"),
        ("settings: {a: {group: variant}}", "a: prompts: Field required"),
        ("settings: {a: {group: variant, prompts: x}}", "a: prompts: Input should be a valid tuple"),
        ("settings: {a: {group: variant, prompts: [x], peroid: 2}}", "a: unknown field 'peroid'; did you mean period"),
        (
            "settings: {a: {group: variant, prompts: [x], temperature: .inf}}",
            "a: .* temperature inf, expected a finite",
        ),
        ("settings: {a: {group: variants, prompts: [x]}}", "a: unknown setting group 'variants'"),
        ("settings: {a: {group: variant, prompts: [x], seed: many}}", "a: seed: Input should be a valid integer"),
    ],
)
def test_faults_are_named(write, text, message):
    with pytest.raises(BananaError, match=f"mine.yaml: {message}") as caught:
        read_settings(write(text))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BananaError, match=r"cannot read .*none\.yaml: No such file"):
        read_settings(tmp_path / "none.yaml")
