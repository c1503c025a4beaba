"""The board that is published from this repository: what its files say follows from its submissions, today too."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from banana100_bench.leaderboard import folder

PUBLISHED = Path(__file__).parents[2] / "leaderboard"


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory):
    home = tmp_path_factory.mktemp("published") / "board"
    shutil.copytree(PUBLISHED, home)
    folder.build([home], folder.open_ground(home / "dataset"), home, "2030-01-01")
    return home


def test_a_rebuild_changes_no_number(rebuilt):
    old, new = (json.loads((at / "leaderboard.json").read_text()) for at in (PUBLISHED, rebuilt))
    assert new["rejected"] == []
    assert len(new["entries"]) == len(list((PUBLISHED / "submissions").glob("*.json"))) == 8
    for before, after in zip(old["entries"], new["entries"], strict=True):
        assert after.pop("interval") == pytest.approx(before.pop("interval"))  # scipy's last digits may differ
        assert after == before


def test_it_is_labelled_simulated_everywhere(rebuilt):
    board = json.loads((rebuilt / "leaderboard.json").read_text())
    assert board["simulated"]
    assert all(entry["simulated"] for entry in board["entries"])
    for page in (rebuilt / "index.html", *(rebuilt / "models").iterdir()):
        assert "SIMULATED data." in page.read_text()
    assert "SIMULATED" in (PUBLISHED / "README.md").read_text()


def test_reported_rows_have_a_source_and_no_rank(rebuilt):
    board = json.loads((rebuilt / "leaderboard.json").read_text())
    assert {row["name"] for row in board["reported"]} == {"21 metrics of pyiqa", "BRISQUE", "RALI", "VisualQuality-R1"}
    assert all("arXiv 2604.03400" in row["source"] and "rank" not in row for row in board["reported"])


def test_the_space_is_static_and_names_this_dataset():
    text = (PUBLISHED / "README.md").read_text()
    front = yaml.safe_load(text.split("---")[1])
    assert (front["sdk"], front["app_file"]) == ("static", "index.html")
    assert json.loads((PUBLISHED / "dataset" / "MANIFEST.json").read_text())["fingerprint"][:12] in text
