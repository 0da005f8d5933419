"""Planned nodes that wait for scale-ins and rollouts to empty them, while their pods carry deletion costs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tightship.objects.counting import counted
from tightship.objects.durations import format_duration
from tightship.objects.reasons import Reason, Refusal


class _Seen(Struct, frozen=True):
    """Pods on a node, by uid, and when one of them was last found gone, or the node chosen."""

    pods: frozenset[str]
    since: float


class ScaleIns:
    """Remembers for each chosen node when a pod last left. A new leader knows nothing of that and waits anew."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def waiting(
        self, planned: Sequence[str], chosen: Mapping[str, frozenset[str]], timeout: float, now: float
    ) -> dict[str, Refusal]:
        """Return why nodes of *planned* wait at *now*: *chosen* has the pods with a cost, by node, in the plan's order.

        A node waits until no pod has left for *timeout* seconds. Nodes that are not chosen, because enough pods carry
        costs already, wait while any before them does.
        """
        before, self._seen = self._seen, {}
        found: dict[str, Refusal] = {}
        for name, pods in chosen.items():
            known = before.get(name)
            fresh = known is None or known.pods - pods
            seen = self._seen[name] = _Seen(pods, now if known is None or fresh else known.since)
            left = seen.since + timeout - now
            if pods and left > 0:
                detail = f"{counted(len(pods), 'pod')} may leave by scale-ins, {format_duration(left)} left"
                found[name] = Refusal(Reason.SCALE_IN_EXPECTED, name, detail)
        if found:
            behind = {name for name in planned if name not in chosen}
            first = next(iter(found))
            found |= {name: Refusal(Reason.SCALE_IN_EXPECTED, name, f"after node {first}") for name in behind}
        return {name: found[name] for name in planned if name in found}


__all__ = ["ScaleIns"]
