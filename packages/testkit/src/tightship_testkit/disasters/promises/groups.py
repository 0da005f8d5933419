"""Nodes that nobody would delete: their pods stay."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tightship_testkit.disasters.cluster import POOL
from tightship_testkit.disasters.groups import (
    DISRUPTED,
    MINIMUM,
    NODE_POOL,
    STATUS,
    SYSTEM,
    keeps_empty,
    minimums_of,
)
from tightship_testkit.disasters.promises.base import Eviction, Json, Promise
from tightship_testkit.disasters.promises.reading import TO_BE_DELETED, has_taint, leaving, owned
from tightship_testkit.disasters.promises.reading import annotations as notes_of
from tightship_testkit.disasters.registry import promise


@promise
class OnlyNodesThatGo(Promise):
    """No pod is evicted from a node that would stay when it is empty: its group has no node to spare, by the minimum
    size that somebody tells, or Karpenter keeps the empty nodes of its NodePool.
    """

    name = "only-nodes-that-go"
    text = "No pod is evicted for a node that nobody would delete."
    noticed = 4.0
    """Seconds in which that may go unnoticed."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        scenario = self.world.scenario
        kinds = {each["kind"] for each in scenario.objects}
        self._any = bool(kinds & {"NodePool", "ConfigMap"}) or any(
            MINIMUM in each.annotations for each in scenario.nodes
        )
        self._since: dict[str, float] = {}

    def passed(self) -> None:
        if self._any:
            now = self.world.now
            self._since = {uid: self._since.get(uid, now) for uid in self._staying()}

    def evicted(self, eviction: Eviction) -> None:
        if not self._any or eviction.node is None:
            return
        meta = eviction.node["metadata"]
        since = self._since.get(meta["uid"])
        if since is None or eviction.sent <= since + self.noticed or self.world.blind(eviction.by, since):
            return
        why = self._staying().get(meta["uid"])
        if why:
            detail = f"nobody would delete that node since {eviction.sent - since:.1f} s: {why}"
            self.broken(f"Node {meta['name']}", f"{eviction.by} evicted {eviction.name}: {detail}")

    def _staying(self) -> dict[str, str]:
        """Return by uid of each node why it would stay, if it would."""
        store = self.world.store
        sizes = minimums_of(store.find("ConfigMap", STATUS, SYSTEM))
        pools = {each["metadata"]["name"]: keeps_empty(each) for each in store.list("NodePool")}
        mates: defaultdict[str, list[Json]] = defaultdict(list)
        for node in store.list("Node"):
            mates[_labels(node).get(POOL, "")].append(node)
        found = {}
        for pool, nodes in mates.items():
            for node in nodes:
                why = pools.get(_labels(node).get(NODE_POOL, ""), "")
                least = int(notes_of(node).get(MINIMUM, sizes.get(pool, 0)))
                left = sum(each is not node and _stays(each, node) for each in nodes) if least else 0
                if why:
                    found[node["metadata"]["uid"]] = f"its NodePool {why}"
                elif left < least:
                    found[node["metadata"]["uid"]] = f"its group would keep {left} of at least {least}"
        return found


def _stays(mate: Json, node: Json) -> bool:
    """Whether *mate* is there once *node* has gone: of two in drain the one that was claimed later stays."""
    if leaving(mate) or has_taint(mate, TO_BE_DELETED) or has_taint(mate, DISRUPTED):
        return False
    return (
        not owned(mate)
        or owned(mate)["phase"] == "Restoring"
        or (bool(owned(node)) and _claimed(mate) > _claimed(node))
    )


def _claimed(node: Json) -> tuple[str, str]:
    return str((owned(node).get("since") or {}).get("Claimed", "")), node["metadata"]["name"]


def _labels(node: Json) -> dict[str, str]:
    return node["metadata"].get("labels") or {}
