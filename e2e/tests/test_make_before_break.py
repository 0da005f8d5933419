"""Deployments of one replica are moved by their own rollouts on a real control plane, while the controller is killed.

``TIGHTSHIP_MOVES=1000`` asks for that many moves instead of a dozen.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import defaultdict
from typing import Any

import aiohttp
import pytest
from drains import Run, Site

from tightship.kube.connector import connector
from tightship_e2e import settle
from tightship_testkit.client import RESOURCES, Client, wait_for
from tightship_testkit.drains import SETTINGS, removing, spare
from tightship_testkit.faults import Call, Fault, Reset
from tightship_testkit.manifests import POOL, as_list, budget
from tightship_testkit.replica import Replica

Json = dict[str, Any]

MOVES = int(os.environ.get("TIGHTSHIP_MOVES", "12"))
EACH = 4 if MOVES <= 12 else 16
"""Deployments, all of them on one node at a time."""
FOREVER = {"watch": "true", "timeoutSeconds": "86400"}
"""Else the API server ends a watch after half an hour or an hour."""
PATIENCE = 90.0 if MOVES <= 12 else 600.0
"""Seconds for one drain: its controller may be killed in each step of many in a row, and starts in seconds."""
ALONE = {"LEADER_ELECT": "false"}
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
DRAIN = "tightship.dev/drain"
NAMES = [f"app-{number}" for number in range(EACH)]


def deployment(name: str) -> Json:
    """Return a Deployment of one replica, whose rollouts are remembered."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    pods = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": pods}
    return {"kind": "Deployment", "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


class Watched:
    """Sees every version of Deployments, pods and nodes: which pods were Ready, and which restarts there were."""

    def __init__(self, api: Client) -> None:
        self._api = api
        self._ready: dict[str, set[str]] = defaultdict(set)
        self._apps: dict[str, str] = {}
        self._begun: set[str] = set()
        self.gaps: list[str] = []
        self.times: dict[str, list[str]] = defaultdict(list)
        self.generations: dict[str, int] = {}
        self.drains: dict[str, str] = {}
        """The operation of the drain that began at each time."""

    async def run(self, kind: str) -> None:
        """Watch a kind for ever."""
        api, path = self._api, RESOURCES[kind].path(None if kind == "Node" else "shop")
        session = aiohttp.ClientSession(
            api.server,
            connector=connector(tls=api.trust),
            headers=api.headers,
            read_bufsize=1 << 20,
            timeout=aiohttp.ClientTimeout(total=None),
        )
        async with session, session.get(path, params=FOREVER) as answer:
            async for line in answer.content:
                event = json.loads(line)
                assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
                getattr(self, f"_{kind.lower()}")(event["object"], gone=event["type"] == "DELETED")

    def _pod(self, pod: Json, *, gone: bool) -> None:
        app, uid = pod["metadata"]["labels"]["app"], pod["metadata"]["uid"]
        conditions = pod.get("status", {}).get("conditions", ())
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        if ready and not gone and "deletionTimestamp" not in pod["metadata"]:
            self._ready[app].add(uid)
            self._begun.add(app)
            return
        self._ready[app].discard(uid)
        if app in self._begun and not self._ready[app]:
            self.gaps.append(f"{app} has no Ready pod at version {pod['metadata']['resourceVersion']}")

    def _deployment(self, item: Json, *, gone: bool) -> None:
        assert not gone
        name = item["metadata"]["name"]
        self.generations[name] = item["metadata"]["generation"]
        at = (item["spec"]["template"]["metadata"].get("annotations") or {}).get(RESTARTED_AT)
        if at is not None and self.times[name][-1:] != [at]:
            self.times[name].append(at)

    def _node(self, node: Json, *, gone: bool) -> None:
        record = json.loads((node["metadata"].get("annotations") or {}).get(DRAIN, "{}"))
        if not gone and record.get("phase") == "Claimed":
            self.drains[record["since"]["Claimed"]] = record["op"]


class Killer:
    """Kills the replica with a chance before or after each of its writes, and starts the next one."""

    def __init__(self, on: Site, chance: float) -> None:
        self.kills = 0
        self._on = on
        self._chance = chance
        self._dice = random.Random(38)
        self._replica: Replica = on.start(**ALONE)

    async def __call__(self, call: Call) -> Fault | None:
        if not call.write_number or self._dice.random() >= self._chance or "/events" in call.path:
            return None
        self.kills += 1
        replica = self._replica

        async def kill() -> None:
            await asyncio.to_thread(replica.kill)

        if self._dice.random() < 0.5:
            return Reset(before=kill)
        return Reset(done=True, after=kill)

    async def keep_one(self) -> None:
        """Start a replica whenever there is none."""
        while True:
            if self._replica.code is not None:
                self._replica = self._on.start(**ALONE)
            await asyncio.sleep(0.05)


@pytest.mark.takes(40)
@pytest.mark.timeout(max(600, 5 * MOVES))
def test_no_deployment_is_without_a_ready_pod_or_restarted_twice_while_its_drains_are_killed(on_site: Run) -> None:
    rounds = -(-MOVES // EACH)
    cluster = as_list(spare("m0"))

    async def work(on: Site) -> None:
        api = on.api
        await settle.ensure_namespace(api, "shop")
        for name in NAMES:
            await api.create(deployment(name))

        async def settled(node: str) -> bool:
            pods = await api.list("Pod", "shop")
            there = [
                each for each in pods if each["spec"].get("nodeName") == node and each["status"]["phase"] == "Running"
            ]
            return len(there) == len(pods) == EACH

        await wait_for(lambda: settled("m0"), 60, "all pods run")
        for name in NAMES:
            await api.create(budget(name, 1, app=name))
        await api.create(spare("m1", pool="rest"))
        on.recorder.human |= {f"m{number}" for number in range(rounds + 1)}  # whose labels the test changes
        seen = Watched(api)
        killer = Killer(on, 0.08 if MOVES > 12 else 0.15)
        tasks = [asyncio.create_task(seen.run(kind)) for kind in ("Pod", "Deployment", "Node")]
        tasks.append(asyncio.create_task(killer.keep_one()))
        on.proxy.plan = killer
        try:
            async with removing(api):
                for number in range(rounds):
                    await on.gone(f"m{number}", PATIENCE)
                    if number + 1 == rounds:
                        break
                    fresh = spare(f"m{number + 2}", pool="rest")
                    await api.create(fresh)
                    await api.patch("Node", f"m{number + 1}", {"metadata": {"labels": {POOL: "spare"}}})
            await wait_for(lambda: settled(f"m{rounds}"), 60, "all pods have moved")
            assert not any(each.done() for each in tasks), [each.exception() for each in tasks if each.done()]
        finally:
            for each in tasks:
                each.cancel()
        moves = sum(map(len, seen.times.values()))
        print(f"\n{moves} moves, {killer.kills} kills, {len(set(seen.drains))} drains")
        assert seen.gaps == []
        assert moves >= rounds * EACH
        for name, times in seen.times.items():
            assert len(set(times)) == len(times) == seen.generations[name] - 1, f"{name} was restarted twice: {times}"
            assert set(times) <= set(seen.drains), f"{name} was restarted by no drain"
        assert not [each.call.path for each in on.proxy.log if each.call.path.endswith("/eviction")]

    # Nodes are added all the time here, which is no sign that a drain was a mistake.
    own = {"makeBeforeBreak": "all", "afterCordonTimeout": PATIENCE - 30, "regretWindow": 0}
    on_site(work, cluster, settings={**SETTINGS, **own})
