"""package/source.py: finding and checking images."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file, write_bytes
from banana100_bench.images import probe
from banana100_bench.package.manifest import Gap
from banana100_bench.package.source import find, row_order
from banana100_bench.protocol import REPLICA_PROMPT
from tests.package.making import FACTS, PATTERN, TIME, picture, write_raw, write_run, write_tree

CHAINS = Path(__file__).parents[3] / "shared" / "chains"
RUN = "replication__ramp__simulated__rep0"


def refuse(folder: Path, message: str, pattern: str | None = PATTERN, facts: dict[str, str] | None = None) -> None:
    """`find` must fail with one line that matches `message`."""
    with pytest.raises(BananaError, match=message) as caught:
        find(folder, pattern, FACTS if pattern and facts is None else facts)
    assert "\n" not in str(caught.value)


def test_raw_runs(raw: Path) -> None:
    source = find(raw)
    rows = {row.image_id: row for row, _ in source.images}
    assert len(rows) == len(source.images) == 37 + 3
    assert [row for row, _ in source.images] == sorted(rows.values(), key=row_order)
    assert source.gaps == [Gap(run_id="replication__ramp__simulated__rep1", rounds=tuple(range(7, 21)))]
    assert source.unused == []
    for row, path in source.images:
        assert (row.sha256, row.num_bytes) == (sha256_file(path), path.stat().st_size)
        assert (row.width, row.height, row.format) == (40, 32, probe(path.read_bytes(), "x").format)

    first, second = rows[f"{RUN}__round001"], rows[f"{RUN}__round002"]
    assert (first.parent_sha256, second.parent_sha256) == (rows["initial__ramp"].sha256, first.sha256)
    assert (second.run_id, second.setting, second.setting_group, second.initial_image) == (
        RUN,
        "replication",
        "replication",
        "ramp",
    )
    assert (second.repetition, second.round, second.period, second.seed) == (0, 2, 1, 7)
    assert (second.prompt, second.editor, second.model_version) == (REPLICA_PROMPT, "simulated", "simulated-1.0")
    assert (second.simulated, second.style, second.created_at) == (True, "photo", TIME)
    assert (second.reasoning_summary, second.format) == ("round 2", "WEBP")

    initial = rows["initial__ramp"]
    assert (initial.round, initial.run_id, initial.setting, initial.simulated) == (0, None, None, False)


def test_a_tree_by_pattern(tmp_path: Path) -> None:
    write_tree(tmp_path)
    write_bytes(tmp_path / "README.txt", b"hello")
    source = find(tmp_path, PATTERN, FACTS)
    assert [(row.initial_image, row.round) for row, _ in source.images] == [
        ("chair", 0),
        ("plant", 0),
        *(("chair", number) for number in range(1, 7)),
        *(("plant", number) for number in range(1, 7)),
    ]
    row, path = source.images[-1]
    assert path == tmp_path / "plant" / "step_006_x.png"
    assert row.run_id == "add_remove__plant__flux.1_kontext__rep0"
    assert (row.setting_group, row.period, row.prompt, row.simulated) == ("object", 2, None, False)
    assert row.parent_sha256 == sha256_file(tmp_path / "plant" / "step_005_x.png")
    assert (source.gaps, source.unused) == ([], ["README.txt"])


@pytest.mark.skipif(not CHAINS.is_dir(), reason="no ../shared/chains beside this checkout")
def test_real_chains() -> None:
    facts = FACTS | {"editor": "flux.1-kontext-dev"}
    source = find(CHAINS / "convergebench_fluxkontext", PATTERN, facts)
    assert len(source.images) == 21
    assert {row.run_id for row, _ in source.images if row.round} == {
        f"add_remove__{name}__flux.1-kontext-dev__rep0"
        for name in ("scene_01_plant", "scene_02_chair", "scene_03_red_ball")
    }
    assert (source.gaps, source.unused) == ([], [])
    gemini = find(CHAINS / "convergebench_gemini", PATTERN, FACTS | {"editor": "gemini-2.5-flash-image"})
    assert [(row.round, row.width) for row, _ in gemini.images] == [
        (0, 512),
        *((number, 1024) for number in range(1, 7)),
    ]


def test_gaps_of_a_tree_are_counted_to_the_longest_run_of_its_kind(tmp_path: Path) -> None:
    write_tree(tmp_path, ["plant"], range(0, 6))
    write_tree(tmp_path, ["chair"], [1, 2, 4])
    assert find(tmp_path, PATTERN, FACTS).gaps == [
        Gap(run_id="add_remove__chair__flux.1_kontext__rep0", rounds=(0, 3, 5))
    ]


def test_parent_is_left_out_where_the_round_before_is_missing(tmp_path: Path) -> None:
    write_tree(tmp_path, ["plant"], [1, 3])
    assert [row.parent_sha256 for row, _ in find(tmp_path, PATTERN, FACTS).images] == [None, None]


def test_nothing_to_find(tmp_path: Path) -> None:
    refuse(tmp_path / "absent", "absent: not a folder")
    refuse(tmp_path, "holds no runs/ folder", pattern=None)
    refuse(tmp_path, "fits none of its 0 files$")
    write_bytes(tmp_path / "a" / "b.png", picture(1))
    refuse(tmp_path, "fits none of its 1 files; the first is a/b.png")
    (tmp_path / "runs").mkdir()
    refuse(tmp_path, "no runs", pattern=None)
    with pytest.raises(UsageError, match="only with a pattern"):
        find(tmp_path, None, {"editor": "x"})


def test_initial_images_alone_are_no_dataset(tmp_path: Path) -> None:
    refuse(write_tree(tmp_path, rounds=[0]), r"no images of any round after 0 \(2 files looked at\)")


def test_two_files_for_one_round(tmp_path: Path) -> None:
    write_tree(tmp_path)
    write_bytes(tmp_path / "plant" / "step_2_again.png", picture(9))
    refuse(tmp_path, r"plant/step_002_x\.png and plant/step_2_again\.png are both round 2 of add_remove__plant")


def test_a_run_without_round_1(tmp_path: Path) -> None:
    refuse(write_tree(tmp_path / "tree", ["chair"], [0, 2, 3]), "add_remove__chair__flux.1_kontext__rep0: no round 1")
    refuse(write_run(tmp_path / "raw", made=0).parents[1], f"{RUN}: no round 1", pattern=None)


def test_initial_images_of_one_name_that_differ(tmp_path: Path) -> None:
    write_tree(tmp_path / "a")
    write_tree(tmp_path / "b")
    pattern, facts = "{editor}/" + PATTERN, {key: value for key, value in FACTS.items() if key != "editor"}
    assert len(find(tmp_path, pattern, facts).images) == 2 + 4 * 6  # the same bytes are stored once
    write_bytes(tmp_path / "b" / "chair" / "step_000_x.png", picture(99))
    message = "a/chair/step_000_x.png and b/chair/step_000_x.png differ, but are both the initial image chair"
    refuse(tmp_path, message, pattern, facts)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (picture(5)[:-20], "the PNG file is cut short"),
        (picture(5, kind="BMP"), "not a readable PNG / JPEG / WEBP image"),
        (b"hello", "not a readable PNG / JPEG / WEBP image"),
    ],
)
def test_unusable_files_are_named(tmp_path: Path, data: bytes, message: str) -> None:
    write_tree(tmp_path)
    write_bytes(tmp_path / "plant" / "step_004_x.png", data)
    refuse(tmp_path, f"1 of its parts cannot be used: .*plant/step_004_x.png: {message}")


def test_many_problems_are_counted(tmp_path: Path) -> None:
    write_tree(tmp_path)
    for number in (1, 2, 3, 4, 5):
        write_bytes(tmp_path / "chair" / f"step_{number:03d}_x.png", b"")
    refuse(tmp_path, r"5 of its parts cannot be used: .*step_001_x.*step_002_x.*step_003_x.png: [a-z ]+; and 2 more$")


def test_symbolic_links_are_refused(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree")
    write_bytes(tmp_path / "secret.png", picture(1))
    link = tmp_path / "tree" / "plant" / "step_007_x.png"
    link.symlink_to(tmp_path / "secret.png")
    refuse(tmp_path / "tree", "step_007_x.png: a symbolic link")
    link.unlink()
    (tmp_path / "tree" / "more").symlink_to(tmp_path)
    refuse(tmp_path / "tree", "tree/more: a symbolic link")


def test_simulated_and_real_images_do_not_mix(tmp_path: Path) -> None:
    write_run(tmp_path, made=2)
    write_run(tmp_path, "mirror", made=2, editor="gemini", simulated=False)
    refuse(tmp_path, rf"simulated images \({RUN}\) and real ones \(mirror__ramp__gemini__rep0\)", pattern=None)


def test_facts_of_a_run_must_not_change_within_it(tmp_path: Path) -> None:
    write_tree(tmp_path / "1", ["a"], [1])
    write_tree(tmp_path / "2", ["a"], [2])
    facts = {key: value for key, value in FACTS.items() if key != "period"}
    refuse(tmp_path, "period differs between its rounds", "{period}/" + PATTERN, facts)


def test_raw_run_whose_image_was_changed(tmp_path: Path) -> None:
    folder = write_run(tmp_path, made=3)
    write_bytes(folder / "002.png", picture(1))
    refuse(tmp_path, r"002.png: SHA-256 [0-9a-f]{12}..., but the journal says", pattern=None)


def test_raw_run_whose_image_is_gone(tmp_path: Path) -> None:
    (write_run(tmp_path, made=3) / "003.png").unlink()
    refuse(tmp_path, "cannot read .*003.png: No such file", pattern=None)


def test_raw_run_whose_chain_is_broken(tmp_path: Path) -> None:
    folder = write_run(tmp_path, made=3)
    journal = folder / "journal.jsonl"
    first, second = sha256_file(folder / "001.png"), sha256_file(folder / "002.png")
    journal.write_text(journal.read_text().replace(f'"parent_sha256": "{second}"', f'"parent_sha256": "{first}"'))
    refuse(tmp_path, f"runs/{RUN}/003.png: not made from round 2 as it now stands", pattern=None)


def test_files_that_no_run_names_are_listed(tmp_path: Path) -> None:
    write_raw(tmp_path)
    (tmp_path / "runs" / RUN / ".lock").touch()
    shutil.copy(tmp_path / "initial" / "ramp.png", tmp_path / "initial" / "spare.png")
    shutil.copy(tmp_path / "initial" / "ramp.png", tmp_path / "runs" / RUN / "021.png")
    assert find(tmp_path).unused == ["initial/spare.png", f"runs/{RUN}/021.png"]
