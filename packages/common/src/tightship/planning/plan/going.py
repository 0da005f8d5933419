"""Which nodes are about to go. A pod that lands on one of them has to move again, so other nodes come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from tightship.core.selectors import Taint
from tightship.planning.placement.space import Space
from tightship.planning.plan.model import Placement

CANDIDATE = "tightship.dev/candidate"
"""The key of the soft taint on nodes that go next; its value is the controller, a dot, and whose installation's."""


class SteeringRules(Struct, frozen=True):
    """How a running controller keeps pods off the nodes that go next: by *taint*, on the first *most* of the plan."""

    taint: Taint
    most: int


class Going(Struct, frozen=True):
    """The nodes that go by what is known of a plan before it is made, in their order.

    Where the plan chooses places, all of them come last. Otherwise kube-scheduler chooses, and *steering* tells it of
    the next ones; without *steering*, it does not know. *untried* says that nothing is known yet: every candidate may
    go until its attempt fails. *targets* are the nodes where pods, by ``namespace/name``, end up by the same knowledge;
    they count only where the plan chooses places.
    """

    names: Sequence[str] = ()
    steering: SteeringRules | None = None
    untried: bool = False
    targets: Mapping[str, str] = {}

    def begin(self, space: Space, placement: Placement) -> Steered:
        """Return these nodes as *space* shows them, with nothing planned."""
        return Steered(self, space, placement)


class Steered:
    """The nodes that pods should avoid, kept up to date in a space while a plan grows."""

    def __init__(self, going: Going, space: Space, placement: Placement) -> None:
        self._order = [space.index[name] for name in going.names if name in space.index]
        self._shown = len(self._order)
        self._done: set[int] = set()
        self._untried = going.untried
        self._space = space
        space.leaving, space.leaving_taint = None, None
        if placement != "possible":
            if going.steering is None:
                return
            space.leaving_taint, self._shown = going.steering.taint, going.steering.most
        space.leaving = np.zeros(len(space.names), dtype=np.bool_)
        space.leaving[self._order[: self._shown]] = True

    def gone(self, node: int) -> None:
        """Avoid the next node in place of *node*, which is planned now."""
        leaving = self._space.leaving
        if leaving is None:
            return
        self._done.add(node)
        if leaving[node]:
            leaving[node] = False
            while self._shown < len(self._order):
                following = self._order[self._shown]
                self._shown += 1
                if following not in self._done:
                    leaving[following] = True
                    break

    def stays(self, node: int) -> None:
        """Know that *node* stays, since it could not go."""
        if self._untried and self._space.leaving is not None:
            self._space.leaving[node] = False
