"""Price lists as users give them: a mapping in the configuration, a text that holds one, a file, or an address."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources

import msgspec
from pydantic_core import PydanticCustomError

from tightship.objects.money import MICROS
from tightship.objects.quoting import quoted
from tightship.prices.lists import CloudPrices, PriceList
from tightship.prices.reading import price_list
from tightship.process.settings.loading import TELLS_ALL, SettingsError, mapping_of, read_config

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
