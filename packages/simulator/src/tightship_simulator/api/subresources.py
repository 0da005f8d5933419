"""What is done by a subresource: evictions, bindings, scales and tokens. On the store, without HTTP."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tightship_simulator.api import budgets
from tightship_simulator.api.errors import BadRequest, conflict
from tightship_simulator.api.kinds import BY_NAME
from tightship_simulator.api.objects import check_preconditions, timestamp
from tightship_simulator.api.store import Store

Json = dict[str, Any]


def evict(
    store: Store, name: str, namespace: str, options: Mapping[str, Any] | None = None, *, dry_run: bool = False
) -> None:
    """Evict a pod, if its PodDisruptionBudget allows; *options* are the ``deleteOptions``.

    The budget is charged before the preconditions are looked at, as the real server does. Raises the refusals of
    :func:`~tightship_simulator.api.budgets.spent_by`, ``NotFound``, ``Conflict``, and ``Forbidden`` where the
    namespace is going.
    """
    store.check_namespace("pods", name, namespace)
    pod = store.get("Pod", name, namespace)
    options = options or {}
    wanted = options.get("preconditions") or {}
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    dry_run = dry_run or "All" in (options.get("dryRun") or [])
    spent = budgets.spent_by(pod, store.list("PodDisruptionBudget", namespace), store.now())
    if spent is not None and not dry_run:
        store.update("PodDisruptionBudget", spent, part="status")
    check_preconditions(BY_NAME["Pod"], pod, uid=uid, version=version)
    if not dry_run:
        store.modify("Pod", name, namespace, lambda each: _disrupted(each, timestamp(store.now())))
    store.delete("Pod", name, namespace, grace=options.get("gracePeriodSeconds"), uid=uid, dry_run=dry_run)


def _disrupted(pod: Json, since: str) -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": since,
    }
    set_condition(pod, condition)


def set_condition(thing: Json, condition: Json) -> None:
    """Set one of the conditions of an object's status; the time of one whose status stays stays too."""
    status = thing.setdefault("status", {})
    others = [each for each in status.get("conditions") or [] if each.get("type") != condition["type"]]
    before = [each for each in status.get("conditions") or [] if each.get("type") == condition["type"]]
    if before and before[0].get("status") == condition["status"]:
        condition = {**condition, "lastTransitionTime": before[0].get("lastTransitionTime")}
    status["conditions"] = [*others, condition]


def bind(store: Store, name: str, namespace: str, node: str, *, dry_run: bool = False) -> Json:
    """Bind a pod to a node as a scheduler does; whether it fits is not asked. Raises ``NotFound`` and ``Conflict``."""
    pod, about = store.get("Pod", name, namespace), BY_NAME["Pod"]
    if "deletionTimestamp" in pod["metadata"]:
        raise conflict(about, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if bound := pod["spec"].get("nodeName"):
        raise conflict(about, name, f'pod {name} is already assigned to node "{bound}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict(about, name, f"pod {name} has non-empty .spec.schedulingGates")

    def bound_to(each: Json) -> None:
        each["spec"]["nodeName"] = node
        # ClearingNominatedNodeNameAfterBinding (KEP-5278).
        each["status"].pop("nominatedNodeName", None)
        now = timestamp(store.now())
        set_condition(each, {"type": "PodScheduled", "status": "True", "lastTransitionTime": now})

    return store.modify("Pod", name, namespace, bound_to, dry_run=dry_run)


def scale_of(thing: Json) -> Json:
    """Return the ``autoscaling/v1 Scale`` of a workload."""
    spec, status, meta = thing.get("spec") or {}, thing.get("status") or {}, thing["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = spec.get("selector") or {}
    wanted = selector.get("matchLabels", selector) or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {
            "replicas": status.get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(wanted.items()) if isinstance(value, str)),
        },
    }


def rescaled(thing: Json, scale: Mapping[str, Any]) -> Json:
    """Return a workload with the replicas of *scale*. Raises :class:`~tightship_simulator.api.errors.BadRequest`."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        raise BadRequest(f"spec.replicas: {replicas!r} is no number of 0 or more")
    version = (scale.get("metadata") or {}).get("resourceVersion")
    meta = {**thing["metadata"], **({"resourceVersion": version} if version else {})}
    return {**thing, "metadata": meta, "spec": {**(thing.get("spec") or {}), "replicas": replicas}}


def token(store: Store, name: str, namespace: str, request: Mapping[str, Any]) -> Json:
    """Return a ``TokenRequest`` with a token that says whose it is; nothing asks for it. Raises ``NotFound``."""
    account = store.get("ServiceAccount", name, namespace)
    seconds = int((request.get("spec") or {}).get("expirationSeconds") or 3600)
    who = f"system:serviceaccount:{namespace}:{name}:{account['metadata']['uid']}"
    until = timestamp(store.now() + timedelta(seconds=seconds))
    status = {"token": base64.urlsafe_b64encode(who.encode()).decode(), "expirationTimestamp": until}
    meta = {"name": name, "namespace": namespace, "creationTimestamp": timestamp(store.now())}
    named = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": meta}
    return {**named, "spec": {"expirationSeconds": seconds}, "status": status}
