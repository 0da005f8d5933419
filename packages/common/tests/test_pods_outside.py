"""Pods as operators, runners and people make them, from reports of drains that hurt: which stay, and which may go."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.objects.reasons import Reason
from tightship.planning.facts import FactRules, gather
from tightship.rules.evictability import EvictionRules
from tightship_testkit.builders import NOW, controller, node, pod, state_of, workload

Json = dict[str, Any]

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
FREE = None


def of(api_version: str, kind: str) -> Json:
    return {"apiVersion": api_version, "kind": kind, "name": "x", "uid": "u", "controller": True}


def disk(**source: Any) -> Json:
    return {"volumes": [{"name": "a", **source}]}


STATEFUL, JOB = controller("StatefulSet", "web"), controller("Job", "web")
IN_SYSTEM = {"namespace": "kube-system"}

ROWS: list[tuple[str, Json, Reason | None]] = [
    # Work that nobody repeats.
    ("a notebook of JupyterHub", {"naked": True, "labels": {"component": "singleuser-server"}}, Reason.NOT_REPLICATED),
    ("a job of GitLab's runner", {"naked": True, "labels": {"job.runner.gitlab.com/id": "1"}}, Reason.NOT_REPLICATED),
    ("an agent of Jenkins", {"naked": True, "labels": {"jenkins/label": "a"}}, Reason.NOT_REPLICATED),
    ("a worker of Airflow", {"naked": True, "notes": {SAFE: "false"}}, Reason.NOT_REPLICATED),
    ("a driver of Spark", {"naked": True, "labels": {"spark-role": "driver"}}, Reason.NOT_REPLICATED),
    ("an executor of Spark", {"owner": of("v1", "Pod")}, Reason.CUSTOM_CONTROLLER),
    ("a scheduler of Dask", {"owner": of("kubernetes.dask.org/v1", "DaskCluster")}, Reason.CUSTOM_CONTROLLER),
    ("a head of Ray", {"owner": of("ray.io/v1", "RayCluster")}, Reason.CUSTOM_CONTROLLER),
    ("a run of Dagster", {"owner": JOB, "restartPolicy": "Never"}, Reason.JOB_RUNNING),
    ("a step of Argo", {"owner": of("argoproj.io/v1alpha1", "Workflow")}, Reason.JOB_RUNNING),
    ("a build of OpenShift", {"owner": of("build.openshift.io/v1", "Build")}, Reason.JOB_RUNNING),
    # aws/karpenter-provider-aws#4758: a runner was consolidated in the middle of its job.
    ("a runner of GitHub", {"owner": of("actions.github.com/v1alpha1", "EphemeralRunner")}, Reason.JOB_RUNNING),
    ("a runner of Gitea", {"owner": of("gitea.example.com/v1", "EphemeralRunner")}, Reason.CUSTOM_CONTROLLER),
    ("a sandbox", {"owner": of("agents.x-k8s.io/v1alpha1", "Sandbox")}, Reason.CUSTOM_CONTROLLER),
    ("a game with players", {"owner": of("agones.dev/v1", "GameServer"), "notes": {SAFE: "false"}},
     Reason.CUSTOM_CONTROLLER),
    ("a game without players", {"owner": of("agones.dev/v1", "GameServer"), "notes": {SAFE: "true"}}, FREE),
    ("a virtual machine", {"owner": of("kubevirt.io/v1", "VirtualMachineInstance")}, Reason.CUSTOM_CONTROLLER),
    ("a virtual machine that migrates", {"owner": of("kubevirt.io/v1", "VirtualMachineInstance"),
     "notes": {SAFE: "true", "descheduler.alpha.kubernetes.io/request-evict-only": ""}}, FREE),
    # Others' mounts and data.
    ("a mount of JuiceFS", {**IN_SYSTEM, "naked": True}, Reason.NOT_REPLICATED),
    ("Longhorn's engines", {"owner": of("longhorn.io/v1beta2", "InstanceManager")}, Reason.CUSTOM_CONTROLLER),
    # Longhorn itself vouches where its setting for the autoscaler is on.
    ("Longhorn's engines, vouched for", {"owner": of("longhorn.io/v1beta2", "InstanceManager"),
     "notes": {SAFE: "true"}}, FREE),
    ("Portworx", {"owner": of("core.libopenstorage.org/v1", "StorageCluster")}, Reason.CUSTOM_CONTROLLER),
    ("an OSD of Rook: its budget and its node tell", {"labels": {"app": "rook-ceph-osd"}}, FREE),
    ("a node agent of Velero", {"owner": controller("DaemonSet", "velero")}, FREE),
    ("a queue that empties for a week", {"owner": STATEFUL, "terminationGracePeriodSeconds": 604800},
     Reason.GRACE_PERIOD_TOO_LONG),
    # Volumes.
    ("an emptyDir", disk(emptyDir={}), Reason.LOCAL_STORAGE),
    ("an emptyDir that the descheduler may lose", {**disk(emptyDir={}),
     "notes": {"descheduler.alpha.kubernetes.io/evict": "true"}}, Reason.LOCAL_STORAGE),
    ("an emptyDir of huge pages", disk(emptyDir={"medium": "HugePages-2Mi"}), Reason.LOCAL_STORAGE),
    ("a hostPath", disk(hostPath={"path": "/d"}), Reason.LOCAL_STORAGE),
    ("a generic ephemeral volume", disk(ephemeral={"volumeClaimTemplate": {"spec": {}}}), FREE),
    ("an image", disk(image={"reference": "x"}), FREE),
    ("secrets by a driver", disk(csi={"driver": "secrets-store.csi.k8s.io"}), FREE),
    ("a git repository", disk(gitRepo={"repository": "x"}), FREE),
    ("a share", disk(nfs={"server": "s", "path": "/"}), FREE),
    # People.
    ("kubectl debug node", {"naked": True, "hostNetwork": True}, Reason.NOT_REPLICATED),
    ("a word with a capital", {"notes": {"karpenter.sh/do-not-disrupt": "True"}}, Reason.POD_DO_NOT_DISRUPT),
    ("a toleration of everything", {"tolerations": [{"operator": "Exists"}]}, Reason.TOLERATES_CORDON),
    ("a pod on the nodes' network", {"hostNetwork": True}, FREE),
    ("a replica that starts", {"ready": False, "phase": "Pending"}, FREE),
    ("a solver of cert-manager", {"owner": of("acme.cert-manager.io/v1", "Challenge")}, FREE),
    ("an ordinary replica", {}, FREE),
    ("an ordinary database", {"owner": STATEFUL}, FREE),
]  # fmt: skip


@pytest.mark.parametrize(("given", "right"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_pod_of_a_report_is_answered_rightly(given: Json, right: Reason | None) -> None:
    known = [workload(kind) for kind in ("ReplicaSet", "StatefulSet", "Job")]
    seen = state_of(node(), node("n2"), *known, pod(**given)).snapshot()
    facts = gather(seen, FactRules(eviction=EvictionRules(longest_grace=1800)), NOW)["n1"]
    found = {each.reason for each in facts.refusals}
    assert found == set() if right is None else right in found
