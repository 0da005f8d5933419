"""A controller with ``steering: hints`` and the chart's policy on a real control plane: pods land where they should.

No pod waits for the label of nodes that leave, and the label does not outlive its plan: not by the death of a leader,
nor an uninstall, nor a change of the mode.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from day import RELEASE, SYSTEM, UNGUARDED, Live, ShopCluster, settings

from tightship_charts.matrix import merge
from tightship_e2e.binaries import environment
from tightship_e2e.helm import run
from tightship_e2e.landings import LEAVING
from tightship_e2e.names import SHOP
from tightship_e2e.providers.local import ControlPlaneProvider
from tightship_simulator.api.landing import drawn
from tightship_testkit.audit_readings import evictions_by, forbidden
from tightship_testkit.client import Json
from tightship_testkit.faults import Call, Fault, Reset

pytestmark = pytest.mark.takes(20)

NAME = "node-compactor"
USER = f"system:serviceaccount:{SYSTEM}:{RELEASE}-{NAME}"
ENTRIES = f"{RELEASE}-{NAME}-landings"
LONGEST = 30.0
"""Seconds that a replacement may be without a node because of us, whoever is killed."""

TAINTS: Json = {"config": {"steering": "taints"}}
DRY: Json = {"dryRun": True}
HINTS: Json = {"config": {"steering": "hints"}}
PLANNED: Json = {"config": {"steering": "hints", "maximumNodesInDrain": 0}}
"""A plan stands, and nothing is claimed."""


class Watched:
    """How long pods of the shop have had no node, and which nodes carried the label at each look."""

    def __init__(self, on: ShopCluster) -> None:
        self._on = on
        self._since: dict[str, float] = {}
        self._longest = 0.0
        self.labelled: set[str] = set()
        """The nodes that carry the label now."""
        self.ever: set[str] = set()

    async def look(self) -> None:
        """Look once at all pods and nodes."""
        now = asyncio.get_running_loop().time()
        pods = {each["metadata"]["uid"]: each for each in await self._on.api.list("Pod", SHOP)}
        without = {uid for uid, each in pods.items() if not each["spec"].get("nodeName")}
        for uid in self._since.keys() | without:
            self._longest = max(self._longest, now - self._since.setdefault(uid, now))
            if uid not in without:
                del self._since[uid]
        self.labelled = set(await leaving(self._on))
        self.ever |= self.labelled

    def longest(self) -> float:
        """Return for how many seconds the pod that waited longest had no node."""
        return self._longest


async def leaving(on: ShopCluster) -> list[str]:
    """The nodes that carry the label."""
    return [each["metadata"]["name"] for each in await on.api.list("Node", labelSelector=LEAVING)]


async def none_leaves(on: ShopCluster) -> bool:
    return not await leaving(on)


@asynccontextmanager
async def watching(on: ShopCluster) -> AsyncIterator[Watched]:
    """Look at the shop's pods and at the nodes all the time."""
    made = Watched(on)

    async def watch() -> None:
        while True:
            await made.look()
            await asyncio.sleep(0.3)

    task = asyncio.create_task(watch(), name="labels")
    try:
        yield made
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def landings(on: ShopCluster) -> Json:
    """Return what the leader says of landings in ``/status``."""
    for each in await on.provider.controllers(SYSTEM):
        if "tightship_leader 1.0" in (await each.get("/metrics"))[1]:
            status, text = await each.get("/status")
            found: Json = json.loads(text).get("landings") or {} if status == 200 else {}
            return found
    return {}


async def ready_to_lead(on: ShopCluster) -> None:
    """Wait until a leader has found the policy."""

    async def found() -> bool:
        said = await landings(on)
        return bool(said) and not said.get("problem")

    async def reported() -> str:
        return str(await landings(on))

    await on.until(found, "a leader leads pods to their targets", reported)


