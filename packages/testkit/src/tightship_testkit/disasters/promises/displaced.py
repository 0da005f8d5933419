"""Room for the pods of nodes that a person has cordoned: no drain takes what they will need."""

from __future__ import annotations

from typing import Any

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.promises.base import Json, Promise, ours
from tightship_testkit.disasters.promises.drains import begun
from tightship_testkit.disasters.promises.reading import (
    cordoned,
    created,
    daemon,
    expendable,
    leaving,
    owned,
    ready,
    requests,
    room,
    taints,
)
from tightship_testkit.disasters.registry import PERSON, promise

SEEN = 20.0
"""Seconds after which whoever claims a node has judged by what was there."""
_SOFT = "PreferNoSchedule"
_TIES = ("nodeSelector", "affinity", "topologySpreadConstraints", "volumes")
_SCHEDULERS = (None, "", "default-scheduler")
_Room = dict[str, tuple[float, float, float]]


@promise
class RoomForOthersKept(Promise):
    """No drain begins after which the pods of nodes that a person cordoned lack room that they had before.

    Sums alone count, and no pods that are bound to some of the nodes: so room is surely lacking where this says so.
    """

    name = "room-for-others-kept"
    text = "or the pods of a node that somebody else has cordoned in the last 24 hours"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._since: dict[str, float] = {}

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] != "Node":
            return
        name = change.object["metadata"]["name"]
        if begun(change, author) and not self.world.blind(author, 0.0):
            self._begins(change.object, author)
        if change.type == "DELETED" or not cordoned(change.object) or ours(author):
            self._since.pop(name, None)
        elif author == PERSON:
            self._since.setdefault(name, self.world.now)

    def _begins(self, node: Json, author: str) -> None:
        name = node["metadata"]["name"]
        theirs = {each for each, since in self._since.items() if self.world.now - since > SEEN and each != name}
        pods: dict[str, list[Json]] = {}
        for pod in self.world.store.list("Pod") if theirs else ():
            pods.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        moving = [pod for each in theirs for pod in pods.get(each, []) if self._moves(pod)]
        free: _Room = {}
        for each in self.world.store.list("Node"):
            hard = [taint for taint in taints(each) if taint.get("effect") != _SOFT]
            key = each["metadata"]["name"]
            if ready(each) and not leaving(each) and key not in theirs and not (key != name and (hard or owned(each))):
                free[key] = _left(each, [pod for pod in pods.get(key, []) if not self._young(pod)])
        if not moving or not _packed(moving, dict(free)):
            return
        free.pop(name, None)
        own = [pod for pod in pods.get(name, []) if self._moves(pod)]
        wanted = [requests(pod) for pod in (*moving, *own)]
        for number, what in enumerate(("CPU", "bytes of memory")):
            need, have = sum(each[number] for each in wanted), sum(max(0.0, each[number]) for each in free.values())
            if need > have + 1e-6:
                detail = f"for {len(moving)} pods of {', '.join(sorted(theirs))}, which a person cordoned, and its own"
                self.broken(f"Node {name}", f"{author} claimed it, and {have:g} {what} were left {detail}: {need:g}")

    def _young(self, pod: Json) -> bool:
        return self.world.wall - created(pod) < SEEN

    def _moves(self, pod: Json) -> bool:
        spec = pod["spec"]
        tolerated = [each.get("key", "") for each in spec.get("tolerations") or []]
        tied = any(not key.startswith("node.kubernetes.io/") for key in tolerated)
        tied = tied or any(spec.get(each) for each in _TIES) or spec.get("schedulerName") not in _SCHEDULERS
        return not (tied or daemon(pod) or expendable(pod) or leaving(pod) or self._young(pod))


def _left(node: Json, pods: list[Json]) -> tuple[float, float, float]:
    cpu, memory, most = room(node)
    taken = [requests(pod) for pod in pods]
    return cpu - sum(each[0] for each in taken), memory - sum(each[1] for each in taken), most - len(taken)


def _packed(pods: list[Json], free: _Room) -> bool:
    """Whether all *pods* have a place in *free*, found by first fit, the largest first: then they surely had room."""
    for cpu, memory in sorted(map(requests, pods), reverse=True):
        for name, (left_cpu, left_memory, left) in free.items():
            if left_cpu >= cpu and left_memory >= memory and left >= 1:
                free[name] = left_cpu - cpu, left_memory - memory, left - 1
                break
        else:
            return False
    return True
