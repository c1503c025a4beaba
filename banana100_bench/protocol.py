"""What Banana100 is (arXiv 2604.03400): settings, prompts, rounds, expected counts.

An editing model is asked to edit a picture, its output is fed back to it, and so on for 100
rounds (the paper says "steps"). A *setting* is what is asked at each round; a *run* is one chain
of one setting from one *initial image*, done once (a *repetition*). The paper's "56 settings" are
56 pairs of one of the settings below with one initial image: 28,000 / (5 x 100). How many initial
images each setting used, and the full list of images, is not public; the names below are ours.
"""

from __future__ import annotations

import re
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


@dataclass(frozen=True)
class Setting:
    """What the editor is asked, round by round.

    name: lower-case name, ours.
    group: one of GROUPS.
    prompts: the prompt of round r is ``prompts[(r - 1) % len(prompts)]``; only the first is the
        paper's own wording, the others are ours.
    period: after how many rounds the picture should be the same again. 1 where every output shows
        the same scene as its input; 2 for mirror and decolour/recolour. Rounds r and s may be
        compared only if r - s is a multiple of it.
    """

    name: str
    group: str
    prompts: tuple[str, ...]
    period: int = 1

    def prompt(self, round_number: int) -> str:
        """The prompt sent at round `round_number` (1 or more)."""
        return self.prompts[(round_number - 1) % len(self.prompts)]


_ALL = (
    Setting("replication", "replication", (REPLICA_PROMPT,)),
    Setting("reworded", "variant", ("Return the given picture again, exactly as it is, changing nothing.",)),
    Setting("mirror", "variant", ("Mirror the provided image horizontally, with no other alterations.",), period=2),
    Setting("rotate", "variant", ("Rotate the provided image by 180 degrees, with no other alterations.",), period=2),
    Setting(
        "decolour_recolour",
        "variant",
        (
            "Convert the provided image to black and white, with no other alterations.",
            "Colour the provided black-and-white image naturally, with no other alterations.",
        ),
        period=2,
    ),
    Setting("seed", "variant", (REPLICA_PROMPT,)),
    Setting("temperature", "variant", (REPLICA_PROMPT,)),
    Setting("resolution", "variant", (REPLICA_PROMPT,)),
    Setting("multi_turn", "variant", (REPLICA_PROMPT,)),
    Setting(
        "denoise", "variant", ("Remove all noise and artefacts from the provided image, with no other alterations.",)
    ),
    Setting("add_apple", "object", ("Add one apple to the provided image, with no other alterations.",)),
    Setting("add_fruits", "object", ("Add one more fruit, of a new kind, to the provided image.",)),
    Setting("cross_model_replication", "more_models", (REPLICA_PROMPT,)),
)
SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _ALL}


def setting(name: str) -> Setting:
    """The setting called `name`; UsageError with the choices where there is none."""
    if name not in SETTINGS:
        raise unknown_name("setting", name, SETTINGS)
    return SETTINGS[name]


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
