"""The process of a controller of nodes: how it ends, what its passes pass on, and what it says."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from tightship.cluster import ClusterState
from tightship.draining.ledger import Edit, Ledger
from tightship.objects.drain_record import Phase
from tightship.planning import savings
from tightship_simulator.virtual.process import PROCESS
from tightship_testkit.simulated import BUDGET, until

from .conftest import Start
from .toy import NAME, PRICE, Cluster

pytestmark = pytest.mark.virtual_time


async def test_a_stop_parks_drains_and_takes_soft_taints_off_before_the_lease_is_given_up(
    cluster: Cluster, start: Start
) -> None:
    cluster.api.refuse = BUDGET
    cluster.configure(goes="n1 n2")
    process = start()
    await until(lambda: cluster.phase() is Phase.EVICTING and "n2" in cluster.soft())
    await process.ended()
    assert cluster.phase() is Phase.EVICTING, "for the next leader"
    assert cluster.soft() == []
    assert cluster.holder == ""
    assert cluster.writes()[-1].endswith("/leases/toy")
    assert not process.runtime.crashed


async def test_a_stop_gives_a_node_back_that_was_only_claimed(cluster: Cluster, start: Start) -> None:
    cluster.configure(goes="n1", settleTime="1h")
    process = start()
    await until(lambda: cluster.phase() is Phase.CLAIMED)
    await process.ended()
    assert cluster.phase() is Phase.BACKOFF
    assert not (cluster.api.node() or {})["spec"].get("unschedulable")
    assert cluster.claimed() == "[]"
    assert cluster.writes()[-1].endswith("/leases/toy")


async def test_the_next_process_goes_on_with_what_was_parked(cluster: Cluster, start: Start) -> None:
    cluster.api.refuse = BUDGET
    cluster.configure(goes="n1")
    first = start()
    await until(lambda: cluster.phase() is Phase.EVICTING)
    await first.ended()
    cluster.api.refuse = None
    start()
    await until(lambda: cluster.api.node() is None)
    await until(lambda: cluster.claimed() == "[]")


@pytest.mark.parametrize("draining", [False, True])
async def test_a_cache_that_crashes_ends_the_process_at_once_with_an_error(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, draining: bool
) -> None:
    cluster.api.refuse = BUDGET
    cluster.configure(goes="n1", held="" if draining else "n1")
    process = start(interval=3600)
    await until(lambda: cluster.phase() is Phase.EVICTING if draining else cluster.soft() == ["n1"])

    upsert = ClusterState.upsert

    def defect(*arguments: Any) -> None:
        if PROCESS.get() is process.process:
            raise ZeroDivisionError("defect")
        upsert(*arguments)  # of the scheduler

    monkeypatch.setattr(ClusterState, "upsert", defect)
    cluster.api.edit_node("n2", lambda raw: raw["metadata"].update(labels={"changed": "yes"}))
    await until(process.task.done)
    await process.task
    await process.runtime.close()
    assert process.runtime.crashed
    [reported] = [each.getMessage() for each in caplog.records if each.levelno == logging.CRITICAL]
    assert reported.startswith(f"{NAME} ended: reflector of nodes ended: ")
    assert "trying again" not in caplog.text
    assert cluster.holder == ""
    assert cluster.phase() is (Phase.EVICTING if draining else None)


async def test_what_ended_lately_and_the_brake_reach_the_judgement(cluster: Cluster, start: Start) -> None:
    cluster.configure(goes="n1")
    process = start()
    await until(lambda: cluster.api.node() is None and cluster.claimed() == "[]")
    await until(lambda: process.last is not None and process.last.history.finished)
    [finished] = process.last.history.finished
    assert (finished.node, finished.controller, finished.pool, finished.ending) == ("n1", NAME, "pool", "handed_over")
    assert process.last.unhealthy is None
    cluster.configure(goes="n2", maximumNotReadyNodeCount="0", maximumNotReadyNodePercentage="0")
    cluster.api.edit_node("n2", lambda raw: raw["status"]["conditions"][0].update(status="False"))
    await until(lambda: process.last is not None and process.last.unhealthy is not None)
    await process.passes()
    assert cluster.phase("n2") is None
    assert process.value("tightship_cluster_unhealthy") == 1


async def test_everything_is_told_under_the_controllers_name(
    cluster: Cluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster.configure(goes="n1")
    process = start()
    await until(lambda: cluster.api.node() is None and cluster.claimed() == "[]")
    await until(cluster.api.events)
    assert {each["reportingController"] for each in cluster.api.events()} == {f"tightship.dev/{NAME}"}
    assert process.value("tightship_build_info", controller=NAME, version="0.7") == 1
    assert process.value("tightship_drains_total", ending="handed_over", reason="") == 1
    assert process.value("tightship_claims_total", result="claimed") == 1
    assert {"judged", "plans to remove", "claimed"} <= {
        each.getMessage() for each in caplog.records if each.name == "node_toy"
    }
    await until(lambda: process.value("toy_nodes") == 1)


async def test_what_drains_have_saved_survives_the_process(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savings, "SETTLES", 20.0)
    cluster.configure(goes="n1")
    first = start()
    await until(lambda: cluster.api.node() is None and cluster.claimed() == "[]")
    least = PRICE * savings.SETTLES / 3600
    await until(lambda: first.value("tightship_saved_money", pool="pool", currency="USD") >= least)
    reported = json.loads((await first.get("/status"))[1])["saved"]
    assert [(each["pool"], list(each["micros"])) for each in reported] == [("pool", ["USD"])]
    assert "saved so far" in (await first.get("/"))[1]
    before = first.value("tightship_saved_node_hours", pool="pool")
    first.killed()
    second = start()
    await until(lambda: second.value("tightship_saved_node_hours", pool="pool") > before)


async def test_the_page_has_what_the_controller_adds(start: Start) -> None:
    process = start()
    await process.passes()
    status, page = await process.get("/")
    assert status == 200
    assert "toys" in page
    assert '"kind": "ToyStatus"' in (await process.get("/status"))[1]
    assert (await process.get("/readyz"))[0] == 200


async def test_a_drain_that_waits_goes_by_the_times_of_a_new_configuration(cluster: Cluster, start: Start) -> None:
    cluster.configure(goes="n1", settleTime="1h")
    process = start()
    await until(lambda: cluster.phase() is Phase.CLAIMED)
    await process.passes(2)
    assert cluster.phase() is Phase.CLAIMED
    cluster.configure(goes="n1", settleTime="0")
    await until(lambda: cluster.api.node("n1") is None)


async def test_nothing_is_claimed_while_the_end_of_a_drain_is_not_in_the_history(
    cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What pauses after drains is judged by the history."""
    write, change = asyncio.Event(), Ledger.change

    async def late(self: Ledger, *edits: Edit, linger: float = 0.0) -> None:
        if linger:
            await write.wait()
        await change(self, *edits)

    monkeypatch.setattr(Ledger, "change", late)
    cluster.configure(goes="n1 n2")
    process = start()
    await until(lambda: cluster.api.node() is None)
    await process.passes(3)
    assert cluster.phase("n2") is None
    write.set()
    await until(lambda: cluster.phase("n2") is not None)
    assert [each.node for each in process.last.history.finished] == ["n1"]
