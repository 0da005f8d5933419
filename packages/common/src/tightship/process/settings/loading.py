"""One resolver for all settings: flags over environment over ConfigMap or file over defaults.

A model of settings is a :class:`Layered`, whose fields declare their names in each source. A controller makes the
sources and calls :func:`resolve`, which reports every problem at once. Each problem names the flag, variable or key of
the value, the value, and what is allowed.

The configuration is a text: JSON or YAML, in a file or under a key of a ConfigMap's data, perhaps in a manifest.

Each type of a value has an error that says what is allowed. A field's annotation may carry its :class:`Flag`, and the
words of the reference in :class:`Allowed`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
import yaml
from msgspec import Struct
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from tightship.documents.document import Plain, Setting
from tightship.objects.money import Prices
from tightship.objects.quoting import quoted, set_twice
from tightship.objects.reasons import Reason
from tightship.objects.times import ALLOWED_FORMS, DurationError, parse_duration, spell_duration
from tightship.objects.unreadable import UNREADABLE
from tightship.planning.demand import SWITCHABLE as SWITCHABLE_DEMAND_RULES
from tightship.rules.evictability import SWITCHABLE as SWITCHABLE_POD_RULES
from tightship.rules.nodes import SWITCHABLE as SWITCHABLE_NODE_RULES
from tightship.rules.windows import Windows

SWITCHABLE_RULES = SWITCHABLE_NODE_RULES | SWITCHABLE_POD_RULES | SWITCHABLE_DEMAND_RULES
"""Reasons whose rules a user may switch off."""


class Flag(Struct, frozen=True):
    """The flag that sets a field: ``Annotated[int, Flag("--max-nodes N", "removals after which a plan stops")]``.

    *usage* is the flag's name and the placeholder of its value. A switch has no placeholder: it sets *sets*, or also
    has a ``--no-`` form. One that sets true also takes a value, as in ``--dry-run=false``. *topic* names the group of
    the help that lists the flag, unless that is the main group. Within a group, flags are sorted by *rank*, then in the
    order of the fields. The validation gets values as texts, unless *parse* converts them first. A process's flag with
    *plan* belongs to ``plan`` and ``explain`` too.
    """

    usage: str
    help: str
    topic: str = ""
    rank: int = 0
    sets: bool | None = None
    parse: Callable[[str], object] = str
    plan: bool = False

    @property
    def name(self) -> str:
        return self.usage.partition(" ")[0]

    @property
    def metavar(self) -> str:
        return self.usage.partition(" ")[2]


class Allowed(Struct, frozen=True):
    """The allowed values in the words of the reference. The last of several in an annotation counts."""

    words: str


def seconds(value: object) -> object:
    """Return a duration in seconds. A value that is neither text nor number passes unchanged to the validation."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return value
    try:
        return parse_duration(str(value), plain_unit="s")
    except DurationError as error:
        raise ValueError(str(DurationError(value, ""))) from error


Seconds = Annotated[float, BeforeValidator(seconds), Field(ge=0)]
"""A duration in seconds. ``10m`` is allowed, and so is a plain number of seconds, but in a configuration only 0 is."""


def is_duration(field: FieldInfo) -> bool:
    """Whether *field* of a model is :data:`Seconds`, or may be absent and is :data:`Seconds` else."""
    parts = (getattr(each, "__metadata__", ()) for each in get_args(field.annotation))
    metadata = (*field.metadata, *(each for part in parts for each in part))
    return any(isinstance(each, BeforeValidator) and each.func is seconds for each in metadata)


def without_unit(value: object) -> bool:
    """Whether *value* is a plain number other than 0, which is no duration in a configuration."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    return _NUMBER.fullmatch(str(value).strip()) is not None and float(value) != 0


_NUMBER = re.compile(r"[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}", re.ASCII)

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _go_bool(value: object) -> object:
    text = str(value).strip()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("is not a switch; allowed are true and false, also written True, TRUE, t, T, 1 and so on")


GoBool = Annotated[bool, BeforeValidator(_go_bool)]
"""A switch in the syntax of Go's ``strconv.ParseBool``, which the older controllers used."""


