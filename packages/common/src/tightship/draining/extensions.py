"""What annexes add to the draining of nodes. Without one, the classes here stand in for it and do nothing.

``landing`` leads the replacements of evicted pods to nodes, and ``deletion_costs`` has workloads shrink on the nodes
that go next. Soft taints need neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.objects import Pod
from tightship.objects.reasons import Refusal


class Landed(StrEnum):
    """Where a replacement landed; the value is the metric label."""

    TARGET = "target"
    ELSEWHERE = "elsewhere"
    UNSCHEDULED = "unscheduled"


class LandingFigures(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What became of the replacements that this process has led, in *mode*. *expected* have not been seen yet.

    *problem* says why only soft taints steer.
    """

    mode: str
    problem: str = ""
    expected: int = 0
    target: int = 0
    elsewhere: int = 0
    unscheduled: int = 0

    @property
    def landed(self) -> int:
        """How many replacements have been led."""
        return self.target + self.elsewhere + self.unscheduled


class Guide:
    """Leads the replacements of evicted pods to the nodes that a plan chose."""

    order: Sequence[str] = ()
    """The nodes that the plan removes, in its order."""

    @property
    def available(self) -> bool:
        """Whether evicted pods are led now."""
        return False

    @property
    def labels(self) -> bool | None:
        """Whether nodes that leave carry the label now; ``None`` if those that do should keep it for a while."""
        return False

    @property
    def problems(self) -> tuple[str, ...]:
        """Whole sentences about what is wrong."""
        return ()

    @property
    def stray(self) -> bool:
        """Whether a dry run whose installation gives back what it left may have something to remove."""
        return False

    @property
    def unfinished(self) -> bool:
        """Whether this replica has something left that it keeps trying to remove."""
        return False

    def figures(self) -> LandingFigures | None:
        """Return the state to show, ``None`` unless the settings ask for one."""
        return None

    def targets(self) -> Mapping[str, str]:
        """Return where pods should land, by uid: pods in eviction, and replacements on their way."""
        return {}

    def held(self) -> frozenset[str]:
        """Return the nodes that stay for a while, because a pod needed them."""
        return frozenset()

    def refusal(self, node: str) -> Refusal | None:
        """Return why *node* of the plan is not drained now, if a pod that was led found no node."""
        del node
        return None

    async def look(self) -> None:
        """Find out whether pods can be led, as every pass of a leader begins. Never raises."""

    def later(self, moves: Sequence[tuple[Pod, str]]) -> Collection[str]:
        """Return the uids of the pods of *moves* (pod, target) that should be evicted after others."""
        del moves
        return ()

    async def expect(self, moves: Sequence[tuple[Pod, str]]) -> None:
        """Prepare for the evictions of *moves* (pod, target). Never raises, and takes a few seconds at most."""

    def answered(self, pod: str, *, going: bool) -> None:
        """Note whether the eviction of *pod* (a uid) was granted, or may have been."""

    async def run(self) -> None:
        """Do what is to be done beside the passes, until cancelled."""

    async def close(self) -> None:
        """Lead no pod any more, and leave nothing behind: this replica stops."""


class PodCosts:
    """Has workloads shrink on the nodes that go next: by costs on their pods."""

    refused = ""
    """A sentence about what can't be written, for people."""

    def choose(
        self, snapshot: Snapshot, planned: Sequence[str], going: Sequence[str], timeout: float, now: float
    ) -> Mapping[str, Refusal]:
        """Choose pods on the nodes *going*, the next ones first, for :meth:`write`.

        Return why nodes of *planned* wait at *now*: for at most *timeout* seconds without a pod that leaves by itself.
        """
        del snapshot, planned, going, timeout, now
        return {}

    async def write(self, snapshot: Snapshot, allowed: Callable[[], bool]) -> None:
        """Have the chosen pods carry costs, and no others. Raises :class:`~tightship.objects.api_errors.KubeError`."""

    async def clear(self, snapshot: Snapshot, allowed: Callable[[], bool]) -> None:
        """Remove all costs of the controller. Raises :class:`~tightship.objects.api_errors.KubeError`."""

    def left(self, snapshot: Snapshot) -> bool:
        """Whether a pod carries, or may carry, a cost that can be removed."""
        del snapshot
        return False
