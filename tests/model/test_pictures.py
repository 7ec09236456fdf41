import os

import numpy as np
import pytest
from PIL import Image

from nogs.data.images import Preparation, decode
from nogs.model.pictures import read_picture
from nogs.runtime.errors import InputError
from small_runs import GRID

RANDOM = np.random.default_rng(0)


def noise(*shape):
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def read(image, fit="crop"):
    return read_picture(image, grid=GRID, fit=fit)


def test_array_of_the_right_size_is_taken_as_it_is():
    image = noise(24, 24, 3)
    picture = read(image)
    assert np.array_equal(picture.pixels, image)
    assert picture.notes == ()
    picture.pixels[:] = 0  # its own memory
    assert image.any()


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_file_is_prepared_as_for_training_and_said(tmp_path, fit):
    path = tmp_path / "wide.png"
    Image.fromarray(noise(40, 60, 3)).save(path)
    picture = read(path, fit)
    expected = decode(path.read_bytes(), Preparation(24, fit=fit, upright=True))
    assert np.array_equal(picture.pixels, expected.pixels)
    how = {"crop": "cropped to its middle", "pad": "padded with black", "stretch": "stretched to a square"}[fit]
    assert picture.notes == (f"60 x 40 px, {how}",)
    assert np.array_equal(read(str(path), fit).pixels, picture.pixels)
    with Image.open(path) as opened:
        assert np.array_equal(read(opened, fit).pixels, picture.pixels)


@pytest.mark.parametrize(
    ("mode", "said"), [("L", "grey"), ("LA", "transparent, laid on white"), ("RGBA", "transparent, laid on white")]
)
def test_grey_and_transparent_pictures_are_converted_and_said(tmp_path, mode, said):
    path = tmp_path / "picture.png"
    Image.fromarray(noise(30, 30, 3)).convert(mode).save(path)
    assert read(path).notes == (said,)


@pytest.mark.parametrize(("value", "said"), [(None, "None"), (b"x", "a value of the type bytes")])
def test_other_types_are_refused_with_those_that_are_taken(value, said):
    with pytest.raises(
        InputError, match=rf"^A picture must be a file's path, a Pillow image or a uint8 array, not {said}\.$"
    ):
        read(value)


def test_grey_and_transparent_arrays_are_converted():
    grey = noise(24, 24)
    assert np.array_equal(read(grey).pixels, np.repeat(grey[..., None], 3, 2))
    clear = np.concatenate([noise(24, 24, 3), np.zeros((24, 24, 1), np.uint8)], -1)
    assert (read(clear).pixels == 255).all()


def test_small_pictures_are_enlarged_and_said():
    assert read(noise(10, 12, 3)).notes == ("12 x 10 px, cropped to its middle", "enlarged from 10 to 24 px")
    (said,) = read(noise(5, 5, 3)).notes
    assert said == "enlarged from 5 px, less than one glimpse of 8 px shows: trust it little"


def test_photograph_is_turned_upright(tmp_path):
    path = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(noise(24, 24, 3)).save(path, exif=exif)
    assert read(path).notes == ("turned upright",)


def test_what_is_no_picture_is_named(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("no picture")
    with pytest.raises(InputError, match=r"The picture .*notes.txt can't be read: not a picture; save it again"):
        read(path)
    Image.fromarray(noise(30, 30, 3)).save(tmp_path / "whole.png")
    (tmp_path / "torn.png").write_bytes((tmp_path / "whole.png").read_bytes()[:400])
    with pytest.raises(InputError, match=r"The picture .*torn.png can't be read"):
        read(tmp_path / "torn.png")
    with pytest.raises(InputError, match=r"There is no file .*none.png"):
        read(tmp_path / "none.png")
    with pytest.raises(InputError, match=r"uint8 array \[H, W, 3\] .* not float64 of shape \(24, 24, 3\)"):
        read(np.zeros((24, 24, 3)))
    with pytest.raises(InputError, match=r"not uint8 of shape \(3, 24, 24\)"):
        read(noise(3, 24, 24))


def test_a_folder_is_named_as_such(tmp_path):
    with pytest.raises(InputError, match=rf"^{tmp_path} is a folder; classify each picture in it, or run nogs predict"):
        read(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(InputError, match=r"pipe\.png can't be read: not a regular file"):
        read(tmp_path / "pipe.png")
