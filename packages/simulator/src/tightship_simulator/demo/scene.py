"""What the screen shows at a moment, gathered from what was seen so far. No input, no output, no clock."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from msgspec import Struct

from tightship_simulator.demo.observations import (
    Announcement,
    BudgetSeen,
    EventSeen,
    FloorSeen,
    Gone,
    Moment,
    NodeSeen,
    PodSeen,
    StatusSeen,
    TrafficSeen,
)
from tightship_simulator.demo.story import BEGIN

AUTOSCALER = "autoscaler"
FLOORS = "floors"
"""What floors that have moved have in common."""
_MOVE = "minReplicas "
"""How the hpa-scaler's Events begin that tell of a floor that has moved."""

KEPT_LINES = 200


TOGETHER = 0.8
"""Seconds within which floors that move, or are held for the same reason, are one line."""


class Line(Struct, frozen=True):
    """Something that was decided or done: *who* did it to *what*, and *tone* is "", good, warn or bad.

    *at* is in seconds after the beginning. Of *what* several, separated by commas, *same* is what they have in common.
    *whys* are the reasons for what became of floors, each once.
    """

    at: float
    hour: float
    who: str
    what: str
    text: str
    tone: str = ""
    same: str = ""
    whys: tuple[str, ...] = ()


@dataclass
class Slot:
    """The place of a node on the screen. *node* is ``None`` when it is gone and no other has come."""

    name: str
    node: NodeSeen | None
    new: bool = False


@dataclass
class Pool:
    """The nodes of a pool, in the order they were seen; *began* is how many there were at the beginning."""

    slots: list[Slot] = field(default_factory=list)
    began: int = 0

    @property
    def nodes(self) -> list[NodeSeen]:
        """Those that are there."""
        return [slot.node for slot in self.slots if slot.node is not None]


