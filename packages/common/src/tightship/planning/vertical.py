"""What pods will request once they are made anew: VerticalPodAutoscalers change their requests at admission. Pure.

A replacement gets the recommendation within the bounds of its VPA's policy, and of its own limits where the VPA changes
only requests (``Apply`` in vertical-pod-autoscaler/pkg/utils/vpa/capping.go). LimitRanges and start-up boosts are left
out. Of several VPAs of a target the oldest counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tightship.cluster import Anew, Snapshot
from tightship.cluster.owners import owners_of
from tightship.objects import Pod, PodSpec, PodTemplate, VerticalPodAutoscaler
from tightship.objects.quantity import QuantityError, nano
from tightship.objects.resources import Container, ResourceRequirements, effective_requests, scoring_requests
from tightship.objects.vertical import Recommended


def with_recommendations(snapshot: Snapshot, wanted: bool = True) -> Snapshot:
    """Return *snapshot* with what VPAs will change in the pods that are made anew, if that is *wanted*."""
    if not wanted or not snapshot.vertical:
        return snapshot
    known: dict[tuple[str, str, str], VerticalPodAutoscaler] = {}
    for each in sorted(snapshot.vertical.values(), key=lambda each: (each.created, each.name)):
        if each.containers or each.problem:
            known.setdefault((each.namespace, *each.target), each)
    found: dict[PodTemplate, Anew] = {}
    seen: set[PodTemplate] = set()
    views: Sequence[Sequence[Pod]] = [view.pods for view in snapshot.nodes.values()]
    for pods in views if known else ():
        for pod in pods:
            template = pod.template
            if template in seen:
                continue
            seen.add(template)
            above = reversed(owners_of(template, snapshot.workloads))  # the topmost controller is the target
            autoscaler = next((known[each] for each in above if each in known), None)
            anew = None if autoscaler is None else _anew(template.spec, autoscaler)
            if anew is not None:
                found[template] = anew
    return msgspec.structs.replace(snapshot, anew=found)


def _anew(spec: PodSpec, autoscaler: VerticalPodAutoscaler) -> Anew | None:
    """Return what a pod with *spec* will be, ``None`` if nothing changes."""
    if autoscaler.problem:
        return Anew(autoscaler.key, spec.requests, spec.scoring, autoscaler.problem)
    try:
        containers = tuple(_recommended(each, autoscaler.containers) for each in spec.resources.containers)
        asked = msgspec.structs.replace(spec.resources, containers=containers)
        anew = Anew(autoscaler.key, effective_requests(asked), scoring_requests(asked))
    except QuantityError as error:
        return Anew(autoscaler.key, spec.requests, spec.scoring, str(error))
    return None if anew.requests == spec.requests and anew.scoring == spec.scoring else anew


def _recommended(container: Container, recommended: Mapping[str, Recommended]) -> Container:
    own = recommended.get(container.name)
    if own is None or not own.requests:
        return container
    resources = container.resources or ResourceRequirements()
    limits = resources.limits or {}
    wanted = dict(own.requests)
    for name in wanted.keys() & limits.keys() if own.within_limits else ():
        if nano(limits[name]) < nano(wanted[name]):
            wanted[name] = limits[name]
    # The admission controller writes all requests anew; what the recommendation leaves out stays as it is.
    requests = {**(resources.requests or {}), **wanted}
    return msgspec.structs.replace(container, resources=ResourceRequirements(requests, resources.limits))


__all__ = ["with_recommendations"]
