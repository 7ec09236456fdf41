"""`nogs sequences import | export | validate`: read, write and check files of glimpse sequences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from nogs.cli.args import Args, Overwrite
from nogs.cli.flags import parse
from nogs.runtime.errors import InputError
from nogs.runtime.spelling import instead

if TYPE_CHECKING:
    from nogs.sequences import Expected, Sequences


class ImportArgs(Args):
    """Arguments of `nogs sequences import`."""

    out: Path
    """Folder for the result: OUT/celeba-hq/<Attribute>, OUT/cub, or OUT/<task>[/<attribute>] for a table."""
    source: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="SOURCE")]]
    """The authors' zip (read in place), the folder that it unpacks to, or a table: a .csv, or a .tsv with tabs."""
    overwrite: Overwrite = False
    recipe: str | None = None
    """Table: recipe (a name, or a .yaml file) with the task, grid and number of glimpses of the sequences."""
    attribute: str | None = None
    """Table: the attribute that the sequences are for; without it they are for the whole task."""
    image: str = "image"
    """Table: heading of the column with the image's id."""
    step: str = "step"
    """Table: heading of the column with the glimpse's number, from 0 or from 1."""
    row: str = "row"
    """Table: heading of the column with the row (y), in pixels of the prepared image, from 0 at the top."""
    column: str = "column"
    """Table: heading of the column with the column (x), in pixels of the prepared image, from 0 at the left."""
    anchor: Literal["top-left", "centre"] = "top-left"
    """Table: the point of a glimpse that row and column give; gaze gives centres."""
    snap: bool = False
    """Table: move each glimpse to the nearest location of the grid; by default a glimpse off the grid is refused."""
    length: int | None = None
    """Table: number of glimpses per image; by default the recipe's."""
    cut: bool = False
    """Table: leave out glimpses after the first LENGTH; by default a longer sequence is refused."""
    drop_short: bool = False
    """Table: leave out images with fewer than LENGTH glimpses, and print how many; by default they are refused."""


class ExportArgs(Args):
    """Arguments of `nogs sequences export`."""

    out: Path
    """csv: the file to write, or, where SOURCE holds several folders, a folder of such files. text: a folder."""
    source: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="SOURCE")]]
    """A folder of sequences, or one that holds such folders."""
    format: Literal["csv", "text"] = "csv"
    """csv: image, step, row, column[, entropy, epe, epe_error], pixels and nats; text: the authors' files."""


class ValidateArgs(Args):
    """Arguments of `nogs sequences validate`."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """A folder of sequences, or one that holds such folders."""
    data: Path | None = None
    """Folder of the data, to check that each image exists and is not a validation or test image."""
    recipe: str | None = None
    """Recipe of the sequences' task (a name, or a .yaml file); by default the built-in one with the task's name."""


def import_(argv: list[str]) -> None:
    """Import the authors' released sequences, or a table of locations."""
    args = parse(
        ImportArgs,
        argv,
        prog="nogs sequences import",
        description="Import glimpse sequences: the authors' release, or a table with one glimpse per row.",
    )
    from nogs.sequences import read_release, save

    if args.source.suffix.lower() in (".csv", ".tsv"):
        found = [_table(args)]
    elif args.recipe is not None:
        raise InputError(f"{args.source} is not a table (.csv or .tsv), so it takes no --recipe; leave it out.")
    else:
        found = read_release(args.source)
    for sequences in found:
        folder = args.out / sequences.task / (sequences.attribute or "")
        save(sequences, folder, overwrite=args.overwrite)
        print(f"{folder}: {len(sequences):,} sequences of {sequences.length} glimpses")
        if left_out := sequences.provenance.get("images_left_out"):
            print(f"left out for having fewer glimpses: {left_out:,} image{'s' * (left_out != 1)}")
    print(f"{_total([len(sequences) for sequences in found])} written to {args.out}")


def export(argv: list[str]) -> None:
    """Write sequences as CSV or as the authors' text files."""
    args = parse(
        ExportArgs,
        argv,
        prog="nogs sequences export",
        description="Write glimpse sequences as CSV, or as the text files of the paper's authors.",
    )
    from nogs.runtime.progress import track
    from nogs.sequences import folders, load, write_csv, write_release

    sources = list(folders(args.source))
    if not sources:
        raise InputError(
            f"{args.source} holds no sequences; give a folder of sequences, or one that holds such folders."
        )
    loaded = [(folder, load(folder)) for folder in sources]
    with track("export", total=len(loaded), unit="folders") as progress:
        for folder, sequences in loaded:
            if args.format == "text":
                write_release(sequences, args.out)
            elif folder == args.source:
                write_csv(sequences, args.out)
            else:
                inner = folder.relative_to(args.source)
                write_csv(sequences, args.out / inner.with_name(inner.name + ".csv"))
            progress.advance()
    print(f"{_total([len(sequences) for _, sequences in loaded])} written to {args.out}")


