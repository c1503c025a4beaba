import sys

import pytest

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.models import ENTRY_POINTS, known_models, open_model, pyiqa_models, suites
from tests.models.making import picture, texture


def test_every_member_is_a_model_and_none_twice():
    pytest.importorskip("pyiqa")
    known = known_models()
    for name in suites.NAMES:
        members = suites.members(name)
        assert members
        assert set(members) <= set(known)
        assert len(members) == len(set(members))
    assert len(suites.members("paper")) == 12
    families = suites.members("pyiqa-nr")
    kinds = [pyiqa_models._configs()[spec[6:]]["metric_opts"]["type"] for spec in families]
    assert len(kinds) == len(set(kinds)) >= 22
    assert not {"QAlign", "QReAlign", "Compare2Score", "FID"} & set(kinds)


def test_suites_are_taken_apart_and_shared_members_kept_once():
    assert suites.expand(["suite:offline", "pyiqa:piqe", "x:y"]) == ["pyiqa:piqe", "pyiqa:entropy", "x:y"]
    with pytest.raises(UsageError, match="model x:y: given twice"):
        suites.expand(["x:y", "x:y"])
    with pytest.raises(UsageError, match=r"unknown suite 'papers'; did you mean paper\?"):
        suites.expand(["suite:papers"])
    with pytest.raises(UsageError, match="a suite is several models"):
        open_model("suite:offline")


def test_a_third_party_adds_its_kind_by_an_entry_point(tmp_path, monkeypatch):
    facts = tmp_path / "my_metrics-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: my-metrics\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        f"[{ENTRY_POINTS}]\nmine = my_metrics:open_mine\nbad = my_metrics:nothing\n"
    )
    (tmp_path / "my_metrics.py").write_text(
        "from banana100_bench.models import ModelInfo\n\n"
        "class Mine:\n    def __init__(self, info):\n        self.info = info\n"
        "    def score(self, picture):\n        return float(picture.rgb.width)\n\n"
        "def open_mine(spec, asked):\n"
        "    return Mine(ModelInfo(id=spec, kind='other', higher_is_better=True, options=dict(asked.options)))\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    model = open_model("mine:wide", options={"a": 1})
    assert model.score(picture(texture(size=24))) == 24.0
    assert (model.info.kind, model.info.options) == ("other", {"a": 1})
    with pytest.raises(BananaError, match="bad: its opener my_metrics:nothing cannot be loaded"):
        open_model("bad:x")


@pytest.mark.parametrize(
    ("given", "message"),
    [({"device": "gpu"}, "unknown device 'gpu'"), ({"dtype": "half"}, "unknown dtype 'half'")],
)
def test_devices_and_dtypes_have_names(given, message):
    with pytest.raises(UsageError, match=message):
        open_model("baseline:noise", **given)


def test_a_device_that_is_not_there_is_named():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UsageError, match="device cuda: PyTorch finds none here; choices: auto, cpu"):
        open_model("baseline:noise", device="cuda")
    assert open_model("baseline:noise", device="auto").info == open_model("baseline:noise").info
