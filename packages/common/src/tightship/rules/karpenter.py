"""Who consolidates the nodes of Karpenter's NodePools, and whether an emptied one goes. Pure.

As Karpenter documents (``spec.disruption`` of karpenter.sh/v1): empty nodes go with each policy, underutilized ones
with each but ``WhenEmpty``; nothing goes with ``consolidateAfter: Never``, with a budget of zero, or in a static pool.
The pods that stay on an emptied node are asked too (``ValidatePodsDisruptable`` in Karpenter 1.15.0's
``pkg/controllers/state/statenode.go``, ``CanEvictPods`` in ``pkg/utils/pdb/pdb.go``), and a node that Karpenter has not
initialized stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tightship.cluster.snapshot import Budgets
from tightship.objects import Node, NodePool, Pod
from tightship.objects.karpenter import NEVER, WHEN_EMPTY
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.selectors import Taint
from tightship.objects.times import DurationError, format_duration, parse_duration

POOL_LABEL = "karpenter.sh/nodepool"
PROVISIONER_LABEL = "karpenter.sh/provisioner-name"
"""The label of nodes that Karpenter before 0.33 made from a Provisioner (``pkg/apis/v1alpha5/labels.go`` of 0.32)."""

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
INITIALIZED, REGISTERED = "karpenter.sh/initialized", "karpenter.sh/registered"
UNREGISTERED = "karpenter.sh/unregistered"
DISRUPTED = "karpenter.sh/disrupted"

_EMPTY, _UNDERUTILIZED = "Empty", "Underutilized"
_TAINT = Taint(DISRUPTED, "NoSchedule")


def karpenter_pool(node: Node) -> str | None:
    """Return the NodePool or the Provisioner of *node*, ``None`` if Karpenter has not made the node."""
    return node.labels.get(POOL_LABEL, node.labels.get(PROVISIONER_LABEL))


def left_to_karpenter(node: Node, pools: Mapping[str, NodePool], now: float | None) -> Iterator[Refusal]:
    """Yield why *node* stays because of its NodePool at *now* (seconds since 1970); nothing if Karpenter would delete
    the node once it is empty, and else leaves it alone.

    *pools* are the known NodePools. Without *now*, budgets that hold only at times are left out.
    """
    name, managed = node.labels.get(POOL_LABEL), Reason.KARPENTER_MANAGED
    if name is None:
        if PROVISIONER_LABEL in node.labels:
            of = f"belongs to Provisioner {node.labels[PROVISIONER_LABEL]} of a Karpenter before 0.33"
            detail = f"{of}, which is not read here, so that Karpenter may consolidate it"
            yield Refusal(managed, node.name, detail, "move to a NodePool of Karpenter 0.33 or newer")
        return
    pool = pools.get(name)
    if pool is None:
        detail = f"belongs to NodePool {name}, which is not known here, so that Karpenter may consolidate it"
        yield Refusal(managed, node.name, detail, "let Tightship read nodepools.karpenter.sh")
    elif pool.problem:
        detail = f"belongs to NodePool {name}, which can't be read: {pool.problem}"
        yield Refusal(managed, node.name, detail, f"fix NodePool {name}")
    else:
        starting = next((each for each in node.taints if each in pool.startup), None)
        if starting is not None:
            detail = f"something has not started on the node yet (startup taint {starting} of NodePool {name})"
            yield Refusal(Reason.NODE_LIFECYCLE, node.name, detail)
        if consolidates(pool):
            after = format_duration(pool.after or 0.0)
            how = f"consolidationPolicy {pool.policy}, consolidateAfter {after}"
            detail = f"belongs to NodePool {name}, and Karpenter consolidates underutilized nodes itself ({how})"
            fix = "leave the node to Karpenter: its Events on the node tell what keeps it (DisruptionBlocked)"
            yield Refusal(managed, node.name, detail, fix)
        why = keeps_empty(pool, now)
        if why:
            detail = f"belongs to NodePool {name}, and nobody would delete the emptied node: {why[0]}"
            yield Refusal(Reason.KARPENTER_CONSOLIDATION_OFF, node.name, detail, why[1])


def deletion_blocked(node: Node, pods: Iterable[Pod], budgets: Budgets, now: float | None) -> Iterator[Refusal]:
    """Yield why Karpenter would not delete *node* once everything that a drain evicts has left the *pods* on it.

    Without *now* (seconds since 1970), as in a drain that has begun, what ends by itself is left out.
    """
    if POOL_LABEL not in node.labels:
        return
    found: list[tuple[str, str]] = []
    made = REGISTERED in node.labels or any(taint.key == UNREGISTERED for taint in node.taints)
    if now is not None and node.labels.get(INITIALIZED, "" if made else "true") != "true":
        found.append((f"Karpenter has not initialized the node (label {INITIALIZED})", "wait until the node is ready"))
    for pod in pods:
        if pod.finished or pod.deletion is not None or not _stays(pod):
            continue
        if not _ignored(pod):
            what = f"pod {pod.key} stays on it, and for Karpenter a node is empty only without pods of its kind"
            found.append((what, f"move {pod.key} to nodes that Karpenter has not made"))
        elif _protected(pod, now):
            text = pod.annotations[DO_NOT_DISRUPT]
            fix = f"remove the annotation from the template of {pod.owner}" if pod.daemon else "remove the annotation"
            found.append((f"pod {pod.key} has the annotation {DO_NOT_DISRUPT}={text}", fix))
        elif now is not None:
            found += _budget_blocks(pod, budgets)
    for why, fix in found:
        detail = f"nobody would delete the emptied node: {why}"
        yield Refusal(Reason.KARPENTER_CONSOLIDATION_OFF, node.name, detail, fix)


def _stays(pod: Pod) -> bool:
    """Whether a drain of ours, or Cluster Autoscaler, would let *pod* go with its node."""
    return pod.daemon or pod.mirror or pod.expendable


def _ignored(pod: Pod) -> bool:
    """Whether a node with *pod* can be empty: just DaemonSets of ``apps`` and mirror pods don't count."""
    return pod.mirror or (pod.owner is not None and pod.owner.kind == "DaemonSet")


