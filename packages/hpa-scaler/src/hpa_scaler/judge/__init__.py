"""Where a floor goes, and why. Pure."""
