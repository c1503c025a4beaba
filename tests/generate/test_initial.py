from __future__ import annotations

import io
import os
import sys

import numpy as np
import pytest
from PIL import Image

from banana100_bench.errors import BananaError, UsageError
from banana100_bench.generate.initial import EVERYDAY_PHOTOS, PHOTOS, open_initial

from .conftest import INITIAL, encode, pixels


def array(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def test_photographs_are_those_of_the_libraries():
    from skimage import data
    from sklearn.datasets import load_sample_image

    chelsea, china = open_initial(["photos:chelsea,china"])
    assert (chelsea.name, chelsea.style, chelsea.source) == ("chelsea", "photo", "photos:chelsea")
    assert np.array_equal(array(chelsea.data), data.chelsea())
    assert np.array_equal(array(china.data), load_sample_image("china.jpg"))


def test_every_photograph_is_there_without_a_download(monkeypatch):
    import skimage.data._fetchers

    monkeypatch.setattr(skimage.data._fetchers, "_image_fetcher", None)
    assert [image.name for image in open_initial(["photos"], 16)] == list(EVERYDAY_PHOTOS)
    assert set(EVERYDAY_PHOTOS) < set(PHOTOS)
    assert [image.name for image in open_initial([f"photos:{name}" for name in PHOTOS], 16)] == list(PHOTOS)


def test_files_keep_their_bytes_and_come_in_the_order_of_their_names(folder):
    jpeg = encode(pixels(), "JPEG")
    (folder / "Sand Dunes.JPG").write_bytes(jpeg)
    (folder / "moss.png").write_bytes(INITIAL)
    (folder / ".hidden.png").write_bytes(b"")
    found = open_initial([str(folder)], style="anime")
    assert [(image.name, image.data, image.style, image.extension) for image in found] == [
        ("sand_dunes", jpeg, "anime", "jpg"),
        ("moss", INITIAL, "anime", "png"),
    ]
    (alone,) = open_initial([str(folder / "moss.png")])
    assert (alone.name, alone.style) == ("moss", "unknown")


@pytest.mark.parametrize(
    ("size", "long_side", "expected"),
    [((40, 60), 30, (20, 30)), ((60, 40), 90, (90, 60)), ((32, 32), 16, (16, 16)), ((100, 3), 16, (16, 1))],
)
def test_the_longer_side_gets_the_length_asked_for(folder, size, long_side, expected):
    (folder / "a.jpg").write_bytes(encode(np.full((*size, 3), 90, np.uint8), "JPEG"))
    (image,) = open_initial([str(folder)], long_side)
    assert image.extension == "png"
    assert array(image.data).shape == (*expected, 3)
    assert set(np.unique(array(image.data))) <= {89, 90, 91}


def test_two_images_of_one_name_are_refused_naming_both(folder):
    for name in ("chelsea.png", "Chelsea.jpg"):
        (folder / name).write_bytes(INITIAL)
    with pytest.raises(BananaError, match=r"in/Chelsea\.jpg and .*in/chelsea\.png would both be .*'chelsea'"):
        open_initial([str(folder)])
    with pytest.raises(BananaError, match=r"photos:chelsea and .*in/chelsea\.png would both"):
        open_initial(["photos:chelsea", str(folder / "chelsea.png")])


def test_links_out_of_the_folder_and_other_files_are_left_out_and_said(folder, caplog):
    outside = folder.parent / "secret.png"
    outside.write_bytes(INITIAL)
    (folder / "in.png").write_bytes(INITIAL)
    (folder / "alias.png").symlink_to("in.png")
    (folder / "out.png").symlink_to(outside)
    (folder / "gone.png").symlink_to("nowhere.png")
    (folder / "scan.tif").write_bytes(b"II")
    (folder / "sub").mkdir()
    assert [image.name for image in open_initial([str(folder)])] == ["alias", "in"]
    (record,) = caplog.records
    assert "left out 4 that are not files (.png .jpg .jpeg .webp)" in record.getMessage()
    assert record.getMessage().endswith("gone.png, out.png, scan.tif, sub")


def test_bad_sources_are_refused_by_name(folder):
    (folder / "notes.txt").write_text("x")
    with pytest.raises(BananaError, match=r"in: no images; expected files that end in \.png"):
        open_initial([str(folder)])
    with pytest.raises(BananaError, match=r"cannot read .*missing\.png: No such file"):
        open_initial([str(folder / "missing.png")])
    (folder / "cut.png").write_bytes(INITIAL[:-20])
    with pytest.raises(BananaError, match=r"cut\.png: the PNG file is cut short"):
        open_initial([str(folder)])
    (folder / "砂丘.png").write_bytes(INITIAL)
    with pytest.raises(BananaError, match=r"砂丘\.png: no name can be made"):
        open_initial([str(folder / "砂丘.png")])
    os.mkfifo(folder / "pipe.png")
    with pytest.raises(BananaError, match=r"pipe\.png: not a regular file"):
        open_initial([str(folder / "pipe.png")])


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        (["photos:chelsey"], {}, "unknown photograph 'chelsey'; did you mean chelsea"),
        (["photos:"], {}, "unknown photograph ''"),
        (["photos:china"], {"long_side": 15}, "long side of 15 px: expected 16 to 16384"),
        (["photos:china"], {"style": "foto"}, "unknown style 'foto'; did you mean photo"),
        ([], {}, "no initial images given"),
    ],
)
def test_bad_calls_are_refused(sources, options, message):
    with pytest.raises(UsageError, match=message):
        open_initial(sources, **options)


@pytest.mark.parametrize(("photo", "module"), [("chelsea", "skimage"), ("china", "sklearn")])
def test_a_missing_library_is_told_with_the_extra_that_has_it(monkeypatch, photo, module):
    for loaded in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BananaError, match=rf"photos:{photo} needs .*pip install 'banana100-bench\[demo\]'"):
        open_initial([f"photos:{photo}"])
