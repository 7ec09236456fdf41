"""Check trees of sequence folders, on their own or against the task that they are meant for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from nogs.data.catalogue import Catalogue
from nogs.data.task import Task
from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.sequences.problems import refuse
from nogs.sequences.sequences import Sequences
from nogs.sequences.store import LINES, MANIFEST, folders, load, read


@dataclass(frozen=True)
class Expected:
    """What sequences must fit: a task's name, grid, attributes, T (None: any), and images with their splits.

    `ids` is None where the data is not available; any image is then accepted.
    """

    task: str
    grid: Grid
    ids: frozenset[str] | None = None
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()
    glimpses: int | None = None

    @classmethod
    def of(cls, task: Task | Catalogue, *, grid: Grid, glimpses: int | None = None) -> Expected:
        """What the sequences of a task must fit; its catalogue is enough, so no picture needs to be decoded."""
        return cls(
            task=task.name,
            grid=grid,
            ids=frozenset(task.ids),
            splits=task.splits,
            attributes=task.space.names if task.space.kind == "bernoulli" else (),
            glimpses=glimpses,
        )


@dataclass(frozen=True)
class Report:
    """The valid folders in order, with the number of sequences and of glimpses in each."""

    folders: Mapping[Path, tuple[int, int]]

    @property
    def sequences(self) -> int:
        """Number of sequences in all folders."""
        return sum(count for count, _ in self.folders.values())


def validate(
    tree: Path, *, task: Task | Expected | Mapping[str, Expected] | None = None, others: bool = False
) -> Report:
    """Check every folder of sequences in `tree`; all problems are gathered into one error that names file and line.

    With a `task`, or several by name, the task's and the attribute's name, the grid and T are checked too. Each image
    must exist and be in neither the validation nor the test split. Sequences of any other task are refused, or with
    `others` checked on their own.
    """
    if not tree.is_dir():
        raise InputError(f"There is no folder {tree}; give a folder of sequences, or one that holds such folders.")
    if isinstance(task, Task):
        task = Expected.of(task, grid=task.grid)
    known = {task.task: task} if isinstance(task, Expected) else task
    problems: list[str] = []
    found: dict[Path, tuple[int, int]] = {}
    for folder in folders(tree):
        sequences, wrong = read(folder)
        problems += wrong
        if sequences is None:
            continue
        if known is not None and not (others and sequences.task not in known):
            problems += mismatches(sequences, known, folder=folder)
        found[folder] = (len(sequences), sequences.length)
    refuse(problems, source=tree)
    if not found:
        raise InputError(f"{tree} holds no sequences: no folder in it has a {LINES}; import or annotate first.")
    return Report(folders=found)


def mismatches(sequences: Sequences, known: Mapping[str, Expected], *, folder: Path) -> list[str]:
    """Every way in which the sequences of `folder` don't fit the task that they name."""
    manifest, lines = folder / MANIFEST, folder / LINES
    expected = known.get(sequences.task)
    if expected is None:
        names = ", ".join(repr(name) for name in known) or "no built-in recipe: name its own with --recipe"
        source = "recipe" if known and all(other.ids is None for other in known.values()) else "data"
        return [f"{manifest}: the sequences are for the task {sequences.task!r}, but the {source} is for {names}."]
    problems = []
    other = "; name another recipe with --recipe" if expected.ids is None else ""
    if sequences.attribute is not None and sequences.attribute not in expected.attributes:
        problems.append(f"{manifest}: the task {sequences.task!r} has no attribute {sequences.attribute!r}.")
    if sequences.grid != expected.grid:
        problems.append(
            f"{manifest}: the sequences are for {_describe(sequences.grid)}, but the task "
            f"{sequences.task!r} has {_describe(expected.grid)}{other}."
        )
    if expected.glimpses is not None and sequences.length != expected.glimpses:
        problems.append(
            f"{manifest}: the sequences have {sequences.length} glimpses, "
            f"but the recipe wants {expected.glimpses}{other}."
        )
    if expected.ids is None:
        return problems
    held_out = {id: split for split in ("validation", "test") for id in expected.splits.get(split, ())}
    for line, id in enumerate(sequences.ids, 1):
        if id not in expected.ids:
            problems.append(f"{lines}, line {line}: the task {sequences.task!r} has no image {id!r}.")
        elif id in held_out:
            problems.append(
                f"{lines}, line {line}: image {id!r} is in the {held_out[id]} split of {sequences.task!r}; "
                "only training images may have sequences."
            )
    return problems


def load_for(
    folder: Path,
    *,
    task: Task,
    attribute: str | None = None,
    glimpses: int | None = None,
    held_out: bool = False,
) -> Sequences:
    """The sequences of a task (and attribute) in `folder`, refused unless they fit it as in `validate`.

    `folder` may be the folder of sequences itself or a tree as `nogs sequences import` makes it. Sequences of the whole
    task serve every attribute that has none of its own. With `held_out` they may be of validation and test images, for
    scoring alone.
    """
    own = () if attribute is None else (folder / attribute, folder / task.name / attribute)
    folders = (folder, *own, folder / task.name)
    found = next((one for one in folders if (one / MANIFEST).is_file()), None)
    if found is None:
        what = task.name + (f" / {attribute}" if attribute else "")
        raise InputError(f"{folder} holds no sequences for {what}; import or annotate them first.")
    sequences = load(found)
    expected = Expected.of(task, grid=task.grid, glimpses=glimpses)
    if held_out:
        expected = replace(expected, splits={})
    problems = mismatches(sequences, {task.name: expected}, folder=found)
    if sequences.attribute not in (None, attribute):
        problems.append(f"{found / MANIFEST}: the sequences are for {sequences.attribute!r}, not for {attribute!r}.")
    refuse(problems, source=found)
    return sequences


def _describe(grid: Grid) -> str:
    rows, columns = grid.shape
    return (
        f"a grid of {rows} x {columns} locations (up to row {grid.rows[-1]}, column {grid.columns[-1]}) "
        f"of {grid.glimpse} px glimpses on {grid.height} x {grid.width} px"
    )
