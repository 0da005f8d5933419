"""Steps of the API server, etcd, rights and admission: what makes requests fail for a while."""

from __future__ import annotations

from random import Random

from tightship_simulator.api.errors import Expired, Forbidden, Refused, TooManyRequests
from tightship_simulator.virtual.simulation import API_PORT
from tightship_testkit.disasters.drawing import named, one_of, program, share
from tightship_testkit.disasters.promises.base import Asked, ours
from tightship_testkit.disasters.registry import step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.world import World

_RIGHTS = ("nodes", "pods", "pods/eviction", "leases", "events", "configmaps", "poddisruptionbudgets", "replicasets")
_READS = frozenset({"get", "list", "watch"})


@step(program=program, writes=share(0.6), resource=one_of(*_RIGHTS), seconds=one_of(5.0, 20.0, 60.0), weight=2)
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


class _WebhookFailed(Refused):
    code = 500
    reason = "InternalError"


@step(
    code=one_of(403, 429, 500),
    workload=named(lambda each: each.workloads),
    seconds=one_of(20.0, 60.0, 150.0),
    weight=1.5,
)
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


def _one_or_all(rng: Random, scenario: Scenario) -> list[str]:
    programs = [each.program for each in scenario.controllers]
    return programs if rng.random() < 0.5 else [rng.choice(programs)] if programs else []


@step(programs=_one_or_all, seconds=one_of(2.0, 8.0, 20.0, 45.0), weight=2)
async def outage(world: World, *, programs: list[str], seconds: float) -> None:
    """The API server can't be reached by these controllers for a while, and their connections break."""
    world.tell(f"the API server is away from {', '.join(programs)}")
    end = min(world.scenario.story, world.now + seconds)
    world.away.append((frozenset(programs), end))
    for each in programs:
        for replica in world.teams[each].alive if each in world.teams else ():
            world.simulation.network.cut(replica.process, API_PORT)
            world.blinded(replica.name, end)
    await world.pause(seconds)
    world.tell(f"the API server is back for {', '.join(programs)}")


@step(seconds=one_of(0.3, 1.0, 1.0, 3.0), moment=one_of("", "Claimed", "Evicting", "Restoring"))
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
        return
    for team in world.teams.values():
        team.restored(world.now - seconds, world.now)
