"""What a pod asks of a node and what a node has, computed slowly and plainly with exact fractions.

Written from the API's documentation and sharing no code with the controllers, so that agreement means something.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

Json = dict[str, Any]
Amounts = dict[str, Fraction]
"""Amounts by resource name, in units (cores, bytes, pieces)."""

_SUFFIXES = {
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30),
    "Ti": Fraction(2**40), "Pi": Fraction(2**50), "Ei": Fraction(2**60),
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 10**3),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9),
    "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
}  # fmt: skip


@lru_cache(maxsize=65536)
def quantity(text: str) -> Fraction:
    """Return the value of a quantity that the API server has accepted."""
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * factor
    return Fraction(text)


def requests(pod: Json) -> Amounts:
    """Return what the pod takes of a node, one of ``pods`` included. A resize under way is not looked at."""
    spec = pod["spec"]
    total: Amounts = {}
    for container in spec["containers"]:
        _add(total, _asked(container))
    running: Amounts = {}  # sidecars started so far
    peak: Amounts = {}
    for container in spec.get("initContainers") or []:
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            _add(running, asked)
            _raise(peak, running)
        else:
            step = dict(running)
            _add(step, asked)
            _raise(peak, step)
    _add(total, running)
    _raise(total, peak)
    for name, text in ((spec.get("resources") or {}).get("requests") or {}).items():
        total[name] = quantity(text)
    _add(total, {name: quantity(text) for name, text in (spec.get("overhead") or {}).items()})
    # The scheduler counts CPU in whole milli-cores and everything else in whole units, rounded up.
    rounded = {name: _round_up(name, amount) for name, amount in total.items()}
    return {**rounded, "pods": Fraction(1)}


def allocatable(node: Json) -> Amounts:
    """Return what the node has for pods."""
    return {name: quantity(text) for name, text in (node.get("status", {}).get("allocatable") or {}).items()}


def _asked(container: Json) -> Amounts:
    resources = container.get("resources") or {}
    return {
        name: quantity(text)
        for name, text in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items()
    }


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount


def _raise(total: Amounts, floor: Amounts) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, Fraction(0)), amount)


def _round_up(name: str, amount: Fraction) -> Fraction:
    unit = 1000 if name == "cpu" else 1
    return Fraction(-(-(amount * unit).numerator // (amount * unit).denominator), unit)
