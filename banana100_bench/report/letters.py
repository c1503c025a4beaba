"""Letters in figures: names may be in any script, and matplotlib warns of each letter that its font lacks."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from banana100_bench.files import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOG = logging.getLogger(__name__)
_told: set[str] = set()
SHOWN = 20
ESCAPED = 6  # different letters in a text; more escapes would make it too long for its place


def settle(figure: Figure) -> None:
    """Give each text of `figure` the fonts of this machine that have its letters.

    Letters that none has are written as escapes, as in Python, or squares if they are many; a warning names them once.
    """
    from matplotlib.font_manager import findfont
    from matplotlib.text import Text

    lacking: dict[str, None] = {}
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        odd = [letter for letter in dict.fromkeys(text.get_text()) if not letter.isascii()]
        if not odd:
            continue
        own = findfont(text.get_fontproperties())
        families = {letter: _family_with(letter) for letter in odd if not _has(own, letter)}
        if found := [family for family in dict.fromkeys(families.values()) if family]:
            text.set_fontfamily([*text.get_fontfamily(), *found])
        none = [letter for letter, family in families.items() if not family]
        text.set_text("".join(_stand_in(letter, len(none)) if letter in none else letter for letter in text.get_text()))
        lacking |= dict.fromkeys(none)
    if new := [letter for letter in lacking if letter not in _told]:
        _told.update(new)
        shown = printable("".join(new[:SHOWN])) + ("..." if len(new) > SHOWN else "")
        _LOG.warning("no font here has the letters %s: figures show escapes; once one is installed, it is used", shown)


def _stand_in(letter: str, count: int) -> str:
    return letter.encode("unicode_escape").decode() if count <= ESCAPED else "\u25a1"


@functools.cache
def _family_with(letter: str) -> str | None:
    """The family of a font on this machine that has `letter`, plain ones first."""
    from matplotlib.font_manager import fontManager

    if not letter.isprintable():
        return None
    plain_first = sorted(fontManager.ttflist, key=lambda font: (font.style != "normal", font.weight != 400, font.name))
    return next(
        (font.name for font in plain_first if not font.name.startswith("Last Resort") and _has(font.fname, letter)),
        None,
    )


def _has(path: str, letter: str) -> bool:
    from matplotlib.font_manager import get_font

    try:
        return bool(get_font(path).get_char_index(ord(letter)))
    except (OSError, RuntimeError):  # a font file that is gone or broken
        return False
