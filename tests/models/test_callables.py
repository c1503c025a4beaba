import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import banana100_bench
from banana100_bench.engine.measure import measure
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file
from banana100_bench.harness import Machine
from banana100_bench.models import open_model
from banana100_bench.scoring import score
from banana100_bench.store import ScoreStore
from tests.models.making import chain, picture, texture

PIXELS = texture(5, size=16)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes Python text to metric.py, and gives the spec of an object in it."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text, name="score"):
        path = tmp_path / "metric.py"
        path.write_text(text)
        return f"{path}:{name}"

    return write


@pytest.mark.parametrize(
    ("head", "signature", "kind"),
    [
        ("", "def score(x)", "Image"),
        ("from PIL import Image", "def score(x: Image.Image) -> float", "Image"),
        ("from __future__ import annotations\nimport PIL", "def score(x: PIL.Image.Image)", "Image"),
        ("import numpy as np", "def score(x: np.ndarray)", "ndarray"),
        ("import numpy as np, numpy.typing as npt", "def score(x: npt.NDArray[np.uint8])", "ndarray"),
        ("from __future__ import annotations", "def score(x: npt.NDArray[np.uint8])", "ndarray"),
        ("", "def score(x: 'torch.Tensor')", "Tensor"),
        ("import torch", "def score(x: torch.Tensor)", "Tensor"),
    ],
)
def test_the_annotation_tells_the_form(module, head, signature, kind):
    if kind == "Tensor":
        pytest.importorskip("torch")
    model = open_model(
        module(f"{head}\nseen = []\n{signature}:\n    seen.append(x)\n    return 1.5"), higher_is_better=True
    )
    assert model.score(picture(PIXELS)) == 1.5
    (seen,) = model.function.__globals__["seen"]
    assert type(seen).__name__ == kind
    if kind == "Tensor":
        assert (tuple(seen.shape), str(seen.dtype)) == ((1, 3, 16, 16), "torch.float32")
        assert np.array_equal((seen[0].permute(1, 2, 0) * 255).round().byte().numpy(), PIXELS)
    else:
        assert np.array_equal(np.asarray(seen), PIXELS)
        assert seen.mode == "RGB" if kind == "Image" else seen.dtype == np.uint8


def test_attributes_tell_form_and_direction(module):
    text = (
        "class Metric:\n"
        "    higher_is_better = False\n"
        "    input = 'numpy'\n"
        "    def __call__(self, x: 'whatever'):\n"
        "        return x.mean()\n"
        "class holder:\n"
        "    score = Metric()\n"
    )
    spec = module(text, "holder.score")
    model = open_model(spec)
    assert model.score(picture(PIXELS)) == PIXELS.mean()
    path = spec.partition(":")[0]
    assert model.info.id == "metric.py:holder.score"
    assert (model.info.kind, model.info.higher_is_better) == ("callable", False)
    assert model.info.options == {"input": "numpy", "source_sha256": sha256_file(path)}
    assert "numpy" in model.info.versions


def test_an_edited_file_is_read_anew_and_is_another_version(module):
    first = open_model(module("def score(x): return 1"), higher_is_better=True)
    second = open_model(module("def score(x): return 2"), higher_is_better=True)
    assert [model.score(picture(PIXELS)) for model in (first, second)] == [1.0, 2.0]
    assert first.info.options["source_sha256"] != second.info.options["source_sha256"]


