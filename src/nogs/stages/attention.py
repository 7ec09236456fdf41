"""The stage `attention`: networks that learn where to look, with and without sequences, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nogs.attention.cohort import Member
from nogs.attention.methods import Inputs, make_members
from nogs.attention.store import load_network
from nogs.attention.trainer import training_fields
from nogs.attention.training import STATE
from nogs.attention.training import train as train_networks
from nogs.model.stopping import FILE, accuracy_by_glimpses, write_accuracy_by_glimpses
from nogs.posterior.imagenet import find_weights
from nogs.runtime.files import read_json
from nogs.runtime.progress import working
from nogs.stages import data, estimates, verdict
from nogs.stages.experiment import Experiment, counted
from nogs.stages.heuristic import find_map

__all__ = ["train"]


@working("attention")
def train(experiment: Experiment) -> list[Path]:
    """Train a network for each method, attribute, seed and weight of supervision; each one's folder.

    Beside them lie what each would say after fewer glimpses, and the verdict whether sequences helped.
    """
    recipe, task, settings = experiment.recipe, experiment.task, experiment.settings
    folder, methods = experiment.folder / "attention", tuple(dict.fromkeys(settings.method))
    members = _networks(experiment, methods)
    data.prepare(experiment)
    entries = experiment.ledger.entries
    for method in methods:
        inputs = {}
        if method.startswith("ps-") and settings.sequences is None and "sequences" in entries:
            inputs["from the sequences"] = experiment.ledger.fingerprint("sequences")
        made_from = {"attention": training_fields(recipe.attention), **inputs, **experiment.common(seed=False)}
        if experiment.enter(f"attention/{method}", made_from):
            (folder / STATE).unlink(missing_ok=True)  # of networks that are not wanted any more
    with experiment.threads(small=recipe.attention.embedder != "vgg" and recipe.attention.hidden <= 256):
        if all((folder / member.name / "done.json").is_file() for member in members):
            experiment.tell(f"{experiment.head('attention')}: done before.")
        else:
            experiment.announce(
                "attention",
                f"{counted(len(members), 'network')}: {', '.join(methods)}",
                lambda: estimates.attention_seconds(recipe, task, members, device=experiment.device),
            )
        folders = train_networks(
            task,
            members,
            config=recipe.attention,
            glimpses=recipe.glimpses,
            folder=folder,
            device=settings.device,
            weights=find_weights(recipe.attention.weights, settings.data, network=recipe.attention.embedder_network),
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
