"""The interface of a controller of nodes: its judgement, and what it reports in addition to the common parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry

from tightship.app.runtime.serving import Configuration
from tightship.app.settings.sections import NodeKeys
from tightship.core.drain_record import Finished
from tightship.core.objects import Node
from tightship.core.reasons import Refusal
from tightship.drain.events import DrainEvent
from tightship.drain_io.drain_task import DrainSettings
from tightship.nodes.decision import Decision
from tightship.nodes.status import Remarks
from tightship.planning.cluster import Snapshot
from tightship.planning.demand import Ahead
from tightship.report import Generator

S = TypeVar("S", bound=NodeKeys)
S_contra = TypeVar("S_contra", contravariant=True)
D = TypeVar("D", bound=Decision)
D_co = TypeVar("D_co", bound=Decision, covariant=True)
D_contra = TypeVar("D_contra", contravariant=True)


class Decide(Protocol[S_contra, D_co]):
    """The judgement: pure, and called in a thread."""

    def __call__(
        self,
        snapshot: Snapshot,
        settings: S_contra,
        now: float,
        /,
        *,
        finished: Sequence[Finished],
        regrets: Mapping[str, Refusal],
        unhealthy: Refusal | None,
    ) -> D_co:
        """Judge every node of *snapshot*.

        *finished* are the recent drains of all controllers. *regrets* say by pool why recent results forbid draining
        it. Only the leader knows both. *unhealthy* is the health brake's refusal, under which nothing is claimed;
        ``None`` while the cluster is healthy.
        """


class OwnMetrics(Protocol[D_contra]):
    """The metrics that only one controller has. Not thread-safe."""

    def update(self, decision: D_contra, /) -> None:
        """Replace everything by the results of the last pass."""

    def news(self, news: DrainEvent, /) -> None:
        """Count what a drain reports."""


class _NoMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        del registry

    def update(self, decision: object, /) -> None:
        """Tell nothing."""

    def news(self, news: DrainEvent, /) -> None:
        """Tell nothing."""


def _no_remarks(decision: object) -> Remarks:
    del decision
    return Remarks()


class NodeController(Struct, Generic[S, D], frozen=True, kw_only=True):
    """A controller of nodes with settings *S* and decisions *D*.

    *program* is its name and version, *kind* that of its status. *ahead* says for which demand without pods to keep
    room; HPAs and CapacityBuffers are read only if *ahead* covers them. *metrics* registers the metrics that only this
    controller has. *remarks* are its additions to the page.
    """

    program: Generator
    kind: str
    configuration: Configuration[S]
    decide: Decide[S, D]
    drain_settings: Callable[[S], DrainSettings]
    ahead: Callable[[S], Ahead]
    pool_of: Callable[[Node, S], str]
    metrics: Callable[[CollectorRegistry], OwnMetrics[D]] = _NoMetrics
    remarks: Callable[[D], Remarks] = _no_remarks


__all__ = ["Decide", "NodeController", "OwnMetrics"]
