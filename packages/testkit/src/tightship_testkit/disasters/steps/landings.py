"""Steps at the pilot: at its ConfigMap, its rights, its labels, and at owners that grow in the middle of a drain.

They are drawn for scenarios with a pilot alone, from a source of chance of their own: see :mod:`..piloting`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec import Struct

from tightship_simulator.api.errors import Forbidden, Refused, WithoutReason
from tightship_simulator.api.landing import LEAVING
from tightship_simulator.virtual.simulation import Replica
from tightship_testkit.disasters.cluster import SHOP
from tightship_testkit.disasters.drawing import Drawn, MissingError, draws, one_of
from tightship_testkit.disasters.landings import POLICY, data_of, found, install, label_of, map_of
from tightship_testkit.disasters.promises.base import Asked, ours
from tightship_testkit.disasters.promises.reading import controller, leaving
from tightship_testkit.disasters.registry import Args, step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.steps.people import WITHIN
from tightship_testkit.disasters.steps.replicas import any_skew
from tightship_testkit.disasters.world import Json, Team, World, writing_as

_WRITES = ("configmaps", "nodes", "nodes", "pods/eviction")
_LAST = 120.0
"""Seconds that a step waits for a write of the pilot."""


def _piloted(rng: Random, scenario: Scenario) -> str:
    there = [each.program for each in scenario.controllers if each.landings is not None]
    if not there:
        raise MissingError
    return rng.choice(there)


_PROGRAM = draws(program=_piloted)
_AT_WRITE = draws(resource=one_of(*_WRITES), before=lambda rng, _: rng.random() < 0.5, skip=one_of(0, 0, 1, 3))


class _Write(Struct, frozen=True):
    """The next write of *resource* by *program*, after *skip* others: something happens *before* it, or after it."""

    program: str
    resource: str
    skip: int
    before: bool

    def __str__(self) -> str:
        return f"{'before' if self.before else 'after'} its write of {self.resource}"

    async def awaited(self, world: World, what: Callable[[Replica], None]) -> Replica | None:
        """Wait for it, and do *what* to the replica that makes it; return the replica, if there was one in time."""
        left: int = self.skip
        met: list[Replica] = []

        def rule(request: Asked) -> Refused | None:
            nonlocal left
            full = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
            if met or ours(request.by) != self.program or full != self.resource or not request.writes:
                return None
            if left:
                left -= 1
                return None
            met.extend(each for each in world.team_of(self.program).alive if each.name == request.by)
            for each in met:
                what(each)
            return WithoutReason("its sender is gone") if self.before else None

        world.rules.append(rule)
        end = world.now + _LAST
        while not met and world.now < end and not world.quiet:
            await world.pause(0.5)
        world.rules.remove(rule)
        return met[0] if met else None


@step(_PROGRAM, _AT_WRITE, back=one_of(0.5, 1.0, 5.0, 30.0), skew=lambda rng, _: any_skew(rng), weight=0)
async def kill_at_landing(
    world: World, *, program: str, resource: str, before: bool, skip: int, back: float, skew: float
) -> None:
    """A replica is killed right before or after one of the pilot's writes; another one starts in its place."""
    write = _Write(program, resource, skip, before)

    def kill(replica: Replica) -> None:
        world.tell(f"{replica.name} is killed {write}")
        replica.process.kill()

    if await write.awaited(world, kill) is not None:
        await world.pause(back)
        world.start(world.team_of(program), skew)


@step(_PROGRAM, _AT_WRITE, seconds=one_of(3.0, 12.0, 25.0, 60.0), weight=0)
async def freeze_at_landing(
    world: World, *, program: str, resource: str, before: bool, skip: int, seconds: float
) -> None:
    """A replica is stopped right before or after one of the pilot's writes, and goes on later."""
    write = _Write(program, resource, skip, before)

    def freeze(replica: Replica) -> None:
        world.tell(f"{replica.name} is stopped {write}")
        replica.process.freeze()

    if (stopped := await write.awaited(world, freeze)) is not None:
        await world.pause(seconds)
        world.tell(f"{stopped.name} goes on")
        world.blinded(stopped.name, world.now)
        stopped.process.thaw()