def _protected(pod: Pod, now: float | None) -> bool:
    """Whether Karpenter's annotation on *pod* blocks: ``true``, or a duration from the pod's start.

    A value that is neither is no protection (``IsDoNotDisruptActive`` in ``pkg/utils/pod/scheduling.go``).
    """
    text = pod.annotations.get(DO_NOT_DISRUPT, "")
    if not text or text == "true":
        return bool(text)
    try:
        length = parse_duration(text)
    except DurationError:
        return False
    return now is not None and length > 0 and (pod.started is None or now < pod.started + length)


def _budget_blocks(pod: Pod, budgets: Budgets) -> Iterator[tuple[str, str]]:
    """Yield which PodDisruptionBudget keeps Karpenter from the node of *pod* now, and what would change that.

    Karpenter asks for no pod that it would not evict: a mirror pod, or one that tolerates its taint.
    """
    if pod.mirror or any(each.tolerates(_TAINT) for each in pod.spec.tolerations):
        return
    found = budgets.of(pod.template)
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        yield f"{len(found)} PodDisruptionBudgets select pod {pod.key} ({names})", f"let one of {names} select the pod"
    elif found and not found[0].disruptions_allowed and not (found[0].always_allow_unhealthy and not pod.ready):
        why = f": {found[0].sync_failed}" if found[0].sync_failed else ""
        detail = f"PodDisruptionBudget {found[0].key} ({found[0].rule}) allows no disruption of pod {pod.key}{why}"
        yield detail, f"loosen PodDisruptionBudget {found[0].key}, or let pods of {pod.owner} tolerate {DISRUPTED}"


def consolidates(pool: NodePool) -> bool:
    """Whether Karpenter itself consolidates nodes of *pool* that are not empty, now or at other times."""
    return (
        pool.policy != WHEN_EMPTY
        and pool.after is not None
        and pool.replicas is None
        and not any(each.forbids(_UNDERUTILIZED, None) for each in pool.budgets)
    )


def keeps_empty(pool: NodePool, now: float | None) -> tuple[str, str] | None:
    """Return why Karpenter keeps an empty node of *pool* at *now* and what would change that; ``None`` if it goes."""
    if pool.replicas is not None:
        return f"the pool is static, with {pool.replicas} replicas", f"lower the replicas of NodePool {pool.name}"
    if pool.after is None:
        return f"consolidateAfter is {NEVER}", f"set consolidateAfter: 30s for NodePool {pool.name}"
    shut = next((each for each in pool.budgets if each.forbids(_EMPTY, now)), None)
    if shut is None:
        return None
    when = f" for {format_duration(shut.duration)} from {shut.text} (UTC)" if shut.schedule is not None else ""
    return f"a disruption budget allows {shut.nodes} nodes{when}", f"raise that budget of NodePool {pool.name}"
