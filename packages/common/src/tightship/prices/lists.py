"""What a node costs by lists of prices.

The first of these counts: the user's price list, OpenCost, and the list of on-demand prices that comes with Tightship.
A user gives a price list as a mapping in the configuration, a text that holds one, a file, or an address;
``docs/money.md`` describes its keys.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from decimal import Decimal
from importlib import resources
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Struct
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from tightship.objects import Node
from tightship.objects.money import (
    DEFAULT_CURRENCY,
    INSTANCE_TYPE_LABELS,
    MICROS,
    NodePrice,
    Prices,
    parse_number,
    parse_price,
    rounded,
    shown_value,
    written_amount,
)
from tightship.objects.quoting import quoted
from tightship.objects.selectors import Labels, LabelSelector, parse_selector
from tightship.prices.opencost import OpenCost
from tightship.process.settings.loading import TELLS_ALL, Allowed, Layered, SettingsError, load, mapping_of, read_config
from tightship.process.settings.query_servers import ServerSettings, server_of

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


def _refused(value: object, allowed: str) -> PydanticCustomError:
    return PydanticCustomError(TELLS_ALL, "{problem}", {"problem": f"{shown_value(value)}{allowed}"})


def _price(value: object) -> int:
    try:
        return parse_price(value)
    except ValueError as error:
        raise PydanticCustomError(TELLS_ALL, "{problem}", {"problem": str(error)}) from error


def _currency(value: object) -> object:
    if isinstance(value, str) and value.isascii() and value.isalpha() and len(value) == 3:
        return value.upper()
    raise _refused(value, "; allowed is a code of three letters such as USD or EUR")


def _factor(value: object) -> object:
    number = parse_number(value)
    if number is None or not 0 <= number <= 1:
        raise _refused(value, "; allowed is a number of 0 to 1 such as 0.35")
    return rounded(number * MICROS)


def _switch(value: object) -> object:
    if not isinstance(value, bool):
        raise _refused(value, "; allowed are true and false")
    return value


def _types(value: object) -> object:
    if not isinstance(value, Mapping):
        raise _refused(value, "; allowed is a mapping of instance types to prices")
    return {str(name): each for name, each in value.items()}


def _list(value: object) -> object:
    if not isinstance(value, list | tuple):
        raise _refused(value, f"; allowed is a list of entries with {', '.join(_ENTRY)}")
    return value


def _entry(value: object) -> object:
    if not isinstance(value, Mapping):
        raise _refused(value, f"; allowed is a mapping with {', '.join(_ENTRY)}")
    if not (value.get("instanceType") or value.get("selector") is not None):
        raise PydanticCustomError(TELLS_ALL, "names no nodes; allowed is instanceType, selector, or both")
    return {"price": None, **value}


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise _refused(value, "; allowed is a text")
    return value


def _capacity_type(value: object) -> object:
    if value not in ("on-demand", "spot", ""):
        raise _refused(value, "; allowed are on-demand and spot")
    return value


def _selector(value: object) -> object:
    """Return a selector from labels by name, or from kubectl's notation; one that selects everything is refused."""
    if isinstance(value, str):
        try:
            selector = parse_selector(value)
        except ValueError as error:
            raise PydanticCustomError(TELLS_ALL, "{problem}", {"problem": str(error)}) from error
    elif isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values()):
        selector = LabelSelector(match_labels={str(key): text for key, text in value.items()})
    else:
        raise _refused(value, "; allowed are labels by name, or a text such as a=b or 'a in (b,c)'")
    if selector.empty:
        raise _refused(value, " selects every node; allowed is at least one label")
    shown = ",".join(f"{key}={text}" for key, text in value.items()) if isinstance(value, Mapping) else value
    return Selected(selector=selector, words=shown)


class Selected(BaseModel):
    """A selector with its *words*."""

    model_config = ConfigDict(arbitrary_types_allowed=True, frozen=True)

    selector: LabelSelector
    words: str


Price = Annotated[int, BeforeValidator(_price)]
"""Millionths of the currency per hour."""


class Entry(BaseModel):
    """The price of the nodes that all given parts match."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    price: Price
    instance_type: Annotated[str, BeforeValidator(_text)] = Field(default="", alias="instanceType")
    selector: Annotated[Selected | None, BeforeValidator(_selector)] = None
    zone: Annotated[str, BeforeValidator(_text)] = ""
    capacity_type: Annotated[CapacityType, BeforeValidator(_capacity_type)] = Field(default="", alias="capacityType")

    @property
    def nodes(self) -> tuple[object, ...]:
        """What two entries about the same nodes have in common."""
        return (self.instance_type, self.selector and self.selector.selector, self.zone, self.capacity_type)

    @property
    def entry(self) -> PriceEntry:
        """The entry for the judgement."""
        selector = self.selector
        shown = {"type": self.instance_type, "selector": selector.words if selector else "", "zone": self.zone}
        words = [f"{key} {text}" for key, text in shown.items() if text]
        return PriceEntry(
            self.price,
            instance_type=self.instance_type,
            selector=selector.selector if selector else None,
            zone=self.zone,
            capacity_type=self.capacity_type,
            words=" ".join([*words, self.capacity_type]).strip(),
        )


_ENTRY = ("price", "instanceType", "selector", "zone", "capacityType")


class PriceKeys(Layered):
    """The keys of a price list. ``prices`` is a list of entries; ``instanceTypes`` maps types to prices on demand, and
    counts after ``prices``.
    """

    currency: Annotated[str, BeforeValidator(_currency)] = DEFAULT_CURRENCY
    spot_factor: Annotated[int | None, BeforeValidator(_factor)] = Field(default=None, alias="spotFactor")
    """Millionths."""
    instance_types: Annotated[Mapping[str, Price], BeforeValidator(_types)] = Field(default={}, alias="instanceTypes")
    prices: Annotated[tuple[Annotated[Entry, BeforeValidator(_entry)], ...], BeforeValidator(_list)] = ()
    cloud_prices: Annotated[bool, BeforeValidator(_switch)] = Field(default=True, alias="cloudPrices")
    open_cost: Annotated[
        ServerSettings | None,
        BeforeValidator(lambda value: {"url": value} if isinstance(value, str) else value),
        Allowed("an address, or a server as hpa-scaler has them"),
    ] = Field(default=None, alias="openCost")

    @property
    def ask(self) -> OpenCost | None:
        """Asks the server that knows OpenCost's prices."""
        given = self.open_cost
        return None if given is None else OpenCost(server_of("OpenCost", given, given.url))

    def problems(self) -> Iterator[str]:
        """Yield what no key shows by itself."""
        if not (
            self.prices or self.instance_types or {"spot_factor", "cloud_prices", "open_cost"} & self.model_fields_set
        ):
            yield "holds no price; allowed are instanceTypes, a mapping of types to prices, and prices, a list"
        seen: dict[tuple[object, ...], int] = {}
        for number, each in enumerate(self.prices, 1):
            if seen.setdefault(each.nodes, number) != number:
                same = seen[each.nodes]
                yield f"prices[{number}]: is about the same nodes as prices[{same}]; allowed is one of them"
        if self.open_cost is not None and not self.open_cost.url:
            yield "openCost: has no url; allowed is the address of a Prometheus that scrapes OpenCost"
        if self.open_cost is not None and self.open_cost.tls.server_name:
            yield "openCost.tls.serverName: can't be used here; allowed is a url with the certificate's name"


