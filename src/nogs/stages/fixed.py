"""The fixed order as sequences: the same locations for every image to annotate, for scoring and training."""

from __future__ import annotations

import numpy as np
import torch

from nogs import __version__
from nogs.posterior.labels import label_table
from nogs.posterior.queries import resident
from nogs.posterior.store import find_posterior, identity, load_posterior
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import file_digest
from nogs.sequences import Sequences
from nogs.stages.experiment import Experiment
from nogs.stages.posterior import check_glimpses, name_of, needed
from nogs.supervision.fixed import order_of, strangers

__all__ = ["fixed_sequences"]


def fixed_sequences(experiment: Experiment) -> dict[str | None, Sequences]:
    """Sequences of one order for each chosen attribute, by attribute."""
    recipe, task, device = experiment.recipe, experiment.task, experiment.device
    ids, attributes = task.splits["annotate"], experiment.attributes
    if not ids:
        raise InputError(f"Task {task.title!r} has no images to annotate; raise data.annotated.")
    source = needed(experiment)
    check_glimpses(experiment, source)
    variables = [0 if attribute is None else task.attribute(attribute) for attribute in attributes]
    posterior = load_posterior(source, task=task, device=device, precision=recipe.posterior.precision)
    found = order_of(
        task,
        posterior,
        source=source,
        images=resident(task.images, device),
        labels=torch.from_numpy(label_table(task)).to(device),
        glimpses=recipe.glimpses,
        objectives=[variables] if recipe.plus.shared else [[variable] for variable in variables],
    )
    made_by = {
        "method": "fixed order",
        "posterior": name_of(source),
        "posterior_digest": file_digest(find_posterior(source)),
        "posterior_identity": identity(source),
        "images": len(strangers(task, source)),
        "nogs": __version__,
    }
    if len(found.order) < len(attributes):
        made_by["shared"] = list(attributes)
    out: dict[str | None, Sequences] = {}
    nats = found.losses.gather(2, found.order[..., None])[..., 0]
    for attribute, order, after in zip(attributes, *(x.expand(len(attributes), -1) for x in (found.order, nats))):
        out[attribute] = Sequences(
            task=task.name,
            attribute=attribute,
            grid=task.grid,
            length=recipe.glimpses,
            ids=tuple(ids),
            locations=np.tile(task.grid.pixels[order].numpy(), (len(ids), 1, 1)),
            provenance={**made_by, "cross_entropy": [round(nats, 6) for nats in after.tolist()]},
        )
    return out
