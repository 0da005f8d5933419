"""HorizontalPodAutoscalers (autoscaling/v2), and their targets."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from tightship.objects.meta import EMPTY, ManagedFields, Metadata, Namespaced, Owner, seconds
from tightship.objects.node import Condition
from tightship.objects.selectors import Labels
from tightship.objects.unreadable import UNREADABLE

KEPT_CONDITIONS = frozenset({"ScalingActive", "AbleToScale", "ScalingLimited"})
"""Conditions that the HPA controller sets. Decoding drops all others."""

DROPPED_ANNOTATIONS = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
"""Annotations that no rule reads and that may be as large as the object. Users choose the prefix of all others."""

SCALE_TARGET_KINDS = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "Rollout"})
"""Kinds whose rollouts :class:`ScaleTarget` can judge; ``Rollout`` is the kind of Argo Rollouts."""


class ScaleTargetRef(Struct, frozen=True, rename="camel", gc=False):
    """The target of an HPA, in the HPA's namespace."""

    kind: str
    name: str
    api_version: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class ScalingPolicy(Struct, frozen=True, rename="camel", gc=False):
    """One policy of ``spec.behavior``: *type* ``Pods`` or ``Percent``, *value* of it in *period_seconds*."""

    type: str
    value: int
    period_seconds: int


class ScalingRules(Struct, frozen=True, rename="camel", gc=False):
    """One direction of ``spec.behavior``. *select_policy* is ``Max`` (the default), ``Min`` or ``Disabled``.

    *tolerance* is a Kubernetes quantity.
    """

    policies: tuple[ScalingPolicy, ...] | None = None
    select_policy: str | None = None
    stabilization_window_seconds: int | None = None
    tolerance: str | int | float | None = None


class FieldManager(Struct, frozen=True, gc=False):
    """A manager that owns a bound of the HPA, by its ``managedFields``; *time* is in seconds since 1970, 0 if absent.

    *sets_min* and *sets_max* say which of ``spec.minReplicas`` and ``spec.maxReplicas`` the manager owns.
    """

    manager: str
    operation: str
    time: int
    sets_min: bool
    sets_max: bool


class HorizontalPodAutoscaler(Namespaced, frozen=True, gc=False):
    """An HPA, reduced to what decisions need.

    *min_replicas* is 1 if the object has none, which is the API server's default too. *current_replicas* comes from the
    status (the scale's *spec* since Kubernetes 1.16), and is ``None`` until the HPA controller has handled the HPA.
    *conditions* have no messages. *managers* are those that own one of the two bounds. *deletion* is in seconds since
    1970. *namesakes* says that two of its metrics have one name and type, as of two containers; kube-state-metrics does
    not tell these apart. *utilization* has (resource, container) of each metric that needs requests; the container is
    empty for all.
    """

    uid: str
    labels: Labels
    annotations: Labels
    owner: Owner | None
    deletion: int | None
    min_replicas: int
    max_replicas: int
    target: ScaleTargetRef
    scale_up: ScalingRules | None
    scale_down: ScalingRules | None
    current_replicas: int | None
    desired_replicas: int
    conditions: tuple[Condition, ...]
    managers: tuple[FieldManager, ...]
    namesakes: bool = False
    utilization: tuple[tuple[str, str], ...] = ()

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of type *kind*, ``None`` if the status has none."""
        return next((each for each in self.conditions if each.type == kind), None)


class ScaleTarget(Struct, frozen=True, gc=False):
    """A workload's rollout: the numbers of its status, and its revisions if it has any.

    *observed_generation* is ``None`` unless the status holds a number. *phase* is the phase of an Argo Rollout.
    *paused* is ``spec.paused``.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    wanted: int | None
    replicas: int
    updated: int
    generation: int
    observed_generation: int | None
    current_revision: str
    update_revision: str
    phase: str
    paused: bool = False


