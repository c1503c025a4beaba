import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.models import known_models, open_model
from banana100_bench.models.base import library_versions, settle_direction, to_number
from banana100_bench.models.seeding import seeded


@given(st.floats(allow_nan=False))
def test_one_number_in_any_form_is_that_number(value):
    for form in (value, np.float64(value), np.array(value), np.array([[value]])):
        assert to_number(form) == value
        assert type(to_number(form)) is float


def test_one_number_in_a_tensor_or_an_integer():
    torch = pytest.importorskip("torch")
    assert to_number(torch.tensor([[0.5]], requires_grad=True)) == 0.5
    assert to_number(torch.tensor(3)) == 3.0
    assert to_number(np.int16(-4)) == -4.0
    assert to_number(7) == 7.0
    with pytest.raises(TypeError, match="Tensor of 2 elements"):
        to_number(torch.zeros(2))


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (None, "NoneType"),
        ("0.5", "str"),
        (np.str_("0.5"), "str"),
        (True, "bool"),
        (np.bool_(True), "bool"),
        (1 + 2j, "complex"),
        ([0.5], "list"),
        ((0.5, 0.6), "tuple"),
        ({"score": 1}, "dict"),
        (np.zeros(3), "ndarray of 3 elements"),
        (np.zeros(0), "ndarray of 0 elements"),
    ],
)
def test_anything_else_is_refused_by_type(value, named):
    with pytest.raises(TypeError, match=f"the model gave {named}.*expected one number"):
        to_number(value)


def test_direction_is_declared_or_asked_for_and_never_both_ways():
    assert settle_direction("x", True, None, "")
    assert not settle_direction("x", None, False, "")
    assert not settle_direction("x", False, False, "")
    with pytest.raises(UsageError, match=r"x: is a higher .* --higher-is-better or --lower-is-better, or so"):
        settle_direction("x", None, None, ", or so")
    with pytest.raises(UsageError, match="declares that lower is better, but the call says --higher-is-better"):
        settle_direction("x", False, True, "")


def test_a_missing_library_is_named():
    assert library_versions().keys() == {"banana100-bench"}
    assert library_versions("numpy") == library_versions() | {"decode-policy": "1", "numpy": np.__version__}
    with pytest.raises(BananaError, match="no-such-library is not installed"):
        library_versions("no-such-library")


def test_seeding_depends_on_the_image_alone_and_leaves_no_trace():
    torch = pytest.importorskip("torch")
    import random

    def draw():
        return random.random(), float(np.random.rand()), float(torch.rand(1))

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    undisturbed = [draw(), draw()]
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    seen = [draw()]
    with seeded("ab" * 32):
        first = draw()
    with seeded("cd" * 32):
        other = draw()
    with seeded("ab" * 32):
        again = draw()
    seen.append(draw())
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))
    assert seen == undisturbed


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("baseline:nois", r"unknown baseline 'nois'; did you mean noise\?"),
        ("nois", r"unknown model 'nois'"),
        ("piqe", r"unknown model 'piqe'; did you mean pyiqa:piqe\?$"),
        ("noise", r"unknown model 'noise'; .* ?baseline:noise"),
        ("", "unknown model ''; choices: baseline:constant"),
        ("scores:", "unknown model 'scores:'"),
        ("pyqa:piqe", "no module pyqa; a spec begins with pyiqa:, vlm:, command:"),
    ],
)
def test_an_unknown_spec_gets_one_line_with_choices(spec, message):
    with pytest.raises(BananaError, match=message) as caught:
        open_model(spec)
    assert "\n" not in str(caught.value)


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = (
        "import sys\n"
        "from banana100_bench import models, scoring, store\n"
        "assert 'baseline:noise' in models.known_models()\n"
        "models.open_model('baseline:noise')\n"
        "print(sorted({'torch', 'pyiqa', 'numpy', 'pyarrow', 'datasets', 'scipy', 'PIL', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_known_models_are_those_of_one_image_without_reference():
    pytest.importorskip("pyiqa")
    known = known_models()
    assert known[:4] == ["baseline:constant", "baseline:random", "baseline:file-size", "baseline:noise"]
    assert {"pyiqa:niqe", "pyiqa:piqe", "pyiqa:maniqa"} < set(known)
    assert not {"pyiqa:psnr", "pyiqa:fid", "pyiqa:inception_score", "pyiqa:clipscore"} & set(known)
