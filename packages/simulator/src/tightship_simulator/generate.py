"""``python -m tightship_simulator.generate``: an off-peak cluster as kubectl prints it, the same for the same seed.

Writes one object per line as it goes, so that fleets of thousands of nodes need little memory.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from tightship_simulator.fleet import ITSELF, MEBI, Fleet, Load, Machine, make_fleet
from tightship_simulator.life.changes import reference
from tightship_simulator.rivals import make_rivals

Json = dict[str, Any]

NOW = datetime(2026, 11, 20, 3, 0, tzinfo=UTC)
"""The moment of the picture unless another is asked for: fixed, so that a seed gives the same bytes on any day."""

PODS_PER_NODE = 12
_DRIVER = "pd.csi.storage.gke.io"
_DAEMONS = {"kube-proxy": (ITSELF[0] - 100, 100), "log-agent": (100, 200)}
_SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def off_peak_cluster(
    seed: int, nodes: int = 40, pools: int = 3, *, pods: int | None = None, conflicts: int = 0, now: datetime = NOW
) -> Json:
    """Return a List of *nodes* nodes in *pools* pools (and a few with a GPU) with about *pods* pods left on them.

    With *conflicts* the fleet is another one: its memory is tight, and so many pairs of applications exclude each other
    by required pod anti-affinity.
    """
    items = list(objects(seed, nodes, pools, pods=pods, conflicts=conflicts, now=now))
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}


def objects(
    seed: int, nodes: int = 40, pools: int = 3, *, pods: int | None = None, conflicts: int = 0, now: datetime = NOW
) -> Iterator[Json]:
    """Yield the objects of :func:`off_peak_cluster` one by one."""
    rng = random.Random(seed)  # noqa: S311
    wanted = pods or nodes * PODS_PER_NODE
    fleet = make_rivals(rng, nodes, pools, wanted, conflicts) if conflicts else make_fleet(rng, nodes, pools, wanted)
    return _Writer(rng, now).write(fleet)


class _Writer:
    def __init__(self, rng: random.Random, now: datetime) -> None:
        self.rng = rng
        self._drawn: set[str] = set()
        self.now = now

    def write(self, fleet: Fleet) -> Iterator[Json]:
        for name in sorted({load.namespace for load in fleet.loads} | {"kube-system", "default"}):
            yield self.thing("v1", "Namespace", name, labels={"kubernetes.io/metadata.name": name})
        yield {
            **self.thing("storage.k8s.io/v1", "StorageClass", "premium-rwo"),
            "provisioner": _DRIVER,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        for machine in fleet.machines:
            yield self.node(machine)
            driver = {"name": _DRIVER, "nodeID": machine.name, "allocatable": {"count": 15}}
            yield {**self.thing("storage.k8s.io/v1", "CSINode", machine.name), "spec": {"drivers": [driver]}}
        for name, (cpu, memory) in _DAEMONS.items():
            yield from self.daemons(name, cpu, memory, fleet.machines)
        for load in fleet.loads:
            yield from self.load(load)

    def time(self, low: float, high: float) -> str:
        """Return a moment that lies between *low* and *high* hours back."""
        moment = self.now - timedelta(seconds=round(self.rng.uniform(low, high) * 3600))
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def uid(self) -> str:
        return str(UUID(int=self.rng.getrandbits(128), version=4))

    def thing(self, version: str, kind: str, name: str, namespace: str = "", **meta: object) -> Json:
        placed = {"namespace": namespace} if namespace else {}
        created = meta.pop("created", None) or self.time(200, 2000)
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name, **placed, "uid": self.uid(), "creationTimestamp": created, **meta},
        }

    def node(self, machine: Machine) -> Json:
        labels = {
            "beta.kubernetes.io/arch": "amd64",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": machine.name,
            "node.kubernetes.io/instance-type": machine.kind,
            "cloud.google.com/gke-nodepool": machine.pool,
            "topology.kubernetes.io/region": machine.zone.rpartition("-")[0],
            "topology.kubernetes.io/zone": machine.zone,
        }
        room = {
            "cpu": f"{machine.cpu}m",
            "memory": f"{machine.memory // 1024}Ki",
            "pods": "110",
            "ephemeral-storage": "47093746742",
        }
        spec: Json = {"providerID": f"gce://fleet/{machine.zone}/{machine.name}"}
        if machine.gpus:
            room["nvidia.com/gpu"] = str(machine.gpus)
            labels["cloud.google.com/gke-accelerator"] = "nvidia-l4"
            spec["taints"] = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
        item = self.thing("v1", "Node", machine.name, labels=labels, created=self.time(2, 400))
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
        }
        ready |= {"lastHeartbeatTime": self.time(0, 0.02), "lastTransitionTime": item["metadata"]["creationTimestamp"]}
        capacity = {**room, "cpu": str(-(-machine.cpu // 1000))}
        return {**item, "spec": spec, "status": {"capacity": capacity, "allocatable": room, "conditions": [ready]}}

    def daemons(self, name: str, cpu: int, memory: int, machines: list[Machine]) -> Iterator[Json]:
        labels = {"k8s-app": name}
        spec = {
            "containers": [_container(name, cpu, memory * MEBI)],
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "system-node-critical",
            "priority": 2000001000,
        }
        owner = self.thing("apps/v1", "DaemonSet", name, "kube-system", labels=labels)
        yield {**owner, "spec": _template(labels, spec), "status": {"desiredNumberScheduled": len(machines)}}
        for machine in machines:
            yield self.pod(f"{name}-{self.suffix(5)}", "kube-system", labels, spec, owner, machine)

    def load(self, load: Load) -> Iterator[Json]:
        labels = {"app": load.name, "app.kubernetes.io/part-of": load.namespace}
        spec = _pod_spec(load)
        notes = {_SAFE: "true"} if "vouched" in load.traits else {_SAFE: "false"} if "pinned" in load.traits else {}
        owner: Json | None = None
        if load.kind == "ReplicaSet":
            above = self.thing("apps/v1", "Deployment", load.name, load.namespace, labels=labels)
            count = len(load.places)
            replicas = {"replicas": count}
            yield {
                **above,
                "spec": {**replicas, **_template(labels, spec)},
                "status": {**replicas, "readyReplicas": count},
            }
            digest = self.suffix(9)
            labels = {**labels, "pod-template-hash": digest}
            owner = self.thing("apps/v1", "ReplicaSet", f"{load.name}-{digest}", load.namespace, labels=labels)
            owner["metadata"]["ownerReferences"] = [reference(above)]
            yield {
                **owner,
                "spec": {**replicas, **_template(labels, spec)},
                "status": {**replicas, "readyReplicas": count},
            }
        elif load.kind in ("StatefulSet", "Job"):
            version = "apps/v1" if load.kind == "StatefulSet" else "batch/v1"
            owner = self.thing(version, load.kind, load.name, load.namespace, labels=labels)
            counted: Json = {"replicas": len(load.places), "serviceName": load.name}
            if load.kind == "Job":
                counted = {"parallelism": 1, "completions": 1, "backoffLimit": 0}
            yield {**owner, "spec": {**counted, **_template(labels, spec)}, "status": {}}
        for number, machine in enumerate(load.places):
            own, name = spec, load.name
            if load.kind == "StatefulSet" and machine is not None:
                name = f"{load.name}-{number}"
                claim = f"data-{name}"
                yield from self.volume(claim, load.namespace, machine)
                own = {**spec, "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}
            elif owner is not None:
                name = f"{owner['metadata']['name']}-{self.suffix(5)}"
            yield self.pod(name, load.namespace, labels, own, owner, machine, notes)
        if load.traits & {"budget", "never"} and load.places:
            yield self.budget(load)

    def pod(  # noqa: PLR0917
        self, name: str, namespace: str, labels: Json, spec: Json, owner: Json | None, machine: Machine | None,
        notes: Json | None = None,
    ) -> Json:  # fmt: skip
        item = self.thing("v1", "Pod", name, namespace, labels=labels, created=self.time(1, 150))
        meta = item["metadata"]
        if notes:
            meta["annotations"] = notes
        if owner is not None:
            meta["ownerReferences"] = [reference(owner)]
        if machine is None:
            message = "0 nodes are available: insufficient cpu"
            waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            return {**item, "spec": spec, "status": {"phase": "Pending", "conditions": [waits]}}
        since = meta["creationTimestamp"]
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": since} for kind in ("PodScheduled", "Ready")
        ]
        status = {"phase": "Running", "startTime": since, "conditions": conditions}
        return {**item, "spec": {**spec, "nodeName": machine.name}, "status": status}

    def volume(self, claim: str, namespace: str, machine: Machine) -> Iterator[Json]:
        size = {"storage": "50Gi"}
        item = self.thing("v1", "PersistentVolumeClaim", claim, namespace)
        name = f"pvc-{item['metadata']['uid']}"
        common: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "premium-rwo"}
        bound = {**common, "resources": {"requests": size}, "volumeName": name}
        yield {**item, "spec": bound, "status": {"phase": "Bound", "capacity": size}}
        place = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [machine.zone]}
        spec = {
            **common,
            "capacity": size,
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": claim,
                "uid": item["metadata"]["uid"],
            },
            "csi": {"driver": _DRIVER, "volumeHandle": f"projects/fleet/zones/{machine.zone}/disks/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}},
        }
        yield {**self.thing("v1", "PersistentVolume", name), "spec": spec, "status": {"phase": "Bound"}}

    def budget(self, load: Load) -> Json:
        total = len(load.places)
        most = 0 if "never" in load.traits else max(1, total // 4)
        status = {
            "observedGeneration": 1,
            "expectedPods": total,
            "currentHealthy": total,
            "desiredHealthy": max(0, total - most),
            "disruptionsAllowed": min(most, total),
        }
        item = self.thing("policy/v1", "PodDisruptionBudget", load.name, load.namespace, generation=1)
        spec = {"maxUnavailable": most, "selector": {"matchLabels": {"app": load.name}}}
        return {**item, "spec": spec, "status": status}

    def suffix(self, length: int) -> str:
        """Return random letters, as Kubernetes appends to names: others each time."""
        while (drawn := "".join(self.rng.choices("bcdfghjklmnpqrstvwxz2456789", k=length))) in self._drawn:
            pass
        self._drawn.add(drawn)
        return drawn


def _pod_spec(load: Load) -> Json:
    container = _container("main", load.cpu, load.memory)
    spec: Json = {"containers": [container], "restartPolicy": "Never" if load.kind == "Job" else "Always"}
    traits, mine = load.traits, {"matchLabels": {"app": load.name}}
    if "gpu" in traits:
        container["resources"]["requests"]["nvidia.com/gpu"] = "1"
        container["resources"]["limits"] = {"nvidia.com/gpu": "1"}
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    elif "pooled" in traits:
        spec["nodeSelector"] = {"cloud.google.com/gke-nodepool": load.pool}
    if load.rivals or "apart" in traits:
        apart: Json = mine
        if load.rivals:
            apart = {"matchExpressions": [{"key": "app", "operator": "In", "values": list(load.rivals)}]}
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": apart}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if "zones" in traits:
        rule = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
        spec["topologySpreadConstraints"] = [{**rule, "labelSelector": mine}]
    if "scratch" in traits:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    if "system" in traits:
        spec |= {"priorityClassName": "system-cluster-critical", "priority": 2000000000}
    return spec


def _container(name: str, cpu: int, memory: int) -> Json:
    requests = {"cpu": f"{cpu}m", "memory": f"{memory // MEBI}Mi"}
    return {"name": name, "image": f"registry.example.com/{name}:1", "resources": {"requests": requests}}


def _template(labels: Json, spec: Json) -> Json:
    return {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}


def write(items: Iterable[Json], path: Path | None) -> None:
    """Write a List to a file, or to standard output, object by object."""
    encoder = msgspec.json.Encoder()
    with path.open("wb") if path else nullcontext(sys.stdout.buffer) as out:
        out.write(b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[\n')
        for number, item in enumerate(items):
            out.write(b",\n" if number else b"")
            out.write(encoder.encode(item))
        out.write(b"\n]}\n")


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tightship_simulator.generate", description="Make an off-peak cluster."
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--pools", type=int, default=3)
    parser.add_argument("--pods", type=int, help=f"pods left off-peak, about; {PODS_PER_NODE} a node unless given")
    parser.add_argument(
        "--conflicts",
        type=int,
        default=0,
        help="pairs of applications that exclude each other from nodes, in a fleet with little free memory",
    )
    parser.add_argument("-o", "--output", type=Path, help="file to write; standard output unless given")
    chosen = parser.parse_args(arguments)
    made = objects(chosen.seed, chosen.nodes, chosen.pools, pods=chosen.pods, conflicts=chosen.conflicts)
    write(made, chosen.output)


if __name__ == "__main__":
    main()