@dataclass
class Used:
    """What the pods of a node request: milli-CPU, MiB, and how many pods can be moved."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0


class Scene:
    """Takes moments in their order; *price* is what a node costs an hour."""

    def __init__(self, seconds: float, price: float) -> None:
        self.seconds = seconds
        self.price = price
        self.at = 0.0
        self.hour = BEGIN
        self.pools: dict[str, Pool] = {}
        self.pods: dict[str, PodSeen] = {}
        self.floors: dict[str, FloorSeen] = {}
        self.traffic: dict[str, list[tuple[float, float | None]]] = {}
        self.highest: dict[str, int] = {}
        """The most replicas that each HPA was seen to have."""
        self.status: dict[str, str] = {}
        self.lines: deque[Line] = deque(maxlen=KEPT_LINES)
        self.said = 0
        """How many lines there were so far."""
        self.reported = ""
        self.saved = 0.0
        """Node-hours of the story that were not needed, against the number of nodes at the beginning."""
        self.began = 0
        self.fewest = 0
        self.drained: Counter[str] = Counter()
        self.evicted: Counter[str] = Counter()
        self.removed = 0
        self.added = 0
        self.restored = 0
        self.raised = 0
        """How often a floor that the hpa-scaler looks after was seen to rise, and (*lowered*) to fall."""
        self.lowered = 0
        self._used: dict[str, Used] = {}

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return sum(len(pool.nodes) for pool in self.pools.values())

    @property
    def waiting(self) -> int:
        """Pods without a node."""
        return sum(1 for pod in self.pods.values() if pod.waits)

    @property
    def money(self) -> float:
        """What the saved node-hours would have cost."""
        return self.saved * self.price

    def used(self, node: str) -> Used:
        """Return what the pods of *node* request."""
        return self._used.get(node, Used())

    def fullness(self, node: NodeSeen) -> float:
        """Return the larger of the node's CPU and memory requests over what it has to allocate."""
        used = self.used(node.name)
        return max(used.cpu / max(1, node.cpu), used.memory / max(1, node.memory))

    def take(self, moment: Moment) -> None:
        """Take in one moment."""
        if moment.at > 0 and not self.began:
            self.began = self.fewest = self.nodes
            for pool in self.pools.values():
                pool.began = len(pool.nodes)
        self.saved += (self.began - self.nodes) * max(0.0, moment.hour - self.hour) if self.began else 0.0
        self.at, self.hour = max(self.at, moment.at), max(self.hour, moment.hour)
        match moment.observation:
            case NodeSeen() as node:
                self._node(node)
            case PodSeen() as pod:
                self._pod(pod)
            case FloorSeen() as floor:
                self._floor(floor)
            case TrafficSeen() as traffic:
                self.traffic.setdefault(traffic.key, []).append((self.hour, traffic.value))
            case StatusSeen() as status:
                self.status[status.controller] = status.text
            case EventSeen() as event:
                self._event(event)
            case Gone() as gone:
                self._gone(gone)
            case Announcement() as reported:
                self.reported = reported.text
                self._say("", "", reported.text)
            case BudgetSeen():
                pass  # for the record

    def _say(self, who: str, what: str, text: str, tone: str = "") -> None:
        if self.began:
            self.lines.append(Line(self.at, self.hour, who, what, text, tone))
            self.said += 1

    def _say_of_floor(self, event: EventSeen) -> None:
        """Say what became of a floor, in one line with others of which the same is said at the same time."""
        name = event.about.rpartition("/")[2]
        move, found, why = event.note.partition(": ")
        whys: tuple[str, ...]
        tone = "warn" if event.warning else ""
        if found and move.startswith(_MOVE):
            step = move.removeprefix(_MOVE).partition(",")[0].replace(" -> ", "→")
            text = why.removeprefix(f"{event.reason}: ")
            named, same, whys = f"{name} {step}", FLOORS, (f"{event.reason}: {text}",)
        else:
            named, same, text = name, event.reason, f"{event.reason}: {event.note}"
            whys = (text,)
        last = self.lines[-1] if self.lines else None
        if last is not None and last.same == same and last.tone == tone and self.at - last.at <= TOGETHER:
            self.lines.pop()
            self.said -= 1
            named, text = f"{last.what}, {named}", "" if same == FLOORS else last.text
            whys = tuple(dict.fromkeys((*last.whys, *whys)))
        if self.began:
            self.lines.append(Line(self.at, self.hour, event.controller, named, text, tone, same, whys))
            self.said += 1

    def _node(self, node: NodeSeen) -> None:
        pool = self.pools.setdefault(node.pool, Pool())
        slot = next((each for each in pool.slots if each.name == node.name and each.node is not None), None)
        if slot is None:
            slot = next((each for each in pool.slots if each.node is None), None)
            if slot is None:
                slot = Slot(node.name, node)
                pool.slots.append(slot)
            slot.name, slot.new = node.name, bool(self.began)
            if self.began:
                self.added += 1
                self._say(AUTOSCALER, node.name, "added, for pods that wait", "good")
        elif slot.node is not None:
            self._moved_on(slot.node, node)
        slot.node = node

    def _moved_on(self, old: NodeSeen, new: NodeSeen) -> None:
        if new.drain == "Drained" and old.drain != "Drained":
            self.drained[new.by] += 1
        if old.drain and not new.drain and not new.taken:
            self.restored += 1

    def _floor(self, floor: FloorSeen) -> None:
        before = self.floors.get(floor.key, floor).floor
        if floor.guarded and self.began:
            self.raised += floor.floor > before
            self.lowered += floor.floor < before
        self.floors[floor.key] = floor
        self.highest[floor.key] = max(self.highest.get(floor.key, 1), floor.current, floor.floor)

    def _pod(self, pod: PodSeen) -> None:
        self._unbind(self.pods.get(pod.key))
        self.pods[pod.key] = pod
        if pod.node:
            used = self._used.setdefault(pod.node, Used())
            used.cpu += pod.cpu
            used.memory += pod.memory
            used.pods += not pod.daemon

    def _unbind(self, pod: PodSeen | None) -> None:
        if pod is not None and pod.node:
            used = self._used[pod.node]
            used.cpu -= pod.cpu
            used.memory -= pod.memory
            used.pods -= not pod.daemon

    def _gone(self, gone: Gone) -> None:
        match gone.what:
            case "pod":
                self._unbind(self.pods.pop(gone.key, None))
            case "floor":
                self.floors.pop(gone.key, None)
            case "node":
                slots = (slot for pool in self.pools.values() for slot in pool.slots)
                for slot in (slot for slot in slots if slot.node is not None and slot.name == gone.key):
                    slot.node, slot.new = None, False
                    self.removed += 1
                    self.fewest = min(self.fewest, self.nodes)
                    self._say(AUTOSCALER, gone.key, "deleted, it was empty")

    def _event(self, event: EventSeen) -> None:
        if event.kind == "Pod":
            if event.reason == "Evicted":
                self.evicted[event.controller] += 1
            else:
                self._say(event.controller, event.about, f"{event.reason}: {event.note}", "warn")
            return
        tone = "warn" if event.warning else ""
        match event.reason:
            case "NodeClaimed":
                self._say(event.controller, event.about, self._why_claimed(event.about))
            case "NodeEvicting":
                pass
            case "NodeDrained":
                self._say(event.controller, event.about, "is empty, and left to the autoscaler", "good")
            case "NodeRestored":
                self._say(event.controller, event.about, "given back: uncordoned as it was before", tone)
            case _ if event.kind == "HorizontalPodAutoscaler":
                self._say_of_floor(event)
            case _ if event.kind == "Node":
                self._say(event.controller, event.about, f"{event.reason}: {event.note}", tone)
            case _:
                pass

    def _why_claimed(self, name: str) -> str:
        used = self.used(name)
        nodes = (node for pool in self.pools.values() for node in pool.nodes)
        node = next((each for each in nodes if each.name == name), None)
        if node is None:
            return "cordoned, to be drained"
        many = "1 pod" if used.pods == 1 else f"{used.pods} pods"
        cpu, memory = used.cpu / max(1, node.cpu), used.memory / max(1, node.memory)
        return f"cordoned: CPU {cpu:.0%}, memory {memory:.0%} requested; {many} to move"


__all__ = ["AUTOSCALER", "FLOORS", "TOGETHER", "Line", "Pool", "Scene", "Slot", "Used"]
