"""Flags from types: a command's dataclass and a recipe's fields become the command line, mistakes become one sentence.

`tyro` reads types, texts and values; what it can't say in one sentence (unknown, missing or misspelt flags, several
mistakes in a recipe) is said here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import tyro
from pydantic import BaseModel
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from nogs.cli import closest
from nogs.runtime.errors import InputError

if TYPE_CHECKING:
    from nogs.data import Task
    from nogs.recipes import Recipe

Args = TypeVar("Args")
Folder = Annotated[Path, tyro.conf.arg(metavar="DIR")]
OptionalFolder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskArgs:
    """Flags of every command that reads a dataset."""

    data: OptionalFolder = None
    """Folder that holds the dataset; digits needs none."""
    cache: OptionalFolder = None
    """Folder of the decoded images; by default $NOGS_CACHE, else ~/.cache/nogs."""
    skip_corrupt: bool = False
    """Go on without images that can't be read, and record which."""

    def load(self, recipe: Recipe) -> Task:
        """The recipe's task from that folder."""
        from nogs.data import load_task
        from nogs.runtime.progress import say

        recipe.data.check_glimpses(recipe.glimpses)
        task = load_task(recipe.data, data=self.data, cache=self.cache, skip_corrupt=self.skip_corrupt)
        if task.skipped and not self.skip_corrupt:  # not said now, but when the run was made
            say(f"note: {len(task.skipped)} unreadable {'picture' if len(task.skipped) == 1 else 'pictures'} left out.")
        return task


_REWORDED = (
    (r"Error parsing (--\S+): .*int\(\) with base 10: (.*)", r"\1 must be a whole number, not \2"),
    (r"Error parsing (--\S+): .*could not convert string to float: (.*)", r"\1 must be a number, not \2"),
    (r"Error parsing (--seeds): Could not find valid parse .*?\[(.*)\]", r"\1 must be whole numbers, not \2"),
    (r"Error parsing (--\S+): Could not find valid parse .*?\[(.*)\]", r"\1 must be numbers, not \2"),
    (r"invalid choice (.*) for argument '(.*)'\. Expected one of \((.*?),?\)\.", r"\2 must be one of \3, not \1"),
    (r"Missing from (.*?): (\S+).*", r"\1 needs \2"),
    (r"Missing value for argument '(.*?)'\..*", r"\1 needs a value"),
    (r"Error parsing (--\S+): (.*)", r"\1 can't be read: \2"),
)
"""tyro's messages for a value, and ours; one that is not here is shown in tyro's words."""


def parse(args_type: type[Args], argv: Sequence[str], *, prog: str, description: str) -> Args:
    """The command's dataclass `args_type` filled from `argv`. --help prints and exits."""
    if not _asks_for_help(argv):
        _check_names(argv, args_type, list(_flags_of_args(args_type)), prog)
    return _tyro(args_type, argv, prog=prog, description=description)


def parse_with_recipe(
    args_type: type[Args], argv: Sequence[str], *, prog: str, description: str
) -> tuple[Args, Recipe]:
    """The command's dataclass, and the recipe named by the first argument with its fields as dotted flags."""
    if not argv or argv[0].startswith("-"):
        if _asks_for_help(argv):
            about = (
                "RECIPE, the first argument, is digits, celeba-hq, cub, folder or a .yaml file; put it before --help"
            )
            _tyro(args_type, argv, prog=f"{prog} RECIPE", description=f"{description}\n\n{about} to see its own flags.")
        raise InputError(
            f"{prog} needs a recipe as its first argument: digits, celeba-hq, cub, folder or a .yaml file."
        )
    from nogs.recipes import recipe, validated  # after the quick answers: brings torch

    base = recipe(argv[0])
    prog, argv = f"{prog} {argv[0]}", argv[1:]
    if not _asks_for_help(argv):
        _check_names(argv, args_type, [*_flags_of_args(args_type), *_flags_of_model(type(base))], prog)
    joint = dataclasses.make_dataclass(
        "Joint",
        [
            ("args", Annotated[args_type, tyro.conf.arg(name="")]),
            ("recipe", Annotated[type(base), tyro.conf.arg(name="")], dataclasses.field(default_factory=lambda: base)),
        ],
    )
    both = _tyro(joint, argv, prog=prog, description=description)
    found = validated(both.recipe, source=f"Recipe {base.name!r} with these flags", spell=_flag)
    data, out = (getattr(both.args, name, None) for name in ("data", "out"))
    if found.data.kind == "folder" and data is not None and out is not None and data.resolve() == out.resolve():
        raise InputError(f"--out is the folder of the pictures, {data}; name another, such as {data / 'run'}.")
    return both.args, found


