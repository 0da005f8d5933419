"""What docs/drain.md says of a drain, step by step."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.cluster import POOL
from tightship_testkit.disasters.promises.base import Eviction, Json, Promise, ours
from tightship_testkit.disasters.promises.reading import (
    DRAINING,
    cordoned,
    created,
    daemon,
    drain_of,
    expendable,
    has_taint,
    holder_of,
    leaving,
    owned,
    pod_opts_out,
    ready,
    requests,
    room,
    seconds,
    terminating,
)
from tightship_testkit.disasters.registry import promise

NOTICED = 2.5


def begun(change: Change, author: str) -> str:
    """Return the controller that has just begun a drain, empty where none has."""
    if change.object["kind"] != "Node" or change.type != "MODIFIED" or change.previous is None:
        return ""
    record = owned(change.object)
    return ours(author) if record.get("phase") == "Claimed" and not owned(change.previous) else ""


@promise
class WrittenBeforeDone(Promise):
    """Cordon and taint come with the record that says who is responsible, and with an entry in the list of claims."""

    name = "written-before-done"
    text = "Who is, and since when, stands on the node before anything is done to it; claims are taken under one Lease."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lost: list[str] = []
        """What lists said that somebody else has changed or taken away since, such as etcd without its last second."""

    def changed(self, change: Change, author: str) -> None:
        kind, name = change.object["kind"], change.object["metadata"]["name"]
        if kind == "Lease" and name == "tightship-claims" and not ours(author):
            self._lost.append(_claims(change.previous or change.object))
        old = change.previous
        if kind != "Node" or old is None or not ours(author):
            return
        record = owned(change.object)
        for what, was, now in (
            ("the cordon", cordoned(old), cordoned(change.object)),
            (f"the taint {DRAINING}", has_taint(old, DRAINING), has_taint(change.object, DRAINING)),
        ):
            if now and not was and not record:
                self.broken(f"Node {name}", f"{author} wrote {what}, and no drain is on the node")
        program = begun(change, author)
        if program and not self._entered(program, name, str(record.get("op"))):
            self.broken(f"Node {name}", f"{author} claimed it, and the list of claims has no entry of this drain")

    def _entered(self, program: str, node: str, op: str) -> bool:
        lease = self.world.store.find("Lease", "tightship-claims", self.world.ledger(program))
        return any(f'"{node}"' in text and f'"{op}"' in text for text in (_claims(lease or {}), *self._lost))


def _claims(lease: Json) -> str:
    return str(((lease.get("metadata") or {}).get("annotations") or {}).get("tightship.dev/claims", ""))


@promise
class Settles(Promise):
    """Between claim and first eviction a node is left alone for as long as `settleTime` says."""

    name = "settles"
    text = "Claimed: cordoned and tainted, no pod touched, until settleTime has passed."

    def evicted(self, eviction: Eviction) -> None:
        began, team = self.world.began_at(eviction.op), self.world.team(eviction.program)
        if began is None or team is None or eviction.node is None:
            return
        name = eviction.node["metadata"]["name"]
        # A successor's clock may be ahead.
        if any(
            each.get("op") == eviction.op and holder_of(each) != eviction.by for each in self.world.records(name, began)
        ):
            return
        recent = team.recent(self.world.now)
        wanted = min(seconds(each.get("settleTime", 5)) for each in recent)
        if self.world.now < began + wanted - 0.5:
            detail = f"{self.world.now - began:.1f} s after its claim, {wanted:g} s must pass"
            self.broken(f"Node {name}", f"{eviction.by} evicted {eviction.name} {detail}")


@promise
class NotReadyLeftAlone(Promise):
    """Nothing is evicted from a node that is not Ready."""

    name = "not-ready-left-alone"
    text = "The node becomes NotReady: nothing is evicted."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._since: dict[str, float] = {}

    def changed(self, change: Change, author: str) -> None:
        del author
        if change.object["kind"] == "Node":
            name = change.object["metadata"]["name"]
            if change.type == "DELETED" or ready(change.object):
                self._since.pop(name, None)
            else:
                self._since.setdefault(name, self.world.now)

    def evicted(self, eviction: Eviction) -> None:
        name = eviction.pod["spec"].get("nodeName", "")
        since = self._since.get(name)
        if since is not None and eviction.sent > since + NOTICED and not self.world.blind(eviction.by, since):
            detail = f"{eviction.sent - since:.1f} s after the node had become NotReady"
            self.broken(f"Node {name}", f"{eviction.by} evicted {eviction.name} {detail}")


@promise
class DrainedIsEmpty(Promise):
    """Drained is written only of a node without pods but those of DaemonSets, expendable and stuck ones."""

    name = "drained-is-empty"
    text = "Drained: empty but for DaemonSet, mirror and expendable pods."

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] != "Node" or change.previous is None or not ours(author):
            return
        if owned(change.object).get("phase") != "Drained" or owned(change.previous).get("phase") == "Drained":
            return
        name = change.object["metadata"]["name"]
        for pod in self.world.store.list("Pod"):
            if pod["spec"].get("nodeName") != name or daemon(pod) or self._stuck(pod):
                continue
            if expendable(pod) and not pod_opts_out(pod):
                continue
            if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                continue
            if self.world.wall - created(pod) > 2 * NOTICED and not self.world.blind(author, 0.0):
                self.broken(f"Node {name}", f"{author} calls it drained, and pod {pod['metadata']['name']} is on it")

    def _stuck(self, pod: Json) -> bool:
        """Whether a pod should have been gone, by the clock of whoever's is furthest ahead."""
        end = pod["metadata"].get("deletionTimestamp")
        return bool(end) and datetime.fromisoformat(end).timestamp() < self.world.wall + self.world.skewed


