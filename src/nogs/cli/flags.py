"""The command line, made from a command's `Args` and a recipe's fields; each mistake is reported in one sentence.

`tyro` parses types, help texts and values. --help shows the common flags, --help-all every flag.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import tyro
from pydantic import BaseModel, Field, create_model
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from nogs.cli.args import A, Args, Rare
from nogs.cli.mistakes import sentence
from nogs.runtime.errors import InputError
from nogs.runtime.fields import dotted
from nogs.runtime.files import plain
from nogs.runtime.progress import say, working
from nogs.runtime.spelling import closest

if TYPE_CHECKING:
    from nogs.recipes import Recipe

_HELP = ("-h", "--help", "--help-all")


def show(found: Any, text: str, *, as_json: bool) -> None:
    """Print a result: as text, or as one JSON value."""
    print(json.dumps(found, default=plain) if as_json else text)


def parse(args_type: type[A], argv: Sequence[str], *, prog: str, description: str) -> A:
    """The command's `args_type` filled from `argv`. --help prints and exits."""
    _check_names(argv, args_type, None, prog)
    found: A = _tyro(args_type, argv, prog=prog, description=description)
    return found


@working("Starting")
def parse_with_recipe(
    args_type: type[A],
    argv: Sequence[str],
    *,
    prog: str,
    description: str,
    choose: Callable[[A, Recipe, Mapping[str, Any]], tuple[Recipe, list[str]]] | None = None,
    tell: Callable[[str], None] = say,
) -> tuple[A, Recipe]:
    """The command's `args_type`, and the recipe that the first argument names, with its fields as dotted flags.

    The first argument may also be a run's folder, which has a recipe, or a folder of pictures. An existing run on
    pictures keeps its recipe. For a new one `choose` sets the sizes that the user did not give; its lines go to `tell`.
    """
    if not argv or argv[0].startswith("-"):
        if set(_HELP) & set(argv):
            about = "RECIPE, the first argument, is digits, celeba-hq, cub, folder, a .yaml file or a folder of "
            about += "pictures; put one before --help to see its flags."
            _tyro(args_type, argv, prog=f"{prog} RECIPE", description=f"{description}\n\n{about}")
        raise InputError(
            f"{prog} needs a recipe as its first argument: digits, celeba-hq, cub, folder, a .yaml file or a folder of "
            "pictures."
        )
    from nogs.data.archives import check_pictures
    from nogs.recipes import names, of_run, recipe, validated  # imported late: loads torch
    from nogs.recipes.folder import CHOSEN
    from nogs.recipes.recipe import check_fields

    word, argv = argv[0], list(argv[1:])
    name, out = word, None
    if word not in names() and Path(word).is_dir():
        begun = (Path(word) / "recipe.yaml").is_file()
        if not begun:
            check_pictures(Path(word))
        out = Path(word) if begun else Path("runs") / Path(word).resolve().name
        name = str(Path(word) / "recipe.yaml") if begun else "folder"
        argv += [] if begun else ["--data", word]
    base = of_run(out) if out is not None and name != "folder" else recipe(name, or_pictures=True)
    prog = f"{prog} {word}"
    _check_names(argv, args_type, type(base), prog)

    def read(base: Recipe) -> Any:
        fields: dict[str, Any] = {"args": (Annotated[args_type, tyro.conf.arg(name="")], ...)}
        if {"-h", "--help"} & set(argv):
            shown = {name: _plain_field(base, name) for name in args_type.fields_shown}
            fields["recipe"] = (Annotated[create_model("Joint", __base__=Args, **shown), tyro.conf.arg(name="")], ...)
        else:
            fields["recipe"] = (Annotated[type(base), tyro.conf.arg(name="")], base)
        joint: Any = create_model("Joint", __base__=Args, **fields)
        chosen = CHOSEN if choose and base.data.kind == "folder" else frozenset()
        return _tyro(joint, argv, prog=prog, description=description, chosen=chosen)

    both = read(base)
    args: A = both["args"]
    if getattr(args, "out", ...) is None:
        data = getattr(args, "data", None)
        named = data.resolve().name if name == "folder" and data is not None else base.name
        args = args.model_copy(update={"out": out or Path("runs") / named})
    source = f"Recipe {base.name!r} with these flags"
    if base.data.kind == "folder":
        data, out = (getattr(args, name, None) for name in ("data", "out"))
        if data is not None and out is not None and data.resolve() in (out.resolve(), *out.resolve().parents):
            outside = Path("runs") / data.resolve().name
            if outside.resolve().is_relative_to(data.resolve()):
                outside = data.resolve().parent / outside
            raise InputError(
                f"--out {out} lies in the folder of the pictures; name one outside, such as --out {outside}."
            )
        fields = _given(name, argv, both["recipe"])
        check_fields(both["recipe"], fields, source=source, spell=_flag)  # before `choose` takes time
        chosen, lines = _for_folder(base, name, args, fields, choose=choose)
        both = read(chosen) if chosen != base else both
        for line in lines:
            tell(line)
    return args, validated(both["recipe"], source=source, spell=_flag)


