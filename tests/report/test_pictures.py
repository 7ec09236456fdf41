import base64
import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nogs.report import network_diagram, pictures, posterior_diagram
from nogs.report.drawing import GREY, new_figure

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def small_figure():
    figure = new_figure(3, 2)
    axes = figure.add_subplot()
    axes.plot([0, 1], [1, 0], color="#0072B2")
    axes.set_title("a title")
    axes.set_xlabel("grey words", color=GREY)
    return figure


def test_small_figure_goes_into_the_page_as_svg_in_the_pages_ink(tmp_path):
    shown = pictures.save_figure(small_figure(), tmp_path, "small")
    assert (shown.light, shown.dark) == ("", "")
    tree = ElementTree.fromstring(shown.svg)
    assert any("a title" in (part.text or "") for part in tree.iter())
    assert "#000000" not in shown.svg
    assert "fill: #ffffff" not in shown.svg
    assert "#0072b2" in shown.svg
    assert all(id.startswith("small-") for id in re.findall(r'\bid="([^"]+)"', shown.svg))
    targets = set(re.findall(r'(?:href="|url\()#([^")]+)', shown.svg))
    assert targets <= set(re.findall(r'\bid="([^"]+)"', shown.svg))
    assert (tmp_path / "small.svg").read_text().startswith("<?xml")
    with Image.open(tmp_path / "small.png") as picture:
        assert picture.size == (shown.width, shown.height) == (360, 240)


def test_large_figure_goes_in_as_png_with_a_dark_twin(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "SMALL", 0)
    shown = pictures.save_figure(small_figure(), tmp_path, "large")
    assert shown.svg == ""
    light, dark = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB"))
        for uri in (shown.light, shown.dark)
    )
    np.testing.assert_array_equal(light, np.asarray(Image.open(tmp_path / "large.png").convert("RGB")))
    assert light[0, 0].tolist() == [255, 255, 255]
    assert dark[0, 0].max() < 40
    line = np.array([0x00, 0x72, 0xB2])
    assert (np.abs(light.astype(int) - line).sum(-1) < 8).sum() == pytest.approx(
        (np.abs(dark.astype(int) - line).sum(-1) < 8).sum(), rel=0.2
    )
    black = light.sum(-1) < 60
    assert black.any()
    assert (dark[black].mean() > 150).all()


def test_same_figure_is_the_same_file_twice(tmp_path):
    for name in "ab":
        pictures.save_figure(small_figure(), tmp_path / name, "one")
    for kind in ("png", "svg"):
        assert (tmp_path / "a" / f"one.{kind}").read_bytes() == (tmp_path / "b" / f"one.{kind}").read_bytes()


@pytest.mark.parametrize(("name", "draw"), [("network", network_diagram), ("posterior", posterior_diagram)])
def test_diagrams_are_whole_and_readable_on_light_and_dark(name, draw):
    tree = ElementTree.fromstring(draw())
    assert tree.find("{http://www.w3.org/2000/svg}title").text
    assert "@media (prefers-color-scheme: dark)" in draw()
    width, height = map(float, tree.get("viewBox").split()[2:])
    for box in tree.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(box.get("x", 0)) >= 0
        assert float(box.get("x", 0)) + float(box.get("width")) <= width
        assert float(box.get("y", 0)) + float(box.get("height")) <= height
    assert (IMAGES / f"{name}.svg").read_text() == draw(), "run python docs/images/diagrams.py"
