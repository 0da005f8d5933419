"""What the charts' MutatingAdmissionPolicy does to pods that are created, in plain Python.

The embedded server evaluates no CEL and serves no admission policies. It takes the annotation
:data:`POLICY`, which the charts write on the ConfigMap of landings beside the policy, for the policy itself.
``hints/2`` gives pods a preferred node affinity and has them keep off nodes with the label :data:`LEAVING`, where the
UID of a pod's controller is among the ConfigMap's keys; ``hints/1`` did the former alone. A policy goes by the name of
its parameter, so one that was there stays until :meth:`LandingPolicies.uninstall`, whoever edits, deletes or makes anew
the ConfigMap.

A value that is no list of node names has no effect, as in the charts' policy. Pods of Tightship itself are left alone,
as are pods whose own terms mention the label. As on the real server the policy sees a ConfigMap by an informer, a few
tenths of a second late; a ConfigMap that is not there lets every pod pass (``parameterNotFoundAction: Allow``).
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from tightship_simulator.api.versioned import Change, Key, key_of

Json = dict[str, Any]

POLICY = "tightship.dev/landing-policy"
LEAVING = "tightship.dev/leaving"
AWAY = {"key": LEAVING, "operator": "DoesNotExist"}
LATE = (0.1, 0.4)
"""Between how many seconds after a write the policy sees it: 0.13 s were measured on a real 1.37.1."""
WEIGHT = 100
"""Of the preferred node affinity."""

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NODE = rf"{_LABEL}([.]{_LABEL})*"
_NODES = re.compile(rf"{_NODE}(,{_NODE})*", re.ASCII)


class _Change(Struct, frozen=True):
    """That a ConfigMap has this *data* from *at* on (seconds since 1970); ``None`` where it is gone."""

    at: float
    key: Key
    data: dict[str, str] | None


class LandingPolicies:
    """The policies of one server. *now* is its clock; *seed* draws how late the policies see their ConfigMaps."""

    def __init__(self, now: Callable[[], datetime], seed: int | None) -> None:
        self._now = now
        self._random = random.Random(None if seed is None else f"landing policies {seed}")  # noqa: S311
        self._policies: dict[Key, str] = {}
        self._data: dict[Key, dict[str, str]] = {}
        self._coming: deque[_Change] = deque()

    def reported(self, change: Change, _author: str = "") -> None:
        """Take note of a change of the store."""
        if change.object["kind"] != "ConfigMap":
            return
        key, gone = key_of(change.object), change.type == "DELETED"
        notes = change.object["metadata"].get("annotations") or {}
        policy = notes.get(POLICY, "")
        if policy.startswith("hints/") and not gone:
            self._policies[key] = policy
        if key in self._policies:
            earliest = self._coming[-1].at if self._coming else 0.0
            at = max(earliest, self._now().timestamp() + self._random.uniform(*LATE))
            self._coming.append(_Change(at, key, None if gone else dict(change.object.get("data") or {})))

    def uninstall(self, namespace: str, name: str) -> None:
        """Take away the policy of a ConfigMap, as the removal of its chart does."""
        self._policies.pop((namespace, name), None)

    def admitted(self, pod: Json) -> Json:
        """Return a pod that is to be created as the policies leave it. Changes *pod*."""
        if not self._policies or pod["kind"] != "Pod" or (pod.get("spec") or {}).get("nodeName"):
            return pod
        if (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/part-of") == "tightship":
            return pod
        self._catch_up()
        owners = pod["metadata"].get("ownerReferences") or []
        owner = next((str(each.get("uid")) for each in owners if each.get("controller")), None)
        for key, policy in self._policies.items():
            targets = self._data.get(key, {}).get(owner) if owner else None
            if targets and _NODES.fullmatch(targets) and not _mentions(pod["spec"]):
                pod["spec"]["affinity"] = drawn(pod["spec"].get("affinity"), targets.split(","), policy != "hints/1")
        return pod

    def _catch_up(self) -> None:
        now = self._now().timestamp()
        while self._coming and self._coming[0].at <= now:
            reported = self._coming.popleft()
            if reported.data is None:
                self._data.pop(reported.key, None)
            else:
                self._data[reported.key] = reported.data


def _mentions(spec: Json) -> bool:
    """Whether a pod's own terms are about the label."""
    of_nodes = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = [
        *((of_nodes.get(REQUIRED) or {}).get("nodeSelectorTerms") or []),
        *(each.get("preference") or {} for each in of_nodes.get(PREFERRED) or []),
    ]
    expressions = (each for term in terms for each in term.get("matchExpressions") or [])
    return LEAVING in (spec.get("nodeSelector") or {}) or any(each.get("key") == LEAVING for each in expressions)


def drawn(affinity: Json | None, targets: Sequence[str], away: bool = True) -> Json:
    """Return *affinity* with a preference for each of *targets* (a term of fields takes one value only), and kept off
    nodes that leave, unless not *away*. An empty term matches no node, and stays so.
    """
    of_nodes = dict((affinity or {}).get("nodeAffinity") or {})
    of_nodes[PREFERRED] = [*(of_nodes.get(PREFERRED) or []), *map(_term, targets)]
    if away and REQUIRED not in of_nodes:
        of_nodes[REQUIRED] = {"nodeSelectorTerms": [{"matchExpressions": [AWAY]}]}
    elif away:
        terms = [
            {**each, "matchExpressions": [*(each.get("matchExpressions") or []), AWAY]}
            if each.get("matchExpressions") or each.get("matchFields")
            else each
            for each in of_nodes[REQUIRED].get("nodeSelectorTerms") or []
        ]
        of_nodes[REQUIRED] = {**of_nodes[REQUIRED], "nodeSelectorTerms": terms}
    return {**(affinity or {}), "nodeAffinity": of_nodes}


def _term(node: str) -> Json:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"weight": WEIGHT, "preference": {"matchFields": [field]}}


__all__ = ["AWAY", "LEAVING", "POLICY", "LandingPolicies", "drawn"]
