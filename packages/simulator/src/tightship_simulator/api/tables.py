"""The tables that ``kubectl get`` prints, for the kinds that the demo is about; the others have a name and an age.

Columns and words are those of ``pkg/printers/internalversion``. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

Json = dict[str, Any]
Row = list[object]

NONE = "<none>"

# Columns that only -o wide shows begin with a star.
COLUMNS: dict[str, tuple[str, ...]] = {
    "Node": ("Name", "Status", "Roles", "Age", "Version", "*Internal-IP", "*External-IP", "*OS-Image"),
    "Pod": ("Name", "Ready", "Status", "Restarts", "Age", "*IP", "*Node", "*Nominated Node", "*Readiness Gates"),
    "HorizontalPodAutoscaler": ("Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"),
    "PodDisruptionBudget": ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"),
    "Deployment": ("Name", "Ready", "Up-to-date", "Available", "Age", "*Containers", "*Images", "*Selector"),
    "ReplicaSet": ("Name", "Desired", "Current", "Ready", "Age", "*Containers", "*Images", "*Selector"),
    "StatefulSet": ("Name", "Ready", "Age"),
    "Namespace": ("Name", "Status", "Age"),
    "Lease": ("Name", "Holder", "Age"),
    "Event": ("Last Seen", "Type", "Reason", "Object", "*Source", "Message", "*Count", "*Name"),
}
_OTHERS = ("Name", "Age")


def table(kind: str, things: Sequence[Json], meta: Json, now: datetime, include: str = "Metadata") -> Json:
    """Return ``meta.k8s.io/v1 Table`` of objects; of each row's object as much as *include* says."""
    names = COLUMNS.get(kind, _OTHERS)
    columns = [
        {
            "name": name.removeprefix("*"),
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": int(name.startswith("*")),
        }
        for name in names
    ]
    cells = _CELLS.get(kind, _named)
    rows = [{"cells": cells(each, now), "object": _part(each, include)} for each in things]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": columns,
        "rows": rows,
    }


def _part(thing: Json, include: str) -> Json | None:
    if include == "None":
        return None
    if include == "Object":
        return thing
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": thing["metadata"]}


def age(since: str | None, now: datetime) -> str:
    """Return how long ago a time of the API was, as kubectl writes durations."""
    if not since:
        return "<unknown>"
    return human(int((now - datetime.fromisoformat(since)).total_seconds()))


def human(seconds: int) -> str:
    """Return a duration as ``duration.HumanDuration`` does: coarser the longer it is."""
    seconds = max(0, seconds)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{seconds % 60}s" if seconds % 60 else "")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y" + (f"{days % 365}d" if days < 8 * 365 and days % 365 else "")


def _age(thing: Json, now: datetime) -> str:
    return age(thing["metadata"].get("creationTimestamp"), now)


def _named(thing: Json, now: datetime) -> Row:
    return [thing["metadata"]["name"], _age(thing, now)]


def _node(thing: Json, now: datetime) -> Row:
    status, spec = thing.get("status") or {}, thing.get("spec") or {}
    ready = [each for each in status.get("conditions") or [] if each.get("type") == "Ready"]
    words = [("Ready" if each.get("status") == "True" else "NotReady") for each in ready] or ["Unknown"]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    labels = thing["metadata"].get("labels") or {}
    roles = sorted(each.removeprefix(prefix) for each in labels if each.startswith(prefix))
    info = status.get("nodeInfo") or {}
    places = {each.get("type"): each.get("address") for each in status.get("addresses") or []}
    return [
        thing["metadata"]["name"],
        ",".join(words),
        ",".join(roles) or NONE,
        _age(thing, now),
        info.get("kubeletVersion", ""),
        places.get("InternalIP", NONE),
        places.get("ExternalIP", NONE),
        info.get("osImage", "<unknown>"),
    ]


def _pod(thing: Json, now: datetime) -> Row:
    status, spec = thing.get("status") or {}, thing["spec"]
    states = status.get("containerStatuses") or []
    total = len(spec.get("containers") or [])
    is_ready = any(
        each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or []
    )
    ready = sum(bool(each.get("ready")) for each in states) if states else total * is_ready
    gated = any(each.get("reason") == "SchedulingGated" for each in status.get("conditions") or [])
    word = status.get("reason") or ("SchedulingGated" if gated else status.get("phase", "Unknown"))
    if word == "Succeeded":
        word = "Completed"
    if "deletionTimestamp" in thing["metadata"]:
        word = "Terminating"
    restarts = sum(int(each.get("restartCount", 0)) for each in states)
    return [
        thing["metadata"]["name"],
        f"{ready}/{total}",
        word,
        str(restarts),
        _age(thing, now),
        status.get("podIP", NONE),
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        NONE,
    ]


