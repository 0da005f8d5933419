"""What the charts' MutatingAdmissionPolicy does to pods that are created, in plain Python.

The embedded server evaluates no CEL and serves no admission policies. It takes the annotation
:data:`POLICY`, which the charts write on the ConfigMap of landings beside the policy, for the policy itself.
``exact/1`` has pods gated, ``hints/1`` gives them a preferred node affinity; both only where the UID of a pod's
controller is among the ConfigMap's keys. A policy goes by the name of its parameter, so one that was there stays until
:meth:`LandingPolicies.uninstall`, whoever edits, deletes or makes anew the ConfigMap.

A value that is no list of node names has no effect, as in the charts' policy, and pods of Tightship itself are left
alone. As on the real server the policy sees a ConfigMap by an informer, a few tenths of a second late; a ConfigMap that
is not there lets every pod pass (``parameterNotFoundAction: Allow``).
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from tightship_simulator.api.shelf import Change, Key, key_of

Json = dict[str, Any]

POLICY = "tightship.dev/landing-policy"
GATE = "tightship.dev/landing"
LATE = (0.1, 0.4)
"""Between how many seconds after a write the policy sees it: 0.13 s were measured on a real 1.37.1."""
WEIGHT = 100
"""Of the preferred node affinity."""

_MODES = ("exact", "hints")
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NODE = rf"{_LABEL}([.]{_LABEL})*"
_NODES = re.compile(rf"{_NODE}(,{_NODE})*", re.ASCII)


class _Told(Struct, frozen=True):
    """That a ConfigMap has this *data* from *at* on (seconds since 1970); ``None`` where it is gone."""

    at: float
    key: Key
    data: dict[str, str] | None


class LandingPolicies:
    """The policies of one server. *now* is its clock; *seed* draws how late the policies see their ConfigMaps."""

    def __init__(self, now: Callable[[], datetime], seed: int | None) -> None:
        self._now = now
        self._random = random.Random(None if seed is None else f"landing policies {seed}")  # noqa: S311
        self._modes: dict[Key, str] = {}
        self._data: dict[Key, dict[str, str]] = {}
        self._coming: deque[_Told] = deque()

    def told(self, change: Change, _author: str = "") -> None:
        """Take note of a change of the store."""
        if change.object["kind"] != "ConfigMap":
            return
        key, gone = key_of(change.object), change.type == "DELETED"
        notes = change.object["metadata"].get("annotations") or {}
        mode = notes.get(POLICY, "").partition("/")[0]
        if mode in _MODES and not gone:
            self._modes[key] = mode
        if key in self._modes:
            earliest = self._coming[-1].at if self._coming else 0.0
            at = max(earliest, self._now().timestamp() + self._random.uniform(*LATE))
            self._coming.append(_Told(at, key, None if gone else dict(change.object.get("data") or {})))

    def uninstall(self, namespace: str, name: str) -> None:
        """Take away the policy of a ConfigMap, as the removal of its chart does."""
        self._modes.pop((namespace, name), None)

    def admitted(self, pod: Json) -> Json:
        """Return a pod that is to be created as the policies leave it. Changes *pod*."""
        if not self._modes or pod["kind"] != "Pod" or (pod.get("spec") or {}).get("nodeName"):
            return pod
        if (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/part-of") == "tightship":
            return pod
        self._catch_up()
        owners = pod["metadata"].get("ownerReferences") or []
        owner = next((str(each.get("uid")) for each in owners if each.get("controller")), None)
        for key, mode in self._modes.items():
            targets = self._data.get(key, {}).get(owner) if owner else None
            if targets and _NODES.fullmatch(targets):
                (_gated if mode == "exact" else _drawn)(pod, targets.split(","))
        return pod

    def _catch_up(self) -> None:
        now = self._now().timestamp()
        while self._coming and self._coming[0].at <= now:
            told = self._coming.popleft()
            if told.data is None:
                self._data.pop(told.key, None)
            else:
                self._data[told.key] = told.data


def _gated(pod: Json, _targets: Sequence[str]) -> None:
    gates = pod["spec"].get("schedulingGates") or []
    if not any(each.get("name") == GATE for each in gates):
        pod["spec"]["schedulingGates"] = [*gates, {"name": GATE}]


def _drawn(pod: Json, targets: Sequence[str]) -> None:
    """Have a pod prefer each of *targets*; a term of fields takes one value only."""
    spec = pod["spec"]
    affinity = dict(spec.get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    kind = "preferredDuringSchedulingIgnoredDuringExecution"
    of_nodes[kind] = [*(of_nodes.get(kind) or []), *map(_term, targets)]
    spec["affinity"] = {**affinity, "nodeAffinity": of_nodes}


def _term(node: str) -> Json:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"weight": WEIGHT, "preference": {"matchFields": [field]}}


__all__ = ["GATE", "POLICY", "LandingPolicies"]
