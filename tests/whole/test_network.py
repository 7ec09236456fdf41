"""The content of a reference's files, recomputed with plain torch operations from the saved weights."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

import miniature
from nogs.data import DataConfig, load_task
from nogs.posterior.config import PosteriorConfig
from nogs.runtime.device import one_thread
from nogs.runtime.files import read_json
from nogs.runtime.metrics import read_metrics
from nogs.whole import WholeConfig, train_whole

DIGITS = DataConfig(kind="digits", image_size=35, glimpse=8, grid_spacing=8, count=120, annotated=4)
PLAIN = PosteriorConfig(flip=False)
MEAN, STD = (torch.tensor(x, dtype=torch.float64).view(3, 1, 1) for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


@pytest.fixture(autouse=True, scope="module")
def quick():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def digits():
    return load_task(DIGITS)


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    root = tmp_path_factory.mktemp("faces")
    miniature.celeba_hq(root, count=60)
    return load_task(miniature.CELEBA_HQ, data=root, cache=root / "cache", workers=1)


def weights_of(folder):
    return {name: value.double() for name, value in load_file(folder / "network.safetensors").items()}


def normed(x, weights, name, scale=True):
    """Batch norm by its formula, with the running mean and variance."""
    spread = (-1, *(1,) * (x.ndim - 2))
    mean, variance = weights[f"{name}.running_mean"], weights[f"{name}.running_var"]
    x = (x - mean.view(spread)) / (variance.view(spread) + 1e-5).sqrt()
    return x * weights[f"{name}.weight"].view(spread) + weights[f"{name}.bias"].view(spread) if scale else x


def halves(x):
    """The mean over each cell of 2 x 2 pixels, of those that lie inside."""
    rows, columns = x.shape[2:]
    return torch.stack(
        [
            torch.stack([x[:, :, r : r + 2, c : c + 2].mean((2, 3)) for c in range(0, columns, 2)], -1)
            for r in range(0, rows, 2)
        ],
        -2,
    )


def cells(x):
    """The mean over each of 4 x 4 cells, which share rows and columns where the side is no multiple of four."""
    rows, columns = ([slice(n * side // 4, -(-(n + 1) * side // 4)) for n in range(4)] for side in x.shape[2:])
    return torch.stack([torch.stack([x[:, :, r, c].mean((2, 3)) for c in columns], -1) for r in rows], -2)


def residual(x, w):
    def conv(x, name, **how):
        return F.conv2d(x, w[f"{name}.weight"], **how)

    x = normed(conv(x, "features.stem", stride=2, padding=1), w, "features.stem_norm").relu()
    blocks = 1 + max(int(name.split(".")[2]) for name in w if name.startswith("features.blocks."))
    for n in range(blocks):
        at = f"features.blocks.{n}"
        deep = normed(conv(x, f"{at}.first", stride=2, padding=1), w, f"{at}.first_norm").relu()
        deep = normed(conv(deep, f"{at}.second", padding=1), w, f"{at}.second_norm")
        x = (deep + normed(conv(halves(x), f"{at}.shortcut"), w, f"{at}.shortcut_norm")).relu()
    return x


def vgg(x, w):
    """The first three convolutions, with the pool between the second and the third."""
    x = F.interpolate(x, scale_factor=2, mode="bilinear")
    for n in (0, 2, 5):
        if n == 5:
            x = F.max_pool2d(x, 2)
        x = F.conv2d(x, w[f"features.layers.{n}.weight"], w[f"features.layers.{n}.bias"], padding=1).relu()
    return x


def plain_logits(task, split, w, features):
    x = torch.from_numpy(np.array(task.images[task.rows(split)])).double().permute(0, 3, 1, 2) / 255
    maps = features((x - MEAN) / STD, w)
    pooled = [maps.mean((2, 3)), maps.amax((2, 3))]
    if len(w["norm.running_mean"]) > 2 * maps.shape[1]:  # frozen features, also over 4 x 4 cells
        pooled.append(cells(maps).flatten(1))
    pooled = torch.cat(pooled, 1)
    return normed(pooled, w, "norm", scale=False) @ w["classify.weight"].T + w["classify.bias"]


def plain_scores(task, split, w, features):
    """The entries of `tests` or `validations`, image by image, and the mean cross-entropy before calibration."""
    logits, labels, scale = plain_logits(task, split, w, features), task.labels[task.rows(split)], None
    found, raw = {}, []
    several = task.space.kind == "bernoulli"
    for v, name in enumerate(task.space.names if several else ("",)):
        answers = [[0.0, z] for z in logits[:, v].tolist()] if several else logits.tolist()
        truth, scale = (labels[:, v] if several else labels).tolist(), float(w["inverse_temperature"][v])
        chances = []
        for factor in (scale, 1.0):
            tops = [[math.exp(factor * z) for z in row] for row in answers]
            chances.append([row[k] / sum(row) for row, k in zip(tops, truth)])
        right = [row.index(max(row)) == k for row, k in zip(answers, truth)]
        by_class = [np.mean([r for r, k in zip(right, truth) if k == label]) for label in sorted(set(truth))]
        found[name] = {
            "accuracy": np.mean(right),
            "balanced_accuracy": np.mean(by_class),
            "nll": -np.mean(np.log(chances[0])),
        }
        raw.append(-np.mean(np.log(chances[1])))
    return found, np.mean(raw)


def check(task, folder, features):
    w, said = weights_of(folder), read_json(folder / "evaluation.json")
    assert said["inverse_temperature"] == pytest.approx(w["inverse_temperature"].tolist())
    for split, key in (("test", "tests"), ("validation", "validations")):
        expected, raw = plain_scores(task, split, w, features)
        assert said[key].keys() == expected.keys()
        for name, scores in expected.items():
            assert said[key][name] == pytest.approx(scores, abs=2e-4), (split, name)
    # the version that is kept is the best on the validation images, which these came last
    lines = read_metrics(folder)
    best = min(lines, key=lambda line: line["validation_cross_entropy"])
    assert best["step"] == said["best_iteration"]
    assert raw == pytest.approx(best["validation_cross_entropy"], abs=2e-4)
    return said


def test_scores_of_a_residual_network_are_those_of_plain_layers(digits, tmp_path):
    config = WholeConfig(iterations=12, batch=16, width=3, learning_rate=0.03)
    train_whole(digits, config=config, posterior=PLAIN, folder=tmp_path, seed=3, device="cpu")
    said = check(digits, tmp_path, residual)
    assert said["iterations"] == 12
    w = weights_of(tmp_path)
    learned = [x for name, x in w.items() if name.endswith(("weight", "bias"))]
    assert said["parameters"] == sum(x.numel() for x in learned)
    assert w["features.blocks.1.second.weight"].shape == (12, 12, 3, 3)  # 35 px: 18, 9 and 5 px
    assert "features.blocks.2.first.weight" not in w


def test_one_network_of_all_attributes_has_a_score_and_a_temperature_for_each(faces, tmp_path):
    config = WholeConfig(iterations=10, batch=16, width=4)
    train_whole(faces, config=config, posterior=PosteriorConfig(), folder=tmp_path, device="cpu")
    said = check(faces, tmp_path, residual)
    assert list(said["tests"]) == list(faces.space.names)
    logits = plain_logits(faces, "validation", weights_of(tmp_path), residual)
    labels = torch.from_numpy(faces.labels[faces.rows("validation")]).double()
    for k in (0, 20, 39):  # no other factor is better
        grid = torch.logspace(math.log10(0.05), math.log10(20), 2000, dtype=torch.float64)
        losses = F.binary_cross_entropy_with_logits(
            logits[:, k, None] * grid, labels[:, k, None].expand(-1, len(grid)), reduction="none"
        ).mean(0)
        assert said["inverse_temperature"][k] == pytest.approx(float(grid[losses.argmin()]), rel=0.01)


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_scores_of_vgg_features_are_those_of_plain_layers(tmp_path, rate, vgg_file):
    task = load_task(DIGITS.model_copy(update={"image_size": 20, "count": 60}))
    posterior = vgg_file(tmp_path / "vgg.safetensors")
    config = WholeConfig(iterations=6, batch=16, pretrained_rate=rate)
    train_whole(task, config=config, posterior=posterior, folder=tmp_path / "out", device="cpu")
    said = check(task, tmp_path / "out", vgg)
    assert said["network"].startswith("first 3 convolutions of VGG-16 from ImageNet, ")
    before, after = load_file(tmp_path / "vgg.safetensors"), weights_of(tmp_path / "out")
    same = [torch.equal(before[name].double(), after[name.replace(".", ".layers.", 1)]) for name in before]
    assert all(same) if rate == 0 else not any(same)


def test_easy_pictures_are_learned(tmp_path):
    root = miniature.folder(tmp_path / "pictures", classes=("cat", "dog", "owl"), per_class=20)
    task = load_task(miniature.FOLDER, data=root, cache=tmp_path / "cache", workers=1)
    config = WholeConfig(iterations=40, batch=16, width=8)
    train_whole(task, config=config, posterior=PosteriorConfig(), folder=tmp_path / "out", device="cpu")
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert found["tests"][""]["accuracy"] == 1
    shuffled = replace(task, labels=np.random.default_rng(0).permutation(task.labels), fingerprint="shuffled")
    train_whole(shuffled, config=config, posterior=PosteriorConfig(), folder=tmp_path / "no", device="cpu")
    assert json.loads((tmp_path / "no" / "evaluation.json").read_text())["tests"][""]["accuracy"] < 0.8
