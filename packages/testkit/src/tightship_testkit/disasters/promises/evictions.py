"""Which pods are evicted, and which never."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from tightship_simulator.api.store import Change
from tightship_simulator.labels import selects
from tightship_testkit.disasters.promises.base import Asked, Eviction, Json, Promise
from tightship_testkit.disasters.promises.reading import (
    controller,
    cordoned,
    daemon,
    deletes,
    holder_of,
    leaving,
    node_opts_out,
    owned,
    pod_opts_out,
    ready,
    requests,
    room,
)
from tightship_testkit.disasters.registry import promise
from tightship_testkit.disasters.world import RECOVERY

NOTICED = 2.5
"""Seconds after which a controller whose watches are well has seen a change."""


@promise
class WithinPodBudgets(Promise):
    """After each eviction as many pods are healthy as every PodDisruptionBudget wants, counted from the pods."""

    name = "within-pod-budgets"
    text = "No eviction violates a PodDisruptionBudget, unless you ask for it."

    def evicted(self, eviction: Eviction) -> None:
        team = self.world.team(eviction.program)
        if team is not None and any(map(deletes, team.recent(self.world.now))):
            return
        pod = eviction.pod
        if (pod.get("status") or {}).get("phase") in ("Pending", "Succeeded", "Failed"):
            return
        store, namespace = self.world.store, pod["metadata"]["namespace"]
        for budget in store.list("PodDisruptionBudget", namespace):
            if not selects(budget["spec"].get("selector"), pod["metadata"].get("labels") or {}):
                continue
            if self._unhealthy_may_go(budget, pod):
                continue
            healthy, desired = self._counted(budget, namespace)
            if healthy < desired:
                name = budget["metadata"]["name"]
                detail = f"{healthy} healthy pods are left, {desired} must be ({budget['spec']})"
                self.broken(f"Pod {eviction.name}", f"{eviction.by} evicted it past {name}: {detail}")

    def _counted(self, budget: Json, namespace: str) -> tuple[int, int]:
        """Return how many pods of *budget* are healthy, and how many must be."""
        spec = budget["spec"]
        pods = [
            each
            for each in self.world.store.list("Pod", namespace)
            if selects(spec.get("selector"), each["metadata"].get("labels") or {})
        ]
        wanted = {}
        for pod in pods:
            owner = controller(pod)
            found = self._scaled(owner, namespace) if owner is not None else None
            if found is not None:
                wanted[found["metadata"]["uid"]] = int(found["spec"].get("replicas", 1))
        expected = sum(wanted.values())
        if "maxUnavailable" in spec:
            desired = max(0, expected - _share(spec["maxUnavailable"], expected))
        else:
            desired = _share(spec.get("minAvailable", 1), expected)
        return sum(ready(each) and not leaving(each) for each in pods), desired

    def _scaled(self, owner: Json, namespace: str) -> Json | None:
        """Return the workload that says how many pods *owner* has."""
        if owner["kind"] not in ("ReplicaSet", "StatefulSet"):
            return None
        found = self.world.store.find(owner["kind"], owner["name"], namespace)
        above = controller(found) if found is not None else None
        if above is not None and above["kind"] == "Deployment":
            return self.world.store.find("Deployment", above["name"], namespace) or found
        return found

    def _unhealthy_may_go(self, budget: Json, pod: Json) -> bool:
        return not ready(pod) and budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"


def _share(value: object, total: int) -> int:
    """Return a number, or a percentage of *total* rounded up."""
    text = str(value)
    return math.ceil(float(text[:-1]) * total / 100) if text.endswith("%") else int(text)


@promise
class NotEvictedTwice(Promise):
    """No eviction is asked for by who has heard that it was granted, or must have seen that the pod goes."""

    name = "not-evicted-twice"
    text = "No pod is evicted twice, not even by a successor after a crash, or with the answer lost on the way."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._granted: dict[str, list[Asked]] = {}

    def asked(self, request: Asked) -> None:
        if request.subresource != "eviction" or request.code != 201 or request.dry_run:
            return
        options = msgspec.json.decode(request.body).get("deleteOptions") or {}
        uid = (options.get("preconditions") or {}).get("uid")
        if not uid:
            self.broken(f"Pod {request.name}", f"{request.by} evicted whatever pod has this name: without its uid")
            return
        if "gracePeriodSeconds" in options:
            self.broken(f"Pod {request.name}", f"{request.by} evicted it with another grace period than its own")
        for before in self._granted.get(uid, ()):
            heard = before.by == request.by and not before.met
            seen = before.by != request.by and not self.world.blind(request.by, before.at)
            if (heard or seen) and request.at > before.done + NOTICED:
                detail = f"{before.by} had evicted it {request.at - before.at:.1f} s before"
                self.broken(f"Pod {request.name}", f"{request.by} evicted it again: {detail}")
        self._granted.setdefault(uid, []).append(request)

    def changed(self, change: Change, author: str) -> None:
        if author == "etcd" and change.object["kind"] == "Pod":
            self._granted.pop(change.object["metadata"]["uid"], None)


@promise
class OptOutsRespected(Promise):
    """No pod is evicted that opts out, and none of a node that does, from a few seconds after that was written."""

    name = "opt-outs-respected"
    text = "No pod that opts out, and no node that does, also when the annotation appears half way."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._since: dict[tuple[str, str], float] = {}

    def changed(self, change: Change, author: str) -> None:
        del author
        kind = change.object["kind"]
        if kind not in ("Node", "Pod"):
            return
        opts_out = node_opts_out if kind == "Node" else pod_opts_out
        key = kind, change.object["metadata"]["uid"]
        if change.type != "DELETED" and opts_out(change.object):
            self._since.setdefault(key, self.world.now)
        else:
            self._since.pop(key, None)

    def evicted(self, eviction: Eviction) -> None:
        self._look(eviction, "Pod", eviction.pod, pod_opts_out(eviction.pod))
        if eviction.node is not None:
            self._look(eviction, "Node", eviction.node, node_opts_out(eviction.node))

    def _look(self, eviction: Eviction, kind: str, thing: Json, by: str) -> None:
        since = self._since.get((kind, thing["metadata"]["uid"]))
        if not by or since is None or eviction.sent <= since + NOTICED:
            return
        if self.world.blind(eviction.by, since):
            return
        began = self.world.began_at(eviction.op)
        when = "in mid-drain" if began is not None and began < since else "before its drain"
        name = f"{kind} {thing['metadata']['name']}"
        detail = f"it opts out by {by} since {eviction.sent - since:.1f} s, {when}"
        self.broken(name, f"{eviction.by} evicted {eviction.name}: {detail}")


@promise
class OnlyFromNodesInDrain(Promise):
    """A pod is evicted only from a node that says so: in phase Evicting, driven by who evicts."""

    name = "only-from-nodes-in-drain"
    text = "Who is responsible, and since when, stands on the node before anything is done to it."

    def evicted(self, eviction: Eviction) -> None:
        node = eviction.node
        if node is None:
            return
        record = owned(node)
        # A write of others may have come between the sending and the carrying out.
        if record.get("phase") == "Evicting" and holder_of(record) == eviction.by:
            return
        # Who met a fault may have seen what became of the node only now.
        late = RECOVERY if self.world.blind(eviction.by, eviction.sent - NOTICED) else NOTICED
        recent = self.world.records(node["metadata"]["name"], eviction.sent - late)
        if any(each.get("phase") == "Evicting" and holder_of(each) == eviction.by for each in recent):
            return
        detail = f"{record.get('phase', 'no drain')} of {holder_of(record) or 'nobody'}"
        place = node["metadata"]["name"]
        self.broken(f"Pod {eviction.name}", f"{eviction.by} evicted it from {place}, which is {detail}")


_ROUNDING = 1e-6
"""Cores that sums of binary fractions may be off by."""


@promise
class SomewhereToGo(Promise):
    """When a pod is evicted, or a little before, another node has room for its requests."""

    name = "somewhere-to-go"
    text = "No pod is evicted that has nowhere to go."
    judged = 20.0
    """Seconds for which a verdict on where the rest could go holds."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rooms: list[tuple[float, dict[str, tuple[float, float, float]]]] = []
        self._version = 0
        self._last: dict[str, tuple[float, float, float]] = {}

    def passed(self) -> None:
        now, version = self.world.now, self.world.store.changed(("Node", "Pod"))
        if version != self._version:
            # What there was until now held until now.
            self._rooms = [each for each in self._rooms if each[0] > now - self.judged]
            self._rooms.append((now, self._last))
            self._version, self._last = version, self._free()

    def evicted(self, eviction: Eviction) -> None:
        pod = eviction.pod
        if "nodeSelector" in pod["spec"] or "affinity" in pod["spec"] or self.world.blind(eviction.by, 0.0):
            return
        place = pod["spec"].get("nodeName", "")
        cpu, memory = requests(pod)
        for _, rooms in (*self._rooms, (0.0, self._last), (0.0, self._free())):
            for name, (free_cpu, free_memory, free_pods) in rooms.items():
                if name != place and free_cpu >= cpu - _ROUNDING and free_memory >= memory and free_pods >= 1:
                    return
        self.broken(f"Pod {eviction.name}", f"{eviction.by} evicted it, and no other node has room for it")

    def _free(self) -> dict[str, tuple[float, float, float]]:
        found = {}
        store = self.world.store
        for node in store.list("Node"):
            if not cordoned(node) and ready(node) and not leaving(node):
                found[node["metadata"]["name"]] = room(node)
        for pod in store.list("Pod"):
            place = pod["spec"].get("nodeName", "")
            if place in found and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                cpu, memory, pods = found[place]
                asked = requests(pod)
                found[place] = (cpu - asked[0], memory - asked[1], pods - 1)
        return found


