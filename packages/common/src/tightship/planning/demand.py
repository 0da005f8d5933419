"""Demand that has no pods yet: replicas that HorizontalPodAutoscalers are about to start, and room that CapacityBuffers
keep. Pure.

An HPA wants the larger of ``status.desiredReplicas`` and ``spec.minReplicas``, at most ``spec.maxReplicas``. A raised
floor counts at once, because the HPA controller acts on it even while metrics fail (``reconcileAutoscaler`` in
pkg/controller/podautoscaler compares it with the scale before it asks for metrics). The wanted replicas beyond the
existing pods will need room soon. Pending pods are pods, and hold room by themselves.

A CapacityBuffer always wants room for as many pods as its status says, or its spec if that asks for more by now: a
percentage grows with its workload. An autoscaler that provisions the buffer adds nodes until so many more pods would
fit (``CapacityBufferPodListProcessor`` of Cluster Autoscaler, Karpenter's virtual pods).

What pods will request once they are made anew: VerticalPodAutoscalers change their requests at admission. Pure.

A replacement gets the recommendation within the bounds of its VPA's policy, and of its own limits where the VPA changes
only requests (``Apply`` in vertical-pod-autoscaler/pkg/utils/vpa/capping.go). It counts with at least its present
requests: while the VPA's webhook is away, pods are made as before, since the webhook's ``failurePolicy`` is ``Ignore``
(pkg/admission-controller/config.go). LimitRanges and start-up boosts are left
out. Of several VPAs of a target the oldest counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from tightship.cluster import Anew, Headroom, Snapshot, Starting
from tightship.cluster.owners import owners_of
from tightship.objects import CapacityBuffer, HorizontalPodAutoscaler, Pod, PodSpec, PodTemplate, VerticalPodAutoscaler
from tightship.objects.autoscaling import SCALE_TARGET_KINDS
from tightship.objects.meta import qualified
from tightship.objects.quantity import QuantityError, nano
from tightship.objects.reasons import Reason
from tightship.objects.resources import Container, ResourceRequirements, effective_requests, largest, scoring_requests
from tightship.objects.vertical import Recommended
from tightship.objects.volume import Volume


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
        containers = tuple(as_recommended(each, autoscaler.containers) for each in spec.resources.containers)
        asked = msgspec.structs.replace(spec.resources, containers=containers)
        requests = largest((spec.requests, effective_requests(asked)))
        anew = Anew(autoscaler.key, requests, scoring_requests(asked))
    except QuantityError as error:
        return Anew(autoscaler.key, spec.requests, spec.scoring, str(error))
    return None if anew.requests == spec.requests and anew.scoring == spec.scoring else anew


def as_recommended(container: Container, recommended: Mapping[str, Recommended]) -> Container:
    """Return *container* with the requests that are *recommended* by container, if they are."""
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


SWITCHABLE = frozenset({Reason.SCALE_UP_NEEDS_NODE, Reason.BUFFER_NEEDS_NODE, Reason.REQUESTS_UNKNOWN})
"""Reasons whose rules users can switch off. Tightship then ignores HPAs, CapacityBuffers, or VPAs."""

MOST_IN_ALL = 500
"""Most replicas of all HPAs together for which to keep room, those of high priority first. A removed node had room for
a few hundred pods at most, and a later pass keeps room for the rest."""

MOST_IN_BUFFERS = 500
"""Most pods of all CapacityBuffers together for which to keep room."""

KEPT_FOR = 86400.0
"""Seconds for which room is kept by default for the pods of a node that others cordoned: upgrades of pools wait hours
for a PodDisruptionBudget, or before they delete the old pool."""

_SURGE = 4
"""A Deployment's rollout makes one pod more for so many replicas, by default."""

_REPLICAS_ARE_PODS = SCALE_TARGET_KINDS | {"ReplicationController"}
"""Kinds of targets in which a replica is a pod. In other kinds nobody knows what a replica is."""

_Target = tuple[str, str, str]
"""(namespace, kind, name) of an HPA's target."""


class ReservedDemand(Struct, frozen=True):
    """The demand for which to keep room: at most *replicas* of each HPA, and *buffers* or not, which have no pods yet.

    With *recommended*, pods that are made anew request what VerticalPodAutoscalers recommend. The pods of a node that
    others cordoned, or that is not Ready, keep room for *displaced_for* seconds.
    """

    replicas: int = 0
    buffers: bool = False
    recommended: bool = False
    displaced_for: float = KEPT_FOR


def with_demand(snapshot: Snapshot, ahead: ReservedDemand) -> Snapshot:
    """Return *snapshot* with the demand that *ahead* selects."""
    snapshot = with_recommendations(snapshot, ahead.recommended)
    return with_headroom(with_starting(snapshot, ahead.replicas), ahead.buffers, rollouts=True)


