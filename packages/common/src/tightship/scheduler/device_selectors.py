"""Which devices a CEL selector means, for the expressions that drivers ship and people write. Pure.

Judged are comparisons joined by ``&&``: of the driver, of an attribute with text, a whole number or a truth value, and
of a capacity with a quantity. Any other expression raises :class:`SelectorUnknownError`: what uses it is not judged.
"""

from __future__ import annotations

import re
from typing import TypeVar

from tightship.objects.devices import Device
from tightship.objects.quantity import QuantityError, nano
from tightship.objects.quoting import quoted

_TEXT = r"(?:\"(?P<text>[^\"\\]{0,256})\"|'(?P<single>[^'\\]{0,256})')"
_DOMAIN = r"(?:\"(?P<domain>[^\"\\]{1,256})\"|'(?P<domain1>[^'\\]{1,256})')"
_FIELD = rf"device\.(?P<map>attributes|capacity)\[{_DOMAIN}\]\.(?P<name>\w{{1,64}})"
_DRIVER = re.compile(rf"device\.driver\s{{0,9}}==\s{{0,9}}{_TEXT}")
_ATTRIBUTE = re.compile(rf"{_FIELD}\s{{0,9}}==\s{{0,9}}(?:{_TEXT}|(?P<number>-?\d{{1,18}})|(?P<truth>true|false))")
_CAPACITY = re.compile(
    rf"{_FIELD}\.compareTo\(\s{{0,9}}quantity\({_TEXT}\)\s{{0,9}}\)\s{{0,9}}(?P<sign>>=|==|>|<=|<)\s{{0,9}}0"
)


_T = TypeVar("_T")


class SelectorUnknownError(Exception):
    """An expression that no rule here can judge; the message quotes it."""


def selected(expression: str, driver: str, device: Device) -> bool:
    """Return whether *device* of *driver* meets *expression*. Raises :class:`SelectorUnknownError`."""
    # As in CEL, what follows a comparison that fails is not looked at.
    return all(_meets(term.strip(), expression, driver, device) for term in expression.split("&&"))


def _meets(term: str, expression: str, driver: str, device: Device) -> bool:
    if found := _DRIVER.fullmatch(term):
        return _said(found) == driver
    if (found := _ATTRIBUTE.fullmatch(term)) and found["map"] == "attributes":
        attribute = _field(device.attributes, found, driver)
        if attribute is not None and found["number"]:
            return attribute.number == int(found["number"])
        if attribute is not None and found["truth"]:
            return attribute.truth == (found["truth"] == "true")
        if attribute is not None and attribute.string is not None:
            return attribute.string == _said(found)
    elif (found := _CAPACITY.fullmatch(term)) and found["map"] == "capacity":
        capacity = _field(device.capacity, found, driver)
        if capacity is not None:
            try:
                left, right = nano(capacity.value), nano(_said(found))
            except QuantityError:
                raise SelectorUnknownError(f"the selector {quoted(expression)}") from None
            order, sign = (left > right) - (left < right), found["sign"]
            return {">=": order >= 0, "==": order == 0, ">": order > 0, "<=": order <= 0, "<": order < 0}[sign]
    raise SelectorUnknownError(f"the selector {quoted(expression)}")


def _said(found: re.Match[str]) -> str:
    return found["text"] if found["text"] is not None else found["single"] or ""


def _field(fields: dict[str, _T], found: re.Match[str], driver: str) -> _T | None:
    domain = found["domain"] or found["domain1"]
    own = fields.get(f"{domain}/{found['name']}")
    return own if own is not None or domain != driver else fields.get(found["name"])
