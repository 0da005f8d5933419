"""Another installation of a controller, which somebody starts beside the first."""

from __future__ import annotations

import json
from random import Random

from tightship_simulator.virtual.programs import PROGRAMS
from tightship_testkit.disasters.drawing import any_of, one_of, share
from tightship_testkit.disasters.promises.installations import INSTALLATIONS
from tightship_testkit.disasters.registry import step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.steps.replicas import any_skew
from tightship_testkit.disasters.team import CONFIG_MAPS
from tightship_testkit.disasters.world import Team, World

_STOPS = 20.0
"""Seconds that a replica may take to end."""


def _node_controller(rng: Random, scenario: Scenario) -> str:
    return str(any_of(rng, [each for each in scenario.controllers if each.program != "hpa-scaler"]).program)


@step(
    program=_node_controller,
    seconds=one_of(30.0, 60.0, 100.0),
    skew=lambda rng, _: any_skew(rng),
    kill=share(0.5),
    weight=0,
)
async def another_installation(world: World, *, program: str, seconds: float, skew: float, kill: bool) -> None:
    """Somebody starts the controller once more elsewhere, with the same settings; it ends before it could be alone."""
    team = world.team_of(program)
    if not _listed(world, team) or world.now + seconds + _STOPS > world.scenario.story:
        return
    name = f"another-{len(world.others)}"
    world.store.create("Namespace", {"metadata": {"name": name}})
    meta = {"name": CONFIG_MAPS[program], "namespace": name}
    world.store.create("ConfigMap", {"metadata": meta, "data": team.data(team.settings)})
    found = next(each for each in PROGRAMS if each.name == program)
    world.tell(f"{name} is started, another installation of {program}")
    variables = {**team.controller.variables, "NAMESPACE": name}
    variables.pop("DRY_RUN", None)
    world.others[name] = program
    other = world.simulation.start(found, name=name, skew=skew, **variables)
    await world.pause(seconds)
    world.tell(f"{name} is {'killed' if kill else 'reported to end'}")
    if kill:
        other.process.kill()
    else:
        other.stop()


def _listed(world: World, team: Team) -> bool:
    """Whether a live replica of the team leads, and its installation is on the list beside the claims."""
    where = team.controller.variables.get("CLAIMS_LEASE_NAMESPACE", "kube-system")
    lease = world.store.find("Lease", "tightship-claims", where) or {"metadata": {}}
    listed = json.loads((lease["metadata"].get("annotations") or {}).get(INSTALLATIONS, "[]"))
    own = f"{team.controller.namespace}/{team.program}"
    leads = any(each.name == world.holder(team) for each in team.alive)
    return leads and not team.dry_run and any(each["lease"] == own for each in listed)
