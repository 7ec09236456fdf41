"""Sizes chosen for a run on pictures: fields with values and reasons. Values that the user set stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from nogs.recipes.recipe import Recipe

__all__ = ["Choice", "Choices"]


@dataclass(frozen=True)
class Choice:
    """A field of the recipe, what was chosen for it, and why."""

    field: str
    value: Any
    why: str


class Choices:
    """Fields, chosen one after the other. Values that the user set stay, and later choices depend on them.

    `share` is the share of the usual training iterations that fits into the time.
    """

    def __init__(self, given: Mapping[str, Any], *, share: float = 1.0) -> None:
        self.given, self.share = {}, share
        self.made: list[Choice] = []
        for field, value in given.items():
            try:
                self.given[field] = _adapter(field).validate_python(value)
            except (
                ValidationError,
                KeyError,
                AttributeError,
            ):  # reported with all other mistakes when the recipe is validated
                continue

    def __call__(self, field: str, value: Any, why: str) -> Any:
        """Choose a value for a field, unless the user set one; the value that is taken."""
        if field in self.given:
            value, why = self.given[field], "set by you"
        self.made.append(Choice(field, value, why))
        return value

    def scaled(self, iterations: int) -> int:
        """The iterations that fit into the time, of the usual number."""
        return max(1, round(self.share * iterations))

    def free(self, *fields: str) -> bool:
        """Whether the user set none of these fields, nor any in the parts of the recipe that they name."""
        return not any(name == field or name.startswith(f"{field}.") for name in self.given for field in fields)

    def __getitem__(self, field: str) -> Any:
        return next(choice.value for choice in self.made if choice.field == field)


def _adapter(field: str) -> TypeAdapter[Any]:
    """Reads the values of a field, given by its dotted name."""
    model: Any = Recipe
    *parts, name = field.split(".")
    for part in parts:
        model = model.model_fields[part].annotation
    found = model.model_fields[name]
    kind: Any = Annotated[found.annotation, found]  # with its bounds
    return TypeAdapter(kind)
