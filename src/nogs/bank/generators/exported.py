"""External generators in formats that can't run code: an ONNX file, and a diffusers pipeline of safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from nogs.bank.generators.noise import image_keys, normal, to_pictures
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json
from nogs.runtime.fingerprint import files_fingerprint, fingerprint
from nogs.runtime.reading import read_regular, reason
from nogs.runtime.streams import key

__all__ = ["Diffusers", "Exported"]

_MOST = 2**31
"""Largest size of an ONNX file in bytes, the limit of its format."""


class Exported:
    """An ONNX network that maps N(0, 1) numbers [n, latent] to images [n, 3, H, W] in -1..1; n may be fixed."""

    count = None

    def __init__(self, path: Path, *, latent: int, image_size: int, device: torch.device) -> None:
        self.path, self.latent, self.size, self.device = Path(path), latent, (image_size, image_size), device
        if self.path.suffix != ".onnx":
            raise InputError(
                f"{path} is not an .onnx file; a .pt2 or TorchScript file can run code when it is loaded, so neither "
                "is read: export the network with torch.onnx.export."
            )
        try:
            data = read_regular(self.path, most=_MOST)
        except OSError as error:
            raise InputError(f"Cannot read {path} ({error.strerror}); check --generator-path.") from error
        self._mark = fingerprint(data)
        self._session = _session(data, path=self.path, device=device)
        taken = self._session.get_inputs()
        shape = taken[0].shape if len(taken) == 1 and taken[0].type == "tensor(float)" else []
        if len(shape) != 2 or (isinstance(shape[1], int) and shape[1] != latent):
            listed = ", ".join(f"{one.name}: {one.type} {one.shape}" for one in taken) or "none"
            raise InputError(
                f"{path} must take one float32 input [n, {latent}], but its inputs are {listed}; export it with that "
                "one, or set --bank.latent."
            )
        self._input = taken[0].name
        self._batch = shape[0] if isinstance(shape[0], int) else None

    @property
    def fingerprint(self) -> str:
        """Of the file and the size."""
        return fingerprint("exported", self._mark, self.latent, self.size)

    @torch.no_grad()
    def generate(self, numbers: Int64[np.ndarray, " n"], *, seed: int) -> UInt8[Tensor, "n H W 3"]:
        """The images of these numbers."""
        keys = image_keys(numbers, seed=seed, purpose="exported", device=self.device)
        latents = normal(keys, self.latent).cpu().numpy()
        step = self._batch or len(latents)
        parts = [self._images(latents[start : start + step]) for start in range(0, len(latents), step)]
        return to_pictures(torch.from_numpy(np.concatenate(parts)).to(self.device), self.size[0])

    def _images(self, latents: Float32[np.ndarray, "n latent"]) -> Float32[np.ndarray, "n 3 H W"]:
        """One call of the network, padded to its batch size if that is fixed."""
        lacking = (self._batch or len(latents)) - len(latents)
        given = np.pad(latents, ((0, lacking), (0, 0)))
        try:
            values = self._session.run(None, {self._input: given})[0]
        except Exception as error:  # onnxruntime raises kinds of its own
            raise InputError(f"{self.path} can't be run on {given.shape} numbers ({reason(error)}).") from error
        if values.ndim != 4 or values.shape[:2] != (len(given), 3) or values.dtype.kind != "f":
            raise InputError(
                f"{self.path} must give images [n, 3, H, W] for [n, {self.latent}] numbers, not {values.dtype} of "
                f"shape {values.shape} for n = {len(given)}."
            )
        return values[: len(latents)].astype(np.float32, copy=False)


def _session(data: bytes, *, path: Path, device: torch.device) -> Any:
    """A session of the network. Loaded from bytes, it can't refer to other files, so it must contain its weights."""
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError("The generator 'exported' needs an extra: pip install 'nogs[onnx]'.") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised, so the log would repeat them
    options.intra_op_num_threads = torch.get_num_threads()
    wanted = ["CUDAExecutionProvider"] * (device.type == "cuda") + ["CPUExecutionProvider"]
    providers = [name for name in wanted if name in onnxruntime.get_available_providers()]
    try:
        return onnxruntime.InferenceSession(data, options, providers=providers)
    except Exception as error:  # onnxruntime raises kinds of its own
        raise InputError(
            f"{path} is not a whole ONNX network with its weights inside ({reason(error)}); export it again, with "
            "external_data=False."
        ) from error


class Diffusers:
    """An unconditional diffusers pipeline from a local folder; nothing is downloaded, and none of its code is run."""

    count = None

    def __init__(self, folder: Path, *, image_size: int, device: torch.device) -> None:
        self.size, self.device = (image_size, image_size), device
        _refuse_code(Path(folder))
        try:
            from diffusers import DiffusionPipeline  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise InputError("The generator 'diffusers' needs an extra: pip install 'nogs[diffusers]'.") from error
        try:
            self._pipeline = DiffusionPipeline.from_pretrained(str(folder), local_files_only=True, use_safetensors=True)
        except Exception as error:  # diffusers raises many types of errors on incomplete folders
            raise InputError(
                f"{folder} is not a diffusers pipeline with safetensors weights ({reason(error)}); save it again with "
                "save_pretrained."
            ) from error
        self._pipeline.to(device)
        self._pipeline.set_progress_bar_config(disable=True)
        self._mark = files_fingerprint(path for path in Path(folder).rglob("*") if path.is_file())

    @property
    def fingerprint(self) -> str:
        """Of the files and the size."""
        return fingerprint("diffusers", self._mark, self.size)

    @torch.no_grad()
    def generate(self, numbers: Int64[np.ndarray, " n"], *, seed: int) -> UInt8[Tensor, "n H W 3"]:
        """The images of these numbers, each from its own torch generator."""
        streams = [
            torch.Generator(device=self.device).manual_seed(key(seed, "diffusers", str(number))) for number in numbers
        ]
        out = self._pipeline(batch_size=len(streams), generator=streams, output_type="np").images
        return to_pictures(torch.from_numpy(out).permute(0, 3, 1, 2) * 2 - 1, self.size[0])


def _refuse_code(folder: Path) -> None:
    """Refuse code that diffusers would run: it imports Python files of a local folder, and any library named there."""
    index = folder / "model_index.json"
    parts = read_json(index)
    if not isinstance(parts, dict) or not isinstance(parts.get("_class_name"), str):
        raise InputError(f"{index} must name one of diffusers' own pipelines as _class_name; save the pipeline again.")
    for name, part in parts.items():
        own = isinstance(part, list) and part in ([None, None], ["diffusers", *part[1:2]])
        if not name.startswith("_") and isinstance(part, str | list | dict) and not own:
            raise InputError(f"{index}: {name} is {part!r}; only parts of diffusers itself are loaded, no other code.")
    python = next(folder.rglob("*.py"), None)
    if python is not None:
        raise InputError(
            f"{python} is Python code, which diffusers would run; remove it if the pipeline works without."
        )
