import io

import numpy as np
import pytest
from PIL import Image

from banana100_bench import controls, harness
from banana100_bench.controls import EDITS, make_controls
from banana100_bench.criteria import CONTROLS
from banana100_bench.data import open_data
from banana100_bench.files import sha256_bytes
from banana100_bench.generate import campaign
from banana100_bench.generate.initial import open_initial
from banana100_bench.package.build import build
from banana100_bench.protocol import Rounds
from banana100_bench.results import recompute


def opened(data):
    return Image.open(io.BytesIO(data))


@pytest.fixture(scope="module")
def picture():
    """A flat picture of 100 x 60 whose lower right quarter alone has texture."""
    pixels = np.full((60, 100, 3), 128, np.uint8)
    pixels[30:, 50:] = np.random.default_rng(0).integers(0, 256, (30, 50, 3))
    return Image.fromarray(pixels)


def test_each_edit_is_what_its_name_says(picture):
    made = {name: opened(edit(picture)) for name, edit in EDITS.items()}
    assert ("original", *EDITS) == CONTROLS
    assert {name: (image.format, image.size) for name, image in made.items()} == {
        "jpeg": ("JPEG", (100, 60)),
        "resize": ("PNG", (99, 59)),
        "crop": ("PNG", (96, 58)),
        "texture": ("PNG", (50, 30)),
    }
    assert np.array_equal(np.asarray(made["texture"]), np.asarray(picture)[30:, 50:])
    assert np.array_equal(np.asarray(made["crop"]), np.asarray(picture)[1:-1, 2:-2])
    flat = np.asarray(made["jpeg"])[:25, :45].astype(int)
    assert abs(flat - 128).max() <= 2


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("controls")
    images = open_initial(["photos:astronaut,china"], 96, style="photo")
    campaign.generate("simulated", images, folder / "raw", repetitions=1, rounds=5)
    build(folder / "raw", folder / "data")
    return folder / "data"


def test_controls_of_the_selected_initial_images_alone(dataset):
    made = make_controls(open_data(dataset, rounds={1, 5}, initial_images={"china"}))
    assert list(made.names.values()) == [("china", name) for name in CONTROLS]
    for row, data in made.images():
        assert row.sha256 == sha256_bytes(data)
        assert row.simulated is False or row.run_id is None
        assert opened(data).size == (row.width, row.height)
    assert len(made.subset({"control__crop__china"}).rows) == 1
    assert make_controls(open_data(dataset, rounds={1, 5}, initial_images={"china"})) is made  # kept for the next model


def test_a_picture_too_small_for_quarters_gets_none(dataset, monkeypatch):
    monkeypatch.setattr(controls, "LEAST_SIDE", 97)
    controls._made.cache_clear()
    assert make_controls(open_data(dataset, rounds={1, 5})) is None
    controls._made.cache_clear()


def test_the_harness_scores_them_and_the_file_holds_them(dataset, tmp_path):
    selection = open_data(dataset, rounds={1, 5})
    result = harness.evaluate("baseline:noise", selection, rounds=Rounds(1, (5,)), store=tmp_path / "store")
    assert [(score.initial_image, score.control) for score in result.controls] == [
        (image, name) for image in ("astronaut", "china") for name in CONTROLS
    ]
    assert recompute(result, selection.rows) == result
    flagged = result.criteria["control_flagged"]
    assert (flagged.value, flagged.n_images, flagged.used, flagged.expected) == (0.0, 2, 10, 10)
    assert flagged.interval_method == "clopper-pearson"
    without = harness.evaluate(
        "baseline:noise", selection, rounds=Rounds(1, (5,)), store=tmp_path / "store", controls=False
    )
    assert without.controls == []
    assert without.verdict == result.verdict


def test_a_score_file_has_no_controls(dataset, tmp_path):
    selection = open_data(dataset, rounds={1, 5})
    (tmp_path / "s.csv").write_text("image_id,score\n" + "".join(f"{r.image_id},{-r.round}\n" for r in selection.rows))
    choice = harness.ModelChoice(f"scores:{tmp_path / 's.csv'}", higher_is_better=True)
    result = harness.evaluate(choice, selection, rounds=Rounds(1, (5,)), store=tmp_path / "store")
    assert result.controls == []
    assert "control_flagged" not in result.criteria
    assert result.criteria["filter_alarm_95"].note == "no control was scored"
