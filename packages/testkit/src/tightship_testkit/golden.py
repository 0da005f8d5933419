"""Golden clusters: clusters on which every reason a controller can give is the answer for some node, put together here.

What is the same for all controllers of nodes is in this module; a controller's own golden cluster adds what its
settings ask. Pods name the nodes they may run on, so that what happens to one node changes nothing for the others. What
is expected is declared node by node, never taken from a run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from tightship.cluster import ClusterState, Snapshot
from tightship.objects import ObjectError, decode
from tightship.objects.reasons import Reason
from tightship.planning.plan import Plan
from tightship_testkit.golden_builder import NEVER, NOW, Golden, Json, ago, owner

_PACKAGES = Path(__file__).parents[3]


def _named_in(package: str) -> frozenset[Reason]:
    """Return the reasons that the source of *package* gives: it names them, beside the enum and the advice on them."""
    modules = (
        each
        for each in sorted((_PACKAGES / package / "src").rglob("*.py"))
        if each.name not in ("reasons.py", "changes.py") and each.parent.name != "advice"
    )
    found = (re.findall(r"\bReason\.([A-Z_]+)\b", each.read_text(encoding="utf-8")) for each in modules)
    return frozenset(Reason[name] for names in found for name in names)


COMPACTORS = (_named_in("node-compactor") - _named_in("common") - _named_in("node-refiner")) | {Reason.FILLED_BY_PLAN}
"""Reasons that only node-compactor's plans give."""

REFINERS = _named_in("node-refiner") - _named_in("common") - _named_in("node-compactor")
"""Reasons that only node-refiner's plans give."""

RUNNING_ONLY = frozenset(
    {
        Reason.OTHER_INSTALLATION,
        Reason.BUDGET_EXHAUSTED,
        Reason.RATE_LIMITED,
        Reason.COOL_DOWN,
        Reason.OUTSIDE_WINDOW,
        Reason.SCALE_IN_EXPECTED,
        Reason.LANDING_MISSED,
        Reason.CLUSTER_UNHEALTHY,
        Reason.DRAIN_DEADLINE,
        Reason.EVICTION_FORBIDDEN,
        Reason.EVICTION_FAILED,
        Reason.REPLACEMENTS_PENDING,
        Reason.NOT_HANDED_OVER,
        Reason.RETURNS_TO_NODE,
        Reason.UNCORDONED,
        Reason.ORPHANED,
        Reason.RELEASED,
    }
)
"""Reasons that only a running controller gives: a plan made from a file or by the CLI never has them."""

ELSEWHERE = frozenset(
    {
        Reason.NOT_SELECTED,
        Reason.MAKE_BEFORE_BREAK,
        Reason.NOT_RESTARTABLE,
        Reason.ROLLOUT_UNFINISHED,
        Reason.OPENS_AFTER_CORDON,
        Reason.NOT_OPENED,
        Reason.MAX_EVICTIONS_REACHED,
        Reason.SAVING_TOO_SMALL,
        Reason.BUFFER_NEEDS_NODE,
        Reason.OTHER_DRAIN_NEEDS_NODE,
        Reason.POD_STUCK,
        Reason.STUCK_FINALIZER,
        Reason.REQUESTS_UNKNOWN,
        Reason.KARPENTER_CONSOLIDATION_OFF,
        Reason.NOT_AUTOSCALED,
        Reason.NODE_GROUP_MIN_SIZE,
        Reason.NODE_LIFECYCLE,
        Reason.VIRTUAL_NODE,
    }
)
"""Reasons that no golden cluster shows: one needs a selection on the command line, three an API that a control plane
does not serve by itself, two the status of a Cluster Autoscaler, one a condition that only administrators set, and one
a node that a plan does not count.
"""


def control_plane(g: Golden) -> None:
    """A node that is not ours to take, whatever is on it."""
    g.node(
        "control-plane",
        "a role label keeps control plane nodes",
        Reason.CONTROL_PLANE,
        labels={"node-role.kubernetes.io/control-plane": ""},
    )