def find_source(recipe: Recipe, task: Task, *, given: str | None, run: Path | None, flag: str) -> str | None:
    """The posterior that a command asks: the given one, the run's own, or the recipe's published one if there is one.

    One whose training is not finished, or that does not fit, is refused; `flag` names another.
    """
    from nogs.posterior.store import misfit
    from nogs.posterior.training import FILE
    from nogs.runtime.progress import say

    if given is not None:
        return given
    if run is not None:
        own = run / "posterior" / FILE
        if own.is_file():
            return str(own)
        if (own.parent / "stage.json").is_file():
            raise InputError(
                f"The training of the posterior in {own.parent} is not finished; go on with nogs posterior train, or "
                f"give {flag}."
            )
    name = recipe.published
    if name is None:
        return None
    why = misfit(name, task, glimpses=recipe.glimpses)
    if why is not None:
        raise InputError(
            f"The published posterior {name} can't be used: {why}; train one with nogs posterior train or give {flag}."
        )
    say(f"Asking the published posterior {name}.")
    return name


def _tyro(type_: Any, argv: Sequence[str], *, prog: str, description: str) -> Any:
    """tyro's result; its boxed error becomes a sentence."""
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            found, stray = tyro.cli(
                type_,
                args=list(argv),
                prog=prog,
                description=description,
                registry=_unvalidated,
                return_unknown_args=True,
            )
    except SystemExit as ending:
        if not ending.code:
            raise
        raise InputError(f"{_sentence(box.getvalue())}; see {prog} --help.") from None
    if stray:
        raise InputError(f"{prog} does not know what to do with {stray[0]!r}; see {prog} --help.")
    return found


_unvalidated = ConstructorRegistry()


@_unvalidated.struct_rule
def _model(info: StructTypeInfo) -> StructConstructorSpec | None:
    """A pydantic model is read as a dict: all of a recipe's fields are then checked together, by `validated`."""
    if not (inspect.isclass(info.type) and issubclass(info.type, BaseModel)):
        return None
    fields = []
    for name, field in info.type.model_fields.items():
        kind: Any = field.annotation
        value = getattr(info.default, name)
        fields.append(StructFieldSpec(name=name, type=kind, default=value, helptext=field.description))
    return StructConstructorSpec(instantiate=dict, fields=tuple(fields))


def _sentence(box: str) -> str:
    """What a boxed message says, in one line; the box is drawn with lines, or with hyphens where lines can't be."""
    sections: list[list[str]] = [[]]
    for line in box.splitlines():
        text = line.strip(" │")
        if text.startswith("╭") or (text and not text.strip("─-╰╯")):
            sections.append([])
        else:
            sections[-1].append(text)
    told = [" ".join(" ".join(section).split()) for section in sections if section]
    for pattern, replacement in _REWORDED:
        for text in told:
            if re.search(pattern, text):
                return re.sub(pattern, replacement, text).rstrip(".")
    return ": ".join(told[:-1]).rstrip(".") or "the arguments can't be read"  # the last section is about --help


def _check_names(argv: Sequence[str], args_type: type, known: list[str], prog: str) -> None:
    """Refuse unknown flags, and name the required ones that are missing; tyro looks after positional arguments."""
    given = [word.partition("=")[0].replace("_", "-") for word in argv if re.match(r"--?[A-Za-z]", word)]
    for flag in given:
        if flag not in known:
            turned = re.sub(r"^--no-(.+\.)", r"--\1no-", flag)  # the flag of a group has its "no" behind the group
            close = turned if turned in known else closest(flag, known)
            hint = f"did you mean {close}?" if close else f"see {prog} --help."
            raise InputError(f"{prog} has no flag {flag}; {hint}")
    fields = {_flag(field.name): field for field in dataclasses.fields(args_type)}
    missing = [
        flag
        for flag, field in fields.items()
        if flag in known and flag not in given and field.default is field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f"{prog} needs {' and '.join(missing)}; see {prog} --help.")


def _flags_of_args(args_type: type) -> Iterator[str]:
    for name, hint in get_type_hints(args_type, include_extras=True).items():
        if tyro.conf.Positional not in getattr(hint, "__metadata__", ()):
            yield from _spellings("", name, hint)


def _flags_of_model(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
            yield from _flags_of_model(field.annotation, f"{prefix}{name}.")
        else:
            yield from _spellings(prefix, name, field.annotation)


def _spellings(prefix: str, name: str, type_: Any) -> Iterator[str]:
    yield _flag(prefix + name)
    if type_ is bool:
        yield _flag(f"{prefix}no_{name}")


def _flag(dotted: str) -> str:
    return "--" + dotted.replace("_", "-")


def _asks_for_help(argv: Sequence[str]) -> bool:
    return "--help" in argv or "-h" in argv
