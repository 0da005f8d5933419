"""What nodes cost by a user's price list, by OpenCost, and by the clouds' prices on demand that come with Tightship."""

from tightship.objects.money import Prices
from tightship.prices.files import configured, read_prices


def prices(value: object, file: str | None) -> Prices:
    """Return the prices that *value* of a configuration spells, or those in *file*, which may be a server's address.

    Without either, they are the shipped ones. Raises :class:`pydantic_core.PydanticCustomError` for an unusable value,
    and :class:`~tightship.process.settings.loading.SettingsError` for an unusable file.
    """
    return configured(value) if file is None else read_prices(file)
