"""Kubernetes resource quantities as exact integers.

The grammar, the rounding and the cap are those of ``k8s.io/apimachinery/pkg/api/resource`` (``ParseQuantity``):
a signed decimal number followed by a binary suffix (``Ki`` ... ``Ei``), a decimal suffix (``n u m k M G T P E``)
or a decimal exponent (``e3``, ``E-2``). A value finer than one nano is rounded away from zero, and a magnitude above
``2**63 - 1`` is capped, as the API server does when it stores the object.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tightship.objects.quoting import quoted

NANO = 10**9
"""Nano-units in one unit."""

MAX_VALUE = 2**63 - 1
"""The largest magnitude of a quantity, in units."""

MOST = 2**50
"""The largest amount that counts, in the units of :func:`amount`: more memory, and more CPU, than any machine has. Sums
over the pods of a node stay within 64 bits."""

ALLOWED_FORMS = "a number such as 100m, 0.5, 2, 1e3, 1.5Gi or 129M"

_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,9}))?",
    re.ASCII,
)
_BINARY = {name: 1024 ** (power + 1) for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_DECIMAL_POWER = {"n": -9, "u": -6, "m": -3, None: 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LONGEST = 1000
"""Most characters of a quantity. The API server writes some twenty; arithmetic with thousands of digits is slow."""
_FINEST_POWER = 64
"""Exponents are clamped to this: larger ones only decide between zero, one nano and the cap."""


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity, or has a sign where none makes sense."""

    def __init__(self, text: object, allowed: str = ALLOWED_FORMS) -> None:
        super().__init__(f"{quoted(text)} is not a quantity; allowed is {allowed}")
        self.text = text


@lru_cache(maxsize=65536)
def nano(text: str) -> int:
    """Return *text* in nano-units (1e-9 of the unit), exact after the API server's own rounding and cap.

    Raises :class:`QuantityError` for anything the API server would refuse.
    """
    match = _GRAMMAR.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise QuantityError(text)
    whole, fraction = match["whole"], match["fraction"] or ""
    if not whole and not fraction:
        raise QuantityError(text)
    digits = int(whole + fraction or "0")
    scale = -len(fraction)
    numerator, denominator = digits * NANO, 1
    suffix = match["suffix"]
    if suffix in _BINARY:
        numerator *= _BINARY[suffix]
    else:
        power = int(match["exponent"]) if match["exponent"] else _DECIMAL_POWER[suffix]
        scale += max(-_FINEST_POWER - len(fraction), min(_FINEST_POWER + len(fraction), power))
    if scale >= 0:
        numerator *= 10**scale
    else:
        denominator = 10**-scale
    magnitude = min(-(-numerator // denominator), MAX_VALUE * NANO)
    return -magnitude if match["sign"] == "-" else magnitude


def milli(text: str) -> int:
    """Return *text* in milli-units, rounded away from zero (``Quantity.MilliValue``): ``100m`` CPU is 100."""
    return _scaled(nano(text), NANO // 1000)


def value(text: str) -> int:
    """Return *text* in whole units, rounded away from zero (``Quantity.Value``): ``1.5Gi`` is 1610612736."""
    return _scaled(nano(text), NANO)


def amount(resource: str, text: str) -> int:
    """Return the amount of *resource* as kube-scheduler counts it: milli for ``cpu``, whole units otherwise.

    A larger amount than :data:`MOST` counts as that. Raises :class:`QuantityError` if *text* is not a quantity or is
    negative. Requests and allocatable amounts can't be negative.
    """
    result = milli(text) if resource == "cpu" else value(text)
    if result < 0:
        raise QuantityError(text, f"{ALLOWED_FORMS}, zero or more, for {resource}")
    return min(result, MOST)


def _scaled(nanos: int, unit: int) -> int:
    return -(-nanos // unit) if nanos >= 0 else nanos // unit


BINARY_STEPS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def humanize(resource: str, quantity: int) -> str:
    """Return an amount from :func:`amount` as people write it: 1500 milli-CPU as ``1.5``, bytes with a binary suffix.

    The text is for reading only. It keeps at most one decimal, so it may parse back to another amount.
    """
    if resource == "cpu":
        return f"{quantity / 1000:.1f}".removesuffix(".0") if quantity % 100 == 0 else f"{quantity}m"
    if resource not in ("memory", "ephemeral-storage") and not resource.startswith("hugepages-"):
        return str(quantity)
    size, step = float(quantity), 0
    while abs(size) >= 1024 and step < len(BINARY_STEPS) - 1:
        size, step = size / 1024, step + 1
    return f"{size:.1f}".removesuffix(".0") + BINARY_STEPS[step]