def _for_folder(
    base: Recipe,
    name: str,
    args: A,
    given: Mapping[str, Any],
    *,
    choose: Callable[[A, Recipe, Mapping[str, Any]], tuple[Recipe, list[str]]] | None,
) -> tuple[Recipe, list[str]]:
    """The recipe of a run on pictures, and lines about it. A begun run keeps its own, also on a faster machine; else
    `choose` sets sizes for the pictures and this machine."""
    from nogs.recipes import changed, of_run

    data, out = (getattr(args, name, None) for name in ("data", "out"))
    begun = None if out is None else out / "recipe.yaml"
    if begun is not None and begun.is_file() and (own := of_run(begun.parent)).data.kind == "folder":
        told = (
            []
            if Path(name) == begun
            else [f"Resuming with the sizes of {begun}; flags change them, and another --out begins a new run."]
        )
        if getattr(args, "minutes", None) is not None:
            told = [f"Resuming with the sizes of {begun}; --minutes only counts for a new run, with another --out."]
        return changed(own, _file_fields(name)), told
    if choose is None or data is None or not data.is_dir():
        return base, []
    return choose(args, base, given)


def _given(name: str, argv: Sequence[str], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that the user set, by dotted name: in a recipe file, or as flags, which take precedence."""
    from nogs.recipes import Recipe

    known, values = _flags(Recipe), dotted(recipe)
    flags = [known.get(_spelt(word)) for word in argv]
    return _file_fields(name) | {field: values[field] for field in flags if field}


def _file_fields(name: str) -> dict[str, Any]:
    """The fields set in a recipe's file, by dotted name; a built-in recipe has none."""
    from nogs.recipes import names
    from nogs.runtime.files import read_yaml

    if name in names():
        return {}
    return dotted({key: value for key, value in read_yaml(Path(name)).items() if key != "base"})


def _tyro(type_: Any, argv: Sequence[str], *, prog: str, description: str, chosen: frozenset[str] = frozenset()) -> Any:
    """tyro's result; its boxed error becomes a sentence. The help marks `chosen` fields as chosen by the run."""
    everything, box = "--help-all" in argv, io.StringIO()
    helping = bool(set(_HELP) & set(argv))
    if helping and not everything:
        description += " --help-all shows every flag."
    try:
        with contextlib.redirect_stderr(box):
            found, stray = tyro.cli(
                type_,
                args=["--help"] if helping else list(argv),
                prog=prog,
                description=description,
                registry=_registry(everything or not helping, chosen=chosen),
                return_unknown_args=True,
            )
    except SystemExit as ending:
        if not ending.code:
            raise
        raise InputError(f"{sentence(box.getvalue())}; see {prog} --help.") from None
    if stray:
        raise InputError(f"{prog} does not take the argument {stray[0]!r}; see {prog} --help.")
    return found


def _registry(everything: bool, *, chosen: frozenset[str]) -> ConstructorRegistry:
    """How tyro reads a pydantic model: `Args` as themselves, a recipe as a dict, whose fields `validated` checks
    together."""
    registry = ConstructorRegistry()

    @registry.struct_rule
    def model(info: StructTypeInfo) -> StructConstructorSpec | None:
        if not _is_model(info.type):
            return None
        joint, own = info.type.__name__ == "Joint", issubclass(info.type, Args)
        fields = []
        for name, field in info.type.model_fields.items():
            marks = [mark for mark in field.metadata if type(mark).__module__.startswith("tyro")]
            given = isinstance(info.default, BaseModel)
            value = getattr(info.default, name) if given else field.get_default(call_default_factory=True)
            default = tyro.MISSING if not given and field.is_required() else value
            if name.startswith("as_"):
                marks.append(tyro.conf.arg(name=name.removeprefix("as_")))
            if get_origin(field.annotation) is tuple and not any(getattr(mark, "metavar", None) for mark in marks):
                marks.append(tyro.conf.arg(metavar="N ..." if int in get_args(field.annotation) else "NAME ..."))
            if Rare in field.metadata and not everything:
                marks.append(tyro.conf.Suppress)
            dotted_name = name if joint else f"{_parts().get(info.type, '?')}.{name}".removeprefix(".")
            if dotted_name in chosen:
                marks.append(tyro.conf.arg(help_behavior_hint="(default: chosen from your pictures)"))
            elif default in (None, ()) and not any(getattr(mark, "help_behavior_hint", None) for mark in marks):
                marks.append(tyro.conf.arg(help_behavior_hint=lambda _: ""))  # the help text explains the default
            help_ = " ".join((field.description or "").split())
            kind: Any = field.annotation
            for mark in marks:
                kind = Annotated[kind, mark]
            fields.append(StructFieldSpec(name=name, type=kind, default=default, helptext=help_))
        return StructConstructorSpec(instantiate=info.type if own and not joint else dict, fields=tuple(fields))

    return registry


def _plain_field(recipe: Recipe, name: str) -> Any:
    """A field of the recipe, by its dotted name, as a flag beside the command's own."""
    part: Any = recipe
    *parts, last = name.split(".")
    for inner in parts:
        part = getattr(part, inner)
    field = type(part).model_fields[last]
    kind: Any = field.annotation
    return Annotated[kind, tyro.conf.arg(name=_flag(name).removeprefix("--"))], Field(
        getattr(part, last), description=field.description
    )


def _parts() -> dict[Any, str]:
    """The parts of a recipe, by their types."""
    from nogs.recipes import Recipe

    return {Recipe: ""} | {f.annotation: name for name, f in Recipe.model_fields.items() if _is_model(f.annotation)}


def _check_names(argv: Sequence[str], args_type: type[Args], recipe: type[BaseModel] | None, prog: str) -> None:
    """Refuse unknown flags, and name missing required ones; tyro checks positional arguments."""
    if set(_HELP) & set(argv):
        return
    own = _flags(args_type)
    known = own if recipe is None else own | _flags(recipe)
    given = [_spelt(word) for word in argv if re.match(r"--?[A-Za-z]", word)]
    for flag in given:
        if flag not in known:
            turned = re.sub(r"^--no-(.+\.)", r"--\1no-", flag)  # in a group "no" follows the group's name
            close = turned if turned in known else closest(flag, known)
            hint = f"did you mean {close}?" if close else f"see {prog} --help."
            raise InputError(f"{prog} has no flag {flag}; {hint}")
    missing = [flag for flag, name in own.items() if flag not in given and args_type.model_fields[name].is_required()]
    if missing:
        raise InputError(f"{prog} needs {' and '.join(missing)}; see {prog} --help.")


def _flags(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    """The flags of a model, each with the dotted name of its field."""
    out: dict[str, str] = {}
    for name, field in model.model_fields.items():
        if _is_model(field.annotation):
            out |= _flags(field.annotation, f"{prefix}{name}.")  # type: ignore[arg-type]
        elif tyro.conf.Positional not in field.metadata:
            negated = (f"no_{name}",) if field.annotation is bool else ()
            out |= {_flag(prefix + word): prefix + name for word in (name, *negated)}
    return out


def _is_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, BaseModel)


def _flag(name: str) -> str:
    return "--" + name.removeprefix("as_").replace("_", "-")


def _spelt(word: str) -> str:
    """The flag in a word of the command line, without its value."""
    return word.partition("=")[0].replace("_", "-")