def with_headroom(snapshot: Snapshot, wanted: bool = True, *, rollouts: bool = False) -> Snapshot:
    """Return *snapshot* with the room that its CapacityBuffers keep, if it is *wanted*.

    With *rollouts* also with the room that the largest rollout takes while it lasts. Pods of the new revision would
    take it from the buffers, and the autoscaler would add a node.
    """
    if not wanted or not snapshot.buffers:
        return snapshot
    provisioned = [each for each in snapshot.buffers.values() if each.active and each.replicas and each.template]
    scaled = _pods_of({(each.namespace, *each.scalable) for each in provisioned if each.scalable}, snapshot)
    left = MOST_IN_BUFFERS
    found: list[Headroom] = []
    for buffer in provisioned:
        own = scaled[buffer.namespace, *buffer.scalable] if buffer.scalable else ()
        template = snapshot.templates.get(f"{buffer.namespace}/{buffer.template}")
        # A pod of the workload is what the autoscaler makes such a template of.
        pod = _unit(template.pod, buffer) if template is not None else _template(own) if own else None
        replicas = buffer.replicas if pod is None else buffer.wanted(len(own), pod.requests)
        count = 0 if pod is None else min(replicas, left)
        left -= count
        found.append(Headroom(buffer.key, buffer.template, replicas, count, pod))
    if rollouts and any(each.count for each in found) and (surge := _largest_surge(snapshot)) is not None:
        (workload, more), pod = surge
        found.append(Headroom(found[0].buffer, "", more, min(more, left), pod, workload))
    return msgspec.structs.replace(snapshot, headroom=tuple(found))


