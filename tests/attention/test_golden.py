"""A short run whose losses are known: a change that moves them changes what the networks learn, and must be meant."""

import pytest
import torch

from nogs.attention.cohort import Member
from nogs.attention.config import AttentionConfig
from nogs.attention.training import LOSSES, Trainer
from nogs.data import DataConfig, load_task
from toy_attention import advance, toy_sequences

GOLDEN = {
    "ram": {
        "classification": [2.36783, 2.29906, 2.31115, 2.29264, 2.28684, 2.30461, 2.29026, 2.25947],
        "reinforce": [2.83638, 3.95727, 2.40468, 6.35079, 7.59969, 3.58157, 3.50347, 7.34761],
        "baseline": [0.01823, 0.09433, 0.01303, 0.24245, 0.31871, 0.08773, 0.08612, 0.30942],
        "reward": [0.00000, 0.06250, 0.00000, 0.18750, 0.25000, 0.06250, 0.06250, 0.25000],
    },
    "ps-nogs": {
        "classification": [2.30708, 2.29684, 2.37698, 2.32131, 2.25718, 2.32093, 2.26185, 2.27980],
        "reinforce": [-0.18731, -0.18410, -1.86046, -0.48889, 2.58471, -2.10538, 1.47770, -1.40915],
        "baseline": [0.06022, 0.06243, 0.01385, 0.06304, 0.15248, 0.01664, 0.16247, 0.01126],
        "supervision": [6.61955, 5.34041, 4.00019, 3.97600, 9.26481, 2.68497, 1.30435, 9.28104],
        "reward": [0.12500, 0.12500, 0.00000, 0.12500, 0.25000, 0.06250, 0.18750, 0.06250],
    },
}  # fmt: skip


def test_losses_of_a_short_run_on_digits():
    task = load_task(DataConfig(kind="digits", image_size=64, glimpse=12, grid_spacing=4, count=60, annotated=12))
    sequences = toy_sequences(task, task.splits["annotate"], glimpses=4)
    members = [Member("ram"), Member("ps-nogs", seed=1, sequences=sequences, weight=2.0)]
    config = AttentionConfig(batch=16, learning_rate=1e-3, flip=False)
    trainer = Trainer(task, members, config=config, glimpses=4, device=torch.device("cpu"))
    curve = []
    for _ in range(8):
        trainer.sums.zero_()
        advance(trainer, 1)
        curve.append(trainer.sums.T.tolist())
    for m, member in enumerate(members):
        found = {loss: [step[m][n] for step in curve] for n, loss in enumerate(LOSSES)}
        for loss, values in GOLDEN[member.method].items():
            assert found[loss] == pytest.approx(values, abs=1e-4), (member.method, loss)
