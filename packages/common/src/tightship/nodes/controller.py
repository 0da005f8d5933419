"""The contents of a controller of nodes: its judge, and its additions to the common metrics, notes and pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry

from tightship.cluster.installations import EVERY_OTHER
from tightship.documents.document import Generator, SettingsView
from tightship.drain.events import DrainEvent
from tightship.draining.tools import DrainSettings, NodeRefusals
from tightship.draining.writing import NodePatch
from tightship.nodes.status import Remarks
from tightship.objects import Node
from tightship.objects.money import NodePrice
from tightship.objects.reasons import Refusal
from tightship.planning.changes import Tunable
from tightship.planning.evaluate import Evaluation, ExplainedGates, Facts, Judge
from tightship.process.serving import Configuration
from tightship.process.settings.sections import NodeSettings

S = TypeVar("S", bound=NodeSettings)
G = TypeVar("G", bound=ExplainedGates)
G_contra = TypeVar("G_contra", bound=ExplainedGates, contravariant=True)
G_co = TypeVar("G_co", bound=ExplainedGates, covariant=True)


class ClaimJudge(Judge[G_co], Protocol[G_co]):
    """A judge that every claim consults too."""

    def room(self, node: str, facts: Facts, claimed: Collection[str]) -> Refusal | None:
        """Return why *node* may not be claimed beside *claimed*, all claimed nodes of the cluster; ``None`` if it may.

        *facts* belong to the latest snapshot. The method must be free of side effects: each attempt to write the claim
        calls it again.
        """


class NodeNote(Protocol):
    """A write to a node that is not a drain, such as a mark, against the version of the node that was judged."""

    @property
    def node(self) -> str: ...
    @property
    def patch(self) -> NodePatch: ...


class OwnMetrics(Protocol[G_contra]):
    """The metrics that only one controller has. Not thread-safe."""

    def update(self, evaluation: Evaluation[G_contra], /) -> None:
        """Replace everything by the results of the last pass."""

    def news(self, news: DrainEvent, /) -> None:
        """Count what a drain reports."""


class NodeController(Struct, Generic[S, G], frozen=True, kw_only=True):
    """A controller of nodes with settings *S* and gates *G*.

    *program* is its name and version, *kind* the kind of its status. *pools* says by name which pools it drains, as
    :class:`tightship.cluster.installations.Installation` does. *judge* makes a judge of settings, *describe* renders
    settings for people. *metrics* registers the metrics that only this controller has. *notes* returns its writes to
    nodes that are not drains, *remarks* its additions to the page. *search* is how many seconds to search for a better
    plan. *for_dry_run* returns the settings that a dry run judges by, and what to say of that, if anything. *tunable*
    returns the changes of its settings that advice on the page may name.
    """

    program: Generator
    kind: str
    configuration: Configuration[S]
    judge: Callable[[S], ClaimJudge[G]]
    describe: Callable[[S], SettingsView]
    drain_settings: Callable[[S], DrainSettings]
    pool_of: Callable[[Node, S], str]
    price_of: Callable[[Node, S], NodePrice | None]
    metrics: Callable[[CollectorRegistry], OwnMetrics[Any]]
    pools: Callable[[S], Mapping[str, bool]] = lambda _: {EVERY_OTHER: True}
    notes: Callable[[Evaluation[G], S], Sequence[NodeNote]] = lambda *_: ()
    remarks: Callable[[Evaluation[G], S], Remarks] = lambda *_: Remarks()
    search: Callable[[S], float] = lambda _: 0.0
    for_dry_run: Callable[[S], tuple[S, str]] = lambda settings: (settings, "")
    tunable: Callable[[S], Tunable] | None = None


def drain_settings(settings: NodeSettings, node_refusals: NodeRefusals) -> DrainSettings:
    """Return the settings of drains under *settings*: drains share the rules of the plan before them.

    *node_refusals* returns the refusals that keep a node of a snapshot as a whole.
    """
    return DrainSettings(
        rules=settings.drain_rules,
        eviction=settings.eviction_rules,
        placement=settings.placement,
        ahead=settings.ahead,
        node_refusals=node_refusals,
    )
