"""When nothing is written, and what is left at the end."""

from __future__ import annotations

from typing import Any

from tightship.cluster.installations import short
from tightship_simulator.api.store import Change
from tightship_testkit.disasters.landings import label_of, map_of
from tightship_testkit.disasters.promises.base import Asked, Promise, ours
from tightship_testkit.disasters.promises.cordons import SUCCESSION
from tightship_testkit.disasters.promises.reading import (
    CANDIDATE,
    COST_MARK,
    DRAINING,
    cordoned,
    deletes,
    has_taint,
    leaving,
    owned,
    taints,
    whose,
)
from tightship_testkit.disasters.promises.reading import (
    annotations as notes_of,
)
from tightship_testkit.disasters.registry import promise
from tightship_testkit.disasters.restarting import restarts
from tightship_testkit.disasters.team import prices
from tightship_testkit.disasters.world import Json, Team, World

_POD = "pod/"


@promise
class DryRunsWriteNothing(Promise):
    """A replica that was started as a dry run makes no request that changes anything.

    But for two things. It gives back a node that a drain of its own controller holds, or that its label names: it
    empties its ConfigMap of landings, patches that node, and writes the two Leases by which it is the only one to do
    so. And it takes deletion costs of its own controller off pods.
    """

    name = "dry-runs-write-nothing"
    text = "No write in a dry run but to give back what its own live self had cordoned."
    lately = 60.0
    """Seconds after which who gave a node back must have given up the Lease too."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # When a drain of a controller was last seen to hold a node, or a soft taint of its to be there.
        self._held: dict[tuple[str, str], float] = {}

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] == "Pod":
            for pod in (change.previous, change.object):
                if pod is not None and (mark := notes_of(pod).get(COST_MARK)):
                    self._held[whose(mark), _POD + pod["metadata"]["name"]] = self.world.now
        if change.object["kind"] != "Node":
            return
        name, new, old = change.object["metadata"]["name"], change.object, change.previous
        for node in (old, new):
            if node is not None and (program := _holder(node)):
                self._held[program, name] = self.world.now
        team = self.world.team(ours(author))
        if team is None or author not in team.dry or old is None:
            return
        if cordoned(new) > cordoned(old) or any(
            has_taint(new, key) > has_taint(old, key) for key in (DRAINING, CANDIDATE)
        ):
            self.broken(author, f"took Node {name}")

    def passed(self) -> None:
        for node in self.world.store.list("Node"):
            if program := _holder(node):
                self._held[program, node["metadata"]["name"]] = self.world.now
        for pod, program in priced(self.world):
            self._held[program, _POD + pod["metadata"]["name"]] = self.world.now

    def asked(self, request: Asked) -> None:
        program = ours(request.by)
        team = self.world.team(program)
        if team is None or request.by not in team.dry or not request.writes:
            return
        since = self.world.now - self.lately
        held = {node for (of, node), at in self._held.items() if of == program and at >= since}
        gives_back = request.verb == "patch" and request.resource == "nodes" and not request.subresource
        unprices = (request.verb, request.resource) == ("patch", "pods") and _POD + request.name in held
        # Who gives nodes back has first forgotten where their pods were to land.
        asked = request.resource == "leases" or _landings(request)
        if unprices or (gives_back and request.name in held) or (held and asked):
            return
        self.broken(request.by, f"asked for {request.verb} {request.resource} {request.name}")


def _landings(request: Asked) -> bool:
    """Whether it is about the ConfigMap of landings of who asks."""
    return request.resource == "configmaps" and request.name == f"{ours(request.by)}-landings"


def _holder(node: dict[str, Any]) -> str:
    """Return the controller that a drain, a label or a soft taint on *node* is of."""
    if record := owned(node):
        return str(record.get("controller") or "")
    if (label := label_of(node)) is not None:
        return whose(label)
    return next((whose(each.get("value")) for each in taints(node) if each["key"] == CANDIDATE), "")


_READ = frozenset({"list", "watch"})
_NODES = {
    **dict.fromkeys(
        (
            "nodes", "pods", "poddisruptionbudgets", "persistentvolumeclaims", "persistentvolumes", "namespaces",
            "replicationcontrollers", "storageclasses", "csinodes", "csidrivers", "csistoragecapacities",
            "volumeattachments", "replicasets", "statefulsets", "daemonsets", "jobs",
            "horizontalpodautoscalers", "capacitybuffers", "podtemplates", "configmaps", "nodepools",
            "podgroups", "leaderworkersets", "verticalpodautoscalers",
            "resourceslices", "deviceclasses", "resourceclaims",
        ),
        _READ,
    ),
    "pods/eviction": frozenset({"create"}),
    "events": frozenset({"create"}),
    "leases": frozenset({"create", "get", "update", "watch"}),
}  # fmt: skip
_NODES["nodes"] = _READ | {"get", "patch"}


@promise
class OnlyDocumentedRights(Promise):
    """The controllers of nodes ask for nothing but what docs/permissions.md lists."""

    name = "only-documented-rights"
    text = "No right that is not used, and none used that is not documented."

    def asked(self, request: Asked) -> None:
        if ours(request.by) not in ("node-compactor", "node-refiner"):
            return
        full = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        allowed = set(_NODES.get(full, ()))
        team = self.world.team(ours(request.by))
        if full == "pods" and team is not None and any(map(deletes, team.recent(self.world.now))):
            allowed.add("delete")
        allowed |= _of_pilot(team, full, request.name)
        if full == "pods" and team is not None and team.ever(prices):
            allowed.add("patch")
        if full == "deployments" and team is not None and team.ever(restarts):
            allowed |= {"get", "list", "patch", "watch"}
        if request.verb not in allowed:
            self.broken(request.by, f"asked for {request.verb} {full}")
        if full == "leases" and request.name not in ("", ours(request.by), "tightship-claims"):
            self.broken(request.by, f"asked for {request.verb} of Lease {request.name}")


def _of_pilot(team: Team | None, full: str, name: str) -> frozenset[str]:
    """Return what the chart adds for the pilot."""
    of_map = team is not None and team.controller.landings is not None and name == map_of(team.controller)
    return frozenset({"get", "patch"}) if of_map and full == "configmaps" else frozenset()


def priced(world: World) -> list[tuple[Json, str]]:
    """Return the pods that carry a deletion cost of a controller of ours, and that controller."""
    pods = world.store.list("Pod")
    return [(pod, whose(notes_of(pod)[COST_MARK])) for pod in pods if COST_MARK in notes_of(pod) and not leaving(pod)]


def _off(team: Team) -> bool:
    """Whether the settings that were last written let nothing be drained."""
    settings = team.settings
    if team.program == "node-refiner":
        return not settings.get("enabled", True)
    return not any(each.get("enabled") for each in (settings.get("nodePools") or {}).values())


@promise
class SwitchedOffBeginsNothing(Promise):
    """A controller that is switched off begins no drain, and takes its soft taints off.

    Those of another installation that has died go once nobody waits for that one any more.
    """

    name = "switched-off-begins-nothing"
    text = "Switched off: nothing new is begun, and the soft taints go."
    takes_effect = 40.0
    """Seconds after which an edit must have been seen, and a pass made."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._since: dict[str, float] = {}
        self._beside: dict[str, float] = {}
        """When another installation of a controller was last alive."""

    def passed(self) -> None:
        for each in self.world.simulation.replicas:
            if each.name in self.world.others and not each.ended:
                self._beside[self.world.others[each.name]] = self.world.now
        for program, team in self.world.teams.items():
            if not _off(team) or any(self.world.blind(each.name, 0.0) for each in team.alive):
                self._since.pop(program, None)
                continue
            leading = [each for each in team.alive if not each.process.frozen and each.name not in team.dry]
            if not leading:
                self._since.pop(program, None)
                continue
            since = self._since.setdefault(program, self.world.now)
            # A write that meets another one is sent again.
            if self.world.now - since < self.takes_effect + 20 + 3 * self.world.scenario.admission:
                continue
            own = short(f"{team.controller.namespace}/{program}")
            theirs = self.world.now - self._beside.get(program, -SUCCESSION) < SUCCESSION + self.takes_effect
            for node in self.world.store.list("Node"):
                marks = [str(each.get("value")) for each in taints(node) if each["key"] == CANDIDATE]
                if any(whose(each) == program and (each.endswith(own) or not theirs) for each in marks):
                    name = node["metadata"]["name"]
                    lasts = self.world.now - since
                    self.broken(f"Node {name}", f"carries the soft taint of {program}, switched off for {lasts:.0f} s")
            for pod, owner in priced(self.world):
                if owner == program and (own in notes_of(pod)[COST_MARK] or not theirs):
                    name = pod["metadata"]["name"]
                    self.broken(f"Pod {name}", f"carries a deletion cost of {program}, which is switched off")

    def changed(self, change: Change, author: str) -> None:
        program = ours(author)
        since = self._since.get(program)
        if not program or change.object["kind"] != "Node" or since is None or change.previous is None:
            return
        if self.world.now - since > self.takes_effect and not owned(change.previous) and owned(change.object):
            lasts = self.world.now - since
            self.broken(
                f"Node {change.object['metadata']['name']}", f"{author} claimed it, switched off for {lasts:.0f} s"
            )


