"""What users of other tools complain of, where it touches scoring: a test each, by the words of the complaint."""

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from banana100_bench.engine.measure import measure
from banana100_bench.engine.scheduler import Plan
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.models import Asked, ModelInfo, open_model
from banana100_bench.scoring import asked_info, score
from banana100_bench.store import ScoreStore
from tests.models.making import Images, chain, encoded, picture, texture

SHARED = Path(__file__).parents[2] / "shared"
FLAT = np.full((64, 64, 3), 128, np.uint8)


def in_file(pixels: Image.Image, **options) -> bytes:
    buffer = io.BytesIO()
    pixels.save(buffer, "PNG", **options)
    return buffer.getvalue()


def function(tmp_path, text, **given):
    path = tmp_path / "metric.py"
    path.write_text(text)
    return open_model(f"{path}:score", higher_is_better=True, **given)


def test_metrics_with_random_crops_differ_between_runs(tmp_path):
    text = "import numpy as np\ndef score(x: np.ndarray):\n    y = np.random.randint(16)\n    return x[y:y + 16].mean()"
    runs = [
        score(function(tmp_path, text), chain(4), ScoreStore(tmp_path / name), Plan(workers=workers))
        for name, workers in (("a", 0), ("b", 2))
    ]
    first, second = ({name: found.score for name, found in run.scores.items()} for run in runs)
    assert first == second
    spread = score(function(tmp_path, text), chain(4), ScoreStore(tmp_path / "c"), Plan(repeats=8))
    assert all(found.spread > 0 for found in spread.scores.values())


def test_the_number_changes_with_the_library_version_and_nobody_says_so(tmp_path):
    model = open_model("baseline:noise")
    old = dataclasses.replace(model.info, versions={**model.info.versions, "pillow": "1.0"})
    store = ScoreStore(tmp_path)
    store.open(old).close()
    report = score(model, chain(2), store)
    assert report.computed == 2  # the old scores are not taken for new ones
    assert any("scores by pillow 1.0 (now " in note for note in report.notes)


def test_out_of_memory_on_large_pictures_ends_the_whole_run(tmp_path):
    text = "def score(x):\n    if x.width > 40:\n        raise MemoryError('8 megapixels')\n    return 1"
    images = Images([picture(texture(number, size=48 if number == 2 else 32), number) for number in (1, 2, 3)])
    report = score(function(tmp_path, text), images, ScoreStore(tmp_path / "store"), Plan(batch=3))
    assert [found.status for found in report.scores.values()] == ["ok", "failed", "ok"]
    assert report.failures == [("MemoryError: 8 megapixels", 1)]


def test_it_is_not_known_whether_higher_is_better(tmp_path):
    (tmp_path / "metric.py").write_text("def score(x): return 1")
    with pytest.raises(UsageError, match="is a higher or a lower score better"):
        open_model(f"{tmp_path}/metric.py:score")


def test_a_noisy_picture_scores_better_and_nobody_warns(tmp_path):
    text = "import numpy as np\ndef score(x: np.ndarray): return np.abs(np.diff(x.astype(int), axis=0)).mean()"
    report = score(function(tmp_path, text), chain(2), ScoreStore(tmp_path / "store"))
    assert "WARNING: self-test: the noisy picture scores better than the clean one" in report.summary()


@pytest.mark.parametrize(
    "pixels",
    [
        Image.fromarray(texture()).convert("RGBA"),
        Image.fromarray(texture()).convert("LA"),
        Image.fromarray(texture()).convert("L"),
        Image.fromarray(texture()).quantize(16),
        Image.fromarray(texture()).convert("1"),
        Image.fromarray(texture()[:, :, 0].astype(np.uint16) * 257),
    ],
    ids=["alpha", "grey and alpha", "grey", "palette", "black and white", "16 bit"],
)
def test_a_picture_that_is_not_8_bit_rgb_crashes_the_metric(pixels):
    found = measure(open_model("baseline:noise"), encoded(in_file(pixels), 32, 32))
    assert (found.status, found.width, found.height, found.decode_policy) == ("ok", 32, 32, 1)


def test_a_broken_exif_block_ends_the_run():
    data = in_file(Image.fromarray(texture()), exif=b"Exif\0\0II*\0garbage that is no directory")
    found = measure(open_model("baseline:noise"), encoded(data, 32, 32))
    assert found.status == "ok"
    assert found.score == measure(open_model("baseline:noise"), picture(texture())).score


