"""How the arguments of steps and faults are drawn: a table of what to draw by the argument's name, in its order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tightship_testkit.disasters.scenario import Scenario

Args = dict[str, Any]
"""The arguments of a step or a fault: what JSON can hold."""
Drawn = Callable[[Random, "Scenario"], Any]
"""Draws one argument for a scenario whose cluster and controllers are made. Raises :class:`MissingError`."""
Draw = Callable[[Random, "Scenario"], Args | None]
"""Draws all arguments, ``None`` where nothing fits."""


class MissingError(LookupError):
    """A scenario or its world lacks what something would happen to."""


def draws(*parts: Draw, **what: Drawn) -> Draw:
    """Draw several arguments by each of *parts*, then one by each of *what*."""

    def draw(rng: Random, scenario: Scenario) -> Args | None:
        args: Args = {}
        try:
            for part in parts:
                drawn = part(rng, scenario)
                if drawn is None:
                    return None
                args |= drawn
            for name, each in what.items():
                args[name] = each(rng, scenario)
        except MissingError:
            return None
        return args

    return draw


def one_of(*values: object) -> Drawn:
    """Draw one of *values*."""
    return lambda rng, _: rng.choice(values)


def share(part: float) -> Drawn:
    """Draw true in a *part* of all cases."""
    return lambda rng, _: rng.random() < part


def any_of(rng: Random, things: Sequence[Any]) -> Any:
    """Return one of *things*. Raises :class:`MissingError` where there is none."""
    if not things:
        raise MissingError
    return rng.choice(things)


def named(things: Callable[[Scenario], Sequence[Any]]) -> Drawn:
    """Draw the name of one of a scenario's *things*."""
    return lambda rng, scenario: any_of(rng, things(scenario)).name


def program(rng: Random, scenario: Scenario) -> str:
    """Draw a controller."""
    return str(any_of(rng, scenario.controllers).program)


__all__ = ["Args", "Draw", "Drawn", "MissingError", "any_of", "draws", "named", "one_of", "program", "share"]
