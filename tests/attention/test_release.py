"""The authors' released network, layer by layer from torch.nn, against the embedder `release`."""

import numpy as np
import pytest
import torch
from torch import nn

from nogs.attention.architecture import Architecture
from nogs.attention.network import Networks
from nogs.attention.stacked import batch_norm
from nogs.glimpse import Grid
from toy_attention import select

FACES = Architecture(Grid.celeba_hq(), glimpses=5, labels=2, embedder="release")


class Released(nn.Module):
    """Layers, sizes and order as in the release; it is never put into evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.glimpse = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=1, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU6(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU6(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(512, 128),
            nn.ReLU(),
            nn.Linear(128, 64),
            nn.BatchNorm1d(64),
        )
        self.location = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 64), nn.BatchNorm1d(64))
        self.rnn = nn.GRU(64, 64)
        self.first = nn.Parameter(torch.randn(64))
        self.policy = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2500))
        self.classifier, self.baseline = nn.Linear(64, 2), nn.Linear(64, 1)

    def look(self, images, locations):
        """Logits of the labels after these locations; of each step the policy's log-probability and the baseline."""
        state, chosen, baselines = self.first.repeat(1, len(images), 1), [], []
        for location in locations.T:
            chosen.append(self.policy(state[0]).log_softmax(-1).gather(1, location[:, None])[:, 0])
            baselines.append(self.baseline(state[0])[:, 0])
            pixels = [divmod(int(place), 50) for place in location]
            corners = np.linspace(0, 207, 50).astype(int)[np.array(pixels)]
            glimpses = [image[r : r + 16, c : c + 16] for image, (r, c) in zip(images, corners)]
            patches = torch.stack(glimpses).permute(0, 3, 1, 2) / 255 * 2 - 1
            where = torch.from_numpy(corners / 208 * 2 - 1).float()
            seen = torch.relu(self.glimpse(patches) + self.location(where))
            state = self.rnn(seen[None], state)[1]
        return self.classifier(state[0]), torch.stack(chosen, 1), torch.stack(baselines, 1)


def named(released):
    """Our names of its parameters."""
    glimpse, location = released.glimpse, released.location
    layers = {
        "norm1": glimpse[1], "norm2": glimpse[4], "dense": glimpse[8], "project": glimpse[10],
        "project_norm": glimpse[11], "place1": location[0], "place2": location[2], "place_norm": location[3],
        "locate1": released.policy[0], "locate2": released.policy[2], "classify": released.classifier,
        "baseline": released.baseline,
    }  # fmt: skip
    out = {"conv1_weight": glimpse[0].weight, "conv2_weight": glimpse[3].weight, "initial_state": released.first}
    for name, layer in layers.items():
        kinds = ("scale", "shift") if "norm" in name else ("weight", "bias")
        out |= {f"{name}_{kinds[0]}": layer.weight, f"{name}_{kinds[1]}": layer.bias}
    for name, end in (("input", "ih_l0"), ("state", "hh_l0")):
        out |= {f"{name}_{kind}": getattr(released.rnn, f"{kind}_{end}") for kind in ("weight", "bias")}
    return out


def test_the_release_preset_has_the_releases_parameters():
    assert sum(p.numel() for p in Networks(FACES).parameters()) == 191_319
    assert sum(p.numel() for p in Released().parameters()) == 191_319


def test_forward_pass_and_gradients_are_the_releases_in_training_and_after_it():
    torch.manual_seed(0)
    released, networks = Released(), Networks(FACES, seeds=[0, 1])
    theirs = named(released)
    with torch.no_grad():
        for layer in released.modules():  # away from 1 and 0, so that each scale and shift counts
            if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
                layer.weight.uniform_(0.5, 2)
                layer.bias.uniform_(-1, 1)
        for name, parameter in networks.named_parameters():
            parameter[1].copy_(theirs[name.split(".")[1]])
    images = torch.randint(0, 256, (12, 224, 224, 3), dtype=torch.uint8)
    locations = torch.randint(0, 2500, (12, 5))
    rows, forced = torch.arange(12).expand(2, -1), locations.expand(2, -1, -1)
    expected = released.look(images, locations)
    for found in (networks, select(networks, [1]), select(networks, [1]).eval()):
        rollout = found(images, rows[: len(found)], forced=forced[: len(found)])
        for ours, their in zip((rollout.logits, rollout.log_probabilities, rollout.baselines), expected):
            torch.testing.assert_close(ours[-1], their, rtol=1e-4, atol=1e-4)
    alone = select(networks, [1])
    alone(images, rows[:1], forced=forced[:1]).logits.logsumexp(-1).sum().backward()
    released.zero_grad()
    released.look(images, locations)[0].logsumexp(-1).sum().backward()
    for part in (alone.embed_parameters, alone.core_parameters):
        for name, parameter in part.items():
            torch.testing.assert_close(parameter.grad[0], theirs[name].grad, rtol=1e-2, atol=1e-4, msg=name)


@pytest.mark.parametrize("shape", [(1, 1, 8), (1, 5, 8), (3, 5, 8), (1, 4, 3, 3, 8), (2, 4, 3, 3, 8)])
def test_each_network_is_normalised_by_its_own_batch(shape):
    """Also by that of a single value, which torch's batch norm refuses."""
    x, scale, shift = torch.randn(shape), torch.rand(shape[0], 8), torch.randn(shape[0], 8)
    found = batch_norm(x, scale, shift)
    for m, values in enumerate(x.double().flatten(1, -2)):
        centred = values - values.mean(0)
        expected = centred / (centred.square().mean(0) + 1e-5).sqrt() * scale[m] + shift[m]
        torch.testing.assert_close(found[m].flatten(0, -2).double(), expected, rtol=1e-4, atol=1e-5)
