"""The controllers of pods, namespaces and PodDisruptionBudgets (policy/v1, and policy/v1beta1 in files).

Of controllers and namespaces it is enough to know that they exist and who owns them; of Deployments also what tells how
their rollouts go.
"""

from __future__ import annotations

import sys
from datetime import datetime

import msgspec
from msgspec import Struct

from tightship.objects.meta import (
    EMPTY,
    NOBODY,
    ManagedBy,
    Metadata,
    Namespaced,
    Owner,
    Present,
    kept_annotations,
    managed_by,
    seconds,
)
from tightship.objects.node import Condition
from tightship.objects.selectors import Labels, LabelSelector

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
"""The annotation of a pod template that ``kubectl rollout restart`` writes."""

MAKE_BEFORE_BREAK = "tightship.dev/make-before-break"
"""The annotation of a workload, and the label of a namespace, that ask for a restart instead of evictions."""

ON_DELETE = "OnDelete"
"""The update strategy with which pods get a new template only once somebody deletes them."""

DEFAULT_BACKOFF_LIMIT = 6
"""Failed pods that a Job has without a word of its own (``pkg/apis/batch/v1/defaults.go``)."""

PARALLEL = "Parallel"
"""The ``podManagementPolicy`` of a StatefulSet whose pods wait for no other."""

WORKLOAD_KINDS = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"})
"""Controllers that recreate their pods elsewhere (DaemonSet: on every node), as Cluster Autoscaler has them."""

SAME_NAME = frozenset(
    {"StatefulSet", "StatefulSet.apps.kruise.io", "StrimziPodSet.core.strimzi.io", "Cluster.postgresql.cnpg.io"}
)
"""Controllers that give a replacement the name of the pod before, so that it comes once that has gone."""

_AFTERWARDS = frozenset({"Failed", "TerminationComplete"})
"""Values of ``podReplacementPolicy``, of Jobs (KEP-3939) and by KEP-5882, with which replacements wait for the end."""


class Workload(Struct, frozen=True, gc=False):
    """A controller of pods; *owner* is, for example, the Deployment above a ReplicaSet.

    *pinned* is the node that the pod template names (``spec.nodeName``), which bypasses any scheduler; mostly empty.
    *annotations* are those of the pod template that some rule reads, ``None`` without a template. With *afterwards*
    the controller replaces a terminating pod only once it has gone. *managed* tells who deploys the object; a
    ReplicaSet has the annotations of its Deployment. *since* (seconds since 1970) is when the object was created or,
    with 0 replicas, when its spec was last written, as far as that is known. *mark* is the value of
    :data:`MAKE_BEFORE_BREAK`, if the object has one. *rolls_to* is the revision that a StatefulSet with the update
    strategy ``OnDelete`` gives each pod made anew (``newVersionedStatefulSetPod`` in
    ``pkg/controller/statefulset/stateful_set_utils.go``). *last_try* says that a Job fails with its next failed pod,
    *ordered* that a StatefulSet makes a pod only once all before it are Ready (``stateful_set_control.go``).
    """

    kind: str
    namespace: str
    name: str
    uid: str
    replicas: int | None
    owner: Owner | None
    pinned: str = ""
    annotations: Labels | None = None
    afterwards: bool = False
    managed: ManagedBy = NOBODY
    since: int = 0
    mark: str | None = None
    rolls_to: str = ""
    last_try: bool = False
    ordered: bool = False


class Deployment(Namespaced, frozen=True, gc=False):
    """A Deployment, with the numbers of its spec and status that tell how its rollout goes.

    *surge* and *unavailable* are ``maxSurge`` and ``maxUnavailable`` in pods; both are 0 if the strategy is no rolling
    update. *restarted_at* is the template's annotation :data:`RESTARTED_AT`. *progressing* is the reason of the
    condition of that name, empty without one.
    """

    uid: str
    generation: int
    replicas: int
    surge: int
    unavailable: int
    paused: bool
    deleted: bool
    restarted_at: str
    observed_generation: int
    existing: int
    updated: int
    available: int
    progressing: str = ""

    @property
    def settled(self) -> bool:
        """Whether no rollout is under way, and all pods are available.

        As ``DeploymentComplete`` has it (``pkg/controller/deployment/util/deployment_util.go``).
        """
        counts = {self.existing, self.updated, self.available}
        return self.seen and counts == {self.replicas} and self.progressing in ("", "NewReplicaSetAvailable")

    @property
    def seen(self) -> bool:
        """Whether the status is that of the present spec."""
        return self.observed_generation >= self.generation

    @property
    def failed(self) -> bool:
        """Whether the present rollout has made no progress for ``progressDeadlineSeconds``."""
        return self.seen and self.progressing == "ProgressDeadlineExceeded"


class Namespace(Struct, frozen=True, gc=False):
    """A namespace: its labels serve ``namespaceSelector``."""

    name: str
    labels: Labels


