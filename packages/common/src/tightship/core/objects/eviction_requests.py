"""EvictionRequests (lifecycle.k8s.io, KEP-4563): a drain asks the responders of a pod to see to its eviction.

The fields are those of Kubernetes 1.37.1 (``k8s.io/api/lifecycle/v1alpha1``), which serves the kind with the feature
gate EvictionRequestAPI. An evictionrequest-controller, which 1.37 does not ship, has to process the requests.
"""

from __future__ import annotations

from msgspec import Struct

from tightship.core.objects.meta import Metadata, Namespaced
from tightship.core.objects.node import Condition

EVICTION_REQUEST = "EvictionRequest"
MANAGED_BY = ("app.kubernetes.io/managed-by", "tightship")
"""The label, and its value, of the requests that we make."""


class EvictionRequest(Namespaced, frozen=True, gc=False):
    """A request to evict the pod with the uid *pod_uid*.

    *observed* says that a controller processes the request, *withdrawn* that *requester* no longer wants the eviction.
    *failed* says why no responder sees to the eviction any more, and is empty while one does. *created* is in seconds
    since 1970.
    """

    pod_uid: str
    requester: str
    created: int
    observed: bool = False
    withdrawn: bool = False
    failed: str = ""


class _Target(Struct, frozen=True, gc=False):
    uid: str = ""


class _Targets(Struct, frozen=True, gc=False):
    pod: _Target = _Target()


class _Spec(Struct, frozen=True, gc=False):
    target: _Targets = _Targets()
    requester: str = ""
    intent: str = ""


class _Status(Struct, frozen=True, gc=False, rename="camel"):
    observed_generation: int | None = None
    conditions: tuple[Condition, ...] | None = None


class EvictionRequestWire(Struct, frozen=True, gc=False):
    """An EvictionRequest on the wire."""

    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def request(self) -> EvictionRequest:
        """Return the request. A controller that has only set conditions has observed it too."""
        conditions = self.status.conditions or ()
        failed = next((each for each in conditions if each.type == "Failed" and each.status == "True"), None)
        return EvictionRequest(
            self.metadata.namespace,
            self.metadata.name,
            self.spec.target.pod.uid,
            self.spec.requester,
            self.metadata.created,
            observed=bool(self.status.observed_generation or conditions),
            withdrawn=self.spec.intent == "Withdrawn",
            failed="" if failed is None else f"{failed.reason}: {failed.message}",
        )


__all__ = ["EVICTION_REQUEST", "MANAGED_BY", "EvictionRequest", "EvictionRequestWire"]
