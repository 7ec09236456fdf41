"""Running an exported network with numpy and onnxruntime alone, without torch."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nogs.runtime.errors import InputError

Floats = npt.NDArray[np.float32]


class Exported:
    """A step file of `nogs export`: its metadata, and `step`."""

    def __init__(self, path: Path, *, threads: int = 1) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.enable_cpu_mem_arena = False  # no growing memory pool: only the memory of a step
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        said = self.session.get_modelmeta().custom_metadata_map
        if not said.get("format", "").startswith("nogs step "):
            raise InputError(f"{path} is not a step that nogs export wrote; export the run again.")
        self.labels: list[str] = json.loads(said["labels"])
        self.grid: dict[str, list[int]] = json.loads(said["grid"])
        self.glimpses = int(said["glimpses"])
        self.initial_state = _floats(said["initial_state"])[None]
        self.initial_locations = _floats(said["initial_locations"])

    def step(self, state: Floats, patch: npt.NDArray[np.uint8], location: int) -> tuple[Floats, Floats, Floats]:
        """The next state `[1, H]`, labels `[1, K]` and locations `[1, L]` after seeing `patch` at a location."""
        found = self.session.run(
            ["next_state", "labels", "locations"],
            {"state": state, "patch": patch[None], "location": np.array([location], np.int64)},
        )
        return found[0], found[1], found[2]

    def look(self, image: npt.NDArray[np.uint8], uniforms: Floats | None = None) -> tuple[Floats, list[int]]:
        """Probabilities of the labels after all glimpses of an image `[H, W, 3]`, and the locations' indices."""
        state, locations = self.initial_state, self.initial_locations
        labels, chosen = np.zeros(len(self.labels), np.float32), []
        columns, side = len(self.grid["columns"]), int(self.grid["glimpse"])  # type: ignore[call-overload]
        for t in range(self.glimpses):
            index = choose(locations, None if uniforms is None else float(uniforms[t]))
            row, column = self.grid["rows"][index // columns], self.grid["columns"][index % columns]
            patch = image[row : row + side, column : column + side]
            state, said, after = self.step(state, patch, index)
            labels, locations = said[0], after[0]
            chosen.append(index)
        return labels, chosen


def choose(probabilities: Floats, uniform: float | None) -> int:
    """The most probable index, or the one that a uniform number in [0, 1) draws."""
    if uniform is None:
        return int(probabilities.argmax())
    cumulative = probabilities.cumsum(dtype=np.float64)
    return min(int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right")), len(cumulative) - 1)


def accuracy(
    exported: Exported,
    images: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int64],
    uniforms: Floats | None = None,
    *,
    advance: Callable[[int], None] = lambda _: None,
) -> float:
    """Accuracy of the exported network on the images `rows`; `uniforms[n]` are those of the n-th look. `advance` is
    called after every look."""
    right = 0
    for n, (row, label) in enumerate(zip(rows, labels)):
        said, _ = exported.look(images[row], None if uniforms is None else uniforms[n])
        right += int(said.argmax()) == int(label)
        advance(1)
    return right / len(rows)


def _floats(text: str) -> Floats:
    return np.frombuffer(base64.b64decode(text), "<f4").astype(np.float32)
