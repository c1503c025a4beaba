"""package/source.py: finding and checking images."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.files import sha256_file, write_bytes
from banana100_bench.images import probe
from banana100_bench.package.build import preview
from banana100_bench.package.manifest import Fault, Gap
from banana100_bench.package.source import find, row_order
from banana100_bench.protocol import REPLICA_PROMPT
from tests.package.making import FACTS, PATTERN, TIME, images, picture, write_raw, write_run, write_tree

CHAINS = Path(__file__).parents[3] / "shared" / "chains"
RUN = "replication__ramp__simulated__rep0"


def refuse(folder: Path, message: str, pattern: str | None = PATTERN, facts: dict[str, str] | None = None) -> None:
    """`find` must fail with one line that matches `message`."""
    with pytest.raises(BananaError, match=message) as caught:
        find(folder, pattern, FACTS if pattern and facts is None else facts)
    assert "\n" not in str(caught.value)


def test_raw_runs(raw: Path) -> None:
    found = images(raw)
    rows = {row.image_id: row for row, _ in found}
    assert len(rows) == len(found) == 37 + 3
    assert [row for row, _ in found] == sorted(rows.values(), key=row_order)
    seen = preview(find(raw))
    assert seen.gaps == (Gap(run_id="replication__ramp__simulated__rep1", rounds=tuple(range(7, 21))),)
    assert (seen.source.unused, seen.source.faults, seen.tally.faults, seen.source.repeats) == ([], [], [], [])
    for row, path in found:
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
    assert [(row.initial_image, row.round) for row, _ in images(tmp_path, PATTERN, FACTS)] == [
        ("chair", 0),
        ("plant", 0),
        *(("chair", number) for number in range(1, 7)),
        *(("plant", number) for number in range(1, 7)),
    ]
    row, path = images(tmp_path, PATTERN, FACTS)[-1]
    assert path == tmp_path / "plant" / "step_006_x.png"
    assert row.run_id == "add_remove__plant__flux.1_kontext__rep0"
    assert (row.setting_group, row.period, row.prompt, row.simulated) == ("object", 2, None, False)
    assert row.parent_sha256 == sha256_file(tmp_path / "plant" / "step_005_x.png")
    assert (preview(source).gaps, source.unused) == ((), ["README.txt"])


@pytest.mark.skipif(not CHAINS.is_dir(), reason="no ../shared/chains beside this checkout")
def test_real_chains() -> None:
    facts = FACTS | {"editor": "flux.1-kontext-dev"}
    seen = preview(find(CHAINS / "convergebench_fluxkontext", PATTERN, facts))
    assert len(seen.tally.rows) == 21
    assert {row.run_id for row in seen.tally.rows if row.round} == {
        f"add_remove__{name}__flux.1-kontext-dev__rep0"
        for name in ("scene_01_plant", "scene_02_chair", "scene_03_red_ball")
    }
    assert (seen.gaps, seen.source.unused) == ((), [])
    gemini = images(CHAINS / "convergebench_gemini", PATTERN, FACTS | {"editor": "gemini-2.5-flash-image"})
    assert [(row.round, row.width) for row, _ in gemini] == [
        (0, 512),
        *((number, 1024) for number in range(1, 7)),
    ]


def test_gaps_of_a_tree_are_counted_to_the_longest_run_of_its_kind(tmp_path: Path) -> None:
    write_tree(tmp_path, ["plant"], range(0, 6))
    write_tree(tmp_path, ["chair"], [1, 2, 4])
    gap = Gap(run_id="add_remove__chair__flux.1_kontext__rep0", rounds=(0, 3, 5))
    assert preview(find(tmp_path, PATTERN, FACTS)).gaps == (gap,)


def test_parent_is_left_out_where_the_round_before_is_missing(tmp_path: Path) -> None:
    write_tree(tmp_path, ["plant"], [1, 3])
    assert [row.parent_sha256 for row, _ in images(tmp_path, PATTERN, FACTS)] == [None, None]


def test_nothing_to_find(tmp_path: Path) -> None:
    refuse(tmp_path / "absent", "absent: not a folder")
    refuse(tmp_path, "holds no runs/ folder, .* none of its 0 files looks like an image of a round", pattern=None)
    refuse(tmp_path, "fits none of its 0 files$")
    write_bytes(tmp_path / "a" / "b.png", picture(1))
    refuse(tmp_path, "fits none of its 1 files; the first is a/b.png")
    write_run(tmp_path, made=1)
    with pytest.raises(UsageError, match="only with a pattern"):
        find(tmp_path, None, {"editor": "x"})


def test_initial_images_alone_are_no_dataset(tmp_path: Path) -> None:
    refuse(write_tree(tmp_path, rounds=[0]), r"no images of any round after 0 \(2 files looked at\)")


def test_without_a_pattern_one_is_guessed_and_shown(tmp_path: Path) -> None:
    write_tree(tmp_path)
    source = find(tmp_path, None, FACTS)
    assert source.candidates == find(tmp_path, "{initial_image}/step_{round}_x.png", FACTS).candidates
    first, *lines = source.describe().splitlines()
    guessed = "pattern {initial_image}/step_{round}_x.png, guessed, fits 14 of 14 image files"
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.png")) / 1e6
    assert first == f"{tmp_path}: {guessed}: 12 images in 2 runs, 2 initial images, {size:.1f} MB"
    assert lines == [
        "  setting:       1 (add_remove)",
        "  setting_group: 1 (object)",
        "  initial_image: 2 (chair, plant)",
        "  editor:        1 (flux.1_kontext)",
        "  repetition:    1 (0)",
        "  round:         6 (1 to 6)",
        "  period:        1 (2)",
        "  chair/step_001_x.png -> add_remove__chair__flux.1_kontext__rep0__round001",
        "  chair/step_005_x.png -> add_remove__chair__flux.1_kontext__rep0__round005",
        "  plant/step_003_x.png -> add_remove__plant__flux.1_kontext__rep0__round003",
    ]
    with pytest.raises(UsageError, match=r"^setting: neither .* \(pattern guessed: \{initial_image\}/step_\{round\}_x"):
        find(tmp_path)


def test_two_files_for_one_round(tmp_path: Path) -> None:
    write_tree(tmp_path)
    again = tmp_path / "plant" / "step_2_again.png"
    shutil.copy(tmp_path / "plant" / "step_002_x.png", again)
    source = find(tmp_path, PATTERN, FACTS)
    assert (source.repeats, source.faults, len(source.candidates)) == (["plant/step_2_again.png"], [], 14)

    write_bytes(again, picture(9))
    seen = preview(find(tmp_path, PATTERN, FACTS))
    run = "add_remove__plant__flux.1_kontext__rep0"
    said = "another file is the same round: plant/step_2_again.png"
    assert seen.tally.faults == [Fault(image_id=f"{run}__round002", file="plant/step_002_x.png", problem=said)]
    assert seen.gaps == (Gap(run_id=run, rounds=(2,)),)
    assert seen.source.unused == []


def test_a_run_without_round_1_is_one_with_a_gap(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", ["chair"], [0, 2, 3])
    run = "add_remove__chair__flux.1_kontext__rep0"
    assert preview(find(tmp_path / "tree", PATTERN, FACTS)).gaps == (Gap(run_id=run, rounds=(1,)),)
    write_run(tmp_path / "raw", made=0, planned=3)
    write_run(tmp_path / "raw", "mirror", made=1, planned=1)
    assert preview(find(tmp_path / "raw")).gaps == (Gap(run_id=RUN, rounds=(1, 2, 3)),)


def test_initial_images_of_one_name_that_differ(tmp_path: Path) -> None:
    write_tree(tmp_path / "a")
    write_tree(tmp_path / "b")
    pattern, facts = "{editor}/" + PATTERN, {key: value for key, value in FACTS.items() if key != "editor"}
    assert len(find(tmp_path, pattern, facts).candidates) == 2 + 4 * 6  # the same bytes are stored once
    write_bytes(tmp_path / "b" / "chair" / "step_000_x.png", picture(99))
    message = "a/chair/step_000_x.png and b/chair/step_000_x.png differ, but are both initial__chair"
    refuse(tmp_path, message, pattern, facts)


def test_many_contradictions_are_counted(tmp_path: Path) -> None:
    for number in (1, 2):
        write_tree(tmp_path / str(number), ["a", "b", "c", "d", "e"], [number])
    facts = {key: value for key, value in FACTS.items() if key != "period"}
    refuse(
        tmp_path, "5 contradictions: .*__a__.*; .*__b__.*; .*__c__.* rounds; and 2 more$", "{period}/" + PATTERN, facts
    )


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


def test_raw_run_whose_images_are_not_those_of_the_journal(tmp_path: Path) -> None:
    folder = write_run(tmp_path, planned=4, made=4)
    write_bytes(folder / "002.png", picture(1))
    (folder / "004.png").unlink()
    seen = preview(find(tmp_path))
    problems = {fault.file: fault.problem for fault in seen.tally.faults}
    assert problems.keys() == {f"runs/{RUN}/002.png", f"runs/{RUN}/004.png"}
    assert problems[f"runs/{RUN}/002.png"].startswith("SHA-256 ")
    assert problems[f"runs/{RUN}/004.png"] == f"cannot read runs/{RUN}/004.png: No such file or directory"
    assert seen.gaps == (Gap(run_id=RUN, rounds=(2, 4)),)
    assert [row.round for row in seen.tally.rows if row.parent_sha256] == [1, 3]  # the journal tells that of round 3


def test_raw_runs_that_began_with_different_images_of_one_name(tmp_path: Path) -> None:
    first = write_run(tmp_path, made=1)
    write_run(tmp_path, made=1, repetition=1)
    for file in ("run.json", "journal.jsonl"):
        text = (first / file).read_text()
        (first / file).write_text(text.replace(sha256_file(tmp_path / "initial" / "ramp.png"), "0" * 64))
    refuse(tmp_path, "initial/ramp.png: runs began with different bytes under this name", pattern=None)


def test_raw_run_whose_chain_is_broken(tmp_path: Path) -> None:
    folder = write_run(tmp_path, made=3)
    journal = folder / "journal.jsonl"
    first, second = sha256_file(folder / "001.png"), sha256_file(folder / "002.png")
    journal.write_text(journal.read_text().replace(f'"parent_sha256": "{second}"', f'"parent_sha256": "{first}"'))
    refuse(tmp_path, f"{RUN}/003.png: not made from round 2 as it now stands", pattern=None)


def test_files_that_no_run_names_are_listed(tmp_path: Path) -> None:
    write_raw(tmp_path)
    (tmp_path / "runs" / RUN / ".lock").touch()
    shutil.copy(tmp_path / "initial" / "ramp.png", tmp_path / "initial" / "spare.png")
    shutil.copy(tmp_path / "initial" / "ramp.png", tmp_path / "runs" / RUN / "021.png")
    assert find(tmp_path).unused == ["initial/spare.png", f"runs/{RUN}/021.png"]
