"""What a golden cluster is put together with: nodes, pods and budgets, and beside each what is expected of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tightship.objects.reasons import Reason

Json = dict[str, Any]

NOW = datetime(2026, 10, 1, 12, tzinfo=UTC)
"""The time for which what is expected holds."""

NEVER = datetime(2100, 1, 1, tzinfo=UTC)


def ago(**span: float) -> str:
    """Return a time before :data:`NOW` as the API writes it."""
    return (NOW - timedelta(**span)).strftime("%Y-%m-%dT%H:%M:%SZ")


def owner(kind: str, name: str) -> Json:
    """Return the reference of a pod to its controller."""
    group = {"Job": "batch/v1", "Rollout": "example.com/v1"}.get(kind, "apps/v1")
    return {"apiVersion": group, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


class Golden:
    """A golden cluster while it is put together, and what is expected of it."""

    def __init__(self) -> None:
        self.items: list[Json] = []
        self.refusals: dict[str, list[tuple[Reason, str]]] = {}
        self.removals: list[Json] = []

    def node(
        self,
        name: str,
        shows: str,
        *reasons: Reason,
        pool: str = "general",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        metadata: Json | None = None,
        spec: Json | None = None,
        cpu: int = 4,
        ready: bool = True,
    ) -> str:
        """Add a node; *reasons* are what is said of the node itself."""
        room = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"} if cpu else {"pods": "110"}
        of_pool = {"cloud.google.com/gke-nodepool": pool} if pool else {}
        self.items.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "uid": f"uid-{name}",
                    "creationTimestamp": ago(days=30),
                    "labels": {"kubernetes.io/hostname": name, **of_pool, **(labels or {})},
                    "annotations": {"example.com/shows": shows, **(annotations or {})},
                    **(metadata or {}),
                },
                "spec": spec or {},
                "status": {
                    "capacity": room,
                    "allocatable": room,
                    "conditions": [{"type": "Ready", "status": "True" if ready else "False", "reason": "KubeletReady"}],
                },
            }
        )
        self.refusals[name] = [(reason, name) for reason in reasons]
        return name

    def left_alone(self, name: str, shows: str) -> str:
        """Add a node that the controller's settings leave alone."""
        raise NotImplementedError

    def full(self, name: str, shows: str, cpu: int = 4) -> str:
        """Add a node that stays because of what runs on it, with room for a bit more."""
        raise NotImplementedError

    def pod(
        self,
        name: str,
        on: str,
        *reasons: Reason,
        also_on: tuple[str, ...] = ("roomy",),
        namespace: str = "shop",
        cpu: str = "100m",
        owned_by: Json | str | None = "",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        pending: bool = False,
        **spec: Any,
    ) -> str:
        """Add a pod on node *on* that may run there and *also_on*, in a ReplicaSet of its own unless told otherwise."""
        key = f"{namespace}/{name}"
        if owned_by == "":
            owned_by = owner("ReplicaSet", name)
            self.workload("ReplicaSet", namespace, name)
        terms = [{"key": "kubernetes.io/hostname", "operator": "In", "values": sorted({on, *also_on})}]
        required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        given = spec.pop("affinity", None)
        unready = (annotations or {}).get("e2e.tightship.dev/phase") == "Unready"
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}
        conditions = [{"type": "Ready", "status": "False" if unready else "True"}]
        running = {"phase": "Running", "startTime": ago(minutes=30), "conditions": conditions}
        self.items.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": f"uid-{name}",
                    "creationTimestamp": ago(minutes=30),
                    "labels": labels or {"app": name},
                    **({"annotations": annotations} if annotations else {}),
                    **({"ownerReferences": [owned_by]} if owned_by else {}),
                },
                "spec": {
                    "containers": [container],
                    "affinity": {**affinity, **(given if isinstance(given, dict) else {})},
                    **({} if pending else {"nodeName": on}),
                    **spec,
                },
                "status": {"phase": "Pending"} if pending else running,
            }
        )
        self.refusals[on] += [(reason, key) for reason in reasons]
        return key

    def workload(self, kind: str, namespace: str, name: str, replicas: int = 1, app: str = "") -> Json:
        """Add a controller of pods; return the reference to it."""
        group = {"Job": "batch/v1"}.get(kind, "apps/v1")
        selector = {"matchLabels": {"app": app or name}}
        self.items.append(
            {
                "apiVersion": group,
                "kind": kind,
                "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
                "spec": {"selector": selector, **({"replicas": replicas} if kind == "ReplicaSet" else {})},
            }
        )
        return owner(kind, name)

    def budget(self, name: str, app: str, rule: Json, *, generation: int = 1, failed: str = "", **status: int) -> None:
        """Add a PodDisruptionBudget in namespace shop with the status that the disruption controller computes."""
        condition = {"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": ""}
        if failed:
            condition |= {"status": "False", "reason": "SyncFailed", "message": failed}
        self.items.append(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": "shop", "generation": generation},
                "spec": {**rule, "selector": {"matchLabels": {"app": app}}},
                "status": {"conditions": [condition], **({} if failed else {"observedGeneration": 1}), **status},
            }
        )

    def autoscaler(self, name: str, kind: str, minimum: int) -> None:
        """Add an HPA of the target of its name in namespace shop; its controller has not looked at it yet."""
        target = {"apiVersion": "apps/v1", "kind": kind, "name": name}
        self.items.append(
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": name, "namespace": "shop"},
                "spec": {"scaleTargetRef": target, "minReplicas": minimum, "maxReplicas": 10},
            }
        )

    def goes(self, node: str, **moves: str) -> None:
        """Expect *node* to be removed, its pods (in namespace shop) moving so."""
        self.removals.append(
            {"node": node, "moves": [[f"shop/{pod}", target] for pod, target in sorted(moves.items())]}
        )
