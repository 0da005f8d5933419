"""Evicted pods that are led to the nodes of the plan, as processes do it on a cluster with the charts' policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from drain.conftest import TOLERATIONS, known_pod, owner

from tightship.landing.controller import POLICY_ANNOTATION
from tightship.objects.drain_record import Phase
from tightship.objects.node import LEAVING
from tightship_simulator.api.landing import drawn
from tightship_testkit.builders import controller, node
from tightship_testkit.faults import Answer, Call, Fault, Slow
from tightship_testkit.simulated import BUDGET, LOST, UNHEARD, until

from .conftest import Start
from .toy import Cluster, Process

pytestmark = pytest.mark.virtual_time

Json = dict[str, Any]

MAP = "tightship-landings"


class Seen:
    """What the ConfigMap has said, which nodes carried the label at each eviction, and how long pods had no node."""

    def __init__(self, cluster: Cluster) -> None:
        self._api = cluster.api
        self.data: list[Json] = []
        self.evicted_under: list[list[str]] = []
        self._since: dict[str, float] = {}
        self._longest = 0.0
        cluster.api.store.listeners.append(lambda change, _: self._described(change.type, change.object))

    def _described(self, kind: str, thing: Json) -> None:
        meta = thing["metadata"]
        if thing["kind"] == "ConfigMap" and meta["name"] == MAP:
            self.data.append(dict(thing.get("data") or {}))
        if thing["kind"] != "Pod":
            return
        if kind == "MODIFIED" and meta.get("deletionTimestamp") and thing["spec"].get("nodeName"):
            self.evicted_under.append(leaving_nodes(self._api.store))
        if kind != "DELETED" and not thing["spec"].get("nodeName"):
            self._since.setdefault(meta["uid"], self._api.now)
        elif meta["uid"] in self._since:
            self._longest = max(self._longest, self._api.now - self._since.pop(meta["uid"]))

    @property
    def most(self) -> float:
        """The longest time for which a pod had no node, those that have none now included."""
        return max([self._longest, *(self._api.now - since for since in self._since.values())])


def leaving_nodes(store: Any) -> list[str]:
    """The nodes with a label of ours."""
    return sorted(
        each["metadata"]["name"]
        for each in store.list("Node")
        if each["metadata"].get("labels", {}).get(LEAVING, "").startswith("node-toy")
    )


def leaving(cluster: Cluster) -> list[str]:
    return leaving_nodes(cluster.api.store)


def policy(cluster: Cluster, said: str | None = "hints/2", *, name: str = MAP, **data: str) -> None:
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


def unlabels(call: Call) -> bool:
    return call.verb == "PATCH" and "/nodes/" in call.path and b'"tightship.dev/leaving":null' in call.body


def labels(call: Call) -> bool:
    return call.verb == "PATCH" and "/nodes/" in call.path and b'"tightship.dev/leaving":"' in call.body


LED = {"goes": "n1", "to": "n3", "steering": "hints"}


async def test_evicted_pods_land_where_the_plan_wants_them(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(**LED)
    process = start()
    await gone(cluster)
    await soon(lambda: process.value("tightship_landings_total", result="target") == 2)
    assert webs(cluster) == ["n3", "n3"]
    assert {"uid-web": "n3"} in seen.data
    await soon(lambda: data(cluster) == {})
    await process.passes(1)
    reported = await status(process)
    assert reported["landings"] == {"mode": "hints", "target": 2}
    assert "100.0 %" in (await process.get("/"))[1]
    assert not any("/pods/" in each.call.path and each.call.verb == "PATCH" for each in cluster.api.proxy.log)


async def test_without_steering_they_land_where_the_scheduler_likes(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(goes="n1", to="n3")
    process = start()
    await gone(cluster)
    assert webs(cluster) == ["n2", "n2"]
    assert seen.data == []
    assert "landings" not in await status(process)
    assert not any(to_map(each.call) or labels(each.call) for each in cluster.api.proxy.log)


async def test_all_nodes_of_the_plan_are_labelled_before_the_first_eviction(cluster: Cluster, start: Start) -> None:
    """In the same patch as the soft taint. A node in drain keeps the label until it goes."""
    policy(cluster)
    seen = more(cluster)
    cluster.api.add(node("n4"))
    cluster.configure(**{**LED, "goes": "n1 n2 n4"})
    start()
    await soon(lambda: seen.evicted_under)
    assert seen.evicted_under[0] == ["n1", "n2", "n4"]
    patches = [each.call for each in cluster.api.did if labels(each.call)]
    assert len(patches) == 3
    assert all(b"tightship.dev/candidate" in each.body for each in patches)


@pytest.mark.parametrize(
    "to",
    [
        {"goes": ""},
        {"steering": "taints"},
        {"steering": "off"},
        {"on": False},
        {"maximumCandidateTaints": "0", "goes": ""},
    ],
    ids=["they may stay", "taints", "off", "switched off", "only labels"],
)
async def test_labels_go_with_what_they_stand_for(cluster: Cluster, start: Start, to: Json) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(**LED, held="yes")
    start()
    await soon(lambda: leaving(cluster) == ["n1"])
    cluster.configure(**{**LED, "held": "yes", **to})
    await soon(lambda: leaving(cluster) == [])


async def test_a_stop_takes_labels_off_and_so_does_a_release_after_a_kill(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(**LED, held="yes")
    process = start()
    await soon(lambda: leaving(cluster) == ["n1"])
    await process.ended()
    assert leaving(cluster) == []
    process = start()
    await soon(lambda: leaving(cluster) == ["n1"])
    process.killed()
    release = start(release=True)
    await soon(release.task.done)
    assert leaving(cluster) == []
    assert cluster.holder == ""


async def test_a_stop_takes_labels_off_nodes_that_others_write_in_the_same_moment(
    cluster: Cluster, start: Start
) -> None:
    """At an uninstall both controllers of nodes take their marks off the same nodes."""
    policy(cluster)
    more(cluster)
    cluster.configure(**LED, held="yes")
    process = start()
    await soon(lambda: leaving(cluster) == ["n1"])
    met = when(process, unlabels, Answer(409, "Conflict", "the node has changed"), times=2)
    await process.ended()
    assert met
    assert leaving(cluster) == []


@pytest.mark.parametrize("mine", [True, False], ids=["its own", "of another installation"])
async def test_a_dry_run_takes_off_the_labels_of_its_own_installation(
    cluster: Cluster, start: Start, mine: bool
) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(**LED, held="yes")
    live = start(lease_name="toy" if mine else "other")
    await soon(lambda: leaving(cluster) == ["n1"])
    live.killed()
    dry = start(dry_run=True)
    if mine:
        await soon(lambda: leaving(cluster) == [] and cluster.holder == "")
    else:
        await dry.passes(30)
        assert leaving(cluster) == ["n1"]


async def test_the_next_leader_takes_off_labels_that_its_plan_does_not_want(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(**LED, held="yes")
    first = start()
    await soon(lambda: leaving(cluster) == ["n1"])
    first.killed()
    cluster.configure(**{**LED, "goes": "n2"}, held="yes")
    start()
    await soon(lambda: leaving(cluster) == ["n2"])


async def test_a_label_of_somebody_else_stays_and_is_told_once(
    cluster: Cluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.api.edit("Node", "n3", lambda raw: raw["metadata"].setdefault("labels", {}).update({LEAVING: "mine"}))
    cluster.configure(**LED)
    process = start()
    await gone(cluster)
    await process.passes()
    assert cluster.api.node("n3")["metadata"]["labels"][LEAVING] == "mine"
    assert all(each == {} for each in seen.data), "its pods are led to no such node"
    [reported] = [each for each in caplog.messages if each.startswith("Somebody else labelled nodes")]
    assert "n3 ('mine')" in reported
    assert reported in (await status(process))["problems"]
    assert seen.most < 2


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "has no annotation tightship.dev/landing-policy"),
        ("hints/1", "says that the admission policy is 'hints/1', not hints/2"),
        (None, "ConfigMap default/tightship-landings does not exist"),
    ],
    ids=["none noted", "an older one", "below 1.36"],
)
async def test_without_a_policy_that_fits_soft_taints_steer_alone_and_one_line_says_so(
    cluster: Cluster, start: Start, caplog: pytest.LogCaptureFixture, said: str | None, why: str
) -> None:
    if said is not None:
        policy(cluster, said)
    seen = more(cluster)
    cluster.configure(**{**LED, "goes": "n1 n2"})
    process = start()
    await gone(cluster)
    await process.passes()
    assert [each for each in caplog.messages if "soft taints steer alone" in each and why in each]
    assert len([each for each in caplog.messages if "soft taints steer alone" in each]) == 1
    reported = await status(process)
    assert why in reported["problems"][0]
    assert why in reported["landings"]["problem"]
    assert all(each == {} for each in seen.data)
    assert not any(labels(each.call) for each in cluster.api.did)


async def test_a_policy_that_comes_later_is_used_from_then_on(cluster: Cluster, start: Start) -> None:
    more(cluster)
    cluster.configure(**{**LED, "goes": ""})
    process = start()
    await process.passes()
    policy(cluster)
    await process.passes()
    cluster.configure(**LED)
    await gone(cluster)
    assert webs(cluster) == ["n3", "n3"]
    assert "problems" not in await status(process)


async def test_a_map_that_cant_be_written_lets_pods_go_without_a_target(
    cluster: Cluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(**LED)
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
    more(cluster)
    cluster.configure(**{**LED, "goes": ""})
    process = start()
    await process.passes()
    when(process, lambda call: to_map(call) and call.verb == "PATCH", fault)
    cluster.configure(**LED)
    await soon(lambda: cluster.phase() is Phase.EVICTING)
    began = cluster.api.now
    await soon(lambda: len(cluster.api.evicted) == 2)
    assert cluster.api.now - began < 8
    await gone(cluster)


async def test_a_map_that_cant_be_read_for_a_while_leaves_labels_alone(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(**LED, held="yes")
    process = start()
    await soon(lambda: leaving(cluster) == ["n1"])
    when(process, to_map, Answer(503))
    await process.passes(5)
    process.api.hooks.clear()
    await process.passes(5)
    assert leaving(cluster) == ["n1"]
    assert len([each for each in cluster.api.did if labels(each.call) or unlabels(each.call)]) == 1


async def test_a_target_that_goes_meanwhile_gets_nobody(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(**LED, settleTime="1m")
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
    cluster.configure(**LED)
    start()
    await soon(lambda: {"uid-web": "n3"} in seen.data)
    await soon(lambda: data(cluster) == {})
    cluster.api.refuse = None
    await gone(cluster)
    assert webs(cluster).count("n3") == 2


async def test_a_new_leader_begins_with_an_empty_map(cluster: Cluster, start: Start) -> None:
    policy(cluster, **{"uid-web": "n9"})
    cluster.configure(steering="hints")
    start()
    await soon(lambda: data(cluster) == {})


async def test_hand_written_entries_are_removed(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    cluster.configure(steering="hints")
    process = start()
    await process.passes()
    cluster.api.edit("ConfigMap", MAP, lambda raw: raw.update(data={"uid-web": "n9,", "nobody": ""}), "default")
    await soon(lambda: data(cluster) == {})


async def test_a_note_and_marks_of_one_pass_meet_no_conflict(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(**LED, note="n1 n2", held="yes")
    start()
    await soon(lambda: leaving(cluster) == ["n1"])
    told = [each for each in cluster.api.proxy.log if "/nodes/n1" in each.call.path]
    assert [(each.call.verb, each.status) for each in told] == [("PATCH", 200)] * 2


@pytest.mark.parametrize("to", [{"steering": "taints"}, {"steering": "off"}, {"steering": "hints", "on": False}])
async def test_switched_off_on_the_way_it_leaves_no_entry(cluster: Cluster, start: Start, to: Json) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(**LED)
    start()
    await soon(lambda: {"uid-web": "n3"} in seen.data)
    cluster.configure(**{**LED, **to})
    await gone(cluster)
    await soon(lambda: data(cluster) == {} and leaving(cluster) == [])


async def test_a_stop_on_the_way_leaves_no_entry_and_no_label(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(**LED)
    process = start()
    await soon(lambda: {"uid-web": "n3"} in seen.data)
    await process.ended()
    assert (data(cluster), leaving(cluster), cluster.holder) == ({}, [], "")


async def test_a_lost_lease_leaves_no_entry(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    seen = more(cluster)
    cluster.configure(**LED)
    start()
    await soon(lambda: {"uid-web": "n3"} in seen.data)
    cluster.api.edit("Lease", "toy", lambda raw: raw["spec"].update(holderIdentity="somebody"), "default")
    await soon(lambda: data(cluster) == {})


async def test_a_dry_run_does_none_of_this(cluster: Cluster, start: Start) -> None:
    policy(cluster, **{"uid-web": "n9"})
    more(cluster)
    cluster.configure(**LED)
    process = start(dry_run=True)
    await process.passes(12)
    assert cluster.writes() == []


async def test_a_stateful_pod_lands_under_its_own_name(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    more(cluster)
    by = controller("StatefulSet", "db")
    cluster.api.add(owner("StatefulSet", "db", 2), *(known_pod(f"db-{number}", on="n2", owner=by) for number in (0, 1)))
    cluster.configure(**{**LED, "goes": "n2"})
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
    cluster.configure(**{**LED, "goes": "n1 n4"}, at_once="2", settleTime="5s")
    process = start()
    await gone(cluster)
    await gone(cluster, "n4")
    await soon(lambda: process.value("tightship_landings_total", result="target") == 4)
    assert {"uid-api": "n3", "uid-web": "n3"} in seen.data
    assert len(seen.data) <= 6


@pytest.mark.parametrize("goes", ["n1", "n1 n4"], ids=["of one node", "of two nodes"])
async def test_pods_of_one_workload_land_one_on_each_of_their_targets(
    cluster: Cluster, start: Start, goes: str
) -> None:
    policy(cluster)
    seen = more(cluster)
    by = controller("ReplicaSet", "web")
    cluster.api.add(node("n4"), node("n5", cpu="64", memory="64Gi"))
    if "n4" in goes:
        cluster.api.store.modify("ReplicaSet", "web", "shop", lambda each: each["spec"].update(replicas=4))
        cluster.api.add(*(known_pod(f"more-{number}", on="n4", owner=by) for number in (0, 1)))
    cluster.configure(**{**LED, "goes": goes, "to": "n3 n5"}, at_once="2")
    process = start()
    for name in goes.split():
        await gone(cluster, name)
    await soon(lambda: process.value("tightship_landings_total", result="target") == 2 * len(goes.split()))
    assert webs(cluster) == sorted(["n3", "n5"] * len(goes.split()))
    assert {each["uid-web"] for each in seen.data if each} == {"n3", "n5"}


async def test_an_eviction_without_an_answer_holds_others_of_its_workload_up_for_seconds_only(
    cluster: Cluster, start: Start
) -> None:
    policy(cluster)
    more(cluster)
    by = controller("ReplicaSet", "web")
    cluster.api.add(node("n4"), node("n5"), *(known_pod(f"more-{number}", on="n4", owner=by) for number in (0, 1)))
    cluster.api.store.modify("ReplicaSet", "web", "shop", lambda each: each["spec"].update(replicas=4))
    cluster.configure(**{**LED, "goes": "n1 n4", "to": "n3 n5"}, at_once="2")
    met = when(start(), lambda call: call.path.endswith("/eviction"), Slow(25.0), times=1)
    await soon(lambda: met)
    began = cluster.api.now
    await soon(lambda: len(cluster.api.evicted) == 2)
    assert cluster.api.now - began < 10
    await gone(cluster)
    await gone(cluster, "n4")


async def test_a_node_where_pods_should_land_is_not_claimed_meanwhile(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    more(cluster)
    cluster.api.add(node("n4"))
    cluster.api.refuse = BUDGET
    cluster.configure(**LED, at_once="3")
    start()
    await soon(lambda: cluster.phase() is Phase.EVICTING)
    cluster.configure(goes="n3 n4", to="n2", steering="hints", at_once="3")
    await gone(cluster, "n4")
    assert cluster.phase("n3") is None
    cluster.api.refuse = None
    await gone(cluster)
    await soon(lambda: cluster.phase("n3") is not None)


async def test_pods_of_which_the_policy_did_not_hear_land_anywhere_and_end_the_wait(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy(cluster)
    more(cluster)
    monkeypatch.setattr(cluster.api.store.landings, "admitted", lambda made: made)
    cluster.configure(**LED)
    process = start()
    await gone(cluster)
    await soon(lambda: process.value("tightship_landings_total", result="elsewhere") == 2)
    await soon(lambda: data(cluster) == {})


async def test_landings_make_any_possible_place_do(cluster: Cluster, start: Start) -> None:
    cluster.configure(steering="hints")
    process = start()
    await process.passes()
    assert process.last is not None
    assert process.last.plan.placement == "likely"
    policy(cluster)
    await soon(lambda: process.last is not None and process.last.plan.placement == "possible")
    cluster.configure(steering="taints")
    await soon(lambda: process.last is not None and process.last.plan.placement == "likely")


def stuck(cluster: Cluster, **more_of_spec: Any) -> None:
    """Put in a led pod that finds no node: n2 and n3 are full, and n1 leaves."""
    cluster.api.add(owner("ReplicaSet", "much", 2))
    for name, cpu in (("n2", "3500m"), ("n3", "2")):
        cluster.api.add(known_pod(f"full-{name}", on=name, cpu=cpu, owner=controller("ReplicaSet", "much")))
    affinity = drawn(None, ["n3"])
    spec = {"affinity": affinity, "tolerations": TOLERATIONS, **more_of_spec}
    cluster.api.add(owner("ReplicaSet", "late", 1))
    cluster.api.add(known_pod("late", on="", owner=controller("ReplicaSet", "late"), phase="Pending", cpu="1", **spec))


def place(cluster: Cluster, name: str = "late") -> str:
    """The node of the pods of *name* that exist, empty if one has none."""
    pods = [each for each in cluster.api.store.list("Pod") if each["metadata"]["ownerReferences"][0]["name"] == name]
    return min((each["spec"].get("nodeName", "") for each in pods), default="")


async def test_a_led_pod_without_a_node_gets_room_on_the_last_node_of_the_plan_within_two_seconds(
    cluster: Cluster, start: Start
) -> None:
    policy(cluster)
    more(cluster)
    cluster.api.add(node("n4"), node("n5"))
    cluster.configure(**{**LED, "goes": "n1 n4 n5"}, at_once="0")
    process = start()
    await soon(lambda: leaving(cluster) == ["n1", "n4", "n5"])
    seen = Seen(cluster)
    stuck(cluster)
    await soon(lambda: place(cluster))
    assert (place(cluster), leaving(cluster)) == ("n5", ["n1", "n4"])
    assert seen.most < 2.5
    await process.passes(5)
    assert leaving(cluster) == ["n1", "n4"], "the node stays for a while"
    held = (await status(process))["held"]["n5"]
    assert (held["reason"], held["detail"]) == (
        "LandingMissed", "pod shop/late found no node among those that stay",
    )  # fmt: skip


async def test_no_drain_begins_while_a_led_pod_has_no_node(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(**{**LED, "goes": ""})
    process = start()
    await process.passes()
    stuck(cluster, nodeSelector={"no": "where"})
    await soon(lambda: process.api.now and "late" in str(cluster.api.store.list("Pod")))
    cluster.configure(**LED)
    await asyncio.sleep(5)
    assert cluster.phase() is None
    held = (await status(process))["held"]["n1"]
    assert (held["reason"], held["detail"]) == (
        "LandingMissed", "replacements of evicted pods wait for a node: shop/late",
    )  # fmt: skip


async def test_a_pod_that_no_leaving_node_takes_sees_every_label_go_and_is_made_anew_without_the_term(
    cluster: Cluster, start: Start
) -> None:
    """Cluster Autoscaler may know a group by a template that carries the label, and adds no node for the pod."""
    policy(cluster)
    more(cluster)
    cluster.api.add(node("n4"))
    cluster.configure(**{**LED, "goes": "n1 n4"}, held="yes")
    start()
    await soon(lambda: leaving(cluster) == ["n1", "n4"])
    began = cluster.api.now
    stuck(cluster, nodeSelector={"group": "empty"})
    await soon(lambda: leaving(cluster) == [])
    assert cluster.api.now - began < 2.5

    def pods() -> list[Json]:
        named = [each for each in cluster.api.store.list("Pod") if each["metadata"]["name"].startswith("late")]
        return [each for each in named if not each["metadata"].get("deletionTimestamp")]

    await soon(lambda: pods() and all("affinity" not in each["spec"] for each in pods()))
    assert cluster.api.now - began < 20
    assert len(pods()) == 1
    await soon(lambda: leaving(cluster) == ["n1", "n4"])


async def test_a_pod_that_keeps_off_by_its_own_terms_is_nobodys_business(cluster: Cluster, start: Start) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(**LED, held="yes")
    process = start()
    await soon(lambda: leaving(cluster) == ["n1"])
    affinity = drawn(None, ["n3"])
    del affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    stuck(cluster, affinity=affinity)
    await process.passes(20)
    assert leaving(cluster) == ["n1"]
    assert cluster.api.evicted == []


async def test_a_pod_is_made_anew_though_admission_takes_half_a_minute_over_each_label(
    cluster: Cluster, start: Start
) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(**LED, held="yes")
    process = start()
    await soon(lambda: leaving(cluster) == ["n1"])
    when(process, unlabels, Slow(30.0))
    stuck(cluster)
    seen = Seen(cluster)
    await soon(lambda: any("late" in name for name in cluster.api.evicted))
    await soon(lambda: place(cluster))
    assert seen.most < 30
    await soon(lambda: leaving(cluster) == [])


@pytest.mark.parametrize("fault", [LOST, UNHEARD, Answer(500), Answer(409, "Conflict", "no")])
async def test_a_label_whose_removal_fails_is_tried_again(cluster: Cluster, start: Start, fault: Fault) -> None:
    policy(cluster)
    more(cluster)
    cluster.configure(**LED, held="yes")
    process = start()
    await soon(lambda: leaving(cluster) == ["n1"])
    seen = Seen(cluster)
    met = when(process, unlabels, fault, times=1)
    stuck(cluster)
    await soon(lambda: place(cluster) == "n1")
    assert met
    assert seen.most < 6


KILLS: dict[str, Callable[[Call], bool]] = {
    "a label": labels,
    "the entry": lambda call: to_map(call) and call.verb == "PATCH",
    "an eviction": lambda call: call.path.endswith("/eviction"),
    "a label's removal": unlabels,
}


@pytest.mark.parametrize("standby", [True, False], ids=["standby", "alone"])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("what", list(KILLS))
async def test_killed_at_any_write_no_pod_waits_for_a_label(
    cluster: Cluster, start: Start, what: str, done: bool, standby: bool
) -> None:
    """With a standby nobody waits for 20 seconds; one replica alone makes up for it when it starts again."""
    policy(cluster)
    seen = more(cluster)
    cluster.configure(**{**LED, "goes": ""})
    first = start()
    await soon(lambda: cluster.holder == first.settings.identity)
    await first.passes()
    if standby:
        await start().passes()
    met = when(first, KILLS[what], UNHEARD if done else LOST, times=1)
    removal = what == "a label's removal"
    cluster.configure(**LED, held="yes" if removal else "")
    if removal:
        await soon(lambda: leaving(cluster) == ["n1"])
        stuck(cluster)
    await soon(lambda: met)
    first.killed()
    if not standby:
        await asyncio.sleep(60)
        start()
    await soon(lambda: "" not in webs(cluster) and (place(cluster) or not removal))
    if standby:
        assert seen.most < 25
    cluster.configure(goes="", steering="hints")
    await soon(lambda: data(cluster) == {} and leaving(cluster) == [])
