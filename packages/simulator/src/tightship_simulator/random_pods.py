"""Pods that ask for anything that a scheduler knows, at random: for :mod:`tightship_simulator.random_clusters`."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]

NAMESPACES = {"red": {"team": "a", "tier": "x"}, "green": {"team": "b"}, "blue": {}}
ZONE, HOST, RACK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "example.com/rack"
_KEYS = (ZONE, ZONE, HOST, HOST, RACK)


class PodMaker:
    """Makes specs of pods. A seed stresses some features more than others."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        # A seed stresses some features more than others; all of them at once would leave nothing feasible.
        self.rate = {
            name: rng.choice((0.0, 0.1, 0.2, 0.4))
            for name in (
                "taint",
                "selector",
                "node-affinity",
                "affinity",
                "anti",
                "spread",
                "ports",
                "extended",
                "shape",
            )
        }
        self.bare = rng.choice((0.0, 0.0, 0.15))  # nodes without some label
        self.apps = [f"app{number}" for number in range(rng.randint(4, 11))]

    def chance(self, name: str) -> bool:
        return self.rng.random() < self.rate[name]

    def pod_spec(self, app: str) -> Json:  # noqa: C901 - one line for each thing a pod can ask
        """Return the spec of a pod of *app*, which has all of its own or some other's labels to ask for."""
        rng = self.rng
        spec: Json = {"containers": [self.container("main")]}
        if self.chance("shape"):
            spec["containers"].append(self.container("second"))
        if self.chance("shape"):
            spec["initContainers"] = [self.container("setup", largest=500)]
            if rng.random() < 0.6:
                sidecar = {**self.container("sidecar"), "restartPolicy": "Always"}
                spec["initContainers"].insert(rng.randint(0, 1), sidecar)
        if self.chance("shape") and rng.random() < 0.5:
            spec["resources"] = {"requests": {"cpu": "900m", "memory": "1Gi"}}
        if self.chance("extended"):
            card = {"example.com/card": "1"}
            resources = spec["containers"][0]["resources"]
            resources["requests"] |= card
            resources["limits"] = card
        if self.chance("ports"):
            spec["containers"][0]["ports"] = [self.port()]
        if rng.random() < 0.7 * (self.rate["taint"] > 0):
            spec["tolerations"] = self.tolerations()
        if self.chance("selector"):
            spec["nodeSelector"] = {"example.com/class": rng.choice(("small", "large"))}
        affinity: Json = {}
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        if self.chance("node-affinity"):
            terms = [self.node_term() for _ in range(rng.randint(1, 2))]
            affinity["nodeAffinity"] = {required: {"nodeSelectorTerms": terms}}
        if self.chance("affinity"):
            terms = [self.pod_term(app, own=0.5) for _ in range(rng.choice((1, 1, 2)))]
            affinity["podAffinity"] = {required: terms}
        if self.chance("anti"):
            terms = [self.pod_term(app, own=0.6) for _ in range(rng.choice((1, 1, 2)))]
            affinity["podAntiAffinity"] = {required: terms}
        if affinity:
            spec["affinity"] = affinity
        if self.chance("spread"):
            keys = rng.sample((ZONE, HOST, RACK), rng.choice((1, 1, 2)))
            spec["topologySpreadConstraints"] = [self.spread(app, key) for key in keys]
        return spec

    def container(self, name: str, largest: int = 350) -> Json:
        rng = self.rng
        requests = {
            "cpu": rng.choice((f"{rng.randint(1, largest)}m", "0.25", "100m", "0.1")),
            "memory": rng.choice((f"{rng.randint(16, 500)}Mi", "100M", "0.25Gi", "123456789")),
        }
        if rng.random() < 0.1:
            requests = {}
        return {"name": name, "image": "registry.example.com/app", "resources": {"requests": requests}}

    def port(self) -> Json:
        rng = self.rng
        port = rng.choice((8080, 8081))
        found: Json = {"containerPort": port, "hostPort": port, "protocol": rng.choice(("TCP", "TCP", "UDP"))}
        if rng.random() < 0.5:
            found["hostIP"] = rng.choice(("0.0.0.0", "127.0.0.1", "10.1.0.1"))  # noqa: S104
        return found

    def tolerations(self) -> list[Json]:
        rng = self.rng
        forms: list[Json] = [
            {"key": "dedicated", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
            {"key": "dedicated", "value": "b"},
            {"key": "dedicated", "operator": "Exists"},
            {"key": "flaky", "operator": "Exists"},
            {"key": "flaky", "operator": "Exists", "effect": "NoExecute"},
            {"key": "flaky", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 86400},
            {"operator": "Exists", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
            {"operator": "Exists"},
        ]
        weights = [10, 10, 10, 10, 6, 6, 4, 1, 1]
        return rng.choices(forms, weights, k=rng.randint(1, 3))

    def node_term(self) -> Json:
        rng = self.rng
        name = rng.choice(("n0", "n1", "n2"))
        if rng.random() < 0.15:
            operator = rng.choice(("In", "NotIn"))
            return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}
        number = rng.choice(("1", "2", "3"))
        forms = [
            {"key": "example.com/class", "operator": "In", "values": ["small", "none"]},
            {"key": "example.com/class", "operator": "NotIn", "values": ["small"]},
            {"key": "example.com/fast", "operator": "Exists"},
            {"key": "example.com/fast", "operator": "DoesNotExist"},
            {"key": "example.com/generation", "operator": "Gt", "values": [number]},
            {"key": "example.com/generation", "operator": "Lt", "values": [number]},
            {"key": ZONE, "operator": "In", "values": ["z1", "z2"]},
        ]
        return {"matchExpressions": rng.sample(forms, rng.choice((1, 1, 2)))}

    def selector(self, app: str, own: float) -> Json:
        rng = self.rng
        if rng.random() < own:
            return {"matchLabels": {"app": app}}
        return rng.choice(
            (
                {"matchLabels": {"app": rng.choice(self.apps)}},
                {"matchLabels": {"part": rng.choice(("front", "back"))}},
                {"matchExpressions": [{"key": "app", "operator": "In", "values": rng.sample(self.apps, 2)}]},
                {"matchExpressions": [{"key": "version", "operator": "NotIn", "values": ["v1"]}]},
                {},
            )
        )

    def pod_term(self, app: str, own: float) -> Json:
        rng = self.rng
        term: Json = {"topologyKey": rng.choice(_KEYS), "labelSelector": self.selector(app, own)}
        spaces = rng.random()
        if spaces < 0.1:
            term["namespaces"] = rng.sample(list(NAMESPACES), 2)
        elif spaces < 0.2:
            term["namespaceSelector"] = {}
        elif spaces < 0.35:
            team = rng.choice(("a", "b"))
            term["namespaceSelector"] = {"matchLabels": {"team": team}}
            if rng.random() < 0.5:
                term["namespaces"] = [rng.choice(list(NAMESPACES))]
        return term

    def spread(self, app: str, key: str) -> Json:
        rng = self.rng
        found: Json = {
            "maxSkew": rng.choice((1, 1, 2, 3)),
            "topologyKey": key,
            "whenUnsatisfiable": rng.choice(("DoNotSchedule", "DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": self.selector(app, own=0.75),
        }
        if found["whenUnsatisfiable"] == "DoNotSchedule" and rng.random() < 0.25:
            found["minDomains"] = rng.randint(1, 4)
        if rng.random() < 0.3:
            found["nodeAffinityPolicy"] = rng.choice(("Honor", "Ignore"))
        if rng.random() < 0.4:
            found["nodeTaintsPolicy"] = rng.choice(("Honor", "Ignore"))
        if rng.random() < 0.15 and "version" not in str(found["labelSelector"]):
            found["matchLabelKeys"] = ["version"]  # the API refuses a key that the selector names as well
        return found