def _largest_surge(snapshot: Snapshot) -> tuple[tuple[str, int], Pod] | None:
    """Return the Deployment whose rollout takes the most CPU, how many pods it adds, and one such pod.

    Nothing here reads Deployments, so the default of ``maxSurge`` counts: a quarter, rounded up.
    """
    found: dict[str, tuple[int, str, int, Pod]] = {}
    sets = snapshot.workloads.get("ReplicaSet", {})
    for view in snapshot.nodes.values():
        for pod in view.pods:
            owner = pod.owner
            if owner is None or owner.kind != "ReplicaSet" or owner.uid in found:
                continue
            known = sets.get(f"{pod.namespace}/{owner.name}")
            if known is not None and known.owner is not None and known.owner.kind == "Deployment" and known.replicas:
                more = -(-known.replicas // _SURGE)
                what = f"{known.owner} of namespace {pod.namespace}"
                found[owner.uid] = more * pod.requests.get("cpu", 0), what, more, pod
    if not found:
        return None
    _, what, more, pod = max(found.values(), key=lambda each: (each[0], each[1]))
    return (what, more), msgspec.structs.replace(_template([pod]), name=f"{pod.name} (of a rollout)")


def _unit(pod: Pod, buffer: CapacityBuffer) -> Pod:
    """Return *pod*, of the template of *buffer*, without the claims of the one pod that it was made of.

    Those of a StatefulSet are named ``VOLUME-SET-NUMBER``, and are on one node, or in one zone.
    """
    if buffer.scalable is None or buffer.scalable[0] != "StatefulSet":
        return pod
    name = buffer.scalable[1]

    def own(volume: Volume) -> bool:
        claim = volume.persistent_volume_claim
        start, dash, number = ("", "", "") if claim is None else claim.claim_name.rpartition("-")
        return bool(dash) and number.isdecimal() and start.endswith(f"-{name}")

    kept = tuple(volume for volume in pod.spec.volumes if not own(volume))
    if len(kept) == len(pod.spec.volumes):
        return pod
    spec: PodSpec = msgspec.structs.replace(pod.spec, volumes=kept)
    return msgspec.structs.replace(pod, template=msgspec.structs.replace(pod.template, spec=spec))


def with_starting(snapshot: Snapshot, most: int) -> Snapshot:
    """Return *snapshot* with the replicas that its HPAs are about to start, at most *most* of each; 0 for none."""
    if most <= 0 or not snapshot.autoscalers:
        return snapshot
    wanting = [(hpa, asked) for hpa in snapshot.autoscalers.values() if (asked := _wanted(hpa)) is not None]
    pods = _pods_of({_target(hpa) for hpa, _ in wanting}, snapshot)
    found: dict[_Target, tuple[Starting, Sequence[Pod]]] = {}
    for hpa, (wanted, because) in wanting:
        target = _target(hpa)
        own = pods[target]
        existing = _existing(hpa, own)
        more = wanted - existing
        # Two HPAs may fight over one target, but its replicas start once.
        if more > 0 and (target not in found or more > found[target][0].more):
            found[target] = Starting(hpa.key, because, wanted, existing, more, 0, None), own
    return msgspec.structs.replace(snapshot, starting=_limited(found.values(), most))


def _target(hpa: HorizontalPodAutoscaler) -> _Target:
    return hpa.namespace, qualified(hpa.target.kind, hpa.target.api_version), hpa.target.name


def _wanted(hpa: HorizontalPodAutoscaler) -> tuple[int, str] | None:
    """Return how many replicas *hpa* wants, and the field that says so; ``None`` if the HPA scales nothing."""
    false = {each.type: each.reason for each in hpa.conditions if each.status == "False"}
    # The HPA controller leaves a target at 0 if somebody else scaled it there (``ScalingDisabled``).
    disabled = hpa.current_replicas == 0 and hpa.min_replicas > 0
    if hpa.deletion is not None or disabled or false.get("AbleToScale") == "FailedGetScale":
        return None
    wanted, because = hpa.min_replicas, "minReplicas"
    # While metrics fail, the status keeps its last number, be it 0.
    if hpa.desired_replicas > wanted and "ScalingActive" not in false:
        wanted, because = hpa.desired_replicas, "desiredReplicas"
    return (wanted, because) if wanted <= hpa.max_replicas else (hpa.max_replicas, "maxReplicas")


def _existing(hpa: HorizontalPodAutoscaler, pods: Sequence[Pod]) -> int:
    """Return how many replicas *hpa* has: the number of its *pods*, if these are all."""
    if pods and _target(hpa)[1] in _REPLICAS_ARE_PODS:
        return len(pods)
    # The HPA's own number is then the best known.
    return max(len(pods), hpa.current_replicas or 0)


def _limited(found: Iterable[tuple[Starting, Sequence[Pod]]], most: int) -> tuple[Starting, ...]:
    """Return *found* with the count of replicas for which to keep room, *most* for each HPA."""

    def order(each: tuple[Starting, Sequence[Pod]]) -> tuple[int, str]:
        starting, pods = each
        return -(pods[0].spec.priority if pods else 0), starting.hpa

    left = MOST_IN_ALL
    kept: list[Starting] = []
    for starting, pods in sorted(found, key=order):
        count = min(starting.more, most, left) if pods else 0
        left -= count
        pod = None if not pods else _template(pods) if count else pods[0]
        kept.append(msgspec.structs.replace(starting, count=count, pod=pod))
    return tuple(kept)


def _pods_of(targets: set[_Target], snapshot: Snapshot) -> Mapping[_Target, Sequence[Pod]]:
    """Return the pods of each of *targets*, without pods whose replacements exist already."""
    found: dict[_Target, list[Pod]] = {target: [] for target in targets}
    known: dict[PodTemplate, list[list[Pod]]] = {}
    views = (view.pods for view in snapshot.nodes.values())
    for pods in (*views, snapshot.unscheduled):
        for pod in pods:
            lists = known.get(pod.template)
            if lists is None:
                above = owners_of(pod.template, snapshot.workloads)
                lists = known[pod.template] = [found[target] for target in above if target in found]
            for each in lists:
                if not snapshot.replaced(pod):
                    each.append(pod)
    return found


def _template(pods: Sequence[Pod]) -> Pod:
    """Return a pod for a replica that is about to start, in the image of the newest of *pods*.

    During a rollout the replica may be of either revision, so it requests the largest amounts of all.
    """
    newest = max(pods, key=lambda pod: (pod.created, pod.name))
    template = _without_own_claims(newest)
    by_spec = {pod.spec: pod.spec.requests for pod in pods}
    requests = largest(by_spec.values()) if len(by_spec) > 1 else template.spec.requests
    return msgspec.structs.replace(
        newest,
        name=f"{newest.name} (to come)",
        uid="",
        template=template,
        node="",
        phase="Pending",
        ready=False,
        started=None,
        deletion=None,
        requests=requests,
        nominated_node="",
        gates=(),
    )


def _without_own_claims(pod: Pod) -> PodTemplate:
    """Return the template of *pod* without volumes of its own, such as a StatefulSet's claims.

    A new replica is assumed to get such volumes where it lands.
    """
    spec = pod.spec
    volumes = tuple(
        volume
        for volume in spec.volumes
        if volume.persistent_volume_claim is None
        or not volume.persistent_volume_claim.claim_name.endswith(f"-{pod.name}")
    )
    if len(volumes) == len(spec.volumes):
        return pod.template
    own: PodSpec = msgspec.structs.replace(spec, volumes=volumes)
    return msgspec.structs.replace(pod.template, spec=own)
