"""What a controller of nodes decides in one pass, as far as those need it who carry it out and show it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tightship.cluster import Snapshot
from tightship.consolidation.steering import Steering
from tightship.drain.claims import Claim
from tightship.drain.writing import NodePatch
from tightship.plan import Plan
from tightship.reasons import Refusal
from tightship.report import SettingsView
from tightship.report.inputs import Facts


class NodeFacts(Facts, Protocol):
    """What a controller knows of one node before a plan."""

    @property
    def draining(self) -> bool:
        """Whether the node is in drain, by whatever tool of ours."""


class NodeNote(Protocol):
    """Something to write on a node besides drains, such as a mark: against the version of the node that was judged."""

    @property
    def node(self) -> str: ...
    @property
    def patch(self) -> NodePatch: ...


class Decision(Protocol):
    """What to do with *snapshot* at *now* (seconds since 1970).

    The *plan* is the direction; *held* says of its nodes which have to wait, *unhealthy* why all of them have to.
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
        """The settings it was made by, for people and as plain data."""

    def room(self, node: str, claims: Sequence[Claim]) -> Refusal | None:
        """Return why *node* may not be claimed beside *claims*, all of the cluster at that moment; ``None`` if it may.

        Must be free of side effects: it is asked anew for each try to write the claim.
        """


__all__ = ["Decision", "NodeFacts", "NodeNote"]
