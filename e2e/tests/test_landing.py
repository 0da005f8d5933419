"""A controller with ``steering: exact`` and the chart's policies on a real control plane: pods land where they should.

And no gate outlives the controller: not the death of a leader, nor an uninstall, nor a change of the mode.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from day import RELEASE, SYSTEM, UNGUARDED, Live, Town, settings

from tightship_charts.matrix import merge
from tightship_e2e.binaries import environment
from tightship_e2e.helm import run
from tightship_e2e.landings import GATE, gates
from tightship_e2e.names import SHOP
from tightship_e2e.providers.local import ControlPlaneProvider
from tightship_testkit.audit import AuditEvent
from tightship_testkit.audit_readings import evictions_by, forbidden
from tightship_testkit.client import Json
from tightship_testkit.faults import Answer, Call, Fault, Reset

pytestmark = pytest.mark.takes(20)

NAME = "node-compactor"
USER = f"system:serviceaccount:{SYSTEM}:{RELEASE}-{NAME}"
ENTRIES = f"{RELEASE}-{NAME}-landings"
LONGEST = 20.0
"""Seconds that a pod may be gated when a leader dies and there is a standby."""

TAINTS: Json = {"config": {"steering": "taints"}}
DRY: Json = {"dryRun": True}
EXACT: Json = {"config": {"steering": "exact"}}


class Watched:
    """Since when which pods have been seen with our gate, and how long each was."""

    def __init__(self, on: Town) -> None:
        self._on = on
        self.since: dict[str, float] = {}
        """Those that are gated now, by uid."""
        self.lasted: dict[str, float] = {}
        """Those that are not any more."""
        self.nodes: dict[str, tuple[str, str]] = {}
        """(nominated node, node) of those that have a node, as far as both were seen."""
        self._nominated: dict[str, str] = {}

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def look(self) -> None:
        """Look once at all pods."""
        pods = {each["metadata"]["uid"]: each for each in await self._on.api.list("Pod", SHOP)}
        gated = {uid for uid, each in pods.items() if GATE in gates(each)}
        for uid in gated:
            self.since.setdefault(uid, self.now)
        for uid in self.since.keys() - gated:
            self.lasted[uid] = self.now - self.since.pop(uid)
        for uid, each in pods.items():
            if nominated := each["status"].get("nominatedNodeName"):
                self._nominated[uid] = nominated
            if uid in self._nominated and each["spec"].get("nodeName"):
                self.nodes[uid] = (self._nominated[uid], each["spec"]["nodeName"])

    async def none(self) -> bool:
        """Whether no pod is gated now."""
        await self.look()
        return not self.since

    def longest(self) -> float:
        """Return for how many seconds the pod with the longest gate had or has it."""
        return max([*self.lasted.values(), *(self.now - each for each in self.since.values())], default=0.0)


@asynccontextmanager
async def watching(on: Town) -> AsyncIterator[Watched]:
    """Look at the shop's pods all the time."""
    made = Watched(on)

    async def watch() -> None:
        while True:
            await made.look()
            await asyncio.sleep(0.03)

    task = asyncio.create_task(watch(), name="gates")
    try:
        yield made
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def landings(on: Town) -> Json:
    """Return what the leader says of landings in ``/status``."""
    for each in await on.provider.controllers(SYSTEM):
        if "tightship_leader 1.0" in (await each.get("/metrics"))[1]:
            status, text = await each.get("/status")
            found: Json = json.loads(text).get("landings") or {} if status == 200 else {}
            return found
    return {}


async def ready_to_lead(on: Town) -> None:
    """Wait until a leader has found the policy."""

    async def found() -> bool:
        said = await landings(on)
        return bool(said) and not said.get("problem")

    async def told() -> str:
        return str(await landings(on))

    await on.until(found, "a leader leads pods to their targets", told)


async def entries(on: Town) -> Json:
    """The entries of the ConfigMap of landings, empty where there is none."""
    found = await on.api.list("ConfigMap", SYSTEM, fieldSelector=f"metadata.name={ENTRIES}")
    return dict(found[0].get("data") or {}) if found else {}


def nominated(event: AuditEvent) -> bool:
    return (event.object_ref.resource, event.object_ref.subresource, event.code) == ("pods", "status", 200)


