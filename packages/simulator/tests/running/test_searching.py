"""A running node-compactor that searches: when it begins, what it shows, and nodes of one plan drained side by side."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tightship_testkit.client import Json
from tightship_testkit.drains import all_ready
from tightship_testkit.embedded import embedded_cluster
from tightship_testkit.manifests import as_list, node, replicas
from tightship_testkit.replica import QUICK, Settings

pytestmark = pytest.mark.virtual_time

IN_DRAIN = 3
SEARCHING: Settings = {
    **QUICK,
    "strategy": "fewest-nodes",
    "placement": "possible",
    "search": "5s",
    "maximumNodesInDrain": IN_DRAIN,
    "maximumNotReadyNodePercentage": 100,
}


def fleet(nodes: int = 12) -> Json:
    """Nodes with one pod or two each, none of which any budget covers."""
    names = [f"n{number:02}" for number in range(nodes)]
    one = replicas("one", names, app="one")
    two = replicas("two", names[::2], app="two")
    return as_list(*(node(name) for name in names), *one, *two)


@pytest.mark.takes(5)
async def test_a_leader_claims_after_its_first_search_and_drains_several_nodes_of_the_plan(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, fleet(), SEARCHING) as on:
        on.recorder.budget = IN_DRAIN
        replica = on.start()
        await replica.ready()
        with on.removing() as remover:
            await on.seen(lambda: bool(on.recorder.in_drain()), "the first node is claimed")
            status = await replica.status()
            assert status["search"]["searches"] >= 1
            assert "claimsWait" not in status["search"]
            reported = status["plan"]["summary"]["search"]
            assert reported["searched"]["nodesAfter"] <= reported["greedy"]["nodesAfter"]
            planned = {each["name"] for each in status["plan"]["nodes"] if each["order"]}
            targets = {move["to"] for each in status["plan"]["nodes"] for move in each["moves"]}
            assert targets
            assert planned.isdisjoint(targets)
            await on.seen(lambda: len(remover.removed) >= 6, "six nodes are removed")
            await asyncio.sleep(30)
        await all_ready(on.api)
        assert 1 < on.recorder.most_in_drain <= IN_DRAIN
        text = (await replica.get("/"))[1]
        assert "at rest" in text


async def test_a_search_that_is_switched_on_and_off_leaves_no_trace(tmp_path: Path) -> None:
    settings = {**SEARCHING, "nodePools": {"*": {"enabled": False}}}
    async with embedded_cluster(tmp_path, fleet(4), settings) as on:
        replica = on.start()
        await replica.ready()
        await on.passes(replica, 2)
        assert (await replica.status())["search"] == {}, "no node may go, so nothing is searched"
        await on.configured({**settings, "search": 0})
        await on.passes(replica, 2)
        assert "search" not in await replica.status()
