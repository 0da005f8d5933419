"""What a story can be made of, by name: kinds of steps and of faults, and the promises that are held against it.

A module adds to a registry by a decorator; :mod:`tightship_testkit.disasters.steps`,
:mod:`~tightship_testkit.disasters.faults` and :mod:`~tightship_testkit.disasters.promises` import all modules that do.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp.web import StreamResponse
from msgspec import Struct

if TYPE_CHECKING:
    from tightship_testkit.disasters.promises.base import Promise
    from tightship_testkit.disasters.scenario import Scenario

Args = dict[str, Any]
"""The arguments of a step or a fault: what JSON can hold."""
Draw = Callable[[Random, "Scenario"], Args | None]
"""Draws arguments for a scenario whose cluster and controllers are made; ``None`` where nothing fits."""
Act = Callable[..., Awaitable[None] | None]

PERSON = "person"
AUTOSCALER = "autoscaler"
"""Authors of writes that a story makes."""


class StepKind(Struct, frozen=True):
    """A kind of step: *act* is called with the world and the step's arguments, as *author*.

    *weight* is how often it is drawn, beside the others'.
    """

    name: str
    act: Act
    draw: Draw
    weight: float
    author: str

    def wrong(self, args: Mapping[str, Any]) -> str:
        """Return what is wrong with *args*, empty where nothing is."""
        return _wrong(self.act, args, given=1)


STEPS: dict[str, StepKind] = {}

F = TypeVar("F", bound=Act)


def step(draw: Draw, *, weight: float = 1.0, author: str = PERSON) -> Callable[[F], F]:
    """Register a function as the step of its name, ``_`` written as ``-``."""

    def register(act: F) -> F:
        name = act.__name__.replace("_", "-")
        assert name not in STEPS, name
        STEPS[name] = StepKind(name, act, draw, weight, author)
        return act

    return register


class FaultKind(Struct, frozen=True):
    """A kind of fault: *act* is called with a request on its way and the fault's arguments, and returns the answer.

    *verbs* are those of the requests that it may meet.
    """

    name: str
    act: Callable[..., Awaitable[StreamResponse]]
    draw: Draw
    weight: float
    verbs: frozenset[str]

    def wrong(self, args: Mapping[str, Any]) -> str:
        """Return what is wrong with *args*, empty where nothing is."""
        return _wrong(self.act, args, given=1)


FAULTS: dict[str, FaultKind] = {}

READS = frozenset({"get", "list"})
WRITES = frozenset({"create", "update", "patch", "delete"})
CALLS = READS | WRITES
WATCH = frozenset({"watch"})

G = TypeVar("G", bound=Callable[..., Awaitable[StreamResponse]])


def fault(draw: Draw, *, verbs: frozenset[str] = CALLS, weight: float = 1.0) -> Callable[[G], G]:
    """Register a function as the fault of its name, ``_`` written as ``-``."""

    def register(act: G) -> G:
        name = act.__name__.replace("_", "-")
        assert name not in FAULTS, name
        FAULTS[name] = FaultKind(name, act, draw, weight, verbs)
        return act

    return register


PROMISES: dict[str, type[Promise]] = {}

P = TypeVar("P", bound="type[Promise]")


def promise(kind: P) -> P:
    """Register a promise by its name."""
    assert kind.name not in PROMISES, kind.name
    PROMISES[kind.name] = kind
    return kind


_PLAIN: dict[str, Any] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": (int, float),
    "Args": dict,
    "list[str]": list,
    "object": object,
}


def _wrong(act: Callable[..., object], args: Mapping[str, Any], given: int) -> str:
    """Return why *act* can't be called with *args* after so many arguments of its own."""
    known = dict(list(inspect.signature(act).parameters.items())[given:])
    for name, value in args.items():
        if name not in known:
            return f"{name!r} is no argument; allowed are {', '.join(known) or 'none'}"
        wanted = _PLAIN[str(known[name].annotation)]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted not in (bool, object)):
            return f"{name}={value!r} must be of type {known[name].annotation}"
    lacking = [name for name, each in known.items() if each.default is each.empty and name not in args]
    return f"{', '.join(lacking)} must be given" if lacking else ""


__all__ = [
    "AUTOSCALER", "CALLS", "FAULTS", "PERSON", "PROMISES", "READS", "STEPS", "WATCH", "WRITES", "Act", "Args", "Draw",
    "FaultKind", "StepKind", "fault", "promise", "step",
]  # fmt: skip
