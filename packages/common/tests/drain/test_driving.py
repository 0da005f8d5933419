"""One drain under way: what happens to its node meanwhile, what it waits for, and what makes it give up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from tightship.cluster import Snapshot
from tightship.drain.events import EventKind
from tightship.draining import drain_task as driving
from tightship.draining.drain_task import Drive
from tightship.objects import Node, NodePool
from tightship.objects.api_errors import KubeError
from tightship.objects.drain_record import DRAIN_ANNOTATION, DrainRecord, Ending, Phase, encode_record
from tightship.objects.pod import DRAINING
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.selectors import Taint
from tightship.rules.karpenter import left_to_karpenter
from tightship.rules.nodes import TO_BE_DELETED
from tightship_simulator.api.store import Change
from tightship_testkit.builders import controller, pod, workload
from tightship_testkit.faults import Answer, Call, Fault, Reset
from tightship_testkit.simulated import BUDGET, LOST, until

from .conftest import OTHERS, TOLERATIONS, Bench, Json, Replica, evicting, other

pytestmark = pytest.mark.virtual_time

CA: Json = {"key": TO_BE_DELETED, "value": "1", "effect": "NoSchedule"}


async def ended(replica: Replica) -> Ending | None:
    await until(lambda: not replica.drainer.driving)
    return replica.reported(EventKind.ENDED)[-1].ending


def reasons(replica: Replica) -> list[Reason]:
    return [each.because.reason for each in replica.news if each.because is not None]


def rules(replica: Replica, **changes: Any) -> None:
    changed = msgspec.structs.replace(replica.settings.rules, **changes)
    replica.settings = msgspec.structs.replace(replica.settings, rules=changed)


async def test_a_node_somebody_uncordons_is_not_cordoned_again(bench: Bench) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    bench.api.edit_node("n1", lambda raw: raw["spec"].pop("unschedulable"))
    assert await ended(replica) is Ending.RESTORED
    assert bench.pristine
    assert bench.phase is Phase.BACKOFF
    assert reasons(replica) == [Reason.UNCORDONED]
    assert bench.api.evicted == []
    assert bench.claims() == []


@pytest.mark.parametrize("leads", [True, False])
async def test_an_eviction_is_left_whose_replica_leads_no_longer_when_its_turn_comes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, leads: bool
) -> None:
    replica, sends, turns = await bench.replica(), driving.send_away, list[bool]()

    async def waits_for_a_connection(*given: Any, **named: Any) -> Any:
        turns.append(True)
        replica.leading = leads
        return await sends(*given, **named)

    monkeypatch.setattr(driving, "send_away", waits_for_a_connection)
    assert await replica.claim() is None
    await until(lambda: turns)
    await asyncio.sleep(60)
    assert bool(bench.api.evicted) is leads


async def test_the_last_pod_of_a_node_may_opt_out_too(bench: Bench) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    bench.api.remove("Pod", "web-2", "shop")
    note = {"tightship.dev/do-not-drain": "true"}
    bench.api.edit("Pod", "web-1", lambda raw: raw["metadata"].setdefault("annotations", {}).update(note), "shop")
    assert await ended(replica) is Ending.RESTORED
    assert reasons(replica) == [Reason.POD_DO_NOT_DRAIN]
    assert bench.pristine


async def test_a_node_the_autoscaler_takes_is_left_to_it_until_it_is_gone(bench: Bench) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    bench.api.edit_node("n1", lambda raw: raw["spec"]["taints"].append(CA))
    await until(lambda: bench.phase is Phase.YIELDED)
    asked = len(replica.reported(EventKind.EVICTION))
    bench.api.refuse = None
    await asyncio.sleep(3600)
    await replica.looked()
    bench.api.remove("Node", "n1")
    assert await ended(replica) is Ending.NODE_GONE, "nor does it count among those that drains have saved"
    assert len(replica.reported(EventKind.EVICTION)) == asked
    assert bench.api.evicted == []


async def test_a_node_with_a_startup_taint_of_its_pool_is_left_alone_until_the_taint_is_gone(bench: Bench) -> None:
    replica = await bench.replica()
    starting = Taint("example.com/gpu-driver", "NoSchedule", "true")
    pool = NodePool("default", startup=(starting,), policy="WhenEmpty", after=0.0)

    def node_refusals(snapshot: Snapshot, node: Node) -> list[Refusal]:
        labels = {**node.labels, "karpenter.sh/nodepool": "default"}
        return list(left_to_karpenter(msgspec.structs.replace(node, labels=labels), {"default": pool}, None))

    replica.settings = msgspec.structs.replace(replica.settings, node_refusals=node_refusals)
    await evicting(bench, replica)
    raw_taint = {"key": starting.key, "value": starting.value, "effect": starting.effect}
    bench.api.edit_node("n1", lambda raw: raw["spec"]["taints"].append(raw_taint))
    await until(lambda: bench.phase is Phase.YIELDED)
    bench.api.refuse = None
    await asyncio.sleep(3600)
    await replica.looked()
    assert bench.phase is Phase.YIELDED
    assert bench.api.evicted == []
    bench.api.edit_node("n1", lambda raw: raw["spec"]["taints"].remove(raw_taint))
    assert await ended(replica) is Ending.RESTORED
    assert bench.pristine


async def test_nothing_is_evicted_while_the_cache_does_not_know_yet_that_the_node_is_taken(bench: Bench) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    await until(lambda: '"Evicting"' in replica.cache.snapshot().nodes["n1"].node.annotations.get(DRAIN_ANNOTATION, ""))
    bench.api.freeze("Node")
    bench.api.edit_node("n1", lambda raw: raw["spec"]["taints"].append(CA))
    bench.api.refuse = None
    await until(lambda: bench.phase is Phase.YIELDED)
    assert bench.api.evicted == []


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ("tightship.dev/do-not-drain", Reason.NODE_DO_NOT_DRAIN),
        ("cluster-autoscaler.kubernetes.io/scale-down-disabled", Reason.SCALE_DOWN_DISABLED),
        ("karpenter.sh/do-not-disrupt", Reason.NODE_DO_NOT_DISRUPT),
    ],
)
@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.EVICTING, Phase.DRAINED])
async def test_a_node_that_opts_out_half_way_is_given_back(
    bench: Bench, phase: Phase, annotation: str, reason: Reason
) -> None:
    replica = await bench.replica()
    bench.api.autoscaler = False
    if phase is Phase.CLAIMED:
        rules(replica, settle=60.0)
    if phase is Phase.EVICTING:
        bench.api.refuse = BUDGET
    assert await replica.claim() is None
    await until(lambda: bench.phase is phase)
    gone = len(bench.api.evicted)
    bench.api.edit_node("n1", lambda raw: raw["metadata"]["annotations"].update({annotation: "true"}))
    bench.api.refuse = None
    assert await ended(replica) is Ending.RESTORED
    assert reasons(replica) == [reason]
    assert bench.pristine
    assert len(bench.api.evicted) == gone


async def test_what_keeps_a_node_by_settings_that_change_half_way_has_it_given_back(bench: Bench) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    off = Refusal(Reason.POOL_DISABLED, "n1", "pool spare is not enabled")
    replica.settings = msgspec.structs.replace(replica.settings, node_refusals=lambda *_: [off])
    bench.api.refuse = None
    replica.drainer.wake()
    assert await ended(replica) is Ending.RESTORED
    assert reasons(replica) == [Reason.POOL_DISABLED]
    assert bench.api.evicted == []


async def test_what_keeps_a_node_since_it_was_judged_keeps_it_from_being_claimed(bench: Bench) -> None:
    replica = await bench.replica()
    off = Refusal(Reason.POOL_DISABLED, "n1", "pool spare is not enabled")
    replica.settings = msgspec.structs.replace(replica.settings, node_refusals=lambda *_: [off])
    assert await replica.claim() == off
    assert bench.pristine
    assert bench.claims() == []


def blind(bench: Bench) -> None:
    """Have a scheduler that looks at no cordon bind new pods of web to n1."""
    store = bench.api.store

    def bind(name: str) -> None:
        store.modify("Pod", name, "shop", change=lambda raw: raw["spec"].update(nodeName="n1"))

    def added(change: Change) -> None:
        if change.type == "ADDED" and change.object["kind"] == "Pod":
            asyncio.get_running_loop().call_soon(bind, change.object["metadata"]["name"])

    store.listeners.append(lambda change, _: added(change))


async def test_pods_that_come_back_to_the_node_end_the_drain(bench: Bench) -> None:
    replica = await bench.replica()
    blind(bench)
    assert await replica.claim() is None
    assert await ended(replica) is Ending.RESTORED
    assert reasons(replica) == [Reason.RETURNS_TO_NODE]
    assert sorted(bench.api.evicted) == ["uid-Pod-web-1", "uid-Pod-web-2"]
    assert bench.pristine


async def test_who_takes_a_drain_over_evicts_nothing_that_has_come_back_meanwhile(bench: Bench) -> None:
    first = await bench.replica("a", 1)
    blind(bench)
    evictions = 0

    async def killed() -> None:
        first.process.kill()

    async def dies(call: Call) -> Fault | None:
        nonlocal evictions
        if call.path.endswith("/eviction"):
            await asyncio.sleep(2)  # creation times are whole seconds
            evictions += 1
        return Reset(done=True, after=killed) if evictions == 2 else None

    await asyncio.sleep(60)
    first.meets(dies)
    task = asyncio.create_task(first.claim())
    await until(lambda: not first.process.alive)
    await asyncio.sleep(60)
    second = await bench.replica("b", 2)
    await second.settled()
    task.cancel()
    assert sorted(bench.api.evicted) == ["uid-Pod-web-1", "uid-Pod-web-2"]
    assert reasons(second) == [Reason.RETURNS_TO_NODE]
    assert bench.pristine


async def test_a_node_deleted_half_way_ends_the_drain_and_frees_the_claim(bench: Bench) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    bench.api.remove("Node", "n1")
    assert await ended(replica) is Ending.NODE_GONE
    assert bench.claims() == []


async def test_a_new_node_of_the_same_name_is_not_drained(bench: Bench) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    bench.api.renew_node("n1")
    bench.api.refuse = None
    assert await ended(replica) is Ending.NODE_GONE
    assert bench.api.evicted == []


async def test_an_annotation_of_another_drain_stops_this_one_without_a_write(bench: Bench) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    done = len(bench.writes())
    other = encode_record(DrainRecord(phase=Phase.EVICTING, op="another"))
    bench.api.edit_node("n1", lambda raw: raw["metadata"]["annotations"].update({DRAIN_ANNOTATION: other}))
    assert await ended(replica) is Ending.NOT_OURS
    assert len(bench.writes()) == done


async def test_a_rest_that_fits_nowhere_any_more_stays_once_the_next_verdict_is_due(bench: Bench) -> None:
    """The one that has a drain given up is asked for twice: for the cache's node, and for the server's."""
    replica = await bench.replica()
    began = bench.api.now
    await evicting(bench, replica)
    bench.api.add(other(), pod("big", on="n2", cpu="4", owner=controller("ReplicaSet", "other")))
    await until(lambda: len(replica.cache.snapshot().nodes["n2"].pods) == 1)
    assert await ended(replica) is Ending.RESTORED
    assert reasons(replica) == [Reason.NO_PLACE]
    assert bench.api.now >= began + driving.REJUDGE
    assert bench.pristine
    assert bench.api.evicted == []


async def test_a_pod_held_by_a_finalizer_is_named_with_it(bench: Bench) -> None:
    guard = ["example.com/guard"]
    bench.api.edit("Pod", "web-1", lambda raw: raw["metadata"].update(finalizers=guard), "shop")
    replica = await bench.replica()
    assert await replica.claim() is None
    await until(lambda: bench.api.on("n1") == ["shop/agent", "shop/web-1"])
    assert await ended(replica) is Ending.RESTORED
    assert reasons(replica) == [Reason.STUCK_FINALIZER]
    assert "finalizer example.com/guard holds it" in bench.record.reason


async def test_pods_are_not_late_because_a_job_was_awaited_before_them(bench: Bench) -> None:
    job = pod("job", owner=controller("Job", "nightly"), restartPolicy="Never", tolerations=TOLERATIONS)
    bench.api.add(workload("Job", "nightly"), job)
    replica = await bench.replica()
    rules(replica, await_timeout=7200.0)
    assert await replica.claim() is None
    await until(lambda: bench.phase is Phase.EVICTING)
    await asyncio.sleep(3600)
    await replica.looked()
    assert bench.api.evicted == []
    bench.api.remove("Pod", "job", "shop")
    assert await ended(replica) is Ending.HANDED_OVER
    assert sorted(bench.api.evicted) == ["uid-Pod-web-1", "uid-Pod-web-2"]


async def test_pods_that_refuse_for_too_long_end_the_drain(bench: Bench) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    assert await ended(replica) is Ending.RESTORED
    assert reasons(replica) == [Reason.EVICTION_FAILED]
    assert bench.pristine


async def test_whoever_takes_over_gives_pods_their_time_anew(bench: Bench) -> None:
    first, second = await bench.replica("a", 1), await bench.replica("b", 2)
    await evicting(bench, first)
    first.process.kill()
    await asyncio.sleep(900)
    bench.api.refuse = None
    await second.settled()
    assert bench.api.node() is None
    assert sorted(bench.api.evicted) == ["uid-Pod-web-1", "uid-Pod-web-2"]


async def test_a_pod_without_permission_to_evict_it_ends_the_drain(bench: Bench) -> None:
    bench.api.refuse = Answer(403, "Forbidden", "pods/eviction is forbidden")
    replica = await bench.replica()
    assert await replica.claim() is None
    assert await ended(replica) is Ending.RESTORED
    assert reasons(replica) == [Reason.EVICTION_FORBIDDEN]
    assert bench.pristine


async def test_pods_are_deleted_past_their_budgets_only_when_told_to(bench: Bench) -> None:
    bench.api.refuse = BUDGET
    replica = await bench.replica()
    rules(replica, past_budgets=True)
    assert await replica.claim() is None
    assert await ended(replica) is Ending.HANDED_OVER
    calls = [each.call for each in bench.api.did if "/pods/" in each.call.path]
    sent = [(call.verb, json.loads(call.body).get("preconditions")) for call in calls]
    assert sent == [("DELETE", {"uid": "uid-Pod-web-1"}), ("DELETE", {"uid": "uid-Pod-web-2"})]


@pytest.mark.parametrize("refused", ["PATCH", "LIST"])
async def test_pauses_after_requests_that_keep_failing_grow(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """A look that works in between is no success, nor is a listing that never does a reason to ask at once again."""
    asked: list[int] = []
    pause = Drive._pause_after_trouble

    async def counted(self: Drive, error: KubeError, failures: int) -> None:
        asked.append(failures)
        await pause(self, error, failures)

    monkeypatch.setattr(Drive, "_pause_after_trouble", counted)
    replica = await bench.replica()
    claimed = False

    async def fail(call: Call) -> Fault | None:
        what = "LIST" if call.path == "/api/v1/pods" else call.verb
        return LOST if claimed and what == refused else None

    replica.meets(fail)
    bench.api.refuse = BUDGET
    rules(replica, settle=10.0)
    assert await replica.claim() is None
    claimed = True
    await until(lambda: len(asked) >= 5)
    assert asked[:5] == [0, 1, 2, 3, 4]
    assert replica.reported(EventKind.TROUBLE)
    replica.meets(None)
    bench.api.refuse = None
    assert await ended(replica) is Ending.HANDED_OVER


async def test_what_others_wrote_on_the_node_meanwhile_survives_the_restore(bench: Bench) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    theirs = {"key": "node.example.com/x", "effect": "PreferNoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    bench.api.edit_node("n1", lambda raw: raw["spec"]["taints"].insert(0, theirs))
    assert await ended(replica) is Ending.RESTORED
    raw = bench.api.node()
    assert raw["spec"] == {"taints": [theirs, OTHERS]}
    assert DRAINING.key not in str(raw["spec"])
