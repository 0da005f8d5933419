"""Whether a target is rolling out."""

from __future__ import annotations

from typing import Any

import pytest

from hpa_scaler.spec.spec import rollout_of
from tightship.core.objects import ScaleTarget


def target(kind: str = "Deployment", **more: Any) -> ScaleTarget:
    given: dict[str, Any] = {
        "kind": kind,
        "namespace": "shop",
        "name": "web",
        "uid": "u",
        "wanted": 4,
        "replicas": 4,
        "updated": 4,
        "generation": 3,
        "observed_generation": 3,
        "current_revision": "",
        "update_revision": "",
        "phase": "",
    }
    return ScaleTarget(**(given | more))


@pytest.mark.parametrize(
    ("thing", "state"),
    [
        (target(), "steady"),
        (target(replicas=8), "rolling"),
        (target(replicas=4, updated=1), "rolling"),
        (target(observed_generation=2), "rolling"),
        (target(observed_generation=None), "steady"),
        (target(replicas=0, updated=0), "steady"),
        (target("StatefulSet", current_revision="a", update_revision="b", updated=1), "rolling"),
        (target("StatefulSet", current_revision="a", update_revision="a", updated=0), "steady"),
        (target("ReplicaSet", updated=0), "steady"),
        (target("Rollout", phase="Healthy"), "steady"),
        (target("Rollout", phase="Progressing"), "rolling"),
        (target("Rollout", phase="Paused"), "rolling"),
        (target("Rollout", phase="Healthy", replicas=5), "rolling"),
    ],
)
def test_a_rollout_is_told_from_the_status_of_its_target(thing: ScaleTarget, state: str) -> None:
    assert rollout_of(thing).state == state


def test_it_says_how_far_it_is() -> None:
    assert rollout_of(target(replicas=8, updated=2)).detail == "Deployment web has 2 new pods of 8"
