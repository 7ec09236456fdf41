"""Publish a posterior: a smaller copy of its file, and a card with its type, scores and training."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nogs.posterior.store import LOOKS, about_posterior, find_posterior, smaller
from nogs.runtime.digests import DONE
from nogs.runtime.errors import InputError
from nogs.runtime.fields import dotted
from nogs.runtime.files import read_json, write_text
from nogs.runtime.tensors import load_tensors, save_tensors

Fields = Mapping[str, Any]
_FILES = ("weights", "teacher", "start")  # fields that name a file, published without its folder


def publish(
    source: str | Path,
    path: Path,
    *,
    fields: Fields,
    defaults: Fields,
    notes: str = "",
    bits: int = 16,
    looks: Mapping[str, Tensor] | None = None,
    more: str = "",
) -> None:
    """Write `source` (a file or a published name) to `path` with `bits` per weight, and a card beside it (.md).

    `fields` are those of its run's recipe. The card's command states where they differ from `defaults`, the fields of
    the recipe that it names. For a network, `looks` are the tensors of its policy, and `more` is the card's text about
    them.
    """
    if path.suffix != ".safetensors":
        raise InputError(f"A posterior's file ends in .safetensors, but {path} does not.")
    about, found = about_posterior(source), find_posterior(source)  # refuses what is not a posterior
    tensors, metadata = load_tensors(found)
    about["config"] |= file_names(about["config"])
    small = smaller({name: value for name, value in tensors.items() if not name.startswith(LOOKS)}, bits)
    said = {name: value for name, value in metadata.items() if name != "looks" or looks is not None}
    save_tensors(path, {**small, **(looks or {})}, {**said, "about": about})
    done = found.with_name(DONE)
    seconds = read_json(done).get("training_seconds") if done.is_file() else None
    kind = "float16" if bits == 16 else f"{bits} bits"
    made = {**{name: fields[name] for name in ("glimpses", "data")}, "posterior": about["config"]}
    command = f"--seed {about['seed']}{flags(dotted(made), dotted(defaults))}"
    text = _card(path, said, about, command, notes, seconds=seconds, kind=kind)
    write_text(path.with_suffix(".md"), text + more)


def file_names(config: Fields) -> dict[str, str]:
    """The fields that name a file of the training machine, without its folder."""
    return {name: Path(config[name]).name for name in _FILES if config.get(name)}


def flags(fields: Fields, usual: Fields) -> str:
    """Fields by dotted name as flags, where they differ from a recipe's."""
    said = ""
    for name, value in fields.items():
        if value != usual.get(name):
            part, _, field = name.replace("_", "-").rpartition(".")
            prefix = f" --{part}." if part else " --"
            if isinstance(value, bool):
                said += f"{prefix}{'' if value else 'no-'}{field}"
            else:
                said += f"{prefix}{field} {shlex.quote(str(value))}"
    return said


def _card(
    path: Path,
    metadata: dict[str, Any],
    about: dict[str, Any],
    command: str,
    notes: str,
    *,
    seconds: float | None,
    kind: str,
) -> str:
    architecture, took = metadata["architecture"], "" if seconds is None else f"{seconds:.0f} s "
    kinds = {"tokens": "transformer over glimpse tokens", "cnn": "masked CNN"}
    what = f"a {kinds[about['config']['kind']]} of"
    seen = "Not trained on any image to annotate, to validate or to test."
    if about["config"].get("split") == "train":
        seen = (
            "Not trained on any image to validate or to test. Trained on images to annotate, so it must not annotate "
            "them."
        )
    if "went_on" in about:
        seen = (
            "Trained further on all training images, including those to annotate, so it must not annotate them. The "
            "table of random locations is of the posterior before that."
        )
    if "folds" in metadata:
        what = f"{metadata['folds']} cross-fitted networks, each {what.removesuffix(' of')}, together of"
    lines = [
        f"# {'Network' if 'looks' in metadata else 'Posterior'} {path.stem}",
        "",
        f"Predicts the labels of the task `{about['task']}` from glimpses: {what} "
        f"{about['parameters']:,} weights ({kind}, {path.stat().st_size / 2**20:.1f} MiB), for up to "
        f"{architecture['glimpses']} glimpses of {architecture['grid']['glimpse']} px.",
        "",
        f"- Trained on {about['trained_on']}, seed {about['seed']}, {took}on "
        f"{about['versions']['device']} with nogs {about['versions']['nogs']} and torch {about['versions']['torch']}; "
        f"best of {about['iterations']:,} iterations on the validation images after {about['best_iteration']:,}.",
        "- Calibrated by a temperature for each number of glimpses, on the validation images.",
        f"- {seen}",
        f"- Command: `nogs posterior train {about['task']} --data DATA --out RUN {command}`",
        *([f"- {notes}"] if notes else []),
        "",
        f"Test images at random locations, after calibration, before the weights were rounded to {kind}; "
        "cross-entropy and entropy in nats, means over labels:",
        "",
        "| glimpses | accuracy | cross-entropy | entropy | calibration error |",
        "|---|---|---|---|---|",
    ]
    for row in about["tables"]["test, calibrated"]:
        lines.append(
            f"| {row['glimpses']} | {row['accuracy']:.1%} | {row['cross_entropy']:z.4f} | {row['entropy']:z.4f} | "
            f"{row['calibration_error']:.4f} |"
        )
    return "\n".join(lines) + "\n"
