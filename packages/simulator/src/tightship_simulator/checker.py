"""Plays a plan on raw API objects and says everything that is wrong with it.

It lives beside the generators, and not with the control plane's tests, because it needs no cluster at all: the pure
property tests use it as well. It shares no code with what it checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tightship_simulator import labels
from tightship_simulator.world import CORDON, DRAINING, World, key_of

Json = dict[str, Any]

SEARCH_LIMIT = 2000
"""Orders of placing one node's pods that are tried before the search gives up."""

FORBIDDING = {
    "tightship.dev/do-not-drain": ("true",),
    "cluster-autoscaler.kubernetes.io/safe-to-evict": ("false", "on-completion"),
    "karpenter.sh/do-not-disrupt": ("true",),
    "node-autoscaling.kubernetes.io/do-not-disrupt": ("true",),
    "descheduler.alpha.kubernetes.io/prefer-no-eviction": ("true",),
}
"""Pod annotations whose values forbid an eviction."""


@dataclass(frozen=True)
class Move:
    """One eviction: the pod ``namespace/name`` and the node it is to land on."""

    pod: str
    target: str


@dataclass(frozen=True)
class Removal:
    """One drained node. Budgets are spent anew in each *round*."""

    node: str
    moves: tuple[Move, ...]
    round: int = 1


@dataclass
class Findings:
    """What a check found: *wrong* is empty for a good plan; the rest says how much was looked at."""

    wrong: list[str] = field(default_factory=list)
    removals: int = 0
    moves: int = 0


def check(cluster: Mapping[str, Any], removals: Sequence[Removal], *, straight: bool = True) -> Findings:
    """Play *removals* in order and check every rule at every step.

    With *straight*, a pod may be moved only once over the whole plan.
    """
    return _Check(World(cluster), straight).run(removals)


class _Check:
    def __init__(self, world: World, straight: bool) -> None:
        self.world = world
        self.straight = straight
        self.findings = Findings()
        self.moved: Counter[str] = Counter()
        self.removed: set[str] = set()
        self.overcommitted = set(world.overcommitted())

    def run(self, removals: Sequence[Removal]) -> Findings:
        round_number, spent = 0, Counter[str]()
        for removal in removals:
            if removal.round != round_number:
                round_number, spent = removal.round, Counter()
            self.drain(removal, spent)
        for key, times in self.moved.items():
            if self.straight and times > 1:
                self.wrong(f"{key} is moved {times} times")
        for problem in set(self.world.overcommitted()) - self.overcommitted:
            self.wrong(f"in the end {problem}")
        return self.findings

    def wrong(self, text: str) -> None:
        self.findings.wrong.append(text)

    def drain(self, removal: Removal, spent: Counter[str]) -> None:
        world, node = self.world, removal.node
        self.findings.removals += 1
        if node in self.removed or node not in world.nodes:
            self.wrong(f"{node} can't be removed: it is not there")
            return
        if world.nodes[node]["spec"].get("unschedulable"):
            self.wrong(f"{node} was cordoned by someone else")
        self.removed.add(node)
        leaving = {key for key, pod in world.on_node[node].items() if evicted(pod)}
        named = [move.pod for move in removal.moves]
        if sorted(named) != sorted(leaving) and self.straight:
            self.wrong(f"{node}: moves {sorted(named)}, should move {sorted(leaving)}")
        self.moved.update(named)
        self.findings.moves += len(named)
        for key in leaving:
            why = forbidden(world.pods[key])
            if why:
                self.wrong(f"{node}: {key} must not be evicted: {why}")
        slow = self.spend(node, leaving, spent)
        world.cordon(node)
        pods = {key: world.remove(key) for key in leaving}
        open_moves = [move for move in removal.moves if move.pod in pods]
        if not place_all(world, [(pods[move.pod], move.target) for move in open_moves]):
            why = "; ".join(
                f"{move.pod} to {move.target}: {world.why_not(pods[move.pod], move.target) or 'only before others'}"
                for move in open_moves
            )
            self.wrong(f"{node}: no order places all its pods: {why}")
            for move in open_moves:
                world.add(pods[move.pod], move.target)
        elif slow and not self.in_turn(node, pods, open_moves, slow):
            self.wrong(f"{node}: its pods can't leave one after another, as their budgets want: {sorted(slow)}")
        for move in open_moves:
            if move.target in self.removed:
                self.wrong(f"{node}: {move.pod} is sent to {move.target}, which is removed")

    def in_turn(self, node: str, pods: Mapping[str, Json], moves: Sequence[Move], slow: set[str]) -> bool:
        """Whether the pods land at their targets though *slow* ones leave only when the one before runs."""
        world, targets = self.world, {move.pod: move.target for move in moves}
        for key in targets:
            world.remove(key)
        for key in slow & set(targets):
            world.add(pods[key], node)
        left = set(targets)
        while left:
            for key in sorted(left):
                if key in slow:
                    world.remove(key)
                if not world.why_not(pods[key], targets[key]):
                    world.add(pods[key], targets[key])
                    left.remove(key)
                    break
                if key in slow:
                    world.add(pods[key], node)
            else:
                break
        for key in left:
            if key in slow:
                world.remove(key)
            world.add(pods[key], targets[key])
        return not left

    def spend(self, node: str, leaving: Iterable[str], spent: Counter[str]) -> set[str]:
        """Budgets: a node may start while one disruption is left, and then takes all it needs as far as there are any.

        Returns the pods of budgets that do not allow all of them at once.
        """
        needs: Counter[int] = Counter()
        members: dict[int, set[str]] = {}
        slow: set[str] = set()
        for key in leaving:
            pod = self.world.pods[key]
            matching = [number for number, budget in enumerate(self.world.budgets) if covers(budget, pod)]
            if pod.get("status", {}).get("phase") == "Pending" or not matching:
                continue
            if len(matching) > 1:
                self.wrong(f"{node}: {key} has more than one budget")
            elif not exempt(self.world.budgets[matching[0]], pod):
                needs[matching[0]] += 1
                members.setdefault(matching[0], set()).add(key)
        for number, count in needs.items():
            budget = self.world.budgets[number]
            name = key_of(budget)
            status = budget.get("status") or {}
            left = status.get("disruptionsAllowed", 0) - spent[name]
            if left < 1:
                self.wrong(f"{node}: budget {name} allows no more")
            if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
                self.wrong(f"{node}: the status of budget {name} is out of date")
            if count > left:
                slow |= members[number]
            spent[name] += min(count, left)
        return slow


