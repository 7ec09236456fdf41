"""Hard-attention image classifiers trained with near-optimal glimpse sequences.

import nogs

model = nogs.load("runs/demo")
answer = model.classify("photo.jpg")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # importing the package must stay instant, and every floor imports it
    from pathlib import Path

    import torch

    from nogs.model.classifier import Model

__all__ = ["__version__", "load"]

__version__ = "0.1.0"


def load(
    source: str | Path,
    *,
    network: str | None = None,
    best: Literal["accuracy", "balanced_accuracy", "nll"] = "accuracy",
    device: str | torch.device = "cpu",
) -> Model:
    """A trained network: of a run, of a packed folder, of `hf://user/repository[@revision]`, or of a safetensors file.

    A run with several: `network` names one (ram/seed-0) or some of its words (Smiling), else the best on the validation
    images by `best` is taken; `model.why` says so. Nothing is unpickled.
    """
    from importlib import import_module

    model: Model = import_module("nogs.model.loading").load(source, network=network, best=best, device=device)
    return model
