"""A controller of nodes that is switched off and on, and what it writes in a dry run."""

from __future__ import annotations

import json
import logging

import pytest
from drain.conftest import OTHERS

from tightship.objects.drain_record import DRAIN_ANNOTATION, FIELD_MANAGER, DrainRecord, Phase, encode_record
from tightship_testkit.builders import autoscaler
from tightship_testkit.simulated import BUDGET, until

from .conftest import Start
from .toy import NAME, Cluster, Json

pytestmark = pytest.mark.virtual_time

SOFT = {"key": "tightship.dev/candidate", "value": NAME, "effect": "PreferNoSchedule"}


def left_behind(cluster: Cluster, phase: Phase, controller: str = NAME) -> None:
    """Leave a drain of n1 as a process that was killed does."""
    record = DrainRecord(phase=phase, controller=controller, op="old", holder="gone", epoch=1, since={"Claimed": 1.0})

    def edit(raw: Json) -> None:
        raw["metadata"]["annotations"] = {DRAIN_ANNOTATION: encode_record(record)}
        taint = {"key": "tightship.dev/draining", "value": "old", "effect": "NoSchedule"}
        raw["spec"] = {"unschedulable": True, "taints": [OTHERS, taint]}

    cluster.api.edit_node("n1", edit, manager=FIELD_MANAGER)


async def test_switched_on_it_notes_steers_claims_and_drains(cluster: Cluster, start: Start) -> None:
    cluster.api.refuse = BUDGET
    cluster.configure(goes="n1 n2", note="n2")
    process = start()
    await until(lambda: cluster.phase() is Phase.EVICTING)
    await until(lambda: cluster.noted() == ["n2"])
    await until(lambda: cluster.soft() == ["n1", "n2"])
    assert cluster.holder == process.settings.identity
    assert cluster.phase("n2") is None, "one node of the cluster at a time"
    cluster.api.refuse = None
    cluster.api.edit_node("n2", lambda raw: raw["spec"].update(unschedulable=True))
    await until(lambda: cluster.api.node("n1") is None)
    await until(lambda: cluster.claimed() == "[]")


async def test_off_from_the_start_it_judges_and_writes_nothing_at_all(cluster: Cluster, start: Start) -> None:
    cluster.configure(on=False, goes="n1", note="n1")
    process = start()
    await process.passes(5)
    cluster.configure(on="perhaps", goes="n1")
    await process.passes(5)
    status = json.loads((await process.get("/status"))[1])
    page = (await process.get("/"))[1]
    await process.ended()
    assert cluster.writes() == []
    assert status["switchedOff"] is True
    assert [each["name"] for each in status["plan"]["nodes"] if each["order"] is not None] == ["n1"]
    assert "Switched off: drains under way end, and no new drain begins." in page


async def test_switched_on_later_it_begins(cluster: Cluster, start: Start) -> None:
    cluster.configure(on=False, goes="n1")
    process = start()
    await process.passes()
    cluster.configure(on=True, goes="n1")
    await until(lambda: cluster.api.node("n1") is None)
    assert "switchedOff" not in json.loads((await process.get("/status"))[1])


async def test_switched_off_it_takes_its_soft_taints_off_and_gives_the_lease_up(cluster: Cluster, start: Start) -> None:
    cluster.configure(goes="n1", held="n1")
    process = start()
    await until(lambda: cluster.soft() == ["n1"])
    cluster.configure(on=False, goes="n1", held="n1", note="n1")
    await until(lambda: cluster.holder == "")
    assert cluster.soft() == []
    assert cluster.noted() == []
    written = cluster.writes()
    await process.passes(5)
    assert cluster.writes() == written


async def test_a_soft_taint_that_the_cache_has_not_seen_yet_is_taken_off_too(cluster: Cluster, start: Start) -> None:
    process = start()
    await process.passes()
    cluster.api.freeze("Node")
    cluster.configure(goes="n1", held="n1")
    await until(lambda: cluster.soft() == ["n1"])
    cluster.configure(on=False, goes="n1", held="n1")
    await until(lambda: cluster.holder == "")
    assert cluster.soft() == []


async def test_switched_off_a_drain_under_way_is_handed_over_before_the_lease_is_given_up(
    cluster: Cluster, start: Start
) -> None:
    cluster.api.refuse = BUDGET
    cluster.configure(goes="n1 n2")
    process = start()
    await until(lambda: cluster.phase() is Phase.EVICTING)
    cluster.configure(on=False, goes="n1 n2")
    await process.passes(5)
    assert cluster.holder == process.settings.identity
    assert cluster.phase() is Phase.EVICTING
    cluster.api.refuse = None
    await until(lambda: cluster.api.node("n1") is None)
    await until(lambda: cluster.holder == "")
    assert cluster.claimed() == "[]"
    assert cluster.phase("n2") is None
    assert cluster.writes()[-1].endswith("/leases/toy")


async def test_switched_off_a_drain_that_fails_is_restored_before_the_lease_is_given_up(
    cluster: Cluster, start: Start
) -> None:
    cluster.api.refuse = BUDGET
    cluster.configure(goes="n1", podEvictionTimeout="1s")
    process = start()
    await until(lambda: cluster.phase() is Phase.EVICTING)
    cluster.configure(on=False, goes="n1", podEvictionTimeout="1s")
    await until(lambda: cluster.phase() is Phase.BACKOFF)
    await until(lambda: cluster.holder == "")
    raw = cluster.api.node()
    assert not raw["spec"].get("unschedulable")
    assert raw["spec"]["taints"] == [OTHERS]
    await process.ended()


