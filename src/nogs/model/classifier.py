"""`Model`: a trained network that answers about one image, given whole or glimpse by glimpse through a sensor."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from nogs.attention import policy as policies
from nogs.attention.looking import Looking
from nogs.data.images import Fit
from nogs.glimpse import cut
from nogs.model.answers import Answer, Location, answer_of, location_at
from nogs.model.pictures import Picture, read_picture
from nogs.runtime import streams
from nogs.runtime.device import one_thread
from nogs.runtime.errors import InputError

Policy = Literal["sample", "argmax"]
"""A location drawn by its probability, as in training and validation, or the most probable one."""
ImageLike = str | Path | Image.Image | npt.NDArray[np.uint8]


class Look:
    """One look at one image: iterate over locations, and `see` the patch at each before the next."""

    def __init__(
        self,
        model: Model,
        *,
        policy: Policy | None,
        stop_at: float | None,
        seed: int,
        number: int = 0,
        of: str = "",
    ) -> None:
        policy = policy or model.networks.policy
        if policy not in ("sample", "argmax"):
            raise InputError(f"There is no policy {policy!r}; choose sample or argmax.")
        if stop_at is not None and not 0 < stop_at <= 1:
            raise InputError(f"The confidence to stop at must lie above 0 and be at most 1, not {stop_at}.")
        self.model, self.stop_at = model, stop_at
        self._key = streams.key(seed, "look", of, step=number) if policy == "sample" else None
        self.state = model.networks.start(1)
        self._waiting: int | None = None
        self.seen: list[int] = []
        self.confidence: list[float] = []

    def __iter__(self) -> Iterator[Location]:
        return self

    def __next__(self) -> Location:
        if self._waiting is not None:
            row, column = self.model.location(self._waiting)
            raise InputError(f"The glimpse at row {row}, column {column} has not been seen; call see(patch) first.")
        if self.finished:
            raise StopIteration
        self._waiting = self.model.choose(self.state, self._uniform())
        return self.model.location(self._waiting)

    @property
    def finished(self) -> bool:
        """All glimpses are taken, or the confidence has reached `stop_at`."""
        sure = self.stop_at is not None and bool(self.confidence) and self.confidence[-1] >= self.stop_at
        return sure or len(self.seen) >= self.model.glimpses

    def see(self, patch: npt.NDArray[np.uint8]) -> None:
        """Take the sensor's patch at the last location: see `Model.see`."""
        if self._waiting is None:
            raise InputError("No location is waiting to be seen; take the next one from the look first.")
        self.state = self.model.update(self.state, patch, self._waiting)
        self.seen.append(self._waiting)
        self._waiting = None
        self.confidence.append(float(self.model.belief(self.state).max()))

    @property
    def answer(self) -> Answer:
        """The network's answer so far; before the first glimpse, its prediction without looking."""
        return _answer(self.model, [self])

    def _uniform(self) -> float | None:
        if self._key is None:
            return None
        return float(streams.uniform(self._key, torch.tensor([len(self.seen)]))[0])