@promise
class PausesKept(Promise):
    """No drain begins before a pause is over: of the node after a failure, of pool or cluster after an addition."""

    name = "pauses-kept"
    text = "Backoff: not tried again before nextTry. Pauses after a node was added are kept."
    slack = 2.0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._failed: dict[str, tuple[float, float]] = {}
        """By node: when a drain of it was given up, and for how many seconds at least it is left alone then."""

    def changed(self, change: Change, author: str) -> None:
        self._given_up(change, author)
        program = begun(change, author)
        team = self.world.team(program) if program else None
        if team is None or change.previous is None or self.world.blind(author, 0.0):
            return
        name, slack = change.object["metadata"]["name"], self.slack + self.world.skewed
        before = drain_of(change.previous)
        if before.get("phase") == "Backoff" and before.get("nextTry"):
            left = datetime.fromisoformat(before["nextTry"]).timestamp() - self.world.wall
            if left > slack:
                self.broken(f"Node {name}", f"{author} claimed it {left:.1f} s before its next try")
            failed, least = self._failed.get(change.object["metadata"]["uid"], (0.0, 0.0))
            # The pause counts from when its write was sent.
            if self.world.now - failed < least - slack - self.world.scenario.admission:
                detail = f"{self.world.now - failed:.1f} s after its last drain was given up, {least:g} s must pass"
                self.broken(f"Node {name}", f"{author} claimed it {detail}")
        recent = team.recent(self.world.now)
        pool = (change.object["metadata"].get("labels") or {}).get(POOL)
        if program == "node-refiner":
            pause, mates = min(seconds(each.get("clusterCoolDownAfterNodeAdded", 0)) for each in recent), None
        else:
            pause, mates = min(seconds(each.get("coolDownAfterNodeAdded", 0)) for each in recent), pool
        for node in self.world.store.list("Node"):
            if mates is not None and (node["metadata"].get("labels") or {}).get(POOL) != mates:
                continue
            age = self.world.wall - created(node)
            # One that has just come may not be known yet.
            if NOTICED + slack < age < pause - slack:
                added = node["metadata"]["name"]
                detail = f"{age:.1f} s after node {added} was added, {pause:g} s must pass"
                self.broken(f"Node {name}", f"{author} claimed it {detail}")

    def _given_up(self, change: Change, author: str) -> None:
        team = self.world.team(ours(author))
        if change.object["kind"] != "Node" or change.type != "MODIFIED" or change.previous is None or team is None:
            return
        if drain_of(change.object).get("phase") == "Backoff" and drain_of(change.previous).get("phase") != "Backoff":
            least = min(seconds(each.get("backoff", 0)) for each in team.recent(self.world.now))
            self._failed[change.object["metadata"]["uid"]] = self.world.now, least


@promise
class PendingGetsItsNode(Promise):
    """A replacement that only a node in drain could run does not wait for ever: the node is given back to it."""

    name = "pending-gets-its-node"
    text = "Replacements stay Pending although this node could run them: the node is given back to them."
    margin = 50.0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._since: dict[tuple[str, str], float] = {}

    def passed(self) -> None:
        if int(self.world.now) % 3:
            return
        waiting = [
            pod
            for pod in self.world.store.list("Pod")
            if not pod["spec"].get("nodeName") and not leaving(pod) and not pod["spec"].get("nodeSelector")
        ]
        found: dict[tuple[str, str], float] = {}
        for node in self.world.store.list("Node") if waiting else ():
            record, name = owned(node), node["metadata"]["name"]
            team = self.world.team(str(record.get("controller")))
            if team is None or record.get("phase") not in ("Evicting", "Drained") or not self._driven(node, record):
                continue
            began = self.world.began_at(str(record.get("op"))) or 0.0
            limit = max(seconds(each.get("pendingTimeout", 30)) for each in team.recent(self.world.now))
            for pod in waiting:
                if created(pod) < self.world.wall - (self.world.now - began) + 2 or not self._fits(pod, node):
                    continue
                key = str(record.get("op")), pod["metadata"]["uid"]
                since = found[key] = self._since.get(key, self.world.now)
                if self.world.now - since > limit + self.margin + self.world.skewed:
                    detail = f"pod {pod['metadata']['name']} could run there, for {self.world.now - since:.0f} s now"
                    self.broken(f"Node {name}", f"stays {record.get('phase')}, and {detail}")
        self._since = found

    def _driven(self, node: Json, record: Json) -> bool:
        """Whether somebody drives the drain who sees what there is, and could give the node back."""
        holder = holder_of(record)
        replicas = [each for team in self.world.teams.values() for each in team.alive if each.name not in team.dry]
        alive = any(each.name == holder and not each.process.frozen for each in replicas)
        return alive and ready(node) and not terminating(node) and not self.world.blind(holder, 0.0)

    def _fits(self, pod: Json, node: Json) -> bool:
        name = node["metadata"]["name"]
        here = [requests(each) for each in self.world.store.list("Pod") if each["spec"].get("nodeName") == name]
        cpu, memory, pods = room(node)
        wanted = requests(pod)
        free_cpu, free_memory = cpu - sum(each[0] for each in here), memory - sum(each[1] for each in here)
        return free_cpu >= wanted[0] and free_memory >= wanted[1] and pods > len(here)
