import pytest

from banana100_bench import protocol
from banana100_bench.errors import UsageError
from banana100_bench.protocol import Rounds, parse_rounds


def test_the_paper_counts():
    assert protocol.IMAGES == 28_000
    assert protocol.SETTING_IMAGE_PAIRS * protocol.REPETITIONS == 280  # runs
    assert protocol.KEY_ROUNDS == (1, 5, 10, 20)


def test_settings_are_consistent():
    for name, setting in protocol.SETTINGS.items():
        assert name == setting.name
        assert setting.group in protocol.GROUPS
        assert setting.prompts
        assert setting.period % len(setting.prompts) == 0, "a prompt cycle must end where the picture's does"


def test_prompts_cycle_from_round_one():
    setting = protocol.setting("decolour_recolour")
    assert "black and white" in setting.prompt(1)
    assert setting.prompt(2).startswith("Colour")
    assert setting.prompt(3) == setting.prompt(1)
    assert protocol.setting("replication").prompt(100) == protocol.REPLICA_PROMPT


def test_unknown_setting_lists_near_choices():
    with pytest.raises(UsageError, match="did you mean replication"):
        protocol.setting("replicaton")


def test_rounds_fit_a_period():
    assert Rounds().is_paper
    assert Rounds().fits(1)
    assert not Rounds().fits(2), "rounds 10 and 20 have not the parity of round 1"
    assert Rounds(2, (4, 6)).fits(2)
    assert not Rounds(2, (4, 6)).is_paper


@pytest.mark.parametrize(
    ("baseline", "later"), [(1, ()), (5, (5,)), (5, (1, 10)), (-1, (5,)), (1, (10, 5)), (1, (5, 5))]
)
def test_rounds_out_of_order_are_refused(baseline, later):
    with pytest.raises(UsageError, match="expected"):
        Rounds(baseline, later)


@pytest.mark.parametrize(
    ("text", "rounds"),
    [
        ("all", None),
        ("key", (1, 5, 10, 20)),
        ("3", (3,)),
        ("5,1,10-12", (1, 5, 10, 11, 12)),
        (" 2 , 2", (2,)),
        ("0-2", (0, 1, 2)),
    ],
)
def test_parse_rounds(text, rounds):
    assert parse_rounds(text) == rounds


@pytest.mark.parametrize("text", ["", "x", "1,,2", "5-1", "-3", "1.5", "1-", "99999"])
def test_parse_rounds_refuses(text):
    with pytest.raises(UsageError):
        parse_rounds(text)
