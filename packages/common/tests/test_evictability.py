"""Which pods may be evicted: one row for each rule, each opt-out and what switches it off."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.objects.reasons import Reason
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.evictability import SWITCHABLE, Evictability, EvictionRules, Fate, PodVerdict, outlasting
from tightship_testkit.builders import DAY, NOW, budget, controller, node, pod, pod_of, state_of, workload

Json = dict[str, Any]

CA = "cluster-autoscaler.kubernetes.io"
SAFE = {f"{CA}/safe-to-evict": "true"}
KARPENTER = "karpenter.sh/do-not-disrupt"
SHARED = "node-autoscaling.kubernetes.io/do-not-disrupt"
OURS = "tightship.dev/do-not-drain"
DESCHEDULER = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
CAST = "autoscaling.cast.ai/removal-disabled"
OCEAN = "spotinst.io/restrict-scale-down"
DISK = {"name": "data", "emptyDir": {}}
MEMORY = {"name": "shm", "emptyDir": {"medium": "Memory"}}
HOST = {"name": "logs", "hostPath": {"path": "/var/log"}}
JOB = {"owner": controller("Job", "batch"), "restartPolicy": "Never"}
CUSTOM = controller("Rollout", "rollout")
GONE = controller("ReplicaSet", "gone")
CORDON = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
DRAINING = {"key": "tightship.dev/draining", "operator": "Exists"}

KNOWN = (workload(), workload("Job", "batch"), workload(namespace="kube-system"))


def judged(given: Json, rules: EvictionRules = EvictionRules(), *others: Json, missing: str = "") -> PodVerdict:
    state = state_of(node(), pod(**given), *KNOWN, *others)
    if missing:
        state.mark_missing(missing, "forbidden")
    snapshot = state.snapshot()
    judge = Evictability(snapshot, rules, NOW, DisruptionLedger(snapshot).covers)
    return judge.judge(pod_of(snapshot))


def reasons(verdict: PodVerdict) -> set[Reason]:
    return {refusal.reason for refusal in verdict.refusals}


BLOCKED: list[tuple[str, Json, Reason]] = [
    ("our own opt-out", {"notes": {OURS: "true"}}, Reason.POD_DO_NOT_DRAIN),
    ("our own opt-out with any other word", {"notes": {OURS: "until friday"}}, Reason.POD_DO_NOT_DRAIN),
    ("CA's opt-out", {"notes": {f"{CA}/safe-to-evict": "false"}}, Reason.NOT_SAFE_TO_EVICT),
    ("CA's on-completion", {"notes": {f"{CA}/safe-to-evict": "on-completion"}}, Reason.SAFE_TO_EVICT_ON_COMPLETION),
    ("Karpenter's opt-out", {"notes": {KARPENTER: "true"}}, Reason.POD_DO_NOT_DISRUPT),
    ("Karpenter's older opt-out", {"notes": {"karpenter.sh/do-not-evict": "true"}}, Reason.POD_DO_NOT_DISRUPT),
    ("Karpenter's duration, not over", {"notes": {KARPENTER: "25h"}}, Reason.POD_DO_NOT_DISRUPT),
    ("Karpenter's annotation, unreadable", {"notes": {KARPENTER: "a while"}}, Reason.POD_DO_NOT_DISRUPT),
    ("the opt-out of all autoscalers", {"notes": {SHARED: "25h"}}, Reason.POD_DO_NOT_DISRUPT),
    ("CAST AI's opt-out", {"notes": {CAST: "true"}}, Reason.POD_DO_NOT_DISRUPT),
    ("CAST AI's opt-out as a label", {"labels": {CAST: "true"}}, Reason.POD_DO_NOT_DISRUPT),
    ("an older one", {"notes": {"beta.evictor.cast.ai/eviction-disabled": "true"}}, Reason.POD_DO_NOT_DISRUPT),
    ("Spot Ocean's opt-out", {"labels": {OCEAN: "true"}}, Reason.POD_DO_NOT_DISRUPT),
    ("Cluster API's opt-out", {"labels": {"cluster.x-k8s.io/drain": "Skip"}}, Reason.POD_DO_NOT_DISRUPT),
    (
        "Cluster API waits",
        {"labels": {"cluster.x-k8s.io/drain": "wait-completed"}},
        Reason.SAFE_TO_EVICT_ON_COMPLETION,
    ),
    ("the descheduler's opt-out", {"notes": {DESCHEDULER: ""}}, Reason.PREFER_NO_EVICTION),
    ("no controller", {"naked": True}, Reason.NOT_REPLICATED),
    ("a controller of an unknown kind", {"owner": CUSTOM}, Reason.CUSTOM_CONTROLLER),
    ("a controller that is gone", {"owner": GONE}, Reason.CONTROLLER_NOT_FOUND),
    ("a disk emptyDir", {"volumes": [DISK]}, Reason.LOCAL_STORAGE),
    ("a hostPath", {"volumes": [HOST]}, Reason.LOCAL_STORAGE),
    ("two local volumes, one declared safe", {
        "volumes": [DISK, HOST], "notes": {f"{CA}/safe-to-evict-local-volumes": "data"},
    }, Reason.LOCAL_STORAGE),
    ("a young kube-system pod", {"namespace": "kube-system", "age": 600}, Reason.KUBE_SYSTEM_POD),
    ("a Job that would start over", JOB, Reason.JOB_RUNNING),
    ("another scheduler", {"schedulerName": "volcano"}, Reason.OTHER_SCHEDULER),
    ("tolerating everything", {"tolerations": [{"operator": "Exists"}]}, Reason.TOLERATES_CORDON),
    ("tolerating cordon and drain", {"tolerations": [CORDON, DRAINING]}, Reason.TOLERATES_CORDON),
]  # fmt: skip


@pytest.mark.parametrize(("given", "reason"), [row[1:] for row in BLOCKED], ids=[row[0] for row in BLOCKED])
def test_a_rule_blocks_with_its_own_reason_and_says_what_to_do(given: Json, reason: Reason) -> None:
    verdict = judged(given)
    assert verdict.fate is Fate.EVICT
    assert reasons(verdict) == {reason}
    [refusal] = verdict.refusals
    assert refusal.subject == f"{given.get('namespace', 'shop')}/web-1"
    assert refusal.detail
    assert refusal.fix


@pytest.mark.parametrize(("given", "reason"), [row[1:] for row in BLOCKED], ids=[row[0] for row in BLOCKED])
def test_every_rule_can_be_switched_off(given: Json, reason: Reason) -> None:
    assert judged(given, EvictionRules(frozenset({reason}))).refusals == ()
    assert reasons(judged(given, EvictionRules(SWITCHABLE - {reason}))) == {reason}


def test_every_switchable_rule_has_a_row() -> None:
    of_several = {Reason.GANG_WOULD_BREAK}  # in test_gangs.py
    assert {reason for _, _, reason in BLOCKED} == SWITCHABLE - of_several


FREE: list[tuple[str, Json]] = [
    ("an ordinary replica", {}),
    ("our opt-out taken back", {"notes": {OURS: "false"}}),
    ("Karpenter's opt-out taken back", {"notes": {KARPENTER: "false"}}),
    ("Karpenter's duration that is over", {"notes": {KARPENTER: "23h59m"}}),
    ("Karpenter's duration of just its age", {"notes": {KARPENTER: "24h"}}),
    ("CAST AI's opt-out taken back", {"notes": {CAST: "false"}, "labels": {CAST: "false"}}),
    ("a word that Cluster API does not know", {"labels": {"cluster.x-k8s.io/drain": "drain"}}),
    ("vouched for without a controller", {"naked": True, "notes": SAFE}),
    ("vouched for with an unknown controller", {"owner": CUSTOM, "notes": SAFE}),
    ("vouched for with a controller that is gone", {"owner": GONE, "notes": SAFE}),
    ("vouched for with local data", {"volumes": [DISK, HOST], "notes": SAFE}),
    ("vouched for in kube-system", {"namespace": "kube-system", "age": 600, "notes": SAFE}),
    ("vouched for as a Job", {**JOB, "notes": SAFE}),
    ("an emptyDir in memory", {"volumes": [MEMORY]}),
    ("all local volumes declared safe", {
        "volumes": [DISK, HOST], "notes": {f"{CA}/safe-to-evict-local-volumes": "data, logs"},
    }),
    ("an old kube-system pod", {"namespace": "kube-system", "age": 3600}),
    ("a Job that continues on restart", {**JOB, "restartPolicy": "OnFailure"}),
    ("tolerating the cordon, not our drain", {"tolerations": [CORDON]}),
    ("tolerating our drain, not the cordon", {"tolerations": [DRAINING]}),
]  # fmt: skip


@pytest.mark.parametrize("given", [row[1] for row in FREE], ids=[row[0] for row in FREE])
def test_nothing_stands_against(given: Json) -> None:
    assert judged(given) == PodVerdict(Fate.EVICT)


HOST_VOLUME = {"hostPath": {"path": "/mnt/data"}}
NFS_VOLUME = {"nfs": {"server": "files", "path": "/"}}


@pytest.mark.parametrize(
    ("source", "notes", "kept"),
    [
        (HOST_VOLUME, {}, True),  # kubernetes#96859: on each node the pod finds another directory
        (HOST_VOLUME, {f"{CA}/safe-to-evict-local-volumes": "data"}, False),
        (HOST_VOLUME | {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}, {}, False),  # a matter of places
        (NFS_VOLUME, {}, False),
    ],
)
def test_a_claim_of_a_host_path_is_local_data(source: Json, notes: Json, *, kept: bool) -> None:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "shop"}}
    claim |= {"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": source}
    given = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}], "notes": notes}
    verdict = judged(given, EvictionRules(), claim, volume)
    assert reasons(verdict) == ({Reason.LOCAL_STORAGE} if kept else set())


EXPENDABLE = {"priority": -11, "naked": True, "namespace": "kube-system", "age": 60, "volumes": [DISK]}


@pytest.mark.parametrize("given", [{"priority": -11}, EXPENDABLE], ids=["ordinary", "nothing would bring it back"])
def test_an_expendable_pod_goes_with_its_node(given: Json) -> None:
    assert judged(given) == PodVerdict(Fate.STAYS)


def test_only_an_opt_out_of_an_expendable_pod_keeps_the_node() -> None:
    assert reasons(judged({**EXPENDABLE, "notes": {OURS: "true"}})) == {Reason.POD_DO_NOT_DRAIN}


def test_a_pod_at_the_cutoff_is_not_expendable() -> None:
    assert judged({"priority": -10}) == PodVerdict(Fate.EVICT)


def test_vouching_never_outweighs_an_opt_out() -> None:
    assert reasons(judged({"notes": {**SAFE, OURS: "true", KARPENTER: "true", DESCHEDULER: "true"}})) == {
        Reason.POD_DO_NOT_DRAIN,
        Reason.POD_DO_NOT_DISRUPT,
        Reason.PREFER_NO_EVICTION,
    }


def test_all_reasons_are_given_not_only_the_first() -> None:
    given = {"naked": True, "volumes": [DISK], "notes": {OURS: "true", KARPENTER: "true"}, "schedulerName": "volcano"}
    assert reasons(judged(given)) == {
        Reason.POD_DO_NOT_DRAIN,
        Reason.POD_DO_NOT_DISRUPT,
        Reason.NOT_REPLICATED,
        Reason.LOCAL_STORAGE,
        Reason.OTHER_SCHEDULER,
    }


@pytest.mark.parametrize(("text", "left"), [("90m", "1h"), ("1800s", ""), ("30m", ""), ("1h", "30m"), ("1d", "23h30m")])
def test_a_do_not_disrupt_duration_counts_from_the_start_of_the_pod(text: str, left: str) -> None:
    verdict = judged({"notes": {KARPENTER: text}, "age": 1800})
    if left:
        [refusal] = verdict.refusals
        assert f"protects the pod for {left} more" in refusal.detail
    else:
        assert verdict.refusals == ()


def test_a_controller_of_a_kind_that_could_not_be_read_counts_as_there() -> None:
    assert judged({"owner": GONE}, missing="ReplicaSet").refusals == ()


def test_a_controller_of_the_same_name_but_another_uid_is_not_the_pods() -> None:
    renewed = {**controller("ReplicaSet", "web"), "uid": "uid-of-the-one-before"}
    assert reasons(judged({"owner": renewed})) == {Reason.CONTROLLER_NOT_FOUND}


@pytest.mark.parametrize(
    ("grace", "has", "stays"),
    [(3600, 1800.0, True), (1801, 1800.0, True), (1800, 1800.0, False), (30, 10.0, False), (31, 10.0, True)],
)
def test_a_pod_that_may_take_longer_to_end_than_a_drain_has_stays(grace: int, has: float, stays: bool) -> None:
    verdict = judged({"terminationGracePeriodSeconds": grace}, EvictionRules(longest_grace=has))
    assert reasons(verdict) == ({Reason.GRACE_PERIOD_TOO_LONG} if stays else set())


@pytest.mark.parametrize(("named", "stays"), [("n1", True), ("n2", False), ("", False)])
def test_a_pod_whose_template_names_its_node_would_come_back_to_it(named: str, stays: bool) -> None:
    pinned = workload("StatefulSet", "db", template={"spec": {"nodeName": named}})
    assert pod_of(state_of(node(), pod(), pinned).snapshot()).node == "n1"
    verdict = judged({"owner": controller("StatefulSet", "db")}, EvictionRules(), pinned)
    assert reasons(verdict) == ({Reason.RETURNS_TO_NODE} if stays else set())


def stateful(strategy: str, update: str = "db-2") -> Json:
    rolling = {"rollingUpdate": {"partition": 3}} if strategy == "RollingUpdate" else {}
    raw = workload("StatefulSet", "db", updateStrategy={"type": strategy, **rolling})
    return {**raw, "status": {"currentRevision": "db-1", "updateRevision": update}}


@pytest.mark.parametrize(
    ("sets", "revision", "notes", "stays"),
    [
        # Vault, ECK, Percona and others update in an order of their own; an eviction would update this pod now.
        (stateful("OnDelete"), "db-1", {}, True),
        (stateful("OnDelete"), "db-1", SAFE, False),
        (stateful("OnDelete"), "db-2", {}, False),
        (stateful("OnDelete", "db-1"), "db-1", {}, False),
        (stateful("OnDelete", ""), "db-1", {}, False),
        (stateful("OnDelete"), "", {}, False),
        (stateful("RollingUpdate"), "db-1", {}, False),  # below its partition a pod comes back as it was
    ],
)
def test_a_pod_that_an_eviction_would_update_stays(sets: Json, revision: str, notes: Json, *, stays: bool) -> None:
    labels = {"controller-revision-hash": revision} if revision else {}
    verdict = judged(
        {"owner": controller("StatefulSet", "db"), "labels": labels, "notes": notes}, EvictionRules(), sets
    )
    assert reasons(verdict) == ({Reason.CUSTOM_CONTROLLER} if stays else set())


@pytest.mark.parametrize(
    ("policy", "pod_name", "unready", "stays"),
    [
        # Without a budget the StatefulSet would lose db-2 for as long as db-0 is not Ready (kubernetes#67250).
        ("OrderedReady", "db-2", "db-0", True),
        (None, "db-2", "db-0", True),
        ("Parallel", "db-2", "db-0", False),
        ("OrderedReady", "db-2", "db-3", False),
        ("OrderedReady", "db-2", "db-10", False),
        ("OrderedReady", "db-10", "db-2", True),
        ("OrderedReady", "db-0", "db-0", False),
        ("OrderedReady", "db-2", "cache-0", False),
    ],
)
def test_a_pod_that_would_come_back_only_after_one_that_is_not_ready_stays(
    policy: str | None, pod_name: str, unready: str, *, stays: bool
) -> None:
    given = workload("StatefulSet", "db", **({} if policy is None else {"podManagementPolicy": policy}))
    owners = {name: controller("StatefulSet", name.partition("-")[0]) for name in (pod_name, unready)}
    pods = [pod(name, owner=owner, ready=name != unready) for name, owner in owners.items()]
    snapshot = state_of(node(), given, *pods).snapshot()
    [asked] = (each for view in snapshot.nodes.values() for each in view.pods if each.name == pod_name)
    verdict = Evictability(snapshot, EvictionRules(), NOW, DisruptionLedger(snapshot).covers).judge(asked)
    assert reasons(verdict) == ({Reason.ROLLOUT_UNFINISHED} if stays else set())


@pytest.mark.parametrize(
    ("limit", "failed", "stays"), [(0, 0, True), (6, 5, False), (6, 6, True), (None, 5, False), (None, 6, True)]
)
def test_a_job_that_an_eviction_would_fail_keeps_its_pod(limit: int | None, failed: int, *, stays: bool) -> None:
    # batch/v1: a pod that is deleted counts as failed, whatever its restart policy is (job_controller.go, syncJob).
    job = {
        **workload("Job", "once", **({} if limit is None else {"backoffLimit": limit})),
        "status": {"failed": failed},
    }
    verdict = judged({"owner": controller("Job", "once"), "restartPolicy": "OnFailure"}, EvictionRules(), job)
    assert reasons(verdict) == ({Reason.JOB_RUNNING} if stays else set())


def test_a_budget_lets_a_kube_system_pod_go() -> None:
    given = {"namespace": "kube-system", "age": 600}
    assert judged(given, EvictionRules(), budget(namespace="kube-system")).refusals == ()
    assert reasons(judged(given, EvictionRules(), budget(namespace="shop"))) == {Reason.KUBE_SYSTEM_POD}


@pytest.mark.parametrize(("timeout", "blocks"), [(601, True), (600, False), (0, False)])
def test_the_protection_of_kube_system_pods_ends_after_the_timeout(timeout: float, blocks: bool) -> None:
    verdict = judged({"namespace": "kube-system", "age": 600}, EvictionRules(system_pod_timeout=timeout))
    assert bool(verdict.refusals) is blocks


MIRROR = {"owner": controller("Node", "n1"), "notes": {"kubernetes.io/config.mirror": "x"}}


@pytest.mark.parametrize(
    ("given", "fate"),
    [
        ({"owner": controller("DaemonSet", "agent")}, Fate.STAYS),
        ({"owner": controller("DaemonSet", "agent"), "volumes": [HOST], "notes": {OURS: "true"}}, Fate.STAYS),
        (MIRROR, Fate.STAYS),
        ({"deletion": NOW + 20}, Fate.LEAVING),
        ({"deletion": NOW + 20, "naked": True, "notes": {OURS: "true"}}, Fate.LEAVING),
        ({}, Fate.EVICT),
    ],
    ids=["DaemonSet", "DaemonSet with opt-outs", "mirror", "terminating", "terminating with opt-outs", "replica"],
)
def test_the_fate_of_a_pod_in_a_drain(given: Json, fate: Fate) -> None:
    assert judged(given) == PodVerdict(fate)


@pytest.mark.parametrize("half", ["owner", "notes"])
def test_a_mirror_pod_is_known_by_annotation_and_owner_together(half: str) -> None:
    assert judged({half: MIRROR[half]}).fate is Fate.EVICT


def held(*finalizers: str, deletion: float | None = NOW - 3600, **more: Any) -> Json:
    raw = pod(deletion=deletion, **more)
    raw["metadata"]["finalizers"] = list(finalizers)
    return raw


JOB_TRACKING = "batch.kubernetes.io/job-tracking"
LEAVING: list[tuple[str, Json, Fate, set[Reason]]] = [
    ("eleven seconds past its grace", pod(deletion=NOW - 11), Fate.LEAVING, {Reason.POD_STUCK}),
    ("ten seconds past its grace", pod(deletion=NOW - 10), Fate.LEAVING, set()),
    ("within its grace", pod(deletion=NOW + 20), Fate.LEAVING, set()),
    ("just in time for the drain", pod(deletion=NOW + 1800), Fate.LEAVING, set()),
    ("longer than the drain", pod(deletion=NOW + 1801), Fate.LEAVING, {Reason.GRACE_PERIOD_TOO_LONG}),
    ("deleted with a grace of a day", pod(deletion=NOW + DAY), Fate.LEAVING, {Reason.GRACE_PERIOD_TOO_LONG}),
    ("a finalizer", held("example.com/workspace"), Fate.LEAVING, {Reason.STUCK_FINALIZER}),
    ("a finalizer that may go in time", held(JOB_TRACKING, deletion=NOW - 5), Fate.LEAVING, set()),
    ("a Job's finalizer that did not go", held(JOB_TRACKING), Fate.LEAVING, {Reason.STUCK_FINALIZER}),
    ("two finalizers", held("a.io/x", "foregroundDeletion"), Fate.LEAVING, {Reason.STUCK_FINALIZER}),
    ("a finalizer, and a grace not over", held("a.io/x", deletion=NOW + 20), Fate.LEAVING, set()),
    ("a finalizer, and not deleted", held("a.io/x", deletion=None), Fate.EVICT, set()),
    ("a DaemonSet's pod", held("a.io/x", owner=controller("DaemonSet", "agent")), Fate.STAYS, set()),
    ("a mirror pod", held("a.io/x", **MIRROR), Fate.STAYS, set()),
    ("an expendable pod", held("a.io/x", priority=-11), Fate.STAYS, set()),
    ("a naked pod", held("a.io/x", naked=True), Fate.LEAVING, {Reason.STUCK_FINALIZER}),
    ("a pod that opts out", held("a.io/x", notes={OURS: "true"}), Fate.LEAVING, {Reason.STUCK_FINALIZER}),
]


@pytest.mark.parametrize(("raw", "fate", "why"), [row[1:] for row in LEAVING], ids=[row[0] for row in LEAVING])
def test_a_terminating_pod_is_refused_before_the_drain_if_the_drain_would_give_up_for_it(
    raw: Json, fate: Fate, why: set[Reason]
) -> None:
    snapshot = state_of(node(), raw, *KNOWN).snapshot()
    judge = Evictability(snapshot, EvictionRules(longest_grace=1800), NOW, DisruptionLedger(snapshot).covers)
    verdict = judge.judge(pod_of(snapshot))
    assert (verdict.fate, reasons(verdict)) == (fate, why)
    sorted_out = judge.sort(snapshot.nodes["n1"].pods)
    assert ({each.reason for each in sorted_out.outlasting}, sorted_out.refusals) == (why, ())


def test_a_finished_pod_behind_a_finalizer_is_no_pod_of_the_node() -> None:
    assert state_of(node(), held(JOB_TRACKING, phase="Succeeded")).snapshot().nodes["n1"].pods == ()


@pytest.mark.parametrize(
    ("finalizers", "says"),
    [
        (("example.com/workspace",), "see why the controller of example.com does not remove finalizer example.com/"),
        ((JOB_TRACKING,), "see why the Job controller does not remove"),
        (("foregroundDeletion",), "see why the garbage collector, once all that the pod owns is gone, does not"),
        (("protect",), "see why the controller of protect does not remove finalizer protect"),
        (("a.io/x", "a.io/y"), "see why the controller of a.io does not remove finalizers a.io/x, a.io/y"),
    ],
)
def test_whoever_should_remove_a_finalizer_is_named(finalizers: tuple[str, ...], says: str) -> None:
    found = outlasting(pod_of(state_of(node(), held(*finalizers)).snapshot()), NOW)
    assert found is not None
    assert says in found.fix
