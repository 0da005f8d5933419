"""Other demands than the present one: the replicas of a peak, and requests as VPA or krr recommend them."""

from __future__ import annotations

import msgspec

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.owners import owners_of
from tightship.fit.model import Advised, Past
from tightship.objects import Pod, PodTemplate
from tightship.objects.counting import counted
from tightship.objects.resources import effective_requests, scoring_requests
from tightship.objects.times import rfc3339
from tightship.planning.demand import as_recommended


def at_peak(snapshot: Snapshot, past: Past) -> tuple[str, Snapshot, tuple[str, ...]]:
    """Return in words when the peak was, the cluster with the replicas of then, and remarks.

    The peak is when pods as they are now would have requested most, of CPU and memory as shares of what nodes offer.
    Pods of workloads that *past* doesn't know stay as they are, and are told.
    """
    known: dict[tuple[str, str, str], list[Pod]] = {}
    untold = 0
    for pod in (*(pod for view in snapshot.nodes.values() for pod in view.pods), *snapshot.unscheduled):
        if pod.daemon or pod.mirror or pod.deletion is not None:
            continue
        keys = [(pod.namespace, kind, name) for _, kind, name in owners_of(pod.template, snapshot.workloads)]
        key = next((each for each in keys if each in past.replicas), None)
        if key is None:
            untold += 1
        else:
            known.setdefault(key, []).append(pod)
    offered = {
        name: max(1, sum(view.node.allocatable.get(name, 0) for view in snapshot.nodes.values()))
        for name in ("cpu", "memory")
    }
    total: dict[float, float] = {}
    for key, pods in known.items():
        share = sum(pod.requests.get(name, 0) / whole for name, whole in offered.items() for pod in pods) / len(pods)
        for at, replicas in past.replicas[key].items():
            total[at] = total.get(at, 0.0) + share * replicas
    if not total:
        return "the peak, which is unknown", snapshot, ("no series is of a workload that runs now; pods are as now",)
    peak = max(total, key=lambda at: (total[at], at))
    dropped: set[str] = set()
    added: dict[str, list[Pod]] = {}
    for key, pods in known.items():
        wanted = past.replicas[key].get(peak, 0)
        dropped.update(pod.key for pod in pods[wanted:])
        for number in range(len(pods), wanted):
            like = pods[number % len(pods)]
            added.setdefault(like.node, []).append(msgspec.structs.replace(like, name=f"{like.name}-{number}", uid=""))
    views = {
        name: NodeView(
            view.node, (*(pod for pod in view.pods if pod.key not in dropped), *added.get(name, ())), view.usage
        )
        for name, view in snapshot.nodes.items()
    }
    waiting = (*(pod for pod in snapshot.unscheduled if pod.key not in dropped), *added.get("", ()))
    remarks = []
    if untold:
        remarks.append(f"{counted(untold, 'pod')} of workloads without a series: as many as now")
    gone = sum(found.get(peak, 0) for key, found in past.replicas.items() if key not in known)
    if gone:
        remarks.append(f"{counted(gone, 'pod')} of the peak were of workloads without a pod now: left out")
    told = f"the peak of the last {counted(past.days, 'day')}, {rfc3339(peak)}"
    return told, msgspec.structs.replace(snapshot, nodes=views, unscheduled=waiting), tuple(remarks)


def with_recommended(snapshot: Snapshot, recommended: Advised) -> tuple[str, Snapshot, tuple[str, ...]]:
    """Return in words what is assumed, the cluster whose pods request what is recommended, and remarks."""
    made: dict[PodTemplate, PodTemplate] = {}
    changed = 0

    def anew(pod: Pod) -> Pod:
        nonlocal changed
        if pod.template not in made:
            made[pod.template] = _recommended(pod, snapshot, recommended)
        template = made[pod.template]
        if template is pod.template:
            return pod
        changed += 1
        return msgspec.structs.replace(pod, template=template, requests=template.spec.requests)

    views = {
        name: NodeView(view.node, tuple(anew(pod) for pod in view.pods), view.usage)
        for name, view in snapshot.nodes.items()
    }
    waiting = tuple(anew(pod) for pod in snapshot.unscheduled)
    told = f"what runs, if you did what {recommended.file} recommends for {counted(changed, 'pod')}"
    remarks = () if changed else (f"{recommended.file} recommends nothing for any container of these pods",)
    return told, msgspec.structs.replace(snapshot, nodes=views, unscheduled=waiting), remarks


def _recommended(pod: Pod, snapshot: Snapshot, recommended: Advised) -> PodTemplate:
    spec = pod.spec
    above = [(space, kind.partition(".")[0], name) for space, kind, name in owners_of(pod.template, snapshot.workloads)]
    # The ReplicaSet of a Rollout seems to be a Deployment's if it is unread.
    above += [(space, "Rollout", name) for space, _, name in above]
    own = next((recommended.containers[each] for each in above if each in recommended.containers), {})
    containers = tuple(as_recommended(each, own) for each in spec.resources.containers)
    if containers == tuple(spec.resources.containers):
        return pod.template
    resources = msgspec.structs.replace(spec.resources, containers=containers)
    made = msgspec.structs.replace(
        spec, resources=resources, requests=effective_requests(resources), scoring=scoring_requests(resources)
    )
    return msgspec.structs.replace(pod.template, spec=made)
