import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import FakeData, ImageFolder
from torchvision.transforms import Compose, Normalize, ToTensor

import miniature
from nogs.data import from_datasets, from_torchvision
from nogs.data.images import Preparation, decode
from nogs.glimpse import Grid
from nogs.runtime.errors import InputError

GRID = Grid.even(image=24, glimpse=8, count=5)
RANDOM = np.random.default_rng(0)


def noise(*shape):
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


class Pairs:
    """A minimal torchvision dataset."""

    def __init__(self, images, labels, classes=None):
        self.images, self.labels = images, labels
        if classes:
            self.classes = classes

    def __len__(self):
        return len(self.images)

    def __getitem__(self, n):
        return self.images[n], self.labels[n]


def test_image_folder_becomes_the_task_of_its_files(tmp_path):
    dataset = ImageFolder(miniature.folder(tmp_path, per_class=20))
    task = from_torchvision(dataset, grid=GRID, annotated=6)
    assert (task.name, task.space.names, len(task.ids)) == ("imagefolder", ("cat", "dog"), 40)
    for n, (path, label) in enumerate(dataset.samples):
        with open(path, "rb") as file:
            expected = decode(file.read(), Preparation(24, fit="crop", upright=True)).pixels
        assert np.array_equal(task.images[n], expected)
        assert task.labels[n] == label
    assert [len(task.splits[split]) for split in ("train", "validation", "test", "annotate")] == [28, 4, 8, 6]
    for split in ("validation", "test"):
        assert np.bincount(task.labels[task.rows(split)]).tolist() == [len(task.splits[split]) // 2] * 2


def test_splits_that_are_given_are_kept():
    parts = [FakeData(size, image_size=(3, 24, 24), num_classes=3) for size in (20, 6, 8)]
    task = from_torchvision(parts[0], validation=parts[1], test=parts[2], grid=GRID, annotated=4, name="fake")
    assert (task.name, task.space.names) == ("fake", ("0", "1", "2"))
    assert task.splits["test"] == tuple(f"test/{n}" for n in range(8))
    assert [len(task.splits[split]) for split in ("train", "validation", "test")] == [20, 6, 8]
    assert np.array_equal(task.images[task.position["test/3"]], np.asarray(parts[2][3][0]))


def test_tensors_and_arrays_are_the_same_pixels():
    images = noise(30, 24, 24, 3)
    labels = [n % 2 for n in range(30)]
    plain = from_torchvision(Pairs([Image.fromarray(x) for x in images], labels), grid=GRID, annotated=4)
    tensors = Pairs([ToTensor()(x) for x in images], [torch.tensor(label) for label in labels])
    arrays = Pairs(list(images), labels)
    bytes_first = Pairs([torch.from_numpy(x).permute(2, 0, 1) for x in images], labels)
    for other in (tensors, arrays, bytes_first):
        task = from_torchvision(other, grid=GRID, annotated=4)
        assert np.array_equal(task.images, images)
        assert task.fingerprint == plain.fingerprint
        assert np.array_equal(task.labels, labels)


def test_grey_images_are_said():
    task = from_torchvision(Pairs(list(noise(30, 28, 28)), [n % 3 for n in range(30)]), grid=GRID, annotated=4)
    assert task.images.shape == (30, 24, 24, 3)
    assert "30 images: grey." in task.notes


def test_vectors_of_0_and_1_are_attributes():
    """As torchvision's CelebA has them, with an empty name at the end."""
    labels = torch.from_numpy(RANDOM.integers(0, 2, (30, 2)))
    dataset = Pairs(list(noise(30, 24, 24, 3)), labels)
    dataset.attr_names = ["Smiling", "Male", ""]
    task = from_torchvision(dataset, grid=GRID, annotated=4)
    assert (task.space.kind, task.space.names) == ("bernoulli", ("Smiling", "Male"))
    assert np.array_equal(task.labels, labels)


def test_normalised_images_and_odd_entries_are_refused():
    normalised = FakeData(30, (3, 24, 24), 2, transform=Compose([ToTensor(), Normalize(0.5, 0.25)]))
    with pytest.raises(InputError, match=r"Image 0 of the split 'train' can't be used .*without Normalize"):
        from_torchvision(normalised, grid=GRID)
    with pytest.raises(InputError, match=r"The label of image 0 of the split 'train' is \{\}; give a class or attr"):
        from_torchvision(Pairs(list(noise(3, 24, 24, 3)), [{}, {}, {}]), grid=GRID)
    with pytest.raises(InputError, match="All images have the same label"):
        from_torchvision(Pairs(list(noise(3, 24, 24, 3)), [0, 0, 0]), grid=GRID)
    with pytest.raises(InputError, match="label 2 but only 2 class names"):
        from_torchvision(Pairs(list(noise(3, 24, 24, 3)), [0, 1, 2], classes=["a", "b"]), grid=GRID)
    with pytest.raises(InputError, match="Image 1 of the split 'train' has the label -1"):
        from_torchvision(Pairs(list(noise(3, 24, 24, 3)), [0, -1, 2]), grid=GRID)
    with pytest.raises(InputError, match=r"not a pair \(image, label\)"):
        from_torchvision([1, 2], grid=GRID)
    with pytest.raises(InputError, match=r"The dataset has no image\."):
        from_torchvision(Pairs([], []), grid=GRID)
    with pytest.raises(InputError, match="pictures are made square"):
        from_torchvision(normalised, grid=Grid.even(image=(24, 32), glimpse=8, count=3))


def split(count, *, names=("crow", "tit"), seed=0):
    """A split of `datasets`, in memory."""
    random = np.random.default_rng(seed)
    columns = {
        "picture": [Image.fromarray(random.integers(0, 256, (24, 24, 3), dtype=np.uint8)) for _ in range(count)],
        "kind": [n % len(names) for n in range(count)],
        "wings": [n % 2 for n in range(count)],
    }
    kinds = {
        "picture": datasets.Image(),
        "kind": datasets.ClassLabel(names=list(names)),
        "wings": datasets.Value("int8"),
    }
    return datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))


