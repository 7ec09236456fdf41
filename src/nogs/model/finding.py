"""Which network is meant: one of a run's many, a packed folder, a repository of the Hugging Face hub, or a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from nogs.model.found import CONFIG, WEIGHTS, Found
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, read_yaml

Best = Literal["accuracy", "balanced_accuracy", "nll"]
"""What a kept network is best at on the validation images."""

HUB = "hf://"


def find(source: str | Path, *, network: str | None = None, best: Best = "accuracy") -> Found:
    """The network of `source`: a run, a packed folder, `hf://user/repository[@revision]`, or a safetensors file.

    `network` names one of a run's, such as ram/seed-0, or words of its name, such as Smiling; of those that fit, the
    best on the validation images is taken. Networks of different attributes are never compared.
    """
    if str(source).startswith(HUB):
        from nogs.model.hub import download

        return _packed(download(str(source).removeprefix(HUB)), str(source))
    path = Path(source)
    if path.is_file():
        return Found(path, path.stem, _data(path.parent), f"{path} is the only one")
    if (path / WEIGHTS).exists():
        return _packed(path, str(path))
    if not path.is_dir():
        raise InputError(f"There is no run {path}; give the folder that nogs train or nogs run wrote.")
    return _of_run(path, network, best)


def _packed(folder: Path, source: str) -> Found:
    config = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
    data = config.get("data") if isinstance(config, dict) else None
    name = config.get("network", source) if isinstance(config, dict) else source
    return Found(folder / WEIGHTS, str(name), data if isinstance(data, dict) else {}, f"{source} holds one network")


def _of_run(run: Path, network: str | None, best: Best) -> Found:
    from nogs.plus.store import about_network  # brings torch

    kept = f"best-{best}.safetensors"
    top = run / "attention" if (run / "attention").is_dir() else run
    paths = {path.parent.relative_to(top).as_posix(): path for path in sorted(top.rglob(kept))}
    if not paths:
        raise InputError(f"{run} holds no trained networks; make some with nogs train ... --out {run}.")
    names = list(paths) if network is None else _named(network, list(paths), run)
    about = {name: about_network(paths[name]) for name in names}
    attributes = sorted({str(about[name].get("attribute")) for name in names})
    if len(attributes) > 1:
        shown = ", ".join(attributes[:5]) + (" ..." if len(attributes) > 5 else "")
        raise InputError(
            f"{run} has networks for {len(attributes)} attributes; name one with --network or `network`: {shown}."
        )
    sign = -1 if best == "nll" else 1
    scores = {name: float(score) for name in names if (score := about[name].get("validation")) is not None}
    if not scores:
        raise InputError(f"No network of {run} was ever validated with a finite score; train it again.")
    name = max(scores, key=lambda name: sign * scores[name])
    if len(names) == 1:
        why = f"{name} is the only one" if len(paths) == 1 else f"{name} was asked for"
    else:
        shown = f"{scores[name]:.3f}" if best == "nll" else f"{scores[name]:.1%}"
        why = f"{name} is the best of {len(names)} by validation {best.replace('_', ' ')}: {shown}"
    return Found(paths[name], name, _data(run), why)


def _named(network: str, names: Sequence[str], run: Path) -> list[str]:
    """The networks that `network` names: exactly, or by some of the words of their names."""
    wanted = network.strip("/")
    if wanted in names:
        return [wanted]
    words = set(wanted.split("/"))
    fitting = [name for name in names if words <= set(name.split("/"))]
    if not fitting:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise InputError(f"{run} has no network {network!r}; it has {shown}.")
    return fitting


def _data(place: Path) -> dict[str, Any]:
    """The data fields of the recipe of the run that `place` is or lies in; `Recipe` itself is a floor above."""
    around = (place, *place.resolve().parents[:4])  # RUN/attention/METHOD/ATTRIBUTE/SEED
    path = next((folder / "recipe.yaml" for folder in around if (folder / "recipe.yaml").exists()), None)
    values = read_yaml(path) if path else {}
    data = values.get("data") if isinstance(values, dict) else None
    return data if isinstance(data, dict) else {}
