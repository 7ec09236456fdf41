"""Training of the whole-image reference as a stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nogs.data.task import Task
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.imagenet import find_weights
from nogs.runtime.device import pick_device, versions
from nogs.runtime.errors import InputError
from nogs.runtime.fields import dotted
from nogs.runtime.files import write_json
from nogs.runtime.fingerprint import file_digest, fingerprint
from nogs.runtime.stage import Stage
from nogs.runtime.tensors import save_tensors
from nogs.whole.config import WholeConfig
from nogs.whole.evaluation import FILE, inverse_temperatures, scores
from nogs.whole.network import pretrained
from nogs.whole.trainer import Trainer

__all__ = ["made_from", "train_whole"]

FORMAT = "nogs whole image 1"


def train_whole(
    task: Task,
    *,
    config: WholeConfig,
    posterior: PosteriorConfig,
    folder: Path,
    seed: int = 0,
    device: str = "auto",
    data: Path | None = None,
) -> None:
    """Train, calibrate and evaluate the reference; a finished one is kept, an interrupted one resumes.

    `folder` gets network.safetensors, evaluation.json and metrics.jsonl. Images are mirrored and changed as for the
    `posterior`. VGG-16's weights are first searched in the folder `data`.
    """
    fields = made_from(config, posterior, data=data)
    mark = fingerprint("whole image 2", fields, task.fingerprint, seed)
    named = dotted({**fields, "seed": seed, "data": task.fingerprint})
    stage = Stage(folder, name="whole-image", fingerprint=mark, fields=named)
    stage.check_folder()
    if stage.done:
        return
    trainer = Trainer(
        task, config=config, posterior=posterior, seed=seed, device=pick_device(device), mark=mark, data=data
    )
    stage.begin()
    trainer.run(folder)
    _write(trainer, folder)
    stage.finish(device=trainer.device, iterations=trainer.iteration, training_seconds=round(trainer.spent, 1))
    (folder / "state.safetensors").unlink(missing_ok=True)


def made_from(config: WholeConfig, posterior: PosteriorConfig, *, data: Path | None) -> dict[str, Any]:
    """The fields that determine the reference: its own, and those that it shares with the posterior.

    A digest stands for a file of weights.
    """
    shared = {"flip": posterior.flip, "augment": posterior.augment.model_dump(mode="json")}
    if pretrained(posterior):
        source = find_weights(posterior.weights, data)
        if source != "imagenet":
            if not Path(source).is_file():
                raise InputError(f"There is no file {source}; check --posterior.weights.")
            source = file_digest(source)
        layers, scale = posterior.stem_layers, posterior.stem_scale
        shared |= {"weights": source, "stem_layers": layers, "stem_scale": scale}
    return {"whole": config.model_dump(mode="json"), "posterior": shared}


def _write(trainer: Trainer, folder: Path) -> None:
    """Calibrate the best network; write it and its scores on validation and test images."""
    task, network = trainer.task, trainer.network
    network.load_state_dict(trainer.best)
    scale = inverse_temperatures(trainer.logits("validation"), trainer.truth("validation"), space=task.space)
    scored = {
        split: scores(trainer.logits(split), trainer.truth(split), scale=scale, space=task.space)
        for split in ("validation", "test")
    }
    about: dict[str, Any] = {
        "task": task.name,
        "task_fingerprint": task.fingerprint,
        "trained_on": f"{len(trainer.training):,} images of the split 'train'",
        "network": _described(trainer),
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "iterations": trainer.iteration,
        "best_iteration": trainer.best_iteration,
        "seed": trainer.seed,
        "inverse_temperature": scale.tolist(),
        "versions": versions(trainer.device),
        "tests": scored["test"],
        "validations": scored["validation"],
    }
    space = {"kind": task.space.kind, "names": list(task.space.names)}
    said = {"format": FORMAT, "task": task.name, "space": space, "network": about["network"]}
    tensors = {**network.state_dict(), "inverse_temperature": scale}
    save_tensors(folder / "network.safetensors", {name: value.cpu() for name, value in tensors.items()}, said)
    write_json(folder / FILE, {**about, "seconds": round(trainer.spent, 1)})


def _described(trainer: Trainer) -> str:
    config, posterior = trainer.config, trainer.posterior
    if not trainer.pretrained:
        return f"residual CNN from scratch, {config.width} to {trainer.network.features.channels} channels"
    scale = f", image enlarged {posterior.stem_scale} times" if posterior.stem_scale > 1 else ""
    kept = "frozen" if trainer.frozen else "fine-tuned"
    return f"first {posterior.stem_layers} convolutions of VGG-16 from ImageNet, {kept}{scale}, and a linear layer"