class Budget(BaseModel):
    """How many nodes of a pool (or the cluster) may be in drain at once: a number or a percentage of its nodes."""

    model_config = ConfigDict(frozen=True)

    count: int | None = None
    percent: float | None = None

    def allows(self, nodes: int) -> int:
        """Return how many of *nodes* may be in drain; a percentage rounds up, so that a small pool never gets 0."""
        if self.count is not None:
            return self.count
        return math.ceil(nodes * (self.percent or 0.0) / 100)

    def __str__(self) -> str:
        return str(self.count) if self.count is not None else f"{self.percent:g}%"


def parse_budget(value: object) -> object:
    """Return a :class:`Budget` from ``3`` or ``"10%"``; raise :class:`ValueError` for anything else."""
    if isinstance(value, Budget):
        return value
    text = str(value).strip()
    if not isinstance(value, bool) and text.isascii():
        if text.isdigit() and len(text) < 10:
            return Budget(count=int(text))
        number = text.removesuffix("%")
        if text.endswith("%") and number.replace(".", "", 1).isdigit() and float(number) <= 100:
            return Budget(percent=float(number))
    raise ValueError(
        f"{quoted(value)} is not a budget; allowed is a number of nodes such as 3, or a percentage up to 100%"
    )


BudgetField = Annotated[Budget, BeforeValidator(parse_budget)]


def parse_ratio(value: object) -> object:
    """Return a ratio from ``0.75`` or ``"75%"``; raise :class:`ValueError` for anything else, with a guess for 75.

    A number between 1 and 2 is a limit that every node is below, however full, as it was for the older controller.
    """
    text = str(value).strip()
    percent = text.endswith("%")
    number = text.removesuffix("%").rstrip()
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    found = float(number) if plain or (isinstance(value, str) and _NUMBER.fullmatch(number)) else -1.0
    ratio = found / 100 if percent else found
    if 0 <= ratio <= 1 or (not percent and 1 < ratio < 2):
        return ratio
    guess = f"; did you mean {found:g}%?" if not percent and 2 <= found <= 100 else ""
    raise ValueError(
        f"is not a ratio; allowed is a number from 0 to 1 such as 0.75, or a percentage such as 75%{guess}"
    )


Ratio = Annotated[float, BeforeValidator(parse_ratio), Field(ge=0, lt=2)]
"""A share of something, from 0 to 1; a percentage is allowed too. See :func:`parse_ratio` for what is above 1."""


Share = Annotated[Ratio, Field(le=1)]
"""A share from 0 to 1, as a number or a percentage."""


def _rules(value: object) -> object:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise ValueError("must be a list of reasons")  # noqa: TRY004 - pydantic reports ValueError
    unknown = sorted(str(each) for each in value if each not in SWITCHABLE_RULES)
    if unknown:
        allowed = ", ".join(sorted(SWITCHABLE_RULES))
        why = "; a cluster without its control plane can't be mended" if Reason.CONTROL_PLANE in unknown else ""
        raise ValueError(f"{', '.join(unknown)} can't be switched off; allowed are {allowed}{why}")
    return frozenset(Reason(str(each)) for each in value)


Rules = Annotated[frozenset[Reason], BeforeValidator(_rules)]
"""Reasons whose rules are switched off."""


def plain(value: object) -> Setting:
    """Return the value of a setting: a scalar, a list of words, sorted if the value is a set, or words by name."""
    match value:
        case Mapping():
            return {str(name): str(each) for name, each in sorted(value.items())}
        case frozenset():
            return sorted(map(str, value))
        case tuple():
            return [str(each) for each in value]
        case _:
            return scalar(value)


def scalar(value: object) -> Plain:
    """Return the value of a setting that is neither mapping nor list; whole numbers lose their fraction."""
    match value:
        case Budget():
            return value.count if value.count is not None else str(value)
        case Prices() | Windows():
            return value.written or None
        case float():
            return int(value) if value.is_integer() else value
        case bool() | int() | None:
            return value
        case _:
            return str(value)


Location = tuple[int | str, ...]
"""The place of a value: fields or keys from the outermost inwards."""

