"""Encoded pictures: what a file is (`probe`), and its pixels by one documented policy (`decode`).

Decode policy 1, named in every score row: first frame; EXIF orientation applied as `datasets` does
(a broken EXIF block is ignored); palette expanded; alpha composited over white; CMYK and grey
converted to RGB; 16-bit samples divided by 257; colour profiles ignored; 8-bit RGB comes out as it
is stored.
"""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from banana100_bench.errors import BananaError

if TYPE_CHECKING:
    from PIL import Image

DECODE_POLICY = 1
MAX_PIXELS = 100_000_000  # a 4K picture has 16 million; above this a header is taken for an attack
MAX_BYTES = 512 << 20
EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp")
FORMATS = ("PNG", "JPEG", "WEBP")


@dataclass(frozen=True)
class ImageFacts:
    """What the header says: size in pixels, format (one of FORMATS), Pillow mode.

    odd: what a reader of pixels must know beyond 8-bit RGB, in words: ``mode CMYK``, ``several frames``.
    """

    width: int
    height: int
    format: str
    mode: str
    odd: tuple[str, ...] = ()


def _open(data: bytes, name: str) -> Image.Image:
    from PIL import Image

    if not data:
        raise BananaError(f"{name}: the file is empty")
    if len(data) > MAX_BYTES:
        raise BananaError(f"{name}: {len(data)} bytes, above the limit of {MAX_BYTES}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # we judge the size below ourselves
            picture = Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise BananaError(f"{name}: {error}") from error
    except Exception as error:
        raise BananaError(f"{name}: not a readable {' / '.join(FORMATS)} image") from error
    if picture.width * picture.height > MAX_PIXELS:
        raise BananaError(f"{name}: {picture.width} x {picture.height} pixels, above the limit of {MAX_PIXELS}")
    return picture


def probe(data: bytes, name: str) -> ImageFacts:
    """Facts of the encoded picture `data`, called `name` in errors, without decoding its pixels.

    Raises BananaError where it is empty, of another format, too large, or cut short.
    """
    picture = _open(data, name)
    kind = "JPEG" if picture.format == "MPO" else str(picture.format)  # MPO: several JPEGs in one file
    if not _COMPLETE[kind](data):
        raise BananaError(f"{name}: the {kind} file is cut short")
    return ImageFacts(picture.width, picture.height, kind, picture.mode, tuple(_odd(picture, data)))


def _odd(picture: Image.Image, data: bytes) -> Iterator[str]:
    if picture.mode != "RGB":
        yield f"mode {picture.mode}"
    if picture.format == "PNG" and data[24] == 16:  # the depth in IHDR; Pillow calls 16-bit RGB "RGB"
        yield "16 bits a sample"
    if getattr(picture, "n_frames", 1) > 1:
        yield "several frames"
    if exif := picture.info.get("exif"):  # not `getexif`, which decodes a PNG to look behind its pixels
        from PIL import Image

        try:
            tags = Image.Exif()
            tags.load(exif)
            orientation = tags.get(0x0112, 1)
        except Exception:  # what Pillow raises here has no common class
            yield "broken EXIF"
        else:
            if orientation != 1:
                yield f"EXIF orientation {orientation}"


def _png_complete(data: bytes) -> bool:
    at = 8
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        at += 12 + length
        if kind == b"IEND":
            return at <= len(data)
    return False


def _jpeg_complete(data: bytes) -> bool:
    return b"\xff\xd9" in data[-65536:]  # some encoders pad behind the end marker


def _webp_complete(data: bytes) -> bool:
    return len(data) >= 8 + int(struct.unpack_from("<I", data, 4)[0])


_COMPLETE = {"PNG": _png_complete, "JPEG": _jpeg_complete, "WEBP": _webp_complete}


def shrink(picture: Image.Image, max_pixels: int | None) -> Image.Image:
    """`picture` itself if it has at most `max_pixels`, else made smaller (Lanczos, aspect kept) so that it has."""
    pixels = picture.width * picture.height
    if max_pixels is None or pixels <= max_pixels:
        return picture
    scale = (max_pixels / pixels) ** 0.5
    size = max(1, int(picture.width * scale)), max(1, int(picture.height * scale))
    return picture.resize(size, 1)  # 1: Lanczos


def decode(data: bytes, name: str) -> Image.Image:
    """The picture as 8-bit RGB by the decode policy above; BananaError, naming `name`, where it cannot be read."""
    from PIL import Image, ImageOps

    picture = _open(data, name)
    try:
        picture.seek(0)
        picture.load()
    except Exception as error:
        raise BananaError(f"{name}: cannot decode the pixels: {error}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picture = ImageOps.exif_transpose(picture)
    except Exception:  # a broken EXIF block says nothing about the pixels
        pass
    if picture.mode.startswith("I;16") or picture.mode in ("I", "F"):
        import numpy as np

        samples = np.asarray(picture, dtype=np.float64)
        picture = Image.fromarray(np.clip(np.rint(samples / 257), 0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture)
    return picture.convert("RGB")
