"""The stage `attention`: networks that learn where to look, with and without sequences, and plain ways to look."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nogs.attention.cohort import Member
from nogs.attention.methods import ON_POSTERIOR, Inputs, make_members
from nogs.attention.trainer import training_fields
from nogs.attention.training import STATE
from nogs.attention.training import train as train_networks
from nogs.model.stopping import FILE, accuracy_by_glimpses, write_accuracy_by_glimpses
from nogs.plus.store import load_network
from nogs.plus.training import train as train_on_posterior
from nogs.posterior.imagenet import find_weights
from nogs.posterior.store import identity
from nogs.runtime.files import read_json
from nogs.runtime.progress import working
from nogs.stages import data, estimates, posterior, verdict
from nogs.stages.experiment import Experiment, counted
from nogs.stages.heuristic import find_map

__all__ = ["train"]


@working("attention")
def train(experiment: Experiment) -> list[Path]:
    """Train a network for each method, attribute, seed and weight of supervision; each one's folder.

    Those that stand on the posterior come last.

    Beside them lie what each would say after fewer glimpses, and the verdict whether sequences helped.
    """
    recipe, task, settings = experiment.recipe, experiment.task, experiment.settings
    folder, methods = experiment.folder / "attention", tuple(dict.fromkeys(settings.method))
    plain = [method for method in methods if method in ON_POSTERIOR]
    members = _networks(experiment, [method for method in methods if method not in plain])
    standing = [
        Member(method, seed=seed, attribute=attribute)
        for method in plain
        for seed in settings.seeds or (recipe.seed,)
        for attribute in experiment.attributes
    ]
    source = posterior.needed(experiment) if standing else ""
    data.prepare(experiment)
    _enter(experiment, methods, source)
    with experiment.threads(small=recipe.attention.embedder != "vgg" and recipe.attention.hidden <= 256):
        if all((folder / member.name / "done.json").is_file() for member in [*members, *standing]):
            experiment.tell(f"{experiment.head('attention')}: done before.")
        else:
            experiment.announce(
                "attention",
                f"{counted(len(members) + len(standing), 'network')}: {', '.join(methods)}",
                lambda: _seconds(experiment, members, methods, source),
            )
        folders = []
        if members:
            network = recipe.attention.embedder_network
            folders += train_networks(
                task,
                members,
                config=recipe.attention,
                glimpses=recipe.glimpses,
                folder=folder,
                device=settings.device,
                weights=find_weights(recipe.attention.weights, settings.data, network=network),
            )
        if standing:
            folders += train_on_posterior(
                task,
                standing,
                posterior=source,
                config=recipe.plus,
                how=recipe.posterior,
                glimpses=recipe.glimpses,
                folder=folder,
                trajectories=recipe.attention.trajectories,
                device=settings.device,
            )
        for path in folders:
            found = read_json(path / "evaluation.json")
            experiment.tell(
                f"  {path.relative_to(folder).as_posix()}: {found['best']['accuracy']['test']['accuracy']:.1%} of the "
                f"test images right (the most common class {found['majority_class_accuracy']:.1%})"
            )
        _by_glimpses(experiment, folders)
    for line in () if experiment.whole else verdict.write(experiment.folder):  # a whole run ends with it
        experiment.tell(line)
    return folders


def _seconds(experiment: Experiment, members: Sequence[Member], methods: Sequence[str], source: str) -> float | None:
    """How long the training will take; None where that can't be told."""
    recipe, task, device = experiment.recipe, experiment.task, experiment.device
    total = estimates.attention_seconds(recipe, task, members, device=device) if members else 0.0
    if total is not None and "ps-nogs+" in methods:
        seeds = len(experiment.settings.seeds) or 1
        total += seeds * estimates.plus_seconds(recipe, task, experiment.attributes, posterior=source, device=device)
    return total


def _enter(experiment: Experiment, methods: Sequence[str], source: str) -> None:
    """Note what each method's networks are made from."""
    recipe, settings, entries = experiment.recipe, experiment.settings, experiment.ledger.entries
    for method in methods:
        made_from = {**experiment.common(seed=False)}
        if method in ON_POSTERIOR:
            made_from["posterior"] = identity(source)
            if method == "ps-nogs+":
                made_from["plus"] = recipe.plus.model_dump(mode="json")
        else:
            made_from["attention"] = training_fields(recipe.attention)
            if method.startswith("ps-") and settings.sequences is None and "sequences" in entries:
                made_from["from the sequences"] = experiment.ledger.fingerprint("sequences")
        if experiment.enter(f"attention/{method}", made_from):
            # of networks that are not wanted any more
            (experiment.folder / "attention" / STATE).unlink(missing_ok=True)


def _networks(experiment: Experiment, methods: Sequence[str]) -> list[Member]:
    """The networks that the settings ask for; a method that lacks its input is refused with how to make it."""
    recipe, settings, own = experiment.recipe, experiment.settings, experiment.folder / "sequences"
    return make_members(
        experiment.task,
        methods,
        seeds=settings.seeds or (recipe.seed,),
        attributes=experiment.attributes,
        config=recipe.attention,
        glimpses=recipe.glimpses,
        inputs=Inputs(
            sequences=settings.sequences or (own if own.is_dir() else None),
            heuristic=find_map(experiment, methods),
        ),
        weights=settings.weights,
        seed=recipe.seed,
    )


def _by_glimpses(experiment: Experiment, folders: Sequence[Path]) -> None:
    """What each network would have answered after fewer glimpses, for those who stop early."""
    for folder in folders:
        if (folder / FILE).is_file():
            continue
        path = folder / "best-accuracy.safetensors"
        network, about = load_network(path, device=experiment.device)
        trajectories = experiment.recipe.attention.trajectories
        found = accuracy_by_glimpses(network, about, experiment.task, trajectories=trajectories)
        write_accuracy_by_glimpses(path, found)
