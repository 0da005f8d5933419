"""Types of settings' values, metadata of fields, and settings as plain data.

Each type has an error that says what is allowed. A field's annotation may carry its :class:`Flag`, and the words of the
reference in :class:`Allowed`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, get_args

from msgspec import Struct
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from tightship.documents.document import Plain, Setting
from tightship.objects.durations import DurationError, parse_duration
from tightship.objects.money import Prices
from tightship.objects.quoting import quoted
from tightship.objects.reasons import Reason
from tightship.planning.demand import SWITCHABLE as SWITCHABLE_DEMAND_RULES
from tightship.rules.eviction_rules import SWITCHABLE as SWITCHABLE_POD_RULES
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
