"""The decision of a controller of nodes in one pass, as far as the code that executes and shows it needs it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tightship.core.reasons import Refusal
from tightship.drain_io.claims import Claim
from tightship.drain_io.writing import NodePatch
from tightship.nodes.soft_taints import Steering
from tightship.planning.cluster import Snapshot
from tightship.planning.plan import Plan
from tightship.report import SettingsView
from tightship.report.inputs import Facts


class NodeFacts(Facts, Protocol):
    """What a controller knows of one node before a plan."""

    @property
    def draining(self) -> bool:
        """Whether the node is in drain, by any of our tools."""


class NodeNote(Protocol):
    """A write to a node that is not a drain, such as a mark: against the version of the node that was judged."""

    @property
    def node(self) -> str: ...
    @property
    def patch(self) -> NodePatch: ...


class Decision(Protocol):
    """The decision for *snapshot* at *now* (seconds since 1970).

    The *plan* is the direction; *held* says which of its nodes have to wait and why, *unhealthy* why all of them do.
    """

    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def now(self) -> float: ...
    @property
    def facts(self) -> Mapping[str, NodeFacts]: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def held(self) -> Mapping[str, Refusal]: ...
    @property
    def unhealthy(self) -> Refusal | None: ...
    @property
    def steering(self) -> Steering: ...
    @property
    def notes(self) -> Sequence[NodeNote]: ...
    @property
    def settings_view(self) -> SettingsView:
        """The settings behind the decision, for people and as plain data."""

    def room(self, node: str, claims: Sequence[Claim]) -> Refusal | None:
        """Return why *node* may not be claimed beside *claims*, which are all of the cluster; ``None`` if it may.

        Must be free of side effects: each try to write the claim calls it again.
        """


__all__ = ["Decision", "NodeFacts", "NodeNote"]
