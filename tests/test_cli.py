"""The command line as a person calls it: real processes, real files."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

COMMAND = [sys.executable, "-c", "from banana100_bench.cli import main; main()"]


def call(*words: str | Path, cwd: Path, check: int | None = 0) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "COLUMNS": "80", "HF_HOME": str(cwd / "hf")}
    path = os.pathsep.join([str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=cwd,
        env=environment | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The error of a call that failed as it should: one line, no traceback."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


@pytest.fixture(scope="module")
def line(tmp_path_factory) -> Path:
    """A folder in which the whole line was run on two small photographs."""
    folder = tmp_path_factory.mktemp("line")
    photos = ("--initial", "photos:astronaut,china", "--size", 96, "--style", "photo")
    call("generate", "raw", *photos, "--repetitions", 2, "--rounds", 20, cwd=folder)
    call("build", "raw", "--out", "banana100", cwd=folder)
    return folder


def test_generate_does_not_touch_a_harmed_run_unless_told_to(tmp_path):
    words = ("generate", "raw", "--initial", "photos:astronaut", "--size", 64, "--repetitions", 2)
    call(*words, "--rounds", 4, cwd=tmp_path)
    runs = [tmp_path / "raw" / "runs" / f"replication__astronaut__simulated__rep{number}" for number in (0, 1)]
    second = (runs[0] / "002.png").read_bytes()
    (runs[0] / "002.png").unlink()
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in runs[0].iterdir()}
    said = "002.png: No such file or directory; rounds 2 to 4 would be made anew, which takes --redo"
    planned = call(*words, "--rounds", 5, "--plan", cwd=tmp_path).stdout
    assert said in planned
    assert planned.splitlines()[2].split() == ["replication", "1", "2", "5", "5", "1", "0.00"]
    failed = call(*words, "--rounds", 5, cwd=tmp_path, check=1)
    assert "error: 1 of 2 runs failed: " in one_line(failed)
    assert said in one_line(failed)
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in runs[0].iterdir()} == before
    assert (runs[1] / "005.png").exists()
    planned = call(*words, "--rounds", 5, "--plan", "--redo", cwd=tmp_path).stdout
    assert planned.splitlines()[2].split() == ["replication", "1", "2", "5", "6", "4", "0.00"]
    done = call(*words, "--rounds", 5, "--redo", cwd=tmp_path)
    assert "4 images made, 3 of them anew, 6 found already there" in done.stdout
    assert "makes rounds 2 to 4 anew: cannot read" in done.stderr
    assert (runs[0] / "002.png").read_bytes() == second


def test_evaluate_and_leaderboard_agree_and_are_labelled(line, tmp_path):
    done = call(
        "evaluate", "baseline:noise", "baseline:constant", "pyiqa:piqe", "--data", line / "banana100", cwd=tmp_path
    )
    assert "SIMULATED" in done.stdout
    assert "of 2 images (95 % interval" in done.stdout
    results = sorted(path.name for path in (tmp_path / "results").iterdir())
    assert results == [
        f"{name}.{kind}" for name in ("baseline-constant", "baseline-noise", "pyiqa-piqe") for kind in ("json", "png")
    ]
    call("leaderboard", "build", "results", "--data", line / "banana100", "--out", "board", cwd=tmp_path)
    board = json.loads((tmp_path / "board" / "leaderboard.json").read_text())
    assert board["simulated"] is True
    assert board["rejected"] == []
    for entry in board["entries"]:
        name = entry["model"]["id"].replace(":", "-")
        result = json.loads((tmp_path / "results" / f"{name}.json").read_text())
        assert entry["strict_pass_rate"] == result["strict_pass_rate"]["value"]
        assert entry["images_detected"] == result["verdict"]["detected"]
        assert len(result["scores"]) == 16  # 2 images x 2 repetitions x 4 key rounds
    constant = next(entry for entry in board["entries"] if entry["model"]["id"] == "baseline:constant")
    assert (constant["strict_pass_rate"], constant["images_detected"], constant["rank"]) == (0, 0, 3)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_a_metric_prints_is_not_among_the_json(line, tmp_path, workers):
    (tmp_path / "loud.py").write_text(
        "import os, numpy as np\nprint('imported')\n"
        "def score(image: np.ndarray) -> float:\n"
        "    print('said')\n    os.write(1, b'written\\n')\n    return image.std()\n"
    )
    done = call("evaluate", "loud.py:score", "--higher-is-better", "--data", line / "banana100", "--json",
                "--workers", workers, cwd=tmp_path)  # fmt: skip
    assert json.loads(done.stdout)[0]["model"]["id"] == "loud.py:score"
    assert all(word in done.stderr for word in ("imported", "said", "written"))


def test_compare_and_report_of_evaluated_models(line, tmp_path):
    models = ("baseline:noise", "baseline:file-size")
    done = call("evaluate", *models, "--data", line / "banana100", "--json", cwd=tmp_path)
    printed = json.loads(done.stdout)
    assert {tree["model"]["id"] for tree in printed} == set(models)
    assert printed[0]["criteria"]["control_flagged"]["expected"] == 10  # 2 images x 5 controls
    assert "false alarms on harmless edits" in call("compare", "results", cwd=tmp_path).stdout
    assert json.loads(call("compare", "results", "--json", cwd=tmp_path).stdout) == printed
    done = call("compare", "results", "--format", "csv", "--out", "t.csv", "--every-eval-ever", "eee", cwd=tmp_path)
    assert (tmp_path / "t.csv").read_text() == done.stdout
    assert len(list(csv.DictReader(done.stdout.splitlines()))) == 2 * (1 + len(printed[0]["criteria"]))
    assert len(list((tmp_path / "eee").glob("*.json"))) == 2
    call("report", "results", "--data", line / "banana100", "--out", "page/report.html", cwd=tmp_path)
    page = (tmp_path / "page" / "report.html").read_text()
    assert "SIMULATED data" in page
    assert len(list((tmp_path / "page").glob("*.svg"))) == 4
    assert "did you mean latex" in one_line(call("compare", "results", "--format", "latx", cwd=tmp_path, check=2))
    assert "no such file" in one_line(call("compare", "nowhere", cwd=tmp_path, check=1))


def test_a_tampered_result_is_rejected_by_the_board(line, tmp_path):
    call("evaluate", "baseline:constant", "--data", line / "banana100", cwd=tmp_path)
    path = tmp_path / "results" / "baseline-constant.json"
    result = json.loads(path.read_text())
    result["strict_pass_rate"]["value"] = 1.0
    path.write_text(json.dumps(result))
    build = ("leaderboard", "build", "results", "--data", line / "banana100")
    assert one_line(call(*build, cwd=tmp_path, check=1)) == (
        "error: leaderboard: nothing was written, as all 1 files are rejected: baseline:constant: it claims "
        "strict_pass_rate.value = 1.0, recomputed 0.0"
    )
    assert not (tmp_path / "leaderboard").exists()
    call("evaluate", "baseline:random", "--data", line / "banana100", cwd=tmp_path)
    call(*build, cwd=tmp_path)
    board = json.loads((tmp_path / "leaderboard" / "leaderboard.json").read_text())
    assert [entry["model"]["id"] for entry in board["entries"]] == ["baseline:random"]
    assert "strict_pass_rate.value = 1.0, recomputed 0.0" in board["rejected"][0]["reason"]


def test_a_function_and_a_score_file_judge_alike(line, tmp_path):
    (tmp_path / "metric.py").write_text(
        "import numpy as np\n\ndef darkness(image: np.ndarray) -> float:\n    return -float(image.mean())\n\n"
        "darkness.higher_is_better = True\n"
    )
    call("evaluate", "metric.py:darkness", "--data", line / "banana100", "--out", "a", cwd=tmp_path)
    (first,) = (tmp_path / "a").glob("*.json")
    result = json.loads(first.read_text())
    with open(tmp_path / "scores.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image_id", "score"])
        writer.writerows([score["image_id"], repr(score["score"])] for score in result["scores"])
    call(
        *("evaluate", "scores:scores.csv", "--higher-is-better", "--data", line / "banana100", "--out", "b"),
        cwd=tmp_path,
    )
    (second,) = (tmp_path / "b").glob("*.json")
    other = json.loads(second.read_text())
    for part in ("verdict", "strict_pass_rate", "concordance", "coverage", "data", "scores"):
        assert result[part] == other[part]


def test_several_models_and_a_suite_in_one_call(line, tmp_path):
    words = ("score", "suite:baselines", "--data", line / "banana100", "--rounds", "1-2", "--workers", 2)
    done = call(*words, cwd=tmp_path)
    assert done.stdout.count("8 images: 8 ok, 0 nan, 0 failed; 8 computed, 0 reused") == 7
    assert "7 models: 56/56 scores" in done.stderr
    again = call(*words, "--timeout", 60, cwd=tmp_path)
    assert again.stdout.count("0 computed, 8 reused") == 7


def test_models_of_a_suite_that_cannot_be_opened_are_told_and_the_others_done(line, tmp_path):
    words = ("score", "suite:paper", "--data", line / "banana100", "--rounds", "1", "--workers", 0)
    done = call(*words, cwd=tmp_path, check=1)
    assert "pyiqa:piqe: 4 images: 4 ok" in done.stdout
    assert done.stderr.count("no result: pyiqa:") == 11
    assert "HF_HUB_OFFLINE is set and the cache lacks its weights, brisque_svm_weights.pth" in done.stderr
    assert "11 models came to nothing" in one_line(done)


def test_the_list_of_models(tmp_path):
    done = call("models", "--only", "pyiqa:n*qe", cwd=tmp_path)
    assert "pyiqa:niqe  lower   ~0, ~100" in done.stdout
    checked = call("models", "--only", "suite:offline", "--check", cwd=tmp_path)
    assert [line.split()[-3:] for line in checked.stdout.splitlines() if line.startswith("pyiqa:")] == [
        ["0.0", "M", "present"],
        ["0.0", "M", "present"],
    ]
    fetched = call("models", "fetch", "pyiqa:piqe", "pyiqa:nima", "--to", "weights", cwd=tmp_path, check=1)
    assert "pyiqa:piqe: there" in fetched.stdout
    assert f"export HF_HOME={tmp_path}/weights/huggingface TORCH_HOME={tmp_path}/weights/torch" in fetched.stdout
    assert "1 models could not be fetched" in one_line(fetched)


def test_a_direction_is_for_the_models_that_declare_none(line, tmp_path):
    (tmp_path / "metric.py").write_text("def brightness(image):\n    return sum(image.convert('L').getdata())\n")
    data = ("--data", line / "banana100", "--no-controls")
    call("evaluate", "metric.py:brightness", "baseline:noise", "--lower-is-better", *data, cwd=tmp_path)
    directions = {
        path.stem: json.loads(path.read_text())["model"]["higher_is_better"] for path in result_files(tmp_path)
    }
    assert directions == {"metric.py-brightness": False, "baseline-noise": True}
    alone = call("evaluate", "baseline:noise", "--lower-is-better", *data, cwd=tmp_path, check=2)
    assert "declares that higher is better" in one_line(alone)


def result_files(folder: Path) -> list[Path]:
    return sorted((folder / "results").glob("*.json"))


def test_a_model_that_fails_on_every_image_costs_the_others_nothing(line, tmp_path):
    (tmp_path / "broken.py").write_text(
        "def score(image):\n    raise ValueError('no')\n\nscore.higher_is_better = True\n"
    )
    words = ("evaluate", "broken.py:score", "baseline:noise", "--data", line / "banana100", "--no-controls")
    done = call(*words, cwd=tmp_path, check=1)
    assert "broken.py:score: every image failed (16): ValueError: no" in one_line(done)
    assert "baseline:noise detects the degradation" in done.stdout
    assert [path.name for path in result_files(tmp_path)] == ["baseline-noise.json"]


def test_no_result_takes_the_place_of_another(line, tmp_path):
    for folder, sign in (("a", ""), ("b", "-")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.py").write_text(
            f"def score(image):\n    return {sign}image.getpixel((0, 0))[0]\n\nscore.higher_is_better = True\n"
        )
    data = ("--data", line / "banana100", "--no-controls")
    both = call("evaluate", "a/m.py:score", "b/m.py:score", *data, cwd=tmp_path, check=2)
    assert "both results would be m.py-score.json" in one_line(both)
    assert not (tmp_path / "scores").exists()
    call("evaluate", "baseline:constant", *data, cwd=tmp_path)
    first = (tmp_path / "results" / "baseline-constant.json").read_bytes()
    other = call("evaluate", "baseline:constant", *data, "--later", "5", cwd=tmp_path, check=2)
    assert "choose another --out" in one_line(other)
    assert (tmp_path / "results" / "baseline-constant.json").read_bytes() == first
    call("evaluate", "baseline:constant", *data, cwd=tmp_path)  # the same question again is an update


@pytest.mark.parametrize("name", ["m" * 150, "bell\x07"])
def test_a_model_whose_result_could_not_be_written_is_refused_before_it_is_scored(line, tmp_path, name):
    (tmp_path / f"{name}.py").write_text("def score(image):\n    return 1\n\nscore.higher_is_better = True\n")
    words = ("evaluate", f"{name}.py:score", "--data", line / "banana100", "--no-controls")
    done = call(*words, cwd=tmp_path, check=None)
    if "\x07" in name:
        assert "has no place in a result" in one_line(done)
        assert "\x07" not in done.stderr
        assert not (tmp_path / "scores").exists()
    else:
        assert [len(path.name) for path in result_files(tmp_path)] == [85]


def test_info_and_dry_run_say_what_is_there(line, tmp_path):
    said = call("info", line / "banana100", "--rounds", "1", cwd=tmp_path).stdout
    assert "80 images of rounds 1 and later (28000 in the paper) in 4 runs" in said
    assert "selected: 4 images of 4 runs" in said
    said = call("build", line / "raw", "--dry-run", cwd=tmp_path).stdout
    assert "raw runs: 80 images in 4 runs, 2 initial images" in said
    assert said.endswith("every image is there and can be used\n")
    assert os.listdir(tmp_path) == []


def test_a_model_that_only_counts_gains_nothing_from_the_order_of_the_images(line, tmp_path):
    (tmp_path / "count.py").write_text(
        "import itertools\n\nnumbers = itertools.count()\n\ndef score(image):\n    return -next(numbers)\n\n"
        "score.higher_is_better = True\n"
    )
    words = ("evaluate", "count.py:score", "--data", line / "banana100", "--no-controls", "--workers", 0)
    call(*words, cwd=tmp_path)
    (path,) = result_files(tmp_path)
    scores = json.loads(path.read_text())["scores"]
    by_score = sorted(scores, key=lambda score: -score["score"])
    assert [score["sha256"] for score in by_score] == sorted(score["sha256"] for score in scores)


def test_score_resumes(line, tmp_path):
    words = ("score", "baseline:noise", "--data", line / "banana100", "--rounds", "1-3")
    assert "12 computed, 0 reused" in call(*words, cwd=tmp_path).stdout
    assert "0 computed, 12 reused" in call(*words, cwd=tmp_path).stdout


def test_an_alternating_setting_is_compared_at_even_rounds(tmp_path):
    random = np.random.default_rng(0)
    scene = random.integers(60, 190, (48, 48, 3)).astype(np.int16)
    for number in range(7):
        noisy = scene + random.normal(0, 6 * number, scene.shape) + 20 * (number % 2)
        path = tmp_path / "chains" / "plant" / f"step_{number:03d}_{'forward' if number % 2 else 'backward'}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(path)
    facts = ("setting=add_remove", "setting_group=object", "period=2", "editor=some-editor")
    words = [word for fact in facts for word in ("--set", fact)]
    call("build", "chains", "--pattern", "{initial_image}/step_{round}_{_}.{ext}", *words, "--out", "d", cwd=tmp_path)
    absent = call("evaluate", "baseline:noise", "--data", "d", cwd=tmp_path, check=2)
    assert "no image of round 10" in one_line(absent)
    refused = call("evaluate", "baseline:noise", "--data", "d", "--later", "4,6", cwd=tmp_path, check=2)
    assert "'add_remove' shows the same state only every 2 rounds" in one_line(refused)
    done = call("evaluate", "baseline:noise", "--data", "d", "--baseline", 2, "--later", "4,6", cwd=tmp_path)
    assert "detects the degradation on 1 of 1 image" in done.stdout
    assert "SIMULATED" not in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("evaluate", "pyiqa:pique", "--data", "{data}"), 2, "did you mean piqe"),
        (("evaluate", "baseline:noize", "--data", "{data}"), 2, "did you mean noise"),
        (("evaluate", "bseline:noise", "--data", "{data}"), 2, "baseline"),
        (("evaluate", "baseline:noise", "--data", "nowhere"), 1, "nowhere"),
        (("evaluate", "baseline:noise", "--data", "{data}", "--later", "9-5"), 2, "runs backwards"),
        (("evaluate", "baseline:noise", "--data", "{data}", "--later", "5,300"), 2, "no image of round 300"),
        (("evaluate", "baseline:noise", "baseline:noise", "--data", "{data}"), 2, "given twice"),
        (("evaluate", "baseline:noise", "--data", "{data}", "--weights", "x=y"), 2, "no such model in this call"),
        (("score", "baseline:noise", "--data", "{data}", "--rounds", "99"), 2, "rounds there: 1-20"),
        (("score", "metric.py:f", "--data", "{data}"), 2, "metric.py"),
        (("score", "suite:papers", "--data", "{data}"), 2, "did you mean paper"),
        (("score", "baseline:noise", "--data", "{data}", "--workers", "many"), 2, "expected auto or a number"),
        (("score", "baseline:noise", "--data", "{data}", "--workers", "0", "--timeout", "9"), 2, "worker processes"),
        (("score", "baseline:noise", "--data", "{data}", "--engine", "spark"), 2, "choices: local, ray"),
        (("score", "baseline:noise", "--data", "{data}", "--device", "gpu"), 2, "unknown device 'gpu'"),
        (("models", "--only", "pyiqa:nonesuch"), 2, "unknown model"),
        (("generate", "raw", "--editor", "simulted"), 2, "did you mean simulated"),
        (("generate", "raw", "--initial", "photos:astronut"), 2, "did you mean astronaut"),
        (("build", "empty"), 1, "empty"),
        (("build", "empty", "--set", "style"), 2, "expected NAME=VALUE"),
        (("build", "empty", "--licence", "cc-by-nc"), 2, "did you mean cc-by-nc-4.0, "),
        (("build", "empty", "--name", "My data", "--dry-run"), 2, "dataset name 'My data': expected"),
        (("generate", "raw", "--temperature", "nan"), 2, "temperature nan: expected a finite number"),
        (("leaderboard", "build", "empty", "--data", "{data}"), 1, "no *.json"),
        (("leaderboard", "build", "empty", "--data", "{data}", "--out", "a.json"), 2, "expected a folder"),
        (("leaderboard", "verify"), 2, "give submission files, or --hub"),
        (("leaderboard", "verify", "x.json", "--comment"), 2, "--comment"),
        (("leaderboard", "verify", "x.json", "--record"), 2, "--record"),
        (("leaderboard", "verify", "x.json", "--board", "empty"), 1, "empty/dataset: no such folder"),
    ],
)
def test_bad_input_gets_one_line_and_its_exit_code(line, tmp_path, words, code, said):
    (tmp_path / "empty").mkdir()
    done = call(*(word.format(data=line / "banana100") for word in words), cwd=tmp_path, check=code)
    assert said in one_line(done)
    assert os.listdir(tmp_path / "empty") == []
    assert not {"results", "banana100", "leaderboard", "raw"} & set(os.listdir(tmp_path))


def test_an_unwritable_output_is_named(line, tmp_path):
    (tmp_path / "taken").write_text("a file, not a folder")
    for words in (
        ("evaluate", "baseline:noise", "--data", line / "banana100", "--out", "taken/results"),
        ("build", line / "raw", "--out", "taken/banana100"),
        ("generate", "taken/raw", "--initial", "photos:astronaut", "--size", "64", "--rounds", "1"),
    ):
        assert "taken" in one_line(call(*words, cwd=tmp_path, check=1))
    assert (tmp_path / "taken").read_text() == "a file, not a folder"


def test_debug_shows_the_traceback_wherever_it_stands(tmp_path):
    done = call("build", "nowhere", "--debug", cwd=tmp_path, check=None)
    assert "Traceback" in done.stderr
    assert done.returncode != 0


def test_ctrl_c_says_that_a_rerun_continues(line, tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\n\ndef score(image):\n    open('begun', 'w').close()\n    time.sleep(60)\n\n"
        "score.higher_is_better = True\n"
    )
    words = ("evaluate", "slow.py:score", "--data", str(line / "banana100"))
    with subprocess.Popen([*COMMAND, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; the same call continues where it stopped" in said
    assert "Traceback" not in said


def test_help_is_quick_and_loads_nothing_heavy(tmp_path):
    start = time.monotonic()
    assert "evaluate" in call("--help", cwd=tmp_path).stdout
    assert time.monotonic() - start < 5  # the real figure, 0.07 s, is for benchmarks/startup.py to show
    heavy = "{'numpy', 'torch', 'pyiqa', 'datasets', 'pyarrow', 'scipy', 'matplotlib', 'google.genai', 'pydantic'}"
    script = f"import sys, banana100_bench, banana100_bench.cli; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
