"""`Run`: the products of every stage in a run's folder, read once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from pydantic import ValidationError

from nogs.attention.comparison import Learned
from nogs.attention.comparison import read_run as read_networks
from nogs.data.config import DataConfig
from nogs.design.blocks import MAPS, first_map, read_maps
from nogs.model.stopping import FILE as BY_GLIMPSES
from nogs.model.stopping import FORMAT
from nogs.plus.store import about_network
from nogs.posterior.training import FILE as POSTERIOR
from nogs.runtime.errors import InputError
from nogs.runtime.files import load_array, read_json, read_sealed, read_yaml
from nogs.runtime.spelling import instead_of_run
from nogs.sequences import Sequences, folders, load

__all__ = ["COMPARED", "LOCAL", "Network", "Run", "SequenceSet", "read_run"]

LOCAL = "local.json"
"""File with the path of the data on this machine and the command that was typed; not part of any fingerprint."""
COMPARED = "compare.json"
"""File of `nogs bank compare`, among a bank's evaluations."""
_NOT_SEQUENCES = ("attention", "bank", "data", "posterior", "report", "cache")


@dataclass(frozen=True)
class Network:
    """One trained network: its folder, its scores, its curves."""

    folder: Path
    evaluation: Mapping[str, Any]
    learned: Learned

    @property
    def method(self) -> str:
        """Its method, as its folder names it."""
        return str(self.evaluation["member"]["method"])

    @property
    def attribute(self) -> str | None:
        """The attribute that it predicts, for a task with attributes."""
        return self.learned.attribute

    @property
    def test(self) -> Mapping[str, Any]:
        """Test scores of the checkpoint with the best validation accuracy."""
        return dict(self.evaluation["best"]["accuracy"]["test"])

    @property
    def validation(self) -> float | None:
        """Its best validation accuracy, by which it is chosen."""
        found = self.evaluation["best"]["accuracy"].get("validation")
        return None if found is None else float(found)

    def locations(self) -> np.ndarray | None:
        """Top-left pixels `[n, S, T, 2]` on the test images, if they were kept."""
        path = self.folder / "locations.npy"
        return load_array(path).astype(np.int64) if path.is_file() else None

    def splits(self) -> str | None:
        """The mark of the splits that it was trained on; older files have none."""
        found = about_network(self.folder / "best-accuracy.safetensors").get("splits")
        return None if found is None else str(found)

    def by_glimpses(self) -> Mapping[str, Any] | None:
        """Its accuracy after fewer glimpses, if that was measured."""
        found = _first(self.folder / BY_GLIMPSES)
        return found if found is not None and found.get("format") == FORMAT else None


@dataclass(frozen=True)
class SequenceSet:
    """A folder of glimpse sequences, and the record of how they were made."""

    folder: Path
    name: str
    sequences: Sequences
    done: Mapping[str, Any] = field(default_factory=dict)

    def maps(self) -> Float[np.ndarray, "N T L"] | None:
        """Expected posterior entropy of every location at every step, if `nogs annotate` kept it."""
        path = self.folder / MAPS
        if not path.is_file():
            return None
        shape = (*self.sequences.locations.shape[:2], len(self.sequences.grid))
        return read_maps(path, shape)["estimate"].numpy()

    def first_map(self, column: int | None) -> Float[np.ndarray, " L"] | None:
        """The map of the first step, which all images of a task share."""
        found = first_map(self.folder, column)
        return None if found is None else found.numpy()


@dataclass(frozen=True)
class Run:
    """The products of one run; whatever is not there is None or empty."""

    folder: Path
    recipe: Mapping[str, Any]
    data: DataConfig | None
    inspection: Mapping[str, Any] | None
    posterior: Mapping[str, Any] | None
    bank: Mapping[str, Any] | None
    completions: Mapping[Path, Mapping[str, Any]]
    kinds: Mapping[str, Any] | None  # of completion, side by side
    sequences: tuple[SequenceSet, ...]
    networks: tuple[Network, ...]
    scores: Mapping[Path, Mapping[str, Any]]
    stages: Mapping[Path, Mapping[str, Any]]
    command: str = ""

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def task(self) -> str:
        """Name of its task, from what the run holds."""
        if self.inspection is not None:
            return str(self.inspection["task"])
        if self.data is not None and self.data.kind != "folder":
            return str(self.data.kind)
        return self.sequences[0].sequences.task if self.sequences else self.name

    @property
    def posterior_file(self) -> Path:
        """The file of its posterior, if it has one."""
        return self.folder / "posterior" / POSTERIOR

    @property
    def has(self) -> dict[str, bool]:
        """Each part of the method, and whether it is there."""
        return {
            "posterior": self.posterior is not None,
            "bank": self.bank is not None,
            "sequences": bool(self.sequences),
            "networks": bool(self.networks),
        }