@step(_PROGRAM, _AT_WRITE, back=one_of(5.0, 30.0), skew=lambda rng, _: any_skew(rng), weight=0)
async def stop_at_landing(
    world: World, *, program: str, resource: str, before: bool, skip: int, back: float, skew: float
) -> None:
    """A replica is told to end right before or after one of the pilot's writes; another one starts in its place."""
    write = _Write(program, resource, skip, before)

    def stop(replica: Replica) -> None:
        world.tell(f"{replica.name} is told to end {write}")
        replica.stop()

    if await write.awaited(world, stop) is not None:
        await world.pause(back)
        world.start(world.team_of(program), skew)


@step(more=one_of(1, 2, 4), after=one_of(0.0, 0.3, 1.0, 3.0), back=one_of(5.0, 30.0, 600.0), weight=0)
async def grow_in_drain(world: World, *, more: int, after: float, back: float) -> None:
    """The owner of a pod on a node that is being emptied gets more replicas, and fewer again after a while."""
    node = await world.in_drain(["Claimed", "Evicting"], WITHIN, after)
    for pod in world.store.list("Pod", SHOP) if node else ():
        above = controller(pod)
        if pod["spec"].get("nodeName") != node or leaving(pod) or above is None or above["kind"] == "DaemonSet":
            continue
        kind, name = above["kind"], above["name"]
        owner = world.store.find(kind, name, SHOP)
        while owner is not None and (higher := controller(owner)) is not None:
            kind, name = higher["kind"], higher["name"]
            owner = world.store.find(kind, name, SHOP)
        if owner is None:
            continue
        had = int(owner["spec"].get("replicas", 1))
        world.tell(f"{kind} {name} grows from {had} to {had + more} while {node} is in drain")
        world.store.modify(kind, name, SHOP, lambda each: each["spec"].update(replicas=had + more))  # noqa: B023
        await world.pause(back)
        if world.store.find(kind, name, SHOP) is not None:
            world.store.modify(kind, name, SHOP, lambda each: each["spec"].update(replicas=had))  # noqa: B023
        return


_NOTES = ("", "hints/0", "hints/1", "hints/9", "hints", "banana")


@step(_PROGRAM, policy=one_of(*_NOTES), seconds=one_of(5.0, 40.0, 1000.0), weight=0)
async def annotate_landings(world: World, *, program: str, policy: str, seconds: float) -> None:
    """Somebody writes another policy on the ConfigMap of landings, or takes it off; later it is as it was."""
    team = world.team_of(program)
    _annotate(world, team, policy)
    await world.pause(seconds)
    if not world.quiet and team.controller.landings is not None:
        _annotate(world, team, team.controller.landings.policy)


def _annotate(world: World, team: Team, policy: str) -> None:
    name = map_of(team.controller)

    def change(thing: Json) -> None:
        notes = thing["metadata"].setdefault("annotations", {})
        if policy:
            notes[POLICY] = policy
        else:
            notes.pop(POLICY, None)

    if found(world, team) is not None:
        world.tell(f"ConfigMap {name} names the policy {policy or 'none'}")
        world.store.modify("ConfigMap", name, team.controller.namespace, change)


_EDITS = ("owner", "owners", "stranger", "nowhere", "garbage", "clear")


@step(_PROGRAM, edit=one_of(*_EDITS), moment=one_of("", "Claimed", "Evicting"), weight=0)
async def edit_landings(world: World, *, program: str, edit: str, moment: str) -> None:
    """Somebody edits the ConfigMap of landings by hand."""
    team = world.team_of(program)
    if moment:
        await world.in_drain([moment], _LAST)
    if world.quiet or found(world, team) is None:
        return
    world.tell(f"somebody edits the ConfigMap {map_of(team.controller)}: {edit}")

    def change(thing: Json) -> Json:
        return {**thing, "data": _edited(world, edit, data_of(thing))}

    world.store.modify("ConfigMap", map_of(team.controller), team.controller.namespace, change)


def _edited(world: World, edit: str, data: dict[str, str]) -> dict[str, str]:
    owners = [each["metadata"]["uid"] for kind in ("ReplicaSet", "StatefulSet") for each in world.store.list(kind)]
    nodes = [each["metadata"]["name"] for each in world.store.list("Node")]
    match edit:
        case "owner":
            return {**data, **dict.fromkeys(owners[:1], ",".join(nodes[:1]))}
        case "owners":
            return {**data, **dict.fromkeys(owners, ",".join(nodes))}
        case "stranger":
            return {**data, "11111111-2222-3333-4444-555555555555": "n1"}
        case "nowhere":
            return dict.fromkeys([*data, *owners[1:2]], "gone-long-ago")
        case "garbage":
            return {**data, "not-a-uid": ",, ,", "x": "", **dict.fromkeys(owners[:1], " n1 ,n1,,")}
    return {}


