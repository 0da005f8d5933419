"""When the last rollout of a workload ended, as the objects tell that controllers of nodes read anyway. Pure.

No right on Deployments or ControllerRevisions is needed:

* A ReplicaSet shows in ``managedFields`` when its Deployment (or Argo Rollout) emptied it: that is the last write to an
  old one (``scaleReplicaSet`` in pkg/controller/deployment/sync.go). The end is the latest such time, or the creation
  of a newer one. While two want replicas, the rollout is under way.
* A StatefulSet replaces its pods from the highest ordinal down (``updateStatefulSet`` in
  pkg/controller/statefulset/stateful_set_control.go). The end is the creation of the lowest pod with the revision of
  the highest. If that very pod is moved later, it counts again.

kubectl prints no ``managedFields``: in its files only the creation of ReplicaSets counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from tightship.cluster import Snapshot
from tightship.objects import Pod, Workload
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import format_duration
from tightship.rules.windows import Windows

REVISION = "controller-revision-hash"
"""The label of a StatefulSet's pods with its revision (apps/v1 ``ControllerRevisionHashLabelKey``)."""


class Rollouts:
    """The rollouts of the workloads of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def refusal(self, windows: Iterable[Windows], node: str, now: float) -> Refusal | None:
        """Return why *windows* let *node* wait at *now*: the pod whose rollout ended last, ``None`` without any."""
        rest = max((each.not_before for each in windows), default=0.0)
        view = self._snapshot.nodes.get(node)
        if not rest or view is None:
            return None
        ends = {pod.owner.uid: (self._end(pod, now), pod) for pod in view.pods if pod.owner and pod.deletion is None}
        end, pod = max(ends.values(), key=lambda each: each[0], default=(0.0, None))
        if pod is None or now - end >= rest:
            return None
        what = f"the workload of {pod.key} "
        what += "is rolling out" if end >= now else f"ended a rollout {format_duration(now - end)} ago"
        detail = f"{what}; its pods move no earlier than {format_duration(rest)} after a rollout (notBefore)"
        return Refusal(Reason.OUTSIDE_WINDOW, node, detail, f"wait {format_duration(end + rest - now)}")

    def _end(self, pod: Pod, now: float) -> float:
        """Return when the last rollout of *pod*'s workload ended, *now* while one is under way, 0 without any."""
        owner = pod.owner
        assert owner is not None
        if owner.kind == "StatefulSet":
            ordered = sorted((_ordinal(each), each) for each in self._of_sets[owner.uid])
            newest = ordered[-1][1].template.labels.get(REVISION)
            return next(each.created for _, each in ordered if each.template.labels.get(REVISION) == newest)
        known = self._snapshot.workloads.get(owner.kind, {}).get(f"{pod.namespace}/{owner.name}")
        if known is None or known.owner is None or owner.kind != "ReplicaSet":
            return 0.0
        together = self._replica_sets[known.owner.uid]
        if sum(each.replicas != 0 for each in together) > 1:
            return now
        return max(each.since for each in together)

    @cached_property
    def _replica_sets(self) -> dict[str, list[Workload]]:
        found: defaultdict[str, list[Workload]] = defaultdict(list)
        for each in self._snapshot.workloads.get("ReplicaSet", {}).values():
            if each.owner is not None:
                found[each.owner.uid].append(each)
        return found

    @cached_property
    def _of_sets(self) -> dict[str, list[Pod]]:
        found: defaultdict[str, list[Pod]] = defaultdict(list)
        pods = (pod for view in self._snapshot.nodes.values() for pod in view.pods)
        for pod in (*self._snapshot.unscheduled, *pods):
            if pod.owner is not None and pod.owner.kind == "StatefulSet":
                found[pod.owner.uid].append(pod)
        return found


def _ordinal(pod: Pod) -> int:
    number = pod.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
