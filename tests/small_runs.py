"""Runs whose networks have initial weights: all that using a network needs, in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from nogs.attention.architecture import Architecture
from nogs.attention.network import Networks
from nogs.attention.store import save_network
from nogs.glimpse import Grid

GRID = Grid.spaced(image=24, glimpse=8, spacing=4)
LABELS = ("red", "green", "blue")


def network(*, seed: int = 0, glimpses: int = 3, labels: int = 3, sharp: float = 8.0, **fields: Any) -> Networks:
    """A small network; some weights are `sharp` times as large, so that answers depend on what it sees."""
    architecture = Architecture(GRID, glimpses, labels, hidden=16, embedding=16, location_hidden=8, **fields)
    networks = Networks(architecture, seeds=[seed]).requires_grad_(False)
    networks.embed_parameters["project_weight"].mul_(sharp)
    networks.core_parameters["classify_weight"].mul_(sharp)
    networks.policy_parameters["locate2_weight"].mul_(sharp)
    return networks


def about(
    name: str = "ram/seed-0", *, validation: float | None = 0.5, labels: tuple[str, ...] = LABELS
) -> dict[str, Any]:
    """What a network's file says; a name of three words has an attribute."""
    method, *middle, seed = name.split("/")
    attribute = middle[0] if middle else None
    return {
        "task": "toy",
        "labels": [f"not {attribute}", attribute] if attribute else list(labels),
        "method": method,
        "attribute": attribute,
        "seed": int(seed.removeprefix("seed-")),
        "best": "accuracy",
        "iteration": 7,
        "validation": validation,
        "test": {"accuracy": 0.625, "greedy_accuracy": 0.5, "nll": 1.25, "pixels_seen": 0.125, "warning": None},
    }


def write_run(
    run: Path,
    validation: Mapping[str, float | None] | None = None,
    *,
    best: str = "accuracy",
    data: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Path:
    """A run with a network for each name, and its score on the validation images."""
    for n, (name, score) in enumerate((validation or {"ram/seed-0": 0.5}).items()):
        said = about(name, validation=score)
        networks = network(seed=n, labels=len(said["labels"]), **fields)
        parameters = {key: value[0] for key, value in networks.state_dict().items()}
        path = run / "attention" / name / f"best-{best}.safetensors"
        save_network(path, parameters, architecture=networks.architecture, about=said)
    recipe = {"name": "toy", "data": {"kind": "folder", "image_size": 24, "glimpse": 8, "fit": "crop", **(data or {})}}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return run


def images(count: int, seed: int = 0) -> torch.Tensor:
    """Noise `[N, 24, 24, 3]`."""
    return torch.randint(0, 256, (count, 24, 24, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