TELLS_ALL = "tells_all"
"""The type of a validation error whose message names the values itself."""

_SOURCES = "sources"
"""The keyword with which :func:`resolve` passes its sources to a model."""


class SettingsError(ValueError):
    """Unusable settings. *problems* has a line for each, which names the key, the value and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class BadFlagsError(SettingsError):
    """At least one problem is a flag's: wrong usage."""


def dotted(location: Location) -> str:
    """Return a location in the usual notation: ``nodePools.general.enabled``, or ``prices[1].zone`` in a list."""
    return "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


class Layered(BaseSettings):
    """Settings from several sources. Made with keywords, settings consist of these and the defaults.

    An alias is a key of the ConfigMap; an alias in capitals is an environment variable.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", populate_by_name=True, validate_default=False)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return only the sources given to :func:`resolve`: pydantic reads none by itself."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings, *init_settings().pop(_SOURCES, ()))

    @classmethod
    def variables(cls, field: str) -> tuple[str, ...]:
        """Return the names of the environment variables that set *field*; the first that is set counts."""
        return tuple(each for each in _aliases(cls.model_fields[field]) if each.isupper())

    @classmethod
    def read(cls, field: str, value: object) -> object:
        """Return *value* from a source in the form that the validation of *field* expects."""
        del field
        return value


_Settings = TypeVar("_Settings", bound=Layered)


class OlderVariables(Struct, frozen=True):
    """An older controller's environment: the field that each variable sets, and what it implied beside them.

    *implied* are values by field, for the fields that nothing sets while one of the variables is set.
    """

    fields: Mapping[str, str] = {}
    implied: Mapping[str, object] = {}


class Translation(Struct):
    """A configuration in native keys, made from one with an older controller's.

    *older* are the older locations by the native ones, in keys. *problems* are contradictions. *notes* say what the
    older controller implied, and the translation wrote down.
    """

    values: dict[str, object]
    older: dict[Location, Location] = {}
    problems: list[str] = []
    notes: list[str] = []


class SettingsSource(PydanticBaseSettingsSource):
    """One source of settings: its *values* by field, and the *names* of their locations for messages.

    *problems* are those that no validation finds.
    """

    def __init__(self, model: type[Layered]) -> None:
        super().__init__(model)
        self.model = model
        self.values: dict[str, Any] = {}
        self.names: dict[Location, str] = {}
        self.problems: list[str] = []

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return the value of a field, ``None`` if there is none, and its key."""
        del field
        return self.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return all values by field."""
        return self.values

    def take(self, location: Location, value: object, name: str) -> None:
        """Put *value* at *location*, which messages call *name*."""
        *above, last = map(str, location)
        values = self.values
        for each in above:
            values = values.setdefault(each, {})
        values[last] = value if above else self.model.read(last, value)
        self.names[location] = name


class FlagSource(SettingsSource):
    """Flags by the field that each sets; *inside* are flags for values inside of fields, by location."""

    def __init__(
        self, model: type[Layered], flags: Mapping[str, object], inside: Mapping[Location, object] = {}
    ) -> None:
        super().__init__(model)
        for location, value in [*(((field,), value) for field, value in flags.items()), *inside.items()]:
            owner = _walked(model, location)[1]
            field = _fields(owner)[str(location[-1])]
            flag = flags_of(owner).get(field)
            self.take(location, value, flag.name if flag is not None else f"--{field.replace('_', '-')}")


class EnvironmentSource(SettingsSource):
    """Environment variables, an *older* controller's too; an empty one counts as not set."""

    def __init__(
        self, model: type[Layered], environment: Mapping[str, str], older: OlderVariables = OlderVariables()
    ) -> None:
        super().__init__(model)
        for field in model.model_fields:
            native = [name for name in model.variables(field) if environment.get(name)]
            found = [*native, *(name for name, each in older.fields.items() if each == field and environment.get(name))]
            if found:
                self.take((field,), environment[found[0]], found[0])
            if len(found) > len(native) > 0:
                self.problems.append(set_twice(found[-1], native[0]))
        if any(environment.get(name) for name in older.fields):
            for field in older.implied.keys() - self.values.keys():
                self.values[field] = older.implied[field]