async def entries(on: ShopCluster) -> Json:
    """The entries of the ConfigMap of landings, empty where there is none."""
    found = await on.api.list("ConfigMap", SYSTEM, fieldSelector=f"metadata.name={ENTRIES}")
    return dict(found[0].get("data") or {}) if found else {}


def enters(call: Call) -> bool:
    return call.verb == "PATCH" and call.path.endswith(f"/configmaps/{ENTRIES}")


def evicts(call: Call) -> bool:
    return call.verb == "POST" and call.path.endswith("/eviction")


def test_replacements_land_on_their_targets_and_off_the_nodes_that_leave(on_shop_cluster: Live) -> None:
    async def work(on: ShopCluster) -> None:
        async with watching(on) as seen:
            await on.install_alone(NAME, **HINTS)
            await ready_to_lead(on)
            await on.seen(lambda: len(on.remover.removed) >= 2, "two nodes are taken away")
            await on.at_rest()
            await on.until_ready(UNGUARDED)
            said = await landings(on)
        assert said["mode"] == "hints"
        assert said["target"] >= 3
        assert (said.get("elsewhere", 0), said.get("unscheduled", 0)) == (0, 0)
        assert seen.ever.issuperset(on.remover.removed)
        assert seen.longest() < LONGEST
        await on.until(lambda: none_leaves(on), "no label is left")
        assert await entries(on) == {}
        events = await on.audited()
        assert sum(evictions_by(events, USER).values()) >= said["target"]
        assert forbidden(events, USER) == []
        theirs = [each for each in events if each.user.username == USER and each.object_ref.resource == "pods"]
        assert {(each.verb, each.object_ref.subresource) for each in theirs} <= {
            ("list", ""), ("watch", ""), ("create", "eviction"),
        }  # fmt: skip

    on_shop_cluster(work, by_night=True)


async def led_pod(on: ShopCluster, node: str) -> None:
    """Make a workload whose pod the policy has led, as it were, and that fits on *node* alone, which leaves."""
    affinity = drawn(None, ["nowhere"])
    body = {
        "affinity": affinity,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists", "effect": "PreferNoSchedule"}],
        "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "10m"}}}],
    }
    template = {"metadata": {"labels": {"app": "late"}}, "spec": body}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "late"}}, "template": template}
    await on.api.create({"kind": "ReplicaSet", "metadata": {"name": "late", "namespace": SHOP}, "spec": spec})


async def late_is_placed(on: ShopCluster) -> bool:
    pods = await on.api.list("Pod", SHOP, labelSelector="app=late")
    return bool(pods) and all(each["spec"].get("nodeName") for each in pods)


def test_a_pod_that_the_scheduler_finds_no_node_for_gets_one_that_leaves(on_shop_cluster: Live) -> None:
    async def work(on: ShopCluster) -> None:
        await planned(on)
        [node, *_] = await leaving(on)
        async with watching(on) as seen:
            await led_pod(on, node)
            await on.until(lambda: late_is_placed(on), "the pod has a node")
            print(f"\nwithout a node for {seen.longest():.1f} s")
            assert seen.longest() < 10
        assert node not in await leaving(on)
        assert forbidden(await on.audited(), USER) == []

    on_shop_cluster(work, by_night=True)


def local(on: ShopCluster) -> ControlPlaneProvider:
    """The provider, whose controllers are processes of this machine."""
    assert isinstance(on.provider, ControlPlaneProvider)
    return on.provider


async def kill_leader(on: ShopCluster) -> None:
    """SIGKILL the replica that leads."""
    for each in list(local(on).pods.running.values()):
        if "tightship_leader 1.0" in (await each.get("/metrics"))[1]:
            each.plane.signal(each.process, signal.SIGKILL)


class Once:
    """Breaks the first call that *chooses* says, before or after the server has done it, and kills the leader."""

    def __init__(self, on: ShopCluster, chooses: Callable[[Call], bool], *, done: bool) -> None:
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


WRITES = {"an entry": enters, "an eviction": evicts}


