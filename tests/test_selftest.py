import numpy as np
import pytest

from banana100_bench import selftest
from banana100_bench.models import ModelInfo, open_model
from banana100_bench.scoring import score
from banana100_bench.store import ScoreStore
from tests.models.making import chain


def test_the_pictures_are_the_same_everywhere_and_spoiled_as_they_say():
    clean, blurred, noisy = (np.asarray(item.rgb, dtype=float) for item in selftest.pictures())
    assert clean.shape == blurred.shape == noisy.shape == (selftest.SIDE, selftest.SIDE, 3)
    assert np.array_equal(selftest.dead_leaves(64), selftest.dead_leaves(64))
    assert 100 < clean.mean() < 156
    rough = [float(np.abs(np.diff(image, axis=1)).mean()) for image in (blurred, clean, noisy)]
    assert rough[0] < rough[1] / 2
    assert rough[2] > rough[1] * 2
    assert (noisy - clean).std() == pytest.approx(selftest.NOISE, rel=0.15)  # clipping takes some


@pytest.mark.parametrize(
    ("scores", "higher", "said"),
    [
        ([3.0, 2.0, 1.0], True, None),
        ([1.0, 2.0, 3.0], False, None),
        ([1.0, 2.0, 3.0], True, "WARNING: self-test: the blurred and the noisy picture both score better .* declared"),
        ([2.0, 1.0, 3.0], True, r"WARNING: self-test: the noisy picture scores better .*\(clean 2, blurred 1, noisy 3"),
        ([2.0, 1.0, 3.0], False, "WARNING: self-test: the blurred picture scores better .* lower is better"),
        ([2.0, 2.0, 1.0], True, "self-test: the blurred picture scores the same"),
        ([2.0, None, 1.0], True, "no score for its three pictures"),
        ([], True, "no score for its three pictures"),
    ],
)
def test_what_a_person_is_told(scores, higher, said):
    import re

    told = selftest.verdict(scores, higher)
    assert (told is None) if said is None else re.search(said, told)


def test_a_wrong_direction_is_told_loudly_each_time_and_not_changed(tmp_path):
    class Backwards:
        """Sharper and cleaner is lower here, but it says higher."""

        info = ModelInfo(id="test:backwards", kind="callable", higher_is_better=True)
        asked = 0

        def score(self, item):
            Backwards.asked += 1
            return {"clean": 1.0, "blurred": 2.0, "noisy": 3.0}.get(item.row.image_id.rpartition("__")[2], 0.5)

    for asked in (5, 5):  # the second time all is known
        report = score(Backwards(), chain(2), ScoreStore(tmp_path))
        assert report.summary().count("WARNING: self-test: the blurred and the noisy picture both score better") == 1
        assert report.info.higher_is_better is True
        assert Backwards.asked == asked


def test_models_that_look_at_no_pixels_are_left_alone(tmp_path):
    for name in ("constant", "random", "file-size", "step-leak"):
        assert not score(open_model(f"baseline:{name}"), chain(2), ScoreStore(tmp_path)).notes


@pytest.mark.parametrize("name", ["piqe", "entropy"])
def test_what_pyiqas_metrics_say_of_them(tmp_path, name):
    pytest.importorskip("pyiqa")
    scores = selftest.ask(open_model(f"pyiqa:{name}"))
    told = selftest.verdict(scores, higher_is_better=name == "entropy")
    assert (told is None) if name == "piqe" else "the noisy picture scores better" in told