@step(_PROGRAM, seconds=one_of(1.0, 20.0, 1000.0), moment=one_of("", "Evicting"), weight=0)
async def delete_landings(world: World, *, program: str, seconds: float, moment: str) -> None:
    """Somebody deletes the ConfigMap of landings; later it is as the chart has it."""
    team = world.team_of(program)
    if moment:
        await world.in_drain([moment], _LAST)
    if world.quiet:
        return
    world.delete("ConfigMap", map_of(team.controller), team.controller.namespace)
    await world.pause(seconds)
    if not world.quiet:
        install(world, team)


def _rights() -> Drawn:
    return one_of("nodes", "pods/eviction", "configmaps")


@step(_PROGRAM, resource=_rights(), seconds=one_of(5.0, 30.0, 90.0), moment=one_of("", "Claimed", "Evicting"), weight=0)
async def take_landing_rights(world: World, *, program: str, resource: str, seconds: float, moment: str) -> None:
    """A controller may not write one of the things that its pilot writes, for a while."""
    if moment:
        await world.in_drain([moment], _LAST)

    def rule(request: Asked) -> Refused | None:
        full = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        if ours(request.by) != program or full != resource or not request.writes:
            return None
        world.blinded(request.by, world.now)
        return Forbidden(f'{resource} is forbidden: User "{program}" cannot {request.verb} resource "{resource}"')

    world.tell(f"{program} loses the right to write {resource}")
    await world.ruled(rule, seconds)
    world.tell(f"{program} has its right to {resource} again")


@step(_PROGRAM, mode=one_of("off", "taints", "hints"), moment=one_of("", "Claimed", "Evicting"), weight=0)
async def steer(world: World, *, program: str, mode: str, moment: str) -> None:
    """The steering is set otherwise, in the middle of a drain or not."""
    team = world.team_of(program)
    if moment:
        await world.in_drain([moment], _LAST)
    if not world.quiet:
        world.tell(f"{program}: steering is {mode}")
        world.configure(team, {**team.settings, "steering": mode})


@step(value=one_of("", "true", "their-tool.v2"), seconds=one_of(10.0, 60.0, 1000.0), weight=0)
async def label_by_hand(world: World, *, value: str, seconds: float) -> None:
    """Somebody gives a node the label of those that leave, with another value, and perhaps takes it off again."""
    names = [each["metadata"]["name"] for each in world.store.list("Node") if label_of(each) is None]
    if not names:
        return

    def put(node: Json) -> None:
        node["metadata"].setdefault("labels", {})[LEAVING] = value

    def take(node: Json) -> None:
        if label_of(node) == value:
            del node["metadata"]["labels"][LEAVING]

    world.tell(f"somebody labels {names[-1]} with {LEAVING}={value}")
    with writing_as("person"):
        world.store.modify("Node", names[-1], "", put)
    await world.pause(seconds)
    if not world.quiet and world.store.find("Node", names[-1], "") is not None:
        with writing_as("person"):
            world.store.modify("Node", names[-1], "", take)


def _deployments(rng: Random, scenario: Scenario) -> Args:
    if not scenario.of("Deployment"):
        raise MissingError
    return {"workload": rng.choice(scenario.of("Deployment")).name}


@step(_deployments, more=one_of(4, 12, 30), after=one_of(0.0, 1.0, 3.0), back=one_of(20.0, 90.0), weight=0)
async def fill_up(world: World, *, workload: str, more: int, after: float, back: float) -> None:
    """A Deployment takes the room that was left in the middle of a drain, and gives it back after a while."""
    await world.in_drain(["Claimed", "Evicting"], WITHIN, after)
    owner = world.store.find("Deployment", workload, SHOP)
    if owner is None or world.quiet:
        return
    had = int(owner["spec"].get("replicas", 1))
    world.tell(f"Deployment {workload} grows from {had} to {had + more}")
    world.store.modify("Deployment", workload, SHOP, lambda each: each["spec"].update(replicas=had + more))
    await world.pause(back)
    if world.store.find("Deployment", workload, SHOP) is not None:
        world.store.modify("Deployment", workload, SHOP, lambda each: each["spec"].update(replicas=had))
