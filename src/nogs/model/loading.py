"""`load`: a trained network, ready to be asked."""

from __future__ import annotations

from pathlib import Path
from typing import cast, get_args

import torch

from nogs.data.images import Fit
from nogs.model.classifier import Model
from nogs.model.finding import Best, find
from nogs.model.found import Found
from nogs.plus.store import load_network
from nogs.runtime.errors import InputError


def load(
    source: str | Path, *, network: str | None = None, best: Best = "accuracy", device: str | torch.device = "cpu"
) -> Model:
    """The network of a run, of a packed folder, of `hf://user/repository[@revision]`, or of a safetensors file.

    A run with several: `network` names one (ram/seed-0) or some of its words (Smiling), else the best on the validation
    images by `best` is taken; `model.why` says so. Nothing is unpickled.
    """
    return load_found(find(source, network=network, best=best), device=device)


def load_found(found: Found, *, device: str | torch.device = "cpu") -> Model:
    """The network that `find` found."""
    networks, about = load_network(found.path, device=device)
    if not about.get("labels"):
        raise InputError(f"{found.path} names no labels, so it can't tell what it sees; give a network of nogs train.")
    if networks.architecture.embedder == "release":
        raise InputError(
            f"{found.path} has the release's embedder, which normalises by the batch it is in and so can't judge one "
            "image alone; use nogs evaluate for its scores, or train with --attention.embedder paper."
        )
    return Model(networks, about=about, name=found.name, fit=fit_of(found), why=found.why)


def fit_of(found: Found) -> Fit:
    """How a picture becomes square: as the run's own did, by a centre crop where that is not known."""
    # CelebA-HQ's pictures are square; CUB's were cropped by boxes, which a new picture does not have
    fit = found.data.get("fit", "crop") if found.data.get("kind", "folder") == "folder" else "crop"
    if fit not in get_args(Fit):
        raise InputError(f"The data of {found.name} has fit {fit!r}; it must be one of {', '.join(get_args(Fit))}.")
    return cast(Fit, fit)