def price_list(values: Mapping[str, object], clouds: tuple[CloudPrices, ...] = ()) -> PriceList:
    """Return the price list that *values* spell.

    *clouds* are for the nodes that no entry is about, unless ``cloudPrices`` is false or the currency isn't theirs.
    Raises :class:`SettingsError` with a line for each problem: the entry, its value, and what is allowed.
    """
    keys = load(PriceKeys, values)
    if problems := list(keys.problems()):
        raise SettingsError(problems)
    types = (
        PriceEntry(hourly, instance_type=name, words=f"type {name}") for name, hourly in keys.instance_types.items()
    )
    return PriceList(
        keys.currency,
        entries=(*(each.entry for each in keys.prices), *types),
        spot_factor=keys.spot_factor,
        clouds=clouds if keys.cloud_prices and keys.currency == DEFAULT_CURRENCY else (),
        ask=keys.ask,
    )


PRICE_FILES = ("prices.yaml", "prices.yml", "prices.json", "prices")
"""Keys of a ConfigMap's data that may hold a price list; the first that exists counts."""


ON_DEMAND = "on_demand_prices.json"
"""The shipped list, beside this module; packages/common/tooling/on_demand_prices.py makes it."""


class _Cloud(msgspec.Struct, frozen=True):
    cloud: str
    region: str
    date: str
    prices: dict[str, float]


@functools.cache
def cloud_prices() -> tuple[CloudPrices, ...]:
    """Return the shipped prices on demand."""
    read = msgspec.json.decode((resources.files(__package__) / ON_DEMAND).read_bytes(), type=list[_Cloud])
    return tuple(
        CloudPrices(
            each.cloud, each.region, each.date, {name: round(price * MICROS) for name, price in each.prices.items()}
        )
        for each in read
    )


def no_list() -> PriceList:
    """Return the price list of a user who gave none."""
    return PriceList(clouds=cloud_prices())


def read_prices(path: str) -> PriceList:
    """Return the price list in the file *path*: YAML, JSON, or a ConfigMap manifest around either.

    If *path* is the address of a Prometheus server, the list only names that server, which
    :class:`~tightship.prices.opencost.OpenCost` asks. Raises :class:`SettingsError`, whose problems name the
    file.
    """
    address = path.lower().startswith(("http://", "https://"))
    values: Mapping[str, object] = {"openCost": path} if address else read_config(path, PRICE_FILES)
    try:
        return _read(values)
    except SettingsError as error:
        where = "--prices" if address else path
        raise SettingsError([f"{where}: {problem}" for problem in error.problems]) from error


def _read(values: Mapping[str, object]) -> PriceList:
    found = price_list(values, cloud_prices())
    # Only values that passed are written: YAML's aliases can make others endless.
    return msgspec.structs.replace(found, written=msgspec.json.encode(values).decode())


def configured(value: object) -> PriceList:
    """Return the price list in *value*, a mapping or a text that holds one; without a value the shipped one.

    Raises :class:`pydantic_core.PydanticCustomError`, which tells all problems.
    """
    if isinstance(value, str):
        try:
            value = mapping_of(value, "prices") or None
        except SettingsError as error:
            raise PydanticCustomError(TELLS_ALL, "{problems}", {"problems": str(error)}) from error
    if value is None:
        return no_list()
    if not isinstance(value, Mapping):
        why = f"{quoted(value)}; allowed is a mapping with instanceTypes or prices"
        raise PydanticCustomError(TELLS_ALL, "{problems}", {"problems": why})
    try:
        return _read(value) if value else no_list()
    except SettingsError as error:
        raise PydanticCustomError(TELLS_ALL, "{problems}", {"problems": str(error)}) from error


def prices(value: object, file: str | None) -> Prices:
    """Return the prices that *value* of a configuration spells, or those in *file*, which may be a server's address.

    Without either, they are the shipped ones. Raises :class:`pydantic_core.PydanticCustomError` for an unusable value,
    and :class:`~tightship.process.settings.loading.SettingsError` for an unusable file.
    """
    return configured(value) if file is None else read_prices(file)