def _autoscaler(thing: Json, now: datetime) -> Row:
    spec, status = thing.get("spec") or {}, thing.get("status") or {}
    target = spec.get("scaleTargetRef") or {}
    present = status.get("currentMetrics") or []
    targets = [
        _metric(each, present[number] if number < len(present) else {})
        for number, each in enumerate(spec.get("metrics") or [])
    ]
    shown = ", ".join(targets[:2]) + (f" + {len(targets) - 2} more..." if len(targets) > 2 else "")
    return [
        thing["metadata"]["name"],
        f"{target.get('kind')}/{target.get('name')}",
        shown or NONE,
        str(spec.get("minReplicas", "<unset>")),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        _age(thing, now),
    ]


def _metric(wanted: Json, present: Json) -> str:
    field = str(wanted.get("type", ""))
    field = field[:1].lower() + field[1:]
    asked = wanted.get(field) or {}
    goal, now = asked.get("target") or {}, (present.get(field) or {}).get("current") or {}
    if "averageUtilization" in goal:
        reached = f"{now['averageUtilization']}%" if "averageUtilization" in now else "<unknown>"
        text = f"{reached}/{goal['averageUtilization']}%"
    elif "averageValue" in goal:
        text = f"{now.get('averageValue', '<unknown>')}/{goal['averageValue']} (avg)"
    else:
        text = f"{now.get('value', '<unknown>')}/{goal.get('value', '<auto>')}"
    return f"{asked['name']}: {text}" if "name" in asked else text


def _budget(thing: Json, now: datetime) -> Row:
    spec, status = thing.get("spec") or {}, thing.get("status") or {}
    least, most = spec.get("minAvailable", "N/A"), spec.get("maxUnavailable", "N/A")
    return [thing["metadata"]["name"], str(least), str(most), status.get("disruptionsAllowed", 0), _age(thing, now)]


def _template(spec: Json) -> Row:
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
    selector = (spec.get("selector") or {}).get("matchLabels") or {}
    return [
        ",".join(each.get("name", "") for each in containers),
        ",".join(each.get("image", "") for each in containers),
        ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or NONE,
    ]


def _deployment(thing: Json, now: datetime) -> Row:
    spec, status = thing.get("spec") or {}, thing.get("status") or {}
    return [
        thing["metadata"]["name"],
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(thing, now),
        *_template(spec),
    ]


def _replica_set(thing: Json, now: datetime) -> Row:
    spec, status = thing.get("spec") or {}, thing.get("status") or {}
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [thing["metadata"]["name"], *counts, _age(thing, now), *_template(spec)]


def _stateful_set(thing: Json, now: datetime) -> Row:
    spec, status = thing.get("spec") or {}, thing.get("status") or {}
    return [thing["metadata"]["name"], f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}", _age(thing, now)]


def _namespace(thing: Json, now: datetime) -> Row:
    return [thing["metadata"]["name"], (thing.get("status") or {}).get("phase", ""), _age(thing, now)]


def _lease(thing: Json, now: datetime) -> Row:
    return [thing["metadata"]["name"], (thing.get("spec") or {}).get("holderIdentity", ""), _age(thing, now)]


def _event(thing: Json, now: datetime) -> Row:
    about, series = thing.get("involvedObject") or {}, thing.get("series") or {}
    first = thing.get("firstTimestamp") or thing.get("eventTime") or thing["metadata"].get("creationTimestamp")
    last = series.get("lastObservedTime") or thing.get("lastTimestamp") or first
    count = series.get("count") or thing.get("count") or 1
    seen = age(last, now)
    if count > 1:
        seen = f"{seen} (x{count} over {age(first, now)})"
    source = (thing.get("source") or {}).get("component") or thing.get("reportingComponent", "")
    return [
        seen,
        thing.get("type", ""),
        thing.get("reason", ""),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        source,
        str(thing.get("message", "")).strip(),
        count,
        thing["metadata"]["name"],
    ]


_CELLS: dict[str, Callable[[Json, datetime], Row]] = {
    "Node": _node,
    "Pod": _pod,
    "HorizontalPodAutoscaler": _autoscaler,
    "PodDisruptionBudget": _budget,
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "StatefulSet": _stateful_set,
    "Namespace": _namespace,
    "Lease": _lease,
    "Event": _event,
}
