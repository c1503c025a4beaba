"""loading_script/banana100.py: by class on this `datasets`, by path on datasets 3.x."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from banana100_bench.files import sha256_bytes
from tests.package import making

ROOT = Path(__file__).parents[1]
OLD = os.environ.get("BANANA100_DATASETS3", "")  # a Python with datasets 3.x

BY_CLASS = """
import json, sys
from datasets import Image
from loading_script.banana100 import Banana100
found = {}
for name in ("default", "key_rounds", "initial"):
    builder = Banana100(config_name=name, raw=sys.argv[1], cache_dir=sys.argv[2])
    builder.download_and_prepare(sys.argv[2] + "/" + name, file_format="parquet")
    found[name] = builder.info.splits["test"].num_examples
builder = Banana100(raw=sys.argv[1], cache_dir=sys.argv[2])
builder.download_and_prepare()
rows = builder.as_dataset("test").cast_column("image", Image(decode=False))
"""
BY_PATH = """
import json, sys, datasets
from datasets import Image, load_dataset
load = lambda name: load_dataset(sys.argv[3] + "/banana100.py", name, raw=sys.argv[1], cache_dir=sys.argv[2],
                                 split="test", trust_remote_code=True)
assert datasets.__version__.startswith("3.")
found = {name: load(name).num_rows for name in ("default", "key_rounds", "initial")}
rows = load("default").cast_column("image", Image(decode=False))
"""
SAYS = """
print(json.dumps([found, {row["image_id"]: [row["sha256"], row["image"]["bytes"].hex()] for row in rows}]))
"""


def call(python: str | Path, program: str, raw: Path, cache: Path) -> list:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "HF_HOME": str(cache / "hf")}
    words = [str(python), "-c", program + SAYS, str(raw), str(cache), str(ROOT / "loading_script")]
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("python", "program"),
    [
        pytest.param(sys.executable, BY_CLASS, id="by class"),
        pytest.param(
            OLD,
            BY_PATH,
            id="by path",
            marks=pytest.mark.skipif(not OLD, reason="BANANA100_DATASETS3 names no Python that has datasets 3.x"),
        ),
    ],
)
def test_examples_of_raw_runs(python: str, program: str, tmp_path: Path) -> None:
    raw = making.write_raw(tmp_path / "raw")
    counts, rows = call(python, program, raw, tmp_path / "cache")
    assert counts == {"default": 37, "key_rounds": 10, "initial": 3}
    made = {row.image_id: path.read_bytes() for row, path in making.images(raw) if row.round}
    assert {name: bytes.fromhex(data) for name, (_, data) in rows.items()} == made
    assert {name: digest for name, (digest, _) in rows.items()} == {n: sha256_bytes(d) for n, d in made.items()}
