"""What is seen of the cluster through its API, reduced to what is shown and recorded. Pure.

A record of a demo is these, one JSON object a line; whoever has them can draw every moment again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct, field

from tightship.objects.drain_record import DRAIN_ANNOTATION, Phase, decode_record
from tightship.objects.quantity import milli, value
from tightship_simulator.demo.cluster import POOL
from tightship_simulator.life.changes import Json, condition, finished, key_of, leaving, ready
from tightship_simulator.life.node_autoscaler import TO_BE_DELETED

MEBI = 2**20
CANDIDATE = "tightship.dev/candidate"
GUARD = "tightship.dev/hpa-scaler"


class NodeSeen(Struct, frozen=True, tag="node", omit_defaults=True):
    """A node: milli-CPU and MiB to allocate; *drain* is the phase of a drain and *by* whose it is."""

    name: str
    pool: str
    cpu: int
    memory: int
    ready: bool = True
    cordoned: bool = False
    drain: str = ""
    by: str = ""
    taken: bool = False
    """Whether the autoscaler is about to delete it."""
    candidate: bool = False


class PodSeen(Struct, frozen=True, tag="pod", omit_defaults=True):
    """A pod: milli-CPU and MiB requested. *app* is ``namespace/name`` of its workload."""

    key: str
    app: str
    cpu: int
    memory: int
    node: str = ""
    ready: bool = False
    leaving: bool = False
    daemon: bool = False

    @property
    def waits(self) -> bool:
        """Whether it has no node, and is to have one."""
        return not self.node and not self.leaving


class BudgetSeen(Struct, frozen=True, tag="budget", omit_defaults=True):
    """The status of a PodDisruptionBudget."""

    key: str
    allowed: int
    healthy: int
    desired: int
    expected: int


class FloorSeen(Struct, frozen=True, tag="floor", omit_defaults=True):
    """An HPA: its bounds, its replicas, and whether the hpa-scaler looks after it."""

    key: str
    floor: int
    most: int
    current: int = 0
    desired: int = 0
    guarded: bool = False
    kept: bool = False
    """Whether it would have fewer replicas without its floor (``ScalingLimited``, ``TooFewReplicas``)."""


class EventSeen(Struct, frozen=True, tag="event", omit_defaults=True):
    """An Event of a *controller* (``node-refiner``) about an object (``Node``, ``general-7``)."""

    controller: str
    kind: str
    about: str
    reason: str
    note: str
    warning: bool = False


class TrafficSeen(Struct, frozen=True, tag="traffic", omit_defaults=True):
    """What Prometheus says of a workload's traffic, requests a second; ``None``: no answer."""

    key: str
    value: float | None = None


class StatusSeen(Struct, frozen=True, tag="status", omit_defaults=True):
    """What a controller's ``/status`` says in one line."""

    controller: str
    text: str


class Gone(Struct, frozen=True, tag="gone", omit_defaults=True):
    """An object is no longer there; *what* is the tag of what it was."""

    what: str
    key: str


class Announcement(Struct, frozen=True, tag="told", omit_defaults=True):
    """What is done to the cluster from outside, which no API shows: traffic that is cut, the end."""

    text: str


Observation: TypeAlias = (
    NodeSeen | PodSeen | BudgetSeen | FloorSeen | EventSeen | TrafficSeen | StatusSeen | Gone | Announcement
)


class Moment(Struct, frozen=True):
    """An observation, *at* so many seconds after the beginning, when it was *hour* in the story."""

    at: float
    hour: float
    observation: Observation = field(name="sight")


def seen(item: Json) -> Observation | None:
    """Return what is seen of an object, ``None`` where nothing of it is shown."""
    match item["kind"]:
        case "Node":
            return _node(item)
        case "Pod" if not finished(item):
            return _pod(item)
        case "PodDisruptionBudget":
            status = item.get("status") or {}
            names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
            return BudgetSeen("/".join(key_of(item)), *(int(status.get(name, 0)) for name in names))
        case "HorizontalPodAutoscaler":
            return _floor(item)
        case "Event":
            return _event(item)
        case _:
            return None


def identity(observation: Observation) -> tuple[str, str] | None:
    """Return of what object it is the present state, ``None`` for what is not the state of an object."""
    match observation:
        case NodeSeen(name=name):
            return "node", name
        case PodSeen(key=key):
            return "pod", key
        case BudgetSeen(key=key):
            return "budget", key
        case FloorSeen(key=key):
            return "floor", key
        case Gone(what=what, key=key):
            return what, key
        case _:
            return None


TAGS = {"Node": "node", "Pod": "pod", "PodDisruptionBudget": "budget", "HorizontalPodAutoscaler": "floor"}
"""What :class:`Gone` calls the kinds whose end matters."""


