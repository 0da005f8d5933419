"""VerticalPodAutoscalers (autoscaling.k8s.io): what their admission controller makes new pods request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Struct

from tightship.objects.meta import Metadata, Namespaced, qualified, seconds
from tightship.objects.mistyped import located, part_explained, within
from tightship.objects.quantity import ALLOWED_FORMS, QuantityError, nano
from tightship.objects.unreadable import UNREADABLE

_Quantities = dict[str, str | int | float]
"""Amounts as a custom resource keeps them: a definition may let numbers through."""

ANY_CONTAINER = "*"
"""The ``containerName`` of the policy for containers without one of their own."""


_CONTROLLED = ("cpu", "memory")


class Recommended(Struct, frozen=True, gc=False):
    """What a container will request, as quantities by resource. If it is *within_limits*, its own limits bound it."""

    requests: Mapping[str, str]
    within_limits: bool = False


class VerticalPodAutoscaler(Namespaced, frozen=True, gc=False):
    """A VPA of *target* (kind, name), *created* in seconds since 1970.

    *containers* says by name what those of a new pod will request; it is empty while the VPA changes no pod. *problem*
    says why the rest is unreadable.
    """

    target: tuple[str, str]
    created: int
    containers: Mapping[str, Recommended] = {}
    problem: str = ""


class _Target(Struct, frozen=True, gc=False, rename="camel"):
    kind: str = ""
    name: str = ""
    api_version: str = ""


class _UpdatePolicy(Struct, frozen=True, gc=False, rename="camel"):
    update_mode: str | None = None


class _ContainerPolicy(Struct, frozen=True, gc=False, rename="camel"):
    container_name: str = ""
    mode: str | None = None
    min_allowed: _Quantities | None = None
    max_allowed: _Quantities | None = None
    controlled_resources: tuple[str, ...] | None = None
    controlled_values: str | None = None

    def bounded(self, target: _Quantities) -> dict[str, str]:
        """Return what of *target* this policy lets through (``applyVPAPolicy`` of the admission controller)."""
        found: dict[str, str] = {}
        for name, given in target.items():
            text = _checked(given)
            if name not in _CONTROLLED or (
                self.controlled_resources is not None and name not in self.controlled_resources
            ):
                continue
            for bounds, sign in ((self.min_allowed, 1), (self.max_allowed, -1)):  # in this order
                bound = _checked((bounds or {}).get(name, 0))
                if nano(bound) and sign * (nano(bound) - nano(text)) > 0:
                    text = bound
            found[name] = text
        return found


class _ResourcePolicy(Struct, frozen=True, gc=False, rename="camel"):
    container_policies: tuple[_ContainerPolicy, ...] | None = None

    def of(self, container: str) -> _ContainerPolicy:
        """Return the policy of *container*: its own, else the one for all."""
        known = {each.container_name: each for each in reversed(self.container_policies or ())}
        return known.get(container) or known.get(ANY_CONTAINER) or _ContainerPolicy()


class _Recommendation(Struct, frozen=True, gc=False, rename="camel"):
    container_name: str = ""
    target: _Quantities = {}


class _Recommendations(Struct, frozen=True, gc=False, rename="camel"):
    container_recommendations: tuple[_Recommendation, ...] | None = None


class _Reference(Struct, frozen=True, gc=False, rename="camel"):
    target_ref: _Target | None = None


class _Spec(Struct, frozen=True, gc=False, rename="camel"):
    update_policy: _UpdatePolicy | None = None
    resource_policy: _ResourcePolicy | None = None

    @property
    def off(self) -> bool:
        """Whether no pod is changed, not even a new one: ``Initial`` changes those, and ``Recreate`` is the default."""
        return self.update_policy is not None and self.update_policy.update_mode == "Off"


class _Status(Struct, frozen=True, gc=False):
    recommendation: _Recommendations | None = None


_references = msgspec.json.Decoder(_Reference)
_specs = msgspec.json.Decoder(_Spec)
_statuses = msgspec.json.Decoder(_Status)


class VerticalPodAutoscalerWire(Struct, frozen=True, gc=False):
    """A VerticalPodAutoscaler on the wire. Whom it concerns is read first, so that the rest can't hide that."""

    metadata: Metadata
    spec: Annotated[msgspec.Raw, _Reference, _Spec] = msgspec.Raw(b"{}")
    status: Annotated[msgspec.Raw, _Status] = msgspec.Raw(b"{}")

    def autoscaler(self, *, advice: bool = False) -> VerticalPodAutoscaler:
        """Return the VPA. What is bad beside its target is a problem of the object, which concerns its target alone.

        With *advice* it has containers even if it is off, as those of Goldilocks are.
        """
        meta = self.metadata
        try:
            target = _references.decode(self.spec).target_ref or _Target()
        except UNREADABLE as error:
            raise msgspec.ValidationError(within("spec", str(error))) from error
        known = VerticalPodAutoscaler(
            meta.namespace, meta.name, (qualified(target.kind, target.api_version), target.name), meta.created
        )
        part, raw = "spec", self.spec
        try:
            spec = _specs.decode(raw)
            part, raw = "status", self.status
            status = _statuses.decode(raw)
            if (spec.off and not advice) or seconds(meta.deletion_timestamp) is not None:
                return known
            return msgspec.structs.replace(known, containers=_containers(spec, status))
        except UNREADABLE as error:
            return msgspec.structs.replace(known, problem=part_explained(part, raw, error))
        except QuantityError as error:
            whole = msgspec.json.encode({"spec": self.spec, "status": self.status})
            return msgspec.structs.replace(known, problem=located(whole, error))


def _checked(given: str | float) -> str:
    text = str(given)
    if nano(text) < 0:
        raise QuantityError(text, f"{ALLOWED_FORMS}, zero or more")
    return text


def _containers(spec: _Spec, status: _Status) -> Mapping[str, Recommended]:
    policies = spec.resource_policy or _ResourcePolicy()
    found: dict[str, Recommended] = {}
    recommendation = status.recommendation or _Recommendations()
    for each in recommendation.container_recommendations or ():
        policy = policies.of(each.container_name)
        if policy.mode != "Off":
            within = policy.controlled_values == "RequestsOnly"
            found[each.container_name] = Recommended(policy.bounded(each.target), within)
    return found
