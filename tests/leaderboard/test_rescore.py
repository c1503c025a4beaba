"""Scoring anew, on a small dataset with real images."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from banana100_bench import harness
from banana100_bench.data import open_data
from banana100_bench.errors import BananaError, UsageError
from banana100_bench.harness import ModelChoice
from banana100_bench.leaderboard import maintain
from banana100_bench.leaderboard.folder import open_ground, read_records
from banana100_bench.leaderboard.rescore import own_spec, rescore
from banana100_bench.leaderboard.submission import claims, make_card, make_submission, recomputed
from banana100_bench.package.build import build
from tests.leaderboard.making import URL, forged

ROUNDS = (1, 5, 10, 20)
METRIC = "import numpy as np\n\n\ndef darkness(image):\n    return {body}\n\n\ndarkness.higher_is_better = True\n"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Two runs of grey squares that grow noisier."""
    folder = tmp_path_factory.mktemp("rescore")
    for image, grey in (("moss", 90), ("sand", 160)):
        run = folder / "raw" / "replication" / image / "rep0"
        run.mkdir(parents=True)
        for number in ROUNDS:
            noise = np.random.default_rng(number + grey).normal(0, number, (24, 24, 3))
            pixels = np.clip(grey + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(run / f"{number}.png")
    pattern = "{setting}/{initial_image}/rep{repetition}/{round}.{ext}"
    build(folder / "raw", folder / "data", pattern=pattern, constants={"editor": "grey", "simulated": "true"})
    return folder / "data"


def submitted(dataset, tmp_path, spec):
    result = harness.evaluate(ModelChoice(spec), open_data(dataset), store=tmp_path / "scores")
    return make_submission(result, open_ground(dataset).data, make_card(name="Row", url=URL, licence="mit"))


@pytest.fixture
def noise(dataset, tmp_path):
    return submitted(dataset, tmp_path, "baseline:noise")


def test_an_honest_sample_agrees_to_the_last_bit(dataset, noise):
    found = rescore(noise, open_data(dataset), 5, ModelChoice("baseline:noise"), seed=1)
    assert (found.n_images, found.largest, found.faults) == (5, 0.0, [])
    assert rescore(noise, open_data(dataset), 1000, ModelChoice("baseline:noise")).n_images == 8


def test_scores_that_were_permuted_with_all_claims_in_order_do_not_agree(dataset, noise):
    # A liar may make everything consistent; he cannot make the pictures agree.
    liar = forged(noise, ["scores"], [noise.scores[i] for i in (3, 2, 1, 0, 7, 6, 5, 4)])
    found = rescore(liar, open_data(dataset), 8, ModelChoice("baseline:noise"))
    assert len(found.faults) == 8
    assert found.faults[0].startswith(f"{open_data(dataset).rows[0].image_id}: it says -")
    assert found.largest > 0.01


def test_a_difference_below_a_hundredth_of_the_spread_is_allowed(dataset, noise):
    spread = float(np.std(noise.scores))
    for share, faults in ((0.009, 0), (0.011, 1)):
        scores = [noise.scores[0] + share * spread, *noise.scores[1:]]
        found = rescore(forged(noise, ["scores"], scores), open_data(dataset), 8, ModelChoice("baseline:noise"))
        assert len(found.faults) == faults
        assert found.largest == pytest.approx(share, rel=0.02)


def test_a_score_that_should_have_failed_or_did_not_is_a_fault(dataset, noise):
    scores = ["failed", *noise.scores[1:]]
    found = rescore(forged(noise, ["scores"], scores), open_data(dataset), 8, ModelChoice("baseline:noise"))
    assert len(found.faults) == 1
    assert "it says failed, scored anew -" in found.faults[0]


def test_code_that_a_submission_names_is_never_run(dataset, noise, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("open('harm', 'w').close()\ndef f(x): return 0.0\nf.higher_is_better = True\n")
    for identity, kind in (("evil.py:f", "callable"), ("evil.py:f", "pyiqa"), ("os:system", "callable")):
        liar = forged(forged(noise, ["model", "id"], identity), ["model", "kind"], kind)
        with pytest.raises(UsageError, match="code that a submission names is never run"):
            own_spec(liar)
    assert not Path("harm").exists()


def test_other_weights_or_direction_are_another_model(dataset, noise):
    data = open_data(dataset)
    with pytest.raises(BananaError, match="it has weights of SHA-256 aaaa.*, this model None"):
        rescore(forged(noise, ["model", "weights_sha256"], "a" * 64), data, 1, ModelChoice("baseline:noise"))
    with pytest.raises(BananaError, match="direction: higher is better is False, this model True"):
        rescore(forged(noise, ["model", "higher_is_better"], False), data, 1, ModelChoice("baseline:noise"))


def test_a_strangers_way_of_running_it_is_not_followed_blindly(dataset, noise):
    for options in ({"repeats": 10**9}, {"repeats": "many"}, {"max_pixels": 5}):
        liar = forged(noise, ["model", "options"], options)
        with pytest.raises(BananaError, match="which cannot be repeated here"):
            rescore(liar, open_data(dataset), 1, ModelChoice("baseline:noise"))
    twice = forged(noise, ["model", "options"], {"repeats": 2})
    assert rescore(twice, open_data(dataset), 2, ModelChoice("baseline:noise")).largest == 0


def test_a_maintainer_scores_a_function_anew_and_records_it(dataset, tmp_path):
    (tmp_path / "metric.py").write_text(METRIC.format(body="-float(np.asarray(image).std())"))
    spec = f"{tmp_path}/metric.py:darkness"
    made = submitted(dataset, tmp_path, spec)
    assert made.model.id == "metric.py:darkness"
    home = tmp_path / "board"
    (home / "submissions").mkdir(parents=True)
    subprocess.run(["cp", "-r", dataset, home / "dataset"], check=True)
    path = home / "submissions" / "row.json"
    made.save(path)
    ground = maintain.ground(home, None, made.compared.rounds())

    def verdict(record, **options):
        again = maintain.Again(4, home / "dataset", **options)
        ((_, found),) = maintain.verdicts(home, ground, [path], again=again, record=record)
        return found

    with pytest.raises(UsageError, match="metric.py:darkness: code that a submission names is never run"):
        verdict(False)
    assert verdict(False, model=spec).word == "verified"
    assert not (home / "verified.json").exists()
    found = verdict(True, model=spec)
    assert found.notes == ["4 images scored anew; largest difference 0 standard deviations"]
    (record,) = read_records(home / "verified.json")
    assert (record.file_sha256, record.name, record.n_images) == (made.digest, "Row", 4)

    (tmp_path / "other.py").write_text(METRIC.format(body="float(np.asarray(image).mean())"))
    with pytest.raises(BananaError, match=r"it has options .*source_sha256.*, this model "):
        verdict(True, model=f"{tmp_path}/other.py:darkness")
    liar = forged(made, ["scores"], [score - 50 - 10 * score for score in made.scores[::-1]])
    liar = forged(liar, ["claims"], claims(recomputed(liar, ground)).model_dump())
    liar.save(path)
    found = verdict(True, model=spec)
    assert found.word == "rejected"
    assert found.faults[0].startswith("scored anew: replication__")
    assert json.loads((home / "verified.json").read_text())[0]["file_sha256"] == made.digest
