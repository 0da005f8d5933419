"""May this pod be evicted at all? The opt-outs of Cluster Autoscaler, Karpenter and the descheduler, and our own.

Each rule has its own :class:`~tightship.objects.reasons.Reason`, by which users can switch the rule off.
:mod:`tightship.rules.disruption` judges PodDisruptionBudgets, :mod:`tightship.scheduler` judges room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain
from typing import Literal

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.cluster.owners import annotating, named
from tightship.objects import WORKLOAD_KINDS, Owner, Pod, PodTemplate, Workload
from tightship.objects.pod import EXPENDABLE
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.schedulers import SCHEDULERS, Scoring
from tightship.objects.times import DurationError, format_duration, parse_duration
from tightship.rules.controllers import LOSING, LOSING_BY_LABEL, RECREATING, UNKNOWN
from tightship.rules.gangs import Gangs

RestartMode = Literal["off", "marked", "all"]
"""Which Deployments drains restart instead of evicting their pods: none, marked ones, or all that need it."""


class EvictionRules(Struct, frozen=True):
    """The rules that apply. *disabled* holds the reasons of rules switched off; *system_pod_timeout* is in seconds.

    A pod that only *awaited* reasons keep ends by itself, and a drain waits for its end instead of leaving the node
    alone. A pod with a grace period above *longest_grace* seconds, the time of a drain, stays. *schedulers* are those
    that filter nodes as kube-scheduler does, by name, with how they score. *restarts* says which Deployments drains
    restart: see :mod:`tightship.rules.after_cordon`.
    """

    disabled: frozenset[Reason] = frozenset()
    system_pod_timeout: float = 3600.0
    awaited: frozenset[Reason] = frozenset()
    longest_grace: float = math.inf
    schedulers: Mapping[str, Scoring] = SCHEDULERS
    restarts: RestartMode = "off"


ENDS_BY_ITSELF = frozenset({Reason.JOB_RUNNING, Reason.SAFE_TO_EVICT_ON_COMPLETION})
"""Reasons that :class:`EvictionRules` may await."""


def awaited_for(timeout: float) -> frozenset[Reason]:
    """Return the reasons that a drain awaits if it waits *timeout* seconds for pods that end by themselves."""
    return ENDS_BY_ITSELF if timeout > 0 else frozenset()


SWITCHABLE = ENDS_BY_ITSELF | {
    Reason.POD_DO_NOT_DRAIN,
    Reason.NOT_SAFE_TO_EVICT,
    Reason.POD_DO_NOT_DISRUPT,
    Reason.PREFER_NO_EVICTION,
    Reason.NOT_REPLICATED,
    Reason.CUSTOM_CONTROLLER,
    Reason.CONTROLLER_NOT_FOUND,
    Reason.LOCAL_STORAGE,
    Reason.KUBE_SYSTEM_POD,
    Reason.TOLERATES_CORDON,
    Reason.GANG_WOULD_BREAK,
    Reason.OTHER_SCHEDULER,
}
"""Reasons that :class:`EvictionRules` can disable."""

DO_NOT_DRAIN = "tightship.dev/do-not-drain"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_LOCAL_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
OTHERS_OPT_OUTS = (
    "autoscaling.cast.ai/removal-disabled",
    "beta.evictor.cast.ai/eviction-disabled",
    "spotinst.io/restrict-scale-down",
)
"""The opt-outs of CAST AI (docs, Evictor), an older one of theirs, and that of Spot Ocean (docs, Ocean FAQ): on pods or
nodes, as annotation or label.
"""
DO_NOT_DISRUPT = (
    "karpenter.sh/do-not-disrupt",
    "node-autoscaling.kubernetes.io/do-not-disrupt",
    "karpenter.sh/do-not-evict",
    *OTHERS_OPT_OUTS,
)
"""Karpenter's opt-out, the proposed one of all node autoscalers (kubernetes/autoscaler#10071), an older Karpenter's,
and those of commercial autoscalers."""
CLUSTER_API_DRAIN = "cluster.x-k8s.io/drain"
"""A label of pods that tells Cluster API's drains what to do (``core/reconcilers/machine/drain/filters.go``)."""
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"

DEFAULT_GRACE = 30
"""The default grace period in seconds (``corev1.DefaultTerminationGracePeriodSeconds``)."""


