"""Nodes that come for pods that wait: for their own pool, one at a time, and no more than there may be."""

from __future__ import annotations

from pathlib import Path

from tightship_e2e import ControlPlane
from tightship_e2e.plugin import require_programs
from tightship_e2e.providers.local import on_plane
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.floors import SHOP, deployment
from tightship_testkit.grower import Grower
from tightship_testkit.invariants import healthy
from tightship_testkit.manifests import POOL

DEADLINE = 60.0


def wide(name: str, pool: str, replicas: int) -> Json:
    """A Deployment of which one pod fills a node."""
    made = deployment(name, replicas)
    spec = made["spec"]["template"]["spec"]
    spec["nodeSelector"] = {POOL: pool}
    spec["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
    return made


def test_a_pool_grows_for_its_own_pods_up_to_its_maximum(empty_plane: ControlPlane, tmp_path: Path) -> None:
    require_programs("helm", "prometheus")

    async def work(api: Client) -> None:
        async def nodes() -> list[str]:
            found = await api.list("Node")
            return sorted(each["metadata"]["labels"][POOL] for each in found)

        async def ready() -> int:
            return sum(healthy(each) for each in await api.list("Pod", SHOP))

        async def all_there() -> bool:
            return await ready() == 3

        await api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": SHOP}})
        async with on_plane(empty_plane, api, tmp_path) as provider:
            async with Grower(api, provider.add_node, {"a": 2, "b": 2}, after=0.2, pause=20) as grower:
                await api.create(wide("fits", "a", 2))
                await api.create(wide("one", "b", 1))
                await api.create(wide("strange", "c", 1))
                await wait_for(all_there, DEADLINE, "what can run runs")
                assert await nodes() == ["a", "a", "b"]
                await api.create(wide("more", "a", 1))
                looks = grower.looks
                await wait_for(lambda: _looked(grower, looks + 20), DEADLINE, "it has looked again")
                assert await nodes() == ["a", "a", "b"]
            assert len(grower.added) == 3

    empty_plane.run(work)


async def _looked(grower: Grower, times: int) -> bool:
    return grower.looks >= times
