"""A real Ray cluster of two workers on this machine."""

import math
import os
from pathlib import Path

import numpy as np
import pytest

from banana100_bench.data import open_data
from banana100_bench.errors import BananaError
from banana100_bench.harness import Machine, ModelChoice, score_all
from banana100_bench.package.build import build
from tests.models.making import picture, texture

ray = pytest.importorskip("ray", reason="Ray is not installed: the extra [ray] is not tested")


@pytest.fixture(scope="module")
def cluster():
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error",
        runtime_env={"env_vars": {"PYTHONPATH": path}},
    )  # fmt: skip
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    for number in range(1, 10):
        path = folder / "tree" / "scene" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(texture(number), number).data)
    facts = {"setting": "replication", "editor": "some-editor"}
    build(folder / "tree", folder / "data", pattern="{initial_image}/{round}.{ext}", constants=facts)
    (folder / "drawing.py").write_text(
        "import numpy as np\n\ndef score(image: np.ndarray) -> float:\n    return float(np.random.rand())\n\n"
        "score.higher_is_better = True\n"
    )
    return folder


def test_ray_gives_the_scores_of_the_local_loop_and_computes_what_is_missing(cluster, data, tmp_path):
    choices = [
        ModelChoice("baseline:noise"),
        ModelChoice("baseline:step-leak"),
        ModelChoice(f"{data}/drawing.py:score"),
    ]
    few, every = (open_data(data / "data", rounds=rounds) for rounds in ((1, 2, 3), None))
    local, _ = score_all(choices, every, tmp_path / "local", Machine(workers=0))
    first, _ = score_all(choices, few, tmp_path / "ray", Machine(engine="ray", workers=2))
    assert [report.computed for report in first] == [3, 3, 3]
    whole, _ = score_all(choices, every, tmp_path / "ray", Machine(engine="ray", workers=2))
    assert [(report.computed, report.reused) for report in whole] == [(6, 3)] * 3
    for one, other in zip(local, whole, strict=True):
        scores = {name: found.score for name, found in one.scores.items()}
        assert {name: found.score for name, found in other.scores.items()} == scores
        assert all(math.isfinite(value) for value in scores.values())
        assert one.info == other.info
    assert len(np.unique([found.score for found in whole[2].scores.values()])) == 9
    assert any("self-test" in line for line in whole[0].notes)


def test_a_score_file_is_refused_or_remarked_on_as_by_the_local_loop(cluster, data, tmp_path):
    few = open_data(data / "data", rounds=(1, 2))
    one, two = few.rows
    table = tmp_path / "s.csv"
    choices = [ModelChoice(f"scores:{table}", higher_is_better=True)]
    for machine in (Machine(workers=0), Machine(engine="ray", workers=1)):
        table.write_text(f"image_id,sha256,score\n{one.image_id},{one.sha256},1\n{two.image_id},{'0' * 64},2\n")
        with pytest.raises(BananaError, match=f"s.csv line 3: image_id {two.image_id} is sha256 .* here, not 0{{12}}$"):
            score_all(choices, few, tmp_path / machine.engine, machine)
        assert not (tmp_path / machine.engine).exists()
        table.write_text(f"sha256,score\n{one.sha256},1\n{two.sha256},2\n{'0' * 64},3\n")
        (report,), _ = score_all(choices, few, tmp_path / machine.engine, machine)
        assert {name: found.score for name, found in report.scores.items()} == {one.image_id: 1, two.image_id: 2}
        assert report.notes == [f"s.csv: 1 of 3 scores are of no selected image, as '{'0' * 64}'"]


def test_a_failed_image_is_a_status_and_a_broken_model_one_line(cluster, data, tmp_path):
    metric = tmp_path / "metric.py"
    metric.write_text(
        "import os\nfrom pathlib import Path\n\ndef score(image):\n    raise ValueError('no')\n\n"
        "score.higher_is_better = True\n"
    )
    few = open_data(data / "data", rounds=(1, 2))
    (report,), _ = score_all([f"{metric}:score"], few, tmp_path / "store", Machine(engine="ray", workers=1))
    assert [(found.status, found.message) for found in report.scores.values()] == [("failed", "ValueError: no")] * 2
    (tmp_path / "elsewhere.py").write_text(
        f"import os\nif os.getpid() != {os.getpid()}:\n    raise RuntimeError('not on this node')\n"
        "def score(image):\n    return 1\n\nscore.higher_is_better = True\n"
    )
    with pytest.raises(BananaError, match="--engine ray: .*not on this node"):
        score_all([f"{tmp_path}/elsewhere.py:score"], few, tmp_path / "store", Machine(engine="ray", workers=1))
