"""Nodes that come for pods that wait: for their own pool, one at a time, and no more than there may be."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tightship_testkit.client import Json, wait_for
from tightship_testkit.embedded import yard
from tightship_testkit.floors import SHOP, deployment
from tightship_testkit.grower import Grower
from tightship_testkit.invariants import healthy
from tightship_testkit.manifests import POOL, node

pytestmark = pytest.mark.virtual_time

DEADLINE = 60.0


def wide(name: str, pool: str, replicas: int) -> Json:
    """A Deployment of which one pod fills a node."""
    made = deployment(name, replicas)
    spec = made["spec"]["template"]["spec"]
    spec["nodeSelector"] = {POOL: pool}
    spec["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
    return made


async def test_a_pool_grows_for_its_own_pods_up_to_its_maximum(tmp_path: Path) -> None:
    async with yard(tmp_path) as made:
        api = made.api

        async def add(name: str, pool: str) -> None:
            item = node(name)
            item["metadata"]["labels"][POOL] = pool
            await api.create(item)

        async def nodes() -> list[str]:
            return sorted(each["metadata"]["labels"][POOL] for each in await api.list("Node"))

        async def all_there() -> bool:
            return sum(healthy(each) for each in await api.list("Pod", SHOP)) == 3

        await api.create({"kind": "Namespace", "metadata": {"name": SHOP}})
        async with Grower(api, add, {"a": 2, "b": 2}, after=0.2, pause=2) as grower:
            await api.create(wide("fits", "a", 2))
            await api.create(wide("one", "b", 1))
            await api.create(wide("strange", "c", 1))
            await wait_for(all_there, DEADLINE, "what can run runs")
            assert await nodes() == ["a", "a", "b"]
            await api.create(wide("more", "a", 1))
            await asyncio.sleep(5)
            assert await nodes() == ["a", "a", "b"]
        assert grower.added == ["a-new-0", "b-new-1", "a-new-2"]
