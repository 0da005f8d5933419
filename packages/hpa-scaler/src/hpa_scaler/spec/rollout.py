"""Whether an HPA's target is rolling out, from one read of the target; ReplicaSets are not listed."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tightship.core.counting import counted
from tightship.core.objects import ScaleTarget


class Rollout(Struct, frozen=True):
    """The state of a rollout; *detail* has the numbers, or says why the state is unknown."""

    state: Literal["steady", "rolling", "unknown"]
    detail: str = ""


def rollout_of(target: ScaleTarget) -> Rollout:
    """Return whether *target* is rolling out.

    A Deployment rolls out until all its pods have the newest template: ``status.replicas`` includes the pods of a
    surge, unlike the replicas that an HPA knows. A StatefulSet rolls out while its two revisions differ, an Argo
    Rollout also while its phase says so. A spec that the controller has not seen yet counts as a rollout.
    """
    what = f"{target.kind} {target.name}"
    if target.observed_generation is not None and target.observed_generation < target.generation:
        return Rollout("rolling", f"the controller of {what} has not seen the newest spec yet")
    if target.kind == "StatefulSet":
        if target.current_revision != target.update_revision:
            return Rollout("rolling", f"{what} goes from {target.current_revision} to {target.update_revision}")
    elif target.kind != "ReplicaSet" and target.replicas > target.updated:
        return Rollout("rolling", f"{what} has {counted(target.updated, 'new pod')} of {target.replicas}")
    if target.phase in ("Progressing", "Paused"):
        return Rollout("rolling", f"{what} is {target.phase}")
    return Rollout("steady")


__all__ = ["Rollout", "rollout_of"]
