"""A network of several attributes, each a model with its own or a shared policy; one call evaluates them all."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nogs.attention.looking import Looking
from nogs.glimpse import Grid
from nogs.model.answers import Answer, answer_of, share_of
from nogs.model.classifier import ImageLike, Model
from nogs.model.pictures import Picture
from nogs.plus.network import TokenNetwork
from nogs.plus.store import load_attributes
from nogs.plus.together import look_together
from nogs.runtime.device import one_thread

__all__ = ["Answers", "Attributes", "each_attribute"]


class Answers(dict[str, Answer]):
    """An answer for each attribute."""

    @property
    def present(self) -> dict[str, float]:
        """The attributes that are more likely present than not, with their probabilities; the likeliest first."""
        found = {name: answer.probabilities[name] for name, answer in self.items() if answer.label == name}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def pixels_read(self) -> float:
        """Share of the image's pixels inside a glimpse of any attribute."""
        grid = next(iter(self.values())).grid
        assert grid is not None
        return share_of([place for answer in self.values() for place in answer.locations], grid)

    def __repr__(self) -> str:
        said = ", ".join(f"{name} {share:.1%}" for name, share in self.present.items()) or "none"
        return f"<Answers for {len(self)} attributes: {said}>"

    def _repr_png_(self) -> bytes | None:
        """In a notebook: the picture with the glimpses of each attribute."""
        first = next(iter(self.values()))
        if first.picture is None or first.grid is None:
            return None
        from nogs.model.drawing import attributes_sheet

        return attributes_sheet([first.picture], [self], grid=first.grid, names=[""])


class Attributes(Mapping[str, Model]):
    """The models of a network, by attribute: `classify` runs all of them, `attributes["Smiling"]` is one."""

    labels: tuple[str, ...] = ()
    """Empty: the attributes together have no labels."""

    def __init__(self, models: Mapping[str, Model], *, name: str, why: str) -> None:
        self._models, self.name, self.why = dict(models), name, why
        first = next(iter(self._models.values()))
        self.grid: Grid = first.grid
        self.glimpses: int = first.glimpses
        self.picture = first.picture

    def __getitem__(self, attribute: str) -> Model:
        return self._models[attribute]

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def __repr__(self) -> str:
        return f"<{len(self)} attributes of {self.name}: {', '.join(list(self)[:3])}, ...>"

    def classify(self, image: ImageLike, **how: Any) -> Answers:
        """The answer of each attribute's model for an image; the arguments are those of `Model.classify`."""
        return self.classify_picture(self.picture(image), **how)

    def classify_picture(self, picture: Picture, **how: Any) -> Answers:
        """The same for a picture prepared by `picture`."""
        best = (how.get("policy") or next(iter(self.values())).networks.policy) == "argmax"
        if best and how.get("looks", 1) == 1 and how.get("stop_at") is None:
            return self._together(picture)
        return Answers({name: model.classify_picture(picture, **how) for name, model in self.items()})

    @one_thread()
    def _together(self, picture: Picture) -> Answers:
        """All attributes in one batch at their best locations: many times faster than one after the other."""
        network = next(iter(self.values())).networks
        assert isinstance(network, TokenNetwork)
        device = network.pixels.device
        image = torch.from_numpy(picture.pixels)[None].to(device)
        looked = look_together(network, image, torch.zeros(1, dtype=torch.int64, device=device))
        every, places = looked.answers[:, 0].exp().cpu().numpy(), looked.locations[:, 0].tolist()
        out = Answers()
        for (name, model), shares, seen in zip(self.items(), every, places):
            sure = shares.max(-1).tolist()
            answer = answer_of(shares[-1], labels=model.labels, grid=self.grid, seen=seen, confidence=sure)
            out[name] = replace(answer, notes=picture.notes, picture=picture.pixels, grid=self.grid)
        return out


def each_attribute(path: Path, *, device: str | torch.device) -> Iterator[tuple[str, Looking, dict[str, Any]]]:
    """The attributes of a network's file, each with a view of the one network, and its description."""
    network, abouts = load_attributes(path, device=device)
    for number, (name, about) in enumerate(abouts.items()):
        view: Any = copy.copy(network)  # the weights are shared
        view.attribute = number
        yield name, view, about