class _ManagedFields(ManagedFields, frozen=True, rename="camel", gc=False):
    operation: str = ""
    time: datetime | None = None

    def manager_of_bounds(self) -> FieldManager | None:
        sets_min, sets_max = self.sets("min_replicas"), self.sets("max_replicas")
        if not (sets_min or sets_max):
            return None
        return FieldManager(_once(self.manager), _once(self.operation), seconds(self.time) or 0, sets_min, sets_max)


class _Metadata(Metadata, frozen=True, rename="camel", gc=False):
    managed_fields: tuple[_ManagedFields, ...] | None = None


class _Behavior(Struct, frozen=True, rename="camel", gc=False):
    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


class _Spec(Struct, frozen=True, rename="camel", gc=False):
    scale_target_ref: ScaleTargetRef
    max_replicas: int
    min_replicas: int | None = None
    behavior: _Behavior | None = None
    metrics: Any = None
    target_cpu: int | None = msgspec.field(default=None, name="targetCPUUtilizationPercentage")

    @property
    def namesakes(self) -> bool:
        """Whether two metrics have one name and type of target."""
        named = [_named(each) for each in self.metrics] if isinstance(self.metrics, list) else []
        known = [each for each in named if each is not None]
        return len(known) > len(set(known))

    @property
    def utilization(self) -> tuple[tuple[str, str], ...]:
        """(resource, container) of each metric of utilization. Without a metric, the API server asks for CPU's."""
        if not isinstance(self.metrics, list) or not self.metrics:
            return (("cpu", ""),)
        return tuple(pair for each in self.metrics if (pair := _utilized(each)) is not None)


def _utilized(metric: Any) -> tuple[str, str] | None:
    """Return (resource, container) of *metric* in any version of the API, ``None`` unless it needs requests."""
    kinds = metric if isinstance(metric, dict) else {}
    source = kinds.get("resource") or kinds.get("containerResource")
    if not isinstance(source, dict):
        return None
    target = source.get("target")
    asked = target.get("type") == "Utilization" if isinstance(target, dict) else "targetAverageUtilization" in source
    return (str(source.get("name")), str(source.get("container", ""))) if asked else None


def _named(metric: Any) -> tuple[str, str] | None:
    """Return the name and the type of the target of *metric*, ``None`` unless it has them as in autoscaling/v2."""
    for source in metric.values() if isinstance(metric, dict) else ():
        if isinstance(source, dict) and isinstance(source.get("target"), dict):
            identifier = source.get("metric")
            name = identifier.get("name") if isinstance(identifier, dict) else source.get("name")
            return str(name), str(source["target"].get("type"))
    return None


class _Status(Struct, frozen=True, rename="camel", gc=False):
    current_replicas: int | None = None
    desired_replicas: int = 0
    last_scale_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None

    @property
    def known_replicas(self) -> int | None:
        """``currentReplicas``. The API omits zero, so an absent number is 0 only once the controller has written."""
        looked_at = bool(self.conditions) or self.last_scale_time is not None
        return self.current_replicas or (0 if looked_at else None)


class HorizontalPodAutoscalerWire(Struct, frozen=True, gc=False):
    """An HPA on the wire.

    Decoding shares what many HPAs have in common and drops the messages of conditions. A typical HPA of a chart then
    takes 2 kB instead of 4.
    """

    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status()
    api_version: str = msgspec.field(default="", name="apiVersion")

    def autoscaler(self) -> HorizontalPodAutoscaler:
        meta, spec, status = self.metadata, self.spec, self.status
        if self.api_version == "autoscaling/v1":
            spec, status = _of_v1(meta.annotations or EMPTY, spec, status)
        behavior, target = spec.behavior or _Behavior(), spec.scale_target_ref
        managers = (each.manager_of_bounds() for each in meta.managed_fields or ())
        return HorizontalPodAutoscaler(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            labels={_once(key): text for key, text in meta.labels.items()} if meta.labels else EMPTY,
            annotations={
                _once(key): text for key, text in (meta.annotations or EMPTY).items() if key not in DROPPED_ANNOTATIONS
            },
            owner=meta.controller,
            deletion=seconds(meta.deletion_timestamp),
            min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
            max_replicas=spec.max_replicas,
            target=ScaleTargetRef(_once(target.kind), target.name, _once(target.api_version)),
            scale_up=_shared(behavior.scale_up),
            scale_down=_shared(behavior.scale_down),
            current_replicas=status.known_replicas,
            desired_replicas=status.desired_replicas,
            conditions=tuple(
                _condition(each.type, each.status, each.reason)
                for each in status.conditions or ()
                if each.type in KEPT_CONDITIONS
            ),
            managers=tuple(each for each in managers if each is not None),
            namesakes=spec.namesakes,
            utilization=_paired(spec.utilization),
        )


