"""Lists in pages, against a server that misbehaves."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from tightship.kube.connection import Connection
from tightship.kube.reflector import list_all
from tightship.kube.resources import AUTOSCALERS, BY_KIND
from tightship.objects.api_errors import BadAnswer, Forbidden, Gone
from tightship_testkit.scripted import Json, Responder, ScriptedApi, page, status

from .conftest import FakeSleep, bad_pod, pod

pytestmark = pytest.mark.virtual_time

PODS = "LIST /api/v1/pods"
POD = BY_KIND["Pod"]


async def test_pages_are_followed_and_the_selector_is_sent_with_each(api: ScriptedApi, connection: Connection) -> None:
    api.on(PODS, page([pod("a")], "5", "t1"), page([pod("b")], "5", "t2"), page([pod("c")], "5"))
    reported: list[tuple[str, int]] = []
    listing = await list_all(connection, POD, page_size=1, progress=lambda kind, count: reported.append((kind, count)))
    assert [each.name for each in listing.things] == ["a", "b", "c"]
    assert listing.resource_version == "5"
    assert reported == [("Pod", 1), ("Pod", 2), ("Pod", 3)]
    assert [each.params.get("continue") for each in api.seen] == [None, "t1", "t2"]
    assert {each.params["fieldSelector"] for each in api.seen} == {POD.field_selector}
    assert {each.params["limit"] for each in api.seen} == {"1"}
    assert {each.headers["Accept-Encoding"] for each in api.seen} == {"identity"}


async def test_a_kind_can_be_listed_in_one_namespace_and_by_labels(api: ScriptedApi, connection: Connection) -> None:
    path = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3}
    thing = {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
    api.on(f"LIST {path}", page([thing, {**thing, "spec": {}}]))
    listing = await list_all(connection, AUTOSCALERS.within(namespace="shop", label_selector="team=a"))
    assert [each.name for each in listing.things] == ["web"]
    assert [str(error) for error, _ in listing.problems] == [
        "HorizontalPodAutoscaler shop/web: spec.scaleTargetRef is missing"
    ]
    assert api.seen[0].params == {"limit": "500", "labelSelector": "team=a"}


async def test_an_expired_continue_token_begins_the_list_anew(api: ScriptedApi, connection: Connection) -> None:
    gone = status(410, "Expired", "too old")
    api.on(PODS, page([pod("old")], "5", "t1"), gone, page([pod("a")], "8", "t2"), page([pod("b")], "8"))
    listing = await list_all(connection, POD)
    assert [each.name for each in listing.things] == ["a", "b"]
    assert listing.resource_version == "8"
    assert [each.params.get("continue") for each in api.seen] == [None, "t1", None, "t2"]


async def test_a_list_that_expires_again_is_asked_for_in_one_piece(api: ScriptedApi, connection: Connection) -> None:
    gone, first = status(410, "Expired"), page([pod("old")], "5", "t1")
    api.on(PODS, first, gone, first, gone, page([pod("a")], "9"))
    assert [each.name for each in (await list_all(connection, POD)).things] == ["a"]
    assert len(api.seen) == 5
    assert "limit" not in api.seen[-1].params


async def test_a_list_gone_even_in_one_piece_is_an_error(api: ScriptedApi, connection: Connection) -> None:
    api.on(PODS, status(410, "Expired"))
    with pytest.raises(Gone):
        await list_all(connection, POD)
    assert len(api.seen) == 3


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        pytest.param(bad_pod("broken", "n7"), "n7", id="quantity"),
        pytest.param({**pod("broken"), "spec": {"nodeName": 5, "containers": []}}, "", id="node name"),
        pytest.param({"metadata": {"name": "broken", "namespace": "default"}}, "", id="no spec"),
    ],
)
async def test_one_malformed_object_costs_itself_only(
    api: ScriptedApi, connection: Connection, broken: Json, where: str
) -> None:
    api.on(PODS, page([pod("a"), broken, pod("b")]))
    listing = await list_all(connection, POD)
    assert [each.name for each in listing.things] == ["a", "b"]
    [(error, node)] = listing.problems
    assert (error.namespace, error.name, node) == ("default", "broken", where)


async def test_no_items_at_all(api: ScriptedApi, connection: Connection) -> None:
    async def null_items(_: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"resourceVersion": "3"}, "items": None})

    api.on(PODS, null_items)
    listing = await list_all(connection, POD)
    assert (listing.things, listing.resource_version) == ([], "3")


async def test_a_page_that_is_no_list_is_a_bad_answer(api: ScriptedApi, connection: Connection) -> None:
    async def login(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>please log in</html>", content_type="text/html")

    api.on(PODS, login)
    with pytest.raises(BadAnswer, match=r"GET /api/v1/pods at http://127\.0\.0\.1:\d+: not a list.*API server\?"):
        await list_all(connection, POD)


async def test_a_server_error_on_the_way_repeats_that_page_only(
    api: ScriptedApi, connection: Connection, fake_sleep: FakeSleep
) -> None:
    api.on(PODS, page([pod("a")], "5", "t1"), status(500, "InternalError"), page([pod("b")], "5"))
    assert len((await list_all(connection, POD)).things) == 2
    assert len(fake_sleep.waits) == 1


async def test_forbidden_is_not_repeated(api: ScriptedApi, connection: Connection) -> None:
    api.on(PODS, status(403, "Forbidden", "no"))
    with pytest.raises(Forbidden):
        await list_all(connection, POD)
    assert len(api.seen) == 1


async def test_the_next_page_is_asked_for_before_this_one_has_ended(api: ScriptedApi, connection: Connection) -> None:
    asked = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"metadata":{"resourceVersion":"5","continue":"t1"},"items":[')
        async with asyncio.timeout(60):
            await asked.wait()
        await response.write(json.dumps(pod("a")).encode() + b"]}")
        return response

    async def second(request: web.Request) -> web.StreamResponse:
        asked.set()
        return await page([pod("b")], "5")(request)

    api.on(PODS, slow, second)
    listing = await list_all(connection, POD)
    assert [each.name for each in listing.things] == ["a", "b"]
    assert len(api.seen) == 2


async def test_no_more_than_a_few_pages_are_asked_for_ahead(api: ScriptedApi, connection: Connection) -> None:
    flying = most = 0

    def numbered(number: int, token: str) -> Responder:
        async def respond(request: web.Request) -> web.StreamResponse:
            nonlocal flying, most
            flying += 1
            most = max(most, flying)
            response = web.StreamResponse()
            await response.prepare(request)
            meta = json.dumps({"resourceVersion": "5", "continue": token})
            await response.write(f'{{"metadata":{meta},"items":['.encode())
            await asyncio.sleep(0.01)
            flying -= 1
            await response.write(json.dumps(pod(f"p{number:02}")).encode() + b"]}")
            return response

        return respond

    api.on(PODS, *(numbered(n, f"t{n}" if n < 19 else "") for n in range(20)))
    listing = await list_all(connection, POD)
    assert [each.name for each in listing.things] == [f"p{n:02}" for n in range(20)]
    assert 1 < most <= 3