def nominates(call: Call) -> bool:
    return call.verb == "PATCH" and "/pods/" in call.path and call.path.endswith("/status")


def ungates(call: Call) -> bool:
    return call.verb == "PATCH" and "/pods/" in call.path and b"schedulingGates" in call.body


def test_every_replacement_lands_on_its_target(in_town: Live) -> None:
    async def work(on: Town) -> None:
        async with watching(on) as seen:
            await on.install_alone(NAME, **EXACT)
            await ready_to_lead(on)
            await on.seen(lambda: len(on.remover.removed) >= 2, "two nodes are taken away")
            await on.at_rest()
            await on.until_ready(UNGUARDED)
            said = await landings(on)
        assert said["mode"] == "exact"
        assert said["target"] >= 3
        assert (said.get("elsewhere", 0), said.get("unscheduled", 0)) == (0, 0)
        # A look now and then does not see every pod that is gated for a tenth of a second.
        assert seen.nodes
        assert all(wanted == node for wanted, node in seen.nodes.values()), seen.nodes
        assert seen.longest() < LONGEST
        assert await entries(on) == {}
        [leader] = await on.provider.controllers(SYSTEM)
        assert f'tightship_landings_total{{result="target"}} {said["target"]}.0' in (await leader.get("/metrics"))[1]
        events = await on.audited()
        assert sum(evictions_by(events, USER).values()) >= said["target"]
        assert len([each for each in events if each.user.username == USER and nominated(each)]) >= said["target"]
        assert forbidden(events, USER) == []

    in_town(work, by_night=True)


def test_hints_lead_replacements_without_a_gate_or_a_right_on_pods(in_town: Live) -> None:
    async def work(on: Town) -> None:
        async with watching(on) as seen:
            await on.install_alone(NAME, config={"steering": "hints"})
            await ready_to_lead(on)
            await on.seen(lambda: len(on.remover.removed) >= 2, "two nodes are taken away")
            await on.at_rest()
            await on.until_ready(UNGUARDED)
            said = await landings(on)
        assert (said["mode"], seen.lasted, seen.nodes) == ("hints", {}, {})
        # A preference is one of several that the scheduler weighs.
        assert said["target"] >= 3
        assert said["target"] > said.get("elsewhere", 0)
        assert said.get("unscheduled", 0) == 0
        assert await entries(on) == {}
        events = await on.audited()
        assert forbidden(events, USER) == []
        theirs = [each for each in events if each.user.username == USER and each.object_ref.resource == "pods"]
        assert {(each.verb, each.object_ref.subresource) for each in theirs} <= {
            ("list", ""), ("watch", ""), ("create", "eviction"),
        }  # fmt: skip

    in_town(work, by_night=True)


def local(on: Town) -> ControlPlaneProvider:
    """The provider, whose controllers are processes of this machine."""
    assert isinstance(on.provider, ControlPlaneProvider)
    return on.provider


async def kill_leader(on: Town) -> None:
    """SIGKILL the replica that leads."""
    for each in list(local(on).pods.running.values()):
        if "tightship_leader 1.0" in (await each.get("/metrics"))[1]:
            each.plane.signal(each.process, signal.SIGKILL)


class Once:
    """Breaks the first call that *chooses* says, before or after the server has done it, and kills the leader."""

    def __init__(self, on: Town, chooses: Callable[[Call], bool], *, done: bool) -> None:
        self.met = False
        self._on = on
        self._chooses = chooses
        self._done = done

    async def __call__(self, call: Call) -> Fault | None:
        if self.met or not self._chooses(call):
            return None
        self.met = True
        return Reset(done=self._done, **{"after" if self._done else "before": self._kill})

    async def _kill(self) -> None:
        await kill_leader(self._on)


