"""Trunks: pretrained and frozen embedder, RNN and classifier, shared by the location networks of many methods."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from nogs.attention.cohort import Member
from nogs.attention.config import AttentionConfig
from nogs.attention.embedders import VGGEmbedder
from nogs.attention.network import Networks
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import file_digest
from nogs.supervision.distribution import LocationDistribution

FOLDER, FILE = "pretraining", "network.safetensors"
"""The folder of pretrained networks beside the methods' folders, and the name of their files."""


@dataclass(frozen=True)
class Trunk:
    """A pretraining: its distribution, attribute and seed, and the folder of its network."""

    name: str
    distribution: LocationDistribution
    attribute: str | None
    seed: int


@dataclass(frozen=True)
class Frozen:
    """Pretrained networks, and the number of each cohort network's own."""

    trunks: list[Trunk]
    numbers: list[int]
    networks: list[Networks]

    def below(self, m: int, member: Member) -> str:
        """The path of network m's trunk, relative to the folder of that network."""
        return Path(os.path.relpath(Path(self.trunks[self.numbers[m]].name) / FILE, member.name)).as_posix()


def trunk_of(member: Member) -> Trunk:
    """The pretraining that a network starts from."""
    assert member.pretraining is not None, f"{member.name} has no distribution to pretrain with"
    parts = [member.pretraining.name, *([member.attribute] if member.attribute else []), f"seed-{member.seed}"]
    return Trunk("/".join([FOLDER, *parts]), member.pretraining, member.attribute, member.seed)


def trunks_of(members: Sequence[Member]) -> tuple[list[Trunk], list[int]]:
    """The different pretrainings of some networks, and the number of each network's; names must be unambiguous."""
    found: dict[str, Trunk] = {}
    numbers = []
    for member in members:
        trunk = trunk_of(member)
        first = found.setdefault(trunk.name, trunk)
        assert (first.distribution.log_probabilities == trunk.distribution.log_probabilities).all(), trunk.name
        numbers.append(list(found).index(trunk.name))
    return list(found.values()), numbers


def source_of(config: AttentionConfig, weights: str) -> str | None:
    """Identifies the embedder's initial weights, independently of a file's path."""
    if config.embedder != "vgg":
        return None
    if weights in ("none", "imagenet"):
        return weights
    if not Path(weights).is_file():
        raise InputError(f"There is no file {weights}; check --attention.weights.")
    return file_digest(Path(weights))


def start_from_imagenet(networks: Networks, weights: str) -> None:
    """Load ImageNet weights into VGG's convolutions, in every network."""
    if isinstance(networks.embedder, VGGEmbedder) and weights != "none":
        for name, value in networks.embedder.pretrained(weights).items():
            networks.embed_parameters[name].data.copy_(value)


def set_precision(networks: Networks, config: AttentionConfig, device: torch.device) -> None:
    """Set the type in which VGG's convolutions run, as the recipe asks for."""
    if isinstance(networks.embedder, VGGEmbedder):
        rough = device.type == "cuda" and config.precision == "auto"
        networks.embedder.dtype = torch.bfloat16 if rough else torch.float32


@contextmanager
def tuned_convolutions() -> Iterator[None]:
    """Let cuDNN time its algorithms at the first call of each shape, and use the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