def run(folder, spec, cwd=None):
    """What a new process of the command line says of `spec`: the source digest, the numbers computed, the notes."""
    code = """if True:
        import json, sys
        from pathlib import Path
        from banana100_bench.models import open_model
        from banana100_bench.scoring import score
        from banana100_bench.store import ScoreStore
        from tests.test_scoring import chain
        model = open_model(sys.argv[1], higher_is_better=True)
        report = score(model, chain(2), ScoreStore(Path(sys.argv[2])))
        values = [found.score for found in report.scores.values()]
        notes = [note for note in report.notes if not note.startswith("self-test")]
        print(json.dumps([model.info.options["source_sha256"], report.computed, values, notes]))
    """
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code, spec, str(folder / "store")],
        cwd=cwd or folder,
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("spec", "files", "edited"),
    [
        ("hm.py:score", {"hm.py": "from helper_m import f\ndef score(x): return f(x)"}, "helper_m.py"),
        ("hm.py:score", {"hm.py": "def score(x):\n    from helper_m import f\n    return f(x)"}, "helper_m.py"),
        (
            "hm.py:score",
            {"hm.py": "import importlib\nm = importlib.import_module('helper_m')\ndef score(x): return m.f(x)"},
            "helper_m.py",
        ),
        (
            "pk:score",
            {"pk/__init__.py": "from .core import score", "pk/core.py": "from .f_m import f as score"},
            "pk/f_m.py",
        ),
        ("pk.core:score", {"pk/__init__.py": "", "pk/core.py": "from pk import f_m\nscore = f_m.f"}, "pk/f_m.py"),
        ("pk.core:f", {"pk/__init__.py": "gain = 1", "pk/core.py": "from top_m import *"}, "top_m.py"),
    ],
)
def test_editing_what_the_named_file_imports_makes_another_version(tmp_path, spec, files, edited):
    (tmp_path / "pk").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "unrelated.py").write_text("x = 1")
    (tmp_path / edited).write_text("def f(x): return 1")
    first = run(tmp_path, spec)
    assert first[1:] == [2, [1.0, 1.0], []]
    (tmp_path / "unrelated.py").write_text("x = 2")
    assert run(tmp_path, spec) == [first[0], 0, [1.0, 1.0], []]
    (tmp_path / edited).write_text("def f(x): return 20")
    digest, computed, values, (note,) = run(tmp_path, spec)
    assert (computed, values) == (2, [20.0, 20.0])
    assert f"source_sha256 {first[0][:12]} (now {digest[:12]})" in note


