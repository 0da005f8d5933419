"""Reads a user's price list. Pure: whoever calls has read the file.

``docs/money.md`` describes the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tightship.objects.money import DEFAULT_CURRENCY, MICROS, parse_number, parse_price, rounded, shown_value
from tightship.objects.selector_text import parse_selector
from tightship.objects.selectors import LabelSelector
from tightship.prices.lists import CapacityType, CloudPrices, PriceEntry, PriceList

_KEYS = ("currency", "spotFactor", "instanceTypes", "prices", "cloudPrices", "openCost")
_ENTRY_KEYS = ("price", "instanceType", "selector", "zone", "capacityType")
_CAPACITY_TYPES: tuple[CapacityType, ...] = ("on-demand", "spot")


class PriceError(ValueError):
    """An unusable price list. *problems* has a line for each problem: the entry, its value, and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def price_list(
    values: Mapping[str, object],
    clouds: tuple[CloudPrices, ...] = (),
    ask: Callable[[], Mapping[str, int]] | None = None,
) -> PriceList:
    """Return the price list that *values* spell; *ask* asks the server that ``openCost`` names.

    ``prices`` is a list of entries; ``instanceTypes`` maps types to prices on demand, and counts after ``prices``.
    *clouds* are for the nodes that neither is about, unless ``cloudPrices`` is false or the currency isn't theirs.
    Raises :class:`PriceError` with **all** problems.
    """
    problems = [
        f"{shown_value(key)}: unknown key; allowed are {', '.join(_KEYS)}" for key in values if key not in _KEYS
    ]
    currency = values.get("currency", DEFAULT_CURRENCY)
    if not (isinstance(currency, str) and currency.isascii() and currency.isalpha() and len(currency) == 3):
        problems.append(f"currency: {shown_value(currency)}; allowed is a code of three letters such as USD or EUR")
    factor = None
    if "spotFactor" in values:
        number = parse_number(values["spotFactor"])
        if number is None or not 0 <= number <= 1:
            problems.append(
                f"spotFactor: {shown_value(values['spotFactor'])}; allowed is a number of 0 to 1 such as 0.35"
            )
        else:
            factor = rounded(number * MICROS)
    wanted = values.get("cloudPrices", True)
    if not isinstance(wanted, bool):
        problems.append(f"cloudPrices: {shown_value(wanted)}; allowed are true and false")
    entries = [*_entries(values.get("prices", ()), problems), *_types(values.get("instanceTypes", {}), problems)]
    if not entries and not problems and not {"spotFactor", "cloudPrices", "openCost"} & values.keys():
        problems.append("holds no price; allowed are instanceTypes, a mapping of types to prices, and prices, a list")
    if problems:
        raise PriceError(problems)
    currency = str(currency).upper()
    if not wanted or currency != DEFAULT_CURRENCY:
        clouds = ()
    return PriceList(currency, entries=tuple(entries), spot_factor=factor, clouds=clouds, ask=ask)


def _types(found: object, problems: list[str]) -> Iterator[PriceEntry]:
    if not isinstance(found, Mapping):
        problems.append(f"instanceTypes: {shown_value(found)}; allowed is a mapping of instance types to prices")
        return
    for name, value in found.items():
        try:
            yield PriceEntry(parse_price(value), instance_type=str(name), words=f"type {name}")
        except ValueError as error:
            problems.append(f"instanceTypes.{name}: {error}")


def _entries(found: object, problems: list[str]) -> Iterator[PriceEntry]:
    if isinstance(found, str | Mapping) or not isinstance(found, list | tuple):
        problems.append(f"prices: {shown_value(found)}; allowed is a list of entries with {', '.join(_ENTRY_KEYS)}")
        return
    seen: dict[tuple[object, ...], int] = {}
    for number, value in enumerate(found, 1):
        entry = _entry(value, f"prices[{number}]", problems)
        if entry is None:
            continue
        same = (entry.instance_type, entry.selector, entry.zone, entry.capacity_type)
        if same in seen:
            problems.append(
                f"prices[{number}]: is about the same nodes as prices[{seen[same]}]; allowed is one of them"
            )
        seen.setdefault(same, number)
        yield entry


def _entry(value: object, where: str, problems: list[str]) -> PriceEntry | None:
    if not isinstance(value, Mapping):
        problems.append(f"{where}: {shown_value(value)}; allowed is a mapping with {', '.join(_ENTRY_KEYS)}")
        return None
    before = len(problems)
    problems += [
        f"{where}.{key}: unknown key; allowed are {', '.join(_ENTRY_KEYS)}" for key in value if key not in _ENTRY_KEYS
    ]
    hourly, selector = 0, None
    try:
        hourly = parse_price(value.get("price"))
    except ValueError as error:
        problems.append(f"{where}.price: {error}")
    try:
        selector = _selector(value.get("selector"))
    except ValueError as error:
        problems.append(f"{where}.selector: {error}")
    for key in ("instanceType", "zone"):
        if not isinstance(value.get(key, ""), str):
            problems.append(f"{where}.{key}: {shown_value(value[key])}; allowed is a text")
    kind = value.get("capacityType", "")
    if kind and kind not in _CAPACITY_TYPES:
        problems.append(f"{where}.capacityType: {shown_value(kind)}; allowed are {' and '.join(_CAPACITY_TYPES)}")
    if not value.get("instanceType") and selector is None:
        problems.append(f"{where}: names no nodes; allowed is instanceType, selector, or both")
    if len(problems) > before:
        return None
    given = {"type": value.get("instanceType"), "selector": value.get("selector"), "zone": value.get("zone")}
    words = [f"{key} {_text(each)}" for key, each in given.items() if each]
    capacity_type: CapacityType = next((each for each in _CAPACITY_TYPES if each == kind), "")
    return PriceEntry(
        hourly,
        instance_type=str(value.get("instanceType", "")),
        selector=selector,
        zone=str(value.get("zone", "")),
        capacity_type=capacity_type,
        words=" ".join([*words, capacity_type]).strip(),
    )


def _selector(value: object) -> LabelSelector | None:
    """Return a selector from labels by name, or from kubectl's notation; one that selects everything is refused."""
    if value is None:
        return None
    if isinstance(value, str):
        selector = parse_selector(value)
    elif isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values()):
        selector = LabelSelector(match_labels={str(key): text for key, text in value.items()})
    else:
        allowed = "labels by name, or a text such as a=b or 'a in (b,c)'"
        raise ValueError(f"{shown_value(value)}; allowed are {allowed}")
    if selector.empty:
        raise ValueError(f"{shown_value(value)} selects every node; allowed is at least one label")
    return selector


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={text}" for key, text in value.items())
    return str(value)
