"""Which rules about pods apply, and which of them users may switch off or have a drain wait for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from tightship.objects.reasons import Reason
from tightship.objects.schedulers import SCHEDULERS, Scoring

RestartMode = Literal["off", "marked", "all"]
"""Which Deployments drains restart instead of evicting their pods: none, marked ones, or all that need it."""


class EvictionRules(Struct, frozen=True):
    """The rules that apply. *disabled* holds the reasons of rules switched off; *system_pod_timeout* is in seconds.

    A pod that only *awaited* reasons keep ends by itself, and a drain waits for its end instead of leaving the node
    alone. A pod with a grace period above *longest_grace* seconds, the time of a drain, stays. *schedulers* are those
    that filter nodes as kube-scheduler does, by name, with how they score. *restarts* says which Deployments drains
    restart: see :mod:`tightship.rules.restarting`.
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
