"""`load`: a trained network, ready to use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast, get_args

import torch

from nogs.data.images import Fit
from nogs.model.attributes import Attributes, each_attribute
from nogs.model.classifier import Model
from nogs.model.finding import Best, find
from nogs.model.found import Found
from nogs.plus.store import attributes_of, load_network
from nogs.runtime.errors import InputError


def load(
    source: str | Path,
    *,
    network: str | None = None,
    attribute: str | None = None,
    best: Best = "accuracy",
    device: str | torch.device = "cpu",
) -> Model | Any:
    """Load a published network by its name (celeba-hq, cub), or that of a run, of a packed folder, of
    `hf://user/repository[@revision]`, or of a safetensors file.

    A network of several attributes gives `Attributes`, which answers all of them; with `attribute` (Smiling), and in
    every other case, it is a `Model`. For a run with several networks, `network` names one (ram/seed-0) or words of its
    name; else the best on the validation images by `best` is taken. `model.why` gives the reason. Nothing is unpickled.
    """
    found = find(source, network=network, attribute=attribute, best=best)
    if found.attribute is None and len(attributes_of(found.path)) > 1:
        return _all(found, device=device)
    return load_found(found, device=device)


def load_found(found: Found, *, device: str | torch.device = "cpu") -> Model:
    """Load the network that `find` found; of several attributes one must be selected."""
    networks, about = load_network(found.path, attribute=found.attribute, device=device)
    if not about.get("labels"):
        raise InputError(f"{found.path} has no labels, so it can't classify; give a network of nogs train.")
    if networks.architecture.embedder == "release":
        raise InputError(
            f"{found.path} has the release's embedder, which normalises by the batch and so can't classify a single "
            "image; use nogs evaluate for its scores, or train with --attention.embedder paper."
        )
    return Model(networks, about=about, name=found.name, fit=fit_of(found), why=found.why)


def _all(found: Found, *, device: str | torch.device) -> Attributes:
    """The network of a file with all its attributes."""
    models = {
        name: Model(network, about=about, name=found.name, fit=fit_of(found), why=found.why)
        for name, network, about in each_attribute(found.path, device=device)
    }
    return Attributes(models, name=found.name, why=found.why)


def fit_of(found: Found) -> Fit:
    """How a picture is made square: as in the run, or by a centre crop if that is not known."""
    # CelebA-HQ's pictures are square; CUB's were cropped by boxes, which a new picture does not have
    fit = found.data.get("fit", "crop") if found.data.get("kind", "folder") == "folder" else "crop"
    if fit not in get_args(Fit):
        raise InputError(f"The data of {found.name} has fit {fit!r}; it must be one of {', '.join(get_args(Fit))}.")
    return cast(Fit, fit)
