"""Leases on the wire, against a real HTTP server that answers as it is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from links import term

from tightship.kube.connection import Connection
from tightship.kube.leases import WRITER_ANNOTATION, Elector, LeaseStore, held_leases, micro_time
from tightship.objects.api_errors import ApiError, BadAnswer, Conflict, ConnectionFailed
from tightship_testkit.scripted import ScriptedApi, page, status

pytestmark = pytest.mark.virtual_time

COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
PATH = f"{COLLECTION}/leader"


def test_micro_times_have_six_digits_always() -> None:
    assert micro_time(1_700_000_000_000_000) == "2023-11-14T22:13:20.000000Z"
    assert micro_time(1_700_000_000_000_001) == "2023-11-14T22:13:20.000001Z"


def lease_body(**spec: Any) -> dict[str, Any]:
    return {"kind": "Lease", "metadata": {"name": "leader", "resourceVersion": "7", "uid": "u"}, "spec": spec}


def recording(into: list[Any], answer: dict[str, Any], code: int = 200) -> Any:
    async def respond(request: web.Request) -> web.StreamResponse:
        into.append(json.loads(await request.read()))
        return web.json_response(answer, status=code)

    return respond


async def test_a_lease_is_created_and_given_up_on_the_wire(api: ScriptedApi, connection: Connection) -> None:
    created: list[Any] = []
    replaced: list[Any] = []
    api.on(f"LIST {PATH}", status(404, "NotFound"))

    async def store(request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        created.append(body)
        body["metadata"] |= {"resourceVersion": "7", "uid": "u"}
        return web.json_response(body, status=201)

    api.on(f"POST {COLLECTION}", store)
    api.on(f"PUT {PATH}", recording(replaced, lease_body(holderIdentity="")))
    elector, stop = Elector(connection, namespace="ns", name="leader", identity="me"), asyncio.Event()
    running = asyncio.create_task(elector.run(stop))
    await term(elector)
    stop.set()
    await running
    [body] = created
    assert body["apiVersion"] == "coordination.k8s.io/v1"
    assert body["kind"] == "Lease"
    assert set(body["metadata"]["annotations"]) == {WRITER_ANNOTATION}
    spec = body["spec"]
    assert spec["acquireTime"] == spec["renewTime"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("me", 15, 1)
    [freed] = replaced
    assert freed["metadata"]["resourceVersion"] == "7"
    assert freed["metadata"]["uid"] == "u"
    assert (freed["spec"]["holderIdentity"], freed["spec"]["leaseDurationSeconds"]) == ("", 1)


async def test_nothing_is_sent_twice_and_answers_are_typed(api: ScriptedApi, connection: Connection) -> None:
    store = LeaseStore(connection, "ns", "leader")
    api.on(f"LIST {PATH}", recording_get(lease_body(holderIdentity="x", leaseTransitions=3)))
    lease = await store.get(5)
    assert (lease.holder, lease.transitions, lease.resource_version) == ("x", 3, "7")
    api.on(f"PUT {PATH}", status(409, "Conflict"))
    with pytest.raises(Conflict):
        await store.write(lease, 5)
    api.on(f"LIST {PATH}", status(503))
    with pytest.raises(ApiError, match="503"):
        await store.get(5)
    assert api.count("LIST", PATH) == 2
    assert api.count("PUT", PATH) == 1


def recording_get(answer: dict[str, Any]) -> Any:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.json_response(answer)

    return respond


async def test_an_answer_that_is_no_lease_is_an_error(api: ScriptedApi, connection: Connection) -> None:
    async def html(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>hello</html>", content_type="text/html")

    api.on(f"LIST {PATH}", html)
    with pytest.raises(BadAnswer, match="not a Lease"):
        await LeaseStore(connection, "ns", "leader").get(5)


async def test_a_server_that_says_nothing_is_not_waited_for(api: ScriptedApi, connection: Connection) -> None:
    async def never(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    api.on(f"LIST {PATH}", never)
    with pytest.raises(ConnectionFailed):
        await LeaseStore(connection, "ns", "leader").get(0.05)


EVERYWHERE = "/apis/coordination.k8s.io/v1/leases"
NOON = 1_700_000_000.0


def held(namespace: str, holder: str, renewed: float, duration: int = 15) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": micro_time(int(renewed * 1e6))}
    return {"metadata": {"name": "leader", "namespace": namespace}, "spec": spec}


async def test_leases_that_are_held_are_those_that_have_not_run_out(api: ScriptedApi, connection: Connection) -> None:
    items = [
        held("a", "me", NOON - 5),
        held("b", "dead", NOON - 16),
        held("c", "", NOON),
        held("d", "other", NOON - 14),
    ]
    api.on(f"LIST {EVERYWHERE}", page(items))
    found = await held_leases(connection, "leader", NOON)
    assert [(each.namespace, each.holder) for each in found] == [("a", "me"), ("d", "other")]
    assert api.seen[-1].params == {"fieldSelector": "metadata.name=leader"}


async def test_leases_of_one_namespace_are_asked_for_there(api: ScriptedApi, connection: Connection) -> None:
    api.on(f"LIST {COLLECTION}", page([held("ns", "me", NOON)]))
    assert [each.holder for each in await held_leases(connection, "leader", NOON, "ns")] == ["me"]


async def test_a_lease_that_does_not_say_when_it_was_renewed_counts_as_held(
    api: ScriptedApi, connection: Connection
) -> None:
    odd = {"metadata": {"name": "leader", "namespace": "a"}, "spec": {"holderIdentity": "me"}}
    api.on(f"LIST {EVERYWHERE}", page([odd]))
    assert len(await held_leases(connection, "leader", NOON)) == 1


async def test_a_list_of_leases_that_is_none_is_a_bad_answer(api: ScriptedApi, connection: Connection) -> None:
    api.on(f"LIST {EVERYWHERE}", page([{"metadata": "odd"}]))  # type: ignore[dict-item]
    with pytest.raises(BadAnswer):
        await held_leases(connection, "leader", NOON)