def test_split_of_datasets_becomes_a_task():
    part = split(30)
    task = from_datasets(part, image="picture", label="kind", grid=GRID, annotated=4)
    assert task.space.names == ("crow", "tit")
    assert np.array_equal(task.labels, part["kind"])
    assert all(np.array_equal(task.images[n], np.asarray(part[n]["picture"])) for n in range(30))


def test_dictionary_of_splits_gives_them_all():
    both = datasets.DatasetDict(train=split(20), test=split(8, seed=1))
    task = from_datasets(both, image="picture", label="kind", grid=GRID, annotated=4)
    assert task.splits["test"] == tuple(f"test/{n}" for n in range(8))
    assert len(task.splits["train"]) + len(task.splits["validation"]) == 20
    with pytest.raises(InputError, match="The splits are test; one of them must be 'train'"):
        from_datasets(datasets.DatasetDict(test=split(8)), image="picture", label="kind", grid=GRID)


def test_several_label_columns_are_attributes_and_names_may_be_labels():
    task = from_datasets(split(20), image="picture", label=["wings", "kind"], grid=GRID, annotated=4)
    assert (task.space.kind, task.space.names) == ("bernoulli", ("wings", "kind"))
    named = split(20).map(lambda row: {"kind_name": ("tit", "crow")[row["kind"]]})
    task = from_datasets(named, image="picture", label="kind_name", grid=GRID, annotated=4)
    assert task.space.names == ("crow", "tit")
    assert [task.space.names[n] for n in task.labels] == named["kind_name"]


def test_streamed_split_is_read_to_its_end():
    stream = split(20).to_iterable_dataset()
    task = from_datasets(stream, image="picture", label="kind", grid=GRID, annotated=4)
    assert np.array_equal(task.images, from_datasets(split(20), image="picture", label="kind", grid=GRID).images)


def test_missing_column_is_named():
    with pytest.raises(InputError, match="The split 'train' has no column 'image'; it has picture, kind, wings"):
        from_datasets(split(4), grid=GRID)
