"""Settings as plain data, as a document shows them."""

from __future__ import annotations

from tightship.app.settings.fields import Budget
from tightship.report.document import Plain


def plain(value: object) -> Plain | list[str]:
    """Return the value of a setting that is no mapping: a scalar or a list of words, sorted where it has no order."""
    match value:
        case frozenset():
            return sorted(map(str, value))
        case tuple():
            return [str(each) for each in value]
        case _:
            return scalar(value)


def scalar(value: object) -> Plain:
    """Return the value of a setting that is neither mapping nor list; whole numbers without a fraction."""
    match value:
        case Budget():
            return value.count if value.count is not None else str(value)
        case float():
            return int(value) if value.is_integer() else value
        case bool() | int() | None:
            return value
        case _:
            return str(value)
