"""`nogs hub push`: a network as a folder that others can load, on disk or from the Hugging Face hub."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated

import tyro

from nogs.cli.args import NetworkArgs, OptionalFolder
from nogs.cli.flags import parse
from nogs.runtime.errors import InputError


class PushArgs(NetworkArgs):
    """Arguments of `nogs hub push`."""

    repository: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="USER/REPOSITORY")] = None
    """Repository on the hub, created if it does not exist; not needed with --out."""
    out: OptionalFolder = None
    """Write the folder here, for nogs.load and nogs predict; without a repository nothing is uploaded."""
    licence: Annotated[str, tyro.conf.arg(metavar="SPDX")] = "other"
    """Licence of the weights, such as mit or cc-by-nc-4.0; other leaves it open."""
    title: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """Title of the model card."""
    private: bool = False
    """Make a newly created repository private."""


def push(argv: list[str]) -> None:
    """Pack a network in the hub's layout, and upload it if a repository is named."""
    args = parse(
        PushArgs,
        argv,
        prog="nogs hub push",
        description="Pack a network for nogs.load: model.safetensors, config.json and a model card, written to --out "
        "or uploaded to a repository on the Hugging Face hub. Log in first with `hf auth login`.",
    )
    from nogs.model.finding import find
    from nogs.model.hub import pack
    from nogs.model.hub import push as push_folder

    if args.repository is None and args.out is None:
        raise InputError("nogs hub push needs USER/REPOSITORY to upload to, or --out DIR to write to.")
    if args.repository is not None and args.repository.count("/") != 1:
        raise InputError(f"The repository must be USER/REPOSITORY, not {args.repository!r}.")
    found = find(args.run, network=args.network, attribute=args.attribute, best=args.best)
    print(found.why)
    with tempfile.TemporaryDirectory() if args.out is None else contextlib.nullcontext(str(args.out.parent)) as parent:
        folder = Path(parent) / "network" if args.out is None else args.out
        packed = pack(found, folder, licence=args.licence, title=args.title)
        if args.out is not None:
            print(f"Network written: {packed}")
        if args.repository is not None:
            print(f"Network uploaded: {push_folder(packed, args.repository, private=args.private)}")
