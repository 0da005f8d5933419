"""What a story can be made of, by name: kinds of steps and of faults, and the promises that are held against it.

A module adds to a registry by a decorator; :mod:`tightship_testkit.disasters.steps`,
:mod:`~tightship_testkit.disasters.faults` and :mod:`~tightship_testkit.disasters.promises` import all modules that do.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp.web import StreamResponse
from msgspec import Struct

from tightship_testkit.disasters.drawing import Args, Draw, Drawn, draws

if TYPE_CHECKING:
    from tightship_testkit.disasters.promises.base import Promise

PERSON = "person"
AUTOSCALER = "autoscaler"
HANDLER = "termination handler"
"""Authors of writes that a story makes."""

READS = frozenset({"get", "list"})
WRITES = frozenset({"create", "update", "patch", "delete"})
CALLS = READS | WRITES
WATCH = frozenset({"watch"})


class Kind(Struct, frozen=True):
    """A kind of step, or of fault: *act* is called with the world, or a request on its way, and its arguments.

    *weight* is how often it is drawn, beside the others'. A step acts as *author*; a fault may meet requests of these
    *verbs*, what its *act* returns is the answer, and whoever meets one that *blinds* may know less than there is.
    """

    name: str
    act: Callable[..., Any]
    draw: Draw
    weight: float
    author: str = ""
    verbs: frozenset[str] = frozenset()
    blinds: bool = True

    def wrong(self, args: Mapping[str, Any]) -> str:
        """Return what is wrong with *args*, empty where nothing is."""
        known = dict(list(inspect.signature(self.act).parameters.items())[1:])
        for name, value in args.items():
            if name not in known:
                return f"{name!r} is no argument; allowed are {', '.join(known) or 'none'}"
            wanted = _PLAIN[str(known[name].annotation)]
            if not isinstance(value, wanted) or (isinstance(value, bool) and wanted not in (bool, object)):
                return f"{name}={value!r} must be of type {known[name].annotation}"
        lacking = [name for name, each in known.items() if each.default is each.empty and name not in args]
        return f"{', '.join(lacking)} must be given" if lacking else ""


_PLAIN: dict[str, Any] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": (int, float),
    "Args": dict,
    "list[str]": list,
    "object": object,
}

STEPS: dict[str, Kind] = {}
FAULTS: dict[str, Kind] = {}

F = TypeVar("F", bound=Callable[..., Awaitable[None] | None])
G = TypeVar("G", bound=Callable[..., Awaitable[StreamResponse]])


def step(*parts: Draw, weight: float = 1.0, author: str = PERSON, **what: Drawn) -> Callable[[F], F]:
    """Register a function as the step of its name, ``_`` written as ``-``; its arguments are drawn by the rest."""

    def register(act: F) -> F:
        _add(STEPS, Kind(_name(act), act, draws(*parts, **what), weight, author))
        return act

    return register


def fault(
    *, verbs: frozenset[str] = CALLS, weight: float = 1.0, blinds: bool = True, **what: Drawn
) -> Callable[[G], G]:
    """Register a function as the fault of its name, ``_`` written as ``-``; its arguments are drawn by the rest."""

    def register(act: G) -> G:
        _add(FAULTS, Kind(_name(act), act, draws(**what), weight, verbs=verbs, blinds=blinds))
        return act

    return register


def _name(act: Callable[..., object]) -> str:
    return act.__name__.replace("_", "-")


def _add(known: dict[str, Kind], kind: Kind) -> None:
    assert kind.name not in known, kind.name
    known[kind.name] = kind


PROMISES: dict[str, type[Promise]] = {}

P = TypeVar("P", bound="type[Promise]")


def promise(kind: P) -> P:
    """Register a promise by its name."""
    assert kind.name not in PROMISES, kind.name
    PROMISES[kind.name] = kind
    return kind


__all__ = [
    "AUTOSCALER", "CALLS", "FAULTS", "HANDLER", "PERSON", "PROMISES", "READS", "STEPS", "WATCH", "WRITES", "Args",
    "Kind", "fault", "promise", "step",
]  # fmt: skip
