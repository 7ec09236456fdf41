"""Finding a network: a published one, one of a run's many, a packed folder, a repository of the hub, or a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from nogs.model.found import CONFIG, WEIGHTS, Found
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, read_yaml
from nogs.runtime.spelling import instead, instead_of_run, without_networks

Best = Literal["accuracy", "balanced_accuracy", "nll"]
"""Validation measures by which the best network is kept."""

HUB = "hf://"


def find(
    source: str | Path, *, network: str | None = None, attribute: str | None = None, best: Best = "accuracy"
) -> Found:
    """The network of `source`: a published name, a run, a packed folder, `hf://user/repository[@revision]`, or a file.

    `network` names one of a run's, such as ram/seed-0, or words of its name, such as Smiling. Of those that fit, the
    best on the validation images is taken. Networks of different attributes are never compared: `attribute` selects.
    A folder with the name of a published network is given as a path, such as ./cub.
    """
    from nogs.posterior.store import published  # brings torch

    if str(source).startswith(HUB):
        from nogs.model.hub import download

        return _packed(download(str(source).removeprefix(HUB)), str(source), attribute)
    path, files = Path(source), published()
    if isinstance(source, str) and source in files:
        here = f"; the folder of that name is ./{source}" if path.is_dir() else ""
        return Found(files[source], source, {"kind": source}, f"{source} comes with nogs{here}", attribute)
    if path.is_file():
        if path.suffix != ".safetensors":
            raise InputError(f"{path} is not a network (.safetensors); give the folder of its run.")
        return Found(path, path.stem, _data(path.parent), f"{path} is the only one", attribute)
    if (path / WEIGHTS).exists():
        return _packed(path, str(path), attribute)
    if not path.is_dir():
        names = f", or a published name: {', '.join(files)}" if files else ""
        meant = instead(str(source), files, otherwise=f"give the folder that nogs train or nogs run wrote{names}.")
        meant = instead_of_run(path, otherwise=meant)
        raise InputError(f"There is no run {path}; {meant}")
    return _of_run(path, network, attribute, best)


def _packed(folder: Path, source: str, attribute: str | None) -> Found:
    config = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
    said = config if isinstance(config, dict) else {}
    data, name, own = said.get("data"), said.get("network", source), said.get("attribute")
    return Found(
        folder / WEIGHTS,
        str(name),
        data if isinstance(data, dict) else {},
        f"{source} holds one network",
        attribute or (own if isinstance(own, str) else None),
    )


def _of_run(run: Path, network: str | None, attribute: str | None, best: Best) -> Found:
    from nogs.attention.methods import GIVEN  # brings torch
    from nogs.plus.store import about_network, chosen

    kept = f"best-{best}.safetensors"
    top = run / "attention" if (run / "attention").is_dir() else run
    paths = {path.parent.relative_to(top).as_posix(): path for path in sorted(top.rglob(kept))}
    if not paths:
        raise InputError(without_networks(run))
    names = list(paths) if network is None else _named(network, list(paths), run)
    names.sort(key=lambda name: name.partition("/")[0] in GIVEN)  # a tie goes to a network that chooses
    about = {name: about_network(paths[name]) for name in names}
    attribute_of = {name: about[name].get("attribute") or "" for name in names}
    one = chosen(run, sorted(set(attribute_of.values())), attribute)
    names = [name for name in names if attribute_of[name] == one]
    sign = -1 if best == "nll" else 1
    scores = {name: float(score) for name in names if (score := about[name].get("validation")) is not None}
    if not scores:
        raise InputError(f"No network of {run} was ever validated with a finite score; train it again.")
    name = max(scores, key=lambda name: sign * scores[name])
    if len(names) == 1:
        why = f"{name} is the only one" if len(paths) == 1 else f"{name} was asked for"
    else:
        shown = f"{scores[name]:z.3f}" if best == "nll" else f"{scores[name]:.1%}"
        why = f"{name} is the best of {len(names)} by validation {best.replace('_', ' ')}: {shown}"
    return Found(paths[name], name, _data(run), why)


def _named(network: str, names: Sequence[str], run: Path) -> list[str]:
    """The networks that `network` names, exactly or by words of their names."""
    wanted = network.strip("/")
    if wanted in names:
        return [wanted]
    words = set(wanted.split("/"))
    fitting = [name for name in names if words <= set(name.split("/"))]
    if not fitting:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        every = {*names, *(word for name in names for word in name.split("/"))}
        raise InputError(f"{run} has no network {network!r}; {instead(network, every, otherwise=f'it has {shown}.')}")
    return fitting


def _data(place: Path) -> dict[str, Any]:
    """The data fields of the recipe of the run at or above `place`; `Recipe` can't be imported here."""
    around = (place, *place.resolve().parents[:4])  # RUN/attention/METHOD/ATTRIBUTE/SEED
    path = next((folder / "recipe.yaml" for folder in around if (folder / "recipe.yaml").exists()), None)
    values = read_yaml(path) if path else {}
    data = values.get("data") if isinstance(values, dict) else None
    return data if isinstance(data, dict) else {}
