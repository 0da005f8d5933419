"""Another demand than the present one: requests as VPA or krr recommend them."""

from __future__ import annotations

import msgspec

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.owners import owners_of
from tightship.fit.model import Recommended
from tightship.objects import Pod, PodTemplate
from tightship.objects.counting import counted
from tightship.objects.resources import ResourceRequirements, effective_requests, scoring_requests


def workload(snapshot: Snapshot, pod: Pod) -> str:
    """Return the name of the topmost controller of *pod*, or its own."""
    above = owners_of(pod.template, snapshot.workloads)
    return above[-1][2] if above else pod.name


def with_recommended(snapshot: Snapshot, recommended: Recommended) -> tuple[str, Snapshot, tuple[str, ...]]:
    """Return in words what is assumed, the cluster whose pods request what is recommended, and remarks."""
    made: dict[PodTemplate, PodTemplate] = {}
    changed = 0

    def anew(pod: Pod) -> Pod:
        nonlocal changed
        if pod.template not in made:
            made[pod.template] = _recommended(pod, workload(snapshot, pod), recommended)
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


def _recommended(pod: Pod, name: str, recommended: Recommended) -> PodTemplate:
    spec = pod.spec
    containers = []
    for container in spec.resources.containers:
        wanted = recommended.requests.get((pod.namespace, name, container.name))
        if wanted:
            own = container.resources or ResourceRequirements()
            requests = {**(own.requests or {}), **wanted}
            containers.append(msgspec.structs.replace(container, resources=ResourceRequirements(requests, own.limits)))
        else:
            containers.append(container)
    if tuple(containers) == tuple(spec.resources.containers):
        return pod.template
    resources = msgspec.structs.replace(spec.resources, containers=tuple(containers))
    made = msgspec.structs.replace(
        spec, resources=resources, requests=effective_requests(resources), scoring=scoring_requests(resources)
    )
    return msgspec.structs.replace(pod.template, spec=made)
