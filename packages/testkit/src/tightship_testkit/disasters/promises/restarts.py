"""Deployments that drains move by their own rollout."""

from __future__ import annotations

from typing import Any

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.promises.base import Eviction, Json, Promise, ours
from tightship_testkit.disasters.promises.reading import drain_of, leaving, ready
from tightship_testkit.disasters.registry import promise
from tightship_testkit.disasters.restarting import MARK

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"


@promise
class NeverWithoutAReadyPod(Promise):
    """No eviction takes the last Ready pod of a Deployment that asks for a restart instead."""

    name = "never-without-a-ready-pod"
    text = "With `makeBeforeBreak`, a drain evicts no pod of a marked Deployment that has no other Ready one."
    noticed = 2.5
    """Seconds after which a controller has seen that another pod is Ready no more."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lost: dict[str, float] = {}

    def changed(self, change: Change, author: str) -> None:
        thing, before = change.object, change.previous
        if thing["kind"] != "Pod" or before is None or not _counts(before):
            return
        if (change.type == "DELETED" or not _counts(thing)) and not ours(author):
            self._lost[_app(thing)] = self.world.now

    def evicted(self, eviction: Eviction) -> None:
        pod, world = eviction.pod, self.world
        app = _app(pod)
        deployment = world.store.find("Deployment", app, pod["metadata"]["namespace"])
        if deployment is None or (deployment["metadata"].get("annotations") or {}).get(MARK) != "true":
            return
        if not ready(pod) or world.blind(eviction.by, 0.0) or world.now - self._lost.get(app, -1e9) < self.noticed:
            return
        others = [
            each
            for each in world.store.list("Pod", pod["metadata"]["namespace"])
            if _app(each) == app and each["metadata"]["uid"] != pod["metadata"]["uid"] and _counts(each)
        ]
        if not others:
            self.broken(f"Pod {eviction.name}", f"{eviction.by} evicted the last Ready pod of Deployment {app}")


@promise
class RestartedOnce(Promise):
    """A controller changes one annotation of a Deployment's template, once for a drain, and during no other rollout."""

    name = "restarted-once"
    text = "A drain restarts a Deployment once, and never while another rollout is under way."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._restarts: set[tuple[str, str]] = set()

    def changed(self, change: Change, author: str) -> None:
        thing, before = change.object, change.previous
        if author == "etcd":
            self._restarts.clear()  # what etcd has lost may be written once more
        if thing["kind"] != "Deployment" or not ours(author) or before is None:
            return
        name = thing["metadata"]["name"]
        at = _restarted_at(thing)
        if _without(before) != _without(thing) or at is None:
            self.broken(f"Deployment {name}", f"{author} changed more than its annotation {RESTARTED_AT}")
        if at == _restarted_at(before):
            return
        drains = [
            str(record["op"])
            for record in map(drain_of, self.world.store.list("Node"))
            if record.get("op") and record.get("since", {}).get("Claimed") == at
        ]
        if not drains:
            self.broken(f"Deployment {name}", f"{author} restarted it at {at}, when no drain began")
        for op in drains:
            if (name, op) in self._restarts:
                self.broken(f"Deployment {name}", f"{author} restarted it twice for drain {op}")
            self._restarts.add((name, op))
        status = before.get("status") or {}
        wanted = before["spec"].get("replicas", 1)
        counts = {status.get(each, 0) for each in ("replicas", "updatedReplicas", "availableReplicas")}
        if status.get("observedGeneration") != before["metadata"].get("generation") or counts != {wanted}:
            self.broken(f"Deployment {name}", f"{author} restarted it while another rollout was under way ({status})")


def _app(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get("app", ""))


def _counts(pod: Json) -> bool:
    return ready(pod) and not leaving(pod)


def _restarted_at(thing: Json) -> str | None:
    found: str | None = (thing["spec"]["template"]["metadata"].get("annotations") or {}).get(RESTARTED_AT)
    return found


def _without(thing: Json) -> Json:
    template = thing["spec"]["template"]
    notes = {key: each for key, each in (template["metadata"].get("annotations") or {}).items() if key != RESTARTED_AT}
    return {**thing["spec"], "template": {**template, "metadata": {**template["metadata"], "annotations": notes}}}


__all__ = ["NeverWithoutAReadyPod", "RestartedOnce"]