@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.EVICTING, Phase.RESTORING])
async def test_off_from_the_start_what_was_left_behind_is_brought_to_its_end(
    cluster: Cluster, start: Start, phase: Phase
) -> None:
    left_behind(cluster, phase)
    cluster.configure(on=False, goes="n2")
    start()
    await until(lambda: cluster.holder == "")
    assert cluster.phase() is Phase.BACKOFF if phase is Phase.RESTORING else cluster.api.node() is None
    assert cluster.phase("n2") is None
    assert cluster.claimed() == "[]"


@pytest.mark.parametrize("elects", [True, False])
@pytest.mark.parametrize("left", ["a drain", "a taint", "a claim"])
async def test_off_what_others_have_left_is_none_of_its_business(
    cluster: Cluster, start: Start, left: str, elects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How long an orphan is watched first is another test's business.
    monkeypatch.setattr("tightship.draining.drain_manager.ORPHAN_WATCHED", 0.0)
    long_ago = "2020-01-01T00:00:00Z"
    match left:
        case "a drain":
            left_behind(cluster, Phase.EVICTING, controller="node-sibling")
        case "a taint":
            taint = {"key": "tightship.dev/draining", "value": "old", "effect": "NoSchedule"}
            cluster.api.edit_node("n1", lambda raw: raw.update(spec={"unschedulable": True, "taints": [OTHERS, taint]}))
        case "a claim":
            claim = {"node": "n1", "op": "x", "controller": "node-sibling", "holder": "h", "since": long_ago}
            notes = {"tightship.dev/claims": json.dumps([claim])}
            cluster.api.add(ledger(notes))
    cluster.configure(on=False)
    process = start(leader_elect=elects)
    await process.passes(5)
    cluster.configure(on=False, goes="n2")
    await process.passes()
    assert cluster.writes() == []
    cluster.configure(on=True)
    await until(lambda: any("/nodes/n1" in each for each in cluster.writes()) and cluster.claimed() == "[]")


async def test_a_controller_that_keeps_its_claims_elsewhere_is_told_in_log_page_status_and_metric(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tightship.draining.drain_manager.ELSEWHERE_WATCHED", 0.0)
    left_behind(cluster, Phase.EVICTING, controller="node-sibling")
    cluster.configure(on=True)
    process = start()
    await until(lambda: process.value("tightship_drains_claimed_elsewhere") == 1)
    await process.passes()
    detail = "node-sibling drains node n1 without a claim in Lease kube-system/tightship-claims"
    status, page = (await process.get("/status"))[1], (await process.get("/"))[1]
    assert any(each.startswith(detail) for each in json.loads(status)["problems"])
    assert detail in page
    [warned] = [each for each in caplog.records if "keeps its claims in another Lease" in each.getMessage()]
    assert warned.levelno == logging.WARNING
    # Who leads no more knows nothing of claims.
    cluster.configure(on=False)
    await until(lambda: process.value("tightship_drains_claimed_elsewhere") == 0)


async def test_off_a_standby_ends_what_the_leader_that_was_killed_had_begun(cluster: Cluster, start: Start) -> None:
    cluster.api.refuse = BUDGET
    cluster.configure(goes="n1")
    first = start()
    await until(lambda: cluster.phase() is Phase.EVICTING)
    cluster.configure(on=False, goes="n1")
    second = start()
    await second.passes()
    first.killed()
    cluster.api.refuse = None
    await until(lambda: cluster.api.node("n1") is None)
    await until(lambda: cluster.holder == "")
    assert cluster.claimed() == "[]"


async def test_a_ledger_that_may_not_be_read_is_no_trouble_while_off(cluster: Cluster, start: Start) -> None:
    cluster.configure(on=False, goes="n1")
    process = start()
    await process.passes()
    cluster.api.add(ledger({"tightship.dev/claims": "no list"}))
    await process.passes()
    assert process.value("tightship_loop_failures_total") == 0


def ledger(notes: Json) -> Json:
    meta = {"name": "tightship-claims", "namespace": "kube-system", "annotations": notes}
    return {"kind": "Lease", "metadata": meta, "spec": {}}


async def test_a_dry_run_writes_nothing_whatever_it_finds(cluster: Cluster, start: Start) -> None:
    left_behind(cluster, Phase.EVICTING)
    cluster.api.edit_node("n2", lambda raw: raw["spec"].update(taints=[SOFT]))
    cluster.configure(goes="n2", note="n2", settleTime="never")
    process = start(dry_run=True)
    await process.passes()
    cluster.configure(goes="n2", note="n2")
    await process.passes()
    cluster.configure(on=False, goes="n2", note="n2")
    await process.passes()
    await process.ended()
    assert cluster.writes() == []
    assert cluster.api.events() == []
    assert not cluster.api.asked("Lease"), "with the right to read nodes and pods it is content"
    assert (cluster.api.node("n2") or {})["spec"]["taints"] == [SOFT]


async def test_hpas_are_read_only_while_room_is_kept_for_their_replicas(cluster: Cluster, start: Start) -> None:
    cluster.api.add(autoscaler(3))
    cluster.configure(scaleUpVeto=False)
    process = start()
    await process.passes(3)
    assert not cluster.api.asked("HorizontalPodAutoscaler")
    cluster.configure(scaleUpVeto=True)
    await until(lambda: process.last is not None and list(process.last.snapshot.autoscalers) == ["shop/web"])
    cluster.configure(scaleUpVeto=False)
    await until(lambda: process.last is not None and not process.last.snapshot.autoscalers)
