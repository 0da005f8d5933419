"""Nodes."""

from __future__ import annotations

from msgspec import Struct

from tightship.core import resources
from tightship.core.objects.meta import EMPTY, ManagedFields, Metadata, seconds
from tightship.core.resources import Resources
from tightship.core.selectors import Labels, Taint


class Node(Struct, frozen=True, gc=False):
    """A node, reduced to what decisions need.

    *allocatable* holds amounts as in :mod:`tightship.core.resources`; *created* and *deletion* are seconds since 1970.
    *ready* says whether the ``Ready`` condition is ``True``. *cordoned_by* are the field managers to whom the API
    server attributes ``spec.unschedulable``: whoever last changed the field, and whoever applies it. It is empty if
    the object names none, as in the output of ``kubectl get``.
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


class Condition(Struct, frozen=True, gc=False):
    """A status condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Spec(Struct, frozen=True, gc=False):
    taints: tuple[Taint, ...] | None = None
    unschedulable: bool = False


class _Status(Struct, frozen=True, gc=False):
    allocatable: dict[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None


class _Metadata(Metadata, frozen=True, rename="camel", gc=False):
    managed_fields: tuple[ManagedFields, ...] | None = None


class NodeWire(Struct, frozen=True, gc=False):
    """A node on the wire."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def node(self) -> Node:
        """Return the node. Raises :class:`~tightship.core.quantity.QuantityError` for a bad allocatable amount."""
        meta = self.metadata
        return Node(
            name=meta.name,
            uid=meta.uid,
            labels=meta.labels or EMPTY,
            annotations=meta.kept_annotations,
            taints=self.spec.taints or (),
            unschedulable=self.spec.unschedulable,
            allocatable=resources.parse(self.status.allocatable),
            ready=any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ()),
            created=meta.created,
            deletion=seconds(meta.deletion_timestamp),
            resource_version=meta.resource_version,
            cordoned_by=tuple(each.manager for each in meta.managed_fields or () if each.sets("unschedulable"))
            if self.spec.unschedulable
            else (),
        )
