"""A controller of nodes that somebody stops by an annotation on its Lease, at any moment of a drain."""

from __future__ import annotations

import asyncio
import json

import pytest

from tightship.kube.leases import STOP_ANNOTATION
from tightship.objects.drain_record import Phase
from tightship_testkit.faults import Call, Fault
from tightship_testkit.simulated import BUDGET, until

from .conftest import Start
from .toy import LEASE, Cluster, Json

pytestmark = pytest.mark.virtual_time


def annotate(cluster: Cluster, word: str | None) -> None:
    """Do as ``kubectl annotate lease`` does."""

    def edit(lease: Json) -> None:
        notes = lease["metadata"].setdefault("annotations", {})
        notes.pop(STOP_ANNOTATION, None)
        if word is not None:
            notes[STOP_ANNOTATION] = word

    cluster.api.edit("Lease", LEASE, edit, "default")


def begun(cluster: Cluster) -> list[str]:
    """The writes that begin something: those that evict, cordon, taint, label or note."""
    found = []
    for each in cluster.api.did:
        body = json.loads(each.call.body or b"{}") if each.call.verb == "PATCH" else {}
        spec, meta = body.get("spec") or {}, body.get("metadata") or {}
        puts = [value for key in ("labels", "annotations") for value in (meta.get(key) or {}).values() if value]
        drain = (meta.get("annotations") or {}).get("tightship.dev/drain") or ""
        kept = [taint for taint in spec.get("taints") or [] if "tightship" in taint["key"]]
        if each.call.path.endswith("/eviction") or spec.get("unschedulable") or kept or (puts and not drain):
            found.append(f"{each.call.verb} {each.call.path}")
    return found


@pytest.mark.parametrize("word", ["true", "perhaps"])
@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.EVICTING, Phase.DRAINED])
async def test_stopped_it_gives_the_node_back_and_begins_nothing_until_it_is_started(
    cluster: Cluster, start: Start, phase: Phase, word: str
) -> None:
    cluster.api.refuse = BUDGET if phase is Phase.EVICTING else None
    cluster.api.autoscaler = False
    cluster.configure(goes="n1 n2", settleTime="1h" if phase is Phase.CLAIMED else "0s")
    process = start()
    await until(lambda: cluster.phase() is phase)
    await until(lambda: cluster.soft() != [])
    annotate(cluster, word)
    await asyncio.sleep(1)
    assert process.value("tightship_stopped") == 1
    until_now = begun(cluster)
    cluster.configure(goes="n1 n2 n3", note="n2")
    await until(lambda: cluster.phase() is Phase.BACKOFF)
    await process.passes(30)
    assert begun(cluster) == until_now
    assert cluster.soft() == []
    assert cluster.claimed() == "[]"
    node = cluster.api.node() or {}
    assert not node["spec"].get("unschedulable")
    record = cluster.record()
    assert record is not None
    assert record.reason.startswith("Released")
    assert cluster.holder == process.settings.identity, "somebody has to show it"
    start_again = f"kubectl -n default annotate lease {LEASE} {STOP_ANNOTATION}-"
    told = [each for each in json.loads((await process.get("/status"))[1])["problems"] if start_again in each]
    assert len(told) == 1
    assert told[0].startswith(f"node-toy is stopped by {STOP_ANNOTATION} on Lease default/{LEASE}")
    assert ("'perhaps' counts as true, allowed are true and false" in told[0]) is (word == "perhaps")
    assert start_again in (await process.get("/"))[1]
    [event] = [each for each in cluster.api.events() if each["reason"] == "Stopped"]
    assert event["regarding"]["kind"] == "Lease"
    assert start_again in event["note"]

    annotate(cluster, None)
    cluster.api.refuse = None
    await until(lambda: len(begun(cluster)) > len(until_now))
    assert process.value("tightship_stopped") == 0
    assert "Started" in {each["reason"] for each in cluster.api.events()}


async def test_a_claim_that_is_about_to_leave_when_the_stop_is_seen_does_not(cluster: Cluster, start: Start) -> None:
    """Its entry is in the list of claims already, and goes."""
    cluster.configure(goes="n1")
    stopped = asyncio.Event()

    async def hook(call: Call) -> Fault | None:
        entry = b'\\"node\\":\\"n1\\"' in (call.body or b"")
        if not stopped.is_set() and call.verb == "PUT" and call.path.endswith("/tightship-claims") and entry:
            stopped.set()
            annotate(cluster, "true")
            await asyncio.sleep(1)
        return None

    cluster.api.hooks["toy-0"] = hook
    process = start()
    await stopped.wait()
    await process.passes(5)
    assert cluster.phase() is None
    assert cluster.claimed() == "[]"
    annotate(cluster, "false")
    await until(lambda: cluster.api.node("n1") is None)


async def test_stopped_from_the_start_it_begins_nothing_and_the_next_leader_neither(
    cluster: Cluster, start: Start
) -> None:
    meta = {"name": LEASE, "namespace": "default", "annotations": {STOP_ANNOTATION: "true"}}
    cluster.api.add({"kind": "Lease", "metadata": meta, "spec": {}})
    cluster.configure(goes="n1 n2", note="n2")
    first = start()
    await first.passes(10)
    first.killed()
    second = start()
    await until(lambda: cluster.holder == second.settings.identity)
    await second.passes(10)
    assert begun(cluster) == []
    assert {each["reason"] for each in cluster.api.events()} == {"Stopped"}
    assert second.value("tightship_stopped") == 1


async def test_stopped_and_switched_off_it_gives_its_nodes_back_and_then_its_lease(
    cluster: Cluster, start: Start
) -> None:
    cluster.api.refuse = BUDGET
    cluster.configure(goes="n1")
    start()
    await until(lambda: cluster.phase() is Phase.EVICTING)
    annotate(cluster, "true")
    cluster.configure(on=False, goes="n1")
    await until(lambda: cluster.holder == "")
    assert cluster.phase() is Phase.BACKOFF
    assert not (cluster.api.node() or {})["spec"].get("unschedulable")