class ConfigSource(SettingsSource):
    """The values of a ConfigMap or a file by key; *place* is the file, or the key of the ConfigMap's data."""

    def __init__(self, model: type[Layered], values: Mapping[str, object] | Translation, place: str = "") -> None:
        super().__init__(model)
        given = values if isinstance(values, Translation) else Translation(dict(values))
        self.place = place
        self._older = given.older
        known = {key: field for field, key in wire_keys(model).items()}
        self.problems += [f"{place}: {each}" if place else each for each in given.problems]
        self.problems += [f"{self.named((key,))}: {_unknown(model, key)}" for key in given.values if key not in known]
        self.problems += [f"{self.named(keys)}: {why}" for keys, why in _units(model, given.values, ())]
        self.values |= {
            known[key]: model.read(known[key], value) for key, value in given.values.items() if key in known
        }

    def named(self, keys: Location) -> str:
        """Return the name of the value at *keys* for messages, as the user wrote it."""
        message = dotted(self._older.get(keys, keys))
        return f"{self.place}: {message}" if self.place else message


def _units(model: type[BaseModel], values: Mapping[str, object], above: Location) -> Iterator[tuple[Location, str]]:
    """Yield the durations in *values* that lack a unit, each with its problem: the older controllers' units differ."""
    for name, key in wire_keys(model).items():
        value, field, here = values.get(key), model.model_fields[name], (*above, key)
        inner = nested(field)
        if is_duration(field) and without_unit(value):
            yield here, f"{value!r}: has no unit; allowed is {ALLOWED_FORMS}"
        elif inner is not None and isinstance(value, Mapping):
            for part, each in value.items() if inner[1] else [("", value)]:
                if isinstance(each, Mapping):
                    yield from _units(inner[0], each, (*here, part) if part else here)


class DefaultSource(SettingsSource):
    """Values by field, for fields that no earlier source sets."""

    def __init__(self, model: type[Layered], values: Mapping[str, object]) -> None:
        super().__init__(model)
        self.values.update(values)


def resolve(model: type[_Settings], *sources: SettingsSource) -> _Settings:
    """Return the settings of all *sources*; earlier sources override later ones.

    Raises :class:`SettingsError` with **all** problems, :class:`BadFlagsError` if one of them is a flag's.
    """
    config = next((each for each in sources if isinstance(each, ConfigSource)), ConfigSource(model, {}))
    problems = {each for source in sources for each in source.problems}
    settings, usage = None, False
    try:
        settings = model.model_validate({_SOURCES: sources})
    except ValidationError as error:
        for each in error.errors():
            keys, owner = _walked(model, each["loc"])
            name = _name(each["loc"], sources)
            usage |= name.startswith("-")
            if each["type"] == TELLS_ALL:
                why = each["msg"]
            elif each["type"] == "extra_forbidden":
                why = _unknown(owner, str(each["loc"][-1]))
            else:
                value, message = repr(each.get("input")), _message_of(each)
                why = message if message.startswith(value) else f"{value}: {message}"
            problems.add(f"{name or config.named(keys)}: {why}")
    if settings is None or problems:
        raise (BadFlagsError if usage else SettingsError)(sorted(problems))
    return settings


def load(model: type[_Settings], values: Mapping[str, object], place: str = "") -> _Settings:
    """Return a *model* of the *values* of one ConfigMap or file; see :class:`ConfigSource`, :func:`resolve`."""
    return resolve(model, ConfigSource(model, values, place))


