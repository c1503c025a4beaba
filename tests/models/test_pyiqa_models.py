import contextlib
import http.server
import math
import os
import pickle
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

from banana100_bench.engine.measure import measure
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file
from banana100_bench.models import open_model, pyiqa_models
from tests.models.making import encoded, picture, texture

torch = pytest.importorskip("torch")
pyiqa = pytest.importorskip("pyiqa")

SHARED = Path(__file__).parents[3] / "shared"
CHAIN_IMAGE = SHARED / "chains/convergebench_fluxkontext/scene_01_plant/step_002_backward.png"
WEIGHTS = {
    "niqe": "niqe_modelparameters.mat",
    "brisque": "brisque_svm_weights.pth",
    "ilniqe": "ILNIQE_templateModel.mat",
}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """No name resolves, and nothing that was downloaded before is found."""
    from huggingface_hub import constants

    def resolve(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr("pyiqa.utils.download_util.DEFAULT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))


@pytest.mark.parametrize("name", ["piqe", "entropy"])
def test_a_metric_without_weights_scores_as_pyiqa_by_hand(tmp_path, name):
    item = picture(texture(size=64))
    path = tmp_path / "image.png"
    path.write_bytes(item.data)
    by_hand = float(pyiqa.create_metric(name, device="cpu")(str(path)))
    model = open_model(f"pyiqa:{name}")
    assert model.score(item) == pytest.approx(by_hand, abs=1e-6)
    assert math.isfinite(by_hand)
    assert model.info.higher_is_better is (name == "entropy")
    assert model.info.weights_sha256 is None
    assert model.info.versions["pyiqa"] == pyiqa.__version__
    assert set(model.info.versions) == {
        "banana100-bench", "decode-policy", "numpy", "pillow", "pyiqa", "torch", "torchvision",
    }  # fmt: skip


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_metric_with_a_weight_file_scores_as_pyiqa_by_hand(name):
    weights = SHARED / "weights" / WEIGHTS[name]
    if not weights.exists() or not CHAIN_IMAGE.exists():
        pytest.skip(f"needs {weights} and {CHAIN_IMAGE}, which are not part of the project")
    if name == "ilniqe" and not os.environ.get("BANANA100_SLOW_TESTS"):
        pytest.skip("takes a minute: set BANANA100_SLOW_TESTS=1 to run it")
    by_hand = float(pyiqa.create_metric(name, device="cpu", pretrained_model_path=str(weights))(str(CHAIN_IMAGE)))
    model = open_model(f"pyiqa:{name}", weights=weights)
    assert model.score(encoded(CHAIN_IMAGE.read_bytes(), 512, 512)) == pytest.approx(by_hand, abs=1e-6)
    assert not model.info.higher_is_better
    assert model.info.weights_sha256 == sha256_file(weights)


def test_the_tensor_is_rgb_in_0_to_1():
    pixels = np.zeros((2, 3, 3), np.uint8)
    pixels[0, 2] = (255, 51, 0)
    tensor = pyiqa_models.rgb_tensor(picture(pixels))
    assert (tuple(tensor.shape), tensor.dtype) == ((1, 3, 2, 3), torch.float32)
    assert tensor[0, :, 0, 2].tolist() == pytest.approx([1.0, 0.2, 0.0])
    assert tensor.sum() == pytest.approx(1.2)


def test_a_metric_that_draws_at_random_repeats_itself_image_by_image():
    model = open_model("pyiqa:piqe")
    drawing = pyiqa_models.PyiqaModel(model.info, lambda batch: batch.mean() + np.random.rand() + torch.rand(1))
    first, second = picture(texture(1)), picture(texture(2))
    assert measure(drawing, first).score == measure(drawing, first).score
    assert measure(drawing, first).score - measure(drawing, second).score != pytest.approx(
        float(np.mean(texture(1)) - np.mean(texture(2))) / 255, abs=1e-3
    )


def test_the_terminal_stays_clean(capfd, recwarn):
    class Noisy:
        def __call__(self, batch):
            print("loading")
            warnings.warn("slow", stacklevel=1)
            pyiqa.utils.get_root_logger().warning("made")
            return batch.mean()

    model = open_model("pyiqa:piqe")
    model.score(picture(texture(size=64)))
    assert pyiqa_models.PyiqaModel(model.info, Noisy()).score(picture(texture())) > 0
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


def test_a_picture_too_small_for_the_metric_is_a_failed_score():
    score = measure(open_model("pyiqa:piqe"), picture(texture(size=4)))
    assert score.status in ("failed", "nan")
    assert score.score is None
    assert score.message


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        ("pyiqa:nique", {}, r"unknown pyiqa metric 'nique'; did you mean .*niqe"),
        ("pyiqa:psnr", {}, "pyiqa:psnr: needs a reference image"),
        ("pyiqa:fid", {}, "pyiqa:fid: scores a set of images, not one image alone"),
        ("pyiqa:inception_score", {}, "scores a set of images"),
        ("pyiqa:clipscore", {}, "pyiqa:clipscore: needs a caption"),
        ("pyiqa:piqe", {"higher_is_better": True}, "declares that lower is better"),
        ("pyiqa:piqe", {"options": {"x": 1}}, "pyiqa:piqe: takes no option x"),
        ("pyiqa:compare2score", {}, "runs Python code that comes with its weights; --option trust_remote_code=true"),
    ],
)
def test_calls_that_do_not_fit(spec, given, message):
    with pytest.raises(UsageError, match=message):
        open_model(spec, **given)