def validate(argv: list[str]) -> None:
    """Check sequences, on their own or against their data."""
    args = parse(
        ValidateArgs,
        argv,
        prog="nogs sequences validate",
        description="Check glimpse sequences line by line, and against the grid, number of glimpses and attributes of "
        "their recipe; with --data also their images and splits.",
    )
    from nogs.sequences import validate as check

    known = _expected(args)
    report = check(args.folder, task=known, others=args.data is None and args.recipe is None)
    for folder, (count, length) in report.folders.items():
        print(f"{folder}: {count:,} sequences of {length} glimpses")
    print(f"{_total([count for count, _ in report.folders.values()])} of {args.folder} checked: all are valid")
    print(_checked({_task(folder) for folder in report.folders}, known, data=args.data is not None))


def _table(args: ImportArgs) -> Sequences:
    from nogs.recipes import recipe
    from nogs.sequences import Columns, read_csv

    if args.recipe is None:
        raise InputError(f"{args.source} needs --recipe, to know the task, its grid and the number of glimpses.")
    chosen = recipe(args.recipe)
    if args.attribute is not None and args.attribute not in (known := _attributes(chosen.data.kind)):
        meant = instead(args.attribute, known, otherwise="correct --attribute.")
        raise InputError(f"The task {chosen.data.kind!r} has no attribute {args.attribute!r}; {meant}")
    return read_csv(
        args.source,
        task=chosen.data.kind,
        grid=chosen.data.grid,
        attribute=args.attribute,
        columns=Columns(image=args.image, step=args.step, row=args.row, column=args.column),
        anchor=args.anchor,
        snap=args.snap,
        length=chosen.glimpses if args.length is None else args.length,
        cut=args.cut,
        drop_short=args.drop_short,
    )


def _expected(args: ValidateArgs) -> dict[str, Expected]:
    """What the sequences of each task must match, by the task's name. Decodes no picture.

    Without data only the values of recipes are known; the names `folder` and `digits` alone give none.
    """
    from nogs.data import load_task, read_catalogue
    from nogs.recipes import names, recipe
    from nogs.sequences import Expected, folders

    if args.recipe is not None:
        recipes = [recipe(args.recipe)]
    else:
        tasks = {_task(folder) for folder in folders(args.folder)}
        recipes = [recipe(name) for name in names() if name in tasks]
    known: dict[str, Expected] = {}
    for chosen in recipes:
        kind, grid = chosen.data.kind, chosen.data.grid
        if args.data is None:
            if args.recipe is not None or kind in ("celeba-hq", "cub"):
                attributes = _attributes(kind)
                known[kind] = Expected(task=kind, grid=grid, attributes=attributes, glimpses=chosen.glimpses)
            continue
        # the digits are drawn, not decoded, and have no catalogue
        source = load_task(chosen.data) if kind == "digits" else read_catalogue(chosen.data, data=args.data)
        known[source.name] = Expected.of(source, grid=grid, glimpses=chosen.glimpses)
    return known


def _checked(tasks: set[str | None], known: dict[str, Expected], *, data: bool) -> str:
    """What was checked, and what another flag would check."""
    if data:
        return "checked: each line, the recipe's grid, number of glimpses and attributes, the data's images and splits"
    if not tasks & known.keys():
        return "checked: each line alone; give --recipe for grid and number of glimpses, --data for images and splits"
    unknown = ", ".join(sorted(task for task in tasks - known.keys() if task))
    alone = f" (of {unknown} each line alone)" if unknown else ""
    return (
        f"checked: each line, the recipe's grid, number of glimpses and attributes{alone}; not images and splits, "
        "which need --data"
    )


def _attributes(kind: str) -> tuple[str, ...]:
    """The attributes of a task, if they do not depend on its data."""
    from nogs.sequences import CELEBA_ATTRIBUTES

    return CELEBA_ATTRIBUTES if kind == "celeba-hq" else ()


def _task(folder: Path) -> str | None:
    """The task that a folder of sequences names; None where it can't be read, which `validate` then reports."""
    from nogs.sequences import header

    try:
        return header(folder).task
    except InputError:
        return None


def _total(counts: list[int]) -> str:
    """The number of sequences and of folders, in words."""
    sequences, folders = sum(counts), len(counts)
    return f"{sequences:,} sequence{'s' * (sequences != 1)} in {folders} folder{'s' * (folders != 1)}"
