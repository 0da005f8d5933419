"""What the embedded server does in the place of the charts' MutatingAdmissionPolicy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tightship_simulator.api.errors import Invalid
from tightship_simulator.api.landing import GATE, LATE, POLICY
from tightship_simulator.api.store import Store

Json = dict[str, Any]

MINE, OTHER = "uid-of-mine", "uid-of-another"
THEIRS = {"name": "example.com/theirs"}


class Clock:
    """A clock that goes on when a test says so."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 5, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def past(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


def _store(policy: str = "exact/1", data: Json | None = None) -> tuple[Store, Clock]:
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


def _gates(pod: Json) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates", [])]


def test_pods_of_an_owner_in_the_config_map_are_gated_and_no_others() -> None:
    store, _ = _store()
    made = _pod(store)
    assert _gates(made) == [GATE]
    [told] = made["status"]["conditions"]
    assert (told["type"], told["status"], told["reason"]) == ("PodScheduled", "False", "SchedulingGated")
    assert _gates(_pod(store, schedulingGates=[THEIRS])) == [THEIRS["name"], GATE]
    assert _gates(_pod(store, schedulingGates=[{"name": GATE}])) == [GATE]
    for other in (_pod(store, OTHER), _pod(store, ""), _pod(store, controls=False), _pod(store, nodeName="n1")):
        assert _gates(other) == []


def test_hints_are_preferences_beside_those_that_a_pod_has() -> None:
    store, _ = _store("hints/1")
    kind = "preferredDuringSchedulingIgnoredDuringExecution"
    own = {"weight": 7, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
    required = {"nodeSelectorTerms": []}
    had = {"podAffinity": {}, "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required, kind: [own]}}
    made = _pod(store, affinity=had)
    assert _gates(made) == []
    assert made["spec"]["affinity"]["podAffinity"] == {}
    terms = made["spec"]["affinity"]["nodeAffinity"][kind]
    assert terms[0] == own
    assert [each["preference"]["matchFields"][0]["values"] for each in terms[1:]] == [["n1"], ["n2"]]
    assert "affinity" not in _pod(store, OTHER)["spec"]


@pytest.mark.parametrize("policy", ["", "none", "soft/1"])
def test_without_the_annotation_of_a_policy_nothing_is_done(policy: str) -> None:
    store, _ = _store(policy)
    assert _gates(_pod(store)) == []
    assert "affinity" not in _pod(store)["spec"]


@pytest.mark.parametrize("value", ["", ",", "n1,", "N1", "n1, n2", " n1", "-n", "a_b"])
def test_what_is_no_list_of_node_names_has_no_effect(value: str) -> None:
    store, _ = _store(data={MINE: value})
    assert _gates(_pod(store)) == []


def test_pods_of_tightship_itself_are_left_alone() -> None:
    store, _ = _store(data={MINE: "n1,node-2.example.com"})
    about = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": MINE, "controller": True}
    meta: Json = {"name": "own", "ownerReferences": [about], "labels": {"app.kubernetes.io/part-of": "tightship"}}
    assert _gates(store.create("Pod", {"metadata": meta, "spec": {"containers": [{"name": "c"}]}})) == []
    assert _gates(_pod(store)) == [GATE]


def test_the_policy_sees_what_is_written_a_little_later() -> None:
    store, clock = _store(data={})
    store.modify("ConfigMap", "landings", "default", lambda each: each.update(data={MINE: "n1"}))
    assert _gates(_pod(store)) == []
    clock.past(LATE[1])
    assert _gates(_pod(store)) == [GATE]
    store.delete("ConfigMap", "landings", "default")
    assert _gates(_pod(store)) == [GATE]
    clock.past(LATE[1])
    assert _gates(_pod(store)) == []


def test_a_policy_outlives_the_annotation_and_ends_with_its_chart() -> None:
    store, clock = _store()
    store.delete("ConfigMap", "landings", "default")
    store.create("ConfigMap", {"metadata": {"name": "landings"}, "data": {MINE: "n1"}})
    clock.past(LATE[1])
    assert _gates(_pod(store)) == [GATE]
    store.landings.uninstall("default", "landings")
    assert _gates(_pod(store)) == []


def test_a_gate_can_be_taken_off_and_not_be_given_later() -> None:
    store, _ = _store()
    name = _pod(store, schedulingGates=[THEIRS])["metadata"]["name"]

    def only(*gates: Json) -> Json:
        return store.modify("Pod", name, "default", lambda each: each["spec"].update(schedulingGates=list(gates)))

    assert _gates(only(THEIRS)) == [THEIRS["name"]]
    with pytest.raises(Invalid, match=f"found new scheduling gate '{GATE}'"):
        only(THEIRS, {"name": GATE})
    assert "schedulingGates" not in only()["spec"]
