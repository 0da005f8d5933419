"""Nodes."""

from __future__ import annotations

from msgspec import Struct

from tightship import resources
from tightship.objects.meta import EMPTY, Metadata, seconds
from tightship.resources import Resources
from tightship.selectors import Labels, Taint


class Node(Struct, frozen=True, gc=False):
    """A node as the judgement sees it.

    *allocatable* holds amounts as in :mod:`tightship.resources`; *created* and *deletion* are seconds since 1970.
    *ready* is the ``Ready`` condition being ``True``.
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


class NodeWire(Struct, frozen=True, gc=False):
    """A node on the wire."""

    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def node(self) -> Node:
        """Return the judged form. Raises :class:`~tightship.quantity.QuantityError` for a bad allocatable amount."""
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
        )