def test_what_else_is_loaded_from_the_folder_changes_no_key_nor_does_where_it_lies(tmp_path):
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (folder / "hm.py").write_text("import json, numpy\nfrom helper_m import f\ndef score(x): return f(x)")
        (folder / "helper_m.py").write_text("def f(x): return 1")
        (folder / "other.py").write_text("import more_m\ndef score(x): return 1")
        (folder / "more_m.py").write_text("")
    alone = run(tmp_path / "a", "hm.py:score")[0]
    code = (
        "from banana100_bench.models import open_model\n"
        "for spec in ('other.py:score', 'hm.py:score'):\n"
        "    print(open_model(spec, higher_is_better=True).info.options['source_sha256'])"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "b",
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[1] == alone


def test_a_helper_edited_after_it_was_loaded_is_refused(module, tmp_path):
    (tmp_path / "loaded_helper_test.py").write_text("def f(x): return 1")
    spec = module("from loaded_helper_test import f\ndef score(x): return f(x)")
    assert open_model(spec, higher_is_better=True).score(picture(PIXELS)) == 1.0
    (tmp_path / "loaded_helper_test.py").write_text("def f(x): return 2")
    with pytest.raises(BananaError, match=r"loaded_helper_test\.py was edited after it was loaded; reload it or start"):
        open_model(spec, higher_is_better=True)


def test_of_an_installed_package_the_version_is_named():
    info = open_model("numpy.linalg:norm", higher_is_better=True).info
    assert info.versions["numpy"] == np.__version__
    assert len(info.options["source_sha256"]) == 64


def test_what_lies_beside_the_file_can_be_imported_and_a_module_in_the_working_directory(module, tmp_path, monkeypatch):
    (tmp_path / "beside_metric_test.py").write_text("def score(x): return 3\nscore.higher_is_better = True")
    assert open_model(module("from beside_metric_test import score")).score(picture(PIXELS)) == 3.0
    sys.path[:] = [entry for entry in sys.path if entry != str(tmp_path)]
    sys.modules.pop("beside_metric_test")
    monkeypatch.chdir(tmp_path)
    model = open_model("beside_metric_test:score")
    assert model.score(picture(PIXELS)) == 3.0
    assert model.info.id == "beside_metric_test:score"


def test_random_numbers_repeat_for_the_same_image(module):
    text = "import random, numpy as np\ndef score(x): return random.random() + np.random.rand()"
    model = open_model(module(text), higher_is_better=True)
    first, second = picture(texture(1)), picture(texture(2))
    values = [measure(model, item).score for item in (first, second, first)]
    assert values[0] == values[2] != values[1]


def test_a_callable_cannot_spoil_the_picture_for_the_next(module):
    model = open_model(
        module("def score(x):\n    x.paste(0, (0, 0, *x.size))\n    return x.getpixel((3, 3))[0]"),
        higher_is_better=True,
    )
    item = picture(PIXELS)
    assert model.score(item) == 0
    assert np.array_equal(np.asarray(item.rgb), PIXELS)


@pytest.mark.parametrize(
    ("text", "name", "error", "message"),
    [
        (
            "def score(x): return 1",
            "score",
            UsageError,
            r"higher or a lower .*set score\.higher_is_better = True or False",
        ),
        ("def score(x): return 1", "scor", UsageError, "has no 'scor'; callables there: score$"),
        ("x = 1", "score", UsageError, "callables there: none"),
        ("score = 1", "score", UsageError, "is int, expected a function"),
        ("class score: pass", "score", UsageError, "is a class; name an instance of it"),
        ("def score(): return 1\nscore.higher_is_better = True", "score", UsageError, "takes no argument"),
        (
            "def score(x): return 1\nscore.higher_is_better = 'yes'",
            "score",
            UsageError,
            "'yes', expected True or False",
        ),
        (
            "def score(x): return 1\nscore.higher_is_better = True\nscore.input = 'cv2'",
            "score",
            UsageError,
            "input is 'cv2'; choices: pil, numpy, torch",
        ),
        (
            "def score(x: str): return 1\nscore.higher_is_better = True",
            "score",
            UsageError,
            r"annotated str; expected PIL\.Image\.Image, numpy\.ndarray or torch\.Tensor",
        ),
        ("import no_such_module_at_all", "score", BananaError, "cannot import .*metric.py: ModuleNotFoundError"),
        ("def score(x: return", "score", BananaError, "cannot import .*metric.py: SyntaxError"),
        ("raise SystemExit('bye')", "score", BananaError, "SystemExit: bye"),
        ("raise GeneratorExit('bye')", "score", BananaError, "GeneratorExit: bye"),
        ("from os import _exit\n_exit(0)", "score", BananaError, r"SystemExit: it called os\._exit\(0\)"),
        ("from posix import _exit\n_exit(0)", "score", BananaError, r"SystemExit: it called os\._exit\(0\)"),
        ("import os\nos._exit(0)", "score", BananaError, r"SystemExit: it called os\._exit\(0\)"),
    ],
)
def test_what_cannot_be_used_gets_one_line(module, text, name, error, message):
    with pytest.raises(error, match=message) as caught:
        open_model(module(text, name))
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)


def test_missing_files_and_arguments_it_does_not_take(module):
    with pytest.raises(UsageError, match=r"no such file nowhere\.py"):
        open_model("nowhere.py:score")
    with pytest.raises(UsageError, match=r"no module json\.nowhere; a spec begins with"):
        open_model("json.nowhere:loads")
    with pytest.raises(UsageError, match="takes no weights"):
        open_model(module("def score(x): return 1"), weights="w.pth", higher_is_better=True)
    with pytest.raises(TypeError, match="the model gave list, expected one number"):
        open_model(module("def score(x): return [1]"), higher_is_better=True).score(picture(PIXELS))


