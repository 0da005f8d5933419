"""Objects that say whether the pods of a group can be disrupted one by one.

PodGroups (scheduling.k8s.io, KEP-4671 and KEP-5710) and LeaderWorkerSets (leaderworkerset.x-k8s.io) say so. Where
others name groups, in labels and annotations of pods, :mod:`tightship.rules.gangs` reads them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Struct

from tightship.objects.meta import Metadata, Namespaced, Present
from tightship.objects.mistyped import part_explained
from tightship.objects.unreadable import UNREADABLE

_ALONE = frozenset({"None", "Default"})
"""Restart policies with which a LeaderWorkerSet replaces only the pod that has gone."""


class GroupRule(Namespaced, frozen=True, gc=False):
    """What one object says of the pods of its groups.

    *together* says why they can't be disrupted one by one, in the words of the object, and is empty if they can.
    *problem* says why the object is unreadable.
    """

    together: str = ""
    problem: str = ""


class _Mode(Struct, frozen=True, gc=False):
    all: Present | None = None


class _PodGroupSpec(Struct, frozen=True, gc=False, rename="camel"):
    disruption_mode: _Mode | None = None
    scheduling_constraints: Present | None = None
    parent_composite_pod_group_name: str | None = None

    @property
    def together(self) -> str:
        """Why the pods go together. The API defaults ``disruptionMode`` to ``single``."""
        if self.disruption_mode is not None and self.disruption_mode.all is not None:
            return "disruptionMode all"
        if self.parent_composite_pod_group_name:
            return f"parentCompositePodGroupName {self.parent_composite_pod_group_name}"
        return "schedulingConstraints, by which the scheduler places the group as a whole" * (
            self.scheduling_constraints is not None
        )


class PodGroupWire(Struct, frozen=True, gc=False):
    """A PodGroup on the wire: v1beta1 and v1alpha3 have the same fields here."""

    metadata: Metadata
    spec: Annotated[msgspec.Raw, _PodGroupSpec] = msgspec.Raw(b"{}")

    def rule(self) -> GroupRule:
        """Return what the PodGroup says. A bad spec is a problem of the object, which concerns its pods alone."""
        return _ruled(self.metadata, self.spec, _pod_groups)


class _LeaderWorkerTemplate(Struct, frozen=True, gc=False, rename="camel"):
    restart_policy: str = "RecreateGroupOnPodRestart"


class _LeaderWorkerSetSpec(Struct, frozen=True, gc=False, rename="camel"):
    leader_worker_template: _LeaderWorkerTemplate = _LeaderWorkerTemplate()

    @property
    def together(self) -> str:
        """Why the pods of a group go together."""
        policy = self.leader_worker_template.restart_policy
        return "" if policy in _ALONE else f"restartPolicy {policy}"


class LeaderWorkerSetWire(Struct, frozen=True, gc=False):
    """A LeaderWorkerSet on the wire."""

    metadata: Metadata
    spec: Annotated[msgspec.Raw, _LeaderWorkerSetSpec] = msgspec.Raw(b"{}")

    def rule(self) -> GroupRule:
        """Return what the LeaderWorkerSet says; like :meth:`PodGroupWire.rule`."""
        return _ruled(self.metadata, self.spec, _leader_worker_sets)


_pod_groups = msgspec.json.Decoder(_PodGroupSpec)
_leader_worker_sets = msgspec.json.Decoder(_LeaderWorkerSetSpec)


def _ruled(
    meta: Metadata,
    spec: msgspec.Raw,
    decoder: msgspec.json.Decoder[_PodGroupSpec] | msgspec.json.Decoder[_LeaderWorkerSetSpec],
) -> GroupRule:
    try:
        return GroupRule(meta.namespace, meta.name, decoder.decode(spec).together)
    except UNREADABLE as error:
        return GroupRule(meta.namespace, meta.name, problem=part_explained("spec", spec, error))
