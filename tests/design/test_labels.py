"""`design.label_share`: what is minimised is, in part, the cross-entropy of the completions' own labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import worlds
from exact_design import ExactCompletion, ExactPosterior
from nogs.design.config import DesignConfig
from nogs.design.entropies import Entropies
from nogs.design.epe import weighted
from nogs.design.steps import Tools, annotate_images, first_step


class Labelled(ExactCompletion):
    """Completions that name the image of the world that they show."""

    def complete(self, images, pixels, *, ids):
        found = super().complete(images, pixels, ids=ids)
        return replace(found, sources=found.rows)


class Boasting(ExactPosterior):
    """The exact posterior, but after a look at one place it is sure of the first label, whatever it has seen."""

    boasts_at = torch.tensor(worlds.N)

    def look_ahead(self, images, pixels, candidates, **options):
        answers = super().look_ahead(images, pixels, candidates, **options)
        there = (candidates.expand(len(pixels), -1, 2) == self.boasts_at).all(-1)
        sure = torch.tensor([0.98, 0.01, 0.01]).log().expand_as(answers)
        return torch.where(there[..., None, None], sure, answers)


def of(world, image, pixels, **options):
    images = torch.from_numpy(world.images[[image]])
    where = torch.tensor(pixels, dtype=torch.int64).reshape(1, -1, 2)
    completions = Labelled(world).complete(images, where, ids=["one"])
    tools = Tools(ExactPosterior(world), Labelled(world), torch.device("cpu"), torch.from_numpy(world.labels)[:, None])
    labels = tools.labels_of(completions)
    found = Entropies(tools.posterior, completions, where, objectives=[(0,)], labels=labels, **options)
    found.fill(torch.ones(1, len(found.candidates), dtype=torch.bool))
    used = found.used[0]
    return found.values[0, :used], found.weights[0, :used]


@pytest.mark.parametrize("pixels", [[], [worlds.A], [worlds.P, worlds.H]])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_a_true_posterior_expects_the_same_of_both(world, pixels, share):
    values, weights = of(world, 41, pixels, share=share)
    glimpses = np.array([world.images[41][r : r + 4, c : c + 4] for r, c in pixels], np.uint8).reshape(-1, 4, 4, 3)
    exact = worlds.exact_epe(world, glimpses, np.array(pixels).reshape(-1, 2))
    np.testing.assert_allclose(weighted(values, weights)[0], exact, atol=1e-6)


def test_a_share_lies_between_entropy_and_cross_entropy_of_every_completion(world):
    (entropy, _), (part, _), (crossed, _) = (of(world, 41, [worlds.P], share=share) for share in (0.0, 0.3, 1.0))
    torch.testing.assert_close(part, 0.7 * entropy + 0.3 * crossed)
    assert (crossed - entropy).abs().max() > 0.1


def test_a_place_where_the_posterior_boasts_misleads_its_entropy_alone(world):
    labels = torch.from_numpy(world.labels)[:, None]
    tools = Tools(Boasting(world), Labelled(world), torch.device("cpu"), labels)
    boast = int((world.grid.pixels == Boasting.boasts_at).all(1).nonzero()[0, 0])
    chosen = {}
    for share in (0.0, 1.0):
        config = DesignConfig(search="grid", label_share=share, images=2)
        first = first_step(tools, world.images[0], config=config)
        ids, images = ["a", "b"], world.images[[3, 41]]
        found = annotate_images(tools, images, ids, first=first, config=config, glimpses=3)
        chosen[share] = found.locations
    exact = [worlds.greedy_sequence(world, image, 3) for image in world.images[[3, 41]]]
    assert (chosen[0.0] == boast).all()
    np.testing.assert_array_equal(world.grid.pixels.numpy()[chosen[1.0]], exact)
