"""What Banana100 is (arXiv 2604.03400): settings, prompts, rounds, expected counts.

An editing model is asked to edit a picture, its output is fed back to it, and so on for 100
rounds (the paper says "steps"). A *setting* is what is asked at each round; a *run* is one chain
of one setting from one *initial image*, done once (a *repetition*). The paper's "56 settings" are
56 pairs of one of the settings below with one initial image: 28,000 / (5 x 100). How many initial
images each setting used, and the full list of images, is not public; the names below are ours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from banana100_bench.errors import UsageError, unknown_name

ROUNDS = 100
REPETITIONS = 5
INITIAL_IMAGES = 13
SETTING_IMAGE_PAIRS = 56
IMAGES = SETTING_IMAGE_PAIRS * REPETITIONS * ROUNDS  # 28,000

BASELINE_ROUND = 1
LATER_ROUNDS = (5, 10, 20)
KEY_ROUNDS = (BASELINE_ROUND, *LATER_ROUNDS)  # all that the paper's criterion reads (section "NR-IQA")

GROUPS = ("replication", "variant", "object", "more_models")
STYLES = ("photo", "anime", "unknown")

REPLICA_PROMPT = "Produce an exact replica of the provided image, with no alterations."


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the editor is asked, round by round.

    name: lower-case name, ours.
    group: one of GROUPS.
    prompts: the prompt of round r is ``prompts[(r - 1) % len(prompts)]``; only the first is the
        paper's own wording, the others are ours.
    period: after how many rounds the picture should be the same again. 1 where every output shows
        the same scene as its input; 2 for mirror and decolour/recolour. Rounds r and s may be
        compared only if r - s is a multiple of it.
    seed, temperature, resolution: sent in place of the campaign's; None leaves those. The seed is that of
        repetition 0; repetition r has seed + r.
    chat_turns: 0, every round is a conversation of its own; n, the rounds of a run are turns of one chat, of
        which the first n - 1 (its clean pictures) and the latest are in the context.
    """

    name: str
    group: str
    prompts: tuple[str, ...]
    period: int = 1
    seed: int | None = None
    temperature: float | None = None
    resolution: str | None = None
    chat_turns: int = 0

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise unknown_name("setting group", self.group, GROUPS)
        if not self.prompts or not all(prompt.strip() for prompt in self.prompts):
            raise UsageError(f"setting {self.name!r}: expected one prompt or more, none of them empty")
        if self.period < 1 or (self.period > 1 and self.period % len(self.prompts)):
            raise UsageError(
                f"setting {self.name!r}: period {self.period} with {len(self.prompts)} prompts; expected 1, or a "
                "multiple of the number of prompts"
            )
        if self.temperature is not None and not math.isfinite(self.temperature):
            raise UsageError(f"setting {self.name!r}: temperature {self.temperature}, expected a finite number")
        if self.chat_turns < 0:
            raise UsageError(f"setting {self.name!r}: chat_turns {self.chat_turns}, expected 0 or more")

    def prompt(self, round_number: int) -> str:
        """The prompt sent at round `round_number` (1 or more)."""
        return self.prompts[(round_number - 1) % len(self.prompts)]


# The paper adds 100 different fruits; which ones is not public, so this list and its order are ours.
FRUITS = tuple(
    (  # noqa: SIM905 - a list of 100 quoted words is no easier to read
        "apple banana orange lemon lime grapefruit mandarin pomelo kumquat yuzu bergamot citron pear quince medlar "
        "apricot peach nectarine plum damson greengage cherry sloe strawberry raspberry blackberry blueberry cranberry "
        "gooseberry blackcurrant redcurrant boysenberry loganberry cloudberry lingonberry bilberry elderberry mulberry "
        "huckleberry grape raisin fig date olive pomegranate persimmon watermelon cantaloupe honeydew pineapple mango "
        "papaya guava feijoa lychee rambutan longan mangosteen durian jackfruit breadfruit cherimoya soursop atemoya "
        "dragonfruit passionfruit kiwi kiwano starfruit tamarind tamarillo physalis tomatillo coconut plantain "
        "avocado sapodilla mamey jabuticaba acerola camu-camu jujube loquat marula santol langsat salak "
        "bayberry hawthorn rowanberry chokeberry jostaberry buckthorn barberry noni ackee rosehip cucamelon "
        "serviceberry pawpaw"
    ).split()
)


def _adds(thing: str) -> str:
    article = "an" if thing[0] in "aeiou" else "a"
    return f"Add {article} {thing} to the provided image, with no other alterations."


