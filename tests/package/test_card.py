"""package/card.py: README.md and eval.yaml."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from banana100_bench.package import card
from banana100_bench.package.build import build
from banana100_bench.protocol import GROUPS
from banana100_bench.records import COLUMNS
from tests.package.making import FACTS, PATTERN, write_run, write_tree

ROOT = Path(__file__).parents[2]


def front_matter(folder: Path) -> dict:
    return yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])


def test_every_column_has_a_meaning_and_every_group_a_config() -> None:
    assert list(card.MEANING) == ["image", *COLUMNS]
    assert {glob.split("/")[1] for glob, _ in card.CONFIGS.values() if glob.startswith("data/")} == {"*", *GROUPS}


def test_front_matter(dataset: Path) -> None:
    front = front_matter(dataset)
    assert front["license"] == "unknown"
    assert "simulated" in front["tags"]
    assert front["size_categories"] == ["n<1K"]
    assert [config["config_name"] for config in front["configs"]] == [
        *("default", "key_rounds", "replication", "variants", "objects", "more_models", "initial", "metadata")
    ]
    assert front["configs"][1]["data_files"] == [{"split": "test", "path": "data/*/key-*.parquet"}]
    assert "splits" not in (dataset / "README.md").read_text()


def test_text(dataset: Path) -> None:
    text = (dataset / "README.md").read_text()
    for line in (
        "37 simulated images in 5 runs.",
        "| images of rounds 1 and later | 37 |",
        "| licence | not stated by whoever built this |",
        "| replication | 2 | 26 |",
        r"| add\_apple | 1 | 6 |",
        "| disc | 2 | 9 |",
        "| simulated | 5 | 37 |",
        "| PNG 40 x 32 | 26 |",
        "| JPEG 40 x 32 | 7 |",
        "1 of 5 runs lack rounds",
        "- `replication__ramp__simulated__rep1`: 7-20",
        "| `round` | int16 | how many edits lie behind the image;",
        "@inproceedings{tang2026banana100,",
    ):
        assert line in text
    assert "cc-by" not in text


def test_simulated_images_are_called_so(dataset: Path) -> None:
    text = (dataset / "README.md").read_text()
    assert text.index("> **SIMULATED IMAGES.**") < text.index("37 simulated images")
    declared = yaml.safe_load((dataset / "eval.yaml").read_text())
    assert declared["name"] == "Banana100 (SIMULATED images)"
    assert declared["description"].startswith("SIMULATED images")


def test_card_of_real_images_of_one_group(tmp_path: Path) -> None:
    raw = write_tree(tmp_path / "raw", rounds=[1, 2])
    build(raw, tmp_path / "out", pattern=PATTERN, constants=FACTS, licence="cc-by-nc-sa-4.0")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "simulated" not in text.lower().replace("`simulated`", "").replace("but a simulation of one", "")
    front = front_matter(tmp_path / "out")
    assert front["license"] == "cc-by-nc-sa-4.0"
    assert [config["config_name"] for config in front["configs"]] == ["default", "key_rounds", "objects", "metadata"]
    declared = yaml.safe_load((tmp_path / "out" / "eval.yaml").read_text())
    assert declared["name"] == "Banana100"
    assert {task["config"] for task in declared["tasks"]} == {"key_rounds"}


def test_hostile_text_from_data_stays_text(tmp_path: Path) -> None:
    write_run(tmp_path / "raw", made=1, planned=1, model_version="|x|\n# <script>alert(1)</script> [a](http://b) ---\n")
    build(tmp_path / "raw", tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert r"| \|x\| \# \<script\>alert\(1\)\</script\> \[a\]\(http://b\) \-\-\- .1 | 1 | 1 |" in text
    assert front_matter(tmp_path / "out")["pretty_name"] == "out"


@given(st.text())
def test_escape_gives_one_line_without_markup(text: str) -> None:
    line = card.escape(text)
    assert len(line.splitlines()) <= 1
    assert not set("|<>`*[") & set(re.sub(r"\\.", "", line))


@given(st.sets(st.integers(0, 60)))
def test_ranges_say_the_numbers(numbers: set[int]) -> None:
    said = card.ranges(sorted(numbers))
    spans = [[int(end) for end in part.split("-")] for part in said.split(", ") if part]
    assert {number for span in spans for number in range(span[0], span[-1] + 1)} == numbers
    assert all(later[0] - earlier[-1] > 1 for earlier, later in pairwise(spans))


def test_ranges_by_hand() -> None:
    assert card.ranges([0, 2, 3, 4, 9, 10]) == "0, 2-4, 9-10"


def test_the_template_is_found_in_an_installed_package(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "banana100_bench", tmp_path / "banana100_bench")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from banana100_bench.package import card; "
    call = [sys.executable, "-c", program + "print(card.__file__, len(card.asset('README.md.j2')))"]
    bare = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "dataset_card/README.md.j2 is missing from this installation" in bare.stderr
    shutil.copytree(ROOT / "dataset_card", tmp_path / "banana100_bench" / "dataset_card")
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        str(tmp_path / "banana100_bench" / "package" / "card.py"),
        str(len((ROOT / "dataset_card" / "README.md.j2").read_text())),
    ]
