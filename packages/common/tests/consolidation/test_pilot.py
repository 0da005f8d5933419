"""Evicted pods that are led to the nodes of the plan, as processes do it on a cluster with the charts' policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from drain.conftest import TOLERATIONS, known_pod, owner

from tightship.core.drain_record import Phase
from tightship.core.objects.pod import LANDING_GATE
from tightship.drain_io.landing_map import POLICY_ANNOTATION
from tightship_testkit.builders import controller, node
from tightship_testkit.faults import Answer, Call, Fault, Slow
from tightship_testkit.simulated import BUDGET, LOST, UNHEARD, until

from .conftest import Start
from .toy import Cluster, Process

pytestmark = pytest.mark.virtual_time

Json = dict[str, Any]

MAP = "tightship-landings"
THEIRS = "their.dev/later"
GATED_BY_HAND = [{"name": LANDING_GATE}]


class Seen:
    """Which pods had our gate, and for how long, from the server's side."""

    def __init__(self, cluster: Cluster) -> None:
        self._api = cluster.api
        self.since: dict[str, float] = {}
        self.longest: dict[str, float] = {}
        self.data: list[Json] = []
        cluster.api.store.listeners.append(lambda change, _: self._told(change.type, change.object))

    def _told(self, kind: str, thing: Json) -> None:
        if thing["kind"] == "ConfigMap" and thing["metadata"]["name"] == MAP:
            self.data.append(dict(thing.get("data") or {}))
        if thing["kind"] != "Pod":
            return
        uid, now = thing["metadata"]["uid"], self._api.now
        if kind != "DELETED" and LANDING_GATE in gates(thing):
            self.since.setdefault(uid, now)
            self.longest.setdefault(uid, 0.0)
        if uid in self.since:
            self.longest[uid] = max(self.longest[uid], now - self.since[uid])
        if LANDING_GATE not in gates(thing) or kind == "DELETED":
            self.since.pop(uid, None)

    @property
    def most(self) -> float:
        """The longest time for which a pod was gated, those still gated included."""
        now = self._api.now
        return max([*self.longest.values(), *(now - since for since in self.since.values())], default=0.0)


def gates(thing: Json) -> list[str]:
    return [each["name"] for each in thing["spec"].get("schedulingGates") or []]


def policy(cluster: Cluster, said: str | None = "exact/1", *, name: str = MAP, **data: str) -> None:
    """Install the charts' policy, with the ConfigMap that it reads."""
    notes = {} if said is None else {POLICY_ANNOTATION: said}
    cluster.api.store.create(
        "ConfigMap", {"metadata": {"name": name, "namespace": "default", "annotations": notes}, "data": data}
    )


def data(cluster: Cluster) -> Json:
    return dict((cluster.api.store.find("ConfigMap", MAP, "default") or {}).get("data") or {})


def more(cluster: Cluster) -> Seen:
    """Add a fuller node, which kube-scheduler would choose last, and return what is seen from here on."""
    full = known_pod("full", on="n3", cpu="2", memory="8Gi", owner=controller("ReplicaSet", "filler"))
    cluster.api.add(node("n3"), owner("ReplicaSet", "filler", 1), full)
    return Seen(cluster)


def webs(cluster: Cluster) -> list[str]:
    """The nodes of the pods of web."""
    pods = [each for each in cluster.api.store.list("Pod") if each["metadata"]["labels"].get("app") == "web"]
    mine = [each for each in pods if each["metadata"]["ownerReferences"][0]["name"] == "web"]
    return sorted(each["spec"].get("nodeName", "") for each in mine)


def gated(cluster: Cluster, name: str = "orphan", *, by: str = "web", also: tuple[str, ...] = (), **spec: Any) -> None:
    """Put in a gated pod, one of web's or of a workload of its own."""
    if by != "web":
        cluster.api.add(owner("ReplicaSet", by, 1))
    made = known_pod(name, on="", owner=controller("ReplicaSet", by), phase="Pending", tolerations=TOLERATIONS, **spec)
    made["spec"]["schedulingGates"] = [*GATED_BY_HAND, *({"name": each} for each in also)]
    made["metadata"]["labels"] = {"app": by}
    cluster.api.add(made)


