"""Nodes."""

from __future__ import annotations

from msgspec import Struct

from tightship.core import resources
from tightship.core.objects.meta import EMPTY, ManagedFields, Metadata, seconds
from tightship.core.resources import Resources
from tightship.core.selectors import Labels, Taint


class Condition(Struct, frozen=True, gc=False):
    """A status condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


MAINTENANCE_PLANNED = "MaintenancePlanned"
DRAIN_IN_PROGRESS = "DrainInProgress"
SHUTDOWN_IN_PROGRESS = "GracefulNodeShutdownInProgress"
LIFECYCLE = frozenset(
    {MAINTENANCE_PLANNED, DRAIN_IN_PROGRESS, SHUTDOWN_IN_PROGRESS, "Drained", "MaintenanceInProgress"}
)
"""The types of the lifecycle conditions of KEP-5683, which administrators and their tools set."""


class Node(Struct, frozen=True, gc=False):
    """A node, reduced to what decisions need.

    *allocatable* holds amounts as in :mod:`tightship.core.resources`; *created* and *deletion* are seconds since 1970.
    *ready* says whether the ``Ready`` condition is ``True``. *cordoned_by* are the field managers to whom the API
    server attributes ``spec.unschedulable``: whoever last changed the field, and whoever applies it. It is empty if
    the object names none, as in the output of ``kubectl get``. *lifecycle* are the lifecycle conditions that are
    ``True``, *features* what the kubelet declares to be able to do (KEP-5328).
    """

    name: str
    uid: str
    labels: Labels
    annotations: Labels
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Resources
    ready: bool
    created: int
    deletion: int | None
    resource_version: str
    cordoned_by: tuple[str, ...] = ()
    lifecycle: tuple[Condition, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def maintenance_planned(self) -> bool:
        """Whether maintenance of the node is planned, so that its pods should leave and none should come."""
        return any(each.type == MAINTENANCE_PLANNED for each in self.lifecycle)


class _Spec(Struct, frozen=True, gc=False):
    taints: tuple[Taint, ...] | None = None
    unschedulable: bool = False


class _Status(Struct, frozen=True, rename="camel", gc=False):
    allocatable: dict[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None
    declared_features: tuple[str, ...] | None = None


class _Metadata(Metadata, frozen=True, rename="camel", gc=False):
    managed_fields: tuple[ManagedFields, ...] | None = None


class NodeWire(Struct, frozen=True, gc=False):
    """A node on the wire."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def node(self) -> Node:
        """Return the node. Raises :class:`~tightship.core.quantity.QuantityError` for a bad allocatable amount."""
        meta, conditions = self.metadata, self.status.conditions or ()
        return Node(
            name=meta.name,
            uid=meta.uid,
            labels=meta.labels or EMPTY,
            annotations=meta.kept_annotations,
            taints=self.spec.taints or (),
            unschedulable=self.spec.unschedulable,
            allocatable=resources.parse(self.status.allocatable),
            ready=any(each.type == "Ready" and each.status == "True" for each in conditions),
            created=meta.created,
            deletion=seconds(meta.deletion_timestamp),
            resource_version=meta.resource_version,
            cordoned_by=tuple(each.manager for each in meta.managed_fields or () if each.sets("unschedulable"))
            if self.spec.unschedulable
            else (),
            lifecycle=tuple(each for each in conditions if each.status == "True" and each.type in LIFECYCLE),
            features=self.status.declared_features or (),
        )
