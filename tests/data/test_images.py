import io

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from nogs.data.images import Preparation, box_square, decode

RANDOM = np.random.default_rng(0)


def encoded(picture: Image.Image, format: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    picture.save(file, format, **options)
    return file.getvalue()


def noise(height: int, width: int) -> np.ndarray:
    return RANDOM.integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_picture_of_the_right_size_is_unchanged() -> None:
    pixels = noise(24, 24)
    out = decode(encoded(Image.fromarray(pixels)), Preparation(24))
    assert np.array_equal(out.pixels, pixels)
    assert (out.size, out.conversions) == ((24, 24), ())


@pytest.mark.parametrize(
    ("box", "crop"),
    [
        ((30, 20, 20, 10), (25, 10, 55, 40)),  # inside: half-side int(0.75 * 20) = 15 about (40, 25)
        ((0, 0, 20, 10), (0, 0, 25, 20)),  # clipped on the left and the top
        ((85, 50, 15, 10), (81, 44, 100, 60)),  # clipped on the right and at the bottom; int(0.75 * 15) = 11
        ((10.5, 10.5, 9.9, 7.7), (8, 7, 22, 21)),  # fractions: centre int(15.45), int(14.35), half-side int(7.425)
    ],
)
def test_box_becomes_the_papers_square(box: tuple, crop: tuple) -> None:
    assert box_square(box, 100, 60) == crop


def test_box_is_cropped_and_resized_by_lanczos() -> None:
    picture = Image.fromarray(noise(60, 100))
    out = decode(encoded(picture), Preparation(16), box=(0, 0, 20, 10))
    expected = picture.crop((0, 0, 25, 20)).resize((16, 16), Image.Resampling.LANCZOS)
    assert np.array_equal(out.pixels, np.asarray(expected))
    assert out.size == (100, 60)


def test_box_outside_the_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="bounding box lies outside the picture of 30 x 20 px"):
        decode(encoded(Image.fromarray(noise(20, 30))), Preparation(16), box=(90, 90, 10, 10))


def halves(height: int, width: int) -> bytes:
    """Red on the first half of the longer side, blue on the second."""
    pixels = np.zeros((height, width, 3), np.uint8)
    long = pixels if height > width else pixels.swapaxes(0, 1)
    long[: len(long) // 2, :, 0] = 255
    long[len(long) // 2 :, :, 2] = 255
    return encoded(Image.fromarray(pixels))


@pytest.mark.parametrize(("height", "width"), [(40, 80), (80, 40)])
def test_fit_makes_a_picture_square(height: int, width: int) -> None:
    out = {fit: decode(halves(height, width), Preparation(40, fit=fit)).pixels for fit in ("crop", "pad", "stretch")}
    along = {fit: pixels if height > width else pixels.swapaxes(0, 1) for fit, pixels in out.items()}
    for fit in ("crop", "stretch"):  # red fills the first half, whole or squeezed
        assert np.array_equal(along[fit][:16, :, 0], np.full((16, 40), 255, np.uint8))
        assert np.array_equal(along[fit][24:, :, 2], np.full((16, 40), 255, np.uint8))
    seen = along["pad"].any((0, 2))
    assert np.array_equal(np.flatnonzero(seen), np.arange(10, 30))  # black borders of 10 px
    cropped = np.asarray(
        Image.open(io.BytesIO(halves(height, width))).crop((20, 0, 60, 40) if width > height else (0, 20, 40, 60))
    )
    assert np.array_equal(out["crop"], cropped)


def test_conversions_are_named() -> None:
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    cases = {
        "grey": (Image.fromarray(grey), grey),
        "16-bit grey": (Image.fromarray(grey.astype(np.uint16) * 256 + 7), grey),
        "palette": (Image.fromarray(grey).convert("P"), grey),
        "transparent, laid on white": (
            Image.merge("LA", [Image.fromarray(grey), Image.new("L", (8, 8), 0)]),
            grey * 0 + 255,
        ),
    }
    for name, (picture, expected) in cases.items():
        out = decode(encoded(picture), Preparation(8))
        assert out.conversions == (name,)
        assert np.array_equal(out.pixels, np.repeat(expected[..., None], 3, 2)), name
    cmyk = decode(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "TIFF"), Preparation(8))
    assert cmyk.conversions == ("CMYK",)
    assert np.array_equal(cmyk.pixels[0, 0], [255, 0, 0])


def test_photograph_is_turned_upright_where_asked() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = noise(8, 8)
    data = encoded(Image.fromarray(pixels), exif=exif)
    assert np.array_equal(decode(data, Preparation(8)).pixels, pixels)
    out = decode(data, Preparation(8, upright=True))
    assert np.array_equal(out.pixels, np.rot90(pixels, -1))
    assert out.conversions == ("turned upright",)


def test_float_picture_is_refused_with_its_mode() -> None:
    data = encoded(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF")
    with pytest.raises(ValueError, match="its mode F can't be turned into RGB"):
        decode(data, Preparation(4))


def test_a_file_that_other_programs_would_run_is_no_picture() -> None:
    """Pillow passes EPS to Ghostscript, whatever the file's name."""
    drawn = encoded(Image.fromarray(noise(8, 8)), "EPS")
    with pytest.raises(UnidentifiedImageError):
        decode(drawn, Preparation(8))
