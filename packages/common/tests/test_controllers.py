"""What happens to pods of controllers, by their kind and API group."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.cluster.owners import annotating
from tightship.objects.meta import qualified
from tightship.objects.reasons import Reason
from tightship.rules.controllers import LOSING, RECREATING
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.evictability import Evictability, EvictionRules, Fate, PodVerdict
from tightship_testkit.builders import NOW, node, pod, pod_of, state_of, workload

KRUISE = "apps.kruise.io/v1beta1"
FREE, STAYS = "free", "stays"


def owner(api_version: str, kind: str, name: str = "web") -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def judged(given: dict[str, Any], *others: dict[str, Any]) -> PodVerdict:
    # Controllers of Kubernetes' own kinds have been read, and one of each kind is called "web".
    known = [workload(kind) for kind in ("ReplicaSet", "StatefulSet", "DaemonSet", "Job")]
    snapshot = state_of(node(), pod(**given), *known, *others).snapshot()
    return Evictability(snapshot, EvictionRules(), NOW, DisruptionLedger(snapshot).covers).judge(pod_of(snapshot))


ROWS: list[tuple[str, str, str | Reason]] = [
    # Kubernetes' own, by the groups that they have had.
    ("apps/v1", "ReplicaSet", FREE),
    ("extensions/v1beta1", "ReplicaSet", FREE),
    ("apps/v1beta1", "StatefulSet", FREE),
    ("apps/v1beta2", "ReplicaSet", FREE),
    ("batch/v1", "Job", FREE),
    ("apps/v1", "DaemonSet", STAYS),
    ("extensions/v1beta1", "DaemonSet", STAYS),
    # Of the same name in other groups: nothing of that group has been read.
    (KRUISE, "StatefulSet", FREE),
    (KRUISE, "CloneSet", FREE),
    (KRUISE, "DaemonSet", STAYS),
    (KRUISE, "BroadcastJob", Reason.JOB_RUNNING),
    ("batch.volcano.sh/v1alpha1", "Job", Reason.JOB_RUNNING),
    ("example.com/v1", "ReplicaSet", Reason.CUSTOM_CONTROLLER),
    ("example.com/v1", "Deployment", Reason.CUSTOM_CONTROLLER),
    ("example.com/v1", "DaemonSet", STAYS),
    ("datadoghq.com/v1alpha1", "ExtendedDaemonSetReplicaSet", STAYS),
    # Operators that make the pod anew.
    ("apps.kruise.io/v1alpha1", "CloneSet", FREE),
    ("core.strimzi.io/v1beta2", "StrimziPodSet", FREE),
    ("core.strimzi.io/v1", "StrimziPodSet", FREE),
    ("postgresql.cnpg.io/v1", "Cluster", FREE),
    ("postgresql.k8s.enterprisedb.io/v1", "Cluster", FREE),
    ("workloads.kubeblocks.io/v1", "InstanceSet", FREE),
    ("actions.github.com/v1alpha1", "AutoscalingListener", FREE),
    ("operators.coreos.com/v1alpha1", "CatalogSource", FREE),
    ("acme.cert-manager.io/v1", "Challenge", FREE),
    # A kind of the same name elsewhere is another one.
    ("cluster.x-k8s.io/v1beta1", "Cluster", Reason.CUSTOM_CONTROLLER),
    # What runs to its end.
    ("argoproj.io/v1alpha1", "Workflow", Reason.JOB_RUNNING),
    ("tekton.dev/v1", "TaskRun", Reason.JOB_RUNNING),
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication", Reason.JOB_RUNNING),
    *(("kubeflow.org/v1", kind, Reason.JOB_RUNNING) for kind in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob")),
    *(("kubeflow.org/v1", kind, Reason.JOB_RUNNING) for kind in ("PaddleJob", "JAXJob", "MXJob")),
    ("kubeflow.org/v2beta1", "MPIJob", Reason.JOB_RUNNING),
    ("workload.codeflare.dev/v1beta2", "AppWrapper", Reason.JOB_RUNNING),
    ("kubernetes.dask.org/v1", "DaskJob", Reason.JOB_RUNNING),
    ("actions.github.com/v1alpha1", "EphemeralRunner", Reason.JOB_RUNNING),
    ("actions.summerwind.dev/v1alpha1", "Runner", Reason.JOB_RUNNING),
    ("flyte.lyft.com/v1alpha1", "flyteworkflow", Reason.JOB_RUNNING),
    ("flyte.lyft.com/v1alpha1", "FlyteWorkflow", Reason.JOB_RUNNING),
    ("flyte.org/v1", "TaskAction", Reason.JOB_RUNNING),
    ("velero.io/v2alpha1", "DataUpload", Reason.JOB_RUNNING),
    ("velero.io/v2alpha1", "DataDownload", Reason.JOB_RUNNING),
    ("velero.io/v1", "PodVolumeBackup", Reason.JOB_RUNNING),
    ("velero.io/v1", "PodVolumeRestore", Reason.JOB_RUNNING),
    ("v1", "PersistentVolumeClaim", Reason.JOB_RUNNING),
    ("build.openshift.io/v1", "Build", Reason.JOB_RUNNING),
    # Operators whose pods stay while nobody has said that they come back: one row a report or a source.
    *(
        (group, kind, Reason.CUSTOM_CONTROLLER)
        for group, kind in (
            ("planetscale.com/v2", "VitessShard"),  # vitess-operator, pkg/controller/vitessshard
            ("apps.pingcap.com/v1", "StatefulSet"),  # tidb-operator's Advanced StatefulSet
            ("core.pingcap.com/v1alpha1", "TiKV"),  # tidb-operator 2
            ("crdb.cockroachlabs.com/v1alpha1", "CrdbNode"),
            ("couchbase.com/v2", "CouchbaseCluster"),
            ("apps.foundationdb.org/v1beta2", "FoundationDBCluster"),
            ("kafka.banzaicloud.io/v1beta1", "KafkaCluster"),  # koperator
            ("core.humio.com/v1alpha1", "HumioCluster"),
            ("core.libopenstorage.org/v1", "StorageCluster"),  # Portworx
            ("scale.spectrum.ibm.com/v1beta1", "Daemon"),  # IBM Storage Scale
            ("weka.weka.io/v1alpha1", "WekaContainer"),
            ("slinky.slurm.net/v1beta1", "NodeSet"),  # slurm-operator
            ("grove.io/v1alpha1", "PodClique"),  # NVIDIA Grove
            ("mps.playfab.com/v1alpha1", "GameServer"),  # thundernetes
            ("agents.x-k8s.io/v1alpha1", "Sandbox"),
            ("octorun.github.io/v1alpha2", "Runner"),
            ("tower.ansible.com/v1beta1", "AnsibleJob"),
            ("trust.cert-manager.io/v1alpha1", "Bundle"),
            ("cdi.kubevirt.io/v1beta1", "DataVolume"),
            ("piraeus.io/v1", "LinstorSatellite"),  # piraeus-operator before 2.3
        )
    ),
    # What nobody can replace, or what nobody knows.
    ("kubevirt.io/v1", "VirtualMachineInstance", Reason.CUSTOM_CONTROLLER),
    ("ray.io/v1", "RayCluster", Reason.CUSTOM_CONTROLLER),
    ("agones.dev/v1", "GameServer", Reason.CUSTOM_CONTROLLER),
    ("longhorn.io/v1beta2", "InstanceManager", Reason.CUSTOM_CONTROLLER),
    ("longhorn.io/v1beta2", "ShareManager", Reason.CUSTOM_CONTROLLER),
    ("sparkoperator.k8s.io/v1alpha1", "SparkConnect", Reason.CUSTOM_CONTROLLER),
    ("v1", "Service", Reason.CUSTOM_CONTROLLER),
    ("apps/v1", "Deployment", Reason.CUSTOM_CONTROLLER),
    ("v1", "Pod", Reason.CUSTOM_CONTROLLER),
    ("v1", "Node", Reason.CUSTOM_CONTROLLER),
    ("argoproj.io/v1alpha1", "Rollout", Reason.CUSTOM_CONTROLLER),
]


@pytest.mark.parametrize(("api_version", "kind", "right"), ROWS, ids=[f"{kind} {group}" for group, kind, _ in ROWS])
def test_the_group_of_a_controller_decides_what_happens_to_its_pods(
    api_version: str, kind: str, right: str | Reason
) -> None:
    verdict = judged({"owner": owner(api_version, kind)})
    if isinstance(right, Reason):
        [refusal] = verdict.refusals
        assert refusal.reason is right
        assert "delete" not in refusal.fix
    else:
        assert verdict == PodVerdict(Fate.EVICT if right == FREE else Fate.STAYS)


@pytest.mark.parametrize("api_version", [KRUISE, "batch.volcano.sh/v1alpha1", "example.com/v1"])
@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "Job", "ReplicationController"])
def test_a_controller_that_nobody_read_is_never_called_gone(api_version: str, kind: str) -> None:
    verdict = judged({"owner": owner(api_version, kind, "nobody-knows")})
    assert Reason.CONTROLLER_NOT_FOUND not in {refusal.reason for refusal in verdict.refusals}


def test_a_controller_of_kubernetes_that_is_gone_is_called_gone_and_nobody_is_told_to_delete_the_pod() -> None:
    [refusal] = judged({"owner": owner("apps/v1beta2", "ReplicaSet", "gone")}).refusals
    assert refusal.reason is Reason.CONTROLLER_NOT_FOUND
    assert "delete shop/" not in refusal.fix


@pytest.mark.parametrize("kind", sorted(LOSING))
def test_whoever_vouches_for_a_pod_of_any_controller_may_have_it_evicted(kind: str) -> None:
    name, _, group = kind.partition(".")
    vouched = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    assert judged({"owner": owner(f"{group}/v1", name), "notes": vouched}) == PodVerdict(Fate.EVICT)


def test_each_row_of_both_tables_is_asked_with_its_group() -> None:
    assert {qualified(kind, api_version) for api_version, kind, _ in ROWS} >= LOSING.keys() | RECREATING


def test_an_owner_that_is_not_marked_as_controller_makes_no_pod_anew() -> None:
    # Apache's Spark operator marks none.
    given = {**owner("spark.apache.org/v1", "SparkApplication"), "controller": False}
    [refusal] = judged({"owner": given}).refusals
    assert refusal.reason is Reason.NOT_REPLICATED


def test_no_controller_is_in_both_tables() -> None:
    assert not RECREATING & LOSING.keys()


DAEMON = {"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"}


@pytest.mark.parametrize(
    ("given", "fate"),
    [
        ({"owner": owner("datadoghq.com/v1alpha1", "Anything"), "notes": DAEMON}, Fate.STAYS),
        ({"naked": True, "notes": DAEMON}, Fate.STAYS),
        ({"notes": DAEMON}, Fate.STAYS),
        ({"notes": {**DAEMON, "tightship.dev/do-not-drain": "true"}}, Fate.STAYS),
        ({"notes": dict.fromkeys(DAEMON, "false")}, Fate.EVICT),
        ({"notes": dict.fromkeys(DAEMON, "yes")}, Fate.EVICT),
    ],
)
def test_a_pod_marked_as_a_daemonsets_goes_with_its_node(given: dict[str, Any], fate: Fate) -> None:
    assert judged(given).fate is fate


def test_what_a_marked_pod_requests_counts_as_a_daemonsets() -> None:
    [view] = state_of(node(), pod(notes=DAEMON, cpu="300m")).snapshot().nodes.values()
    assert view.usage.daemon["cpu"] == 300


@pytest.mark.parametrize(("api_version", "kind"), [(KRUISE, "CloneSet"), ("argoproj.io/v1alpha1", "Rollout")])
def test_commands_name_a_controller_of_another_group_as_kubectl_takes_it(api_version: str, kind: str) -> None:
    snapshot = state_of(node(), pod(owner=owner(api_version, kind))).snapshot()
    command = annotating(snapshot, pod_of(snapshot), "a", "b")
    assert command.startswith(f"kubectl -n shop patch {kind.lower()}.{api_version.partition('/')[0]} web ")


LABELLED: list[tuple[str, dict[str, Any], str | Reason]] = [
    # actions/actions-runner-controller#1581: a job in a runner that is evicted waits until it times out.
    ("a runner of a RunnerSet", {"labels": {"runnerset-name": "ci"}}, Reason.JOB_RUNNING),
    ("a game server of OpenKruise", {"labels": {"game.kruise.io/owner-gss": "gs"}}, Reason.CUSTOM_CONTROLLER),
    ("a notebook of Kubeflow", {"labels": {"notebook-name": "n"}}, FREE),
    ("an ordinary replica", {"labels": {"app": "runnerset-name"}}, FREE),
]


@pytest.mark.parametrize("kind", ["StatefulSet", "StatefulSet.apps.kruise.io"])
@pytest.mark.parametrize(("given", "right"), [row[1:] for row in LABELLED], ids=[row[0] for row in LABELLED])
def test_a_label_tells_what_would_be_lost_under_an_ordinary_controller(
    kind: str, given: dict[str, Any], right: str | Reason
) -> None:
    name, _, group = kind.partition(".")
    given = {"owner": owner(f"{group or 'apps'}/v1", name), **given}
    verdict = judged(given)
    assert [each.reason for each in verdict.refusals] == ([] if right == FREE else [right])
    vouched = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    assert judged({**given, "notes": vouched}) == PodVerdict(Fate.EVICT)
