from dataclasses import replace

import numpy as np
import pytest

import miniature
from nogs.attention.config import AttentionConfig
from nogs.attention.methods import METHODS, ON_POSTERIOR, Inputs, make_members, needs_heuristic
from nogs.data.task import Parts
from nogs.runtime.errors import InputError
from nogs.sequences import save
from toy_attention import toy_sequences, toy_task

PRETRAINED = AttentionConfig(pretrain_epochs=2, supervision_weight=4.0)


@pytest.fixture
def task():
    """A toy task whose images have a bird's parts, and of which ten are to be annotated."""
    made = toy_task()
    random = np.random.default_rng(0)
    parts = Parts(miniature.PARTS, random.uniform(0, 24, (40, 15, 2)).astype(np.float32), np.ones((40, 15), bool))
    return replace(made, parts=parts, splits={**made.splits, "annotate": made.splits["train"][:10]})


@pytest.fixture
def inputs(task, tmp_path):
    save(toy_sequences(task, task.splits["train"][4:12]), tmp_path / "toy")
    np.save(tmp_path / "map.npy", np.linspace(0, 1, len(task.grid)))
    return Inputs(sequences=tmp_path, heuristic=tmp_path / "map.npy")


PAPER = tuple(method for method in METHODS if method not in ON_POSTERIOR)


def make(task, methods, inputs, config=PRETRAINED, **more):
    return make_members(task, methods, seeds=(0, 5), config=config, glimpses=3, inputs=inputs, **more)


def test_every_supervised_method_has_the_images_of_the_given_sequences(task, inputs):
    found = make(task, PAPER, inputs)
    assert [(member.method, member.seed) for member in found] == [(m, seed) for m in PAPER for seed in (0, 5)]
    for member in found:
        if member.method.startswith("ps-"):
            assert member.sequences.ids == task.splits["train"][4:12]
            assert member.weight == 4.0
        else:
            assert member.sequences is None
    own = {m.method: m.sequences.indices().tobytes() for m in found if m.sequences is not None}
    assert len(set(own.values())) == 4


def test_without_given_sequences_the_images_to_annotate_are_supervised(task, inputs):
    for member in make(task, ["ps-h1", "ps-h5", "ps-hgs"], Inputs(heuristic=inputs.heuristic)):
        assert member.sequences.ids == task.splits["annotate"]
    with pytest.raises(InputError, match=r"has no images to supervise for ps-h1; raise data\.annotated"):
        make(replace(task, splits={**task.splits, "annotate": ()}), ["ps-h1"], Inputs(heuristic=inputs.heuristic))


def test_each_method_is_pretrained_with_its_distribution(task, inputs):
    for member in make(task, PAPER, inputs):
        plain = member.method == "ram"
        assert member.pretraining.name == ("uniform" if plain else "heuristic")
        spread = np.ptp(member.pretraining.log_probabilities)
        assert spread == pytest.approx(0 if plain else 1.0)  # of a map from 0 to 1
    whole = AttentionConfig()
    for member in make(task, [m for m in PAPER if m != "ram+"], inputs, config=whole):
        assert member.pretraining is None


def test_heuristic_is_read_by_those_that_need_it():
    whole = AttentionConfig()
    assert [m for m in METHODS if needs_heuristic(m, whole)] == ["ps-h1", "ps-h5"]
    assert [m for m in METHODS if not needs_heuristic(m, PRETRAINED)] == ["ram", *ON_POSTERIOR]


def test_sharper_heuristic_draws_more_salient_locations(task, inputs):
    found = {m.method: m.sequences.indices().mean() for m in make(task, ["ps-h1", "ps-h5"], inputs)}
    assert found["ps-h5"] < found["ps-h1"]  # the map grows with the index