def _node(item: Json) -> NodeSeen:
    meta, spec = item["metadata"], item.get("spec") or {}
    room = item["status"].get("allocatable") or {}
    keys = {taint["key"] for taint in spec.get("taints") or ()}
    written = (meta.get("annotations") or {}).get(DRAIN_ANNOTATION)
    record = decode_record(written) if written else None
    owned = record is not None and record.owns_node and record.phase is not Phase.UNKNOWN
    return NodeSeen(
        name=meta["name"],
        pool=(meta.get("labels") or {}).get(POOL, ""),
        cpu=milli(room.get("cpu", "0")),
        memory=value(room.get("memory", "0")) // MEBI,
        ready=ready(item),
        cordoned=bool(spec.get("unschedulable")),
        drain=record.phase.value if record is not None and owned else "",
        by=record.controller if record is not None and owned else "",
        taken=TO_BE_DELETED in keys,
        candidate=CANDIDATE in keys,
    )


def _pod(item: Json) -> PodSeen:
    meta, spec = item["metadata"], item["spec"]
    cpu = memory = 0
    for container in spec["containers"]:
        asked = (container.get("resources") or {}).get("requests") or {}
        cpu += milli(asked.get("cpu", "0"))
        memory += value(asked.get("memory", "0"))
    owners = meta.get("ownerReferences") or ()
    labels = meta.get("labels") or {}
    return PodSeen(
        key="/".join(key_of(item)),
        app=f"{meta['namespace']}/{labels.get('app', meta['name'])}",
        cpu=cpu,
        memory=memory // MEBI,
        node=spec.get("nodeName", ""),
        ready=ready(item),
        leaving=leaving(item),
        daemon=any(owner["kind"] == "DaemonSet" for owner in owners),
    )


def _floor(item: Json) -> FloorSeen:
    spec, status = item["spec"], item.get("status") or {}
    limited = condition(item, "ScalingLimited")
    return FloorSeen(
        key="/".join(key_of(item)),
        floor=int(spec.get("minReplicas", 1)),
        most=int(spec["maxReplicas"]),
        current=int(status.get("currentReplicas", 0)),
        desired=int(status.get("desiredReplicas", 0)),
        guarded=(item["metadata"].get("annotations") or {}).get(GUARD) == "true",
        kept=limited.get("reason") == "TooFewReplicas",
    )


def _event(item: Json) -> EventSeen | None:
    about = item.get("regarding") or item.get("involvedObject") or {}
    controller = str(item.get("reportingController") or item.get("reportingComponent") or "").rpartition("/")[2]
    if not controller:
        return None
    place = [about.get("namespace") if about.get("kind") != "Node" else "", about.get("name")]
    return EventSeen(
        controller=controller,
        kind=str(about.get("kind", "")),
        about="/".join(filter(None, place)),
        reason=str(item.get("reason", "")),
        note=" ".join(str(item.get("note") or item.get("message") or "").split()),
        warning=item.get("type") == "Warning",
    )


def status_line(controller: str, raw: bytes) -> StatusSeen | None:
    """Return what ``/status`` says in one line, ``None`` where there is nothing to say yet."""
    try:
        reported = json.loads(raw)
    except ValueError:
        return None
    plan = reported.get("plan") if isinstance(reported, dict) else None
    if not isinstance(plan, dict):
        return None
    if "hpas" in plan:
        return StatusSeen(controller, _floors_line(plan["hpas"]))
    return StatusSeen(controller, _nodes_line(reported, plan["nodes"]))


def _floors_line(hpas: list[Json]) -> str:
    counts = _counted(each["reasons"][0] for each in hpas if each.get("reasons"))
    return f"looks after {len(hpas)} floors: {counts}" if hpas else "looks after no floor"


def _nodes_line(reported: Json, nodes: list[Json]) -> str:
    if reported.get("unhealthy"):
        return f"waits: {reported['unhealthy']['detail']}"
    planned = sum(1 for each in nodes if each.get("order") is not None)
    reasons = (each["reasons"][0] for each in nodes if each.get("order") is None and each.get("reasons"))
    held = _counted(each["reason"] for each in reported.get("held", {}).values())
    waits = f" (waiting: {held})" if held else ""
    return f"could remove {planned or 'none'}{waits}; the others stay: {_counted(reasons)}"


def _counted(reasons: Iterable[str], most: int = 4) -> str:
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:most]
    return ", ".join(f"{name} {count}" for name, count in ranked)


__all__ = [
    "TAGS",
    "Announcement",
    "BudgetSeen",
    "EventSeen",
    "FloorSeen",
    "Gone",
    "Moment",
    "NodeSeen",
    "Observation",
    "PodSeen",
    "StatusSeen",
    "TrafficSeen",
    "seen",
    "status_line",
]  # fmt: skip
