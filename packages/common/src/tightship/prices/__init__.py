"""What nodes cost by a user's price list, by OpenCost, and by the clouds' prices on demand that come with Tightship."""

from tightship.prices.lists import prices

__all__ = ["prices"]
