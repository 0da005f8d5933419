"""Steps at the controllers' ConfigMaps."""

from __future__ import annotations

from random import Random

from tightship_testkit.disasters.drawing import MissingError, one_of, program
from tightship_testkit.disasters.promises.stopping import STOP
from tightship_testkit.disasters.registry import Args, step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.team import CONFIG_MAPS
from tightship_testkit.disasters.world import Json, World


def _of_nodes(rng: Random, scenario: Scenario) -> str:
    chosen = program(rng, scenario)
    if chosen == "hpa-scaler":
        raise MissingError
    return chosen


def _edited(rng: Random, scenario: Scenario) -> Args:
    chosen = _of_nodes(rng, scenario)
    key, value = rng.choice(
        (
            ("maximumNodesInDrain", rng.choice((1, 2, 3, "50%"))),
            ("settleTime", rng.choice(("1s", "6s"))),
            ("handOverTimeout", rng.choice(("10s", "30s"))),
            ("nodeDrainTimeout", rng.choice(("15s", "40s"))),
            ("steering", rng.choice(("taints", False))),
            ("minimumNodeCount" if chosen == "node-refiner" else "maximumEvictionsInFlight", rng.choice((1, 3))),
        )
    )
    return {"program": chosen, "key": key, "value": value}


@step(_edited, weight=2)
def configure(world: World, *, program: str, key: str, value: object) -> None:
    """A key of a controller's settings is changed."""
    team = world.team_of(program)
    world.tell(f"{program}: {key} is {value}")
    world.configure(team, {**team.settings, key: value})


_WRONG = {"garbage": "nodePools: {", "unknown": "maximumNodesInDrain: 9\nbogus: 1\n", "value": "holdOff: soon\n"}


@step(program=program, kind=one_of("garbage", "unknown", "value"))
def configure_wrongly(world: World, *, program: str, kind: str) -> None:
    """A ConfigMap gets what can't be read, or says too much; the settings in force stay."""
    team = world.team_of(program)
    world.tell(f"{program}: a configuration with {kind} in it")
    team.spoilt = world.now if team.spoilt is None else team.spoilt
    data = {"config.yaml": _WRONG[kind]}
    name, namespace = CONFIG_MAPS[program], team.controller.namespace
    if world.store.find("ConfigMap", name, namespace) is not None:
        world.store.modify("ConfigMap", name, namespace, lambda each: {**each, "data": data})


@step(program=_of_nodes, seconds=one_of(30.0, 100.0, 1000.0), moment=one_of("", "Evicting"), weight=1.5)
async def switch_off(world: World, *, program: str, seconds: float, moment: str = "") -> None:
    """A controller is switched off, and perhaps on again."""
    if moment:
        await world.in_drain([moment], 100.0)
    team = world.team_of(program)
    if world.quiet:
        return
    before = dict(team.settings)
    world.tell(f"{program} is switched off")
    if program == "node-refiner":
        world.configure(team, {**before, "enabled": False})
    else:
        pools = {name: {**each, "enabled": False} for name, each in (before.get("nodePools") or {}).items()}
        world.configure(team, {**before, "nodePools": pools})
    await world.pause(seconds)
    if not world.quiet:
        world.tell(f"{program} is switched on")
        world.configure(team, before)


@step(
    program=program,
    seconds=one_of(0.5, 10.0, 60.0, 300.0),
    moment=one_of("", "Claimed", "Evicting", "Drained"),
    word=one_of("true", "true", "perhaps"),
    weight=1.5,
)
async def stop_by_lease(world: World, *, program: str, seconds: float, word: str, moment: str = "") -> None:
    """A person stops a controller by the annotation on its Lease, and starts it again."""
    if moment:
        await world.in_drain([moment], 100.0)
    team = world.team_of(program)
    where = team.controller.namespace
    if world.quiet or world.store.find("Lease", program, where) is None:
        return
    world.tell(f"{program} is stopped: {word}")
    _annotate(world, program, where, word)
    await world.pause(seconds)
    world.tell(f"{program} is started again")
    _annotate(world, program, where, None)


def _annotate(world: World, name: str, namespace: str, word: str | None) -> None:
    def change(lease: Json) -> Json:
        notes = {key: value for key, value in (lease["metadata"].get("annotations") or {}).items() if key != STOP}
        meta = {**lease["metadata"], "annotations": notes if word is None else {**notes, STOP: word}}
        return {**lease, "metadata": meta}

    if world.store.find("Lease", name, namespace) is not None:
        world.store.modify("Lease", name, namespace, change)


@step(program=program, seconds=one_of(5.0, 60.0), weight=0.5)
async def delete_configuration(world: World, *, program: str, seconds: float) -> None:
    """A ConfigMap is deleted, and comes back."""
    team = world.team_of(program)
    name, namespace = CONFIG_MAPS[program], team.controller.namespace
    world.delete("ConfigMap", name, namespace)
    await world.pause(seconds)
    world.tell(f"ConfigMap {name} is back")
    world.configure(team, team.settings)
