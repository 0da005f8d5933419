"""Files in place of a cluster that somebody may well write, each wrong in one way, and what is said about it."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

NODE: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "creationTimestamp": "2026-03-01T00:00:00Z"},
    "status": {
        "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "shop"},
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
    "status": {"phase": "Running"},
}
BUDGET: Json = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "b", "namespace": "shop"},
    "spec": {"selector": {}, "minAvailable": 1},
}
HPA: Json = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 9,
    },
}


def changed(thing: Json, path: str, value: Any) -> Json:
    """Return *thing* with *value* at *path*, such as ``spec.containers.0.name``; ``None`` stays ``None``."""
    made = copy.deepcopy(thing)
    *above, last = path.split(".")
    at: Any = made
    for step in above:
        at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
    at[int(last) if isinstance(at, list) else last] = value
    return made


def without(thing: Json, key: str) -> Json:
    return {name: value for name, value in thing.items() if name != key}


def listed(*items: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def beside(*things: Any) -> bytes:
    """A file with *things* beside a good node and a good pod."""
    return listed(NODE, POD, *things)


CPU = "spec.containers.0.resources.requests.cpu"
NOT_A_QUANTITY = "is not a quantity; allowed is"
NODE_AFFINITY = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def terms(operator: str) -> Json:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": operator, "values": ["1"]}]}]}


def many(count: int, thing: Json) -> list[Json]:
    return [changed(thing, "metadata.name", f"p{number}") for number in range(count)]


def laughing(levels: int, width: int = 9) -> bytes:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{number}: &a{number} [{','.join([f'*a{number - 1}'] * width)}]" for number in range(1, levels)]
    return "\n".join([*lines, "kind: List", f"items: *a{levels - 1}", ""]).encode()


def merging(levels: int) -> bytes:
    lines = ["a0: &a0 {k0: v}"]
    lines += [
        f"a{number}: &a{number} {{<<: [{','.join([f'*a{number - 1}'] * 50)}], k{number}: v}}"
        for number in range(1, levels)
    ]
    return "\n".join([*lines, "kind: Node", ""]).encode()


# What cannot be read at all: the same for every controller.
UNREADABLE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is empty"),
    "blanks": (b" \n\t\n", "is empty"),
    "an empty gzip": (gzip.compress(b""), "is empty"),
    "half a gzip": (gzip.compress(listed(NODE))[:-9], "damaged gzip data"),
    "a gzip's first bytes": (b"\x1f\x8b\x08", "damaged gzip data"),
    "JSON cut short": (listed(NODE, POD)[:-30], "not JSON"),
    "JSON with a comma too many": (b'{"kind": "List", "items": [],}', "not JSON"),
    "JSON with a comment": (b'{"kind": "List", // mine\n"items": []}', "not JSON"),
    "JSON with NaN": (b'{"kind": "Node", "metadata": {"name": "n"}, "spec": NaN}', ""),
    "JSON twice, the second broken": (listed(NODE) + b"\n{]", "line 2, column 2: not JSON"),
    "a lone bracket": (b"[", "not JSON"),
    "a deep list": (b"[" * 50_000, "nested too deeply"),
    "deep objects": (b'{"a":' * 50_000, "nested too deeply"),
    "deep YAML lists": (b"- " * 50_000 + b"x\n", "nested too deeply"),
    "deep YAML mappings": (b"a: " + b"{a: " * 50_000 + b"x\n", "nested too deeply"),
    "deep YAML indentation": ("\n".join(" " * n + "a:" for n in range(900)).encode(), "nested too deeply"),
    "aliases of aliases": (laughing(9), "aliases (*) repeat too much"),
    "many more aliases": (laughing(40, 30), "aliases (*) repeat too much"),
    "merge keys of merge keys": (merging(9), "merge keys (<<) repeat too much"),
    "an alias of itself": (b"kind: List\nitems: &a [*a]\n", "an alias (*) contains itself"),
    "an alias of nothing": (b"kind: List\nitems: *a\n", "not YAML"),
    "a tab in YAML": (b"kind: List\nitems:\n\t- a\n", "not YAML"),
    "an open quote in YAML": (b'kind: "List\n', "not YAML"),
    "a Python tag in YAML": (b"!!python/object/apply:os.system ['true']\n", "not YAML"),
    "a key that is a list": (b"? [a, b]\n: c\n", "not YAML"),
    "control characters": (b"kind: \x00\x01\n", "not YAML"),
    "Latin-1": ("kind: Knoten\nname: für\n".encode("latin-1"), "not UTF-8"),
    "broken UTF-16": (b"\xff\xfe{\x00\x00\xd8", "not UTF-16"),
    "an HTML page": (b"<!DOCTYPE html><html><body>Sign in</body></html>", ""),
    "kubectl's error": (b"error: You must be logged in to the server (Unauthorized)\n", "has no kind"),
    "words": (b"hello\n", "not an API object"),
    "a number": (b"7\n", "not an API object"),
    "null": (b"null\n", ""),
    "a list of numbers": (b"[1, 2, 3]", "not an API object"),
    "a kind that is a number": (b'{"kind": 5}', "not an API object"),
    "no kind": (b'{"metadata": {"name": "n"}}', "has no kind"),
    "items that are text": (b'{"kind": "List", "items": "x"}', "not a list of API objects"),
    "items that are an object": (b'{"kind": "List", "items": {}}', "not a list of API objects"),
    "items that are null": (b'{"kind": "List", "items": null}', "holds no"),
    "an empty list": (listed(), "holds no"),
    "a server's Status": (
        b'{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401}',
        "holds no",
    ),
    "ten thousand broken objects": (listed(*[{"kind": 5}] * 10_000), "and 9,980 more"),
}

# Clusters of which something is malformed: for the two controllers of nodes.
MALFORMED: dict[str, tuple[bytes, str]] = {
    "no node": (listed(POD), "holds no Node (only 1 Pod)"),
    "services alone": (listed({"kind": "Service", "apiVersion": "v1"}), "holds no Node (only 1 Service)"),
    "a node without metadata": (beside(without(NODE, "metadata")), "metadata is missing"),
    "a node without a name": (beside(changed(NODE, "metadata", {})), "metadata.name is missing"),
    "a node with an empty name": (beside(changed(NODE, "metadata.name", "")), "metadata.name is empty"),
    "a node whose name is a number": (beside(changed(NODE, "metadata.name", 7)), "metadata.name: 7 is not text"),
    "a node whose labels are a list": (beside(changed(NODE, "metadata.labels", [])), "metadata.labels"),
    "a label that is a number": (
        beside(changed(NODE, "metadata.labels", {"a": 1})),
        'metadata.labels.a: 1 is not text; put the value in quotes: "1"',
    ),
    "an annotation that is true": (
        beside(changed(NODE, "metadata.annotations", {"x/y": True})),
        'metadata.annotations.x/y: true is not text; put the value in quotes: "true"',
    ),
    "a bad creation time": (beside(changed(NODE, "metadata.creationTimestamp", "today")), "metadata.creation"),
    "a time in the year 10000": (
        beside(changed(NODE, "metadata.creationTimestamp", "10000-01-01T00:00:00Z")),
        "metadata.creation",
    ),
    "allocatable that is text": (beside(changed(NODE, "status.allocatable", "4 cores")), "status.allocatable"),
    "allocatable that is words": (beside(changed(NODE, "status.allocatable.cpu", "many")), NOT_A_QUANTITY),
    "allocatable below zero": (beside(changed(NODE, "status.allocatable.memory", "-1")), "zero or more"),
    "allocatable that is true": (beside(changed(NODE, "status.allocatable.cpu", True)), "status.allocatable.cpu: true"),
    "allocatable that is a list": (beside(changed(NODE, "status.allocatable.cpu", [1])), "cpu: a list is not text"),
    "a taint without an effect": (beside(changed(NODE, "spec.taints", [{"key": "a"}])), "effect is missing"),
    "taints that are text": (beside(changed(NODE, "spec.taints", "a=b:NoSchedule")), "spec.taints"),
    "unschedulable that is text": (beside(changed(NODE, "spec.unschedulable", "yes")), "spec.unschedulable"),
    "a pod without a spec": (beside(without(POD, "spec")), "spec is missing"),
    "a pod without a name": (beside(changed(POD, "metadata", {"namespace": "shop"})), "metadata.name is missing"),
    "a pod with an empty name": (beside(changed(POD, "metadata.name", "")), "metadata.name is empty"),
    "containers that are text": (beside(changed(POD, "spec.containers", "none")), "spec.containers"),
    "requests that are words": (beside(changed(POD, CPU, "a lot")), f"{'spec.containers[0].resources'}"),
    "requests with a comma": (beside(changed(POD, CPU, "0,5")), NOT_A_QUANTITY),
    "requests with a space": (beside(changed(POD, CPU, "1 Gi")), NOT_A_QUANTITY),
    "requests in bytes as people say": (beside(changed(POD, CPU, "1GB")), NOT_A_QUANTITY),
    "requests that are empty": (beside(changed(POD, CPU, "")), NOT_A_QUANTITY),
    "requests below zero": (beside(changed(POD, CPU, "-1")), "zero or more"),
    "requests of ten thousand digits": (beside(changed(POD, CPU, "9" * 10_000)), NOT_A_QUANTITY),
    "requests that are null": (beside(changed(POD, CPU, None)), "null is not text"),
    "a priority that is text": (beside(changed(POD, "spec.priority", "high")), "spec.priority"),
    "a grace period of half a second": (
        beside(changed(POD, "spec.terminationGracePeriodSeconds", 0.5)),
        "spec.terminationGracePeriodSeconds",
    ),
    "tolerations that are a number": (beside(changed(POD, "spec.tolerations", 3)), "spec.tolerations: 3 is not a list"),
    "an affinity that is text": (beside(changed(POD, "spec.affinity", "near")), "spec.affinity"),
    "a volume without a name": (beside(changed(POD, "spec.volumes", [{}])), "name is missing"),
    "an owner without a kind": (beside(changed(POD, "metadata.ownerReferences", [{"name": "x"}])), "kind is missing"),
    "a status that is text": (beside(changed(POD, "status", "Running")), "status"),
    "a budget whose selector is text": (beside(changed(BUDGET, "spec.selector", "app=x")), "spec.selector"),
    "a budget that allows text": (beside(changed(BUDGET, "status.disruptionsAllowed", "1")), "disruptionsAllowed"),
    "516 pods, all wrong alike": (listed(NODE, *many(516, changed(POD, CPU, "a lot"))), "and 496 more"),
}

# Clusters that can be planned on, with something that nobody meant.
QUESTIONABLE: dict[str, tuple[bytes, str]] = {
    "a request of 1e30": (listed(NODE, changed(POD, CPU, "1e30")), "requests more cpu than any machine has"),
    "a request of 1E": (listed(NODE, changed(POD, CPU, "1E")), "requests more cpu than any machine has"),
    "a request of 400 nines": (listed(NODE, changed(POD, CPU, "9" * 400)), "requests more cpu than any machine has"),
    "1e300 cores": (beside(changed(NODE, "status.allocatable.cpu", "1e300")), "more cpu than any machine"),
    "memory beyond 64 bits": (
        beside(changed(NODE, "status.allocatable.memory", "99999Ei")),
        "more memory than any machine",
    ),
    "a request without quotes": (listed(NODE, changed(POD, CPU, 1)), ""),
    "a request of 1e30 without quotes": (listed(NODE, changed(POD, CPU, 1e30)), "requests more cpu"),
    "a huge number without quotes": (listed(NODE, changed(POD, CPU, 10**40)), "requests more cpu"),
    "a node twice": (beside(NODE), "Node n1 is more than once in the files: the last one counts"),
    "a pod twice": (beside(POD), "Pod shop/p is more than once"),
    "many pods twice": (
        listed(NODE, *many(50, POD), *many(50, POD)),
        "50 Pods shop/p0, shop/p1, shop/p2 and 47 more are more than once",
    ),
    "a pod on an unknown node": (
        beside(changed(changed(POD, "spec.nodeName", "moon"), "metadata.name", "q")),
        "Pod shop/q is on a node that the files don't have (moon)",
    ),
    "an unknown operator of a node affinity": (
        listed(NODE, changed(POD, NODE_AFFINITY, terms("Bogus"))),
        "unknown operator 'Bogus'",
    ),
    "an unknown operator of a pod's affinity": (
        listed(
            NODE,
            changed(
                POD,
                "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
                [{"topologyKey": "h", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}],
            ),
        ),
        "unknown operator 'Gt'",
    ),
    "an unknown operator of a budget": (
        beside(changed(BUDGET, "spec.selector", {"matchExpressions": [{"key": "a", "operator": "in"}]})),
        "unknown operator 'in'",
    ),
    "a budget of 150%%": (beside(changed(BUDGET, "spec.minAvailable", "150%%")), "minAvailable '150%%' is neither"),
    "a budget of half": (beside(changed(BUDGET, "spec.minAvailable", "half")), "minAvailable 'half' is neither"),
    "a budget with both rules": (beside(changed(BUDGET, "spec.maxUnavailable", 1)), "has both"),
    "a thousand bad budgets": (
        beside(*many(1000, changed(BUDGET, "spec.minAvailable", "x"))),
        "997 more contradictions",
    ),
    "nodes without pods": (listed(NODE), "Pods are not in the file: every node looks empty"),
    "a node of the year 1": (beside(changed(NODE, "metadata.creationTimestamp", "0001-01-01T00:00:00Z")), ""),
    "a node of the year 9999": (beside(changed(NODE, "metadata.creationTimestamp", "9999-12-31T23:59:59Z")), ""),
    "a heartbeat that is no time": (
        beside(changed(NODE, "status.conditions.0.lastHeartbeatTime", "soon")),
        "",
    ),
    "a disruption count beyond 32 bits": (beside(changed(BUDGET, "status.disruptionsAllowed", 2**40)), ""),
    "a priority beyond 64 bits": (listed(NODE, changed(POD, "spec.priority", 10**30)), ""),
    "a port beyond 64 bits": (
        listed(NODE, changed(POD, "spec.containers.0.ports", [{"hostPort": 10**20}])),
        "",
    ),
    "a name with a line end": (beside(changed(NODE, "metadata.name", "a\nb")), ""),
    "a name that steers a terminal": (beside(changed(NODE, "metadata.name", "\x1b[31mred")), ""),
    "a name of ten thousand letters": (beside(changed(NODE, "metadata.name", "n" * 10_000)), ""),
}

# Files of HPAs.
Change = Callable[[Json], Json]


def hpa(path: str, value: Any) -> bytes:
    return listed(HPA, changed(changed(HPA, "metadata.name", "bad"), path, value))


BAD_HPAS: dict[str, tuple[bytes, str]] = {
    "nodes alone": (listed(NODE), "holds no HorizontalPodAutoscaler (only 1 Node)"),
    "an HPA of another group": (
        listed({**HPA, "apiVersion": "example.com/v1"}),
        "holds no HorizontalPodAutoscaler",
    ),
    "an HPA without a target": (hpa("spec", {"maxReplicas": 5}), "spec.scaleTargetRef is missing"),
    "an HPA without a maximum": (hpa("spec.maxReplicas", None), "spec.maxReplicas"),
    "a minimum that is text": (hpa("spec.minReplicas", "two"), "spec.minReplicas"),
    "a minimum of 2.5": (hpa("spec.minReplicas", 2.5), "spec.minReplicas"),
    "a target that is text": (hpa("spec.scaleTargetRef", "web"), "spec.scaleTargetRef"),
    "a target without a name": (hpa("spec.scaleTargetRef", {"kind": "Deployment"}), "name is missing"),
    "an empty HPA name": (hpa("metadata.name", ""), "metadata.name is empty"),
    "an annotation that is 5": (
        hpa("metadata.annotations", {"estafette.io/hpa-scaler": 5}),
        'annotations.estafette.io/hpa-scaler: 5 is not text; put the value in quotes: "5"',
    ),
    "a behaviour that is a list": (hpa("spec.behavior", []), "spec.behavior"),
    "a status that is a number": (hpa("status", 5), "status"),
    "60 HPAs, all wrong alike": (listed(*many(60, changed(HPA, "spec.minReplicas", "x"))), "and 40 more"),
}
