"""The pilot: which nodes it labels, whom it keeps waiting, and what it leaves in its ConfigMap."""

from __future__ import annotations

import math
from collections import Counter

from msgspec import Struct

from tightship_simulator.api.store import Change
from tightship_simulator.virtual.simulation import Replica
from tightship_testkit.disasters.landings import VERSION, data_of, found, label_of, led, map_of, policy_of
from tightship_testkit.disasters.promises.base import Asked, Promise, ours
from tightship_testkit.disasters.promises.reading import controller, leaving, owned, whose
from tightship_testkit.disasters.registry import promise
from tightship_testkit.disasters.team import Team
from tightship_testkit.disasters.world import Json, World

STARTS = 10.0
"""Seconds until a replica that was started watches pods."""
_LATE = 4.0
"""Seconds after which a policy no longer goes by what was taken out, and the cluster shows what that has come to."""
TAKES_EFFECT = 45.0
"""Seconds after which an edit must have been seen."""


def able(world: World, team: Team, resource: str, subresource: str = "", verb: str = "patch") -> bool:
    """Whether a replica of *team* runs, meets no fault, and may *verb* what *resource* and *subresource* name."""
    return any(
        not each.process.frozen
        and each.name not in team.dry
        and world.now - world.started.get(each.name, 0.0) >= STARTS
        and not world.faulted(each.name)
        and not _forbidden(world, Asked(world.now, each.name, verb, resource, "", "", subresource, 0))
        for each in team.alive
    )


def _forbidden(world: World, asks: Asked) -> bool:
    return any(rule(asks) is not None for rule in world.denials)


def mode_of(settings: Json) -> str:
    """Return how the settings have landings steered, empty where they don't."""
    return "hints" if settings.get("steering") == "hints" else ""


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


def labelled(world: World, team: Team, *, in_drain: bool = True) -> list[str]:
    """Return the nodes with a label of *team*, perhaps without those *in_drain*."""
    nodes = [each for each in world.store.list("Node") if whose(label_of(each)) == team.program]
    return [each["metadata"]["name"] for each in nodes if in_drain or not owned(each)]


@promise
class NoLabelOutlivesItsPlan(Promise):
    """Labels go with the mode, with the policy, and with whoever wrote them."""

    name = "no-label-outlives-its-plan"
    text = "No node open to pods is labelled by a controller that leads none, nor any once its replicas have ended."
    most = TAKES_EFFECT + 30.0
    """Seconds: an edit must have been seen, another replica may have to take over, and passes take a while."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._since: dict[str, float] = {}
        self._endings = Endings(world)

    def _leads(self, team: Team) -> bool:
        """Whether it may lead pods by its settings and its policy."""
        policy = policy_of(found(self.world, team))
        return bool(mode_of(team.settings)) and policy == f"hints/{VERSION}"

    def passed(self) -> None:
        for team in self._endings.look():
            if self._endings.led(team) and (left := labelled(self.world, team)):
                self.broken(f"Node {left[0]}", f"is labelled by {team.program}, all of whose replicas have ended")
        slow = self.most + 3 * self.world.scenario.admission
        for program, team in self.world.teams.items():
            # A node in drain is cordoned, and keeps what it carries until it goes or is given back.
            nodes = labelled(self.world, team, in_drain=False)
            if not nodes or self._leads(team) or team.spoilt is not None or not able(self.world, team, "nodes"):
                self._since.pop(program, None)
            elif self.world.now - self._since.setdefault(program, self.world.now) > slow:
                self.broken(f"Node {nodes[0]}", f"is labelled by {program}, which has led no pods for {slow:.0f} s")

    def stopped(self) -> None:
        for team in self.world.teams.values():
            if _went_well(self.world, team) and (left := labelled(self.world, team)):
                self.broken(f"Node {left[0]}", f"is labelled by {team.program}, which has ended")


@promise
class NoReplacementWaitsForUs(Promise):
    """A pod that the policy has led finds a node, or is made anew without being led."""

    name = "no-replacement-waits-for-us"
    text = "No led pod is without a node for 45 s while a replica that may help it runs."
    most = 45.0
    """Seconds: the takeover, a label that goes, and the pod that is made anew."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._waited: Counter[str] = Counter()

    def passed(self) -> None:
        pods = self.world.store.list("Pod")
        waiting = [each for each in pods if not each["spec"].get("nodeName") and not leaving(each) and led(each)]
        there = {each["metadata"]["uid"] for each in waiting}
        for uid in self._waited.keys() - there:
            del self._waited[uid]
        if not waiting or not any(map(self._helps, self.world.teams.values())):
            return
        for pod in waiting:
            uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
            self._waited[uid] += 1
            if self._waited[uid] > self.most + 3 * self.world.scenario.admission:
                self.broken(f"Pod {name}", f"was led, and has had no node for {self._waited[uid]} s")

    def _helps(self, team: Team) -> bool:
        """Whether a replica leads that may do all that helps."""
        world = self.world
        leads = world.holder(team) in {each.name for each in team.alive}
        return leads and able(world, team, "nodes") and able(world, team, "pods", "eviction", verb="create")


