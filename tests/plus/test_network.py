import numpy as np
import pytest
import torch

from nogs.glimpse import cut
from nogs.model.classifier import Model
from nogs.model.exporting import agreement, export_onnx
from nogs.plus.looks import context
from small_posteriors import network, untrained


def test_states_are_those_of_the_posterior(task):
    core = untrained(task).network
    tokens = torch.randn(5, 3, 1, 32)
    observed = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 0]], dtype=torch.bool)
    expected = core.context(tokens.flatten(0, 1), observed, [(5, 3)])
    found = context(core.prior, core.blocks, tokens.flatten(1, 2), observed)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("sampled", [False, True])
def test_step_by_step_is_what_it_does_at_once(task, sampled):
    made, _ = network(task, sampled=sampled)
    images, rows = torch.from_numpy(np.array(task.images)), torch.arange(0, 60, 7)
    uniforms = torch.rand(len(rows), 3) if sampled else None
    answers, locations, _ = made.look(images, rows, torch.zeros_like(rows), uniforms=uniforms)
    assert all(len(set(row)) == 3 for row in locations.tolist())  # no location is looked at twice
    state = made.start(len(rows))
    for step in range(3):
        if not sampled:
            assert torch.equal(made.location_logits(state)[0].argmax(-1), locations[:, step])
        else:
            ends = made.location_logits(state)[0].softmax(-1).cumsum(-1)
            drawn = torch.searchsorted(ends, uniforms[:, step, None].contiguous(), right=True)[:, 0]
            assert torch.equal(drawn.clamp(max=len(task.grid) - 1), locations[:, step])
        patches = cut(images, made.pixels[locations[:, step]], glimpse=task.grid.glimpse, index=rows)
        state = made.see(state, patches[None], locations[None, :, step])
        torch.testing.assert_close(made.classify(state)[0].log_softmax(-1), answers[:, step], atol=1e-5, rtol=1e-4)


def test_answers_are_the_posteriors_at_the_same_places(task):
    made, posterior = network(task)
    images, rows = torch.from_numpy(np.array(task.images)), torch.arange(0, 60, 7)
    answers, locations, _ = made.look(images, rows, torch.zeros_like(rows))
    for step in range(3):
        raw = posterior.logits(images, task.grid.pixels[locations[:, : step + 1]], index=rows)
        expected = (raw * made.inverse_temperature[step + 1, 0]).log_softmax(-1)
        torch.testing.assert_close(answers[:, step], expected, atol=1e-5, rtol=1e-4)


def test_an_attribute_has_its_own_way_to_look_and_answer(world):
    task = world.task(kind="bernoulli")
    made, posterior = network(task, variables=(0, 2))
    images, rows = torch.from_numpy(np.array(task.images)), torch.arange(0, 60, 7)
    both = torch.cat([torch.zeros_like(rows), torch.ones_like(rows)])
    answers, locations, _ = made.look(images, torch.cat([rows, rows]), both)
    assert not torch.equal(locations[: len(rows)], locations[len(rows) :])
    for n, variable in enumerate((0, 2)):
        own = slice(n * len(rows), (n + 1) * len(rows))
        logits = posterior.logits(images, task.grid.pixels[locations[own]], index=rows)[:, variable]
        expected = torch.sigmoid(logits * made.inverse_temperature[3, n])
        torch.testing.assert_close(answers[own, -1, 1].exp(), expected, atol=1e-5, rtol=1e-4)


def test_a_model_looks_the_best_way_and_exports_it(task, tmp_path):
    made, _ = network(task)
    about = {"task": task.name, "labels": task.space.names, "method": "ps-nogs+", "attribute": None, "seed": 0}
    model = Model(made, about=about)
    image = np.array(task.images[5])
    answer = model.classify(image)
    found, places, _ = made.look(torch.from_numpy(image)[None], torch.tensor([0]), torch.tensor([0]))
    assert [list(place) for place in answer.locations] == task.grid.pixels[places[0]].tolist()
    assert list(answer.probabilities.values()) == pytest.approx(found[0, -1].exp().tolist(), abs=1e-5)
    assert model.classify(image, policy="sample", looks=9).locations != answer.locations * 9
    path = export_onnx(model, tmp_path / "step.onnx")
    assert agreement(model, path, steps=5) < 1e-4
