import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from banana100_bench import images
from banana100_bench.errors import BananaError


def encode(picture: Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


RGB = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
PICTURE = Image.fromarray(RGB)


@pytest.mark.parametrize("kind", images.FORMATS)
def test_probe_reads_the_header(kind):
    assert images.probe(encode(PICTURE, kind), "a") == images.ImageFacts(30, 20, kind, "RGB")


@pytest.mark.parametrize("kind", images.FORMATS)
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_probe_and_decode_refuse_a_cut_file(kind, share):
    data = encode(PICTURE, kind)
    cut = data[: int(len(data) * share)]
    with pytest.raises(BananaError, match=r"a\.img: "):
        images.probe(cut, "a.img")
    with pytest.raises(BananaError, match=r"a\.img: "):
        images.decode(cut, "a.img")


@pytest.mark.parametrize(
    ("data", "said"), [(b"", "empty"), (b"hello", "not a readable"), (b"GIF89a" + b"0" * 50, "not a")]
)
def test_what_is_no_picture_is_refused(data, said):
    with pytest.raises(BananaError, match=said):
        images.probe(data, "a.img")


def test_a_decompression_bomb_is_refused_by_its_header():
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    for side in (20_000, 100_000):
        header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b"")
        for read in (images.probe, images.decode):
            with pytest.raises(BananaError, match=r"bomb\.png: .*(limit|decompression bomb)"):
                read(bomb, "bomb.png")


def test_rgb_comes_out_as_stored():
    assert np.array_equal(np.asarray(images.decode(encode(PICTURE), "a")), RGB)


def test_alpha_is_composited_over_white():
    rgba = np.dstack([RGB, np.full(RGB.shape[:2], 255, np.uint8)])
    rgba[0, 0] = (10, 20, 30, 0)
    out = np.asarray(images.decode(encode(Image.fromarray(rgba)), "a"))
    assert tuple(out[0, 0]) == (255, 255, 255)
    assert np.array_equal(out[1:], RGB[1:])


def test_sixteen_bit_is_scaled_not_clipped():
    grey = np.array([[0, 257, 128 * 257, 65535]], dtype=np.uint16)
    out = np.asarray(images.decode(encode(Image.fromarray(grey)), "a"))
    assert out[0, :, 0].tolist() == [0, 1, 128, 255]


def test_grey_palette_and_cmyk_become_rgb():
    grey = Image.fromarray(RGB[..., 0])
    assert np.array_equal(np.asarray(images.decode(encode(grey), "a")), np.dstack([RGB[..., 0]] * 3))
    flat = Image.new("RGB", (8, 8), (255, 0, 0))
    assert images.decode(encode(flat.quantize(4)), "a").getpixel((3, 3)) == (255, 0, 0)
    red = images.decode(encode(flat.convert("CMYK"), "JPEG", quality=95), "a").getpixel((3, 3))
    assert np.allclose(red, (255, 0, 0), atol=6)


def test_palette_transparency_is_composited():
    picture = Image.new("P", (2, 1))
    picture.putpalette([0, 0, 0, 9, 9, 9])
    picture.putpixel((1, 0), 1)
    out = images.decode(encode(picture, transparency=0), "a")
    assert out.getpixel((0, 0)) == (255, 255, 255)
    assert out.getpixel((1, 0)) == (9, 9, 9)


def test_exif_orientation_is_applied_and_a_broken_block_ignored():
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise to view
    turned = images.decode(encode(PICTURE, exif=exif), "a")
    assert turned.size == (20, 30)
    assert np.array_equal(np.asarray(turned), np.rot90(RGB, -1))
    broken = images.decode(encode(PICTURE, exif=b"Exif\0\0II*\0garbage that is no directory"), "a")
    assert np.array_equal(np.asarray(broken), RGB)


def test_the_first_frame_of_an_animation_is_taken():
    second = Image.new("RGB", PICTURE.size)
    data = encode(PICTURE, "WEBP", save_all=True, append_images=[second], lossless=True)
    assert np.array_equal(np.asarray(images.decode(data, "a")), RGB)
