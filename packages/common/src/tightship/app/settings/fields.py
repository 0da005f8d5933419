"""Kinds of values in settings: durations, budgets and lists of rules, each with an error that says what is allowed."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic.fields import FieldInfo

from tightship.core.durations import DurationError, parse_duration
from tightship.core.quoting import quoted
from tightship.core.reasons import Reason
from tightship.planning.demand import SWITCHABLE as SWITCHABLE_DEMAND_RULES
from tightship.planning.evictability import SWITCHABLE as SWITCHABLE_POD_RULES
from tightship.planning.nodes import SWITCHABLE as SWITCHABLE_NODE_RULES

SWITCHABLE_RULES = SWITCHABLE_NODE_RULES | SWITCHABLE_POD_RULES | SWITCHABLE_DEMAND_RULES
"""Reasons whose rules a user may switch off."""


PLAIN_UNIT = "plain_unit"
"""Key of a validation's context: what a plain number means in a text, ``s`` (the default) or ``m``."""


def seconds(value: object, info: ValidationInfo) -> object:
    """Return a duration in seconds; what is neither text nor number is left for the validation to name.

    A number that is no text is seconds in any case.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return value
    unit = (info.context or {}).get(PLAIN_UNIT, "s") if isinstance(value, str) else "s"
    try:
        return parse_duration(str(value), plain_unit=unit)
    except DurationError as error:
        raise ValueError(str(error)) from error


Seconds = Annotated[float, BeforeValidator(seconds), Field(ge=0)]
"""A duration in seconds; ``10m`` and a plain number are read, the latter in the unit of :data:`PLAIN_UNIT`."""


def is_duration(field: FieldInfo) -> bool:
    """Whether *field* of a model is :data:`Seconds`."""
    return any(isinstance(each, BeforeValidator) and each.func is seconds for each in field.metadata)


_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _go_bool(value: object) -> object:
    text = str(value).strip()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("is not a switch; allowed are true and false, also written True, TRUE, t, T, 1 and so on")


GoBool = Annotated[bool, BeforeValidator(_go_bool)]
"""A switch as Go's ``strconv.ParseBool`` reads it, by which older controllers went."""


class Budget(BaseModel):
    """How many nodes of a pool (or the cluster) may be in drain at once: a number or a percentage of its nodes."""

    model_config = ConfigDict(frozen=True)

    count: int | None = None
    percent: float | None = None

    def allows(self, nodes: int) -> int:
        """Return how many of *nodes* that is; a percentage is rounded up, so that a small pool is never stuck at 0."""
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


def _rules(value: object) -> object:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise ValueError("must be a list of reasons")  # noqa: TRY004 - pydantic reports ValueError
    unknown = sorted(str(each) for each in value if each not in SWITCHABLE_RULES)
    if unknown:
        allowed = ", ".join(sorted(SWITCHABLE_RULES))
        raise ValueError(f"{', '.join(unknown)} can't be switched off; allowed are {allowed}")
    return frozenset(Reason(str(each)) for each in value)


Rules = Annotated[frozenset[Reason], BeforeValidator(_rules)]
"""Reasons whose rules are switched off."""