NETWORK = """
import torch

class Net(torch.nn.Module):
    higher_is_better = True
    batched = True

    def __init__(self, gain=1.0):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor(float(gain)))
        self.drop = torch.nn.Dropout(0.9)

    def forward(self, x):
        return self.drop(x).mean(dim=(1, 2, 3)) * self.gain

net = Net(2.0)
"""


def test_a_network_is_made_loaded_and_put_to_work(module, tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"gain": torch.tensor(3.0)}, tmp_path / "w.pth")
    mean = PIXELS.mean() / 255
    instance = open_model(module(NETWORK, "net"))
    made = open_model(module(NETWORK, "Net"), options={"gain": 5.0})
    loaded = open_model(module(NETWORK, "Net"), weights=tmp_path / "w.pth")
    for model, gain in ((instance, 2), (made, 5), (loaded, 3)):
        assert model.score(picture(PIXELS)) == pytest.approx(gain * mean, rel=1e-5)  # no dropout: it is in eval mode
        assert model.score_batch([picture(PIXELS)] * 3) == pytest.approx([gain * mean] * 3, rel=1e-5)
    assert made.info.options["gain"] == 5.0
    assert len({model.info.weights_sha256 for model in (instance, made, loaded)}) == 3
    again = open_model(module(NETWORK, "Net"), options={"gain": 5.0})
    assert again.info == made.info


def test_weights_of_a_network_that_do_not_fit_and_pickled_code(module, tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"other": torch.zeros(1)}, tmp_path / "w.pth")
    with pytest.raises(
        BananaError, match=r"weights .*w\.pth: RuntimeError: Error\(s\) in loading state_dict"
    ) as caught:
        open_model(module(NETWORK, "Net"), weights=tmp_path / "w.pth")
    assert "\n" not in str(caught.value)
    torch.save({"gain": print}, tmp_path / "evil.pth")
    with pytest.raises(BananaError, match="UnpicklingError"):
        open_model(module(NETWORK, "Net"), weights=tmp_path / "evil.pth")
    with pytest.raises(BananaError, match="cannot make one: TypeError"):
        open_model(module(NETWORK, "Net"), options={"gian": 1})


def test_options_go_to_a_function_by_keyword(module):
    model = open_model(module("def score(x, gain=1): return gain"), higher_is_better=True, options={"gain": 7})
    assert model.score(picture(PIXELS)) == 7.0
    assert model.info.options["gain"] == 7


def named(x: np.ndarray):
    return x.mean()


def test_a_function_itself_is_a_model_and_only_one_of_a_file_has_a_lasting_key(tmp_path):
    first, again = (open_model(named, higher_is_better=True) for _ in range(2))
    assert first.score(picture(PIXELS)) == PIXELS.mean()
    assert (first.info.id, first.info.options["input"]) == (f"{__name__}:named", "numpy")
    assert len(first.info.options["source_sha256"]) == 64
    assert first.info == again.info
    with pytest.raises(UsageError, match="test_callables:named: is a higher or a lower score better"):
        open_model(named)
    with pytest.raises(UsageError, match="a model is a spec or a callable, not int"):
        open_model(3)

    def closure(gain):
        return lambda x: gain

    store = ScoreStore(tmp_path)
    for gain in (1, 2):
        report = score(open_model(closure(gain), higher_is_better=True), chain(2), store)
        assert (report.computed, [found.score for found in report.scores.values()]) == (2, [gain, gain])
        assert "source_sha256" not in report.info.options


def test_the_public_verb_takes_a_function_and_its_direction(tmp_path):
    report = banana100_bench.score(named, chain(2), tmp_path, Machine(workers=0), higher_is_better=False)
    assert (report.computed, report.info.higher_is_better) == (2, False)
    again = banana100_bench.score(named, chain(2), tmp_path, Machine(workers=0), higher_is_better=True)
    assert (again.computed, again.info.higher_is_better) == (0, True)
