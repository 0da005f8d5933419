"""What blocks drains or floors for good, by the rules that plan, claim and drain ask. Pure.

The siblings are the checks of kube-score (README_CHECKS.md), kube-linter (pkg/builtinchecks), Polaris (checks/),
Popeye (POP-206, POP-209, POP-900) and Gatekeeper (K8sPodDisruptionBudget) about budgets and autoscalers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Literal

from msgspec import Struct

from hpa_scaler.annotations.spec import FloorSpec, Rules
from hpa_scaler.judge.judge import asked_of, inactive
from hpa_scaler.judge.ownership import contested, not_ours, state_of
from tightship.cluster import Snapshot
from tightship.cluster.owners import top_owner
from tightship.objects import WORKLOAD_KINDS, HorizontalPodAutoscaler, Pod, PodDisruptionBudget, PodTemplate
from tightship.objects.counting import counted
from tightship.objects.meta import qualified
from tightship.objects.reasons import Reason
from tightship.objects.times import format_duration
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.evictability import Evictability, EvictionRules

Level = Literal["error", "warning", "note"]

LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""``error`` blocks and nobody asked for that, ``warning`` blocks in part or at times, ``note`` is somebody's wish."""


class LintRule(Struct, frozen=True):
    """A rule: what it finds, what helps, and the fields of the object to show, the first that is there."""

    level: Level
    finds: str
    help: str
    fields: tuple[str, ...] = ()


def _of_pods(field: str) -> tuple[str, ...]:
    return tuple(f"{spec}{field}" for spec in ("spec.template.spec", "spec.jobTemplate.spec.template.spec", "spec"))


_BUDGET = ("spec.maxUnavailable", "spec.minAvailable", "spec")
_POD, _VOLUMES = _of_pods(""), _of_pods(".volumes")
_NOTES = (
    *(f"{each}.template.metadata.annotations" for each in ("spec", "spec.jobTemplate.spec")),
    "metadata.annotations",
)

