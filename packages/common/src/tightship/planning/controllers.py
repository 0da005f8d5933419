"""What controllers of other API groups do with an evicted pod: one row for each, from their sources and manuals. Pure.

Kinds are written with their group (:func:`~tightship.core.objects.meta.qualified`). Of a kind without a row nothing is
known, so its pods stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from tightship.core.reasons import Reason

RECREATING = frozenset(
    {
        # OpenKruise, pkg/controller/cloneset and pkg/controller/statefulset.
        "CloneSet.apps.kruise.io",
        "StatefulSet.apps.kruise.io",
        # Strimzi, StrimziPodSetController.java. Its budgets say when a broker may go.
        "StrimziPodSet.core.strimzi.io",
        # CloudNativePG, "failure modes": the pod comes back with its volume. Its budgets keep a primary.
        "Cluster.postgresql.cnpg.io",
        "Cluster.postgresql.k8s.enterprisedb.io",
        # Operator Lifecycle Manager, pkg/controller/registry/reconciler/grpc.go.
        "CatalogSource.operators.coreos.com",
        # cert-manager, pkg/issuer/acme/http/pod.go.
        "Challenge.acme.cert-manager.io",
    }
)
"""Kinds that make an evicted pod anew on another node, as a ReplicaSet or a StatefulSet does."""

_TRAINING = "a training starts over, at best from its last checkpoint"
_VELERO = "Velero fails the backup or the restore that runs in the pod"

LOSING: Mapping[str, tuple[Reason, str]] = {
    # Volcano, pkg/controllers/job/job_controller_util.go (applyPolicies on PodEvicted).
    "Job.batch.volcano.sh": (Reason.JOB_RUNNING, "Volcano starts the task over or, by its policies, the whole job"),
    # OpenKruise, pkg/controller/broadcastjob: one pod for each node, to its end.
    "BroadcastJob.apps.kruise.io": (Reason.JOB_RUNNING, "what the pod does for this node would not get done"),
    # Argo Workflows, docs/tolerating-pod-deletion.md.
    "Workflow.argoproj.io": (Reason.JOB_RUNNING, "the step fails, unless its retryStrategy retries on errors"),
    # Tekton, pkg/reconciler/taskrun.
    "TaskRun.tekton.dev": (Reason.JOB_RUNNING, "Tekton fails the TaskRun, or its steps start over"),
    # Spark operators: the driver is the application.
    "SparkApplication.sparkoperator.k8s.io": (Reason.JOB_RUNNING, "the application fails with its driver"),
    "SparkApplication.spark.apache.org": (Reason.JOB_RUNNING, "the application fails with its driver"),
    # Kubeflow's training operator, pkg/controller.v1.
    **dict.fromkeys(
        (f"{kind}Job.kubeflow.org" for kind in ("PyTorch", "TF", "MPI", "XGBoost", "Paddle", "JAX", "MX")),
        (Reason.JOB_RUNNING, _TRAINING),
    ),
    # Runners of GitHub Actions: nobody repeats the job that is lost with the runner.
    "EphemeralRunner.actions.github.com": (Reason.JOB_RUNNING, "the workflow job that runs in the pod fails"),
    "Runner.actions.summerwind.dev": (Reason.JOB_RUNNING, "the workflow job that runs in the pod fails"),
    "Build.build.openshift.io": (Reason.JOB_RUNNING, "the build fails"),
    "FlyteWorkflow.flyte.lyft.com": (Reason.JOB_RUNNING, "the task fails, or starts over by its retries"),
    **dict.fromkeys(
        (f"{kind}.velero.io" for kind in ("DataUpload", "DataDownload", "PodVolumeBackup", "PodVolumeRestore")),
        (Reason.JOB_RUNNING, _VELERO),
    ),
    # KubeVirt, docs/eviction-requests: a webhook answers the eviction.
    "VirtualMachineInstance.kubevirt.io": (
        Reason.CUSTOM_CONTROLLER,
        "KubeVirt migrates the virtual machine or shuts it down, by its evictionStrategy",
    ),
    # KubeRay: without an external GCS, the cluster's state is lost with the head.
    "RayCluster.ray.io": (
        Reason.CUSTOM_CONTROLLER,
        "Ray loses what runs in a worker, and with the head the state of the whole cluster",
    ),
    # Agones, pkg/gameservers/controller.go. Agones itself writes safe-to-evict, by the game server's eviction.safe.
    "GameServer.agones.dev": (Reason.CUSTOM_CONTROLLER, "Agones ends the game server, and its players' sessions"),
    # Longhorn runs one for each node; engines and replicas of volumes live in the pod.
    "InstanceManager.longhorn.io": (
        Reason.CUSTOM_CONTROLLER,
        "Longhorn's volumes lose the engines and replicas that run in the pod",
    ),
    # Flink's native mode: task managers belong to the Deployment of their job manager, without a ReplicaSet.
    "Deployment": (
        Reason.CUSTOM_CONTROLLER,
        "there is no ReplicaSet, so this may be a task manager of Flink, whose job would start over from a checkpoint",
    ),
    # Spark's executors belong to the pod of their driver.
    "Pod": (
        Reason.CUSTOM_CONTROLLER,
        "a pod owns this one, as Spark's driver owns its executors, and may not ask for another",
    ),
}
"""Kinds that lose something with an evicted pod: the reason that keeps it, and what happens."""

UNKNOWN = (Reason.CUSTOM_CONTROLLER, "nobody knows whether controllers of this kind recreate an evicted pod")
"""The same for kinds without a row."""