@pytest.mark.takes(30)
@pytest.mark.parametrize(
    ("what", "done", "replicas"),
    # Disasters kill a leader that steers at any of its requests; here one is replaced, and one succeeded.
    [("an entry", False, 1), ("an eviction", True, 2)],
)
def test_killed_at_a_write_the_next_one_goes_on_and_no_pod_waits(
    on_shop_cluster: Live, what: str, done: bool, replicas: int
) -> None:
    async def work(on: ShopCluster) -> None:
        # Without a budget: an uninstall ends both replicas at once.
        await on.install_alone(NAME, replicaCount=replicas, podDisruptionBudget={"enabled": False}, **TAINTS)
        killed = Once(on, WRITES[what], done=done)
        on.provider.disturb(killed)
        given = merge(settings(NAME, on.metrics.url), {
            **HINTS, "replicaCount": replicas, "podDisruptionBudget": {"enabled": False}})  # fmt: skip
        async with watching(on) as seen:
            await on.provider.install(RELEASE, on.charts / NAME, SYSTEM, given)
            await on.seen(lambda: killed.met, "the leader is killed")
            if replicas == 1:
                await on.provider.install(
                    RELEASE, on.charts / NAME, SYSTEM, {**given, "podAnnotations": {"again": "1"}}
                )
            await on.until_led(NAME)
            await on.at_rest()
            await on.until(lambda: none_leaves(on), "no label is left", deadline=60.0)
            assert seen.longest() < LONGEST
        await on.until_ready(UNGUARDED)
        assert await entries(on) == {}
        local(on).pods.ended.clear()  # it was killed on purpose

    on_shop_cluster(work, by_night=True)


async def planned(on: ShopCluster) -> None:
    """Install a controller that leads pods, and wait until a plan stands whose nodes carry the label."""

    async def stands() -> bool:
        return len(await leaving(on)) >= 2

    await on.install_alone(NAME, **PLANNED)
    await ready_to_lead(on)
    await on.until(stands, "two nodes leave")


async def nothing_is_held(on: ShopCluster) -> None:
    """See that an uninstall, which has waited for what gives back, has left no label, no cordon, no taint."""
    assert await leaving(on) == []
    left = await on.left_behind()
    assert [each for each in left if ": cordoned" in each or ": taint" in each] == []
    assert "landing" not in await on.provider.command("kubectl", "get", "configmaps", "-n", SYSTEM)


@pytest.mark.takes(60)
def test_leaving_the_mode_and_an_uninstall_leave_no_label(on_shop_cluster: Live) -> None:
    """By the other mode and a dry run; in order, after a kill, and without hooks as the page about drains says."""
    page = (Path(__file__).resolve().parents[2] / "docs/drain.md").read_text()
    [script] = re.findall(r"```sh\n([^`]*kubectl label nodes[^`]*tightship.dev/leaving[^`]*)```", page)

    async def work(on: ShopCluster) -> None:
        for values in (TAINTS, DRY):
            await planned(on)
            given = merge(settings(NAME, on.metrics.url), merge(PLANNED, values))
            await on.provider.install(RELEASE, on.charts / NAME, SYSTEM, given)
            await on.until(lambda: none_leaves(on), "no node carries the label any more", deadline=LONGEST)

        await planned(on)
        await on.provider.uninstall(RELEASE, SYSTEM)
        await nothing_is_held(on)

        await planned(on)
        await kill_leader(on)
        await on.provider.uninstall(RELEASE, SYSTEM)
        await nothing_is_held(on)

        await planned(on)
        await kill_leader(on)
        await on.provider.uninstall(RELEASE, SYSTEM, hooks=False)
        assert await leaving(on) != []
        around = environment({"kubectl": local(on).kubectl}, local(on).kubeconfig)
        await asyncio.to_thread(run, ["bash", "-euc", script], b"", around)
        assert await leaving(on) == []
        local(on).pods.ended.clear()  # they were killed on purpose

    on_shop_cluster(work, by_night=True)
