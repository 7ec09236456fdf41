import io
import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from nogs.data import LabelSpace, Parts, Task
from nogs.data.inspect import contact_sheet, describe
from nogs.glimpse import Grid


def task(*, kind="categorical", parts=None, boxes=None, number=10, notes=()):
    rng = np.random.default_rng(0)
    ids = tuple(f"i{n}" for n in range(number))
    if kind == "categorical":
        labels, names = np.arange(number, dtype=np.int64) % 3, ("ant", "bee", "a_very_long_name_of_a_class_of_insects")
    else:
        labels, names = np.zeros((number, 4), np.uint8), ("Hat", "Smiling", "Wet_hair", "Young")
        labels[:, 3], labels[:4, 1], labels[:2, 0] = 1, 1, 1
    return Task(
        name="insects",
        images=rng.integers(0, 256, (number, 24, 24, 3), dtype=np.uint8),
        ids=ids,
        labels=labels,
        space=LabelSpace(kind, names),
        splits={
            "train": ids[:-2],
            "validation": ids[-2:-1],
            "test": ids[-1:],
            "annotate": ids[:2],
            "posterior": ids[2:-2],
        },
        grid=Grid.spaced(image=24, glimpse=8, spacing=4),
        fingerprint="f",
        parts=parts,
        boxes=boxes,
        notes=notes,
    )


def test_description_counts_classes_and_splits():
    found = describe(task(notes=("2 images skipped",)))
    assert found["images"] == 10
    assert found["labels"]["all"] == {"ant": 4, "bee": 3, "a_very_long_name_of_a_class_of_insects": 3}
    assert found["labels"]["train"] == {"ant": 3, "bee": 3, "a_very_long_name_of_a_class_of_insects": 2}
    assert found["splits"] == {"train": 8, "validation": 1, "test": 1, "annotate": 2, "posterior": 6}
    assert found["grid"] == {"glimpse": 8, "rows": 5, "columns": 5, "locations": 25, "share_of_image": 0.11111}
    assert found["notes"] == ["2 images skipped"]
    assert json.loads(json.dumps(found)) == found


def test_description_counts_images_with_each_attribute():
    found = describe(task(kind="bernoulli"))
    assert found["labels"]["kind"] == "bernoulli"
    assert found["labels"]["all"] == {"Hat": 2, "Smiling": 4, "Wet_hair": 0, "Young": 10}


def titles(figure):
    return [axes.get_title() for axes in figure.axes]


def test_sheet_shows_each_training_image_once_with_its_class():
    figure = contact_sheet(task(), count=25, glimpses=3)
    assert sorted(title for title in titles(figure) if title in ("ant", "bee")) == ["ant"] * 3 + ["bee"] * 3
    assert sum(title.startswith("a very long name") and title.endswith("…") for title in titles(figure)) == 2
    assert len(figure.axes) == 8 + 1 + 3


def test_sheet_names_the_rarest_attribute():
    captions = titles(contact_sheet(task(kind="bernoulli"), count=8, glimpses=2))[:8]
    assert sorted(captions) == ["Hat +2"] * 2 + ["Smiling +1"] * 2 + ["Young"] * 4


@pytest.mark.parametrize("marks", ["none", "boxes", "parts", "invisible parts"])
def test_example_glimpses_lie_on_the_grid(marks):
    boxes = np.tile(np.array([[3, 4, 9, 11]], np.float32), (10, 1)) if marks == "boxes" else None
    positions = np.random.default_rng(1).uniform(0, 24, (10, 4, 2)).astype(np.float32)
    visible = np.full((10, 4), marks == "parts")
    parts = Parts(("a", "b", "c", "d"), positions, visible) if "parts" in marks else None
    made = task(boxes=boxes, parts=parts)
    figure = contact_sheet(made, count=6, glimpses=5)
    large = figure.axes[6]
    corners = [patch.get_xy() for patch in large.patches if isinstance(patch, Rectangle) and patch.get_width() == 8]
    assert len(corners) == 5
    assert all(column + 0.5 in made.grid.columns and row + 0.5 in made.grid.rows for column, row in corners)


def test_sheet_is_the_same_for_the_same_seed():
    def png(seed):
        file = io.BytesIO()
        contact_sheet(task(), seed=seed, count=4, glimpses=2).savefig(file, format="png")
        return file.getvalue()

    assert png(0) == png(0)
    assert png(0) != png(1)


def test_one_training_image_makes_a_sheet():
    assert len(contact_sheet(task(number=5), count=1, glimpses=1).axes) == 3


def test_names_of_classes_are_not_taken_for_tex():
    made = task()
    names = (r"$\frac$", "a$^$", *made.space.names[2:])
    made = replace(made, space=LabelSpace("categorical", names))
    contact_sheet(made, count=9, glimpses=2).savefig(io.BytesIO(), format="png")