class Fate(Enum):
    """The treatment of a pod by a drain."""

    EVICT = "evict"
    STAYS = "stays"
    """A DaemonSet or mirror pod, or an expendable one, which goes with the node."""
    LEAVING = "leaving"
    """The pod already terminates. The drain waits, and never evicts it again."""
    AWAIT = "await"
    """The pod ends by itself, and the drain waits for its end."""


class PodVerdict(Struct, frozen=True):
    """A pod's *fate*, and all *refusals*: why it may not be evicted or, if leaving, why it would outlast a drain."""

    fate: Fate
    refusals: tuple[Refusal, ...] = ()


class Sorted(Struct, frozen=True):
    """The pods of a node by their fate: *evict*, *awaits*, *leaving*, and how many *stay*, with all *refusals*.

    *outlasting* says which of those that are *leaving* would still be here when a drain that begins now gives up.
    """

    evict: tuple[Pod, ...]
    stays: int
    refusals: tuple[Refusal, ...]
    awaits: tuple[Pod, ...] = ()
    leaving: tuple[Pod, ...] = ()
    outlasting: tuple[Refusal, ...] = ()


class Evictability:
    """Judges pods of one snapshot at one time."""

    def __init__(self, snapshot: Snapshot, rules: EvictionRules, now: float, has_budget: Callable[[Pod], bool]) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._now = now
        self._has_budget = has_budget
        self._longest_grace = max(rules.longest_grace, DEFAULT_GRACE)
        self._in_force = tuple(rule for rule in _RULES if _ONLY_REASON.get(rule) not in rules.disabled)
        self._free: dict[PodTemplate, bool] = {}
        self._gangs = Gangs(snapshot)
        self._first_unready: dict[str, tuple[int, Pod]] | None = None

    def judge(self, pod: Pod) -> PodVerdict:
        """Return the pod's fate with **all** refusals."""
        if pod.daemon or pod.mirror:
            return _STAYS
        if pod.deletion is not None:
            outlasts = None if pod.expendable else outlasting(pod, self._now, self._longest_grace, OVERDUE)
            return _STAYS if pod.expendable else PodVerdict(Fate.LEAVING, () if outlasts is None else (outlasts,))
        if not pod.annotations and self._plainly_free(pod.template):
            return _FREE
        disabled = self._rules.disabled
        rules = _OPT_OUTS if pod.expendable else self._in_force
        found = [refusal for rule in rules for refusal in rule(self, pod) if refusal.reason not in disabled]
        if not found:
            return _STAYS if pod.expendable else _FREE
        if all(refusal.reason in self._rules.awaited for refusal in found):
            return _AWAIT
        return PodVerdict(Fate.EVICT, tuple(sorted(found)))

    def sort(self, pods: Iterable[Pod]) -> Sorted:
        """Judge all *pods* of a node."""
        evict: list[Pod] = []
        awaits: list[Pod] = []
        leaving: list[Pod] = []
        refusals: list[Refusal] = []
        outlast: list[Refusal] = []
        stays = 0
        free = self._free
        for pod in pods:
            # The fast path of judge(), without a call: a pass over 150,000 pods spends its time on this line.
            if pod.deletion is None and not pod.annotations and free.get(pod.template):
                evict.append(pod)
                continue
            verdict = self.judge(pod)
            (outlast if verdict.fate is Fate.LEAVING else refusals).extend(verdict.refusals)
            if verdict.fate is Fate.EVICT:
                evict.append(pod)
            elif verdict.fate is Fate.STAYS:
                stays += 1
            elif verdict.fate is Fate.AWAIT:
                awaits.append(pod)
            else:
                leaving.append(pod)
        return Sorted(tuple(evict), stays, tuple(refusals), tuple(awaits), tuple(leaving), tuple(outlast))

    def _plainly_free(self, template: PodTemplate) -> bool:
        # Nearly all pods of a fleet have an ordinary controller and no local data. Computed once a template.
        free = self._free.get(template)
        if free is None:
            spec, owner = template.spec, template.owner
            free = self._free[template] = (
                owner is not None
                and owner.kind in ("ReplicaSet", "StatefulSet")
                and not any(local_volumes(self._snapshot, template))
                and not any(_labelled(template.labels))
                and LOSING_BY_LABEL.keys().isdisjoint(template.labels)
                and template.namespace != "kube-system"
                and spec.scheduler in self._rules.schedulers
                and spec.priority >= EXPENDABLE
                and not spec.tolerates_drain
                and spec.grace <= self._longest_grace
                and not self._gangs.marked(template)
                and owner.uid not in self._snapshot.restarts
                and self._plainly_controlled(template, owner)
            )
        return free

    def _plainly_controlled(self, template: PodTemplate, owner: Owner) -> bool:
        known = self._controller(template)
        if known is None:
            return owner.kind in self._snapshot.missing
        return not known.pinned and not _outdated(template, known) and not self._unready_first(known)

    def _recreated(self, template: PodTemplate) -> bool:
        owner = template.owner
        if owner is None or owner.kind not in WORKLOAD_KINDS:
            return owner is not None and owner.kind in RECREATING
        return owner.kind in self._snapshot.missing or self._controller(template) is not None

    def _unready_first(self, known: Workload) -> tuple[int, Pod] | None:
        """Return the first pod of *known* that is not Ready, and its ordinal, if later ones would wait for that pod."""
        if not known.ordered:
            return None
        if self._first_unready is None:
            self._first_unready = {}
            views = (view.pods for view in self._snapshot.nodes.values())
            for pod in chain(self._snapshot.unscheduled, *views):
                if not pod.ready and pod.owner is not None and pod.owner.kind == "StatefulSet":
                    key, place = f"{pod.namespace}/{pod.owner.name}", (_ordinal(pod), pod)
                    if key not in self._first_unready or place[0] < self._first_unready[key][0]:
                        self._first_unready[key] = place
        return self._first_unready.get(f"{known.namespace}/{known.name}")

    def _pinned_to(self, template: PodTemplate) -> str:
        known = self._controller(template)
        return known.pinned if known is not None else ""

    def _controller(self, template: PodTemplate) -> Workload | None:
        owner = template.owner
        if owner is None:
            return None
        known = self._snapshot.workloads.get(owner.kind, {}).get(f"{template.namespace}/{owner.name}")
        return known if known is not None and (not owner.uid or known.uid == owner.uid) else None

    def _opt_outs(self, pod: Pod) -> list[Refusal]:
        found = [
            Refusal(reason, pod.key, f"label {key}={pod.template.labels[key]} {meaning}", self._unlabelling(pod))
            for key, reason, meaning in _labelled(pod.template.labels)
        ]
        notes = pod.annotations
        if not notes:
            return found

        def add(reason: Reason, annotation: str, meaning: str) -> None:
            detail = f"annotation {annotation}={notes[annotation]} {meaning}"
            found.append(Refusal(reason, pod.key, detail, annotating(self._snapshot, pod, annotation, None)))

        if notes.get(DO_NOT_DRAIN, "false") != "false":
            add(Reason.POD_DO_NOT_DRAIN, DO_NOT_DRAIN, "keeps the pod here")
        if notes.get(SAFE_TO_EVICT) == "false":
            add(Reason.NOT_SAFE_TO_EVICT, SAFE_TO_EVICT, "forbids eviction")
        elif notes.get(SAFE_TO_EVICT) == "on-completion":
            add(Reason.SAFE_TO_EVICT_ON_COMPLETION, SAFE_TO_EVICT, "allows eviction only once the pod has finished")
        for each in DO_NOT_DISRUPT:
            until = self._protected_until(pod, notes.get(each, "false"))
            if until is None:
                add(Reason.POD_DO_NOT_DISRUPT, each, "forbids disruption")
            elif until and until > self._now:
                left = format_duration(until - self._now)
                add(Reason.POD_DO_NOT_DISRUPT, each, f"protects the pod for {left} more")
        if PREFER_NO_EVICTION in notes:
            add(Reason.PREFER_NO_EVICTION, PREFER_NO_EVICTION, "asks that the pod not be evicted")
        return found

    def _unlabelling(self, pod: Pod) -> str:
        return f"remove the label from the pod template of {named(self._snapshot, pod)}"

    def _protected_until(self, pod: Pod, text: str) -> float | None:
        """Return the end of the protection, 0 without one, ``None`` if it never ends (Karpenter's two forms)."""
        if text == "true":
            return None
        if text == "false":
            return 0.0
        try:
            protected = parse_duration(text)
        except DurationError:
            return None  # an unreadable value was meant to protect
        return (pod.started if pod.started is not None else self._now) + protected

    def _ownership(self, pod: Pod) -> list[Refusal]:
        if _vouched_for(pod):
            return []
        owner, known, labels = pod.owner, self._controller(pod.template), pod.template.labels
        outdated = known is not None and _outdated(pod.template, known)
        losing = next((each for each in LOSING_BY_LABEL if each in labels), "")
        if self._recreated(pod.template) and not (outdated or losing):
            return []
        vouching = annotating(self._snapshot, pod, SAFE_TO_EVICT, "true")
        if losing:
            reason, happens = LOSING_BY_LABEL[losing]
            return [Refusal(reason, pod.key, f"label {losing}={labels[losing]}: {happens}", vouching)]
        if known is not None and outdated:
            detail = (
                f"controller {owner} updates a pod when it is deleted (updateStrategy OnDelete): it would come back "
                f"with revision {known.rolls_to} instead of {labels[REVISION]}"
            )
            return [Refusal(Reason.CUSTOM_CONTROLLER, pod.key, detail, f"finish the update of {owner}")]
        if owner is None:
            detail = "no controller would recreate the pod"
            return [Refusal(Reason.NOT_REPLICATED, pod.key, detail, f"run {pod.key} under a controller, or {vouching}")]
        if owner.kind not in WORKLOAD_KINDS:
            reason, happens = LOSING.get(owner.kind, UNKNOWN)
            fix = f"wait for {owner} to finish" if reason is Reason.JOB_RUNNING else vouching
            return [Refusal(reason, pod.key, f"controller {owner}: {happens}", fix)]
        detail = f"controller {owner} no longer exists"
        fix = f"wait until the garbage collector has deleted the pod, or {vouching}"
        return [Refusal(Reason.CONTROLLER_NOT_FOUND, pod.key, detail, fix)]

    def _order(self, pod: Pod) -> list[Refusal]:
        known = self._controller(pod.template)
        first = None if known is None else self._unready_first(known)
        if first is None or first[0] >= _ordinal(pod):
            return []
        detail = f"{pod.owner} makes its pods in order: {pod.name} would not come back before {first[1].name} is Ready"
        fix = f"kubectl -n {pod.namespace} describe pod {first[1].name}"
        return [Refusal(Reason.ROLLOUT_UNFINISHED, pod.key, detail, fix)]

    def _local_data(self, pod: Pod) -> list[Refusal]:
        if _vouched_for(pod):
            return []
        safe = safe_volumes(pod)
        losing = [what for name, what in local_volumes(self._snapshot, pod.template) if name not in safe]
        if not losing:
            return []
        detail = f"would lose {', '.join(losing)}"
        fix = annotating(self._snapshot, pod, SAFE_LOCAL_VOLUMES, all_local_volumes(self._snapshot, pod))
        return [Refusal(Reason.LOCAL_STORAGE, pod.key, detail, fix)]

    def _system(self, pod: Pod) -> list[Refusal]:
        if pod.namespace != "kube-system" or _vouched_for(pod) or self._has_budget(pod):
            return []
        left = pod.created + self._rules.system_pod_timeout - self._now
        if left <= 0:
            return []
        detail = f"a kube-system pod without a PodDisruptionBudget, protected for {format_duration(left)} more"
        return [
            Refusal(Reason.KUBE_SYSTEM_POD, pod.key, detail, f"give {named(self._snapshot, pod)} a PodDisruptionBudget")
        ]

    def _job(self, pod: Pod) -> list[Refusal]:
        owner = pod.owner
        if owner is None or owner.kind != "Job" or _vouched_for(pod):
            return []
        known = self._controller(pod.template)
        last = known is not None and known.last_try
        if pod.spec.restart_policy != "Never" and not last:
            return []
        happens = "fail, since its backoffLimit allows no more" if last else "start over"
        detail = f"{owner} would count the evicted pod as failed and {happens}"
        return [Refusal(Reason.JOB_RUNNING, pod.key, detail, f"wait for {owner} to finish")]

    def _gang(self, pod: Pod) -> list[Refusal]:
        if not (pod.annotations or self._gangs.marked(pod.template)) or not self._gangs.names(pod):
            return []
        refusal = self._gangs.refusal(pod)
        return [] if refusal is None else [refusal]

    def _grace(self, pod: Pod) -> list[Refusal]:
        if pod.spec.grace <= self._longest_grace:
            return []
        asked, given = format_duration(pod.spec.grace), format_duration(self._rules.longest_grace)
        detail = f"may take {asked} to terminate, but a drain has only {given} to empty the node"
        fix = f"shorten terminationGracePeriodSeconds of {named(self._snapshot, pod)}, or give drains more than {asked}"
        return [Refusal(Reason.GRACE_PERIOD_TOO_LONG, pod.key, detail, fix)]

    def _restart(self, pod: Pod) -> list[Refusal]:
        restart = self._snapshot.restart_of(pod)
        if restart is None:
            return []
        if not restart.problem:
            return [rolling_out(restart.deployment, pod.node)]
        reason = Reason.ROLLOUT_UNFINISHED if restart.waits else Reason.NOT_RESTARTABLE
        return [Refusal(reason, pod.key, restart.problem, restart.fix)]

    def _pinned(self, pod: Pod) -> list[Refusal]:
        pinned = self._pinned_to(pod.template)
        if not pinned or pinned != pod.node:
            return []
        detail = f"the template of controller {pod.owner} names this node, so the replacement would come back here"
        fix = f"replace spec.nodeName in the template of {named(self._snapshot, pod)} with a node selector"
        return [Refusal(Reason.RETURNS_TO_NODE, pod.key, detail, fix)]

    def _scheduling(self, pod: Pod) -> list[Refusal]:
        found: list[Refusal] = []
        if pod.spec.scheduler not in self._rules.schedulers:
            detail = f"scheduler {pod.spec.scheduler} places this pod, by rules that Tightship does not know"
            fix = f"name {pod.spec.scheduler} in the setting schedulers if it filters nodes as kube-scheduler does"
            found.append(Refusal(Reason.OTHER_SCHEDULER, pod.key, detail, fix))
        if pod.spec.tolerates_drain:
            detail = "tolerates a cordon, so kube-scheduler may put the replacement back on the node being drained"
            fix = f"narrow the tolerations of {named(self._snapshot, pod)}"
            found.append(Refusal(Reason.TOLERATES_CORDON, pod.key, detail, fix))
        return found