@cache
def wire_keys(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the ConfigMap's key of each field of *model*, by the field's name."""
    # The model's own fields come before the fields of its sections, as people would write them.
    own = {name: number for number, name in enumerate(model.__annotations__)}
    names = sorted(model.model_fields, key=lambda name: own.get(name, len(own)))
    return {name: next(iter(_aliases(model.model_fields[name])), name) for name in names}


def wire(settings: BaseModel) -> dict[str, Any]:
    """Return *settings* as plain data by key, which :func:`load` reads back: durations are texts with units."""
    return {
        key: _wired(getattr(settings, name), type(settings).model_fields[name])
        for name, key in wire_keys(type(settings)).items()
    }


def _wired(value: object, field: FieldInfo) -> object:
    inner = nested(field)
    if inner is not None and inner[1] and isinstance(value, Mapping):
        return {str(name): wire(each) for name, each in sorted(value.items())}
    if is_duration(field) and isinstance(value, int | float):
        return spell_duration(value)
    return plain(value)


@cache
def flags_of(model: type[BaseModel]) -> Mapping[str, Flag]:
    """Return the flags of *model* by field, in the order of the help; an overriding field keeps the flag."""
    found: dict[str, Flag] = {}
    for name in wire_keys(model):
        fields = (base.model_fields.get(name) for base in model.__mro__ if issubclass(base, BaseModel))
        flags = (each for field in fields if field is not None for each in field.metadata if isinstance(each, Flag))
        flag = next(flags, None)
        if flag is not None:
            found[name] = flag
    return dict(sorted(found.items(), key=lambda item: item[1].rank))


def nested(field: FieldInfo) -> tuple[type[BaseModel], bool] | None:
    """Return the model inside *field*, if any, and whether the field holds several of them by name."""
    several = get_origin(field.annotation) is Mapping
    for each in (field.annotation, *get_args(field.annotation)):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each, several
    return None


def _aliases(field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    return [str(each) for each in alias.choices] if isinstance(alias, AliasChoices) else [str(alias)] if alias else []


def _fields(model: type[BaseModel]) -> dict[str, str]:
    """Return the field of each name that a ConfigMap may use: keys, aliases, and the names of the fields."""
    return {each: name for name, field in model.model_fields.items() for each in (name, *_aliases(field))}


def _walked(model: type[BaseModel], location: Location) -> tuple[Location, type[BaseModel]]:
    """Return *location*, given in fields or keys, in keys, and the model of its last key."""
    field = _fields(model).get(str(location[0])) if location else None
    if field is None:
        return location, model
    key, inner, rest = wire_keys(model)[field], nested(model.model_fields[field]), location[1:]
    if inner is None or not rest:
        return (key, *rest), model
    entry = rest[:1] if inner[1] or isinstance(rest[0], int) else ()
    keys, owner = _walked(inner[0], rest[len(entry) :])
    return (key, *entry, *keys), owner


def _name(location: Location, sources: tuple[SettingsSource, ...]) -> str:
    """Return the flag or variable that set the value at *location*, empty if none did."""
    above = (location[:end] for end in range(len(location), 0, -1))
    return next((each.names[part] for part in above for each in sources if part in each.names), "")


_MESSAGES: Mapping[str, str] = {
    "float_parsing": "is not a number",
    "float_type": "is not a number",
    "finite_number": "is not a number",
    "int_parsing": "is not a whole number",
    "int_type": "is not a whole number",
    "int_from_float": "is not a whole number",
    "greater_than": "allowed is more than {gt:g}",
    "greater_than_equal": "allowed is {ge:g} or more",
    "less_than": "allowed is less than {lt:g}",
    "less_than_equal": "allowed is {le:g} or less",
    "literal_error": "allowed is {expected}",
}
"""What to say of a value, by the type of pydantic's error, whose own text is about an input."""


def _message_of(error: ErrorDetails) -> str:
    message = _MESSAGES.get(error["type"])
    return error["msg"].removeprefix("Value error, ") if message is None else message.format(**error.get("ctx", {}))


def _unknown(model: type[BaseModel], key: str) -> str:
    keys = sorted(wire_keys(model).values())
    by_word = {each.lower(): each for each in keys}
    near = difflib.get_close_matches(key.lower().replace("_", ""), by_word, n=2, cutoff=0.75)
    guess = f"did you mean {' or '.join(by_word[each] for each in near)}? " if near else ""
    return f"unknown key; {guess}allowed are {', '.join(keys)}"


def read_config(path: str, keys: Sequence[str], flat: Collection[str] = ()) -> Mapping[str, object]:
    """Return the contents of a configuration file: JSON, YAML, or a ConfigMap manifest around either.

    *keys* are the keys of a ConfigMap's data that may hold a configuration; the first that exists counts. If there are
    *flat* keys, data may also be a configuration of those. Raises :class:`SettingsError`, which names the file.
    """
    return _unwrapped(read_mapping(path), path, keys, flat)


def config_in(
    data: Mapping[str, str], keys: Sequence[str], flat: Collection[str] = ()
) -> tuple[str, Mapping[str, object]]:
    """Return the key of the configuration in a ConfigMap's *data*, and the configuration; both are empty without any
    text.

    *data* may also come from a mounted file or folder; a single text may have any name. *flat* is as for
    :func:`read_config`. Raises :class:`SettingsError`.
    """
    if _is_flat(data, keys, flat):
        return "", data
    key = next((key for key in keys if key in data), None)
    if key is None and len(data) == 1:
        key = next(iter(data))
    if key is not None:
        return key, _unwrapped(mapping_of(data[key], key), key, keys, flat)
    if data:
        raise SettingsError([_no_key(data, keys)])
    return "", {}


def _unwrapped(
    found: Mapping[str, object], name: str, keys: Sequence[str], flat: Collection[str]
) -> Mapping[str, object]:
    """Return the configuration inside a ConfigMap manifest, or *found* itself if it is not a manifest."""
    kind = found.get("kind")
    if kind is None:
        return found
    if kind != "ConfigMap":
        raise SettingsError([f"{name}: kind {quoted(kind)}: allowed is ConfigMap, or keys without a kind"])
    data = found.get("data")
    if data is not None and not isinstance(data, Mapping):
        raise SettingsError([f"{name}: the ConfigMap's data is {type(data).__name__}, not a mapping of settings"])
    held = data if isinstance(data, Mapping) else {}
    if flat and (not held or _is_flat(held, keys, flat)):
        return {str(each): value for each, value in held.items()}
    key = next((key for key in keys if key in held), None)
    if key is None:
        raise SettingsError([f"{name}: {_no_key(held, keys)}"])
    return mapping_of(str(held[key]), f"{name}: {key}")


def _is_flat(data: Mapping[str, object], keys: Sequence[str], flat: Collection[str]) -> bool:
    """Whether *data* are a configuration of *flat* keys, however misspelt, rather than hold one in a text."""
    own, held = sorted(data.keys() & set(flat)), next((key for key in keys if key in data), None)
    if own and held is not None:
        raise SettingsError([f"{own[0]}: stands beside {held} in the ConfigMap's data; allowed is one of them"])
    if own or not flat or held is not None or any("." in str(key) for key in data):
        return bool(own)
    return len(data) > 1 or any(":" not in str(text) for text in data.values())


def _no_key(held: Mapping[str, object], keys: Sequence[str]) -> str:
    has, wanted = ", ".join(sorted(str(each) for each in held)) or "none", ", ".join(keys)
    return f"the ConfigMap has no configuration: its data keys are {has}; looked for are {wanted}"


def read_mapping(path: str) -> Mapping[str, object]:
    """Return the mapping in the file *path*. Raises :class:`SettingsError`, which names the file."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError([f"{path}: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise SettingsError([f"{path}: is not UTF-8 text"]) from error
    return mapping_of(text, path)


def mapping_of(text: str, name: str) -> Mapping[str, object]:
    """Return the mapping in *text*, empty for an empty text. Raises :class:`SettingsError` with *name* in front."""
    try:
        found = _decoded(text)
    except RecursionError as error:
        raise SettingsError([f"{name}: is nested too deeply"]) from error
    except ValueError as error:
        raise SettingsError([f"{name}: neither JSON nor YAML: {error}"]) from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingsError([f"{name}: holds {type(found).__name__}, not a mapping of settings"])
    return {str(key): value for key, value in found.items()}


def _decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except UNREADABLE as as_json:
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as as_yaml:
            why = str(as_json) if text.lstrip().startswith("{") else " ".join(str(as_yaml).split())
            raise ValueError(why) from as_yaml
