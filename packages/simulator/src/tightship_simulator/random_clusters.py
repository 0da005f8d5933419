"""Small, deliberately awkward clusters for property tests: every scheduling rule, in every form, at random.

Placements are legal by :class:`~tightship_simulator.world.World` when they are made; afterwards some pods are taken
away, as scaling down does, which is what leaves room to pack.
"""

from __future__ import annotations

import random
from typing import Any

from tightship_simulator.random_pods import HOST, NAMESPACES, RACK, ZONE, PodMaker
from tightship_simulator.world import World

Json = dict[str, Any]

NEVER = "never-fits"
"""Prefix of pending pods that fit nowhere whatever happens."""
_CREATED = "2026-01-01T00:00:00Z"


def random_cluster(seed: int) -> Json:
    """Return a List of 3-9 nodes and up to about 40 pods, the same for the same seed."""
    return _Maker(random.Random(seed)).cluster()  # noqa: S311


class _Maker(PodMaker):
    def cluster(self) -> Json:
        rng = self.rng
        nodes = [self.node(number) for number in range(rng.randint(3, 9))]
        spaces = [
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {**own, "kubernetes.io/metadata.name": name}},
            }
            for name, own in NAMESPACES.items()
        ]
        owners: list[Json] = []
        waiting: list[Json] = []
        for app in self.apps:
            owner = self.workload(app)
            owners.append(owner)
            waiting += [self.pod(owner, number) for number in range(owner["spec"]["replicas"])]
        waiting.sort(key=lambda _: rng.random())
        pods = self.daemon_pods(nodes, owners)
        world = World({"items": [*nodes, *spaces, *pods]})
        for pod in waiting:
            options = world.feasible(pod)
            if options:
                emptiest = min(options, key=lambda name: len(world.on_node[name]))
                pods.append(self.bound(pod, rng.choice((emptiest, rng.choice(options)))))
                world.add(pod, pod["spec"]["nodeName"])
        pods = [pod for pod in pods if _owner_kind(pod) == "DaemonSet" or rng.random() > 0.25]
        self.annotate(pods)
        for owner in owners:
            name = owner["metadata"]["name"]
            own = [pod for pod in pods if pod["metadata"]["labels"]["app"] == name]
            if owner["kind"] == "ReplicaSet":
                owner["spec"]["replicas"] = len(own)
        pods += self.pending()
        budgets = self.budgets(owners, pods)
        items = [*spaces, *nodes, *owners, *budgets, *pods]
        return {"apiVersion": "v1", "kind": "List", "items": items}

    def node(self, number: int) -> Json:
        rng = self.rng
        labels = {
            HOST: f"n{number}",
            ZONE: rng.choice(("z1", "z2", "z3")),
            RACK: rng.choice(("r1", "r2")),
            "example.com/class": rng.choice(("small", "large")),
            "example.com/generation": rng.choice(("1", "2", "3", "10", "x2", "007")),
        }
        if rng.random() < 0.4:
            labels["example.com/fast"] = ""
        labels = {key: value for key, value in labels.items() if rng.random() >= self.bare}
        taints = []
        if self.chance("taint"):
            taints.append({"key": "dedicated", "value": rng.choice(("a", "b")), "effect": "NoSchedule"})
        if self.chance("taint"):
            taints.append({"key": "flaky", "effect": rng.choice(("PreferNoSchedule", "NoExecute", "NoSchedule"))})
        room = {
            "cpu": rng.choice(("1500m", "2", "3900m", "4")),
            "memory": rng.choice(("2500Mi", "4G", "8Gi", "7812500Ki")),
            "pods": str(rng.choice((6, 8, 12, 20, 110))),
            "ephemeral-storage": "100Gi",
        }
        if self.chance("extended"):
            room["example.com/card"] = str(rng.randint(1, 4))
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number}", "labels": labels, "creationTimestamp": _CREATED},
            "spec": {"taints": taints} if taints else {},
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }

    def workload(self, app: str) -> Json:
        rng = self.rng
        labels = {"app": app, "part": rng.choice(("front", "back")), "version": rng.choice(("v1", "v2"))}
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": app, "namespace": rng.choice(list(NAMESPACES)), "uid": f"uid-{app}"},
            "spec": {
                "replicas": rng.choice((1, 2, 3, 3, 4, 5, 6, 8)),
                "selector": {"matchLabels": {"app": app}},
                "template": {"metadata": {"labels": labels}, "spec": self.pod_spec(app)},
            },
        }

    def pod(self, owner: Json, number: int) -> Json:
        meta, template = owner["metadata"], owner["spec"]["template"]
        reference = {
            "apiVersion": "apps/v1",
            "kind": owner["kind"],
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{meta['name']}-{number}",
                "namespace": meta["namespace"],
                "labels": dict(template["metadata"]["labels"]),
                "annotations": {},
                "ownerReferences": [reference],
                "creationTimestamp": _CREATED,
            },
            "spec": dict(template["spec"]),
            "status": {"phase": "Pending"},
        }

    def bound(self, pod: Json, node: str) -> Json:
        pod["spec"]["nodeName"] = node
        pod["status"] = {
            "phase": "Running",
            "startTime": _CREATED,
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
        }
        return pod

    def daemon_pods(self, nodes: list[Json], owners: list[Json]) -> list[Json]:
        if self.rng.random() < 0.5:
            return []
        owner = self.workload("agent")
        small = {"requests": {"cpu": "10m", "memory": "20Mi"}}
        spec = {
            "containers": [{"name": "agent", "image": "registry.example.com/agent", "resources": small}],
            "tolerations": [{"operator": "Exists"}],
        }
        owner["spec"]["template"]["spec"] = spec
        del owner["spec"]["replicas"]
        owner["kind"] = "DaemonSet"
        owners.append(owner)
        names = [node["metadata"]["name"] for node in nodes]
        return [self.bound(self.pod(owner, number), name) for number, name in enumerate(names)]

    def annotate(self, pods: list[Json]) -> None:
        for pod in pods:
            if self.rng.random() < 0.03 and _owner_kind(pod) == "ReplicaSet":
                key = "cluster-autoscaler.kubernetes.io/safe-to-evict"
                pod["metadata"]["annotations"] = {key: self.rng.choice(("false", "true"))}

    def pending(self) -> list[Json]:
        rng = self.rng
        found = []
        if rng.random() < 0.3:
            spec = {"containers": [self.container("main")]}
            spec["containers"][0]["resources"] = {"requests": {"cpu": "90"}}
            found.append(self.naked(NEVER, spec))
        if rng.random() < 0.2:
            found.append(self.naked("waits", self.pod_spec("waits")))
        return found

    def naked(self, name: str, spec: Json) -> Json:
        meta = {"name": name, "namespace": "blue", "labels": {"app": name}, "creationTimestamp": _CREATED}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}

    def budgets(self, owners: list[Json], pods: list[Json]) -> list[Json]:
        rng = self.rng
        found = []
        for owner in owners:
            name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
            own = [pod for pod in pods if pod["metadata"]["labels"].get("app") == name]
            if not own or owner["kind"] != "ReplicaSet" or rng.random() > 0.25:
                continue
            total = len(own)
            rule: Json = rng.choice(
                ({"maxUnavailable": rng.choice((0, 1, 1, 2))}, {"minAvailable": rng.randint(0, total)})
            )
            wanted = max(0, total - rule["maxUnavailable"]) if "maxUnavailable" in rule else rule["minAvailable"]
            status = {
                "observedGeneration": 1, "expectedPods": total, "currentHealthy": total,
                "desiredHealthy": wanted, "disruptionsAllowed": max(0, total - wanted),
            }  # fmt: skip
            found.append(
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": {"name": name, "namespace": namespace, "generation": 1},
                    "spec": {**rule, "selector": {"matchLabels": {"app": name}}},
                    "status": status,
                }
            )
        return found


def _owner_kind(pod: Json) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["kind"])