_Rule = Callable[[Evictability, Pod], list[Refusal]]

_OPT_OUTS = (Evictability._opt_outs,)
"""The rules for an expendable pod, which goes with its node."""

_RULES = (
    *_OPT_OUTS,
    Evictability._ownership,
    Evictability._order,
    Evictability._local_data,
    Evictability._system,
    Evictability._job,
    Evictability._gang,
    Evictability._restart,
    Evictability._grace,
    Evictability._pinned,
    Evictability._scheduling,
)

_ONLY_REASON: Mapping[_Rule, Reason] = {
    Evictability._local_data: Reason.LOCAL_STORAGE,
    Evictability._system: Reason.KUBE_SYSTEM_POD,
    Evictability._job: Reason.JOB_RUNNING,
    Evictability._gang: Reason.GANG_WOULD_BREAK,
}
"""The rules that give just one reason. Where users have switched that off, nobody need ask the rule."""

_STAYS = PodVerdict(Fate.STAYS)
_AWAIT = PodVerdict(Fate.AWAIT)
_FREE = PodVerdict(Fate.EVICT)


def _ordinal(pod: Pod) -> int:
    """Return the ordinal of a StatefulSet's pod."""
    number = pod.name.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else 0


REVISION = "controller-revision-hash"
"""The label with the revision of a StatefulSet's pod (``apps.ControllerRevisionHashLabelKey``)."""


