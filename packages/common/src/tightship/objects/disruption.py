"""PodDisruptionBudgets (policy/v1, and policy/v1beta1 in files)."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tightship.objects.meta import EMPTY, NOBODY, ManagedBy, Metadata, Namespaced, managed_by
from tightship.objects.node import Condition
from tightship.objects.selectors import LabelSelector

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
