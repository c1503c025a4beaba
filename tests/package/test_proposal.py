"""package/proposal.py: a pattern guessed from names."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from banana100_bench.package.proposal import Proposal, propose
from banana100_bench.package.tree import compile_pattern

SCENES = [f"flux/scene_0{n}_{name}/step_{r:03d}_{'fb'[r % 2]}.png" for n, name in enumerate("xy") for r in range(7)]


PHOTOS, ROUNDS = ("dunes", "cat"), range(9)
CASES = {
    "flux/{initial_image}/step_{round}_{_}.png": SCENES,
    "{setting}/{initial_image}/rep{repetition}/step_{round}.png": [
        f"{s}/{i}/rep{p}/step_{r:03d}.png" for s, i, p, r in product(["replication", "mirror"], PHOTOS, "01", ROUNDS)
    ],
    "images/{initial_image}/{repetition}/{round}.{ext}": [
        f"images/{i}/{p}/{r}.{'png' if r else 'jpg'}" for i, p, r in product(PHOTOS, "012", ROUNDS)
    ],
    "cat_run{repetition}_step{round}.png": [f"cat_run{p}_step{r}.png" for p, r in product(range(12), range(5))],
    "{initial_image}_{repetition}_{round}.png": [f"{i}_{p}_{r}.png" for i, p, r in product(PHOTOS, "01", ROUNDS)],
    "{setting}/x/{initial_image}/iter_{round}.png": [
        f"{s}/x/{i}/iter_{r}.png" for s, i, r in product("ab", "cd", ROUNDS)
    ],
    "step_{round}/{initial_image}.webp": [f"step_{r}/{i}.webp" for i, r in product(PHOTOS, ROUNDS)],
    "{editor}/{setting}/{initial_image}/{round}.png": [
        f"{e}/{s}/{i}/{r}.png" for e, s, i, r in product(["gemini", "flux2"], ["redo", "flip"], PHOTOS, ROUNDS)
    ],
    "seed{seed}/{initial_image}_{round}.png": [f"seed{s}/{i}_{r}.png" for s, i, r in product("79", PHOTOS, ROUNDS)],
    "{style}/cat/{round}.png": [f"{s}/cat/{r}.png" for s, r in product(["photo", "anime"], ROUNDS)],
}


@pytest.mark.parametrize(("pattern", "names"), CASES.items())
def test_layouts_that_people_use(pattern: str, names: list[str]) -> None:
    assert propose([*names, "README.md"]) == Proposal(pattern, len(names), len(names))


def test_a_few_files_that_do_not_fit_are_counted() -> None:
    assert propose([*SCENES, "teaser.png", "flux/scene_00_x/grid.png"]) == Proposal(
        "flux/{initial_image}/step_{round}_{_}.png", 14, 16
    )


@pytest.mark.parametrize("names", [[], ["README.md", "a/1.txt"], ["a.png", "b.png"], ["a{b}/1.png", "a{b}/2.png"]])
def test_nothing_to_guess(names: list[str]) -> None:
    assert propose(names) is None


PARTS = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
NUMBERS = st.sets(st.integers(1, 200), min_size=2, max_size=6)


@given(st.sets(PARTS, min_size=2, max_size=4), NUMBERS)
def test_what_is_guessed_reads_the_names_right(folders: set[str], rounds: set[int]) -> None:
    names = {f"{folder}/step_{number}.png": number for folder in folders for number in rounds}
    found = propose(names)
    assert found is not None
    assert found.fits == len(names)
    shape = compile_pattern(found.pattern)
    assert {name: int(shape.fullmatch(name)["round"]) for name in names} == names