def nodes_by_themselves(g: Golden) -> None:
    """Nodes that others have taken or opted out, or that are not in a state to be taken."""
    g.node(
        "opted-out",
        "people opted it out, by the annotation of each of three tools",
        Reason.NODE_DO_NOT_DRAIN,
        Reason.SCALE_DOWN_DISABLED,
        Reason.NODE_DO_NOT_DISRUPT,
        annotations={
            "tightship.dev/do-not-drain": "true",
            "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
            "karpenter.sh/do-not-disrupt": "true",
        },
    )
    g.node(
        "karpenter",
        "Karpenter owns it, and is disrupting it",
        Reason.KARPENTER_MANAGED,
        Reason.KARPENTER_DISRUPTED,
        pool="",
        labels={"karpenter.sh/nodepool": "karpenter"},
        spec={"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
    )
    going = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1790000000", "effect": "NoSchedule"}
    g.node("autoscaler", "Cluster Autoscaler is deleting it", Reason.TO_BE_DELETED, spec={"taints": [going]})
    g.node(
        "terminating",
        "its Node object is being deleted",
        Reason.NODE_TERMINATING,
        metadata={"deletionTimestamp": ago(minutes=1), "finalizers": ["example.com/hold"]},
    )
    g.node("cordoned", "somebody cordoned it", Reason.CORDONED, spec={"unschedulable": True})
    drain = {"v": 1, "op": "a1", "controller": "node-refiner", "phase": "Evicting"}
    g.node(
        "draining",
        "another controller of ours drains it",
        Reason.DRAIN_IN_PROGRESS,
        annotations={"tightship.dev/drain": json.dumps(drain)},
        spec={
            "unschedulable": True,
            "taints": [{"key": "tightship.dev/draining", "value": "a1", "effect": "NoSchedule"}],
        },
    )
    failed = {"v": 1, "controller": "node-compactor", "phase": "Backoff", "reason": "PdbExhausted"}
    g.node(
        "backoff",
        "its last drain failed, and the next try is not yet due",
        Reason.BACKOFF,
        annotations={"tightship.dev/drain": json.dumps({**failed, "nextTry": NEVER.isoformat()})},
    )
    g.node("not-ready", "its kubelet does not report", Reason.NOT_READY, ready=False)
    g.node("no-allocatable", "its kubelet has not said what it has", Reason.NO_ALLOCATABLE, cpu=0)


def pods_that_must_stay(g: Golden) -> None:
    """Opt-outs of three tools, and pods that nobody would bring back as they were."""
    autoscaler = "cluster-autoscaler.kubernetes.io"
    g.node("pods-ca", "pods with Cluster Autoscaler's opt-outs")
    g.pod("no", "pods-ca", Reason.NOT_SAFE_TO_EVICT, annotations={f"{autoscaler}/safe-to-evict": "false"})
    later = {f"{autoscaler}/safe-to-evict": "on-completion"}
    g.pod("later", "pods-ca", Reason.SAFE_TO_EVICT_ON_COMPLETION, annotations=later)
    g.node("pods-others", "pods with the opt-outs of Karpenter, the descheduler and ours")
    g.pod("still", "pods-others", Reason.POD_DO_NOT_DISRUPT, annotations={"karpenter.sh/do-not-disrupt": "24h"})
    prefers = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": "true"}
    g.pod("rather-not", "pods-others", Reason.PREFER_NO_EVICTION, annotations=prefers)
    g.pod("stay", "pods-others", Reason.POD_DO_NOT_DRAIN, annotations={"tightship.dev/do-not-drain": "true"})
    g.node("pods-owners", "pods that no controller, or one we can't count on, would bring back")
    g.pod("naked", "pods-owners", Reason.NOT_REPLICATED, owned_by=None)
    g.pod("rolled", "pods-owners", Reason.CUSTOM_CONTROLLER, owned_by=owner("Rollout", "rollout"))
    g.pod("orphan", "pods-owners", Reason.CONTROLLER_NOT_FOUND, owned_by=owner("ReplicaSet", "deleted"))
    job = g.workload("Job", "shop", "batch")
    g.pod("batch-1", "pods-owners", Reason.JOB_RUNNING, owned_by=job, restartPolicy="Never")
    g.node("pods-special", "local data, a system pod, and pods that might not go elsewhere")
    g.pod("cache", "pods-special", Reason.LOCAL_STORAGE, volumes=[{"name": "data", "emptyDir": {}}])
    g.pod("dns", "pods-special", Reason.KUBE_SYSTEM_POD, namespace="kube-system")
    g.pod("sticky", "pods-special", Reason.TOLERATES_CORDON, tolerations=[{"operator": "Exists"}])
    g.pod("foreign", "pods-special", Reason.OTHER_SCHEDULER, schedulerName="volcano")
    jobs = {"jobset.sigs.k8s.io/jobset-name": "train"}
    for name in ("train-0", "train-1"):
        g.pod(name, "pods-special", Reason.GANG_WOULD_BREAK, labels=jobs)
    g.pod("patient", "pods-special", Reason.GRACE_PERIOD_TOO_LONG, terminationGracePeriodSeconds=7200)
    g.left_alone("pods-unreadable", "readable in cluster.json; malformed.json adds a pod and a budget")
    g.pod("covered", "pods-unreadable", namespace="unreadable")


def budgets(g: Golden) -> None:
    """PodDisruptionBudgets, with the status that the disruption controller gives them."""
    none: Json = {"disruptionsAllowed": 0}
    g.node("pdb-never", "a budget that asks for all pods there are")
    g.workload("ReplicaSet", "shop", "never", replicas=2)
    for name in ("never-1", "never-2"):
        g.pod(
            name, "pdb-never", Reason.PDB_NEVER_ALLOWS, owned_by=owner("ReplicaSet", "never"), labels={"app": "never"}
        )
    g.budget("never", "never", {"minAvailable": 2}, currentHealthy=2, desiredHealthy=2, expectedPods=2, **none)
    g.node("pdb-exhausted", "a budget that allows nothing while one pod is not Ready")
    g.workload("ReplicaSet", "shop", "ill", replicas=3)
    ill: Json = {"owned_by": owner("ReplicaSet", "ill"), "labels": {"app": "ill"}}
    g.pod("ill-1", "pdb-exhausted", Reason.PDB_EXHAUSTED, **ill)
    g.pod("ill-2", "pdb-exhausted", Reason.PDB_EXHAUSTED, **ill)
    g.pod("ill-3", "roomy", annotations={"e2e.tightship.dev/phase": "Unready"}, **ill)
    g.budget("ill", "ill", {"minAvailable": 2}, currentHealthy=2, desiredHealthy=2, expectedPods=3, **none)
    g.node("pdb-spent-1", "goes, and spends the one disruption its pod's budget allows")
    g.node("pdb-spent-2", "its pod's budget is spent by the node before it")
    g.workload("ReplicaSet", "shop", "pair", replicas=2)
    pair: Json = {"owned_by": owner("ReplicaSet", "pair"), "labels": {"app": "pair"}}
    g.pod("pair-1", "pdb-spent-1", **pair)
    g.pod("pair-2", "pdb-spent-2", Reason.PDB_SPENT_BY_PLAN, **pair)
    g.budget(
        "pair", "pair", {"minAvailable": 1}, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1, expectedPods=2
    )
    g.node("pdb-broken", "budgets that the eviction API refuses, or would")
    enough: Json = {"currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1, "disruptionsAllowed": 1}
    g.pod("stale", "pdb-broken", Reason.PDB_NOT_CURRENT)
    g.budget("stale", "stale", {"minAvailable": 0}, generation=2, **enough)
    # A share of pods needs the scale of their controller, and nobody knows that of a Rollout.
    vouched = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    rollout = owner("Rollout", "unscaled")
    g.pod("unscaled", "pdb-broken", Reason.PDB_SYNC_FAILED, owned_by=rollout, annotations=vouched)
    g.budget(
        "unscaled",
        "unscaled",
        {"maxUnavailable": "50%"},
        failed='no matches for kind "Rollout" in version "example.com/v1"',
        **none,
    )
    g.pod("twofold", "pdb-broken", Reason.MULTIPLE_PDBS)
    for name in ("twofold-1", "twofold-2"):
        g.budget(name, "twofold", {"minAvailable": 0}, **enough)


def places(g: Golden) -> None:
    """Pods that find no place elsewhere, or of which that can't be told."""
    g.full("slot-1", "has 1000m left")
    g.pod("slot-1", "slot-1", cpu="3")
    g.full("slot-2", "has 1000m left")
    g.pod("slot-2", "slot-2", cpu="3")
    g.node("no-place", "its pod may run nowhere else")
    g.pod("homeless", "no-place", Reason.NO_PLACE, also_on=())
    g.node("after-plan-1", "goes, and takes what was free on slot-1")
    g.pod("first", "after-plan-1", also_on=("slot-1",), cpu="800m")
    g.node("after-plan-2", "there was room on slot-1 before after-plan-1 was planned")
    g.pod("second", "after-plan-2", Reason.NO_PLACE_AFTER_PLAN, also_on=("slot-1",), cpu="900m")
    g.node("together", "slot-2 has room for either pod, not for both")
    # One of them is named; which one is only a matter of order.
    g.pod("twin-1", "together", also_on=("slot-2",), cpu="800m")
    g.pod("twin-2", "together", Reason.NO_PLACE_TOGETHER, also_on=("slot-2",), cpu="800m")
    no, system = {"tightship.dev/do-not-drain": "true"}, {"kubernetes.io/os": "windows"}
    g.node("windows", "has room, where no Linux pod runs", Reason.NODE_DO_NOT_DRAIN, annotations=no, labels=system)
    g.node("strand", "the scheduler would choose windows for its pod", Reason.SCHEDULER_MAY_STRAND)
    g.pod("penguin", "strand", also_on=("roomy", "windows"), os={"name": "linux"})
    g.node("wanted", "a pending pod can run here only", Reason.PENDING_POD_NEEDS_NODE)
    g.pod("waiting", "wanted", also_on=(), pending=True)
    g.pod("impossible", "wanted", also_on=(), pending=True, cpu="1000")
    g.full("slot-3", "has 1000m left")
    g.pod("slot-3", "slot-3", cpu="3")
    g.node("scaling", "an HPA is about to start a replica that needs slot-3 or this node", Reason.SCALE_UP_NEEDS_NODE)
    g.pod("scaled", "scaling", also_on=("slot-3",), cpu="800m")
    g.autoscaler("scaled", "ReplicaSet", minimum=2)
    g.node("unknowable", "pods whose places can't be judged; namespaces are not in the file")
    g.pod("device", "unknowable", Reason.RESOURCE_CLAIMS, resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    disk = [{"name": "disk", "persistentVolumeClaim": {"claimName": "nowhere"}}]
    g.pod("volume", "unknowable", Reason.UNKNOWN_VOLUME, volumes=disk)
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "nobody"}},
        "namespaceSelector": {"matchLabels": {"team": "blue"}},
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    g.pod("shy", "unknowable", Reason.UNKNOWN_NAMESPACE_LABELS, affinity=apart)


MALFORMED: list[tuple[str, Reason, str, Json]] = [
    (
        "unreadable",
        Reason.UNREADABLE,
        "unreadable",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "unreadable"},
            "status": {"allocatable": {"cpu": "four"}},
        },
    ),
    (
        "pods-unreadable",
        Reason.POD_UNREADABLE,
        "shop/broken",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "broken", "namespace": "shop"},
            "spec": {
                "nodeName": "pods-unreadable",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"memory": "1Gb"}}}],
            },
        },
    ),
    (
        "pods-unreadable",
        Reason.PDB_UNREADABLE,
        "unreadable/covered",
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "broken", "namespace": "unreadable"},
            "spec": {"selector": {"matchLabels": "everything"}},
        },
    ),
]
"""(the node it keeps, reason, subject, the malformed object)."""


