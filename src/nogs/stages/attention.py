"""The stage `attention`: hard-attention networks, trained with and without sequences, and baselines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nogs.attention.cohort import Member
from nogs.attention.methods import ON_POSTERIOR, Inputs, check_methods, make_members
from nogs.attention.trainer import training_fields
from nogs.attention.training import STATE
from nogs.attention.training import train as train_networks
from nogs.model.stopping import FILE, accuracies_by_glimpses, write_accuracy_by_glimpses
from nogs.plus.store import load_attributes, seen
from nogs.plus.training import train as train_on_posterior
from nogs.posterior.imagenet import find_weights
from nogs.posterior.store import identity
from nogs.recipes import Recipe
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json
from nogs.runtime.progress import working
from nogs.stages import data, estimates, posterior, verdict
from nogs.stages.experiment import Experiment, counted
from nogs.stages.heuristic import find_map

__all__ = ["check", "train"]


@working("attention")
def train(experiment: Experiment) -> list[Path]:
    """Train a network for each method, attribute, seed and weight of supervision; the folders of the networks.

    Those with the posterior as classifier come last. Also writes the accuracy of each after fewer glimpses, and the
    verdict whether sequences helped.
    """
    recipe, settings = experiment.recipe, experiment.settings
    folder, methods = experiment.folder / "attention", tuple(dict.fromkeys(settings.method))
    check(recipe, methods, sequences=_given(experiment) is not None)
    attributes, task = experiment.attributes, experiment.task
    plain = [method for method in methods if method in ON_POSTERIOR]
    members = _networks(experiment, [method for method in methods if method not in plain])
    on_posterior = [
        Member(method, seed=seed, attribute=attribute)
        for method in plain
        for seed in settings.seeds or (recipe.seed,)
        for attribute in attributes
    ]
    source = posterior.needed(experiment) if on_posterior else ""
    data.prepare(experiment)
    _enter(experiment, methods, source)
    if all((folder / member.name / "done.json").is_file() for member in [*members, *on_posterior]):
        experiment.tell(f"{experiment.head('attention')}: already done.")
    else:
        experiment.announce(
            "attention",
            f"{counted(len(members) + len(on_posterior), 'network')}: {', '.join(methods)}",
            lambda: estimates.networks(
                recipe,
                task,
                members,
                plain,
                attributes,
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
    with experiment.threads("posterior"):  # the classifier of the others
        if on_posterior:
            others = train_on_posterior(
                task,
                on_posterior,
                posterior=source,
                config=recipe.plus,
                how=recipe.posterior,
                glimpses=recipe.glimpses,
                folder=folder,
                trajectories=recipe.attention.trajectories,
                device=settings.device,
            )
            _tell(experiment, others)
            folders += others
    for line in () if experiment.whole else verdict.write(experiment.folder):  # a whole run prints it at its end
        experiment.tell(line)
    return folders


def check(recipe: Recipe, methods: Sequence[str], *, sequences: bool) -> None:
    """Refuse methods that the recipe does not support, before any picture is decoded."""
    check_methods(methods, config=recipe.attention, sequences=sequences)
    if "ps-hgs" in methods and recipe.data.kind != "cub":
        raise InputError("The method ps-hgs needs labelled parts of birds, which only cub has; leave it out.")


def _given(experiment: Experiment) -> Path | None:
    """The near-optimal sequences: given, or the run's own."""
    own = experiment.folder / "sequences"
    return experiment.settings.sequences or (own if own.is_dir() else None)


def _enter(experiment: Experiment, methods: Sequence[str], source: str) -> None:
    """Record what each method's networks are made from."""
    recipe, settings, entries = experiment.recipe, experiment.settings, experiment.ledger.entries
    for method in methods:
        made_from = {**experiment.common(seed=False)}
        if method in ON_POSTERIOR:
            made_from["posterior"] = identity(source)
            fields = recipe.plus.made_from(method, experiment.attributes)
            if fields:
                made_from["plus"] = fields
        else:
            made_from["attention"] = training_fields(recipe.attention)
            if method.startswith("ps-") and settings.sequences is None and "sequences" in entries:
                made_from["from the sequences"] = experiment.ledger.fingerprint("sequences")
        if experiment.enter(f"attention/{method}", made_from):
            # the state of outdated networks
            (experiment.folder / "attention" / STATE).unlink(missing_ok=True)


def _networks(experiment: Experiment, methods: Sequence[str]) -> list[Member]:
    """The networks that the settings ask for; the error about a missing input says how to make it."""
    recipe, settings = experiment.recipe, experiment.settings
    return make_members(
        experiment.task,
        methods,
        seeds=settings.seeds or (recipe.seed,),
        attributes=experiment.attributes,
        config=recipe.attention,
        glimpses=recipe.glimpses,
        inputs=Inputs(sequences=_given(experiment), heuristic=find_map(experiment, methods)),
        weights=settings.weights,
        seed=recipe.seed,
    )


def _tell(experiment: Experiment, folders: Sequence[Path]) -> None:
    """Print the networks' scores, and write their accuracy after fewer glimpses, for early stopping."""
    wanted: dict[Path, dict[str | None, Path]] = {}  # for each file, the folders of its attributes
    for folder in folders:
        found = read_json(folder / "evaluation.json")
        experiment.tell(
            f"  {folder.relative_to(experiment.folder / 'attention').as_posix()}: "
            f"test accuracy {found['best']['accuracy']['test']['accuracy']:.1%} (the most common class "
            f"{found['majority_class_accuracy']:.1%})"
        )
        if not (folder / FILE).is_file():
            file, attribute = seen(folder / "best-accuracy.safetensors", None)
            wanted.setdefault(file.resolve(), {})[attribute] = folder
    for file, views in wanted.items():
        network, abouts = load_attributes(file, device=experiment.device)
        trajectories = network.enough(experiment.recipe.attention.trajectories)
        every = accuracies_by_glimpses(network, list(abouts.values()), experiment.task, trajectories=trajectories)
        for name, by_glimpses in zip(abouts, every):
            own = views.get(name, views.get(None))  # a file without views has one folder
            if own is not None:
                write_accuracy_by_glimpses(own / "best-accuracy.safetensors", by_glimpses)
