"""What it costs to disrupt a pod, by annotations of its owners, and whether what a node costs is worth that. Pure.

``node-autoscaling.kubernetes.io/disruption-cost`` is proposed for all node autoscalers (kubernetes/autoscaler#9850):
the costs of the pods that leave a node are summed, and the node with the lower sum goes first. Without it
``karpenter.sh/disruption-cost`` counts, and without that the older ``controller.kubernetes.io/pod-deletion-cost``, as
for Karpenter (``EvictionCost`` in ``pkg/utils/disruption/disruption.go`` of 1.15.0). The first that is there decides,
even without a valid cost. A negative cost makes a pod cheaper than others for Karpenter, or tells a ReplicaSet which of
its pods to delete first, and costs nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tightship.objects import Pod
from tightship.objects.counting import counted
from tightship.objects.money import HOURS_PER_MONTH, MICROS
from tightship.objects.quoting import quoted
from tightship.objects.reasons import Check, Reason, remark

DISRUPTION_COST = "node-autoscaling.kubernetes.io/disruption-cost"
KARPENTER_COST = "karpenter.sh/disruption-cost"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

MOST = 2**31 - 1
"""The highest cost of a pod."""

_LONGEST = len(str(MOST)) + 1
_SHOWN = 3


def whole_number(text: str) -> int | None:
    """Return the number in *text*, ``None`` if that is no whole number of 32 bits."""
    digits = text.removeprefix("-")
    if len(text) > _LONGEST or not (digits.isascii() and digits.isdecimal()):
        return None
    number = int(text)
    return number if -MOST <= number <= MOST else None


def _deciding(pod: Pod) -> str | None:
    """Return the annotation of *pod* that says its cost, ``None`` without any."""
    return next((key for key in (DISRUPTION_COST, KARPENTER_COST, DELETION_COST) if key in pod.annotations), None)


def disruption_cost(pod: Pod) -> int:
    """Return what disrupting *pod* costs, from 0 (also for an annotation without a valid cost) to :data:`MOST`."""
    notes = pod.annotations
    if not notes:
        return 0
    key = _deciding(pod)
    return 0 if key is None else max(0, whole_number(notes[key]) or 0)


def total_cost(pods: Iterable[Pod]) -> int:
    """Return the sum of the costs of *pods*."""
    return sum(disruption_cost(pod) for pod in pods if pod.annotations)  # a pass asks for every pod of a fleet


def cost_remarks(pods: Sequence[Pod]) -> list[Check]:
    """Return what to tell of the costs of *pods*, those of one node: the sum, and each annotation without a cost."""
    found: list[Check] = []
    dear = sorted((-cost, pod.key) for pod in pods if (cost := disruption_cost(pod)))
    if dear:
        more = f", {len(dear) - _SHOWN} more" if len(dear) > _SHOWN else ""
        parts = ", ".join(f"{key} {-cost:,}" for cost, key in dear[:_SHOWN])
        found.append(remark("disruption cost", f"{total_cost(pods):,} ({parts}{more}); nodes that cost less go first"))
    for pod in pods:
        key = _deciding(pod)
        if key is None:
            continue
        text = pod.annotations[key]
        lowest = 0 if key == DISRUPTION_COST else -MOST
        if (number := whole_number(text)) is None or number < lowest:
            allowed = f"allowed is a whole number from {lowest} to {MOST}"
            found.append(remark("disruption cost", f"annotation {key} of {pod.key} is {quoted(text)}; {allowed}"))
    return found


def saving_check(price: int | None, evictions: int, least: float) -> Check | None:
    """Return whether removing a node saves at least *least* a month for each of its *evictions*.

    *price* is what an hour of the node costs, in millionths of the currency, ``None`` if nobody knows; *least* is in
    the currency. ``None`` without a least saving: then every removal is worth it.
    """
    if not least:
        return None
    what, reason = "saving per eviction", Reason.SAVING_TOO_SMALL
    wanted = f"minimumSavingPerEviction is {least:g}"
    if not evictions:
        return Check(what, reason, True, f"no pod has to be evicted; {wanted}")
    if price is None:
        fix = "give the node a price (--prices FILE), or set --min-saving-per-eviction 0"
        return Check(what, reason, False, f"the node has no price, and {wanted}", fix)
    each = price * HOURS_PER_MONTH / MICROS / evictions
    detail = f"{counted(evictions, 'eviction')} would save {each:,.2f} a month each, {wanted}"
    enough = math.floor(each * 100) / 100  # rounded down, because the shown setting must let the node through
    fix = f"lower minimumSavingPerEviction to {enough:g} (--min-saving-per-eviction {enough:g})"
    return Check(what, reason, each >= least, detail, "" if each >= least else fix)