def files(g: Golden, config: Json) -> dict[str, str]:
    """Return the content of every file of the golden folder by name.

    ``cluster.json`` (as kubectl prints it), ``config.json``, ``malformed.json`` (objects no API server would store; a
    live list could hold them after an upgrade gone wrong) and ``expected.json``.
    """
    removed = {removal["node"] for removal in g.removals}
    refusals = {name: sorted(found) for name, found in sorted(g.refusals.items()) if name not in removed}
    with_malformed: dict[str, list[tuple[Reason, str]]] = {}
    for node, reason, subject, _ in MALFORMED:
        known = with_malformed.setdefault(node, [*refusals.get(node, [])])
        known.append((reason, subject))
        known.sort()
    expected = {
        "now": NOW.timestamp(),
        "removals": g.removals,
        "refusals": refusals,
        "refusalsWithMalformedObjects": with_malformed,
    }
    documents = {
        "cluster.json": as_list(g.items),
        "config.json": config,
        "malformed.json": as_list([each[3] for each in MALFORMED]),
        "expected.json": expected,
    }
    return {name: json.dumps(document, indent=1) + "\n" for name, document in documents.items()}


def as_list(items: list[Json]) -> Json:
    """Return *items* as kubectl prints them."""
    return {"apiVersion": "v1", "kind": "List", "items": items}