def _outdated(template: PodTemplate, known: Workload) -> bool:
    """Whether pods of *template* would come back as others, because *known* updates what is deleted."""
    return bool(known.rolls_to) and template.labels.get(REVISION, known.rolls_to) != known.rolls_to


def _vouched_for(pod: Pod) -> bool:
    """Whether CA's explicit permission outweighs missing controllers, local data and kube-system, but no opt-out."""
    return pod.annotations.get(SAFE_TO_EVICT) == "true"


def opt_out_labels(labels: Mapping[str, str]) -> list[str]:
    """Return the keys of *labels*, of a pod or a node, that opt out of every drain."""
    return [each for each in OTHERS_OPT_OUTS if labels.get(each) == "true"]


def _labelled(labels: Mapping[str, str]) -> Iterator[tuple[str, Reason, str]]:
    """Yield key, reason and meaning of each of the *labels* of a pod that opts out."""
    for each in opt_out_labels(labels):
        yield each, Reason.POD_DO_NOT_DISRUPT, "forbids disruption"
    how = labels.get(CLUSTER_API_DRAIN, "").lower()
    if how == "skip":
        yield CLUSTER_API_DRAIN, Reason.POD_DO_NOT_DISRUPT, "asks that no drain evict the pod"
    elif how == "wait-completed":
        yield CLUSTER_API_DRAIN, Reason.SAFE_TO_EVICT_ON_COMPLETION, "asks that drains wait until the pod has finished"