def test_weight_files_that_do_not_fit(tmp_path):
    def refused(name, weights):
        with pytest.raises(BananaError) as caught:
            open_model(f"pyiqa:{name}", weights=weights)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    text, tensors = tmp_path / "text", tmp_path / "tensors"
    text.write_text("not weights")
    torch.save({"a": torch.zeros(2)}, tensors)
    assert f"cannot read weights {tmp_path}/none: No such file" in refused("niqe", tmp_path / "none")
    assert f"weights {text} do not fit this metric (MatReadError" in refused("niqe", text)
    assert f"weights {tensors} do not fit this metric" in refused("brisque", tensors)
    assert f"weights {tensors} do not fit this metric (KeyError: 'params')" in refused("cnniqa", tensors)
    assert "unexpected keyword argument" in refused("piqe", tensors)
    assert "it takes no weight file" in refused("entropy", tensors)


class Poison:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("name", ["brisque", "cnniqa"])
@pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_code_in_a_weight_file_is_never_run(tmp_path, monkeypatch, name, save):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    weights, marker = tmp_path / "evil.pth", tmp_path / "marker"
    save({"params": Poison(marker)}, weights)
    with pytest.raises(BananaError, match=rf"weights {weights} refused: .*never run"):
        open_model(f"pyiqa:{name}", weights=weights)
    assert not marker.exists()
    assert os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] == "1"
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
    with contextlib.suppress(RuntimeError):
        torch.load(weights, weights_only=False)  # as pyiqa would
    assert marker.exists()


@pytest.mark.parametrize("name", ["cnniqa", "nima"])  # one asks by torch.hub, one by huggingface_hub
def test_without_a_network_it_fails_at_once_with_one_line(no_network, capfd, name):
    with pytest.raises(
        BananaError, match=rf"pyiqa:{name}: cannot download its weights, .*; pass --weights FILE"
    ) as caught:
        open_model(f"pyiqa:{name}")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().out == ""


def test_weights_of_its_parts_are_another_matter(no_network, tmp_path):
    torch.save({"params": {}}, tmp_path / "w.pth")
    with pytest.raises(BananaError, match="cannot download further files that it needs besides --weights"):
        open_model("pyiqa:dbcnn", weights=tmp_path / "w.pth")


@pytest.mark.parametrize("reachable", [True, False])
def test_what_the_cache_lacks_is_downloaded_if_the_hub_answers(monkeypatch, reachable):
    from huggingface_hub import constants

    attempts = []

    def create(name, weights, options, device):
        attempts.append(constants.HF_HUB_OFFLINE)
        if attempts[-1]:
            raise FileNotFoundError("not in the cache")
        return "metric"

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    monkeypatch.setattr(pyiqa_models, "_create_once", create)
    with http.server.HTTPServer(("127.0.0.1", 0), Hub) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
        if reachable:
            threading.Thread(target=hub.handle_request).start()
            assert pyiqa_models._create("nima", None, {}, "cpu") == "metric"
            assert attempts == [True, False]
        else:
            hub.server_close()
            with pytest.raises(FileNotFoundError):
                pyiqa_models._create("nima", None, {}, "cpu")
            assert attempts == [True]
    assert constants.HF_HUB_OFFLINE is False


def test_without_pyiqa_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(pyiqa_models, "_configs", dict)
    assert pyiqa_models.names() == []
    with pytest.raises(BananaError, match=r"pyiqa is not installed; .* extra \[pyiqa\]"):
        open_model("pyiqa:piqe")


class Flat(torch.nn.Module):
    """A network whose code holds for one memory layout alone."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        for number, parameter in enumerate(self.parameters()):
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(number))

    def forward(self, batch):
        return self.conv(batch).view(len(batch), -1).square().mean(1)


def test_a_network_that_bears_no_other_memory_layout_keeps_its_own():
    item = picture(texture(size=64))
    expected = float(Flat()(pyiqa_models.rgb_tensor(item, "cpu")))
    net = Flat()
    pyiqa_models._lay_out(net, "cpu")
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        net(pyiqa_models.rgb_tensor(item, "cpu"))
    assert pyiqa_models.PyiqaModel(None, net).score(item) == pytest.approx(expected, abs=1e-6)
    assert pyiqa_models.PyiqaModel(None, net).score_batch([item, item]) == pytest.approx([expected] * 2, abs=1e-6)


def test_convolutions_on_a_cpu_work_channels_last_with_the_same_scores():
    metric = pyiqa.create_metric("cnniqa", device="cpu", pretrained=None)
    item = picture(texture(size=64))
    expected = float(metric(pyiqa_models.rgb_tensor(item, "cpu")))
    pyiqa_models._lay_out(metric, "cpu")
    weights = [weight for weight in metric.parameters() if weight.dim() == 4]
    assert weights
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)
    assert pyiqa_models.PyiqaModel(None, metric).score(item) == pytest.approx(expected, abs=1e-6)


LAID_OUT = """
import os, torch
from banana100_bench.models import pyiqa_models
torch.set_num_threads(2)
net = torch.nn.Conv2d(512, 512, 3)
before = len(os.listdir("/proc/self/task"))
pyiqa_models._lay_out(net, "cpu")
print(len(os.listdir("/proc/self/task")) - before, net.weight.is_contiguous(memory_format=torch.channels_last))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes are forked on Linux alone")
def test_a_metric_is_prepared_without_a_thread_pool_that_forked_workers_would_find_dead():
    done = subprocess.run([sys.executable, "-c", LAID_OUT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]
