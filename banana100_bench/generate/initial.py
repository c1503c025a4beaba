"""Initial images: round 0 of every run, from a file, a folder, or the photographs that libraries ship."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from banana100_bench import images
from banana100_bench.errors import BananaError, UsageError, unknown_name
from banana100_bench.protocol import STYLES
from banana100_bench.raw import EXTENSIONS, read_file
from banana100_bench.records import check_name, to_name

if TYPE_CHECKING:
    from PIL.Image import Image

_LOG = logging.getLogger(__name__)
_SKIMAGE = ("astronaut", "chelsea", "coffee", "hubble_deep_field", "retina", "rocket")  # those in its wheel
_SKLEARN = ("china", "flower")
PHOTOS = tuple(sorted(_SKIMAGE + _SKLEARN))
EVERYDAY_PHOTOS = ("astronaut", "chelsea", "china", "coffee", "flower", "rocket")  # what "photos" alone means
MIN_LONG_SIDE, MAX_LONG_SIDE = 16, 16384  # px
PAPER_SIDE = 2048  # px, the paper's initial images had at least


@dataclass(frozen=True)
class InitialImage:
    """An image that runs start from.

    name: valid by `records.check_name`. data: the encoded file. style: one of protocol.STYLES.
    source: where it came from, for people to read.
    """

    name: str
    data: bytes
    style: str
    source: str

    @property
    def extension(self) -> str:
        """Of the file in a raw folder, by what the bytes are; BananaError where they are no image we read."""
        return EXTENSIONS[images.probe(self.data, self.source).format]


def open_initial(
    sources: Sequence[str], long_side: int | None = None, *, style: str = "unknown", min_side: int = 0
) -> list[InitialImage]:
    """The initial images of `sources`, in order.

    sources: each ``"photos"`` (EVERYDAY_PHOTOS), ``"photos:astronaut,china"`` (of PHOTOS), an image
        file, or a folder, whose image files are taken in the order of their names. A folder that is
        itself called "photos" is written ``"./photos"``.
    long_side: resize (Lanczos) so that the longer side has that many pixels, and save as PNG. Without
        it the bytes of a file are kept as they are.
    style: of the images from files; the photographs' is "photo".
    min_side: refuse images whose longer side has fewer pixels, after resizing.

    Raises UsageError for an unknown photograph or style, BananaError for a path without images, a
    broken image, and two images with one name. Says (as a warning) what it left out of a folder.
    """
    if long_side is not None and not MIN_LONG_SIDE <= long_side <= MAX_LONG_SIDE:
        raise UsageError(f"long side of {long_side} px: expected {MIN_LONG_SIDE} to {MAX_LONG_SIDE}")
    if style not in STYLES:
        raise unknown_name("style", style, STYLES)
    found: dict[str, InitialImage] = {}
    for source in sources:
        for image in _open(source, style):
            if image.name in found:
                raise BananaError(
                    f"{found[image.name].source} and {image.source} would both be initial image {image.name!r}; "
                    "rename one"
                )
            found[image.name] = image if long_side is None else _resized(image, long_side)
    if not found:
        raise UsageError("no initial images given")
    _refuse_small(found.values(), min_side)
    return list(found.values())


def _refuse_small(found: Iterable[InitialImage], min_side: int) -> None:
    small = []
    for image in found:
        facts = images.probe(image.data, image.source)
        if max(facts.width, facts.height) < min_side:
            small.append(f"{image.source} ({facts.width} x {facts.height})")
    if small:
        more = f" and {len(small) - 3} more" if len(small) > 3 else ""
        raise BananaError(
            f"{len(small)} initial images below {min_side} px, as the paper's were not: {', '.join(small[:3])}{more}; "
            "give larger ones, or --size, or a smaller --min-side"
        )


def _open(source: str, style: str) -> Iterator[InitialImage]:
    kind, _, names = source.partition(":")
    if kind == "photos":
        for name in EVERYDAY_PHOTOS if source == "photos" else names.split(","):
            yield InitialImage(name, _png(_photo(name)), "photo", f"photos:{name}")
        return
    path = Path(source)
    for file in _files_in(path) if path.is_dir() else [path]:
        data = read_file(file.resolve())
        images.probe(data, str(file))
        name = to_name(file.stem)
        try:
            check_name("initial image", name)
        except BananaError as error:
            raise BananaError(f"{file}: no name can be made of this file name: {error}") from error
        yield InitialImage(name, data, style, str(file))


def _files_in(folder: Path) -> list[Path]:
    """The image files directly in `folder`, by name; what else is there, but for hidden files, is said."""
    inside = folder.resolve()

    def fits(path: Path) -> bool:
        return path.suffix.lower() in images.EXTENSIONS and path.is_file() and path.resolve().parent == inside

    seen = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    taken = [path for path in seen if fits(path)]
    left = [path for path in seen if path not in taken]
    accepted = " ".join(images.EXTENSIONS)
    if not taken:
        raise BananaError(f"{folder}: no images; expected files that end in {accepted}")
    if left:
        shown = ", ".join(path.name for path in left[:5]) + (", ..." if len(left) > 5 else "")
        _LOG.warning("%s: left out %d that are not files (%s) of this folder: %s", folder, len(left), accepted, shown)
    return taken


def _photo(name: str) -> Image:
    """The photograph `name` of PHOTOS, as the library that ships it decodes it."""
    from PIL import Image

    if name not in PHOTOS:
        raise unknown_name("photograph", name, PHOTOS)
    try:
        if name in _SKLEARN:
            from sklearn.datasets import load_sample_image

            return Image.fromarray(load_sample_image(f"{name}.jpg"))
        import skimage.data

        return Image.fromarray(getattr(skimage.data, name)())
    except ImportError as error:
        raise BananaError(
            f"photos:{name} needs scikit-image and scikit-learn: pip install 'banana100-bench[demo]'"
        ) from error


def _resized(image: InitialImage, long_side: int) -> InitialImage:
    from PIL import Image

    picture = images.decode(image.data, image.source)
    scale = long_side / max(picture.size)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    resized = picture.resize(size, Image.Resampling.LANCZOS)
    return InitialImage(image.name, _png(resized), image.style, image.source)


def _png(picture: Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
