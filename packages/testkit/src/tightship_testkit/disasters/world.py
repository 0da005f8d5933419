"""The world of one run: the simulation, who runs in it, and what steps and promises ask about it."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tightship_simulator.api.store import AUTHOR, Store
from tightship_simulator.virtual.programs import PROGRAMS
from tightship_simulator.virtual.simulation import Replica, Simulation
from tightship_testkit.disasters.registry import STEPS
from tightship_testkit.disasters.scenario import Controller, Scenario, Step

Json = dict[str, Any]

CONFIG_MAPS = {
    "node-compactor": "estafette-k8s-node-compactor-config",
    "node-refiner": "node-refiner-cm",
    "hpa-scaler": "hpa-scaler-config",
}
INTERVALS = {
    "node-compactor": "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS",
    "node-refiner": "CALCULATION_LOOP_FREQUENCY_SECONDS",
    "hpa-scaler": "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS",
}
DRAIN = "tightship.dev/drain"
_PROGRAMS = {each.name: each for each in PROGRAMS}
_LOOK = 0.5
"""Seconds between two looks of a step that waits for something."""


class Team:
    """The replicas of one controller, the present ones and those before; *settings* are those last written."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.program = controller.program
        self.settings: Json = dict(controller.settings)
        self.dry_run = controller.variables.get("DRY_RUN") == "true"
        self.replicas: list[Replica] = []

    @property
    def alive(self) -> list[Replica]:
        """The replicas that run, frozen ones too."""
        return [each for each in self.replicas if not each.ended]


class World:
    """What steps act on and promises look at; times are seconds from the beginning of the scenario."""

    def __init__(self, simulation: Simulation, scenario: Scenario) -> None:
        self.simulation = simulation
        self.scenario = scenario
        self.began = simulation.loop.time()
        self.teams = {each.program: Team(each) for each in scenario.controllers}
        self.telling: Callable[[str], None] = lambda _text: None
        """Is told what steps do, in words."""
        self.broken: Callable[[object], None] = lambda _violation: None
        """Is told of each violation when it is found."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def store(self) -> Store:
        """The cluster's objects."""
        return self.simulation.store

    @property
    def now(self) -> float:
        """Seconds since the scenario began."""
        return self.simulation.loop.time() - self.began

    @property
    def quiet(self) -> bool:
        """Whether the story is over."""
        return self.now >= self.scenario.story

    def tell(self, text: str) -> None:
        """Note what a step does."""
        self.telling(text)

    # The story.

    async def play(self) -> None:
        """Play all steps at their times, until the story is over and each has ended."""
        for step in sorted(self.scenario.steps, key=lambda each: each.at):
            await asyncio.sleep(max(0.0, step.at - self.now))
            if self.quiet:
                break
            self._tasks.append(asyncio.create_task(self._act(step), name=f"step {step.kind}"))
        await asyncio.sleep(max(0.0, self.scenario.story - self.now))
        if self._tasks:
            await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.result()

    async def _act(self, step: Step) -> None:
        kind = STEPS[step.kind]
        AUTHOR.set(kind.author)
        done = kind.act(self, **step.args)
        if inspect.isawaitable(done):
            await done

    async def pause(self, seconds: float) -> None:
        """Let so much time pass, at most until the story is over."""
        await asyncio.sleep(max(0.0, min(seconds, self.scenario.story - self.now)))

    # Replicas.

    def team(self, program: str) -> Team | None:
        """Return the team of a controller, ``None`` where it doesn't run."""
        return self.teams.get(program)

    def start(self, team: Team, skew: float, **variables: str) -> Replica:
        """Start one more replica."""
        name = f"{team.program}-{len(team.replicas)}"
        own = {**team.controller.variables, **variables}
        if team.dry_run:
            own["DRY_RUN"] = "true"
        replica = self.simulation.start(
            _PROGRAMS[team.program], name=name, skew=skew, **{"NAMESPACE": team.controller.namespace, **own}
        )
        team.replicas.append(replica)
        return replica

    def holder(self, team: Team) -> str:
        """Return the name of the replica that holds the team's Lease, empty where none does."""
        found = self.store.find("Lease", team.program, team.controller.namespace)
        holder = ((found or {}).get("spec") or {}).get("holderIdentity") or ""
        return str(holder).rpartition("_")[0]

    def pick(self, team: Team, leader: bool) -> Replica | None:
        """Return the living replica that leads, or one that doesn't; any one where there is none such."""
        holder = self.holder(team)
        alive = [each for each in team.alive if not each.process.frozen]
        fitting = [each for each in alive if (each.name == holder) is leader]
        return next(iter(fitting or alive), None)

    # The cluster.

    def configure(self, team: Team, settings: Mapping[str, Any] | str) -> None:
        """Write the controller's ConfigMap; a text as it is."""
        if isinstance(settings, str):
            data = {"config.yaml": settings}
        elif team.program == "node-refiner":
            data = {key: str(value) for key, value in settings.items()}
        else:
            data = {"config.yaml": json.dumps(settings)}
        if not isinstance(settings, str):
            team.settings = dict(settings)
        name, namespace = CONFIG_MAPS[team.program], team.controller.namespace
        if self.store.find("ConfigMap", name, namespace) is None:
            self.store.create("ConfigMap", {"metadata": {"name": name, "namespace": namespace}, "data": data})
        else:
            self.store.modify("ConfigMap", name, namespace, lambda each: {**each, "data": data})

    def record(self, node: str) -> Json:
        """Return the drain that a node's annotation tells, empty where there is none."""
        found = self.store.find("Node", node)
        return drain_of(found) if found is not None else {}

    async def in_drain(self, phases: list[str], within: float = 120.0) -> str:
        """Wait until some node is in one of these phases; return its name, empty where none is in time."""
        end = min(self.scenario.story, self.now + within)
        while self.now < end:
            for node in self.store.list("Node"):
                if drain_of(node).get("phase") in phases:
                    return str(node["metadata"]["name"])
            await asyncio.sleep(_LOOK)
        return ""


def drain_of(node: Json) -> Json:
    """Return the drain that a node's annotation tells, empty where there is none that can be read."""
    text = (node["metadata"].get("annotations") or {}).get(DRAIN)
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def writing_as(author: str) -> Iterator[None]:
    """Have writes of this block be by *author*."""
    token = AUTHOR.set(author)
    try:
        yield
    finally:
        AUTHOR.reset(token)


__all__ = ["CONFIG_MAPS", "DRAIN", "INTERVALS", "Json", "Team", "World", "drain_of", "writing_as"]
