"""How many nodes go, and when none may."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.cluster import POOL
from tightship_testkit.disasters.promises.base import Json, Promise, ours
from tightship_testkit.disasters.promises.drains import begun
from tightship_testkit.disasters.promises.reading import (
    TO_BE_DELETED,
    created,
    drain_of,
    has_taint,
    leaving,
    owned,
    ready,
    requests,
    room,
    seconds,
)
from tightship_testkit.disasters.registry import promise

MARGIN = 30.0
CLAIMS = "tightship-claims"


def _pool(node: Json) -> str:
    return str((node["metadata"].get("labels") or {}).get(POOL, ""))


def _most(value: object, nodes: int) -> int:
    if value is None:
        return 1
    text = str(value)
    return math.ceil(float(text[:-1]) * nodes / 100) if text.endswith("%") else int(text)


@promise
class WithinDrainBudget(Promise):
    """When a drain begins, no more nodes are in drain than its controller's settings allow, whoever drains them."""

    name = "within-drain-budget"
    text = "No more nodes out at once than the budget says, whichever controllers run and however many replicas."

    seen = 1.0
    """Seconds until a controller sees a drain on the node of another, after which it needs no list of claims."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lost = -math.inf

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] == "Lease" and change.object["metadata"]["name"] == CLAIMS and not ours(author):
            self._lost = self.world.now
        program = begun(change, author)
        team = self.world.team(program) if program else None
        if team is None or self.world.sent < self._lost + self.seen:
            return
        nodes = self.world.store.list("Node")
        out = {each["metadata"]["name"]: owned(each) for each in nodes if owned(each)}
        # What the autoscaler has taken is on its way out for everybody, and counts no more until it is back in use.
        out = {name: each for name, each in out.items() if "Yielded" not in (each.get("since") or {})}
        # The list of claims says who was first, not whose node was written first; each goes by settings of its own.
        claims, mine = self._claims(program), str(owned(change.object).get("op"))
        after = claims.partition(f'"{mine}"')[2]
        out = {name: each for name, each in out.items() if f'"{each.get("op")}"' not in after}
        most = max(_most(each.get("maximumNodesInDrain"), len(nodes)) for each in team.recent(self.world.now))
        name = change.object["metadata"]["name"]
        if len(out) > most:
            whose = sorted({str(each.get("controller")) for each in out.values()})
            ledgers = len({self.world.ledger(each) for each in whose})
            detail = f"nodes {', '.join(sorted(out))} are in drain by {' and '.join(whose)}"
            more = f", whose ledgers are in {ledgers} namespaces" if ledgers > 1 else ""
            self.broken(f"Node {name}", f"{author} began to drain it: {detail}, {most} may be{more}")
        if program == "node-compactor":
            self._of_pool(
                change.object, out, author, [each.get("nodePools") or {} for each in team.recent(self.world.now)]
            )

    def _claims(self, program: str) -> str:
        lease = self.world.store.find("Lease", CLAIMS, self.world.ledger(program)) or {"metadata": {}}
        return str((lease["metadata"].get("annotations") or {}).get("tightship.dev/claims", ""))

    def _of_pool(self, node: Json, out: dict[str, Json], author: str, recent: list[Json]) -> None:
        pool = _pool(node)
        mates = [each for each in self.world.store.list("Node") if _pool(each) == pool]
        settings = [each.get(pool) or each.get("*") or {} for each in recent]
        if any("maximumNodesInDrain" not in each for each in settings):
            return
        most = max(_most(each["maximumNodesInDrain"], len(mates)) for each in settings)
        names = sorted(each["metadata"]["name"] for each in mates if each["metadata"]["name"] in out)
        if len(names) > most:
            name = node["metadata"]["name"]
            self.broken(f"Node {name}", f"{author} began to drain it: of pool {pool} {names} are, {most} may be")


@promise
class MinimumsKept(Promise):
    """When a drain begins, the nodes that stay are as many as the minimums of its controller say."""

    name = "minimums-kept"
    text = "No cluster below its minimums."
    noticed = 5.0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._counts: list[tuple[float, Counter[str]]] = []

    def passed(self) -> None:
        now = self.world.now
        self._counts = [each for each in self._counts if each[0] > now - self.noticed]
        self._counts.append((now, self._staying()))

    def _staying(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for node in self.world.store.list("Node"):
            if not owned(node) and not has_taint(node, TO_BE_DELETED) and not leaving(node):
                found[_pool(node)] += 1
                found[""] += 1
        return found

    def changed(self, change: Change, author: str) -> None:
        program = begun(change, author)
        team = self.world.team(program) if program else None
        if team is None or self.world.blind(author, 0.0):
            return
        name, pool = change.object["metadata"]["name"], _pool(change.object)
        recent = team.recent(self.world.now)
        if program == "node-refiner":
            least, where = min(int(each.get("minimumNodeCount", 2)) for each in recent), ""
        else:
            pools = [(each.get("nodePools") or {}) for each in recent]
            least = min(int((each.get(pool) or each.get("*") or {}).get("minimumNodeCount", 0)) for each in pools)
            where = pool
        # What has just gone may not be known yet: this node was among those that stayed, too.
        kept = max([self._staying()[where], *(each[where] - 1 for _, each in self._counts)])
        if kept < least:
            self.broken(
                f"Node {name}", f"{author} began to drain it: {kept} nodes of {where or 'all'} stay, not {least}"
            )


@promise
class WaitsUntilWell(Promise):
    """No drain begins while too many nodes are not Ready, or a pod finds no node since the last drain."""

    name = "waits-until-well"
    text = "No new drain in an unhealthy cluster: nodes that are not Ready, pods left Pending by the last drain."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._ended: dict[str, float] = {}
        self._unready: dict[str, float] = {}

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] == "Node":
            name = change.object["metadata"]["name"]
            if change.type == "DELETED" or ready(change.object):
                self._unready.pop(name, None)
            else:
                self._unready.setdefault(name, self.world.now)
        if change.object["kind"] == "Node" and change.previous is not None:
            before, after = owned(change.previous), owned(change.object) if change.type != "DELETED" else {}
            if before and not after:
                self._ended[str(before.get("controller"))] = self.world.wall
        program = begun(change, author)
        team = self.world.team(program) if program else None
        if team is None or self.world.blind(author, 0.0):
            return
        self._look_at_nodes(change, author)
        if self.world.skewed > 10 or program not in self._ended:
            return
        limit = (
            max(seconds(each.get("pendingAfterDrainTimeout", "120s")) for each in team.recent(self.world.now)) + MARGIN
        )
        ended = self._ended[program]
        for pod in self.world.store.list("Pod"):
            age = self.world.wall - created(pod)
            if pod["spec"].get("nodeName") or leaving(pod) or created(pod) < ended + 6 or age < limit:
                continue
            if self._could_run(pod):
                name = change.object["metadata"]["name"]
                detail = f"pod {pod['metadata']['name']} has had no node for {age:.0f} s since the last drain"
                self.broken(f"Node {name}", f"{author} began to drain it: {detail}")

    def _look_at_nodes(self, change: Change, author: str) -> None:
        """Nodes that others take away are not counted; the defaults allow one, or a tenth."""
        nodes = [each for each in self.world.store.list("Node") if not has_taint(each, TO_BE_DELETED)]
        names = {each["metadata"]["name"] for each in nodes if not leaving(each)}
        known = [name for name, since in self._unready.items() if name in names and self.world.sent > since + 5]
        if len(known) > max(1, len(names) / 10):
            name = change.object["metadata"]["name"]
            self.broken(f"Node {name}", f"{author} began to drain it, and {', '.join(sorted(known))} are not Ready")

    def _could_run(self, pod: Json) -> bool:
        if not pod["spec"].keys().isdisjoint(("nodeSelector", "affinity", "resourceClaims")):
            return False
        cpu, memory = requests(pod)
        plain = [each for each in self.world.store.list("Node") if not (each["spec"].get("taints") or [])]
        return any(room(each)[0] >= cpu and room(each)[1] >= memory for each in plain)


@promise
class NoChurn(Promise):
    """What we drain does not come back again and again: where the autoscaler adds a node soon after it took one of the
    pool that we had emptied, no drain begins in that pool for a while.
    """

    name = "no-churn"
    text = "A drain is worth it: the autoscaler does not add again and again what was just drained."
    soon = 120.0
    """Seconds after its deletion in which a new node of the pool counts as the same one come back."""
    noticed = 15.0
    """Seconds for which the new node has to be there, and a replica to lead, until that is known."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._gone: list[tuple[float, str]] = []
        self._back: dict[str, tuple[float, str]] = {}
        self._seen: Counter[tuple[str, str]] = Counter()
        """For how many seconds a controller could have noticed it, by pool and controller."""

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] == "Lease" and change.object["metadata"]["name"] == CLAIMS and not ours(author):
            self._back.clear()  # somebody has taken away what was learned
            self._seen.clear()
        if change.object["kind"] != "Node":
            return
        pool, name, now = _pool(change.object), change.object["metadata"]["name"], self.world.now
        if begun(change, author):
            self._begins(name, pool, author)
        elif author:
            return  # only what the autoscaler of the cluster does by itself
        elif change.type == "DELETED" and drain_of(change.object).get("phase") in ("Drained", "Yielded"):
            self._gone.append((now, pool))
        elif change.type == "ADDED" and now > 1:
            found = next((each for each in self._gone if each[1] == pool and now - each[0] <= self.soon), None)
            if found is not None:
                self._gone.remove(found)
                self._back.setdefault(pool, (now, name))

    def passed(self) -> None:
        for pool, (_, name) in self._back.items():
            if self.world.store.find("Node", name) is None:
                continue
            for program, team in self.world.teams.items():
                holder = self.world.holder(team)
                leads = any(each.name == holder and not each.process.frozen for each in team.alive)
                self._seen[pool, program] += leads and not self.world.faulted(holder)

    def _begins(self, node: str, pool: str, author: str) -> None:
        at, name = self._back.get(pool, (math.inf, ""))
        seen = self._seen[pool, ours(author)] > self.noticed
        if not seen or self.world.skewed > 10 or self.world.blind(author, 0.0):
            return
        detail = f"{author} began to drain {node}, {self.world.now - at:.0f} s after {name} was added"
        self.broken(f"Pool {pool}", f"{detail} within {self.soon:g} s of one that we had drained")


@promise
class OneWaitsAfterItsCordon(Promise):
    """Of all nodes, one at a time is cordoned for budgets that open only then, whichever controllers run."""

    name = "one-waits-after-its-cordon"
    text = "One node at a time in the cluster waits for budgets that open after a cordon."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lost = False

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] == "Lease" and change.object["metadata"]["name"] == CLAIMS and not ours(author):
            self._lost = True
        if self._lost or not begun(change, author):
            return
        records = {each["metadata"]["name"]: owned(each) for each in self.world.store.list("Node")}
        waits = [name for name, each in records.items() if each.get("waitsFor") and each["phase"] == "Claimed"]
        if len(waits) > 1:
            self.broken(f"Node {change.object['metadata']['name']}", f"{', '.join(waits)} wait at once")
