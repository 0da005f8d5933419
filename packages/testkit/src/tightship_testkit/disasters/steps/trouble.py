"""Steps of the API server, etcd, rights and admission: what makes requests fail for a while."""

from __future__ import annotations

from random import Random

from tightship_simulator.api.errors import Expired, Forbidden, Refused, TooManyRequests
from tightship_simulator.virtual.simulation import API_PORT
from tightship_testkit.disasters.promises.base import Asked, ours
from tightship_testkit.disasters.registry import Args, step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.world import World

_RIGHTS = ("nodes", "pods", "pods/eviction", "leases", "events", "configmaps", "poddisruptionbudgets", "replicasets")
_READS = frozenset({"get", "list", "watch"})


def _taken(rng: Random, scenario: Scenario) -> Args | None:
    if not scenario.controllers:
        return None
    program = rng.choice(scenario.controllers).program
    writes = rng.random() < 0.6
    return {
        "program": program,
        "resource": rng.choice(_RIGHTS),
        "writes": writes,
        "seconds": rng.choice((5.0, 20.0, 60.0)),
    }


@step(_taken, weight=2)
async def take_rights(world: World, *, program: str, resource: str, writes: bool, seconds: float) -> None:
    """A controller may not write a resource for a while, or neither write nor read it."""

    def rule(request: Asked) -> Refused | None:
        full = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        if ours(request.by) != program or full != resource or (writes and request.verb in _READS):
            return None
        world.blinded(request.by, world.now)
        return Forbidden(f'{resource} is forbidden: User "{program}" cannot {request.verb} resource "{resource}"')

    world.tell(f"{program} loses the right to {'write' if writes else 'read and write'} {resource}")
    await world.ruled(rule, seconds)
    world.tell(f"{program} has its right to {resource} again")


def _refused(rng: Random, scenario: Scenario) -> Args | None:
    if not scenario.workloads:
        return None
    code = rng.choice((403, 429, 500))
    return {"workload": rng.choice(scenario.workloads).name, "code": code, "seconds": rng.choice((20.0, 60.0, 150.0))}


class _WebhookFailed(Refused):
    code = 500
    reason = "InternalError"


@step(_refused, weight=1.5)
async def refuse_evictions(world: World, *, workload: str, code: int, seconds: float) -> None:
    """An admission webhook refuses, or fails at, the evictions of a workload's pods for a while."""
    text = 'admission webhook "evictions.example.com" denied the request: not now'

    def rule(request: Asked) -> Refused | None:
        if request.subresource != "eviction" or not request.name.startswith(f"{workload}-"):
            return None
        if code == 403:
            return Forbidden(text)
        return TooManyRequests(text) if code == 429 else _WebhookFailed("failed calling webhook: deadline exceeded")

    world.tell(f"evictions of {workload} are answered with {code}")
    await world.ruled(rule, seconds)
    world.tell(f"evictions of {workload} are let through again")


def _out(rng: Random, scenario: Scenario) -> Args:
    programs = [each.program for each in scenario.controllers]
    chosen = programs if rng.random() < 0.5 else [rng.choice(programs)] if programs else []
    return {"programs": chosen, "seconds": rng.choice((2.0, 8.0, 20.0, 45.0))}


@step(_out, weight=2)
async def outage(world: World, *, programs: list[str], seconds: float) -> None:
    """The API server can't be reached by these controllers for a while, and their connections break."""
    world.tell(f"the API server is away from {', '.join(programs)}")
    end = min(world.scenario.story, world.now + seconds)
    world.away.append((frozenset(programs), end))
    for program in programs:
        for replica in world.teams[program].alive if program in world.teams else ():
            world.simulation.network.cut(replica.process, API_PORT)
            world.blinded(replica.name, end)
    await world.pause(seconds)
    world.tell(f"the API server is back for {', '.join(programs)}")


def _restored(rng: Random, scenario: Scenario) -> Args:
    del scenario
    return {"seconds": rng.choice((0.3, 1.0, 1.0, 3.0)), "moment": rng.choice(("", "Claimed", "Evicting", "Restoring"))}


@step(_restored)
async def etcd_restored(world: World, *, seconds: float, moment: str = "") -> None:
    """Etcd comes back without what it was given last."""
    if moment:
        await world.in_drain([moment], 120.0)
    if world.quiet:
        return
    found = [version for at, version in world.versions if at <= world.now - seconds]
    if not found:
        return
    world.tell(f"etcd loses its last {seconds:g} s")
    for team in world.teams.values():
        for replica in team.alive:
            world.blinded(replica.name, world.now)
    try:
        world.store.restore(found[-1])
    except Expired:
        world.tell("and has nothing to lose")
