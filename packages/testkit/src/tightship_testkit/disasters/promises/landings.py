"""The pilot: whom it gates, for how long, and what it leaves in its ConfigMap."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from msgspec import Struct

from tightship_simulator.api.store import Change
from tightship_simulator.virtual.simulation import Replica
from tightship_testkit.disasters.landings import (
    GATE,
    VERSION,
    data_of,
    found,
    gated,
    map_of,
    policy_of,
)
from tightship_testkit.disasters.promises.base import Asked, Promise, ours
from tightship_testkit.disasters.promises.reading import controller, owned
from tightship_testkit.disasters.registry import promise
from tightship_testkit.disasters.team import Team
from tightship_testkit.disasters.world import Json, World

STARTS = 10.0
"""Seconds until a replica that was started watches pods."""
_LATE = 4.0
"""Seconds after which a policy no longer goes by what was taken out, and the cluster shows what that has come to."""
TAKES_EFFECT = 45.0
"""Seconds after which an edit must have been seen."""


def able(world: World, team: Team, resource: str, subresource: str = "") -> bool:
    """Whether a replica of *team* runs, meets no fault, and may patch *resource*."""
    return any(
        not each.process.frozen
        and each.name not in team.dry
        and world.now - world.started.get(each.name, 0.0) >= STARTS
        and not world.faulted(each.name)
        and not _forbidden(world, each.name, resource, subresource)
        for each in team.alive
    )


def _forbidden(world: World, name: str, resource: str, subresource: str) -> bool:
    asks = Asked(world.now, name, "patch", resource, "", "", subresource, 0)
    return any(rule(asks) is not None for rule in world.denials)


def exact(team: Team) -> bool:
    """Whether the chart of *team* gives the rights that exact landings need."""
    chart = team.controller.landings
    return chart is not None and chart.rights == "exact"


def mode_of(settings: Json) -> str:
    """Return how the settings have landings steered, empty where they don't."""
    found = str(settings.get("steering", ""))
    return found if found in ("hints", "exact") else ""


