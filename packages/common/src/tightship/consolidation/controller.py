"""What a controller of nodes is, besides what all of them are: its judgement, and what it tells on top."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry

from tightship.cluster import Snapshot
from tightship.consolidation.decision import Decision
from tightship.consolidation.status import Remarks
from tightship.drain.driving import DrainSettings
from tightship.drain_record import Finished
from tightship.objects import Node
from tightship.reasons import Refusal
from tightship.report import Generator
from tightship.runtime.serving import Configuration
from tightship.settings.sections import HealthKeys

S = TypeVar("S", bound=HealthKeys)
S_contra = TypeVar("S_contra", contravariant=True)
D = TypeVar("D", bound=Decision)
D_co = TypeVar("D_co", bound=Decision, covariant=True)


class Decide(Protocol[S_contra, D_co]):
    """The judgement: pure, and made in a thread."""

    def __call__(
        self,
        snapshot: Snapshot,
        settings: S_contra,
        now: float,
        /,
        *,
        finished: Sequence[Finished],
        unhealthy: Refusal | None,
    ) -> D_co:
        """Judge every node of *snapshot*.

        *finished* are drains that ended lately, of all controllers; they are known to the leader only. *unhealthy* is
        the health brake's refusal, ``None`` while the cluster is well: nothing is claimed under it.
        """


def _no_metrics(registry: CollectorRegistry) -> Callable[[object], None]:
    del registry
    return lambda _: None


def _no_remarks(decision: object) -> Remarks:
    del decision
    return Remarks()


class NodeController(Struct, Generic[S, D], frozen=True, kw_only=True):
    """A controller of nodes with settings *S* and decisions *D*.

    *program* is its name and version, *kind* that of its status. *metrics* registers those that only it has, and
    returns what tells them of a decision. *remarks* are what it adds to the page.
    """

    program: Generator
    kind: str
    configuration: Configuration[S]
    decide: Decide[S, D]
    drain_settings: Callable[[S], DrainSettings]
    pool_of: Callable[[Node, S], str]
    metrics: Callable[[CollectorRegistry], Callable[[D], None]] = _no_metrics
    remarks: Callable[[D], Remarks] = _no_remarks


__all__ = ["Decide", "NodeController"]