# fmt: off
_ROWS: tuple[tuple[str, Level, tuple[str, ...], str, str], ...] = (
    (Reason.PDB_NEVER_ALLOWS, "error", _BUDGET,
     "a budget that never allows an eviction", "let the budget allow one, or run one replica more"),
    (Reason.MULTIPLE_PDBS, "error", ("spec.template.metadata.labels", "metadata.labels"),
     "several budgets select one pod: the eviction API refuses", "let one budget select it"),
    (Reason.PDB_SYNC_FAILED, "error", _BUDGET,
     "a budget whose numbers the disruption controller can't compute",
     "use a number in minAvailable, or let the budget select pods of controllers with replicas only"),
    ("PdbBlocksAtFloor", "warning", _BUDGET,
     "a budget that allows nothing while an HPA is at its minReplicas",
     "lower minAvailable below minReplicas, or use maxUnavailable"),
    ("PdbSelectsNothing", "note", ("spec.selector",),
     "a budget that selects no pod", "correct the selector"),
    ("PdbKeepsUnhealthy", "note", ("spec",),
     "a budget that keeps pods that are not Ready while too few others are",
     "set unhealthyPodEvictionPolicy: AlwaysAllow"),
    (Reason.NOT_REPLICATED, "error", (),
     "a pod that no controller would recreate",
     "run the pod under a controller, or annotate it cluster-autoscaler.kubernetes.io/safe-to-evict: true"),
    (Reason.CUSTOM_CONTROLLER, "warning", (),
     "a pod of a controller of which nothing tells whether it recreates pods",
     "annotate the pod cluster-autoscaler.kubernetes.io/safe-to-evict: true if its controller does"),
    (Reason.LOCAL_STORAGE, "error", _VOLUMES,
     "a pod with local data, and no word on whether they may be lost",
     "name the volumes in the pod's annotation cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"),
    (Reason.RETURNS_TO_NODE, "error", _of_pods(".nodeName"),
     "a template that names one node", "replace spec.nodeName with a node selector"),
    (Reason.TOLERATES_CORDON, "error", _of_pods(".tolerations"),
     "a pod that tolerates a cordon, so that it comes back to the node", "narrow the tolerations"),
    (Reason.OTHER_SCHEDULER, "warning", _of_pods(".schedulerName"),
     "a pod of another scheduler", "name it in the setting schedulers if it filters nodes as kube-scheduler does"),
    (Reason.GRACE_PERIOD_TOO_LONG, "warning", _of_pods(".terminationGracePeriodSeconds"),
     "a pod that may take longer to end than a drain has",
     "shorten terminationGracePeriodSeconds, or give drains more time"),
    (Reason.POD_DO_NOT_DRAIN, "note", _NOTES,
     "a pod that asks to stay", "remove the annotation"),
    (Reason.NOT_SAFE_TO_EVICT, "note", _NOTES,
     "a pod that asks to stay", "remove the annotation"),
    (Reason.SAFE_TO_EVICT_ON_COMPLETION, "note", _NOTES,
     "a pod that asks to stay to its end", "none needed"),
    (Reason.POD_DO_NOT_DISRUPT, "note", _NOTES,
     "a pod that asks to stay", "remove the annotation"),
    (Reason.PREFER_NO_EVICTION, "note", _NOTES,
     "a pod that asks to stay", "remove the annotation"),
    (Reason.GANG_WOULD_BREAK, "note", (),
     "a pod whose gang would break without it", "none needed"),
    ("HpaTargetMissing", "error", ("spec.scaleTargetRef",),
     "an HPA without its target", "correct scaleTargetRef, or remove the HPA"),
    ("HpaTargetShared", "error", ("spec.scaleTargetRef",),
     "two HPAs of one target: Kubernetes scales by neither", "put the metrics of both into one HPA"),
    ("HpaBoundsReversed", "error", ("spec.minReplicas", "spec"),
     "an HPA with minReplicas above maxReplicas", "correct the bounds"),
    ("HpaFixed", "warning", ("spec.behavior.scaleUp", "spec.maxReplicas", "spec"),
     "an HPA that can't add a replica", "raise maxReplicas, allow scaling up, or remove the HPA"),
    ("HpaMissingRequests", "error", ("spec.metrics", "spec"),
     "an HPA by utilization of a resource that a container doesn't request",
     "request the resource in every container, or use a ContainerResource metric"),
    (Reason.HPA_INACTIVE, "error", (),
     "an HPA that Kubernetes does not scale by", "see kubectl describe hpa"),
    ("ReplicasBesideHpa", "warning", ("spec.replicas",),
     "a manifest with replicas for the target of an HPA: each apply sets them back", "leave spec.replicas out"),
    (Reason.INVALID_ANNOTATION, "error", ("metadata.annotations",),
     "annotations of hpa-scaler that can't be read", "correct the annotation"),
    (Reason.CONTROLLED_BY_OTHER, "error", (),
     "a floor of an HPA whose bounds another controller sets", "set the bounds there"),
    (Reason.SCALE_TO_ZERO, "note", ("spec.minReplicas",),
     "a floor of an HPA that is meant to scale to zero", "set minimum-replicas"),
    (Reason.STATE_UNREADABLE, "warning", ("metadata.annotations",),
     "a floor whose user's own bounds nobody knows any more", "remove the annotation once the bounds are right"),
    ("FloorAboveMaximum", "error", ("spec.maxReplicas", "metadata.annotations"),
     "a floor above maxReplicas", "raise maxReplicas, or lower minimum-replicas"),
    (Reason.CONTESTED, "warning", (),
     "a floor that somebody sets back", "see the message"),
    ("ContestExpired", "warning", (),
     "a contest that is over, after which nobody has set the floor again",
     "see that hpa-scaler runs and selects this HPA"),
    ("PauseExpired", "note", ("metadata.annotations",),
     "a pause of a floor that has ended", "remove the annotation"),
    ("RemovedApi", "error", ("apiVersion",),
     "a version of the API that Kubernetes no longer serves", "write the present version"),
    (Reason.UNREADABLE, "error", (),
     "an object that can't be read", "correct the field"),
)
# fmt: on