_ALL = (
    Setting(name="replication", group="replication", prompts=(REPLICA_PROMPT,)),
    Setting(
        name="reworded",
        group="variant",
        prompts=("Return the given picture again, exactly as it is, changing nothing.",),
    ),
    Setting(
        name="mirror",
        group="variant",
        prompts=("Mirror the provided image horizontally, with no other alterations.",),
        period=2,
    ),
    Setting(
        name="rotate",
        group="variant",
        prompts=("Rotate the provided image by 180 degrees, with no other alterations.",),
        period=2,
    ),
    Setting(
        name="decolour_recolour",
        group="variant",
        prompts=(
            "Convert the provided image to black and white, with no other alterations.",
            "Colour the provided black-and-white image naturally, with no other alterations.",
        ),
        period=2,
    ),
    Setting(name="seed", group="variant", prompts=(REPLICA_PROMPT,), seed=1000),
    Setting(name="temperature", group="variant", prompts=(REPLICA_PROMPT,), temperature=0.0),
    Setting(name="resolution", group="variant", prompts=(REPLICA_PROMPT,), resolution="1K"),
    Setting(name="multi_turn", group="variant", prompts=(REPLICA_PROMPT,), chat_turns=13),
    Setting(
        name="denoise",
        group="variant",
        prompts=("Remove all noise and artefacts from the provided image, with no other alterations.",),
    ),
    Setting(
        name="add_apple", group="object", prompts=("Add one apple to the provided image, with no other alterations.",)
    ),
    Setting(name="add_fruits", group="object", prompts=tuple(_adds(fruit) for fruit in FRUITS)),
    Setting(name="cross_model_replication", group="more_models", prompts=(REPLICA_PROMPT,)),
    Setting(name="cross_model_chat", group="more_models", prompts=(REPLICA_PROMPT,), chat_turns=9),
)
SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _ALL}


def setting(name: str) -> Setting:
    """The setting called `name`; UsageError with the choices where there is none."""
    if name not in SETTINGS:
        raise unknown_name("setting", name, SETTINGS)
    return SETTINGS[name]


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A set of runs under one name.

    images: how many initial images (the first of those given) each setting takes.
    says: what it is, and how much of it is the paper's word.
    """

    name: str
    says: str
    images: Mapping[str, int]
    repetitions: int = REPETITIONS
    rounds: int = ROUNDS


_VARIANTS = ("reworded", "mirror", "rotate", "decolour_recolour", "seed", "temperature", "resolution", "multi_turn")

CAMPAIGNS: dict[str, Campaign] = {
    campaign.name: campaign
    for campaign in (
        Campaign(
            name="banana100",
            says="28,000 images in 56 pairs of setting and image; how the 56 fall on the settings is our guess",
            images={
                "replication": INITIAL_IMAGES,
                **dict.fromkeys((*_VARIANTS, "denoise", "add_apple"), 4),
                "add_fruits": 3,
            },
        ),
        Campaign(
            name="replication",
            says="the 13 images that the paper's verdict reads, 6,500 outputs",
            images={"replication": INITIAL_IMAGES},
        ),
        Campaign(
            name="cross-model",
            says="1,400 images of one further editor; 7 images, 2 repetitions and 100 rounds are our guess",
            images={"cross_model_replication": 7},
            repetitions=2,
        ),
        Campaign(
            name="more-models",
            says="the later subset: 1 photograph, 10 rounds, each in a chat of its own and in the same chat",
            images={"cross_model_replication": 1, "cross_model_chat": 1},
            repetitions=1,
            rounds=10,
        ),
    )
}


def campaign(name: str) -> Campaign:
    """The campaign called `name`; UsageError with the choices where there is none."""
    if name not in CAMPAIGNS:
        raise unknown_name("campaign", name, CAMPAIGNS)
    return CAMPAIGNS[name]


@dataclass(frozen=True)
class Rounds:
    """The rounds a criterion compares: each of `later` with `baseline`."""

    baseline: int = BASELINE_ROUND
    later: tuple[int, ...] = LATER_ROUNDS

    def __post_init__(self) -> None:
        if not self.later or self.baseline < 0 or min(self.later) <= self.baseline:
            raise UsageError(
                f"rounds {self.later} after baseline {self.baseline}: expected one or more rounds, all later"
            )
        if len(set(self.later)) != len(self.later) or tuple(sorted(self.later)) != self.later:
            raise UsageError(f"rounds {self.later}: expected each once, in ascending order")

    @property
    def all(self) -> tuple[int, ...]:
        """The baseline, then the later rounds."""
        return (self.baseline, *self.later)

    @property
    def is_paper(self) -> bool:
        """True for the paper's rounds: 1 against 5, 10 and 20."""
        return self.all == KEY_ROUNDS

    def fits(self, period: int) -> bool:
        """True where all these rounds show the same state of a setting with this `period`."""
        return all((later - self.baseline) % period == 0 for later in self.later)


_ROUND = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


def parse_rounds(text: str) -> tuple[int, ...] | None:
    """Read ``"key"``, ``"all"`` (gives None: every round) or ``"1,5,10-20"``; ascending, each once."""
    if text == "all":
        return None
    if text == "key":
        return KEY_ROUNDS
    found: set[int] = set()
    for part in text.split(","):
        match = _ROUND.fullmatch(part.strip())
        if not match:
            raise UsageError(f"rounds {text!r}: expected 'key', 'all', or numbers and ranges as in 1,5,10-20")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"rounds {text!r}: the range {part} runs backwards")
        found.update(range(first, last + 1))
    return tuple(sorted(found))
