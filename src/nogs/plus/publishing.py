"""Publishing a posterior, with the network on it if there is one: one small file for both, with a card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nogs.attention import store as paper
from nogs.plus.packing import packed
from nogs.plus.store import seen
from nogs.posterior import card
from nogs.posterior.store import LOOKS, read_header
from nogs.runtime.errors import InputError
from nogs.runtime.fields import dotted
from nogs.runtime.tensors import load_tensors, save_tensors, tensor_header

__all__ = ["copy_network", "publish"]

Fields = Mapping[str, Any]


def publish(source: Path, path: Path, *, fields: Fields, defaults: Fields, notes: str = "", bits: int = 16) -> int:
    """`nogs.posterior.card.publish` for the file of a posterior or of a network on one, with all its attributes.
    Returns the number of bytes that store where to look."""
    if tensor_header(source)[0].get("format") == paper.FORMAT:
        raise InputError(f"{source} is a network of the paper, which has no posterior; share it with nogs hub push.")
    source, _ = seen(source, None)
    looks = read_header(source)[0].looks
    if looks is None:
        card.publish(source, path, fields=fields, defaults=defaults, notes=notes, bits=bits)
        return 0
    tensors = {n.removeprefix(LOOKS): value for n, value in load_tensors(source)[0].items() if n.startswith(LOOKS)}
    small = packed(tensors, by_order=not (looks["learned"] or looks["sampled"]), bits=bits)
    card.publish(
        source,
        path,
        fields=fields,
        defaults=defaults,
        notes=notes,
        bits=bits,
        looks={LOOKS + name: value for name, value in small.items()},
        more=_card(looks, fields, defaults),
    )
    return sum(value.numel() * value.element_size() for value in small.values())


def copy_network(source: Path, path: Path) -> None:
    """Copy the file of a network, with all its attributes, but without the names of local folders."""
    tensors, metadata = load_tensors(seen(source, None)[0])
    config = metadata["about"].get("config", {})
    save_tensors(
        path, tensors, {**metadata, "about": {**metadata["about"], "config": {**config, **card.file_names(config)}}}
    )


def _card(looks: Mapping[str, Any], fields: Fields, defaults: Fields) -> str:
    """The card's section on where the network looks, and its scores there."""
    entries = looks["about"]
    one = next(iter(entries.values()))
    single, shared = "" in entries, looks.get("shared", False)
    how = "One order of locations for all images, by greedy selection on images that did not train the posterior"
    if looks["learned"]:
        how = f"A location head chooses from the glimpses so far (iteration {one['iteration']:,})"
    elif one["method"] not in ("fixed", "ps-nogs+"):
        how = f"Those of the method `{one['method']}`"
    flags = "" if single else f" --attribute {'all' if len(entries) > 1 else one['attribute']}"
    flags += f" --seed {one['seed']}"
    if one["method"] == "ps-nogs+":
        flags += card.flags(dotted({"plus": fields["plus"]}), dotted(defaults))
    elif one["method"] == "fixed" and shared:
        flags += " --plus.shared"
    of = "" if single else " shared by all attributes" if shared else " of its own for each attribute"
    lines = [
        "",
        "## Locations",
        "",
        f"{how}; {looks['glimpses']} glimpses{of}.",
        "",
        f"- Command: `nogs train {one['task']} --data DATA --posterior POSTERIOR --method {one['method']}{flags} "
        "--out RUN`",
        "",
        "Test images at the network's own locations, before weights were rounded:",
        "",
        "| | accuracy | NLL (nats) |",
        "|---|---|---|",
    ]
    scores = [(name, entry["test"]["accuracy"], entry["test"]["nll"]) for name, entry in entries.items()]
    if len(scores) > 1:
        mean = (sum(score[place] for score in scores) / len(scores) for place in (1, 2))
        scores.insert(0, (f"mean of {len(scores)} attributes", *mean))
    lines += [f"| {name or one['task']} | {accuracy:.1%} | {nll:z.3f} |" for name, accuracy, nll in scores]
    return "\n".join(lines) + "\n"
