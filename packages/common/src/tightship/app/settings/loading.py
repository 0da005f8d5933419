"""From plain values to settings: every problem at once, each naming the key, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from pydantic import AliasChoices, BaseModel, ValidationError

from tightship.app.settings.fields import PLAIN_UNIT

Location = tuple[int | str, ...]
"""Where a value stands: the keys from the outermost inwards."""

_Model = TypeVar("_Model", bound=BaseModel)


class SettingsError(ValueError):
    """Settings that can't be used; *problems* has one line for each, naming the key, the value and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class BadFlagsError(SettingsError):
    """At least one of the problems is a flag's: wrong usage."""


def dotted(location: Location) -> str:
    """Return a location as a person names it: ``nodePools.general.enabled``."""
    return ".".join(str(part) for part in location)


def load(
    model: type[_Model],
    values: Mapping[str, object],
    named: Callable[[Location], str] = dotted,
    inner: type[BaseModel] | Callable[[Location], type[BaseModel]] | None = None,
    plain_unit: str = "s",
) -> _Model:
    """Return a *model* from plain values (keys on the wire or field names).

    Raises :class:`SettingsError` with **all** problems, each naming the key, the value and what is allowed. *named*
    words a location, for values that don't come from a file.
    *inner* is the model of what is nested in it, if anything; a function of the location where there are several.
    *plain_unit* is the unit of durations that are written as a plain number.
    """
    try:
        return model.model_validate(dict(values), context={PLAIN_UNIT: plain_unit})
    except ValidationError as error:
        keys = wire_keys(model)

        def placed(location: Location) -> str:
            # A default that another value makes impossible is placed by its field, which nobody wrote.
            outermost = [keys.get(str(each), each) if each not in values else each for each in location[:1]]
            return named((*outermost, *location[1:]))

        problems: set[str] = set()
        for each in error.errors():
            location, key = each["loc"], placed(each["loc"])
            if each["type"] == "extra_forbidden":
                owner = _owner(model, inner, location)
                problems.add(f"{key}: unknown key; allowed are {', '.join(sorted(wire_keys(owner).values()))}")
            else:
                problems.add(f"{key}: {each.get('input')!r}: {each['msg'].removeprefix('Value error, ')}")
        raise SettingsError(sorted(problems)) from error


def _owner(
    model: type[BaseModel], inner: type[BaseModel] | Callable[[Location], type[BaseModel]] | None, location: Location
) -> type[BaseModel]:
    if inner is None or len(location) < 2:
        return model
    return inner if isinstance(inner, type) else inner(location)


def wire_keys(model: type[BaseModel]) -> dict[str, str]:
    """Return the key on the wire of each field of *model*, by the field's name."""
    keys: dict[str, str] = {}
    # What the model says itself comes before the sections it takes over, as people would write it.
    own = {name: number for number, name in enumerate(model.__annotations__)}
    for name, field in sorted(model.model_fields.items(), key=lambda item: own.get(item[0], len(own))):
        choices = field.validation_alias
        keys[name] = field.alias or (str(choices.choices[0]) if isinstance(choices, AliasChoices) else name)
    return keys