class Endings:
    """Which teams have ended in good order in the middle of a story, and since when."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last: dict[str, list[Replica]] = {}
        self._led: dict[str, bool] = {}
        self._since: dict[str, float] = {}

    def led(self, team: Team) -> bool:
        """Whether one of those that ended last led until then."""
        return self._led.get(team.program, False)

    def look(self) -> list[Team]:
        """Look at all teams; return those none of whose replicas has run for a while, which had time to tidy up."""
        world = self._world
        for program, team in world.teams.items():
            if alive := team.alive:
                self._last[program] = alive
                self._led[program] = world.holder(team) in {each.name for each in alive}
                self._since.pop(program, None)
            elif program not in self._since:
                self._since[program] = world.now if self._in_order(team) else math.inf
        return [team for program, team in world.teams.items() if world.now - self._since.get(program, math.inf) > _LATE]

    def _in_order(self, team: Team) -> bool:
        return all(
            each.process.alive
            and not each.crashed
            and each.name not in team.dry
            and not self._world.faulted(each.name)
            and self._world.now - self._world.started.get(each.name, 0.0) >= STARTS
            for each in self._last.get(team.program, ())
        )


@promise
class NoGateOutlivesUs(Promise):
    """No pod waits long for our gate to go, as long as there is anybody to take it off."""

    name = "no-gate-outlives-us"
    text = "No pod is gated for more than 20 s while a replica runs, and none when all have ended."
    most = 20.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._waited: Counter[str] = Counter()
        self._endings = Endings(world)

    def passed(self) -> None:
        pods, ended = gated(self.world), self._endings.look()
        if ended and len(ended) == len(self.world.teams) and any(map(exact, ended)):
            for pod in pods:
                self.broken(f"Pod {pod['metadata']['name']}", "is gated though all replicas have ended in good order")
        if not pods:
            self._waited.clear()
            return
        teams = [each for each in self.world.teams.values() if exact(each) and able(self.world, each, "pods")]
        for pod in pods if teams else ():
            uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
            self._waited[uid] += 1
            if self._waited[uid] > self.most:
                who = ", ".join(each.name for team in teams for each in team.alive)
                self.broken(f"Pod {name}", f"is gated for more than {self.most:.0f} s, and {who} run")

    def stopped(self) -> None:
        if not any(exact(each) and _went_well(self.world, each) for each in self.world.teams.values()):
            return
        for pod in gated(self.world):
            self.broken(f"Pod {pod['metadata']['name']}", "is still gated after all replicas have ended")


def _went_well(world: World, team: Team) -> bool:
    told = [each for each in team.replicas if each.name in world.told_to_end]
    live = any(each.name not in team.dry for each in told)
    return live and all(each.ended and not each.crashed for each in told)


class Write(Struct, frozen=True):
    """A write of the ConfigMap of landings of *team*, which held *before* and holds *now*, beside *policy*."""

    team: Team
    author: str
    before: dict[str, str]
    now: dict[str, str]
    policy: str

    @property
    def name(self) -> str:
        """What violations call it."""
        return f"ConfigMap {map_of(self.team.controller)}"

    @property
    def entered(self) -> dict[str, str]:
        """What the controller itself has entered with it, or changed."""
        if ours(self.author) != self.team.program:
            return {}
        return {key: value for key, value in self.now.items() if self.before.get(key) != value}


class OfMaps(Promise):
    """Gives each write of a ConfigMap of landings to :meth:`written`."""

    def changed(self, change: Change, author: str) -> None:
        thing = change.object
        if thing["kind"] != "ConfigMap":
            return
        meta, gone = thing["metadata"], change.type == "DELETED"
        for team in self.world.teams.values():
            if (meta["name"], meta["namespace"]) == (map_of(team.controller), team.controller.namespace):
                now, policy = ({}, "") if gone else (data_of(thing), policy_of(thing))
                self.written(Write(team, author, data_of(change.previous), now, policy))

    def written(self, write: Write) -> None:
        """Look at a write."""
        raise NotImplementedError


@promise
class EntriesLeave(OfMaps):
    """What the controller has written into its ConfigMap it takes out when its drains are over, and when it ends."""

    name = "entries-leave"
    text = "The ConfigMap of landings is empty when nothing is being drained, and when all replicas have ended."
    most = 20.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._own: dict[str, set[str]] = {}
        self._idle: Counter[str] = Counter()
        self._endings = Endings(world)

    def written(self, write: Write) -> None:
        own = self._own.setdefault(write.team.program, set())
        own.intersection_update([key for key in own if write.before.get(key) == write.now.get(key)])
        own.update(write.entered)

    def _left(self, team: Team) -> list[str]:
        return sorted(self._own.get(team.program, set()) & data_of(found(self.world, team)).keys())

    def passed(self) -> None:
        for team in self._endings.look():
            if self._endings.led(team) and not self._unaware(team) and (left := self._left(team)):
                told = f"holds {', '.join(left)} though all replicas have ended in good order"
                self.broken(f"ConfigMap {map_of(team.controller)}", told)
        for program, team in self.world.teams.items():
            left = self._left(team)
            drains = any(owned(each).get("controller") == program for each in self.world.store.list("Node"))
            if not left or drains or self._unaware(team):
                self._idle[program] = 0
            elif able(self.world, team, "configmaps"):
                self._idle[program] += 1
                if self._idle[program] > self.most:
                    told = f"holds {', '.join(left)}, and nothing has been in drain for {self.most:.0f} s"
                    self.broken(f"ConfigMap {map_of(team.controller)}", told)

    def _unaware(self, team: Team) -> bool:
        """Whether all replicas began after entries had been switched off, or with settings that can't be used: a gate
        tells them that some are left.
        """
        off = team.off_since(lambda settings: bool(mode_of(settings))) if team.spoilt is None else team.spoilt
        last = team.alive or team.replicas[-1:]
        return off is not None and all(self.world.started.get(each.name, 0.0) >= off for each in last)

    def stopped(self) -> None:
        for team in self.world.teams.values():
            if _went_well(self.world, team) and not self._unaware(team) and (left := self._left(team)):
                told = f"holds {', '.join(left)} after all replicas have ended"
                self.broken(f"ConfigMap {map_of(team.controller)}", told)


@promise
class LandingsOnlyWithTheirPolicy(OfMaps):
    """No landing is entered where the policy that would act on it is missing, older, or of another mode."""

    name = "landings-only-with-their-policy"
    text = "Without the policy that goes with it the pilot is off."

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._named: dict[str, list[tuple[float, str]]] = {}

    def written(self, write: Write) -> None:
        told = self._named.setdefault(write.team.program, [])
        if not told or told[-1][1] != write.policy:
            told.append((self.world.now, write.policy))
        new = sorted(write.entered.keys() - write.before.keys())
        if not new or self.world.faulted(write.author):
            return
        since = self.world.now - TAKES_EFFECT
        ends = [*(at for at, _ in told[1:]), self.world.now]
        named = {policy for (_, policy), end in zip(told, ends, strict=True) if end >= since}
        modes = map(mode_of, write.team.recent(self.world.now, TAKES_EFFECT))
        if not named & {f"{mode}/{VERSION}" for mode in modes if mode}:
            have = ", ".join(sorted(each or "none" for each in named))
            self.broken(write.name, f"{write.author} entered {', '.join(new)}; its policy is {have}")


@promise
class LandingsAreOfEvictions(OfMaps):
    """What is entered is the controller of a pod on a node in drain, with nodes that there are."""

    name = "landings-are-of-evictions"
    text = "An entry is of a workload whose pods are being evicted, and names nodes for them."
    lately = 30.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._on: dict[tuple[str, str], float] = {}
        self._nodes: dict[str, float] = {}

    def passed(self) -> None:
        self._look()

    def _look(self) -> None:
        draining: dict[str, str] = {}
        for node in self.world.store.list("Node"):
            self._nodes[node["metadata"]["name"]] = self.world.now
            if program := str(owned(node).get("controller") or ""):
                draining[node["metadata"]["name"]] = program
        for pod in self.world.store.list("Pod") if draining else ():
            program, above = draining.get(pod["spec"].get("nodeName", ""), ""), controller(pod)
            if program and above is not None:
                self._on[program, above["uid"]] = self.world.now

    def written(self, write: Write) -> None:
        if not write.entered:
            return
        self._look()
        since, program, author = self.world.now - self.lately, write.team.program, write.author
        for key, value in sorted(write.entered.items()):
            names = value.split(",")
            if names != sorted(set(names)):
                self.broken(write.name, f"{author} entered {value!r}, which is not in order, or twice the same")
            if self.world.faulted(author):
                continue
            if self._on.get((program, key), -self.lately) < since:
                self.broken(write.name, f"{author} entered {key}: none of its pods is on a node that {program} drains")
            if unknown := [each for each in names if self._nodes.get(each, -self.lately) < since]:
                self.broken(write.name, f"{author} entered {', '.join(unknown)}, which is no node")


def pod_write(team: Team | None, old: Json, new: Json) -> str:
    """Return what is wrong with how *team* changed a pod, empty where it may: our gate, and the nomination."""
    allowed = team is not None and exact(team)
    before, after = ({**each["spec"], "schedulingGates": None} for each in (old, new))
    if before != after:
        return "its spec"
    gates: list[list[Any]] = [each["spec"].get("schedulingGates") or [] for each in (old, new)]
    kept = [each for each in gates[0] if each.get("name") != GATE]
    if gates[0] != gates[1] and (not allowed or gates[1] != kept):
        return f"its gates from {gates[0]} to {gates[1]}"
    status: list[Json] = [dict(each.get("status") or {}) for each in (old, new)]
    nominated = [each.pop("nominatedNodeName", None) for each in status]
    if nominated[0] != nominated[1] and not allowed:
        return f"its nominated node from {nominated[0]} to {nominated[1]}"
    for each in status:
        # The API server writes it for who evicts.
        rest = [each for each in each.get("conditions") or [] if each["type"] != "DisruptionTarget"]
        each["conditions"] = rest
    return "its status" if status[0] != status[1] else ""


__all__ = [
    "EntriesLeave", "LandingsAreOfEvictions", "LandingsOnlyWithTheirPolicy", "NoGateOutlivesUs", "able", "exact",
    "pod_write",
]  # fmt: skip
