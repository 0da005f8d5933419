"""What a promise is: it sees every change, every request and every second, and says what was broken.

A promise knows nothing of the controllers' code: names and words that users see are written out here.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.world import World

Json = dict[str, Any]

CONTROLLERS = ("node-compactor", "node-refiner", "hpa-scaler")


class Violation(Struct, frozen=True):
    """A promise that was broken: of which *subject*, *at* which second, and *what* happened."""

    promise: str
    subject: str
    at: float
    what: str

    def __str__(self) -> str:
        return f"{self.at:8.3f} s  {self.promise}: {self.subject}: {self.what}"


class Asked(Struct, frozen=True):
    """A request that was answered with *code*: *at* is when it arrived, *by* the process that sent it."""

    at: float
    by: str
    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    code: int
    dry_run: bool = False
    body: bytes = b""
    met: bool = False
    """Whether a fault met it: who sent it may not have heard the answer."""
    done: float = 0.0
    """When it was answered."""

    @property
    def writes(self) -> bool:
        """Whether it may have changed something."""
        return self.verb not in {"get", "list", "watch"} and not self.dry_run


class Eviction(Struct, frozen=True):
    """A pod that one of our replicas has evicted or deleted: *pod* as it was before, *node* the one it is on.

    *op* is the drain that the node then was in.
    """

    pod: Json
    node: Json | None
    by: str
    sent: float
    op: str

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def program(self) -> str:
        """The controller that did it."""
        return ours(self.by)


class Promise:
    """One promise of docs/safety.md: *name* is how it is called here, *text* its words there. *about* is nodes
    or floors.

    A subclass looks at what it needs: :meth:`changed` is called right after each change of the store, :meth:`evicted`
    for those that begin to take a pod away, :meth:`asked` after each answer, :meth:`passed` once a second,
    :meth:`ended` when the quiet end is over, and :meth:`stopped` when all replicas were then told to end.
    """

    name: ClassVar[str]
    text: ClassVar[str]
    about: ClassVar[str] = "nodes"

    def __init__(self, world: World) -> None:
        self.world = world
        self.violations: list[Violation] = []
        self._described: set[str] = set()

    def broken(self, subject: str, what: str) -> None:
        """Note a violation; of one subject the first."""
        if subject not in self._described:
            self._described.add(subject)
            violation = Violation(self.name, subject, round(self.world.now, 3), what)
            self.violations.append(violation)
            self.world.broken(violation)

    def changed(self, change: Change, author: str) -> None:
        """Look at a change of the store by *author*."""

    def evicted(self, eviction: Eviction) -> None:
        """Look at an eviction by a controller, right after it was carried out."""

    def asked(self, request: Asked) -> None:
        """Look at a request that was answered."""

    def passed(self) -> None:
        """Look at the world; a second has passed."""

    def ended(self) -> None:
        """Look at what is left at the end of the scenario."""

    def stopped(self) -> None:
        """Look at what is left after all replicas have ended in good order."""


def ours(author: str) -> str:
    """Return the controller whose replica *author* is, empty where it is none."""
    program = author.rpartition("-")[0]
    return program if program in CONTROLLERS else ""


__all__ = ["CONTROLLERS", "Asked", "Json", "Promise", "Violation", "ours"]