def left(cluster: Cluster) -> list[str]:
    """The pods with our gate."""
    return [each["metadata"]["name"] for each in cluster.api.store.list("Pod") if LANDING_GATE in gates(each)]


async def soon(condition: Callable[[], object]) -> None:
    """Wait for *condition*, not as long as a drain may take."""
    await until(condition, 120)


async def gone(cluster: Cluster, name: str = "n1") -> None:
    await soon(lambda: cluster.api.node(name) is None)


async def status(process: Process) -> Json:
    return dict(json.loads((await process.get("/status"))[1]))


def when(process: Process, what: Callable[[Call], bool], fault: Fault, times: int = 1_000_000) -> list[Call]:
    """Let calls of *process* meet *fault*, and return those that have."""
    met: list[Call] = []

    async def hook(call: Call) -> Fault | None:
        if len(met) >= times or not what(call):
            return None
        met.append(call)
        return fault

    process.api.hooks[process.name] = hook
    return met


def to_map(call: Call) -> bool:
    return call.path.endswith(f"/configmaps/{MAP}")


def nominates(call: Call) -> bool:
    return call.verb == "PATCH" and "/pods/" in call.path and call.path.endswith("/status")


def ungates(call: Call) -> bool:
    return call.verb == "PATCH" and "/pods/" in call.path and not call.path.endswith("/status")


async def test_evicted_pods_land_exactly_where_the_plan_wants_them(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(goes="n1", to="n3", steering="exact")
    process = start()
    await gone(cluster)
    await soon(lambda: process.value("tightship_landings_total", result="target") == 2)
    assert webs(cluster) == ["n3", "n3"]
    assert {"uid-web": "n3"} in seen.data
    await soon(lambda: data(cluster) == {})
    assert seen.most < 2
    assert left(cluster) == []
    await process.passes(1)
    told = await status(process)
    assert told["landings"] == {"mode": "exact", "target": 2}
    assert "100.0 %" in (await process.get("/"))[1]


async def test_without_steering_they_land_where_the_scheduler_likes(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(goes="n1", to="n3")
    process = start()
    await gone(cluster)
    assert webs(cluster) == ["n2", "n2"]
    assert seen.data == []
    assert "landings" not in await status(process)
    assert not any(to_map(each.call) for each in cluster.api.proxy.log)


async def test_hints_have_the_policy_draw_pods_to_their_targets(cluster: Cluster, start: Start) -> None:
    policy(cluster, "hints/1")
    seen = more(cluster)
    cluster.configure(goes="n1", to="n3", steering="hints")
    process = start()
    await gone(cluster)
    await soon(lambda: process.value("tightship_landings_total", result="target") == 2)
    assert webs(cluster) == ["n3", "n3"]
    await soon(lambda: data(cluster) == {})
    assert seen.longest == {}
    assert not any("/pods/" in each.call.path and each.call.verb == "PATCH" for each in cluster.api.proxy.log)


async def test_hints_leave_the_gate_of_another_controller_to_it_for_a_while(cluster: Cluster, start: Start) -> None:
    policy(cluster, "hints/1")
    policy(cluster, "exact/1", name="theirs", **{"uid-web": "n3"})
    seen = more(cluster)
    cluster.configure(goes="n1", to="n3", steering="hints")
    start()
    await gone(cluster)
    await soon(lambda: left(cluster) == [])
    assert min(seen.longest.values()) > 4


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "has no annotation tightship.dev/landing-policy"),
        ("hints/1", "says that the admission policy is 'hints/1', not exact/1"),
        ("exact/2", "says that the admission policy is 'exact/2', not exact/1"),
        (None, "ConfigMap default/tightship-landings does not exist"),
    ],
)
async def test_without_a_policy_that_fits_soft_taints_steer_alone_and_one_line_says_so(
    cluster: Cluster, start: Start, caplog: pytest.LogCaptureFixture, said: str | None, why: str
) -> None:
    if said is not None:
        policy(cluster, said)
    seen = more(cluster)
    cluster.configure(goes="n1 n2", to="n3", steering="exact")
    process = start()
    await gone(cluster)
    await process.passes()
    assert [each for each in caplog.messages if "soft taints steer alone" in each and why in each]
    assert len([each for each in caplog.messages if "soft taints steer alone" in each]) == 1
    told = await status(process)
    assert why in told["problems"][0]
    assert why in told["landings"]["problem"]
    assert seen.most == 0
    assert all(each == {} for each in seen.data)