def _of_v1(notes: Labels, spec: _Spec, status: _Status) -> tuple[_Spec, _Status]:
    """Return *spec* and *status* with what autoscaling/v1 says in annotations; it passes over what can't be read."""
    cpu = {"resource": {"name": "cpu", "targetAverageUtilization": spec.target_cpu}}
    metrics = _noted(notes, "metrics", list[Any], [])
    return (
        msgspec.structs.replace(
            spec,
            behavior=_noted(notes, "behavior", _Behavior, spec.behavior),
            metrics=metrics if spec.target_cpu is None else [*metrics, cpu],
        ),
        msgspec.structs.replace(status, conditions=_noted(notes, "conditions", tuple[Condition, ...], None)),
    )


def _noted(notes: Labels, name: str, kind: Any, default: Any) -> Any:
    """Return the annotation *name* of autoscaling/v1 as a *kind*. Go's own names of fields are in it, in capitals."""
    try:
        thing = msgspec.json.decode(notes[f"autoscaling.alpha.kubernetes.io/{name}"])
        return msgspec.convert(_uncapitalized(thing), kind)
    except (KeyError, *UNREADABLE):
        return default


def _uncapitalized(thing: Any) -> Any:
    if isinstance(thing, dict):
        return {f"{key[:1].lower()}{key[1:]}": _uncapitalized(each) for key, each in thing.items()}
    return [_uncapitalized(each) for each in thing] if isinstance(thing, list) else thing


@lru_cache(4096)
def _once(text: str) -> str:
    """Return the one shared text equal to *text*."""
    return text


@lru_cache(256)
def _shared(rules: ScalingRules | None) -> ScalingRules | None:
    """Return the one shared object equal to *rules*."""
    return rules


@lru_cache(256)
def _paired(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the one shared tuple equal to *pairs*."""
    return pairs


@lru_cache(256)
def _condition(kind: str, status: str, reason: str) -> Condition:
    return Condition(kind, status, reason)


class _TargetSpec(Struct, frozen=True, gc=False):
    replicas: int | None = None
    paused: bool | None = None


class _TargetStatus(Struct, frozen=True, rename="camel", gc=False):
    replicas: int = 0
    updated_replicas: int = 0
    observed_generation: int | str | None = None
    current_revision: str = ""
    update_revision: str = ""
    phase: str = ""


class ScaleTargetWire(Struct, frozen=True, gc=False):
    """The target of an HPA on the wire. The request or the file names its kind."""

    metadata: Metadata
    spec: _TargetSpec = _TargetSpec()
    status: _TargetStatus = _TargetStatus()

    def target(self, kind: str) -> ScaleTarget:
        meta, status = self.metadata, self.status
        observed = status.observed_generation
        if isinstance(observed, str):  # Argo Rollouts writes a text
            observed = int(observed) if observed.isascii() and observed.isdigit() and len(observed) < 20 else None
        return ScaleTarget(
            kind=kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            wanted=self.spec.replicas,
            replicas=status.replicas,
            updated=status.updated_replicas,
            generation=meta.generation,
            observed_generation=observed,
            current_revision=status.current_revision,
            update_revision=status.update_revision,
            phase=status.phase,
            paused=bool(self.spec.paused),
        )