RULES: Mapping[str, LintRule] = {
    rule: LintRule(level, finds, help_text, fields) for rule, level, fields, finds, help_text in _ROWS
}
"""All rules by their words: those of :class:`Reason` where a plan has the same rule."""


class Finding(Struct, frozen=True, order=True, rename="camel", omit_defaults=True):
    """One thing that blocks: *kind*, *namespace* and *name* say where it is, *file* and *line* where it is written."""

    rule: str
    level: Level
    kind: str
    namespace: str
    name: str
    detail: str
    fix: str
    file: str = ""
    line: int = 0

    @property
    def object(self) -> str:
        """The object for people."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def found(rule: str, where: tuple[str, str, str], detail: str, fix: str = "", level: Level | None = None) -> Finding:
    """Return a finding of *rule* about the object *where* (kind, namespace, name)."""
    known = RULES[rule]
    return Finding(str(rule), level or known.level, *where, detail, fix or known.help)


def lint(snapshot: Snapshot, eviction: EvictionRules, floors: Rules, now: float) -> list[Finding]:
    """Return everything in *snapshot* that blocks for good at *now*, the worst first; what passes by itself is none."""
    pods = _Pods(snapshot)
    findings = [*_pods(pods, eviction, now), *_budgets(pods), *_autoscalers(pods), *_floors(snapshot, floors, now)]
    findings += [
        found(Reason.UNREADABLE, (each.kind, each.namespace, each.name), each.problem) for each in snapshot.unreadable
    ]
    return in_order(findings)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return *findings* with the worst first, then by rule and object."""
    return sorted(findings, key=lambda each: (LEVELS.index(each.level), each))