def write(folder: Path, g: Golden, config: Json) -> None:
    """Write the files of *g* into *folder*."""
    folder.mkdir(exist_ok=True)
    for name, text in files(g, config).items():
        (folder / name).write_text(text)


class Folder:
    """The files of a golden cluster."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.expected: Json = self.read("expected.json")

    def read(self, name: str) -> Any:
        """Return the document of a file."""
        return json.loads((self.path / name).read_text())

    @property
    def now(self) -> float:
        """The time for which what is expected holds."""
        return float(self.expected["now"])

    @property
    def reasons(self) -> set[Reason]:
        """Every reason that is expected for some node."""
        parts = (self.expected["refusals"], self.expected["refusalsWithMalformedObjects"])
        return {Reason(reason) for part in parts for found in part.values() for reason, _ in found}

    def with_malformed_objects(self) -> Snapshot:
        """Return the cluster as a live list gives it that also holds the objects of ``malformed.json``."""
        state = ClusterState()
        for item in [*self.read("cluster.json")["items"], *self.read("malformed.json")["items"]]:
            try:
                state.upsert(item["kind"], decode(item["kind"], msgspec.json.encode(item)))
            except ObjectError as error:
                state.mark_unreadable(error, item.get("spec", {}).get("nodeName", ""))
        state.mark_missing("Namespace", "forbidden")
        return state.snapshot()


def refusals_of(plan: Plan) -> dict[str, list[list[str]]]:
    """Return the refusals of *plan* in the form of ``expected.json``."""
    return {name: sorted([each.reason, each.subject] for each in found) for name, found in plan.refusals.items()}


def removals_of(plan: Plan) -> list[Json]:
    """Return the removals of *plan* in the form of ``expected.json``."""
    return [
        {"node": each.node, "moves": sorted([move.pod.key, move.target] for move in each.moves)}
        for each in plan.removals
    ]
