"""What a node costs: a price per hour, and where that price comes from. Pure.

The node's annotation ``tightship.dev/hourly-price`` counts first, then what a :class:`Prices` knows. A node that
neither names has no price, and nothing invents one. Amounts are integers: millionths of the currency per hour.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Final, Literal

from msgspec import Struct

from tightship.objects.node import Node
from tightship.objects.quoting import quoted

HOURLY_PRICE = "tightship.dev/hourly-price"
"""The annotation with a node's price per hour, in the currency of the price list."""

INSTANCE_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")

MICROS: Final = 1_000_000
"""Millionths in one unit of a currency."""

HOURS_PER_MONTH: Final = 730
"""Hours of a month, as the clouds count them: 8,760 / 12."""

DEAREST: Final = 1_000_000
"""Most units of a currency that an hour may cost."""

ALLOWED_PRICES = f"a number of 0 to {DEAREST:,} such as 0.096, for one hour"

DEFAULT_CURRENCY = "USD"

PriceSource = Literal["annotation", "list", "opencost", "cloud"]
"""Where a price comes from: the node's annotation, the user's price list, OpenCost, or a cloud's prices on demand."""


class NodePrice(Struct, frozen=True):
    """The price of a node: *hourly* millionths of the currency. *basis* says in words what in *source* names it."""

    hourly: int
    source: PriceSource
    basis: str
    currency: str = DEFAULT_CURRENCY

    @property
    def monthly(self) -> int:
        """The price of a month, in millionths."""
        return self.hourly * HOURS_PER_MONTH


class Prices(Struct, frozen=True):
    """What nodes cost, in one *currency*. This base knows no price; a list of prices is a subclass.

    *written* is the list as JSON. *nodes* are prices by the name of the node, as whom *ask* asks tells them; *ask*
    waits, and raises :class:`ValueError` or a subclass if nobody answers.
    """

    currency: str = DEFAULT_CURRENCY
    written: str = ""
    nodes: Mapping[str, int] = {}
    ask: Callable[[], Mapping[str, int]] | None = None

    def __str__(self) -> str:
        return self.written

    def price(self, node: Node) -> NodePrice | None:
        """Return the price of *node*, whatever its annotation says; ``None`` if nothing is known of it."""
        del node
        return None


PriceReader = Callable[[object, str | None], Prices]
"""Reads prices: the value of a configuration, or the file at a path; without either, those that need none."""

NO_PRICES = Prices()
"""No price: annotations still count."""


def price_of(node: Node, prices: Prices = NO_PRICES) -> NodePrice | None:
    """Return the price of *node*, ``None`` if it has none. An unreadable annotation counts as absent."""
    text = node.annotations.get(HOURLY_PRICE)
    if text is not None:
        try:
            return NodePrice(parse_price(text), "annotation", f"annotation {HOURLY_PRICE}", prices.currency)
        except ValueError:
            pass
    return prices.price(node)


def annotation_problem(node: Node) -> str:
    """Return what is wrong with the price in the node's annotation, empty if nothing is."""
    text = node.annotations.get(HOURLY_PRICE)
    if text is None:
        return ""
    try:
        parse_price(text)
    except ValueError as error:
        return f"node {node.name}: annotation {HOURLY_PRICE}: {error}"
    return ""


def parse_price(value: object) -> int:
    """Return a price per hour in millionths of its currency, rounded to the nearest. Raises :class:`ValueError`."""
    number = parse_number(value)
    if number is None or not 0 <= number <= DEAREST:
        raise ValueError(f"{shown_value(value)} is not a price; allowed is {ALLOWED_PRICES}")
    return rounded(number * MICROS)


_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2


def shown_value(value: object) -> str:
    """Return a user's value for an error, cut if it is long or deep."""
    return _SHORT.repr(value) if isinstance(value, list | dict | tuple | set) else quoted(value)


def written_amount(micros: int) -> str:
    """Return millionths as a plain number: ``0.096``."""
    whole, part = divmod(micros, MICROS)
    return f"{whole}.{part:06d}".rstrip("0").rstrip(".")


def parse_number(value: object) -> Decimal | None:
    """Return a finite decimal number, ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value).strip()
    try:
        number = Decimal(text) if len(text) <= 40 and text.isascii() and "_" not in text else None
    except InvalidOperation:
        return None
    return number if number is not None and number.is_finite() and number.adjusted() < 20 else None


def rounded(number: Decimal) -> int:
    """Return the nearest integer, the even one of two."""
    return int(number.to_integral_value(ROUND_HALF_EVEN))
