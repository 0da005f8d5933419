"""What a node costs: a price per hour, and where that price comes from. Pure.

The first of these counts: the node's annotation ``tightship.dev/hourly-price``, then the user's price list. A node that
neither names has no price, and nothing invents one. Amounts are integers: millionths of the currency per hour.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Final, Literal

from msgspec import Struct

from tightship.core.objects import Node
from tightship.core.quoting import quoted
from tightship.core.selectors import Labels, LabelSelector

HOURLY_PRICE = "tightship.dev/hourly-price"
"""The annotation with a node's price per hour, in the currency of the price list."""

INSTANCE_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")

SPOT_LABELS: Mapping[str, frozenset[str]] = {
    "karpenter.sh/capacity-type": frozenset({"spot"}),
    "eks.amazonaws.com/capacityType": frozenset({"SPOT"}),
    "cloud.google.com/gke-spot": frozenset({"true"}),
    "cloud.google.com/gke-preemptible": frozenset({"true"}),
    "cloud.google.com/gke-provisioning": frozenset({"spot", "preemptible"}),
    "kubernetes.azure.com/scalesetpriority": frozenset({"spot"}),
    "node.kubernetes.io/lifecycle": frozenset({"spot"}),
}
"""The labels by which clouds and Karpenter say that a node may be taken away at any time, and their values."""

MICROS: Final = 1_000_000
"""Millionths in one unit of a currency."""

HOURS_PER_MONTH: Final = 730
"""Hours of a month, as the clouds count them: 8,760 / 12."""

DEAREST: Final = 1_000_000
"""Most units of a currency that an hour may cost."""

ALLOWED_PRICES = f"a number of 0 to {DEAREST:,} such as 0.096, for one hour"

DEFAULT_CURRENCY = "USD"

PriceSource = Literal["annotation", "list"]
"""Where a price comes from: the node's annotation, or the user's price list."""

CapacityType = Literal["", "on-demand", "spot"]


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


class PriceEntry(Struct, frozen=True):
    """One entry of a price list: *hourly* millionths for the nodes that all given parts match.

    Without a *capacity_type*, an entry with a *selector* counts for every node that the selector matches, and one
    without for nodes that are not spot.
    """

    hourly: int
    instance_type: str = ""
    selector: LabelSelector | None = None
    zone: str = ""
    capacity_type: CapacityType = ""
    words: str = ""

    def matches(self, labels: Labels, instance_type: str, zone: str) -> bool:
        """Whether the entry is about a node, whatever its capacity type."""
        if self.instance_type and self.instance_type != instance_type:
            return False
        if self.zone and self.zone != zone:
            return False
        return self.selector is None or self.selector.matches(labels)


class PriceList(Struct, frozen=True):
    """A user's prices in one *currency*. Of several entries that match a node, the first counts.

    A spot node without an entry of its own costs *spot_factor* (in millionths) of its price on demand; without a factor
    it has no price. *written* is the list as JSON.
    """

    currency: str = DEFAULT_CURRENCY
    entries: tuple[PriceEntry, ...] = ()
    spot_factor: int | None = None
    written: str = ""

    def __str__(self) -> str:
        return self.written

    def price(self, node: Node) -> NodePrice | None:
        """Return the price of *node* by this list, ``None`` if no entry is about it."""
        labels = node.labels
        instance_type, zone = _first(labels, INSTANCE_TYPE_LABELS), _first(labels, ZONE_LABELS)
        found = [each for each in self.entries if each.matches(labels, instance_type, zone)]
        spot = is_spot(labels)
        own: CapacityType = "spot" if spot else "on-demand"
        for each in found:
            if each.capacity_type == own or (not each.capacity_type and (each.selector is not None or not spot)):
                return NodePrice(each.hourly, "list", each.words, self.currency)
        if not spot or self.spot_factor is None or not found:
            return None
        hourly = rounded(Decimal(found[0].hourly * self.spot_factor) / MICROS)
        words = f"{found[0].words}, spot x {written_amount(self.spot_factor)}"
        return NodePrice(hourly, "list", words, self.currency)


NO_PRICES = PriceList()
"""The list of a user who gave none: annotations still count."""


def price_of(node: Node, prices: PriceList = NO_PRICES) -> NodePrice | None:
    """Return the price of *node*, ``None`` if it has none. An unreadable annotation counts as absent."""
    text = node.annotations.get(HOURLY_PRICE)
    if text is not None:
        try:
            return NodePrice(parse_price(text), "annotation", f"annotation {HOURLY_PRICE}", prices.currency)
        except ValueError:
            pass
    return prices.price(node) if prices.entries else None


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


def is_spot(labels: Labels) -> bool:
    """Whether a node with *labels* is a spot or preemptible machine."""
    return any(labels.get(label, "") in words for label, words in SPOT_LABELS.items())


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


def _first(labels: Labels, names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")
