"""Miniature datasets in the original layouts: small invented pictures that show their labels as colours."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from nogs.data.config import DataConfig

ATTRIBUTES = (
    "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald", "Bangs", "Big_Lips", "Big_Nose",
    "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair", "Bushy_Eyebrows", "Chubby", "Double_Chin", "Eyeglasses",
    "Goatee", "Gray_Hair", "Heavy_Makeup", "High_Cheekbones", "Male", "Mouth_Slightly_Open", "Mustache",
    "Narrow_Eyes", "No_Beard", "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline", "Rosy_Cheeks",
    "Sideburns", "Smiling", "Straight_Hair", "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat", "Wearing_Lipstick",
    "Wearing_Necklace", "Wearing_Necktie", "Young",
)  # fmt: skip
PARTS = (
    "back", "beak", "belly", "breast", "crown", "forehead", "left eye", "left leg", "left wing", "nape", "right eye",
    "right leg", "right wing", "tail", "throat",
)  # fmt: skip

CELEBA_HQ = DataConfig(kind="celeba-hq", image_size=32, glimpse=8, grid_count=5, annotated=600)
CUB = DataConfig(kind="cub", image_size=32, glimpse=8, grid_spacing=4, annotated=1000)
FOLDER = DataConfig(kind="folder", image_size=32, glimpse=8, grid_count=5, annotated=8)


def celeba_hq(root: Path, *, count: int = 60, size: int = 48, suffix: str = ".jpg", seed: int = 0) -> Path:
    """`root/CelebAMask-HQ` with `count` square pictures; attribute k is a bright square at place k of 7 x 6."""
    folder = root / "CelebAMask-HQ"
    (folder / "CelebA-HQ-img").mkdir(parents=True)
    random = np.random.default_rng(seed)
    labels = random.random((count, 40)) < 0.4
    for index in range(count):
        pixels = random.integers(0, 60, (size, size, 3), dtype=np.uint8)
        for k in np.flatnonzero(labels[index]):
            row, column = k // 6 * size // 7, k % 6 * size // 6
            pixels[row : row + size // 7, column : column + size // 6] = (255, 40 * (k % 6), 30 * (k // 6))
        Image.fromarray(pixels).save(folder / "CelebA-HQ-img" / f"{index}{suffix}")
    lines = [str(count), " ".join(ATTRIBUTES) + " "]
    lines += [f"{n}.jpg  " + " ".join("1" if value else "-1" for value in row) for n, row in enumerate(labels)]
    (folder / "CelebAMask-HQ-attribute-anno.txt").write_text("\n".join(lines) + "\n")
    return root


def cub(
    root: Path, *, classes: int = 3, per_class: int = 10, suffix: str = ".jpg", own_attributes: bool = False
) -> Path:
    """`root/CUB_200_2011` with full pictures of various sizes; every second image is an official training image.

    A bird is an ellipse in its class's colour that fills its bounding box; its parts lie on a line through the box.
    """
    folder = root / "CUB_200_2011"
    (folder / "parts").mkdir(parents=True)
    (folder / "attributes").mkdir()
    random = np.random.default_rng(0)
    texts: dict[str, list[str]] = {}
    colours = random.integers(120, 256, (classes, 3))
    names = [f"{k + 1:03}.Bird_{chr(65 + k)}" for k in range(classes)]
    id = 0
    for k, name in enumerate(names):
        (folder / "images" / name).mkdir(parents=True)
        for n in range(per_class):
            id += 1
            width, height = int(random.integers(80, 140)), int(random.integers(70, 120))
            w, h = (float(random.integers(20, side - 10)) for side in (width, height))
            x, y = float(random.integers(0, width - int(w))), float(random.integers(0, height - int(h)))
            rows, columns = np.mgrid[:height, :width]
            bird = ((columns - x - w / 2) / (w / 2)) ** 2 + ((rows - y - h / 2) / (h / 2)) ** 2 <= 1
            pixels = random.integers(0, 80, (height, width, 3), dtype=np.uint8)
            pixels[bird] = colours[k]
            Image.fromarray(pixels).save(folder / "images" / name / f"Bird_{n:04}_{id}{suffix}")
            add = {
                "images.txt": f"{id} {name}/Bird_{n:04}_{id}{suffix}",
                "image_class_labels.txt": f"{id} {k + 1}",
                "train_test_split.txt": f"{id} {id % 2}",
                "bounding_boxes.txt": f"{id} {x} {y} {w} {h}",
            }
            for file, line in add.items():
                texts.setdefault(file, []).append(line)
            for p in range(15):
                seen = p != id % 15  # one part an image is hidden, and then has no place
                place = f"{x + w * (p + 0.5) / 15:.1f} {y + h * (p + 0.5) / 15:.1f} 1" if seen else "0.0 0.0 0"
                texts.setdefault("parts/part_locs.txt", []).append(f"{id} {p + 1} {place}")
            if own_attributes:
                # the original file has lines with a field too many
                texts.setdefault("attributes/image_attribute_labels.txt", []).extend(
                    f"{id} {a + 1} {int((id + a) % 3 == 0)} 3 {'1.0 0' if a == 2 else '1.0'}" for a in range(312)
                )
    texts["classes.txt"] = [f"{k + 1} {name}" for k, name in enumerate(names)]
    texts["parts/parts.txt"] = [f"{p + 1} {name}" for p, name in enumerate(PARTS)]
    shares = random.integers(0, 101, (classes, 312))
    texts["attributes/class_attribute_labels_continuous.txt"] = [" ".join(map(str, row)) for row in shares]
    for file, text in texts.items():
        (folder / file).write_text("\n".join(text) + "\n")
    return root


def folder(root: Path, *, classes: Sequence[str] = ("cat", "dog"), per_class: int = 12, suffix: str = ".png") -> Path:
    """One folder a class, with pictures of various sizes in the class's colour."""
    random = np.random.default_rng(1)
    for k, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for n in range(per_class):
            height, width = random.integers(30, 60, 2)
            pixels = random.integers(0, 100, (height, width, 3), dtype=np.uint8)
            pixels[..., k % 3] += 120
            Image.fromarray(pixels).save(root / name / f"{n}{suffix}")
    return root


def labels_csv(root: Path, rows: Sequence[Sequence[str]], header: Sequence[str] = ("image", "label")) -> Path:
    """`root/labels.csv`."""
    path = root / "labels.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def zipped(folder: Path, archive: Path, *, names: Sequence[str], method: int = zipfile.ZIP_STORED) -> Path:
    """Move what lies below `names` of `folder` into a zip archive, under the folder's own name."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", method) as opened:
        for name in names:
            top = folder / name
            for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
                if path.is_file():
                    opened.write(path, f"{folder.name}/{path.relative_to(folder).as_posix()}")
                    path.unlink()
    return archive