def safe_volumes(pod: Pod) -> list[str]:
    """Return the names of the local volumes that *pod* may lose, as its annotation has them."""
    return [name.strip() for name in pod.annotations.get(SAFE_LOCAL_VOLUMES, "").split(",") if name.strip()]


def all_local_volumes(snapshot: Snapshot, pod: Pod) -> str:
    """Return the value of the annotation after which *pod* may lose every local volume that it has."""
    return ",".join(dict.fromkeys([*safe_volumes(pod), *(name for name, _ in local_volumes(snapshot, pod.template))]))


def local_volumes(snapshot: Snapshot, template: PodTemplate) -> Iterator[tuple[str, str]]:
    """Yield the name of each volume that a pod of *template* would find empty on another node, and what it is."""
    for volume in template.spec.volumes:
        if volume.local:
            yield volume.name, f"{'hostPath' if volume.host_path is not None else 'emptyDir'} {volume.name}"
        elif volume.persistent_volume_claim is not None and snapshot.volumes:
            claim = snapshot.claims.get(f"{template.namespace}/{volume.persistent_volume_claim.claim_name}")
            bound = claim and snapshot.volumes.get(claim.volume)
            if claim and bound and bound.on_each_node:
                yield volume.name, f"{volume.name}, claim {claim.name}: volume {bound.name} is a hostPath of this node"


