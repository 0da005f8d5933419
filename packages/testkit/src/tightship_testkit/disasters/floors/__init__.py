"""The floors' part of the disasters: HPAs, their traffic, and the Prometheus servers that know of it."""
