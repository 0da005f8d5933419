"""Nodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tightship.objects import resources
from tightship.objects.meta import EMPTY, ManagedFields, Metadata, seconds
from tightship.objects.resources import Resources
from tightship.objects.selectors import Labels, Taint


class Condition(Struct, frozen=True, gc=False):
    """A status condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


CORDON = "node.kubernetes.io/unschedulable"
"""The key of the taint as which kube-scheduler treats a cordon."""

LEAVING = "tightship.dev/leaving"
"""The label of a node that a plan removes; its value says whose plan. Replacements of evicted pods keep off it."""

MAINTENANCE_PLANNED = "MaintenancePlanned"
DRAIN_IN_PROGRESS = "DrainInProgress"
SHUTDOWN_IN_PROGRESS = "GracefulNodeShutdownInProgress"
SCHEDULED = frozenset({"PreemptScheduled", "TerminateScheduled", "RedeployScheduled", "RebootScheduled"})
"""Conditions by which AKS tells that Azure takes or restarts the machine in minutes (docs, "Node auto-drain"). A freeze
(``FreezeScheduled``) lasts seconds and moves nothing."""
LIFECYCLE = SCHEDULED | {
    MAINTENANCE_PLANNED,
    DRAIN_IN_PROGRESS,
    SHUTDOWN_IN_PROGRESS,
    "Drained",
    "MaintenanceInProgress",
}
"""The types of the lifecycle conditions of KEP-5683, which administrators and their tools set, and those above."""


class Node(Struct, frozen=True, gc=False):
    """A node, reduced to what decisions need.

    *allocatable* holds amounts as in ``tightship.objects.resources``; *created* and *deletion* are seconds since 1970.
    *ready* says whether the ``Ready`` condition is ``True``. *cordoned_by* are the field managers to whom the API
    server attributes ``spec.unschedulable``: whoever last changed the field, and whoever applies it. It is empty if
    the object names none, as in the output of ``kubectl get``. *cordoned_at* and *unready_at* are since when the node
    has been cordoned and not Ready, as far as it says. *lifecycle* are the lifecycle conditions that are
    ``True``, *features* what the kubelet declares to be able to do (KEP-5328). *leaving* is the value of the label
    :data:`LEAVING`, which is not among *labels*: it comes and goes with a plan, and must change none.
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
    cordoned_at: int | None = None
    unready_at: int | None = None
    lifecycle: tuple[Condition, ...] = ()
    features: tuple[str, ...] = ()
    leaving: str | None = None

    @property
    def maintenance_planned(self) -> bool:
        """Whether maintenance of the node is planned, so that its pods should leave and none should come."""
        return any(each.type == MAINTENANCE_PLANNED for each in self.lifecycle)


class _Taint(Taint, frozen=True, rename="camel", gc=False):
    time_added: datetime | None = None


class _Condition(Condition, frozen=True, rename="camel", gc=False):
    last_transition_time: datetime | None = None


class _Spec(Struct, frozen=True, gc=False):
    taints: tuple[_Taint, ...] | None = None
    unschedulable: bool = False


class _Status(Struct, frozen=True, rename="camel", gc=False):
    allocatable: dict[str, str] | None = None
    conditions: tuple[_Condition, ...] | None = None
    declared_features: tuple[str, ...] | None = None


class _Metadata(Metadata, frozen=True, rename="camel", gc=False):
    managed_fields: tuple[ManagedFields, ...] | None = None


class NodeWire(Struct, frozen=True, gc=False):
    """A node on the wire."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def node(self) -> Node:
        """Return the node. Raises :class:`~tightship.objects.quantity.QuantityError` for a bad allocatable amount."""
        meta, conditions, taints = self.metadata, self.status.conditions or (), self.spec.taints or ()
        cordons = [each for each in meta.managed_fields or () if each.sets("unschedulable")]
        cordons = cordons if self.spec.unschedulable else []
        labels = meta.labels or EMPTY
        unready = [each.last_transition_time for each in conditions if each.type == "Ready" and each.status != "True"]
        return Node(
            name=meta.name,
            uid=meta.uid,
            labels={key: text for key, text in labels.items() if key != LEAVING} if LEAVING in labels else labels,
            annotations=meta.kept_annotations,
            taints=tuple(Taint(each.key, each.effect, each.value) for each in taints),
            unschedulable=self.spec.unschedulable,
            allocatable=resources.parse(self.status.allocatable),
            ready=any(each.type == "Ready" and each.status == "True" for each in conditions),
            created=meta.created,
            deletion=seconds(meta.deletion_timestamp),
            resource_version=meta.resource_version,
            cordoned_by=tuple(each.manager for each in cordons),
            cordoned_at=_cordoned_at(cordons, taints) if self.spec.unschedulable else None,
            unready_at=seconds(unready[0]) if unready else None,
            lifecycle=tuple(
                Condition(each.type, each.status, each.reason, each.message)
                for each in conditions
                if each.status == "True" and each.type in LIFECYCLE
            ),
            features=self.status.declared_features or (),
            leaving=labels.get(LEAVING),
        )


def _cordoned_at(owners: Sequence[ManagedFields], taints: Sequence[_Taint]) -> int | None:
    """Return when a cordoned node was cordoned, in seconds since 1970, ``None`` if nothing tells.

    The time of the field's owner may be later, because each change of another field that it owns renews the time. So
    the taint counts too, which the node lifecycle controller adds to a cordoned node, with the time
    (``SwapNodeControllerTaint`` in pkg/controller/util/node). ``kubectl get`` prints the taint, but no field's owner.
    """
    owned = max((each.time for each in owners if each.time is not None), default=None)
    tainted = next((each.time_added for each in taints if each.key == CORDON), None)
    return seconds(min((each for each in (owned, tainted) if each is not None), default=None))