class _Pods:
    """The pods that a drain would evict, a representative of each template, and who owns them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.ledger = DisruptionLedger(snapshot)
        self.all: list[Pod] = []
        self.of: dict[PodTemplate, Pod] = {}
        self.selected: set[str] = set()
        """Keys of budgets that select a pod, of a DaemonSet too."""
        for pod in chain(snapshot.unscheduled, *(view.pods for view in snapshot.nodes.values())):
            if pod.template not in self.of:
                self.selected.update(budget.key for budget in self.ledger.budgets_of(pod.template))
            if pod.daemon or pod.mirror or pod.deletion is not None:
                continue
            self.all.append(pod)
            known = self.of.get(pod.template)
            if known is None or (pod.ready and not known.ready):
                self.of[pod.template] = pod
        self.templates: dict[tuple[str, str, str], list[PodTemplate]] = defaultdict(list)
        for template, pod in self.of.items():
            self.templates[self.owner(pod)].append(template)

    def owner(self, pod: Pod) -> tuple[str, str, str]:
        """Return (kind, namespace, name) of what a person would edit."""
        owner = top_owner(self.snapshot, pod)
        return ("Pod", pod.namespace, pod.name) if owner is None else (owner.kind, pod.namespace, owner.name)


def _pods(pods: _Pods, eviction: EvictionRules, now: float) -> Iterator[Finding]:
    judge = Evictability(pods.snapshot, eviction, now, pods.ledger.covers)
    counts: dict[tuple[Reason, tuple[str, str, str]], int] = defaultdict(int)
    first: dict[tuple[Reason, tuple[str, str, str]], tuple[str, str]] = {}
    for pod in pods.all:
        for refusal in judge.judge(pod).refusals:
            if refusal.reason in RULES:
                key = refusal.reason, pods.owner(pod)
                counts[key] += 1
                first.setdefault(key, (refusal.detail, refusal.fix))
    for (reason, where), (detail, fix) in first.items():
        more = f" ({counted(counts[reason, where], 'pod')})" if counts[reason, where] > 1 else ""
        yield found(reason, where, detail + more, fix)


def _budgets(pods: _Pods) -> Iterator[Finding]:
    reported: set[tuple[str, tuple[str, str, str]]] = set()
    for template, pod in pods.of.items():
        budgets = pods.ledger.budgets_of(template)
        refusals = [(each, pods.ledger.exhausted(each, pod)) for each in budgets]
        refusals += [(each, refusal) for refusal in pods.ledger.charge([pod])[1] for each in budgets[:1]]
        for budget, refusal in refusals:
            where = pods.owner(pod) if refusal.reason is Reason.MULTIPLE_PDBS else _of(budget)
            if refusal.reason in RULES and (refusal.reason, where) not in reported:
                reported.add((refusal.reason, where))
                yield found(refusal.reason, where, refusal.detail, refusal.fix)
    for hpa in pods.snapshot.autoscalers.values():
        for budget in {each.key: each for each in _budgets_of(pods, hpa)}.values():
            wanted = 0 if budget.max_unavailable is not None else count_of(budget.min_available, hpa.min_replicas or 0)
            never = (Reason.PDB_NEVER_ALLOWS, _of(budget)) in reported
            if hpa.min_replicas and not never and wanted >= hpa.min_replicas:
                detail = f"{budget.rule} wants {wanted} of {hpa.min_replicas} pods while HPA {hpa.name} is at its floor"
                yield found("PdbBlocksAtFloor", _of(budget), detail)
    if "Pod" not in pods.snapshot.missing:
        for budget in pods.snapshot.budgets:
            if budget.key not in pods.selected and budget.expected_pods == 0:
                # Without nodes these are manifests, and the pods may be elsewhere.
                never = budget.never_allows or budget.min_available == "100%"
                if never and not pods.snapshot.nodes:
                    yield found(Reason.PDB_NEVER_ALLOWS, _of(budget), f"{budget.rule} can never allow an eviction")
                yield found("PdbSelectsNothing", _of(budget), f"{budget.rule} of no pod")


def _of(budget: PodDisruptionBudget) -> tuple[str, str, str]:
    return "PodDisruptionBudget", budget.namespace, budget.name


def _budgets_of(pods: _Pods, hpa: HorizontalPodAutoscaler) -> Iterator[PodDisruptionBudget]:
    for template in pods.templates.get(_target(hpa), ()):
        yield from pods.ledger.budgets_of(template)


def count_of(value: object, pods: int) -> int:
    """Return a number or percentage of *pods*, rounded up (``intstr.GetScaledValueFromIntOrPercent``)."""
    if isinstance(value, int):
        return value
    share = str(value).removesuffix("%")
    return math.ceil(int(share) * pods / 100) if share.isascii() and share.isdigit() else 0


def _target(hpa: HorizontalPodAutoscaler) -> tuple[str, str, str]:
    return qualified(hpa.target.kind, hpa.target.api_version), hpa.namespace, hpa.target.name


def _autoscalers(pods: _Pods) -> Iterator[Finding]:
    snapshot = pods.snapshot
    workloads = {
        (kind, each.namespace, each.name) for kind, held in snapshot.workloads.items() for each in held.values()
    }
    workloads |= {
        (each.owner.kind, each.namespace, each.owner.name)
        for each in snapshot.workloads.get("ReplicaSet", {}).values()
        if each.owner is not None
    }
    known = {kind for kind in WORKLOAD_KINDS if kind not in snapshot.missing}
    known |= {"Deployment"} if "ReplicaSet" in known else set()
    sharing: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for hpa in snapshot.autoscalers.values():
        sharing[_target(hpa)].append(hpa.name)
    for hpa in snapshot.autoscalers.values():
        where, target = ("HorizontalPodAutoscaler", hpa.namespace, hpa.name), _target(hpa)
        if target[0] in known and target not in workloads:
            yield found("HpaTargetMissing", where, f"{hpa.target} is not there")
        if len(sharing[target]) > 1:
            others = ", ".join(name for name in sharing[target] if name != hpa.name)
            yield found("HpaTargetShared", where, f"{hpa.target} is the target of {others} too")
        for container, resource in _unrequested(pods.templates.get(target, ()), hpa):
            yield found("HpaMissingRequests", where, f"container {container} of {hpa.target} requests no {resource}")
        stopped = inactive(hpa)
        if stopped is not None:
            yield found(stopped.reason, where, stopped.detail, stopped.fix)


def _unrequested(templates: Iterable[PodTemplate], hpa: HorizontalPodAutoscaler) -> list[tuple[str, str]]:
    """Return (container, resource) that the HPA controller would miss (``calculatePodRequests``): sidecars count."""
    missing: dict[tuple[str, str], None] = {}
    for template in templates:
        asked = template.spec.resources
        containers = [*asked.containers, *(each for each in asked.init_containers if each.sidecar)]
        for resource, only in hpa.utilization:
            if not only and resource in (asked.pod_level or {}):
                continue
            for each in containers:
                requests = (each.resources and each.resources.requests) or {}
                if only in ("", each.name) and resource not in requests:
                    missing[each.name, resource] = None
    return list(missing)


def _floors(snapshot: Snapshot, rules: Rules, now: float) -> Iterator[Finding]:
    for hpa in snapshot.autoscalers.values():
        where = ("HorizontalPodAutoscaler", hpa.namespace, hpa.name)
        asked, (state, unreadable) = asked_of(hpa, rules.prefix), state_of(hpa, rules.prefix)
        history = state.history
        maximum = hpa.max_replicas if history.original_max is None else history.original_max
        yield from _bounds(hpa, where, history.original_min, maximum)
        if asked is None:
            continue
        if unreadable:
            yield found(Reason.STATE_UNREADABLE, where, unreadable)
        refusal = not_ours(hpa, asked, now)
        if refusal is not None and refusal.reason in RULES:
            yield found(refusal.reason, where, refusal.detail, refusal.fix)
        if isinstance(asked, FloorSpec):
            yield from _floor(where, asked, maximum, rules)
            for name, pause in (("paused", asked.paused), ("scale down", asked.paused_down), ("up", asked.paused_up)):
                if pause.on and not pause.active(now):
                    detail = f"the pause ({name}) ended {format_duration(now - (pause.until or 0))} ago"
                    yield found("PauseExpired", where, detail)
        contest = contested(hpa, history, rules, now)
        if contest is not None:
            yield found(contest.reason, where, contest.detail, contest.fix)
        elif history.resets >= rules.contest_resets and history.applied_min is None:
            since = format_duration(now - history.reset_at)
            detail = (
                f"the bounds were set back {counted(history.resets, 'time')}, last {since} ago, and the pause is over"
            )
            yield found("ContestExpired", where, detail)


def _bounds(
    hpa: HorizontalPodAutoscaler, where: tuple[str, str, str], own: int | None, maximum: int
) -> Iterator[Finding]:
    """Judge the user's own bounds: what hpa-scaler has set is no mistake of theirs."""
    minimum = hpa.min_replicas if own is None else own
    if minimum > maximum:
        yield found("HpaBoundsReversed", where, f"minReplicas {minimum}, maxReplicas {maximum}")
    elif minimum == maximum:
        yield found("HpaFixed", where, f"minReplicas and maxReplicas are both {maximum}")
    elif hpa.scale_up is not None and hpa.scale_up.select_policy == "Disabled":
        yield found("HpaFixed", where, "behavior.scaleUp.selectPolicy is Disabled")


def _floor(where: tuple[str, str, str], spec: FloorSpec, maximum: int, rules: Rules) -> Iterator[Finding]:
    lowest = rules.lower_bound if spec.lowest is None else spec.lowest
    name = "the lower bound" if spec.lowest is None else "minimum-replicas"
    highest = maximum if spec.highest is None else spec.highest
    if lowest > maximum and highest >= maximum:
        clamped = spec.max_replicas == "clamp"
        does = "the floor never gets there" if clamped else "hpa-scaler would raise maxReplicas"
        level: Level = "error" if clamped else "warning"
        yield found("FloorAboveMaximum", where, f"{name} {lowest}, maxReplicas {maximum}: {does}", level=level)
