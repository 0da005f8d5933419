"""The cluster as the demo looks at it: by HTTP, like any client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from lively import node

from tightship.kube.connection import connect
from tightship.kube.resources import BY_KIND
from tightship_simulator.api.store import Store
from tightship_simulator.demo.observations import Gone, NodeSeen, Observation
from tightship_simulator.demo.watching import follow
from tightship_simulator.serve import EmbeddedCluster

DEADLINE = 90


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def _followed(store: Store, path: Path) -> AsyncIterator[list[Observation]]:
    seen: list[Observation] = []
    async with EmbeddedCluster(store) as cluster, await connect(cluster.kubeconfig(path / "kubeconfig")) as connection:
        task = asyncio.create_task(follow(connection, BY_KIND["Node"], seen.append))
        try:
            yield seen
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_what_is_there_what_changes_and_what_goes_is_told(tmp_path: Path) -> None:
    store = Store(seed=1)
    store.load([node("n1")])
    async with _followed(store, tmp_path) as seen:
        await _until(lambda: seen == [NodeSeen("n1", "a", 4000, 16384)])
        store.modify("Node", "n1", change=lambda each: each["spec"].update(unschedulable=True))
        await _until(lambda: len(seen) == 2)
        store.delete("Node", "n1")
        await _until(lambda: len(seen) == 3)
    assert seen[1:] == [NodeSeen("n1", "a", 4000, 16384, cordoned=True), Gone("node", "n1")]


async def test_what_went_while_nobody_looked_is_told_by_the_next_list(tmp_path: Path) -> None:
    """The history is too short for the watch to go on: it ends, and what the new list lacks is gone."""
    store = Store(seed=1, history=1)
    store.load([node("n1"), node("n2")])
    async with _followed(store, tmp_path) as seen:
        await _until(lambda: len(seen) == 2)
        store.delete("Node", "n1")
        for number in range(5):
            store.modify("Node", "n2", change=lambda each, at=number: each["metadata"].update(labels={"n": str(at)}))
        await _until(lambda: Gone("node", "n1") in seen)