def place_all(world: World, wanted: Sequence[tuple[Json, str]], on_step: Callable[[str], None] | None = None) -> bool:
    """Put each pod on its node in some order in which each passes the filters at its turn; whether there is one.

    When there is none the world stays as it was. *on_step* is told the pods' keys in the order found.
    """
    steps = 0

    def descend(left: tuple[int, ...], order: list[str]) -> bool:
        nonlocal steps
        if not left:
            for key in order:
                if on_step is not None:
                    on_step(key)
            return True
        for number in left:
            pod, node = wanted[number]
            steps += 1
            if steps > SEARCH_LIMIT:
                return False
            if world.why_not(pod, node):
                continue
            world.add(pod, node)
            if descend(tuple(each for each in left if each != number), [*order, key_of(pod)]):
                return True
            world.remove(key_of(pod))
        return False

    return descend(tuple(range(len(wanted))), [])


def evicted(pod: Json) -> bool:
    """Whether a drain evicts the pod: not a DaemonSet's, not a static pod's mirror, not already leaving."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    owner = controller(pod)
    if owner == "DaemonSet":
        return False
    mirror = "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {})
    return not (mirror and owner == "Node")


def forbidden(pod: Json) -> str:
    """Return why a pod must not be evicted, as far as its own marks say; empty when nothing stands against it."""
    notes = pod["metadata"].get("annotations") or {}
    for annotation, values in FORBIDDING.items():
        if notes.get(annotation) in values:
            return f"{annotation}={notes[annotation]}"
    vouched = notes.get("cluster-autoscaler.kubernetes.io/safe-to-evict") == "true"
    if not controller(pod) and not vouched:
        return "no controller"
    local = [
        volume["name"]
        for volume in pod["spec"].get("volumes") or []
        if "hostPath" in volume or ("emptyDir" in volume and (volume["emptyDir"] or {}).get("medium") != "Memory")
    ]
    safe = notes.get("cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes", "").split(",")
    if not vouched and set(local) - set(safe):
        return "local storage"
    if all(labels.tolerates(pod, taint) for taint in (CORDON, DRAINING)):
        return "tolerates the cordon"
    return ""


def controller(pod: Json) -> str:
    """Return the kind of the pod's controller, empty for a naked pod."""
    for reference in pod["metadata"].get("ownerReferences") or []:
        if reference.get("controller"):
            return str(reference["kind"])
    return ""


def covers(budget: Json, pod: Json) -> bool:
    """Whether a budget speaks of the pod."""
    if budget["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    return labels.selects(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})


def exempt(budget: Json, pod: Json) -> bool:
    """Whether the pod, being unhealthy, may go without the budget's leave."""
    conditions = pod.get("status", {}).get("conditions") or []
    if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    wanted: int = status.get("desiredHealthy", 0)
    healthy: int = status.get("currentHealthy", 0)
    return 0 < wanted <= healthy
