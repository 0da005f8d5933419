"""Nodes whose disks hold data of claims that no pod uses now, such as those of a StatefulSet scaled to 0. Pure.

Cluster Autoscaler looks at pods alone, deletes such a node, and the data are gone (kubernetes/autoscaler#4369).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from tightship.cluster import NodeView, Snapshot
from tightship.objects import Pod
from tightship.objects.reasons import Reason, Refusal
from tightship.rules.nodes import NodeRules


class HeldData:
    """The volumes of claims that one node alone reaches, by the label of that node."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._volumes: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for volume in snapshot.volumes.values():
            if volume.host is None or volume.claim is None:
                continue
            claim = snapshot.claims.get("/".join(volume.claim[:2]))
            if claim is not None and claim.volume == volume.name and not (claim.own or claim.deleting):
                self._volumes[volume.host][claim.key] = volume.name
        self._labels = {label for label, _ in self._volumes}
        self._nodes = Counter(place for view in snapshot.nodes.values() for place in self._places(view))

    def refusals(self, view: NodeView, rules: NodeRules) -> list[Refusal]:
        """Return which claims would lose their data with the node of *view*."""
        if not self._labels or Reason.LOCAL_STORAGE in rules.disabled:
            return []
        places = [place for place in self._places(view) if self._nodes[place] == 1]
        held = {claim: volume for place in places for claim, volume in self._volumes.get(place, {}).items()}
        used = _used(view.pods) if held else set()  # no other node is a place for their pods
        return [
            Refusal(
                Reason.LOCAL_STORAGE,
                f"claim {claim}",
                f"the data of claim {claim} are on this node alone (volume {volume}), and no pod uses them now",
                f"delete claim {claim} if its data may go",
            )
            for claim, volume in sorted(held.items())
            if claim not in used
        ]

    def _places(self, view: NodeView) -> list[tuple[str, str]]:
        labels = view.node.labels
        return [(label, labels[label]) for label in self._labels if label in labels]


def _used(pods: Iterable[Pod]) -> set[str]:
    """The claims of the pods that need another place."""
    return {
        f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"
        for pod in pods
        if pod.deletion is None and not (pod.daemon or pod.mirror or pod.expendable)
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    }