@pytest.mark.parametrize("name", ["piqe", "niqe", "brisque"])
def test_a_flat_picture_gives_an_error_of_linear_algebra_or_nan(name):
    pytest.importorskip("pyiqa")
    files = {"niqe": "niqe_modelparameters.mat", "brisque": "brisque_svm_weights.pth"}
    weights = SHARED / "weights" / files[name] if name in files else None
    if weights is not None and not weights.exists():
        pytest.skip(f"needs {weights}, which is not part of the project")
    flat = picture(np.repeat(FLAT, 4, axis=0).repeat(4, axis=1))
    found = measure(open_model(f"pyiqa:{name}", weights=weights), flat)
    assert found.status in ("ok", "nan", "failed")
    assert (found.score is None) == (found.status != "ok")
    assert (found.message is None) == (found.status == "ok")


def test_a_negative_brisque_alarms_users(tmp_path):
    report = score(function(tmp_path, "def score(x): return -9.8"), chain(1), ScoreStore(tmp_path / "store"))
    assert [(found.status, found.score) for found in report.scores.values()] == [("ok", -9.8)]


def test_brisque_differs_between_libraries():
    pytest.importorskip("pyiqa")
    info = open_model("pyiqa:piqe").info
    assert info.id == "pyiqa:piqe"  # the library is part of the name
    assert {"pyiqa", "torch", "torchvision"} <= set(info.versions)


def test_cpu_and_gpu_give_different_numbers(tmp_path):
    cpu, gpu = Asked().torch_options(), Asked(device="cuda:1", dtype="float16").torch_options()
    assert (cpu, gpu) == ({}, {"device": "cuda", "dtype": "float16"})
    info = ModelInfo(id="x:y", kind="callable", higher_is_better=True)
    store = ScoreStore(tmp_path)
    assert store.path(info) != store.path(dataclasses.replace(info, options=gpu))


def test_pictures_are_made_smaller_behind_ones_back(tmp_path):
    large = Images([picture(texture(1, size=64))])
    model = open_model("baseline:noise")
    (plain,) = score(model, large, ScoreStore(tmp_path)).scores.values()
    assert (plain.width, plain.height) == (64, 64)
    plan = Plan(max_pixels=1000)
    small = score(model, large, ScoreStore(tmp_path), plan)
    (shrunk,) = small.scores.values()
    assert (shrunk.width, shrunk.height) == (31, 31)
    assert small.info.options == {"max_pixels": 1000} == asked_info(model, plan).options
    assert small.computed == 1  # another question has an answer of its own


def test_the_batch_size_changes_results(tmp_path):
    pytest.importorskip("torch")
    text = "import torch\ndef score(x: torch.Tensor): return x.mean(dim=(1, 2, 3)) * len(x)\nscore.batched = True"
    usual = score(function(tmp_path, text), chain(4), ScoreStore(tmp_path / "a"))
    assert {found.batch for found in usual.scores.values()} == {1}  # one at a time unless asked
    batched = score(function(tmp_path, text), chain(4), ScoreStore(tmp_path / "b"), Plan(batch=4))
    assert [found.batch for found in batched.scores.values()] == [1, 1, 1, 1]  # the first group shows if it draws
    more = score(function(tmp_path, text), chain(8), ScoreStore(tmp_path / "c"), Plan(batch=4))
    assert sorted(found.batch for found in more.scores.values()) == [1] * 4 + [4] * 4  # and every row says so


def test_weights_come_from_one_host_alone_and_the_error_does_not_name_them(monkeypatch, tmp_path):
    pytest.importorskip("pyiqa")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("pyiqa.utils.download_util.DEFAULT_CACHE_DIR", str(tmp_path))
    with pytest.raises(
        BananaError, match=r"HF_HUB_OFFLINE is set and the cache lacks its weights, CNNIQA_koniq10k.*pth"
    ):
        open_model("pyiqa:cnniqa")


def test_licences_of_weights_are_unclear():
    pytest.importorskip("pyiqa")
    from banana100_bench.models.listing import licence

    assert licence().startswith("pyiqa is PolyForm-Noncommercial")
    assert "states no licence for single weight files" in licence()


def test_downloaded_weights_change_under_the_same_name():
    torch = pytest.importorskip("torch")
    from banana100_bench.models.tensors import weights_digest

    torch.manual_seed(0)
    one, same, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    same.load_state_dict(one.state_dict())
    assert weights_digest(one) == weights_digest(same) != weights_digest(other)
    assert weights_digest(torch.nn.ReLU()) is None
