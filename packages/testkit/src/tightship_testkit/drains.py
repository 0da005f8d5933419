"""What tests of drains share: a small cluster with one node to spare, and a team of replicas that works on it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tightship_testkit.client import Client, Items, Json, wait_for, wait_while
from tightship_testkit.invariants import Recorder
from tightship_testkit.manifests import POOL, as_list, budget, node, replicas
from tightship_testkit.marks import healthy
from tightship_testkit.remover import Remover
from tightship_testkit.replica import COMPACTOR, QUICK, Host, Program, Replica, Settings, claims, configure, new_team

DEADLINE = 90.0
SETTINGS: Settings = {
    **QUICK,
    "nodePools": {
        "*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0},
        "spare": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75, "scaleDownRequiredUnderutilizedNodeCount": 1},
    },
}
"""Only nodes of pool "spare" may go."""


def spare(name: str = "n1", pool: str = "spare") -> Json:
    """Return a node with something of others in every place that a drain writes to."""
    made = node(name)
    made["metadata"]["labels"] |= {POOL: pool, "example.com/kept": "yes"}
    made["metadata"]["annotations"] = {"example.com/note": "not ours"}
    taint = {"key": "example.com/soft", "value": "x", "effect": "PreferNoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    made["spec"]["taints"] = [*made["spec"].get("taints", []), taint]
    return made


def small(*more: Json, pods: int = 3) -> Json:
    """Return a cluster: n1 may go, n2 and n3 have room and stay; *pods* pods on n1, and a budget that allows one."""
    rest = [spare(name, pool="rest") for name in ("n2", "n3")]
    where = ["n1"] * pods + ["n2", "n3"]
    return as_list(spare(), *rest, *replicas("web", where, app="web"), budget("web", len(where) - 1, app="web"), *more)


def two_spare() -> Json:
    """Return a cluster in which n4 may go too, before n1; a successor that forgot a claim would take the other."""
    return small(spare("n4"), *replicas("two", ["n4", "n4"], app="two"))


class Place:
    """A loaded cluster, watched, with a team of replicas, which are processes of *host*."""

    def __init__(self, host: Host, api: Client, recorder: Recorder) -> None:
        self.host = host
        self.api = api
        self.recorder = recorder
        self.team = new_team()
        self.program = COMPACTOR
        self.kubeconfig = Path()
        self.replicas: list[Replica] = []

    async def staff(self, program: Program, settings: Settings) -> None:
        """Have replicas that are started from now on be *program*'s, with a ConfigMap of its own."""
        self.program = program
        await self.configured(settings)

    async def configured(self, settings: Settings | str) -> None:
        """Write the team's configuration."""
        await configure(self.api, self.team, settings, self.program)

    def start(self, **variables: str) -> Replica:
        """Start one more replica."""
        self.replicas.append(Replica(self.host, self.team, self.kubeconfig, self.program, **variables))
        return self.replicas[-1]

    async def passes(self, replica: Replica, more: int = 3) -> None:
        """Wait until a replica has judged so many times more."""
        before = replica.log.count('"judged"')
        await self.seen(lambda: replica.log.count('"judged"') >= before + more, f"{more} passes of {replica.name}")

    async def gone(self, name: str, deadline: float = DEADLINE) -> None:
        """Wait until a node is gone."""
        await self.seen(lambda: self.recorder.node(name) is None, f"{name} is gone", deadline)

    async def phase(self, name: str, phase: str, deadline: float = DEADLINE) -> None:
        """Wait until a node has been in a phase."""
        await self.seen(lambda: phase in self.recorder.phases(name), f"{name} is {phase}", deadline)

    async def free(self) -> None:
        """Wait until no claim is left."""

        async def none() -> bool:
            return await claims(self.api, self.team) == []

        try:
            await wait_for(none, DEADLINE, "no claim is left")
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    async def seen(self, condition: Callable[[], bool], what: str, deadline: float = DEADLINE) -> None:
        """Wait for what the recorder sees; the replicas' reasons and logs are in the error."""
        try:
            await self.recorder.until(condition, what, deadline)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self.reasons()}\n{self.logs()}") from None

    async def reasons(self) -> str:
        """Return why each replica that answers keeps nodes."""
        answers = {each.name: await each.get("/status") for each in self.replicas}
        plans = {name: json.loads(body)["plan"] for name, (code, body) in answers.items() if code == 200}
        kept = {
            name: [f"{each['name']} {each['reasons'] or 'may go'}" for each in plan["nodes"]]
            for name, plan in plans.items()
            if plan
        }
        return "\n".join(f"{name}: {', '.join(nodes)}" for name, nodes in kept.items())

    def logs(self) -> str:
        """Return the ends of what the replicas have said."""
        return "\n".join(f"--- {each.name} (exit {each.code})\n{each.log[-12000:]}" for each in self.replicas)

    async def checked(self) -> None:
        """Hold everything that was seen against the invariants."""
        try:
            await self.recorder.check()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None


async def all_ready(api: Client) -> None:
    """Wait until every ReplicaSet has all its pods, bound and Ready."""

    async def obstacle() -> str:
        wanted = sum(each["spec"]["replicas"] for each in await api.list("ReplicaSet"))
        pods: Items = await api.list("Pod", "shop")
        there = sum(healthy(pod) and bool(pod["spec"].get("nodeName")) for pod in pods)
        return "" if there == wanted else f"{there} of {wanted} pods are Ready"

    await wait_while(obstacle, DEADLINE, "all pods are Ready again")


@asynccontextmanager
async def removing(api: Client) -> AsyncIterator[Remover]:
    """Have emptied nodes removed meanwhile."""
    async with Remover(api) as remover:
        yield remover