@promise
class NoEvictionLoop(Promise):
    """Within one drain no more pods of an owner are evicted than it has had replicas."""

    name = "no-eviction-loop"
    text = "A pod that is evicted is gone from its node: none of one owner goes again and again in one drain."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._gone: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._replicas: Counter[str] = Counter()

    def changed(self, change: Change, author: str) -> None:
        del author
        if change.object["kind"] in ("ReplicaSet", "StatefulSet"):
            uid, wanted = change.object["metadata"]["uid"], int(change.object["spec"].get("replicas", 1))
            self._replicas[uid] = max(self._replicas[uid], wanted)

    def evicted(self, eviction: Eviction) -> None:
        owner = controller(eviction.pod)
        if owner is None or daemon(eviction.pod) or not eviction.op:
            return
        # One that an etcd without its last second has brought back is not another one.
        gone = self._gone[eviction.op, owner["uid"]]
        gone.add(eviction.pod["metadata"]["uid"])
        most = self._replicas[owner["uid"]]
        if len(gone) > most:
            pinned = self._pinned(owner, eviction.pod)
            detail = f"pod {len(gone)} of {owner['kind']} {owner['name']} in one drain, it has {most} replicas"
            self.broken(f"{owner['kind']} {owner['name']}", f"{eviction.by} evicted {eviction.name}, {detail}{pinned}")

    def _pinned(self, owner: Mapping[str, Any], pod: Json) -> str:
        found = self.world.store.find(owner["kind"], owner["name"], pod["metadata"]["namespace"])
        spec = ((found or {}).get("spec") or {}).get("template", {}).get("spec", {})
        return "; its template names the node" if spec.get("nodeName") else ""
