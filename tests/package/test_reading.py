"""package/reading.py: what becomes of images of every kind."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from banana100_bench.errors import BananaError
from banana100_bench.files import sha256_bytes, write_bytes
from banana100_bench.package import reading
from banana100_bench.package.build import build, preview
from banana100_bench.package.manifest import Note
from banana100_bench.package.source import find
from banana100_bench.records import Row, image_id
from banana100_bench.verify import verify
from tests.package.making import FACTS, PATTERN, picture, write_tree

RUN = "add_remove__plant__flux.1_kontext__rep0"


def encoded(mode: str = "RGB", kind: str = "PNG", size: tuple[int, int] = (40, 32), **options: object) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, 7).save(file, kind, **options)
    return file.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, depth: int, pixels: bytes) -> bytes:
    """An RGB PNG of `depth` bits a sample."""
    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def rotated(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(kind="JPEG", exif=exif.tobytes())


def animated(kind: str) -> bytes:
    return encoded(kind=kind, save_all=True, append_images=[Image.new("RGB", (40, 32), number) for number in (1, 2)])


def broken_exif() -> bytes:
    return encoded(kind="JPEG", exif=b"Exif\x00\x00no TIFF header")


ODD: dict[str, tuple[Callable[[], bytes], list[str]]] = {
    "cmyk": (lambda: encoded("CMYK", "JPEG"), ["a JPEG file called .png", "mode CMYK"]),
    "grey": (lambda: encoded("L"), ["mode L"]),
    "palette": (lambda: encoded("P"), ["mode P"]),
    "alpha": (lambda: encoded("RGBA"), ["mode RGBA"]),
    "grey of 16 bits": (lambda: encoded("I;16"), ["16 bits a sample", "mode I;16"]),
    "colour of 16 bits": (lambda: png(40, 32, 16, (b"\0" + b"\1\2" * 120) * 32), ["16 bits a sample"]),
    "animated PNG": (lambda: animated("PNG"), ["several frames"]),
    "animated WEBP": (lambda: animated("WEBP"), ["a WEBP file called .png", "several frames"]),
    "two JPEGs in one": (lambda: animated("MPO"), ["a JPEG file called .png", "several frames"]),
    "rotated": (lambda: rotated(6), ["EXIF orientation 6", "a JPEG file called .png"]),
    "upright": (lambda: rotated(1), ["a JPEG file called .png"]),
    "broken EXIF": (broken_exif, ["a JPEG file called .png", "broken EXIF"]),
    "another size": (lambda: encoded(size=(41, 32)), ["another size than most images of its run"]),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_images_are_packed_untouched_and_noted(tmp_path: Path, kind: str) -> None:
    make, said = ODD[kind]
    data = make()
    write_tree(tmp_path / "raw", ["plant"])
    write_bytes(tmp_path / "raw" / "plant" / "step_004_x.png", data)
    report = build(tmp_path / "raw", tmp_path / "out", pattern=PATTERN, constants=FACTS)
    assert report.manifest.faults == report.gaps == ()
    assert sorted(note.what for note in report.manifest.notes) == sorted(said)
    assert {note.examples for note in report.manifest.notes} == {(f"{RUN}__round004",)}
    rows = pq.read_table(tmp_path / "out" / "data" / "object").to_pylist()
    (stored,) = (row for row in rows if row["round"] == 4)
    assert stored["image"]["bytes"] == data
    for what in said:
        assert what in (tmp_path / "out" / "README.md").read_text().replace("\\", "")


HOPELESS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a bomb of 10 GB": (lambda: png(60_000, 60_000, 8, b"\0" * 100), "exceeds limit"),
    "a bomb below Pillow's limit": (lambda: png(12_000, 9_000, 8, b""), "12000 x 9000 pixels, above the limit"),
    "cut short": (lambda: picture(4)[:-20], "the PNG file is cut short"),
    "a JPEG cut short": (lambda: picture(4, kind="JPEG")[:-30], "the JPEG file is cut short"),
    "empty": (lambda: b"", "the file is empty"),
    "another format": (lambda: encoded(kind="BMP"), "not a readable PNG / JPEG / WEBP image"),
    "text": (lambda: b"hello", "not a readable PNG / JPEG / WEBP image"),
}


@pytest.mark.parametrize("kind", HOPELESS)
def test_unusable_images_are_faults(tmp_path: Path, kind: str) -> None:
    make, said = HOPELESS[kind]
    write_tree(tmp_path, ["plant"])
    write_bytes(tmp_path / "plant" / "step_004_x.png", make())
    seen = preview(find(tmp_path, PATTERN, FACTS))
    (fault,) = seen.tally.faults
    assert (fault.image_id, fault.file) == (f"{RUN}__round004", "plant/step_004_x.png")
    assert said in fault.problem
    assert [gap.rounds for gap in seen.gaps] == [(4,)]
    assert [row.round for row in seen.tally.rows if row.parent_sha256 is None and row.round] == [5]


def test_an_initial_image_that_cannot_be_used(tmp_path: Path) -> None:
    write_tree(tmp_path, ["plant"])
    write_bytes(tmp_path / "plant" / "step_000_x.png", b"")
    seen = preview(find(tmp_path, PATTERN, FACTS))
    assert [gap.rounds for gap in seen.gaps] == [(0,)]
    assert seen.tally.faults[0].image_id == "initial__plant"


def row(number: int, digest: str, parent: str | None = None, run: str = "r", size: int = 9) -> Row:
    return Row(
        image_id=image_id(run, "a", number),
        run_id=run,
        initial_image="a",
        round=number,
        width=size,
        height=9,
        format="PNG",
        num_bytes=1,
        sha256=sha256_bytes(digest.encode()),
        parent_sha256=parent and sha256_bytes(parent.encode()),
    )


def test_notes_by_hand() -> None:
    rows = [row(1, "a"), row(2, "b", "a"), row(3, "b", "b"), row(4, "d", size=8), row(1, "a", run="s")]
    assert reading.notes(rows, {"r__round002": ["mode L"], "s__round001": ["mode L"]}) == (
        Note(what="another size than most images of its run", images=1, examples=("r__round004",)),
        Note(what="mode L", images=2, examples=("r__round002", "s__round001")),
        Note(
            what="the bytes of another image of the dataset as well",
            images=4,
            examples=("r__round001", "s__round001", "r__round002"),
        ),
        Note(what="the bytes of the image it was made from, unchanged", images=1, examples=("r__round003",)),
    )


@pytest.mark.parametrize("strict", [False, True])
def test_a_file_that_changes_after_it_was_found_ends_the_build(tmp_path: Path, strict: bool) -> None:
    raw = write_tree(tmp_path / "raw")
    found = find(raw, PATTERN, FACTS)
    path = raw / "plant" / "step_003_x.png"
    path.write_bytes(path.read_bytes() + b"xx")  # behind the end marker: still a sound picture
    with pytest.raises(BananaError, match=r"plant/step_003_x\.png: changed while the images were read"):
        build(found, tmp_path / "out", strict=strict)
    assert not (tmp_path / "out").exists()
    build(raw, tmp_path / "out", pattern=PATTERN, constants=FACTS)
    assert verify(tmp_path / "out").faults == []
