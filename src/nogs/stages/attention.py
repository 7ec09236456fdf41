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
    if all((folder / member.name / "done.json").is_file() for member in [*members, *standing]):
        experiment.tell(f"{experiment.head('attention')}: done before.")
    else:
        experiment.announce(
            "attention",
            f"{counted(len(members) + len(standing), 'network')}: {', '.join(methods)}",
            lambda: estimates.networks(
                recipe,
                task,
                members,
                plain,
                experiment.attributes,
                seeds=len(settings.seeds) or 1,
                source=source,
                data=settings.data,
                device=experiment.device,
            ),
        )
    folders = []
    with experiment.threads("attention"):
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
            _tell(experiment, folders)
    with experiment.threads("posterior"):  # on which the others stand
        if standing:
            stood = train_on_posterior(
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
            _tell(experiment, stood)
            folders += stood
    for line in () if experiment.whole else verdict.write(experiment.folder):  # a whole run ends with it
        experiment.tell(line)
    return folders


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


def _tell(experiment: Experiment, folders: Sequence[Path]) -> None:
    """What networks score, and what each would have answered after fewer glimpses, for those who stop early."""
    for folder in folders:
        found = read_json(folder / "evaluation.json")
        experiment.tell(
            f"  {folder.relative_to(experiment.folder / 'attention').as_posix()}: "
            f"{found['best']['accuracy']['test']['accuracy']:.1%} of the test images right (the most common class "
            f"{found['majority_class_accuracy']:.1%})"
        )
        if (folder / FILE).is_file():
            continue
        path = folder / "best-accuracy.safetensors"
        network, about = load_network(path, device=experiment.device)
        trajectories = network.enough(experiment.recipe.attention.trajectories)
        found = accuracy_by_glimpses(network, about, experiment.task, trajectories=trajectories)
        write_accuracy_by_glimpses(path, found)
