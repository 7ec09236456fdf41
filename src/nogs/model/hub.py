"""Sharing a network: a folder in the layout of the Hugging Face hub, pushed to a repository or fetched from one.

model.safetensors   weights, and in its header all that `nogs.load` needs
config.json         the same facts for programs that don't read that header, and how pictures are prepared
README.md           the model card: what it does, its scores, how to use it, licence notes
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nogs import __version__
from nogs.attention.looking import Looking
from nogs.attention.network import Networks
from nogs.attention.store import save_network
from nogs.model.card import card
from nogs.model.found import CONFIG, WEIGHTS, Found
from nogs.plus.network import TokenNetwork
from nogs.plus.publishing import copy_network
from nogs.plus.store import about_network, attributes_of, load_network
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_sealed, write_text

FORMAT = "nogs packed network 1"
DATA_FIELDS = ("kind", "image_size", "glimpse", "grid_count", "grid_last", "grid_spacing", "fit")
"""The fields of the recipe's data that are packed: how pictures are prepared, but not the user's columns and files."""


def pack(found: Found, folder: Path, *, licence: str = "other", title: str | None = None) -> Path:
    """Write the three files of a network into `folder`; `licence` is an SPDX name, or "other" as the hub calls it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not (folder / WEIGHTS).exists():
        raise InputError(f"{folder} is not empty and holds no packed network; choose another --out.")
    names = () if found.attribute else attributes_of(found.path)
    networks, about = load_network(found.path, attribute=found.attribute or next(iter(names), None))
    if len(names) > 1:
        each = [about_network(found.path, attribute=name) for name in names]
        about |= {"attribute": None, "labels": list(names), **_mean_scores(each)}
    data = {name: found.data[name] for name in DATA_FIELDS if name in found.data}
    config: dict[str, Any] = {
        "format": FORMAT,
        "library_name": "nogs",
        "nogs_version": __version__,
        "model_type": "hard-attention",
        "network": found.name,
        "architecture": {**networks.architecture.to_json(), "glimpses": networks.architecture.glimpses},
        "id2label": dict(enumerate(about["labels"])),
        "label2id": {label: n for n, label in enumerate(about["labels"])},
        "data": data,
        **{name: about.get(name) for name in ("task", "method", "attribute", "seed", "best", "iteration")},
        "policy": networks.policy,
        "locations": _locations(networks, several=len(names) > 1),
        "attributes": list(names) if len(names) > 1 else None,
        "title": about.get("title") or about["task"],
        "metrics": {"validation": about.get("validation"), "test": about.get("test")},
        "test_images": about.get("test_images"),
    }
    if isinstance(networks, Networks):
        # written anew and not copied: in a run, a network may use the frozen part of another
        parameters = {name: value[0] for name, value in networks.state_dict().items()}
        save_network(folder / WEIGHTS, parameters, architecture=networks.architecture, about=about)
    else:
        copy_network(found.path, folder / WEIGHTS)
    write_sealed(folder / CONFIG, config)
    own = found.path.with_suffix(".md")  # a published network's
    more = re.sub("^#", "##", own.read_text(encoding="utf-8"), flags=re.MULTILINE) if own.is_file() else ""
    write_text(folder / "README.md", card(config, licence=licence, title=title) + (f"\n{more}" if more else ""))
    return folder


def _locations(networks: Looking, *, several: bool) -> str:
    """How locations are chosen: "learned", "fixed", "fixed for each attribute" or "random"."""
    if not isinstance(networks, TokenNetwork) or networks.looks.head is not None:
        return "learned"
    if networks.looks.sampled:
        return "random"
    return "fixed for each attribute" if several and not networks.looks.shared else "fixed"


def _mean_scores(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The validation and test scores of a network's attributes, averaged."""
    tests = [about["test"] for about in each]
    common = [
        name for name, value in tests[0].items() if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return {
        "validation": sum(about["validation"] for about in each) / len(each),
        "test": {name: sum(test[name] for test in tests) / len(tests) for name in common},
    }


def push(folder: Path, repository: str, *, private: bool = False, message: str = "Upload with nogs") -> str:
    """Upload a packed folder to `user/repository`, which is created if needed; returns its address."""
    api = _huggingface().HfApi(library_name="nogs", library_version=__version__)
    with _sentences(f"could not push to {repository!r}", "log in with `hf auth login`, or check the name"):
        url = api.create_repo(repository, private=private, exist_ok=True)
        names = [WEIGHTS, CONFIG, "README.md"]
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message, allow_patterns=names)
    return str(url)


def download(repository: str) -> Path:
    """The folder of `user/repository[@revision]`: from the hub's cache where it is there, else fetched."""
    name, _, revision = repository.partition("@")
    if name.count("/") != 1 or not all(name.split("/")):
        raise InputError(f"hf://{repository} must name a user and a repository: hf://user/repository[@revision].")
    library = _huggingface()
    with _sentences(f"could not fetch hf://{repository}", "check its name and the connection"):
        found = library.snapshot_download(
            name, revision=revision or None, allow_patterns=[WEIGHTS, CONFIG], library_name="nogs"
        )
    folder = Path(found)
    if not (folder / WEIGHTS).exists():
        raise InputError(f"hf://{repository} holds no {WEIGHTS}; it was not packed with nogs hub.")
    return folder


def _huggingface() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise InputError("The hub needs huggingface_hub; install it with pip install 'nogs[hub]'.") from None
    return huggingface_hub


class _sentences:
    """Turns exceptions of the hub's library into one sentence."""

    def __init__(self, what: str, advice: str) -> None:
        self.what, self.advice = what, advice

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, InputError):
            reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
            raise InputError(f"nogs {self.what} ({reason}); {self.advice}.") from error
