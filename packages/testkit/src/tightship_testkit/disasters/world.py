"""The world of one run: the simulation, who runs in it, and what steps and promises ask about it."""

from __future__ import annotations

import asyncio
import inspect
import json
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from tightship_simulator.api.errors import Refused
from tightship_simulator.api.store import AUTHOR, Change, Store
from tightship_simulator.virtual.programs import PROGRAMS
from tightship_simulator.virtual.simulation import API_PORT, Replica, Simulation
from tightship_testkit.disasters.drawing import MissingError
from tightship_testkit.disasters.floors.market import Market
from tightship_testkit.disasters.registry import STEPS
from tightship_testkit.disasters.scenario import Scenario, Step
from tightship_testkit.disasters.team import CONFIG_MAPS, Json, Team

Rule = Callable[[Any], Refused | None]
"""Says whether a request is forbidden, by rights or by an admission webhook."""

DRAIN = "tightship.dev/drain"
SENT: ContextVar[float] = ContextVar("sent")
"""When the request arrived that is being carried out, in seconds from the beginning of the scenario."""
Moment = tuple[str, str, int]
"""The request of a kind and a number that a controller sends."""
_PROGRAMS = {each.name: each for each in PROGRAMS}
RECOVERY = 35.0
"""Seconds after its last trouble in which a process may still know less than there is: it lists again with pauses."""
_LETS_GO = 5.0
"""Seconds between two looks of the controller of finalizers."""
_LOOK = 0.5
"""Seconds between two looks of a step that waits for something."""
_REMEMBERED = 64
"""Records of a node that are remembered."""


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
        self.market = Market(self, scenario.floors) if scenario.floors is not None else None
        """What floors follow, where the scenario has any."""
        self.started: dict[str, float] = {}
        """When each replica was started."""
        self.rehearsed: Mapping[Moment, tuple[str, int]] = {}
        """Which replica sends what in which step of its own, where the scenario asks for that."""
        self.rules: list[Rule] = []
        """What forbids requests now, or does something when they come."""
        self.denials: list[Rule] = []
        """Those of the rules that only forbid."""
        self.away: list[tuple[frozenset[str], float]] = []
        """From which controllers the API server is away, and until when."""
        self.skews: list[float] = []
        self.others: dict[str, str] = {}
        """The controllers of other installations, by the names of their replicas."""
        self.asked_to_end: set[str] = set()
        """Names of the replicas that were told to end at the end of the scenario."""
        self.versions: deque[tuple[float, int]] = deque(maxlen=4096)
        """Times, and versions of the store that were reached at them."""
        self._blind: dict[str, list[float]] = {}
        self._records: dict[str, deque[tuple[float, Json]]] = {}
        self._began: dict[str, float] = {}
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

    @property
    def wall(self) -> float:
        """The true seconds since 1970."""
        return self.simulation.wall()

    # What promises ask.

    @property
    def sent(self) -> float:
        """When the request arrived that makes the present change; now where none does."""
        return SENT.get(self.now)

    @property
    def skewed(self) -> float:
        """By how much any two clocks of replicas differ at most."""
        return max(self.skews, default=0.0) - min([0.0, *self.skews])

    def clocks(self) -> str:
        """Return words on how much clocks differ, empty where that is usual."""
        return f" (clocks are up to {self.skewed:.0f} s apart)" if self.skewed > 10 else ""

    def blinded(self, process: str, until: float) -> None:
        """Take note that *process* met a fault, that may last *until* then."""
        self._blind.setdefault(process, []).append(until)

    def blind(self, process: str, since: float) -> bool:
        """Whether *process* may have missed what happened after *since*, because of a fault."""
        found = self._blind.get(process)
        return found is not None and max(found) + RECOVERY > max(since, self.now - RECOVERY)

    def faulted(self, process: str) -> bool:
        """Whether *process* may know or do less than it would because of a fault; its start is none."""
        began = self.started.get(process)
        return any(each != began and each + RECOVERY > self.now for each in self._blind.get(process, ()))

    def records(self, node: str, since: float) -> list[Json]:
        """Return the drains that a node's annotation has told since then, and the one before."""
        found: list[Json] = []
        for at, record in reversed(self._records.get(node, ())):
            found.append(record)
            if at < since:
                break
        return found

    def began_at(self, op: str) -> float | None:
        """Return when a drain began."""
        return self._began.get(op)

    def ledger(self, program: str) -> str:
        """Return the namespace in which a controller keeps its claims."""
        team = self.team(program)
        if team is None:
            return ""
        return team.controller.variables.get("CLAIMS_LEASE_NAMESPACE", "kube-system")

    def changed(self, change: Change) -> None:
        """Take note of a change of the store."""
        self.versions.append((self.now, change.version))
        if change.object["kind"] != "Node":
            return
        name, record = change.object["metadata"]["name"], drain_of(change.object)
        if change.previous is None or drain_of(change.previous) != record or change.type == "DELETED":
            reported = self._records.setdefault(name, deque(maxlen=_REMEMBERED))
            reported.append((self.now, {} if change.type == "DELETED" else record))
            if record.get("op"):
                self._began.setdefault(str(record["op"]), self.now)

    # The story.

    async def let_go(self) -> None:
        """Take finalizers off pods that have waited for long enough, at the end of the story all of them; for ever."""
        waits: dict[str, float] = {}
        while True:
            await asyncio.sleep(_LETS_GO)
            for pod in self.store.list("Pod"):
                meta = pod["metadata"]
                if not meta.get("finalizers") or not meta.get("deletionTimestamp"):
                    continue
                since = waits.setdefault(meta["uid"], self.now)
                if self.quiet or self.now - since >= 5 + zlib.crc32(meta["uid"].encode()) % 80:
                    with writing_as("finalizer"):
                        self.store.modify("Pod", meta["name"], meta["namespace"], _without_finalizers)

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
        for team in self.teams.values():
            # Who started meanwhile goes by the defaults until then.
            if team.spoilt is not None:
                self.configure(team, team.settings)

    async def _act(self, step: Step) -> None:
        kind = STEPS[step.kind]
        AUTHOR.set(kind.author)
        with suppress(MissingError):
            done = kind.act(self, **step.args)
            if inspect.isawaitable(done):
                await done

    async def pause(self, seconds: float) -> None:
        """Let so much time pass, at most until the story is over."""
        await asyncio.sleep(max(0.0, min(seconds, self.scenario.story - self.now)))

    async def ruled(self, rule: Rule, seconds: float) -> None:
        """Have *rule* hold for requests of controllers for so long."""
        self.rules.append(rule)
        self.denials.append(rule)
        await self.pause(seconds)
        self.rules.remove(rule)
        self.denials.remove(rule)

    def refuses(self, process: str, port: int) -> bool:
        """Whether the API server is away from *process*."""
        program = process.rpartition("-")[0]
        return port == API_PORT and any(program in each and self.now < end for each, end in self.away)

    # What steps act on; they end where it is missing.

    def thing(self, kind: str, name: str, namespace: str = "") -> Json:
        """Return an object. Raises :class:`MissingError`."""
        found = self.store.find(kind, name, namespace)
        if found is None:
            raise MissingError
        return found

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object if it is there, and tell it."""
        if self.store.find(kind, name, namespace) is not None:
            self.tell(f"{kind} {name} is deleted")
            self.store.delete(kind, name, namespace)

    def team_of(self, program: str) -> Team:
        """Return the team of a controller. Raises :class:`MissingError` where it doesn't run."""
        if program not in self.teams:
            raise MissingError
        return self.teams[program]

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
            team.dry.add(name)
        self.skews.append(skew)
        self.blinded(name, self.now)
        self.started[name] = self.now
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
        data = team.data(settings)
        if not isinstance(settings, str):
            team.configured(dict(settings), self.now)
        name, namespace = CONFIG_MAPS[team.program], team.controller.namespace
        if self.store.find("ConfigMap", name, namespace) is None:
            self.store.create("ConfigMap", {"metadata": {"name": name, "namespace": namespace}, "data": data})
        else:
            self.store.modify("ConfigMap", name, namespace, lambda each: {**each, "data": data})

    def record(self, node: str) -> Json:
        """Return the drain that a node's annotation tells, empty where there is none."""
        found = self.store.find("Node", node)
        return drain_of(found) if found is not None else {}

    async def in_drain(self, phases: list[str], within: float = 120.0, after: float = 0.0) -> str:
        """Wait until some node is in one of these phases, and *after* seconds more.

        Return its name, empty where none is in time.
        """
        end = min(self.scenario.story, self.now + within)
        while self.now < end:
            for node in self.store.list("Node"):
                if drain_of(node).get("phase") in phases:
                    if after:
                        await self.pause(after)
                    return "" if self.quiet else str(node["metadata"]["name"])
            await asyncio.sleep(_LOOK)
        return ""


def _without_finalizers(thing: Json) -> None:
    thing["metadata"].pop("finalizers")


def drain_of(node: Json) -> Json:
    """Return the drain that a node's annotation tells, empty where none can be read; not to be changed."""
    text = (node["metadata"].get("annotations") or {}).get(DRAIN)
    return _read(text) if text else _NO_DRAIN


_NO_DRAIN: Json = {}


@lru_cache(maxsize=1024)
def _read(text: str) -> Json:
    try:
        found = json.loads(text)
    except ValueError:
        return _NO_DRAIN
    return found if isinstance(found, dict) else _NO_DRAIN


@contextmanager
def writing_as(author: str) -> Iterator[None]:
    """Have writes of this block be by *author*."""
    token = AUTHOR.set(author)
    try:
        yield
    finally:
        AUTHOR.reset(token)


__all__ = ["DRAIN", "SENT", "Json", "Moment", "Rule", "Team", "World", "drain_of", "writing_as"]
