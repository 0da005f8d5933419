"""Pods with eviction responders: a drain asks through an EvictionRequest, waits, and takes back what it asked for."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec
import pytest

from tightship.core.drain_record import Ending, Phase
from tightship.core.objects import decode
from tightship.core.reasons import Reason
from tightship.drain.answers import EvictionAnswer
from tightship.drain.events import EventKind
from tightship_simulator.life.evicting import HEARTBEAT, EvictionRequests, Responder
from tightship_testkit.builders import pod
from tightship_testkit.faults import Answer, Call, Fault
from tightship_testkit.simulated import until

from .conftest import TOLERATIONS, Bench, Json, Replica, known_pod

pytestmark = pytest.mark.virtual_time

SURGE = "example.com/surge"
SERVED: Json = {
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "evictionrequests.lifecycle.k8s.io"},
    "spec": {"group": "lifecycle.k8s.io", "versions": [{"name": "v1alpha1", "served": True}]},
}
LONG = 2 * HEARTBEAT


def responding(name: str = "web-3") -> Json:
    return known_pod(name, tolerations=TOLERATIONS, evictionResponders=[{"name": SURGE, "priority": 10000}])


def served(bench: Bench, responder: Responder | None = Responder(60.0)) -> EvictionRequests:
    """Serve the API, with a pod that has a responder, and let a controller process requests unless there is none."""
    bench.api.add(SERVED, responding())
    bench.api.edit("ReplicaSet", "web", lambda raw: raw["spec"].update(replicas=3), "shop")
    controller = EvictionRequests({SURGE: responder} if responder is not None else {})
    if responder is not None:
        bench.api.simulation.living.others.append(controller)
    return controller


def requests(bench: Bench) -> list[Json]:
    return bench.api.store.list("EvictionRequest")


def asked(bench: Bench) -> list[str]:
    return [
        each.call.path for each in bench.api.did if "/evictionrequests" in each.call.path and each.call.verb == "POST"
    ]


def rules(replica: Replica, **changes: Any) -> None:
    changed = msgspec.structs.replace(replica.settings.rules, **changes)
    replica.settings = msgspec.structs.replace(replica.settings, rules=changed)


async def waiting(bench: Bench, replica: Replica) -> None:
    """Claim n1, and come to where only the pod with the responder is left."""
    assert await replica.claim() is None
    await until(lambda: requests(bench) and bench.api.on("n1") == ["shop/agent", "shop/web-3"])


async def ended(replica: Replica) -> Ending | None:
    await until(lambda: not replica.drainer.driving)
    return replica.told(EventKind.ENDED)[-1].ending


async def test_a_pod_with_responders_goes_when_they_let_it(bench: Bench) -> None:
    controller = served(bench)
    replica = await bench.replica()
    await waiting(bench, replica)
    (request,) = requests(bench)
    assert request["spec"] == {
        "target": {"pod": {"name": "web-3", "uid": "uid-Pod-web-3"}},
        "requester": "tightship.dev/c",
        "intent": "Eviction",
    }
    assert await ended(replica) is Ending.HANDED_OVER
    assert "uid-Pod-web-3" not in bench.api.evicted
    assert len(asked(bench)) == 1
    assert [each.answer for each in replica.told(EventKind.EVICTION) if each.pod and each.pod.name == "web-3"] == [
        EvictionAnswer.REQUESTED
    ]
    await replica.settled()
    assert requests(bench) == []
    assert controller.canceled == []


async def test_a_silent_responder_is_passed_over_and_the_drain_goes_on(bench: Bench) -> None:
    served(bench, Responder(silent=True))
    replica = await bench.replica()
    rules(replica, node_timeout=LONG)
    began = bench.api.now
    await waiting(bench, replica)
    assert await ended(replica) is Ending.HANDED_OVER
    assert HEARTBEAT < bench.api.now - began < LONG
    assert "uid-Pod-web-3" not in bench.api.evicted


async def test_a_responder_that_takes_longer_than_the_drain_may_gives_the_node_back(bench: Bench) -> None:
    controller = served(bench, Responder(math.inf))
    replica = await bench.replica()
    rules(replica, node_timeout=600.0)
    await waiting(bench, replica)
    assert await ended(replica) is Ending.RESTORED
    (why,) = [each.because for each in replica.news if each.because is not None]
    assert why.reason is Reason.RESPONDERS_LATE
    assert SURGE in why.detail
    assert bench.pristine
    assert requests(bench) == []
    await asyncio.sleep(1)
    assert controller.canceled == ["uid-Pod-web-3"]
    assert "shop/web-3" in bench.api.on("n1")


async def test_whoever_uncordons_the_node_keeps_its_pods(bench: Bench) -> None:
    controller = served(bench, Responder(600.0))
    replica = await bench.replica()
    await waiting(bench, replica)
    bench.api.edit_node("n1", lambda raw: raw["spec"].pop("unschedulable"))
    assert await ended(replica) is Ending.RESTORED
    assert requests(bench) == []
    await asyncio.sleep(3600)
    assert controller.canceled == ["uid-Pod-web-3"]
    assert "shop/web-3" in bench.api.on("n1")


async def test_without_a_controller_that_heeds_requests_the_eviction_api_is_used(bench: Bench) -> None:
    served(bench, None)
    replica = await bench.replica()
    await waiting(bench, replica)
    assert await ended(replica) is Ending.HANDED_OVER
    assert "uid-Pod-web-3" in bench.api.evicted
    assert requests(bench) == []
    assert any("no controller heeds" in each.text for each in replica.told(EventKind.TROUBLE))


async def test_where_the_api_is_not_served_the_eviction_api_is_used(bench: Bench) -> None:
    bench.api.add(responding())
    replica = await bench.replica()
    assert await replica.claim() is None
    assert await ended(replica) is Ending.HANDED_OVER
    assert "uid-Pod-web-3" in bench.api.evicted


async def test_a_successor_waits_on_without_asking_again(bench: Bench) -> None:
    served(bench, Responder(600.0))
    first = await bench.replica("a")
    await waiting(bench, first)
    first.process.kill()
    second = await bench.replica("b", epoch=2)
    await second.settled()
    assert bench.node is None
    assert len(asked(bench)) == 1
    assert requests(bench) == []


@pytest.mark.parametrize("while_away", ["uncordoned", "deleted"])
async def test_a_successor_withdraws_what_no_drain_stands_behind(bench: Bench, while_away: str) -> None:
    controller = served(bench, Responder(math.inf))
    first = await bench.replica("a")
    await waiting(bench, first)
    first.process.kill()
    if while_away == "uncordoned":
        # A person who wants the node back, and leaves nothing of the drain.
        bench.api.edit_node("n1", lambda raw: raw["metadata"].pop("annotations"))
        bench.api.edit_node("n1", lambda raw: raw["spec"].pop("unschedulable"))
    else:
        bench.api.remove("Pod", "web-3", "shop")
        bench.api.remove("Node", "n1")
    second = await bench.replica("b", epoch=2)
    await second.settled()
    assert requests(bench) == []
    await asyncio.sleep(1)
    assert controller.canceled == (["uid-Pod-web-3"] if while_away == "uncordoned" else [])


async def test_a_withdrawal_that_fails_keeps_no_node_and_is_made_again(bench: Bench) -> None:
    served(bench, Responder(math.inf))
    replica = await bench.replica()
    await waiting(bench, replica)
    refused = True

    async def refuse(call: Call) -> Fault | None:
        return Answer(503, "ServiceUnavailable", "no") if refused and "/evictionrequests/" in call.path else None

    replica.meets(refuse)
    bench.api.edit_node("n1", lambda raw: raw["spec"].pop("unschedulable"))
    assert await ended(replica) is Ending.RESTORED
    assert len(requests(bench)) == 1
    refused = False
    await replica.settled()
    assert requests(bench) == []


async def test_a_request_that_failed_gives_the_node_back_with_its_words(bench: Bench) -> None:
    served(bench, Responder(math.inf))
    replica = await bench.replica()
    await waiting(bench, replica)
    name = requests(bench)[0]["metadata"]["name"]
    failed = {"type": "Failed", "status": "True", "reason": "NoFurtherResponder", "message": "none is left"}
    bench.api.edit("EvictionRequest", name, lambda raw: raw["status"]["conditions"].append(failed), "shop")
    assert await ended(replica) is Ending.RESTORED
    (why,) = [each.because for each in replica.news if each.because is not None]
    assert why.reason is Reason.EVICTION_FAILED
    assert "NoFurtherResponder: none is left" in why.detail
    assert requests(bench) == []
    assert bench.phase is Phase.BACKOFF


async def test_deletion_by_method_asks_nobody(bench: Bench) -> None:
    served(bench)
    replica = await bench.replica()
    rules(replica, past_budgets=True)
    assert await replica.claim() is None
    assert await ended(replica) is Ending.HANDED_OVER
    assert asked(bench) == []


def test_the_names_of_responders_are_kept() -> None:
    raw = msgspec.json.encode(pod(evictionResponders=[{"name": SURGE, "priority": 10000}]))
    assert decode("Pod", raw).spec.responders == (SURGE,)  # type: ignore[union-attr]


async def test_a_pod_that_opts_out_while_its_responder_works_stays(bench: Bench) -> None:
    controller = served(bench, Responder(600.0))
    replica = await bench.replica()
    await waiting(bench, replica)
    note = {"tightship.dev/do-not-drain": "true"}
    bench.api.edit("Pod", "web-3", lambda raw: raw["metadata"].setdefault("annotations", {}).update(note), "shop")
    assert await ended(replica) is Ending.RESTORED
    assert requests(bench) == []
    await asyncio.sleep(3600)
    assert controller.canceled == ["uid-Pod-web-3"]
    assert "shop/web-3" in bench.api.on("n1")