async def test_a_policy_that_comes_later_is_used_from_then_on(cluster: Cluster, start: Start) -> None:
    seen = more(cluster)
    cluster.configure(goes="", to="n3", steering="exact")
    process = start()
    await process.passes()
    policy(cluster)
    await process.passes()
    cluster.configure(goes="n1", to="n3", steering="exact")
    await gone(cluster)
    assert webs(cluster) == ["n3", "n3"]
    assert "problems" not in await status(process)
    assert seen.most < 2


async def test_a_map_that_cant_be_written_lets_pods_go_without_a_target(
    cluster: Cluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(goes="n1", to="n3", steering="exact")
    process = start()
    when(process, lambda call: to_map(call) and call.verb == "PATCH", Answer(403, "Forbidden", "no"))
    await gone(cluster)
    assert webs(cluster) == ["n2", "n2"]
    assert [each for each in caplog.messages if each.startswith("2 pods are evicted without a target: ")]


@pytest.mark.parametrize("fault", [LOST, UNHEARD, Slow(60.0)], ids=["lost", "unheard", "hangs"])
async def test_a_map_whose_server_does_not_answer_holds_a_drain_up_for_seconds_only(
    cluster: Cluster, start: Start, fault: Fault
) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(goes="", to="n3", steering="exact")
    process = start()
    await process.passes()
    when(process, lambda call: to_map(call) and call.verb == "PATCH", fault)
    cluster.configure(goes="n1", to="n3", steering="exact")
    await soon(lambda: cluster.phase() is Phase.EVICTING)
    began = cluster.api.now
    await soon(lambda: len(cluster.api.evicted) == 2)
    assert cluster.api.now - began < 8
    await gone(cluster)
    assert seen.most < 3


async def test_a_nomination_that_fails_leaves_no_gate(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(goes="n1", to="n3", steering="exact")
    process = start()
    met = when(process, nominates, Answer(403, "Forbidden", "no"))
    await gone(cluster)
    await soon(lambda: process.value("tightship_landings_total", result="elsewhere") == 2)
    assert len(met) == 2
    assert webs(cluster) == ["n2", "n2"]
    assert seen.most < 3


async def test_a_target_that_goes_meanwhile_gets_nobody(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(goes="n1", to="n3", steering="exact", settleTime="1m")
    start()
    await soon(lambda: cluster.phase() is Phase.CLAIMED)
    cluster.api.remove("Node", "n3")
    await gone(cluster)
    await soon(lambda: webs(cluster) == ["n2", "n2"])
    assert seen.data == [], "nobody was to be told anything"


async def test_a_refused_eviction_takes_its_entry_back(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.api.refuse = BUDGET
    cluster.configure(goes="n1", to="n3", steering="exact")
    start()
    await soon(lambda: {"uid-web": "n3"} in seen.data)
    await soon(lambda: data(cluster) == {})
    cluster.api.edit("ReplicaSet", "web", lambda raw: raw["spec"].update(replicas=3), "shop")
    await soon(lambda: left(cluster) == [])
    assert seen.most < 2
    cluster.api.refuse = None
    await gone(cluster)
    assert webs(cluster).count("n3") >= 2


async def test_an_owner_that_asks_for_more_pods_gets_them_at_once(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(goes="n1", to="n3", steering="exact")
    start()
    await soon(lambda: {"uid-web": "n3"} in seen.data)
    cluster.api.edit("ReplicaSet", "web", lambda raw: raw["spec"].update(replicas=5), "shop")
    await gone(cluster)
    await soon(lambda: len(webs(cluster)) == 5 and "" not in webs(cluster))
    assert seen.most < 2
    assert webs(cluster).count("n3") >= 2


async def test_gates_of_others_stay(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(steering="exact")
    start()
    gated(cluster, by="other", also=(THEIRS,))
    await soon(lambda: left(cluster) == [])
    assert gates(cluster.api.store.get("Pod", "orphan", "shop")) == [THEIRS]
    assert seen.most < 9


@pytest.mark.parametrize("steering", ["off", "taints", "hints", "exact"])
async def test_any_replica_removes_a_gate_that_it_has_seen_for_a_while(
    cluster: Cluster, start: Start, steering: str
) -> None:
    """As a standby does when a leader is gone, and a leader for what an earlier installation left."""
    policy(cluster)
    seen = more(cluster)
    cluster.api.refuse = BUDGET
    cluster.configure(steering=steering)
    leader = start()
    await soon(lambda: cluster.holder == leader.settings.identity)
    standby = start()
    await standby.passes()
    leader.killed()
    gated(cluster, by="other")
    await soon(lambda: left(cluster) == [])
    assert 4 < seen.most < 12


async def test_hand_written_entries_hold_nothing_up_and_are_removed(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(steering="exact")
    process = start()
    await process.passes()
    cluster.api.edit(
        "ConfigMap", MAP, lambda raw: raw.update(data={"uid-web": "n9,", "nobody": "", "uid-x": "?"}), "default"
    )
    await asyncio.sleep(0.4)
    cluster.api.edit("ReplicaSet", "web", lambda raw: raw["spec"].update(replicas=3), "shop")
    await soon(lambda: data(cluster) == {})
    await soon(lambda: len(webs(cluster)) == 3 and "" not in webs(cluster))
    assert seen.most < 9


async def test_an_entry_that_comes_late_goes_with_the_first_pod_that_it_holds_up(
    cluster: Cluster, start: Start
) -> None:
    """As the write of a leader that slept: no pass looks at the ConfigMap for an hour."""
    policy(cluster)
    seen = more(cluster)
    cluster.configure(steering="exact")
    process = start(interval=3600)
    await process.passes(1)
    cluster.api.edit("ConfigMap", MAP, lambda raw: raw.update(data={"uid-web": "n3"}), "default")
    await asyncio.sleep(0.5)
    cluster.api.edit("ReplicaSet", "web", lambda raw: raw["spec"].update(replicas=3), "shop")
    await soon(lambda: data(cluster) == {})
    await soon(lambda: len(webs(cluster)) == 3 and "" not in webs(cluster))
    assert 0 < seen.most < 9


async def test_a_standby_that_stops_leaves_the_pods_of_its_leader_alone(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(goes="", to="n3", steering="exact")
    leader = start()
    await soon(lambda: cluster.holder == leader.settings.identity)
    standby = start()
    await standby.passes()
    met = when(leader, nominates, Slow(1.5))
    cluster.configure(goes="n1", to="n3", steering="exact")
    await soon(lambda: met)
    await standby.ended()
    await gone(cluster)
    await soon(lambda: "" not in webs(cluster))
    assert webs(cluster) == ["n3", "n3"]


async def test_a_new_leader_begins_with_an_empty_map_and_no_gates(cluster: Cluster, start: Start) -> None:
    policy(cluster, **{"uid-web": "n9"})
    seen = more(cluster)
    gated(cluster, by="other")
    cluster.configure(steering="exact")
    start()
    await soon(lambda: data(cluster) == {} and left(cluster) == [])
    assert seen.most < 3


@pytest.mark.parametrize("to", [{"steering": "taints"}, {"steering": "off"}, {"steering": "exact", "on": False}])
async def test_switched_off_on_the_way_it_leaves_no_entry_and_no_gate(cluster: Cluster, start: Start, to: Json) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(goes="n1", to="n3", steering="exact")
    start()
    await soon(lambda: {"uid-web": "n3"} in seen.data)
    cluster.configure(**{"goes": "n1", "to": "n3", **to})
    await gone(cluster)
    await soon(lambda: data(cluster) == {} and left(cluster) == [])
    assert seen.most < 5


async def test_a_stop_on_the_way_leaves_no_entry_and_no_gate(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(goes="n1", to="n3", steering="exact")
    process = start()
    await soon(lambda: {"uid-web": "n3"} in seen.data)
    await process.ended()
    assert data(cluster) == {}
    await asyncio.sleep(3)
    assert left(cluster) == []
    assert cluster.holder == ""


async def test_a_lost_lease_leaves_no_entry_and_no_gate(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(goes="n1", to="n3", steering="exact")
    process = start()
    met = when(process, nominates, Slow(30.0))
    await soon(lambda: met)
    cluster.api.edit("Lease", "toy", lambda raw: raw["spec"].update(holderIdentity="somebody"), "default")
    await soon(lambda: left(cluster) == [])
    await soon(lambda: data(cluster) == {})
    assert seen.most < 9


async def test_a_dry_run_does_none_of_this(cluster: Cluster, start: Start) -> None:
    policy(cluster, **{"uid-web": "n9"})
    more(cluster)
    gated(cluster, by="other")
    cluster.configure(goes="n1", to="n3", steering="taints")
    process = start(dry_run=True)
    await process.passes(12)
    assert cluster.writes() == []
    assert left(cluster) == ["orphan"]


async def test_a_dry_run_removes_the_gates_of_its_own_installation(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(goes="n1", to="n3", steering="exact")
    live = start()
    met = when(live, nominates, Slow(600.0))
    await soon(lambda: met)
    live.killed()
    start(dry_run=True)
    await soon(lambda: left(cluster) == [] and data(cluster) == {})
    await soon(lambda: cluster.holder == "")


async def test_two_controllers_lead_pods_by_a_map_each_and_leave_each_others_alone(
    cluster: Cluster, start: Start
) -> None:
    policy(cluster)
    policy(cluster, name="other-landings")
    seen = more(cluster)
    cluster.configure(goes="", to="n3", steering="exact")
    cluster.api.configure("other-config", {"steering": "exact"})
    process = start()
    other = start("node-other", config_map="other-config", lease_name="other", landings="other-landings")
    await process.passes()
    await other.passes()
    when(process, nominates, Slow(1.5))
    cluster.configure(goes="n1", to="n3", steering="exact")
    await gone(cluster)
    await soon(lambda: "" not in webs(cluster))
    assert webs(cluster) == ["n3", "n3"], "the other did not remove the gate before the nomination"
    assert 1.5 <= seen.most < 4
    assert not [each for each in cluster.api.did if ungates(each.call) and each.call.client == other.name]


async def test_a_stateful_pod_lands_under_its_own_name(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    more(cluster)
    by = controller("StatefulSet", "db")
    cluster.api.add(owner("StatefulSet", "db", 2), *(known_pod(f"db-{number}", on="n2", owner=by) for number in (0, 1)))
    cluster.configure(goes="n2", to="n3", steering="exact")
    process = start()
    await gone(cluster, "n2")
    await soon(lambda: process.value("tightship_landings_total", result="target") == 2)
    assert {name for name in cluster.api.on("n3") if "db" in name} == {"shop/db-0", "shop/db-1"}


async def test_drains_side_by_side_share_one_entry_each_owner_once(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    by = controller("ReplicaSet", "api")
    cluster.api.add(node("n4"), owner("ReplicaSet", "api", 2))
    cluster.api.add(*(known_pod(f"api-{number}", on="n4", owner=by) for number in (0, 1)))
    cluster.configure(goes="n1 n4", to="n3", steering="exact", at_once="2", settleTime="5")
    process = start()
    await gone(cluster)
    await gone(cluster, "n4")
    await soon(lambda: process.value("tightship_landings_total", result="target") == 4)
    assert {"uid-api": "n3", "uid-web": "n3"} in seen.data
    assert len(seen.data) <= 6
    assert seen.most < 2


async def test_a_node_where_pods_should_land_is_not_claimed_meanwhile(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    more(cluster)
    cluster.api.add(node("n4"))
    cluster.api.refuse = BUDGET
    cluster.configure(goes="n1", to="n3", steering="exact", at_once="3")
    start()
    await soon(lambda: cluster.phase() is Phase.EVICTING)
    cluster.configure(goes="n3 n4", to="n2", steering="exact", at_once="3")
    await gone(cluster, "n4")
    assert cluster.phase("n3") is None
    cluster.api.refuse = None
    await gone(cluster)
    await soon(lambda: cluster.phase("n3") is not None)


async def test_pods_of_which_the_policy_did_not_hear_land_anywhere_and_end_the_wait(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy(cluster)
    seen = more(cluster)
    monkeypatch.setattr(cluster.api.store.landings, "admitted", lambda made: made)
    cluster.configure(goes="n1", to="n3", steering="exact")
    process = start()
    await gone(cluster)
    await soon(lambda: process.value("tightship_landings_total", result="elsewhere") == 2)
    await soon(lambda: data(cluster) == {})
    assert seen.most == 0


async def test_exact_landings_make_any_possible_place_do(cluster: Cluster, start: Start) -> None:
    cluster.configure(steering="exact")
    process = start()
    await process.passes()
    assert process.last is not None
    assert process.last.plan.placement == "likely"
    policy(cluster)
    await soon(lambda: process.last is not None and process.last.plan.placement == "possible")
    cluster.configure(steering="exact", placement="certain")
    await soon(lambda: process.last is not None and process.last.plan.placement == "certain")
    cluster.configure(steering="hints")
    await soon(lambda: process.last is not None and process.last.plan.placement == "likely")


async def test_a_gate_that_may_not_be_removed_is_said_with_what_to_do(
    cluster: Cluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    gated(cluster, by="other")
    process = start()
    when(process, ungates, Answer(403, "Forbidden", "no"))
    await soon(lambda: "gate of pod shop/orphan can't be removed" in caplog.text)
    await process.passes(30)
    [told] = (await status(process))["problems"]
    assert "kubectl -n shop patch pod orphan -p '" in told
    assert caplog.text.count("can't be removed") == 1
    process.api.hooks.clear()
    await soon(lambda: left(cluster) == [])
    await process.passes()
    assert "problems" not in await status(process)


async def test_who_may_not_remove_gates_has_no_more_pods_gated(
    cluster: Cluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    policy(cluster)
    seen = more(cluster)
    gated(cluster, by="other")
    process = start()
    when(process, ungates, Answer(403, "Forbidden", "no"))
    await soon(lambda: "gate of pod shop/orphan can't be removed" in caplog.text)
    cluster.configure(goes="n1", to="n3", steering="exact")
    await gone(cluster)
    assert any(seen.data) is False
    assert left(cluster) == ["orphan"]
    assert any("may not remove scheduling gates" in each for each in (await status(process))["problems"])
    process.api.hooks.clear()
    await soon(lambda: left(cluster) == [])
    await process.passes()
    assert "problems" not in await status(process)


async def test_a_release_leaves_no_entry_and_no_gate(cluster: Cluster, start: Start) -> None:
    """As the charts' Job does when a release is uninstalled whose leader was killed."""
    policy(cluster, **{"uid-web": "n3"})
    more(cluster)
    gated(cluster, by="other")
    cluster.configure(goes="n1", to="n3", steering="exact")
    process = start(release=True)
    await soon(process.task.done)
    assert data(cluster) == {}
    assert left(cluster) == []
    assert cluster.holder == ""
    assert cluster.phase() is None


KILLS: dict[str, Callable[[Call], bool]] = {
    "the entry": lambda call: to_map(call) and call.verb == "PATCH",
    "an eviction": lambda call: call.path.endswith("/eviction"),
    "a nomination": nominates,
    "an ungating": ungates,
}


@pytest.mark.parametrize("standby", [True, False], ids=["standby", "alone"])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("what", list(KILLS))
async def test_killed_at_any_write_no_pod_stays_gated(
    cluster: Cluster, start: Start, what: str, done: bool, standby: bool
) -> None:
    """With a standby nobody waits for 20 seconds; one replica alone makes up for it when it starts again."""
    policy(cluster)
    seen = more(cluster)
    cluster.configure(goes="", to="n3", steering="exact")
    first = start()
    await soon(lambda: cluster.holder == first.settings.identity)
    await first.passes()
    if standby:
        await start().passes()
    met = when(first, KILLS[what], UNHEARD if done else LOST, times=1)
    cluster.configure(goes="n1", to="n3", steering="exact")
    await soon(lambda: met)
    first.killed()
    if not standby:
        await asyncio.sleep(60)
        again = cluster.api.now
        start()
        await soon(lambda: left(cluster) == [])
        assert cluster.api.now - again < 30
    await gone(cluster)
    await soon(lambda: left(cluster) == [] and data(cluster) == {})
    await soon(lambda: len(webs(cluster)) == 2 and "" not in webs(cluster))
    if standby:
        assert seen.most < 20
