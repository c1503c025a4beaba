"""package/licences.py: the ids that a card may name."""

from __future__ import annotations

import re

import pytest

from banana100_bench.errors import UsageError
from banana100_bench.package.licences import LICENCES, check_licence


@pytest.mark.parametrize(
    ("licence", "near"),
    [
        ("MIT", "did you mean mit?"),
        ("CC-BY-NC-SA-4", "did you mean cc-by-nc-sa-4.0, "),
        ("apache2", "did you mean apache-2.0"),
        ("", "choices: afl-3.0, "),
        ("x\ny", "choices: afl-3.0, "),
        ("-" * 5000, "unknown licence '" + "-" * 100 + "'; choices: "),
    ],
)
def test_an_unknown_licence_is_refused_with_near_ones_and_where_the_list_is(licence: str, near: str) -> None:
    with pytest.raises(UsageError, match=re.escape(near)) as caught:
        check_licence(licence)
    said = str(caught.value)
    assert "the Hub's list: https://huggingface.co/docs/hub/repositories-licenses; other stands for one " in said
    assert "\n" not in said


def test_known_licences_pass() -> None:
    for licence in ("cc-by-nc-sa-4.0", "apache-2.0", "openrail++", "llama3.1", "other", "unknown"):
        assert check_licence(licence) == licence
    assert len(LICENCES) == 83