def rolling_out(deployment: str, node: str) -> Refusal:
    """Return what a drain of *node* waits for, after its cordon, where it restarts *deployment*."""
    detail = f"its rollout replaces the pods on node {node} once the node is cordoned, since none would be Ready else"
    return Refusal(Reason.MAKE_BEFORE_BREAK, deployment, detail)


STUCK_AFTER = 60
"""Seconds past the end of its grace period after which a terminating pod counts as stuck, as for Karpenter
(``IsStuckTerminating`` in pkg/utils/pod/scheduling.go); Cluster Autoscaler waits 30 s (utils/drain/drain.go)."""

OVERDUE = 10
"""Seconds past the end of its grace period after which a terminating pod keeps a drain from beginning: the pod may be
stuck soon, and others would be evicted for nothing."""

_REMOVES = {
    "batch.kubernetes.io/job-tracking": "the Job controller",
    "foregroundDeletion": "the garbage collector, once all that the pod owns is gone,",
    "orphan": "the garbage collector",
}
"""Who removes the finalizers of Kubernetes itself."""


def outlasting(pod: Pod, now: float, has: float = math.inf, patience: float = STUCK_AFTER) -> Refusal | None:
    """Return why *pod*, if it terminates, is still here when a drain gives up that has *has* seconds from *now*.

    Plan, claim and drain ask alike. A pod that should be gone *patience* seconds ago is stuck: a finalizer holds it, or
    its kubelet or its volumes don't let go.
    """
    if pod.deletion is None:
        return None
    if now <= pod.deletion + patience:
        left = pod.deletion - now
        if left <= has:
            return None
        detail = f"terminates, and may take {format_duration(left)} more; a drain has only {format_duration(has)}"
        return Refusal(Reason.GRACE_PERIOD_TOO_LONG, pod.key, detail, f"wait until {pod.key} has gone")
    past = format_duration(now - pod.deletion)
    if not pod.finalizers:
        return Refusal(Reason.POD_STUCK, pod.key, f"should have been gone {past} ago")
    held = f"finalizer{'s' if len(pod.finalizers) > 1 else ''} {', '.join(pod.finalizers)}"
    holds = "hold" if len(pod.finalizers) > 1 else "holds"
    who = ", ".join(dict.fromkeys(_removes(each) for each in pod.finalizers))
    detail = f"should have been gone {past} ago, but {held} {holds} it"
    return Refusal(Reason.STUCK_FINALIZER, pod.key, detail, f"see why {who} does not remove {held}")


def _removes(finalizer: str) -> str:
    domain = finalizer.partition("/")[0] if "/" in finalizer else finalizer
    return _REMOVES.get(finalizer) or f"the controller of {domain}"
