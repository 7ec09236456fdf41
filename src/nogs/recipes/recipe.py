"""`Recipe`: the frozen configuration of an experiment, and messages about mistakes in it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from nogs.attention.config import AttentionConfig
from nogs.bank.config import BankConfig
from nogs.completion.config import CompletionConfig
from nogs.data.config import DataConfig
from nogs.design.config import DesignConfig
from nogs.plus.config import PlusConfig
from nogs.posterior.config import PosteriorConfig
from nogs.runtime.errors import InputError
from nogs.runtime.fields import dotted
from nogs.runtime.files import write_yaml
from nogs.runtime.spelling import closest
from nogs.whole.config import WholeConfig

__all__ = ["Recipe", "changed", "validated"]

_LARGEST = 2**63 - 1
"""The largest number for seeds and counts."""
_WORDS = {"Input should": "must", "greater than or equal to": "at least", "less than or equal to": "at most"}


class Recipe(BaseModel):
    """Everything that decides an experiment's outcome. The command line says where its files are."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(min_length=1, description="Name of the experiment, in reports and messages.")
    seed: int = Field(default=0, ge=0, description="Seed of the random streams of training and annotation.")
    glimpses: int = Field(default=5, ge=1, description="T: number of glimpses per image.")
    published: str | None = Field(
        default=None,
        description="Published posterior to use instead of training one, if it fits the data; None trains one.",
    )
    data: DataConfig
    posterior: PosteriorConfig = PosteriorConfig()
    bank: BankConfig = BankConfig()
    completion: CompletionConfig = CompletionConfig()
    design: DesignConfig = DesignConfig()
    whole: WholeConfig = WholeConfig()
    attention: AttentionConfig = AttentionConfig()
    plus: PlusConfig = PlusConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        moves = {
            "posterior.augment.move": self.posterior.augment.move,
            "attention.pretrain_augment.move": self.attention.pretrain_augment.move,
        }
        if self.bank.generator == "digits" and self.data.kind != "digits":
            raise ValueError(
                f"bank.generator is digits, which draws images of the task digits, but the data is {self.data.kind}; "
                "choose another, such as training-images."
            )
        for name, move in moves.items():
            if move >= self.data.image_size:
                raise ValueError(
                    f"{name} is {move:g} px, which moves an image of {self.data.image_size} px out of sight; lower it."
                )
        return self

    def to_yaml(self, path: Path) -> None:
        """Write all fields to a file that `recipe` reads back as an equal recipe."""
        write_yaml(path, self.model_dump(mode="json"))


def changed(recipe: Recipe, fields: Mapping[str, Any], *, source: str | None = None) -> Recipe:
    """The recipe with these values, each by the dotted name of its field."""
    values = recipe.model_dump(mode="json")
    for field, value in fields.items():
        *parts, name = field.split(".")
        part = values
        for inner in parts:
            part = part[inner]
        part[name] = value
    return validated(values, source=source or f"Recipe {recipe.name!r} with these fields")


def validated(values: Mapping[str, Any], *, source: str, spell: Callable[[str], str] = str) -> Recipe:
    """The recipe with these values; reports all mistakes at once, each field as `spell` writes its dotted name."""
    check_fields(values, None, source=source, spell=spell)
    return Recipe.model_validate(values)


def check_fields(
    values: Mapping[str, Any], only: Container[str] | None, *, source: str, spell: Callable[[str], str] = str
) -> None:
    """Refuse the mistakes of `validated`; of `only` some fields, where those that they must fit are still to be
    chosen."""
    for name, value in dotted(values).items():
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise InputError(f"{source} has a mistake: {spell(name)} is beyond ±{_LARGEST:,}; give a smaller number.")
    try:
        Recipe.model_validate(values)
        return
    except ValidationError as error:
        mistakes = [one for one in error.errors(include_url=False) if only is None or _name(one["loc"]) in only]
    if not mistakes:
        return
    found = list(dict.fromkeys(_sentence(mistake, spell) for mistake in mistakes))
    count = "a mistake" if len(found) == 1 else f"{len(found)} mistakes"
    raise InputError(f"{source} has {count}: {'; '.join(found)}.")


def _sentence(mistake: Any, spell: Callable[[str], str]) -> str:
    path = mistake["loc"]
    name = spell(_name(path))
    message, given = mistake["msg"], _short(mistake["input"])
    match mistake["type"]:
        case "missing":
            return f"{name} is missing"
        case "extra_forbidden":
            close = closest(str(path[-1]), _fields(path[:-1]))
            hint = f" (did you mean {spell('.'.join([*map(str, path[:-1]), close]))}?)" if close else ""
            return f"there is no field {name}{hint}"
        case "value_error":  # a check of ours: its own sentence, which names the fields if there are several
            text = str(mistake["ctx"]["error"]).rstrip(".")
            return f"{name}: {text}" if len(path) > 1 else text
        case "model_type" | "model_attributes_type":
            return f"{name or 'the file'} must be a mapping of fields, not {given}"
        case "int_parsing" | "int_type" | "int_from_float":
            message = "must be a whole number"
        case "float_parsing" | "float_type":
            message = "must be a number"
    for pydantic_says, we_say in _WORDS.items():
        message = message.replace(pydantic_says, we_say)
    return f"{name} {message}, not {given}"


def _name(path: tuple[int | str, ...]) -> str:
    """The dotted name of a field; of a tuple, without the item's number."""
    return ".".join(part for part in path if isinstance(part, str))


def _short(value: Any) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _fields(path: tuple[int | str, ...]) -> list[str]:
    """Names of the fields of the recipe's part at `path`."""
    model: Any = Recipe
    for part in path:
        model = model.model_fields[part].annotation
    return list(model.model_fields)