class _PodSpec(Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""


class _TemplateMetadata(Struct, frozen=True, gc=False):
    annotations: dict[str, str] | None = None


class _Template(Struct, frozen=True, gc=False):
    metadata: _TemplateMetadata | None = None
    spec: _PodSpec | None = None


class _UpdateStrategy(Struct, frozen=True, gc=False):
    type: str = ""


class _WorkloadStatus(Struct, frozen=True, gc=False, rename="camel"):
    update_revision: str = ""
    failed: int = 0


class _WorkloadSpec(Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = None
    template: _Template | None = None
    pod_replacement_policy: str | None = None
    pod_failure_policy: Present | None = None
    update_strategy: _UpdateStrategy | None = None
    backoff_limit: int | None = None
    pod_management_policy: str = ""

    @property
    def afterwards(self) -> bool:
        """Whether the policies ask for replacements only afterwards. The API server defaults a Job's one like this."""
        if self.pod_replacement_policy is None:
            return self.pod_failure_policy is not None
        return self.pod_replacement_policy in _AFTERWARDS

    @property
    def pinned(self) -> str:
        """The node that the template names."""
        return self.template.spec.node_name if self.template is not None and self.template.spec is not None else ""

    @property
    def annotations(self) -> Labels | None:
        """The template's annotations that some rule reads."""
        if self.template is None:
            return None
        return kept_annotations(self.template.metadata.annotations if self.template.metadata is not None else None)


class _Write(Struct, frozen=True, gc=False):
    time: datetime | None = None
    subresource: str = ""


class _Metadata(Metadata, frozen=True, rename="camel", gc=False):
    managed_fields: tuple[_Write, ...] | None = None

    @property
    def written(self) -> int:
        """When anything but a subresource was last written, the creation if nothing tells."""
        times = (seconds(each.time) for each in self.managed_fields or () if not each.subresource)
        return max(self.created, *(each or 0 for each in times), 0)


class WorkloadWire(Struct, frozen=True, gc=False):
    """A workload on the wire. The request or the file names its kind."""

    metadata: _Metadata
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus | None = None

    def workload(self, kind: str) -> Workload:
        meta = self.metadata
        spec, status = self.spec, self.status or _WorkloadStatus()
        strategy = spec.update_strategy or _UpdateStrategy()
        tries = DEFAULT_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit
        return Workload(
            kind=kind,
            namespace=sys.intern(meta.namespace),
            name=meta.name,
            uid=meta.uid,
            replicas=spec.replicas,
            owner=meta.controller,
            pinned=spec.pinned,
            annotations=spec.annotations,
            afterwards=kind in SAME_NAME or spec.afterwards,
            managed=managed_by(meta, owned=False),
            mark=(meta.annotations or EMPTY).get(MAKE_BEFORE_BREAK),
            since=meta.written if spec.replicas == 0 else meta.created,
            rolls_to=status.update_revision if kind == "StatefulSet" and strategy.type == ON_DELETE else "",
            last_try=kind == "Job" and status.failed >= tries,
            ordered=kind == "StatefulSet" and spec.pod_management_policy != PARALLEL,
        )


class _Restarted(Struct, frozen=True, gc=False):
    at: str = msgspec.field(default="", name=RESTARTED_AT)


class _RestartedMetadata(Struct, frozen=True, gc=False):
    annotations: _Restarted | None = None


class _RestartedTemplate(Struct, frozen=True, gc=False):
    metadata: _RestartedMetadata | None = None


class _RollingUpdate(Struct, frozen=True, rename="camel", gc=False):
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class _Strategy(Struct, frozen=True, rename="camel", gc=False):
    type: str = "RollingUpdate"
    rolling_update: _RollingUpdate | None = None


class _DeploymentSpec(Struct, frozen=True, gc=False):
    replicas: int | None = None
    strategy: _Strategy | None = None
    paused: bool = False
    template: _RestartedTemplate | None = None


class _DeploymentStatus(Struct, frozen=True, rename="camel", gc=False):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[Condition, ...] | None = None


class DeploymentWire(Struct, frozen=True, gc=False):
    """A Deployment on the wire."""

    metadata: Metadata
    spec: _DeploymentSpec = _DeploymentSpec()
    status: _DeploymentStatus | None = None

    def deployment(self) -> Deployment:
        meta, spec, status = self.metadata, self.spec, self.status or _DeploymentStatus()
        replicas = 1 if spec.replicas is None else spec.replicas
        strategy = spec.strategy or _Strategy()
        surge, unavailable = 0, 0
        if strategy.type == "RollingUpdate":
            rolling = strategy.rolling_update or _RollingUpdate()
            # Without both, a rollout could not proceed (ResolveFenceposts); a surge of 0 is never of use here.
            surge = _pods(rolling.max_surge, replicas, up=True)
            unavailable = _pods(rolling.max_unavailable, replicas, up=False)
        marked = spec.template.metadata if spec.template is not None else None
        progressing = next((each.reason for each in status.conditions or () if each.type == "Progressing"), "")
        return Deployment(
            namespace=sys.intern(meta.namespace),
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            replicas=replicas,
            surge=surge,
            unavailable=unavailable,
            paused=spec.paused,
            deleted=seconds(meta.deletion_timestamp) is not None,
            restarted_at=marked.annotations.at if marked is not None and marked.annotations is not None else "",
            observed_generation=status.observed_generation,
            existing=status.replicas,
            updated=status.updated_replicas,
            available=status.available_replicas,
            progressing=progressing,
        )


def _pods(written: int | str | None, replicas: int, *, up: bool) -> int:
    """Return the number of pods that a field of a rolling update means; both are a quarter by default."""
    text = "25%" if written is None else str(written)
    if not text.endswith("%"):
        return int(text)
    share = int(text[:-1]) * replicas
    return -(-share // 100) if up else share // 100


class NamespaceWire(Struct, frozen=True, gc=False):
    """A namespace on the wire."""

    metadata: Metadata

    def namespace(self) -> Namespace:
        return Namespace(self.metadata.name, self.metadata.labels or EMPTY)


OPENS_AFTER_CORDON = "tightship.dev/opens-after-cordon"


class PodDisruptionBudget(Namespaced, frozen=True, gc=False):
    """A PDB, reduced to what decisions need.

    *max_unavailable* and *min_available* are as written (a count or a percentage text) and serve explanations only:
    the status of the disruption controller decides. *sync_failed* is the controller's message if it could not compute
    the status, else empty. *managed* tells who would set a change back. *opens* is the annotation
    ``tightship.dev/opens-after-cordon``, *owned_by* the annotation ``ownedBy``; both may be empty.
    """

    uid: str
    selector: LabelSelector | None
    max_unavailable: int | str | None
    min_available: int | str | None
    always_allow_unhealthy: bool
    generation: int
    observed_generation: int
    disruptions_allowed: int
    current_healthy: int
    desired_healthy: int
    expected_pods: int
    sync_failed: str
    managed: ManagedBy = NOBODY
    opens: str = ""
    owned_by: str = ""

    @property
    def rule(self) -> str:
        """The rule as written, such as ``minAvailable 2``."""
        if self.max_unavailable is not None:
            return f"maxUnavailable {self.max_unavailable}"
        return "neither minAvailable nor maxUnavailable" if self.unset else f"minAvailable {self.min_available}"

    @property
    def unset(self) -> bool:
        """Whether the budget has no rule, which the API server accepts."""
        return self.max_unavailable is None and self.min_available is None

    @property
    def uncounted(self) -> bool:
        """Whether the disruption controller expects no pods, though there are some, and so allows nothing: without a
        rule, or where it counts the replicas of controllers and pods have none (``getExpectedPodCount`` and
        ``updatePdbStatus`` in pkg/controller/disruption). A number of ``minAvailable`` counts pods.
        """
        nothing = self.expected_pods == 0 < self.current_healthy
        return self.unset or (nothing and not isinstance(self.min_available, int))

    @property
    def never_allows(self) -> bool:
        """Whether the rule forbids every disruption even if all expected pods are healthy."""
        if self.uncounted or self.max_unavailable in (0, "0%"):
            return True
        return self.expected_pods > 0 and self.desired_healthy >= self.expected_pods


class _Spec(Struct, frozen=True, rename="camel", gc=False):
    selector: LabelSelector | None = None
    max_unavailable: int | str | None = None
    min_available: int | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class _Status(Struct, frozen=True, rename="camel", gc=False):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[Condition, ...] | None = None


class PodDisruptionBudgetWire(Struct, frozen=True, gc=False):
    """A PDB on the wire."""

    metadata: Metadata
    api_version: str = msgspec.field(default="", name="apiVersion")
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def budget(self) -> PodDisruptionBudget:
        failed = next(
            (
                each.message or each.reason
                for each in self.status.conditions or ()
                if each.type == "DisruptionAllowed" and each.reason == "SyncFailed" and each.status == "False"
            ),
            "",
        )
        return PodDisruptionBudget(
            namespace=self.metadata.namespace,
            name=self.metadata.name,
            uid=self.metadata.uid,
            selector=self._selector,
            max_unavailable=self.spec.max_unavailable,
            min_available=self.spec.min_available,
            always_allow_unhealthy=self.spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
            generation=self.metadata.generation,
            observed_generation=self.status.observed_generation,
            disruptions_allowed=self.status.disruptions_allowed,
            current_healthy=self.status.current_healthy,
            desired_healthy=self.status.desired_healthy,
            expected_pods=self.status.expected_pods,
            sync_failed=failed,
            managed=managed_by(self.metadata),
            opens=(self.metadata.annotations or EMPTY).get(OPENS_AFTER_CORDON, ""),
            owned_by=(self.metadata.annotations or EMPTY).get("ownedBy", ""),
        )

    @property
    def _selector(self) -> LabelSelector | None:
        """The selector. An empty one selects all pods of the namespace, but none in v1beta1 (``policy/v1beta1`` of the
        API: ``PodDisruptionBudgetSpec.selector``).
        """
        selector = self.spec.selector
        empty = selector is not None and not selector.match_labels and not selector.match_expressions
        return None if empty and self.api_version == "policy/v1beta1" else selector
