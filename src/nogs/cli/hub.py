"""`nogs hub pack` and `nogs hub push`: a network as a folder that others load, here or from the Hugging Face hub."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nogs.cli.flags import parse
from nogs.cli.predict import NetworkArgs
from nogs.runtime.errors import InputError


@dataclass(frozen=True, kw_only=True)
class CardArgs(NetworkArgs):
    """What the model card says."""

    licence: Annotated[str, tyro.conf.arg(metavar="SPDX")] = "other"
    """Licence of the weights, such as mit or cc-by-nc-4.0; other leaves it open."""
    title: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """Title of the model card."""


@dataclass(frozen=True, kw_only=True)
class PackArgs(CardArgs):
    """Arguments of `nogs hub pack`."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder to write; nogs.load and nogs predict read it."""


@dataclass(frozen=True, kw_only=True)
class PushArgs(CardArgs):
    """Arguments of `nogs hub push`."""

    repository: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="USER/REPOSITORY")]
    """Repository on the hub, made if it does not exist."""
    private: bool = False
    """Make it private, if it is made."""


def pack(argv: list[str]) -> None:
    """Write a network in the hub's layout."""
    args = parse(
        PackArgs,
        argv,
        prog="nogs hub pack",
        description="model.safetensors, config.json and a model card of one network, in a folder that nogs.load reads.",
    )
    from nogs.model.finding import find
    from nogs.model.hub import pack as pack_network

    found = find(args.run, network=args.network, best=args.best)
    print(f"{found.why}\npacked: {pack_network(found, args.out, licence=args.licence, title=args.title)}")


def push(argv: list[str]) -> None:
    """Upload a network to the hub."""
    args = parse(
        PushArgs,
        argv,
        prog="nogs hub push",
        description="Pack one network and upload it; log in first with `hf auth login`.",
    )
    from nogs.model.finding import find
    from nogs.model.hub import pack as pack_network
    from nogs.model.hub import push as push_folder

    if args.repository.count("/") != 1:
        raise InputError(f"The repository must be USER/REPOSITORY, not {args.repository!r}.")
    found = find(args.run, network=args.network, best=args.best)
    with tempfile.TemporaryDirectory() as folder:
        packed = pack_network(found, Path(folder) / "network", licence=args.licence, title=args.title)
        print(f"{found.why}\npushed: {push_folder(packed, args.repository, private=args.private)}")
