"""A short run with known losses: a change that moves them changes what the networks learn, and must be intended."""

import pytest
import torch

from nogs.attention.cohort import Member
from nogs.attention.config import AttentionConfig
from nogs.attention.training import LOSSES, Trainer
from nogs.data import DataConfig, load_task
from toy_attention import advance, toy_sequences

GOLDEN = {
    "ram": {
        "classification": [2.36610, 2.27294, 2.33297, 2.27911, 2.28035, 2.29430, 2.29040, 2.24019],
        "reinforce": [-0.91404, 1.97043, 0.54739, 1.94367, 4.61996, 0.50337, 2.94241, 1.29040],
        "baseline": [0.00770, 0.12146, 0.06092, 0.11917, 0.23936, 0.06222, 0.17455, 0.11702],
        "reward": [0.00000, 0.12500, 0.06250, 0.12500, 0.25000, 0.06250, 0.18750, 0.12500],
    },
    "ps-nogs": {
        "classification": [2.29871, 2.29714, 2.37638, 2.30861, 2.25340, 2.31647, 2.23815, 2.26907],
        "reinforce": [-0.76417, -0.56043, -2.11140, -0.60231, 2.57886, -2.25643, 1.31311, -1.65972],
        "baseline": [0.05934, 0.05984, 0.01364, 0.06172, 0.15335, 0.01673, 0.15916, 0.01343],
        "supervision": [6.60739, 5.31810, 3.98148, 3.93324, 9.21520, 2.68097, 1.31148, 9.20646],
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