@pytest.mark.takes(30)
@pytest.mark.parametrize(
    ("chooses", "done"),
    [(nominates, False), (nominates, True), (ungates, False)],
    ids=["before a nomination", "after a nomination", "before a gate goes"],
)
def test_a_standby_removes_the_gates_of_a_leader_that_was_killed(
    in_town: Live, chooses: Callable[[Call], bool], done: bool
) -> None:
    async def work(on: Town) -> None:
        # Without a budget: an uninstall ends both replicas at once.
        await on.install_alone(NAME, replicaCount=2, podDisruptionBudget={"enabled": False}, **EXACT)
        await ready_to_lead(on)
        killed = Once(on, chooses, done=done)
        async with watching(on) as seen:
            on.provider.disturb(killed)
            await on.seen(lambda: killed.met, "the leader is killed")
            await on.until(seen.none, "no pod is gated any more", deadline=2 * LONGEST)
            await on.until_led(NAME)
            await on.until(seen.none, "no pod is gated any more", deadline=LONGEST)
            assert seen.longest() < LONGEST
        local(on).pods.ended.clear()  # it was killed on purpose

        async def empty() -> bool:
            return await entries(on) == {} and not on.recorder.in_drain()

        await on.until(empty, "nothing is expected any more")
        await on.until_ready(UNGUARDED)
        assert await seen.none()

    in_town(work, by_night=True)


class Held:
    """Refuses every write of a controller to pods, so that they stay gated, until it is told to stop."""

    def __init__(self) -> None:
        self.holds = True

    async def __call__(self, call: Call) -> Fault | None:
        return Answer(503) if self.holds and (nominates(call) or ungates(call)) else None


async def in_the_middle(on: Town, what: Callable[[], Awaitable[object]]) -> None:
    """Do *what* while pods are gated, which nobody can change before the policy is gone."""
    held = Held()
    on.provider.disturb(held)

    async def without_policy() -> bool:
        return not await on.api.list("ConfigMap", SYSTEM, fieldSelector=f"metadata.name={ENTRIES}")

    async def done() -> None:
        await what()

    async with watching(on) as seen, asyncio.TaskGroup() as group:
        await on.seen(lambda: bool(seen.since), "a pod is gated")
        group.create_task(done(), name="in the middle")
        await on.until(without_policy, "the policy is gone")
        assert seen.since, "a pod should still be gated"
        held.holds = False


@pytest.mark.takes(30)
def test_an_uninstall_in_the_middle_of_a_drain_leaves_no_gate(in_town: Live) -> None:
    async def work(on: Town) -> None:
        await on.install_alone(NAME, **EXACT)
        await ready_to_lead(on)
        await in_the_middle(on, lambda: on.provider.uninstall(RELEASE, SYSTEM))
        # Helm has waited for what removes them.
        assert await Watched(on).none()
        await on.until_ready(UNGUARDED)
        left = await on.left_behind()
        assert [each for each in left if ": cordoned" in each or ": taint" in each] == []
        assert "landing" not in await on.provider.command("kubectl", "get", "configmaps", "-n", SYSTEM)
        assert RELEASE not in await on.provider.command(
            "kubectl", "get", "mutatingadmissionpolicies,validatingadmissionpolicies"
        )

    in_town(work, by_night=True)


@pytest.mark.takes(30)
@pytest.mark.parametrize("values", [TAINTS, DRY, {**TAINTS, **DRY}], ids=["taints", "dry run", "both"])
def test_leaving_the_mode_in_the_middle_of_a_drain_leaves_no_gate(in_town: Live, values: Json) -> None:
    async def work(on: Town) -> None:
        await on.install_alone(NAME, **EXACT)
        await ready_to_lead(on)
        given = merge(settings(NAME, on.metrics.url), {**EXACT, **values})
        await in_the_middle(on, lambda: on.provider.install(RELEASE, on.charts / NAME, SYSTEM, given))
        await on.until(Watched(on).none, "no pod is gated any more", deadline=LONGEST)
        await on.until_ready(UNGUARDED)

    in_town(work, by_night=True)


@pytest.mark.takes(30)
def test_gates_that_an_uninstall_without_its_hooks_leaves_go_as_the_page_about_drains_says(in_town: Live) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/drain.md").read_text()
    [script] = re.findall(r"```sh\n([^`]*tightship.dev/landing[^`]*)```", page)

    async def work(on: Town) -> None:
        await on.install_alone(NAME, **EXACT)
        await ready_to_lead(on)
        await in_the_middle(on, lambda: on.provider.uninstall(RELEASE, SYSTEM, hooks=False))
        assert not await Watched(on).none()
        around = environment({"kubectl": local(on).kubectl}, local(on).kubeconfig)
        await asyncio.to_thread(run, ["bash", "-euc", script], b"", around)
        assert await Watched(on).none()

    in_town(work, by_night=True)
