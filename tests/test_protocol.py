import pytest

from banana100_bench import protocol
from banana100_bench.errors import UsageError
from banana100_bench.protocol import Rounds, parse_rounds
from banana100_bench.records import to_name


def test_the_paper_counts():
    assert protocol.IMAGES == 28_000
    assert protocol.SETTING_IMAGE_PAIRS * protocol.REPETITIONS == 280  # runs
    assert protocol.KEY_ROUNDS == (1, 5, 10, 20)


def test_settings_are_named_as_they_are_listed():
    for name, setting in protocol.SETTINGS.items():
        assert name == setting.name == to_name(name)
    names = ("seed", "temperature", "resolution", "chat_turns")
    own = {name: [s.name for s in protocol.SETTINGS.values() if getattr(s, name)] for name in names[:1] + names[2:]}
    assert own == {
        "seed": ["seed"],
        "resolution": ["resolution"],
        "chat_turns": ["multi_turn", "cross_model_chat"],
    }
    assert protocol.setting("temperature").temperature == 0.0
    assert {s.name for s in protocol.SETTINGS.values() if s.period == 2} == {"mirror", "rotate", "decolour_recolour"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": "variants"}, "unknown setting group 'variants'; did you mean variant"),
        ({"prompts": ()}, "'x': expected one prompt or more"),
        ({"prompts": ("a", " ")}, "'x': expected one prompt or more, none of them empty"),
        ({"period": 0}, "'x': period 0 with 1 prompts"),
        ({"prompts": ("a", "b"), "period": 3}, "'x': period 3 with 2 prompts; expected 1, or a multiple"),
        ({"chat_turns": -1}, "'x': chat_turns -1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        protocol.Setting(**{"name": "x", "group": "variant", "prompts": ("Again.",), **changes})


def test_a_hundred_fruits_are_added_each_once():
    prompts = [protocol.setting("add_fruits").prompt(number) for number in range(1, 101)]
    assert len(set(prompts)) == len(set(protocol.FRUITS)) == 100
    assert prompts[0] == "Add an apple to the provided image, with no other alterations."
    assert prompts[1] == "Add a banana to the provided image, with no other alterations."
    assert protocol.setting("add_fruits").prompt(101) == prompts[0]


def test_campaigns_count_as_the_paper_does():
    counts = {
        name: (sum(campaign.images.values()), sum(campaign.images.values()) * campaign.repetitions * campaign.rounds)
        for name, campaign in protocol.CAMPAIGNS.items()
    }
    assert counts == {
        "banana100": (protocol.SETTING_IMAGE_PAIRS, 28_000),
        "replication": (13, 6_500),
        "cross-model": (7, 1_400),
        "more-models": (2, 20),
    }
    for name, campaign in protocol.CAMPAIGNS.items():
        assert campaign.name == name
        assert set(campaign.images) <= set(protocol.SETTINGS)
        assert max(campaign.images.values()) <= protocol.INITIAL_IMAGES
    assert protocol.campaign("banana100").images["replication"] == 13
    with pytest.raises(UsageError, match="unknown campaign 'banana'; did you mean banana100"):
        protocol.campaign("banana")


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
