"""What the embedded server does in the place of the charts' MutatingAdmissionPolicy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tightship_simulator.api.landing import AWAY, LATE, LEAVING, POLICY, PREFERRED, REQUIRED
from tightship_simulator.api.store import Store

Json = dict[str, Any]

MINE, OTHER = "uid-of-mine", "uid-of-another"


class Clock:
    """A clock that goes on when a test says so."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 5, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def past(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


def _store(policy: str = "hints/2", data: Json | None = None) -> tuple[Store, Clock]:
    clock = Clock()
    store = Store(now=clock.now, seed=1)
    meta: Json = {"name": "landings", "namespace": "default", "annotations": {POLICY: policy} if policy else {}}
    store.create("ConfigMap", {"metadata": meta, "data": {MINE: "n1,n2"} if data is None else data})
    clock.past(LATE[1])
    return store, clock


def _pod(store: Store, owner: str = MINE, *, controls: bool = True, **spec: Any) -> Json:
    about = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": owner, "controller": controls}
    meta = {"generateName": "web-", "namespace": "default", "ownerReferences": [about] if owner else []}
    return store.create("Pod", {"metadata": meta, "spec": {"containers": [{"name": "c"}], **spec}})


def _led(pod: Json) -> bool:
    return "affinity" in pod["spec"]


def _terms(pod: Json) -> list[Json]:
    terms: list[Json] = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return terms


def test_pods_of_an_owner_in_the_config_map_are_led_and_no_others() -> None:
    store, _ = _store()
    made = _pod(store)["spec"]["affinity"]["nodeAffinity"]
    assert made[REQUIRED] == {"nodeSelectorTerms": [{"matchExpressions": [AWAY]}]}
    assert [each["preference"]["matchFields"][0]["values"] for each in made[PREFERRED]] == [["n1"], ["n2"]]
    for other in (_pod(store, OTHER), _pod(store, ""), _pod(store, controls=False), _pod(store, nodeName="n1")):
        assert not _led(other)


ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
FIELD = {"key": "metadata.name", "operator": "In", "values": ["n9"]}


def test_what_a_pod_asks_for_itself_stays_and_each_term_keeps_off_nodes_that_leave() -> None:
    store, _ = _store()
    own = {"weight": 7, "preference": {"matchExpressions": [ZONE]}}
    terms = [{"matchExpressions": [ZONE]}, {"matchFields": [FIELD]}, {}]
    had = {"podAffinity": {}, "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}, PREFERRED: [own]}}
    made = _pod(store, affinity=had)
    assert made["spec"]["affinity"]["podAffinity"] == {}
    assert _terms(made) == [
        {"matchExpressions": [ZONE, AWAY]},
        {"matchFields": [FIELD], "matchExpressions": [AWAY]},
        {},  # matches no node, and must not come to match some
    ]
    assert made["spec"]["affinity"]["nodeAffinity"][PREFERRED][0] == own


def test_an_older_policy_only_has_pods_prefer_their_targets() -> None:
    store, _ = _store("hints/1")
    assert REQUIRED not in _pod(store)["spec"]["affinity"]["nodeAffinity"]


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {LEAVING: "x"}},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [AWAY]}]}}}},
        {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [AWAY]}}]}}},
    ],
)
def test_a_pod_whose_own_terms_mention_the_label_is_left_alone(spec: Json) -> None:
    store, _ = _store()
    assert _pod(store, **spec)["spec"].get("affinity") == spec.get("affinity")


@pytest.mark.parametrize("policy", ["", "none", "soft/1"])
def test_without_the_annotation_of_a_policy_nothing_is_done(policy: str) -> None:
    store, _ = _store(policy)
    assert not _led(_pod(store))


@pytest.mark.parametrize("value", ["", ",", "n1,", "N1", "n1, n2", " n1", "-n", "a_b"])
def test_what_is_no_list_of_node_names_has_no_effect(value: str) -> None:
    store, _ = _store(data={MINE: value})
    assert not _led(_pod(store))


def test_pods_of_tightship_itself_are_left_alone() -> None:
    store, _ = _store(data={MINE: "n1,node-2.example.com"})
    about = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": MINE, "controller": True}
    meta: Json = {"name": "own", "ownerReferences": [about], "labels": {"app.kubernetes.io/part-of": "tightship"}}
    assert not _led(store.create("Pod", {"metadata": meta, "spec": {"containers": [{"name": "c"}]}}))
    assert _led(_pod(store))


def test_the_policy_sees_what_is_written_a_little_later() -> None:
    store, clock = _store(data={})
    store.modify("ConfigMap", "landings", "default", lambda each: each.update(data={MINE: "n1"}))
    assert not _led(_pod(store))
    clock.past(LATE[1])
    assert _led(_pod(store))
    store.delete("ConfigMap", "landings", "default")
    assert _led(_pod(store))
    clock.past(LATE[1])
    assert not _led(_pod(store))


def test_a_policy_outlives_the_annotation_and_ends_with_its_chart() -> None:
    store, clock = _store()
    store.delete("ConfigMap", "landings", "default")
    store.create("ConfigMap", {"metadata": {"name": "landings"}, "data": {MINE: "n1"}})
    clock.past(LATE[1])
    assert _led(_pod(store))
    store.landings.uninstall("default", "landings")
    assert not _led(_pod(store))