@promise
class NothingLeft(Promise):
    """Of replicas that were told to end nothing is left that nobody would see to.

    A drain that waits for what opens after its cordon has a deadline, and stays for the next leader, as evictions do.
    """

    name = "nothing-left"
    text = "No soft taint or deletion cost outlives its controller; a claimed node is restored."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._renewed: dict[str, float] = {}

    def changed(self, change: Change, author: str) -> None:  # noqa: ARG002 - as every promise hears it
        if change.object["kind"] == "Lease":
            self._renewed[change.object["metadata"]["name"]] = self.world.now

    def ended(self) -> None:
        if not any(each.name not in team.dry for team in self.world.teams.values() for each in team.alive):
            # Nobody ends what nobody runs: whom that strands is for the owners of cordons.
            return
        for node in self.world.store.list("Node"):
            name = node["metadata"]["name"]
            if has_taint(node, DRAINING) and not owned(node):
                self.broken(f"Node {name}", f"has the taint {DRAINING}, and no drain is on it")

    def stopped(self) -> None:
        for team in self.world.teams.values():
            went_well = [each for each in team.replicas if each.name in self.world.asked_to_end]
            if not went_well or any(not each.ended or each.crashed for each in went_well):
                continue
            if all(each.name in team.dry for each in went_well):
                continue
            lease = self.world.store.find("Lease", team.program, team.controller.namespace)
            spec = (lease or {}).get("spec") or {}
            holder = str(spec.get("holderIdentity") or "")
            # A Lease that has run out keeps nobody waiting. An API server in trouble may have refused to free it.
            runs = self.world.now - self._renewed.get(team.program, 0.0) < spec.get("leaseDurationSeconds", 0)
            if runs and holder.rpartition("_")[0] in {each.name for each in went_well}:
                self.broken(f"Lease {team.program}", f"is held by {holder}, which has ended")
            self._nodes(team)

    def _nodes(self, team: Team) -> None:
        for pod, program in priced(self.world):
            if program == team.program:
                self.broken(f"Pod {pod['metadata']['name']}", f"carries a deletion cost of {program}, which has ended")
        for node in self.world.store.list("Node"):
            name, record = node["metadata"]["name"], owned(node)
            if any(each["key"] == CANDIDATE and whose(each.get("value")) == team.program for each in taints(node)):
                self.broken(f"Node {name}", f"carries the soft taint of {team.program}, which has ended")
            waits = record.get("phase") == "Claimed" and record.get("deadline")
            if (
                record.get("controller") == team.program
                and record.get("phase") in ("Claimed", "Restoring")
                and not waits
            ):
                self.broken(f"Node {name}", f"is {record['phase']} by {team.program}, which has ended")