@promise
class LabelsOfOthersStay(Promise):
    """A controller writes and removes no label but its own."""

    name = "labels-of-others-stay"
    text = "A label of this name with somebody else's value stays."

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] != "Node" or not ours(author) or change.type == "DELETED":
            return
        before = None if change.previous is None else label_of(change.previous)
        after, name = label_of(change.object), change.object["metadata"]["name"]
        if before == after:
            return
        for value in (before, after):
            if value is not None and whose(value) != ours(author):
                self.broken(f"Node {name}", f"{author} changed its label from {before!r} to {after!r}")
                return


def _went_well(world: World, team: Team) -> bool:
    reported = [each for each in team.replicas if each.name in world.asked_to_end]
    live = any(each.name not in team.dry for each in reported)
    return live and all(each.ended and not each.crashed for each in reported)


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
                detail = f"holds {', '.join(left)} though all replicas have ended in good order"
                self.broken(f"ConfigMap {map_of(team.controller)}", detail)
        for program, team in self.world.teams.items():
            left = self._left(team)
            drains = any(owned(each).get("controller") == program for each in self.world.store.list("Node"))
            if not left or drains or self._unaware(team):
                self._idle[program] = 0
            elif able(self.world, team, "configmaps"):
                self._idle[program] += 1
                if self._idle[program] > self.most:
                    detail = f"holds {', '.join(left)}, and nothing has been in drain for {self.most:.0f} s"
                    self.broken(f"ConfigMap {map_of(team.controller)}", detail)

    def _unaware(self, team: Team) -> bool:
        """Whether all replicas began after entries had been switched off, or with settings that can't be used."""
        off = team.off_since(lambda settings: bool(mode_of(settings))) if team.spoilt is None else team.spoilt
        last = team.alive or team.replicas[-1:]
        return off is not None and all(self.world.started.get(each.name, 0.0) >= off for each in last)

    def stopped(self) -> None:
        for team in self.world.teams.values():
            if _went_well(self.world, team) and not self._unaware(team) and (left := self._left(team)):
                detail = f"holds {', '.join(left)} after all replicas have ended"
                self.broken(f"ConfigMap {map_of(team.controller)}", detail)


@promise
class LandingsOnlyWithTheirPolicy(OfMaps):
    """No landing is entered where the policy that would act on it is missing, older, or of another mode."""

    name = "landings-only-with-their-policy"
    text = "Without the policy that goes with it the pilot is off."

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._named: dict[str, list[tuple[float, str]]] = {}

    def written(self, write: Write) -> None:
        reported = self._named.setdefault(write.team.program, [])
        if not reported or reported[-1][1] != write.policy:
            reported.append((self.world.now, write.policy))
        new = sorted(write.entered.keys() - write.before.keys())
        if not new or self.world.faulted(write.author):
            return
        since = self.world.now - TAKES_EFFECT
        ends = [*(at for at, _ in reported[1:]), self.world.now]
        named = {policy for (_, policy), end in zip(reported, ends, strict=True) if end >= since}
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


def pod_write(old: Json, new: Json) -> str:
    """Return what is wrong with how a controller changed a pod, empty where it may."""
    if old["spec"] != new["spec"]:
        return "its spec"
    status: list[Json] = [dict(each.get("status") or {}) for each in (old, new)]
    for each in status:
        # The API server writes it for who evicts.
        rest = [each for each in each.get("conditions") or [] if each["type"] != "DisruptionTarget"]
        each["conditions"] = rest
    return "its status" if status[0] != status[1] else ""


__all__ = [
    "EntriesLeave", "LabelsOfOthersStay", "LandingsAreOfEvictions", "LandingsOnlyWithTheirPolicy",
    "NoLabelOutlivesItsPlan", "NoReplacementWaitsForUs", "able", "pod_write",
]  # fmt: skip
