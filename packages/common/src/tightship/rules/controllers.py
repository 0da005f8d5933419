"""What controllers of other API groups do with an evicted pod: one row for each, from their sources and manuals. Pure.

Kinds are written with their group (:func:`~tightship.objects.meta.qualified`). Of a kind without a row nothing is
known, so its pods stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from tightship.objects.reasons import Reason

RECREATING = frozenset(
    {
        # OpenKruise, pkg/controller/: cloneset/sync/cloneset_scale.go and statefulset/stateful_set_control.go.
        "CloneSet.apps.kruise.io",
        "StatefulSet.apps.kruise.io",
        # Strimzi, StrimziPodSetController.java (maybeCreateOrPatchPod). Its budgets say when a broker may go.
        "StrimziPodSet.core.strimzi.io",
        # CloudNativePG, internal/controller/cluster_create.go (ensureInstancesAreCreated): the pod comes back with its
        # volume. Its budgets keep a primary. EDB's manual ("Failure Modes") says the same of its own edition.
        "Cluster.postgresql.cnpg.io",
        "Cluster.postgresql.k8s.enterprisedb.io",
        # KubeBlocks, pkg/controller/instanceset/reconciler_instance_alignment.go.
        "InstanceSet.workloads.kubeblocks.io",
        # Actions Runner Controller, controllers/actions.github.com/autoscalinglistener_controller.go. No job runs here.
        "AutoscalingListener.actions.github.com",
        # Operator Lifecycle Manager, pkg/controller/registry/reconciler/grpc.go (EnsureRegistryServer).
        "CatalogSource.operators.coreos.com",
        # cert-manager, pkg/issuer/acme/http/pod.go (ensurePod).
        "Challenge.acme.cert-manager.io",
    }
)
"""Kinds that make an evicted pod anew on another node, as a ReplicaSet or a StatefulSet does."""

_TRAINING = "a training starts over, at best from its last checkpoint"
_FLYTE = "the task fails, or starts over by its retries"
_VELERO = "Velero fails the backup or the restore that runs in the pod"

LOSING: Mapping[str, tuple[Reason, str]] = {
    # Volcano, pkg/controllers/job/job_controller_handler.go (deletePod) and job_controller_util.go (applyPolicies).
    "Job.batch.volcano.sh": (Reason.JOB_RUNNING, "Volcano starts the task over or, by its policies, the whole job"),
    # OpenKruise, pkg/controller/broadcastjob/broadcastjob_controller.go (getNodesToRunPod): one pod for each node, to
    # its end, and none where the node is cordoned.
    "BroadcastJob.apps.kruise.io": (Reason.JOB_RUNNING, "what the pod does for this node would not get done"),
    # Argo Workflows, workflow/controller/operator.go ("pod deleted") and docs/tolerating-pod-deletion.md.
    "Workflow.argoproj.io": (Reason.JOB_RUNNING, "the step fails, unless its retryStrategy retries on errors"),
    # Tekton, pkg/reconciler/taskrun/taskrun.go (reconcile) and pkg/pod/status.go.
    "TaskRun.tekton.dev": (Reason.JOB_RUNNING, "Tekton fails the TaskRun, or its steps start over"),
    # Kubeflow's Spark operator, internal/controller/sparkapplication/controller.go ("driver pod not found") and
    # internal/controller/sparkconnect/reconciler.go. Apache's own marks no owner as controller.
    "SparkApplication.sparkoperator.k8s.io": (
        Reason.JOB_RUNNING,
        "the application fails with its driver, unless its restartPolicy starts it over",
    ),
    "SparkConnect.sparkoperator.k8s.io": (Reason.CUSTOM_CONTROLLER, "the sessions of the server's clients end"),
    # Kubeflow's training operator 1.x, pkg/controller.v1/common/pod.go (ReconcilePods); its MPI operator,
    # pkg/controller/mpi_job_controller.go (getOrCreateWorker). Its Trainer makes JobSets, so its pods belong to Jobs.
    **dict.fromkeys(
        (f"{kind}Job.kubeflow.org" for kind in ("PyTorch", "TF", "MPI", "XGBoost", "Paddle", "JAX", "MX")),
        (Reason.JOB_RUNNING, _TRAINING),
    ),
    # CodeFlare's AppWrapper, internal/controller/appwrapper/appwrapper_controller.go (resetOrFail).
    "AppWrapper.workload.codeflare.dev": (Reason.JOB_RUNNING, "all that the AppWrapper holds starts over, or fails"),
    # Dask, dask_kubernetes/operator/controller/controller.py: the pod is made when the DaskJob is, and never again.
    "DaskJob.kubernetes.dask.org": (Reason.JOB_RUNNING, "nobody starts the job again"),
    # Runners of GitHub Actions, controllers/actions.github.com/ephemeralrunner_controller.go and
    # controllers/actions.summerwind.net/runner_controller.go: nobody repeats the job that is lost with the runner.
    "EphemeralRunner.actions.github.com": (Reason.JOB_RUNNING, "the workflow job that runs in the pod fails"),
    "Runner.actions.summerwind.dev": (Reason.JOB_RUNNING, "the workflow job that runs in the pod fails"),
    # OpenShift, openshift-controller-manager's pkg/build/controller/build/build_controller.go.
    "Build.build.openshift.io": (Reason.JOB_RUNNING, "the build fails"),
    # Flyte 1 writes its kind small (flytepropeller/pkg/apis/flyteworkflow/v1alpha1/register.go and workflow.go) unless
    # the object tells it; Flyte 2, executor/pkg/plugin/k8s/plugin_manager.go ("ResourceDeletedExternally").
    **dict.fromkeys(
        ("flyteworkflow.flyte.lyft.com", "FlyteWorkflow.flyte.lyft.com", "TaskAction.flyte.org"),
        (Reason.JOB_RUNNING, _FLYTE),
    ),
    # Velero, pkg/exposer (owners) and pkg/datapath/micro_service_watcher.go.
    **dict.fromkeys(
        (f"{kind}.velero.io" for kind in ("DataUpload", "DataDownload", "PodVolumeBackup", "PodVolumeRestore")),
        (Reason.JOB_RUNNING, _VELERO),
    ),
    # KubeVirt's Containerized Data Importer, pkg/controller/import-controller.go (createImporterPod).
    "PersistentVolumeClaim": (Reason.JOB_RUNNING, "what is being written into the volume is written from the start"),
    # KubeVirt, docs/handling-eviction-requests.md: a webhook answers the eviction.
    "VirtualMachineInstance.kubevirt.io": (
        Reason.CUSTOM_CONTROLLER,
        "KubeVirt migrates the virtual machine or shuts it down, by its evictionStrategy",
    ),
    # KubeRay, ray-operator/controllers/ray/raycluster_controller.go: the pod is made anew. Without an external GCS, the
    # cluster's state is lost with the head.
    "RayCluster.ray.io": (
        Reason.CUSTOM_CONTROLLER,
        "Ray loses what runs in a worker, and with the head the state of the whole cluster",
    ),
    # Agones, pkg/gameservers/missing.go. Agones itself writes safe-to-evict, by the game server's eviction.safe
    # (pkg/apis/agones/v1/gameserver.go).
    "GameServer.agones.dev": (Reason.CUSTOM_CONTROLLER, "Agones ends the game server, and its players' sessions"),
    # Longhorn, controller/instance_manager_controller.go (handlePod): one for each node, none where the node is
    # cordoned; engines and replicas of volumes live in the pod. Longhorn itself writes safe-to-evict, by its setting
    # kubernetes-cluster-autoscaler-enabled. controller/share_manager_controller.go: all users of the volume remount it.
    "InstanceManager.longhorn.io": (
        Reason.CUSTOM_CONTROLLER,
        "Longhorn's volumes lose the engines and replicas that run in the pod",
    ),
    "ShareManager.longhorn.io": (
        Reason.CUSTOM_CONTROLLER,
        "the pods that share the volume lose it until Longhorn serves it from another pod",
    ),
    # vCluster, pkg/util/translate/translate.go (GetOwnerReference) and pkg/controllers/resources/pods/syncer.go.
    "Service": (
        Reason.CUSTOM_CONTROLLER,
        "vCluster deletes the pod in its virtual cluster too, where any kind of controller may own it",
    ),
    # Flink's native mode, Fabric8FlinkKubeClient.java (createTaskManagerPod): task managers belong to the Deployment of
    # their job manager, without a ReplicaSet.
    "Deployment": (
        Reason.CUSTOM_CONTROLLER,
        "there is no ReplicaSet, so this may be a task manager of Flink, whose job would start over from a checkpoint",
    ),
    # Spark, BasicExecutorFeatureStep.scala: executors belong to the pod of their driver. KubeVirt's hotplug pods belong
    # to the pod of their machine.
    "Pod": (
        Reason.CUSTOM_CONTROLLER,
        "a pod owns this one, as Spark's driver owns its executors, and may not ask for another",
    ),
}
"""Kinds that lose something with an evicted pod: the reason that keeps it, and what happens."""

LOSING_BY_LABEL: Mapping[str, tuple[Reason, str]] = {
    # Actions Runner Controller, controllers/actions.summerwind.net/runnerset_controller.go: the runners of a RunnerSet
    # are pods of StatefulSets.
    "runnerset-name": (Reason.JOB_RUNNING, "the workflow job that runs in the pod fails"),
    # OpenKruiseGame, apis/v1alpha1/gameserverset_types.go: game servers are pods of an Advanced StatefulSet.
    "game.kruise.io/owner-gss": (Reason.CUSTOM_CONTROLLER, "the sessions of the game server's players end"),
}
"""Labels of pods that lose as much, whatever kind controls them."""

UNKNOWN = (Reason.CUSTOM_CONTROLLER, "nobody knows whether controllers of this kind recreate an evicted pod")
"""The same for kinds without a row."""
