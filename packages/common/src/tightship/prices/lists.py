"""What a node costs by lists of prices. Pure.

The first of these counts: the user's price list, OpenCost, and the list of on-demand prices that comes with Tightship.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, Literal

from msgspec import Struct

from tightship.objects import Node
from tightship.objects.money import INSTANCE_TYPE_LABELS, MICROS, NodePrice, Prices, rounded, written_amount
from tightship.objects.selectors import Labels, LabelSelector

ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
REGION_LABELS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
OS_LABEL = "kubernetes.io/os"
ACCELERATOR_LABEL = "cloud.google.com/gke-accelerator"

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

CLOUD_SPOT_FACTOR: Final = 400_000
"""Millionths of its price on demand at which a spot node counts, where only the shipped list has a price for its type.

Spot prices move; the three clouds advertise 60 to 90 % off. The basis of each such price shows the factor.
"""

CapacityType = Literal["", "on-demand", "spot"]


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


class CloudPrices(Struct, frozen=True):
    """What machines of a *cloud* cost on demand with Linux: millionths of a USD per *hourly* type, in one *region*.

    *date* is the day of the prices: ``2026-07-20``.
    """

    cloud: str
    region: str
    date: str
    hourly: Mapping[str, int]

    def price(self, labels: Labels, instance_type: str, spot_factor: int | None) -> NodePrice | None:
        """Return the price of a node, ``None`` if the list has none for its type or its type isn't all it is."""
        hourly = self.hourly.get(instance_type)
        if hourly is None or labels.get(OS_LABEL, "linux") != "linux":
            return None
        if instance_type.startswith("n1-") and ACCELERATOR_LABEL in labels:
            return None  # Google bills the GPUs of this family beside the machine.
        region = _first(labels, REGION_LABELS) or self.region
        words = f"{self.cloud} on demand in {self.region}, {self.date}"
        if region != self.region:
            words = f"{words}, taken for {region}"
        if is_spot(labels):
            factor = CLOUD_SPOT_FACTOR if spot_factor is None else spot_factor
            hourly, words = _share(hourly, factor), f"{words}, spot x {written_amount(factor)}"
        return NodePrice(hourly, "cloud", words)


class PriceList(Prices, frozen=True):
    """A user's prices in one *currency*. Of several entries that match a node, the first counts.

    A spot node without an entry of its own costs *spot_factor* (in millionths) of its price on demand; without a factor
    it has no price by the list. A node without a price by the list has its price from *nodes*, which are OpenCost's
    prices; if no entry is about it, else from *clouds*.
    """

    entries: tuple[PriceEntry, ...] = ()
    spot_factor: int | None = None
    clouds: tuple[CloudPrices, ...] = ()

    def price(self, node: Node) -> NodePrice | None:
        """Return the price of *node* by this list, ``None`` if no entry is about it."""
        labels = node.labels
        instance_type, zone = _first(labels, INSTANCE_TYPE_LABELS), _first(labels, ZONE_LABELS)
        found = [each for each in self.entries if each.matches(labels, instance_type, zone)]
        spot = bool(found) and is_spot(labels)
        own: CapacityType = "spot" if spot else "on-demand"
        for each in found:
            if each.capacity_type == own or (not each.capacity_type and (each.selector is not None or not spot)):
                return NodePrice(each.hourly, "list", each.words, self.currency)
        if found and spot and self.spot_factor is not None:
            words = f"{found[0].words}, spot x {written_amount(self.spot_factor)}"
            return NodePrice(_share(found[0].hourly, self.spot_factor), "list", words, self.currency)
        if node.name in self.nodes:
            return NodePrice(self.nodes[node.name], "opencost", "node_total_hourly_cost", self.currency)
        if found:
            return None
        known = (each.price(labels, instance_type, self.spot_factor) for each in self.clouds)
        return next((each for each in known if each is not None), None)


def is_spot(labels: Labels) -> bool:
    """Whether a node with *labels* is a spot or preemptible machine."""
    return any(labels.get(label, "") in words for label, words in SPOT_LABELS.items())


def _share(hourly: int, factor: int) -> int:
    return rounded(Decimal(hourly * factor) / MICROS)


def _first(labels: Labels, names: tuple[str, ...]) -> str:
    for name in names:
        value = labels.get(name)
        if value:
            return value
    return ""
