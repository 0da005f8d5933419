"""A cluster of raw API objects in which pods are tried on nodes, moved and taken away.

The rules are kube-scheduler's filters in the plainest form: no index, no cache of domains, every count made anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from tightship_simulator import amounts, labels

Json = dict[str, Any]

CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
DRAINING = {"key": "tightship.dev/draining", "value": "any", "effect": "NoSchedule"}
FINISHED = ("Succeeded", "Failed")


class World:
    """Nodes and the pods on them. A pod's key is ``namespace/name``; ``""`` as its node means unbound."""

    def __init__(self, cluster: Mapping[str, Any]) -> None:
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.budgets: list[Json] = []
        self.namespaces: dict[str, labels.Labels] = {}
        self.on_node: dict[str, dict[str, Json]] = defaultdict(dict)
        self.node_of: dict[str, str] = {}
        self._taints: dict[str, list[Json]] = {}
        self._used: dict[str, amounts.Amounts] = {}
        self._with_anti: dict[str, Json] = {}
        for item in cluster["items"]:
            name = item["metadata"]["name"]
            match item["kind"]:
                case "Node":
                    self.nodes[name] = {**item, "spec": dict(item.get("spec") or {})}
                    self._taints[name] = list(item.get("spec", {}).get("taints") or [])
                case "Namespace":
                    self.namespaces[name] = item["metadata"].get("labels") or {}
                case "PodDisruptionBudget":
                    self.budgets.append(item)
                case "Pod" if item.get("status", {}).get("phase") not in FINISHED:
                    self.add(item, item["spec"].get("nodeName") or "")

    def add(self, pod: Json, node: str) -> None:
        """Put a pod on a node."""
        key = key_of(pod)
        self.pods[key] = pod
        self.node_of[key] = node
        self.on_node[node][key] = pod
        self._used.pop(node, None)
        if _terms(pod, "podAntiAffinity"):
            self._with_anti[key] = pod

    def remove(self, key: str) -> Json:
        """Take a pod away and return it."""
        node = self.node_of.pop(key)
        del self.on_node[node][key]
        self._used.pop(node, None)
        self._with_anti.pop(key, None)
        return self.pods.pop(key)

    def cordon(self, node: str) -> None:
        """Cordon a node as a drain does, with the taints that go with it; it stays as a topology domain."""
        self.nodes[node]["spec"]["unschedulable"] = True
        self._taints[node] += [CORDON, DRAINING]

    def drop(self, node: str) -> None:
        """Take a node away for good, with what is left on it."""
        for key in list(self.on_node[node]):
            self.remove(key)
        del self.nodes[node], self._taints[node], self.on_node[node]

    def used(self, node: str) -> amounts.Amounts:
        """Return the sum of what the node's pods take."""
        if node not in self._used:
            total: amounts.Amounts = defaultdict(Fraction)
            for pod in self.on_node[node].values():
                for name, amount in amounts.requests(pod).items():
                    total[name] += amount
            self._used[node] = total
        return self._used[node]

    def overcommitted(self) -> list[str]:
        """Return what any node has given away more of than it has."""
        found = []
        for name, node in self.nodes.items():
            room = amounts.allocatable(node)
            for resource, amount in self.used(name).items():
                if amount > room.get(resource, 0):
                    found.append(f"{name}: {resource} {float(amount)} of {float(room.get(resource, Fraction(0)))}")
        return found

    def why_not(self, pod: Json, node: str) -> str:
        """Return why the pod, not counted anywhere yet, can't go to the node now; empty when it can."""
        item = self.nodes.get(node)
        if item is None:
            return "no such node"
        if item.get("spec", {}).get("unschedulable") or not ready(item):
            return "node takes no pods"
        taint = labels.intolerable(pod, self._taints[node])
        if taint:
            return f"untolerated taint {taint}"
        if not labels.node_selected(pod, item):
            return "node selector or affinity"
        room, used = amounts.allocatable(item), self.used(node)
        for name, amount in amounts.requests(pod).items():
            if amount and amount + used.get(name, 0) > room.get(name, 0):
                return f"insufficient {name}"
        return (
            self._ports(pod, node)
            or self._anti_affinity(pod, item)
            or self._affinity(pod, item)
            or self._spread(pod, item)
        )

    def feasible(self, pod: Json) -> list[str]:
        """Return the nodes the pod can go to now."""
        return [name for name in self.nodes if not self.why_not(pod, name)]

    def _ports(self, pod: Json, node: str) -> str:
        wanted = host_ports(pod)
        if not wanted:
            return ""
        for other in self.on_node[node].values():
            for ip, protocol, port in host_ports(other):
                for my_ip, my_protocol, my_port in wanted:
                    same_ip = ip == my_ip or "0.0.0.0" in (ip, my_ip)  # noqa: S104
                    if same_ip and (protocol, port) == (my_protocol, my_port):
                        return f"host port {port} taken by {key_of(other)}"
        return ""

    def _matches(self, term: Json, holder: Json, other: Json) -> bool:
        """Whether *other* is among the pods that a term of *holder* speaks of."""
        namespace = other["metadata"]["namespace"]
        named, by_label = term.get("namespaces") or [], term.get("namespaceSelector")
        if not named and by_label is None:
            inside = namespace == holder["metadata"]["namespace"]
        else:
            # An empty selector speaks of every namespace, also of one that the file does not list.
            inside = namespace in named or (
                by_label is not None
                and (labels.blank(by_label) or labels.selects(by_label, self.namespaces.get(namespace, {})))
            )
        theirs = other["metadata"].get("labels") or {}
        if not inside or not labels.selects(term.get("labelSelector"), theirs):
            return False
        mine = holder["metadata"].get("labels") or {}
        return all(theirs.get(key) == mine[key] for key in term.get("matchLabelKeys") or [] if key in mine)

    def _domain(self, node: str, key: str) -> str | None:
        value: str | None = (self.nodes[node]["metadata"].get("labels") or {}).get(key)
        return value

    def _anti_affinity(self, pod: Json, node: Json) -> str:
        name = node["metadata"]["name"]
        for term in _terms(pod, "podAntiAffinity"):
            domain = self._domain(name, term["topologyKey"])
            if domain is None:
                continue
            for key, other in self.pods.items():
                at = self.node_of[key]
                if (
                    at in self.nodes
                    and self._domain(at, term["topologyKey"]) == domain
                    and self._matches(term, pod, other)
                ):
                    return f"its anti-affinity against {key}"
        for key, other in self._with_anti.items():
            at = self.node_of[key]
            if at not in self.nodes:
                continue
            for term in _terms(other, "podAntiAffinity"):
                domain = self._domain(name, term["topologyKey"])
                same = domain is not None and self._domain(at, term["topologyKey"]) == domain
                if same and self._matches(term, other, pod):
                    return f"anti-affinity of {key} against it"
        return ""

    def _affinity(self, pod: Json, node: Json) -> str:
        terms = _terms(pod, "podAffinity")
        if not terms:
            return ""
        name = node["metadata"]["name"]
        if any(self._domain(name, term["topologyKey"]) is None for term in terms):
            return "node lacks a topology key of its affinity"
        companions = [
            self.node_of[key]
            for key, other in self.pods.items()
            if self.node_of[key] in self.nodes and all(self._matches(term, pod, other) for term in terms)
        ]
        if all(
            any(self._domain(at, term["topologyKey"]) == self._domain(name, term["topologyKey"]) for at in companions)
            for term in terms
        ):
            return ""
        counted = any(self._domain(at, term["topologyKey"]) is not None for at in companions for term in terms)
        if not counted and all(self._matches(term, pod, pod) for term in terms):
            return ""  # it starts the group
        return "no pod of its affinity is near"

    def _spread(self, pod: Json, node: Json) -> str:
        constraints = [
            each
            for each in pod["spec"].get("topologySpreadConstraints") or []
            if each["whenUnsatisfiable"] == "DoNotSchedule"
        ]
        keys = [each["topologyKey"] for each in constraints]
        here = node["metadata"].get("labels") or {}
        for constraint in constraints:
            key = constraint["topologyKey"]
            if key not in here:
                return f"node lacks topology key {key}"
            counts: dict[str, int] = {}
            for name, other in self.nodes.items():
                there = other["metadata"].get("labels") or {}
                if any(each not in there for each in keys):
                    continue
                if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not labels.node_selected(pod, other):
                    continue
                if constraint.get("nodeTaintsPolicy") == "Honor" and labels.intolerable(pod, self._taints[name]):
                    continue
                held = sum(self._counted(constraint, pod, each) for each in self.on_node[name].values())
                counts[there[key]] = counts.get(there[key], 0) + held
            least = min(counts.values(), default=0)
            if len(counts) < (constraint.get("minDomains") or 1):
                least = 0
            itself = 1 if _chosen(constraint, pod, pod) else 0
            if counts.get(here[key], 0) + itself - least > constraint["maxSkew"]:
                return f"topology spread over {key}"
        return ""

    def _counted(self, constraint: Json, pod: Json, other: Json) -> bool:
        if other["metadata"].get("deletionTimestamp") or other["metadata"]["namespace"] != pod["metadata"]["namespace"]:
            return False
        keys = [key for key in constraint.get("matchLabelKeys") or [] if key in (pod["metadata"].get("labels") or {})]
        selector = constraint.get("labelSelector")
        if selector is not None and labels.blank(selector) and not keys:
            return False  # the scheduler counts nothing for a selector without requirements
        return _chosen(constraint, pod, other)


def _chosen(constraint: Json, pod: Json, other: Json) -> bool:
    theirs = other["metadata"].get("labels") or {}
    mine = pod["metadata"].get("labels") or {}
    if not labels.selects(constraint.get("labelSelector"), theirs):
        return False
    return all(theirs.get(key) == mine[key] for key in constraint.get("matchLabelKeys") or [] if key in mine)


def _terms(pod: Json, which: str) -> list[Json]:
    terms: list[Json] = ((pod["spec"].get("affinity") or {}).get(which) or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or []
    return terms


def host_ports(pod: Json) -> list[tuple[str, str, int]]:
    """Return (IP, protocol, port) of each host port the pod holds while it runs."""
    running: Iterable[Json] = [
        *pod["spec"]["containers"],
        *(each for each in pod["spec"].get("initContainers") or [] if each.get("restartPolicy") == "Always"),
    ]
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])  # noqa: S104
        for container in running
        for port in container.get("ports") or []
        if port.get("hostPort")
    ]


def ready(node: Json) -> bool:
    """Whether the node's Ready condition is True."""
    conditions = node.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def key_of(pod: Json) -> str:
    """``namespace/name``."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
