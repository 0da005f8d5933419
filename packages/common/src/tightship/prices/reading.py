"""A user's price list: its keys, and the prices that they come to. ``docs/money.md`` describes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from tightship.objects.money import DEFAULT_CURRENCY, MICROS, parse_number, parse_price, rounded, shown_value
from tightship.objects.selectors import LabelSelector, parse_selector
from tightship.prices.lists import CapacityType, CloudPrices, PriceEntry, PriceList
from tightship.prices.opencost import OpenCost
from tightship.process.settings.fields import Allowed
from tightship.process.settings.loading import TELLS_ALL, Layered, SettingsError, load
from tightship.process.settings.query_servers import ServerSettings, server_of


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
    told = ",".join(f"{key}={text}" for key, text in value.items()) if isinstance(value, Mapping) else value
    return Selected(selector=selector, words=told)


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
        told = {"type": self.instance_type, "selector": selector.words if selector else "", "zone": self.zone}
        words = [f"{key} {text}" for key, text in told.items() if text]
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