@dataclass(repr=False)
class Model:
    """A trained hard-attention network (M = 1) with its labels; `why` says how it was chosen."""

    networks: Looking
    about: Mapping[str, Any]
    name: str = "network"
    fit: Fit = "crop"
    why: str = ""
    _look: Look | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.networks.requires_grad_(False).eval()
        architecture = self.networks.architecture
        self.labels: tuple[str, ...] = tuple(map(str, self.about["labels"]))
        self.grid, self.glimpses = architecture.grid, architecture.glimpses

    def __repr__(self) -> str:
        shown = ", ".join(self.labels[:3]) + (", ..." if len(self.labels) > 3 else "")
        of = self.about.get("title") or self.about.get("task")
        return (
            f"<Model {self.name} of {of}: {self.glimpses} glimpses of {self.grid.glimpse} px in {self.grid.height} x "
            f"{self.grid.width} px, {len(self.labels)} labels ({shown})>"
        )

    def classify(
        self,
        image: ImageLike,
        *,
        policy: Policy | None = None,
        looks: int = 1,
        stop_at: float | None = None,
        seed: int = 0,
    ) -> Answer:
        """Look at an image: a file, a Pillow image, or a uint8 array `[H, W, 3]`; only its glimpses reach the network.

        The `policy` is by default the network's own: the paper's networks draw locations as in training, the others
        take the best. `stop_at` ends a look once a label has this probability. Several `looks` with the policy "sample"
        are averaged, which is slower and more accurate. The same `seed` draws the same locations for the same picture,
        and others for another.
        """
        return self.classify_picture(self.picture(image), policy=policy, looks=looks, stop_at=stop_at, seed=seed)

    def classify_picture(
        self,
        picture: Picture,
        *,
        policy: Policy | None = None,
        looks: int = 1,
        stop_at: float | None = None,
        seed: int = 0,
    ) -> Answer:
        """The same for a picture prepared by `picture`, whose notes the answer carries."""
        if looks < 1:
            raise InputError(f"An image takes at least one look, not {looks}.")
        if looks > 1 and (policy or self.networks.policy) == "argmax":
            raise InputError(
                f"With the policy argmax all {looks} looks are the same; take one look, or the policy sample."
            )
        image = torch.from_numpy(picture.pixels)[None]
        mark = hashlib.blake2b(picture.pixels.tobytes(), digest_size=8).hexdigest()  # other looks for each picture
        taken = [
            Look(self, policy=policy, stop_at=stop_at, seed=seed, number=number, of=mark) for number in range(looks)
        ]
        for look in taken:
            for location in look:
                patch = cut(image, torch.tensor([location]), glimpse=self.grid.glimpse)
                look.see(patch[0].numpy())
        return replace(_answer(self, taken), notes=picture.notes, picture=picture.pixels, grid=self.grid)

    def picture(self, image: ImageLike) -> Picture:
        """The pixels that the network's glimpses are cut from, prepared as the images that it was trained on."""
        return read_picture(image, grid=self.grid, fit=self.fit)

    def sense(
        self,
        read: Callable[[Location], npt.NDArray[np.uint8]],
        *,
        policy: Policy | None = None,
        stop_at: float | None = None,
        seed: int = 0,
    ) -> Answer:
        """Look through a sensor: `read` returns the patch at a location, in the form that `see` takes."""
        look = Look(self, policy=policy, stop_at=stop_at, seed=seed)
        for location in look:
            look.see(read(location))
        return look.answer

    def look(self, *, policy: Policy | None = None, stop_at: float | None = None, seed: int = 0) -> Look:
        """Begin a look: `for location in model.look(): model.see(patch)`, then `model.answer`.

        Several looks may be open at once, each with its own `see` and `answer`.
        """
        self._look = Look(self, policy=policy, stop_at=stop_at, seed=seed)
        return self._look

    def see(self, patch: npt.NDArray[np.uint8]) -> None:
        """Take the sensor's patch at the location: uint8 `[g, g, 3]`, g the side of a glimpse."""
        self._current().see(patch)

    @property
    def answer(self) -> Answer:
        """The network's answer after the glimpses so far of the last look."""
        return self._current().answer

    def location(self, index: int) -> Location:
        """The pixel of a location's index on the grid."""
        return location_at(index, self.grid)

    @one_thread()  # the steps of one image are so small that several threads wait for each other
    def choose(self, state: torch.Tensor, uniform: float | None = None) -> int:
        """The next location: the most probable index of the grid, or the one that `uniform` draws."""
        logits = self.networks.location_logits(state)
        drawn = None if uniform is None else torch.full(logits.shape[:-1], uniform, device=logits.device)
        return int(policies.choose(logits, drawn, width=self.grid.shape[1])[0])

    @one_thread()
    def update(self, state: torch.Tensor, patch: npt.NDArray[np.uint8], index: int) -> torch.Tensor:
        """The state after seeing `patch` at the location of this index."""
        device = state.device
        glimpse = torch.from_numpy(self._patch(patch))[None, None].to(device)
        return self.networks.see(state, glimpse, torch.tensor([[index]], device=device))

    @one_thread()
    def belief(self, state: torch.Tensor) -> npt.NDArray[np.float32]:
        """Probabilities of the labels in a state."""
        return torch.softmax(self.networks.classify(state)[0, 0].float(), -1).cpu().numpy()

    def _current(self) -> Look:
        if self._look is None:
            raise InputError("There is no look yet; begin with model.look().")
        return self._look

    def _patch(self, patch: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """A patch of the right type and shape."""
        given, wanted = np.asarray(patch), (self.grid.glimpse, self.grid.glimpse, 3)
        if given.dtype == np.uint8 and given.shape == wanted:
            return np.array(given)  # a copy: a sensor's buffer may be read-only, or change
        raise InputError(f"A patch must be uint8 of shape {wanted}, not {given.dtype} of shape {given.shape}.")


def _answer(model: Model, looks: Sequence[Look]) -> Answer:
    """The network's answer after some looks, with averaged probabilities."""
    return answer_of(
        np.mean([model.belief(look.state) for look in looks], 0),
        labels=model.labels,
        grid=model.grid,
        seen=[index for look in looks for index in look.seen],
        confidence=[value for look in looks for value in look.confidence],
        stopped_early=any(look.finished and len(look.seen) < model.glimpses for look in looks),
    )