def read_run(folder: Path) -> Run:
    """Everything that a report shows of a run; a folder that nogs did not write to is refused."""
    folder = Path(folder)
    if not folder.is_dir():
        meant = instead_of_run(folder, otherwise="give the folder of a run.")
        raise InputError(f"There is no folder {folder}; {meant}")
    recipe = _recipe(folder)
    bank = folder / "bank" / "done.json"
    run = Run(
        folder=folder,
        recipe=recipe,
        data=_data(recipe, folder),
        inspection=_first(folder / "data" / "inspect.json", folder / "inspect.json"),
        posterior=_first(folder / "posterior" / "evaluation.json"),
        bank=_first(bank),
        completions={
            path: read_json(path)
            for path in sorted((folder / "bank" / "evaluation").glob("*.json"))
            if path.name != COMPARED
        },
        kinds=_first(folder / "bank" / "evaluation" / COMPARED),
        sequences=_sequences(folder),
        networks=_networks(folder),
        scores=_scores(folder),
        stages={
            path: read_json(path)
            for pattern in ("*", "sequences/*", "attention/**")
            for path in sorted(folder.glob(f"{pattern}/done.json"))
        },
        command=str(read_sealed(folder / LOCAL).get("command", "")) if (folder / LOCAL).is_file() else "",
    )
    if not any(run.has.values()) and run.inspection is None and not run.recipe:
        meant = instead_of_run(folder, otherwise="give the folder of a run, such as nogs train's --out.")
        raise InputError(f"{folder} holds nothing that nogs made; {meant}")
    return run


def _recipe(folder: Path) -> dict[str, Any]:
    path = folder / "recipe.yaml"
    found = read_yaml(path) if path.is_file() else {}
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold a recipe's fields, but holds {found!r}.")
    return found


def _data(recipe: Mapping[str, Any], folder: Path) -> DataConfig | None:
    if "data" not in recipe:
        return None
    try:
        return DataConfig.model_validate(recipe["data"])
    except ValidationError as error:
        name = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(f"{folder / 'recipe.yaml'} is not a recipe of this version: data.{name} is wrong.") from error


def _first(*paths: Path) -> Mapping[str, Any] | None:
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return None
    found = read_json(path)
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold an object; make it again.")
    return found


def _networks(folder: Path) -> tuple[Network, ...]:
    """The finished networks; a method's name has its weight of supervision if there are several."""
    paths = sorted((folder / "attention").glob("**/evaluation.json"))
    learned = read_networks(folder) if paths else []
    bare = {one.method: re.sub(r", weight [^,]*", "", one.method) for one in learned}
    unique = {name for name, short in bare.items() if sum(short == other for other in bare.values()) == 1}
    return tuple(
        Network(path.parent, read_json(path), replace(one, method=bare[one.method]) if one.method in unique else one)
        for path, one in zip(paths, learned, strict=True)
    )


def _sequences(folder: Path) -> tuple[SequenceSet, ...]:
    # beside a recipe, sequences may lie in any folder of the run; without one this may be any folder at all
    whole = (folder / "recipe.yaml").is_file()
    places = [place for place in folder.iterdir() if place.name == "sequences" or (whole and place.is_dir())]
    places = [place for place in places if place.name not in _NOT_SEQUENCES]
    found = [folder] if (folder / "sequences.jsonl").is_file() else []
    found += [one for place in sorted(places) for one in folders(place) if (one / "manifest.json").is_file()]
    out: list[SequenceSet] = []
    taken: set[tuple[str, str | None]] = set()
    for one in found:
        sequences = load(one)
        name = _kind(sequences)
        if (name, sequences.attribute) in taken:
            name = f"{name} ({one.relative_to(folder).as_posix()})"
        taken.add((name, sequences.attribute))
        out.append(SequenceSet(one, name, sequences, _first(one / "done.json") or {}))
    return tuple(out)


def _kind(sequences: Sequences) -> str:
    """A short name: how they were made, or that they were imported."""
    method = sequences.provenance.get("method")
    if method:
        return str(method).removesuffix(" glimpse sequences")
    return "released" if "release" in str(sequences.provenance.get("source", "")) else "given"


def _scores(folder: Path) -> dict[Path, Mapping[str, Any]]:
    """Files of `nogs sequences score`, wherever in the run they were put."""
    out: dict[Path, Mapping[str, Any]] = {}
    for pattern in ("*.json", "sequences/**/*.json", "score*/**/*.json"):
        for path in sorted(folder.glob(pattern)):
            found = read_json(path)
            if isinstance(found, dict) and isinstance(found.get("ways"), dict):
                out[path] = found
    return out
