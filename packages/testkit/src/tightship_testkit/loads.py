"""How the load of a cluster changes over hours: replicas that its Deployments need, by the time. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

Load = Callable[[float], Mapping[str, int]]
"""Replicas of each Deployment, at a time in seconds of the cluster."""

HOUR = 3600.0
"""Seconds."""

_DAY = (
    (0, 0.45), (4, 0.35), (8, 0.25), (11, 0.4), (14, 0.8), (16, 0.95), (19, 1.0), (21, 0.7), (23, 0.5), (24, 0.45),
)  # fmt: skip
"""Hours of the day, and the share of its peak that a site's traffic has then."""

_MEAN = 10
"""Minutes over which :func:`by_rates` takes the mean."""


def together(
    seed: int, *, deployments: int = 8, period: float = 80 * 60.0, heights: tuple[float, float] = (0.3, 0.5)
) -> Load:
    """Return a load that rises and falls in all Deployments at once: a wave of *period* seconds, and some noise.

    *heights* are the least and the greatest share of its mean by which a Deployment's replicas rise and fall.
    """
    rng = random.Random(seed)  # noqa: S311 - a simulation
    base = [rng.uniform(5, 9) for _ in range(deployments)]
    height = [rng.uniform(*heights) for _ in range(deployments)]
    late = [rng.uniform(-180, 180) for _ in range(deployments)]
    noise = [[rng.uniform(-0.05, 0.05) for _ in range(64)] for _ in range(deployments)]

    def load(now: float) -> Mapping[str, int]:
        def of(number: int) -> int:
            wave = math.sin(2 * math.pi * (now - late[number]) / period)
            bit = noise[number][int(now // 600) % 64]
            return max(1, round(base[number] * (1 + height[number] * wave + bit)))

        return {f"w{number}": of(number) for number in range(deployments)}

    return load


def constant(deployments: int = 8, replicas: int = 4) -> Load:
    """Return a load that never changes."""
    return lambda _: {f"w{number}": replicas for number in range(deployments)}


def by_day(*, deployments: int = 8, peak: float = 12.0) -> Load:
    """Return the load of a site that people visit: a quarter of its *peak* at eight in the morning, when it begins."""

    def load(now: float) -> Mapping[str, int]:
        hour = (8 + now / HOUR) % 24
        after = next(place for place, (at, _) in enumerate(_DAY) if at > hour)
        (from_hour, low), (to_hour, high) = _DAY[after - 1], _DAY[after]
        share = low + (high - low) * (hour - from_hour) / (to_hour - from_hour)

        def of(number: int) -> int:
            wave = 1 + 0.05 * math.sin(math.tau * (now / HOUR / 1.5 + number / deployments))
            return max(1, round(peak * (0.7 + 0.6 * number / deployments) * share * wave))

        return {f"w{number}": of(number) for number in range(deployments)}

    return load


def by_rates(rates: Sequence[float], *, deployments: int = 8, peak: float = 12.0) -> Load:
    """Return the load of a site with these *rates* of requests, one a minute; the highest of them is its *peak*.

    A rate counts as the mean of the last ten minutes: single minutes of a site with few visitors are mostly chance.
    """
    mean = [sum(rates[max(0, last - _MEAN) : last]) / min(_MEAN, last) for last in range(1, len(rates) + 1)]
    highest = max(mean)

    def load(now: float) -> Mapping[str, int]:
        share = mean[min(max(0, int(now // 60)), len(mean) - 1)] / highest
        return {
            f"w{number}": max(1, round(peak * (0.7 + 0.6 * number / deployments) * share))
            for number in range(deployments)
        }

    return load


__all__ = ["HOUR", "Load", "by_day", "by_rates", "constant", "together"]
