"""Controllers that open budgets after a cordon, as their sources do it. Pure.

Azure/eviction-autoscaler: ``internal/controller/node_reconciler.go``, ``evictionautoscaler_controller.go``
(``handleBlockedDrain``), ``hpa_surge_applier.go``. CloudNativePG: ``internal/controller/replicas.go``
(``setPrimaryOnSchedulableNode``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tightship_simulator.api.budgets import matches
from tightship_simulator.life.changes import Change, Json, Look, Patch, key_of, leaving, ready

Key = tuple[str, str]

SURGE = "evictionSurgeReplicas"
ORIGINAL = "eviction-autoscaler.azure.com/original-min-replicas"


def _cordoned(look: Look) -> set[str]:
    return {node["metadata"]["name"] for node in look("Node") if node["spec"].get("unschedulable")}


def _running(look: Look, namespace: str) -> Iterable[Json]:
    return (pod for pod in look("Pod") if key_of(pod)[0] == namespace and not leaving(pod))


class EvictionAutoscaler:
    """Surges the target of each budget of its own that allows nothing, while pods of it are on cordoned nodes.

    A surge is as many replicas as there are such pods, *most* at once. It is taken back once the budget allows
    evictions and no pod of it has been on a cordoned node for *cooldown* seconds. The annotation ``target`` of the
    budget names the Deployment, or a ReplicaSet where there is none; its HPA is surged too. While *dead*, nothing
    happens.
    """

    def __init__(self, cooldown: float = 60.0, most: int = 100) -> None:
        self.due = math.inf
        self.dead = False
        self.surges: list[tuple[str, int]] = []
        """Each surge: its target and the replicas."""
        self._cooldown, self._most = cooldown, most
        self._signalled: dict[Key, float] = {}

    def step(self, look: Look, now: float, at: str) -> list[Change]:
        """Return what becomes of targets and HPAs at *now* (seconds)."""
        del at
        self.due, cordoned, changes = math.inf, _cordoned(look), list[Change]()
        for budget in () if self.dead else look("PodDisruptionBudget"):
            meta, key = budget["metadata"], key_of(budget)
            notes = meta.get("annotations") or {}
            if notes.get("ownedBy") != "EvictionAutoScaler":
                continue
            mine = [pod for pod in _running(look, key[0]) if matches(budget, pod)]
            displaced = sum(pod["spec"].get("nodeName") in cordoned for pod in mine)
            if displaced and now >= self._signalled.get(key, -math.inf) + self._cooldown:
                self._signalled[key] = now
            target = _named(look, key[0], notes.get("target", ""))
            if key not in self._signalled or target is None:
                continue
            if not (budget.get("status") or {}).get("disruptionsAllowed"):
                changes += self._surge(look, target, min(displaced, self._most))
            elif now >= self._signalled[key] + self._cooldown:
                changes += _reverted(look, target)
                del self._signalled[key]
                continue
            self.due = min(self.due, self._signalled[key] + self._cooldown)
        return changes

    def _surge(self, look: Look, target: Json, displaced: int) -> list[Change]:
        scaler = _scaler(look, target)
        marked = target if scaler is None else scaler
        notes = marked["metadata"].get("annotations") or {}
        floor = target["spec"]["replicas"] if scaler is None else scaler["spec"].get("minReplicas", 1)
        baseline = int(notes.get(ORIGINAL, floor))
        replicas = baseline + displaced
        if target["spec"]["replicas"] >= replicas:
            return []
        self.surges.append((target["metadata"]["name"], replicas))
        meta: Json = {"annotations": {SURGE: str(replicas), ORIGINAL: str(baseline)}}
        if scaler is None:
            return [Patch(target, {"metadata": meta, "spec": {"replicas": replicas}})]
        return [
            Patch(scaler, {"metadata": meta, "spec": {"minReplicas": replicas}}),
            Patch(target, {"spec": {"replicas": replicas}}),
        ]


def _named(look: Look, namespace: str, name: str) -> Json | None:
    found = (each for kind in ("Deployment", "ReplicaSet") for each in look(kind) if key_of(each) == (namespace, name))
    return next(found, None)


def _scaler(look: Look, target: Json) -> Json | None:
    namespace, name = key_of(target)
    return next(
        (
            each
            for each in look("HorizontalPodAutoscaler")
            if key_of(each)[0] == namespace and each["spec"]["scaleTargetRef"]["name"] == name
        ),
        None,
    )


def _reverted(look: Look, target: Json) -> list[Change]:
    scaler = _scaler(look, target)
    marked, field = (target, "replicas") if scaler is None else (scaler, "minReplicas")
    notes = marked["metadata"].get("annotations") or {}
    if SURGE not in notes:
        return []
    merge = {"metadata": {"annotations": {SURGE: None, ORIGINAL: None}}, "spec": {field: int(notes[ORIGINAL])}}
    return [Patch(marked, merge)]


class PrimaryMover:
    """Gives the role of a database's primary on a cordoned node to a Ready replica on another one.

    *group* is the label that names the database, *role* the one that has ``replica`` or *primary*. The role moves
    *takes* seconds after the cordon. While *dead*, nothing happens.
    """

    def __init__(
        self, group: str = "cnpg.io/cluster", role: str = "role", primary: str = "primary", takes: float = 3.0
    ) -> None:
        self.due = math.inf
        self.dead = False
        self.moved: list[str] = []
        """The databases that got another primary, each time."""
        self._group, self._role, self._primary, self._takes = group, role, primary, takes
        self._began: dict[Key, float] = {}

    def step(self, look: Look, now: float, at: str) -> list[Change]:
        """Return the pods that change their role at *now* (seconds)."""
        del at
        self.due, cordoned, changes = math.inf, _cordoned(look), list[Change]()
        pods = {key_of(pod): pod for pod in look("Pod") if self._group in (pod["metadata"].get("labels") or {})}
        for (namespace, _), pod in () if self.dead else pods.items():
            labels = pod["metadata"]["labels"]
            key = (namespace, labels[self._group])
            if labels.get(self._role) != self._primary or pod["spec"].get("nodeName") not in cordoned:
                continue
            when = self._began.setdefault(key, now) + self._takes
            if now < when:
                self.due = min(self.due, when)
                continue
            heirs = (each for (space, _), each in pods.items() if space == namespace and each is not pod)
            heir = next((each for each in heirs if self._fit(each, key[1], cordoned)), None)
            if heir is not None:
                del self._began[key]
                changes += [self._becomes(heir, self._primary), self._becomes(pod, "replica")]
                self.moved.append(key[1])
        return changes

    def _fit(self, pod: Json, group: str, cordoned: set[str]) -> bool:
        same = pod["metadata"]["labels"][self._group] == group
        return same and ready(pod) and not leaving(pod) and pod["spec"].get("nodeName") not in cordoned

    def _becomes(self, pod: Json, role: str) -> Change:
        return Patch(pod, {"metadata": {"labels": {self._role: role}}})


__all__ = ["EvictionAutoscaler", "PrimaryMover"]
