"""Whether a target is rolling out."""

from __future__ import annotations

from typing import Any

import pytest

from hpa_scaler.annotations.spec import rollout_of
from tightship.objects import ScaleTarget


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


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (
            target("Rollout", replicas=34, updated=14, phase="Paused"),
            "Rollout web, which is paused, has 14 new pods of 34",
        ),
        (target("Rollout", phase="Paused"), "Rollout web is paused"),
        (target(replicas=34, updated=14, paused=True), "Deployment web, which is paused, has 14 new pods of 34"),
    ],
)
def test_a_paused_rollout_says_that_it_is_paused(thing: ScaleTarget, says: str) -> None:
    assert rollout_of(thing).detail == says


def test_a_paused_deployment_whose_pods_are_all_new_is_no_rollout() -> None:
    assert rollout_of(target(paused=True)).state == "steady"
