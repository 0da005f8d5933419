"""Lists and watches: pages, selectors, versions, bookmarks, and what happens when a version is too old."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest
from contract_api import DEADLINE, Api, Json, unique

from tightship.kube.reflector import LineSplitter, list_all
from tightship.kube.resources import BY_KIND, RESOURCES, Resource
from tightship.objects import CAPACITY_BUFFER
from tightship.objects.api_errors import Gone, NotFound, Unavailable
from tightship_testkit.client import wait_for

CONFIG_MAPS = Resource("ConfigMap", "", "v1", "configmaps")


async def make(api: Api, *names: str, **labels: str) -> None:
    for name in names:
        meta = {"name": name, "namespace": api.namespace, "labels": labels}
        await api.client.create({"kind": "ConfigMap", "metadata": meta})


def names(answer: Json) -> list[str]:
    return [each["metadata"]["name"] for each in answer["items"]]


async def listed(api: Api, **params: str) -> Json:
    """List the namespace's own ConfigMaps of ours."""
    selector = ",".join(filter(None, (params.pop("labelSelector", ""), "ours=yes")))
    code, answer = await api.request("GET", api.path("ConfigMap"), params={"labelSelector": selector, **params})
    assert code == 200
    return answer


@asynccontextmanager
async def watching(api: Api, path: str, **params: str) -> AsyncIterator[Callable[[], Awaitable[Json]]]:
    """Watch, with a function that waits for the next event; an empty one is the end."""

    async def events() -> AsyncIterator[Json]:
        split = LineSplitter()
        async with api.connection.stream(path, params={"watch": "true", **params}, silence=DEADLINE) as chunks:
            async for chunk in chunks:
                for line in split.feed(chunk):
                    yield msgspec.json.decode(line)

    async with aclosing(events()) as lines:

        async def following() -> Json:
            async with asyncio.timeout(DEADLINE):
                return await anext(lines, {})

        yield following


def reported(event: Json) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


# Lists.


async def test_a_list_says_what_it_is_and_its_items_do_not(api: Api) -> None:
    await make(api, "a", ours="yes")
    answer = await listed(api)
    assert (answer["kind"], answer["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(answer["metadata"]["resourceVersion"]) > 0
    assert "kind" not in answer["items"][0]
    assert names(answer) == ["a"]


async def test_a_list_of_nothing_has_items_all_the_same(api: Api) -> None:
    assert (await listed(api))["items"] == []


async def test_pages_are_of_one_version_whatever_happens_in_between(api: Api) -> None:
    await make(api, "a", "b", "c", "d", "e", ours="yes")
    first = await listed(api, limit="2")
    await api.client.delete("ConfigMap", "c", api.namespace)
    await make(api, "bb", ours="yes")
    second = await listed(api, limit="2", **{"continue": first["metadata"]["continue"]})
    third = await listed(api, limit="2", **{"continue": second["metadata"]["continue"]})
    assert names(first) + names(second) + names(third) == ["a", "b", "c", "d", "e"]
    versions = {each["metadata"]["resourceVersion"] for each in (first, second, third)}
    assert len(versions) == 1
    assert not third["metadata"].get("continue")


async def test_a_token_that_is_none_is_a_bad_request(api: Api) -> None:
    await api.refused(400, "BadRequest", "GET", api.path("ConfigMap"), params={"continue": "turnip"})


async def test_a_token_that_is_too_old_is_gone(api: Api) -> None:
    await make(api, "a", "b", ours="yes")
    token = (await listed(api, limit="1"))["metadata"]["continue"]
    await api.forget()

    async def expired() -> Json | None:
        # A real server may still have the page in its own memory for a while.
        code, answer = await api.request("GET", api.path("ConfigMap"), params={"limit": "1", "continue": token})
        return answer if code == 410 else None

    answer = await wait_for(expired, DEADLINE, "410")
    assert answer is not None
    assert answer["reason"] == "Expired"


async def test_the_controllers_read_a_list_of_many_pages_whole(api: Api) -> None:
    at = await api.node()
    for number in range(7):
        await api.pod(f"web-{number}", node=at, waits=False)
    listing = await list_all(api.connection, BY_KIND["Pod"].within(namespace=api.namespace), page_size=3)
    assert [each.name for each in listing.things] == [f"web-{number}" for number in range(7)]
    assert listing.problems == []


SERVED = [each for each in RESOURCES if not each.extension]
"""What every API server serves; who has CapacityBuffers has defined them."""


async def test_a_kind_that_nobody_has_defined_is_not_found(api: Api) -> None:
    with pytest.raises(NotFound):
        await list_all(api.connection, BY_KIND[CAPACITY_BUFFER])


async def test_every_kind_that_the_controllers_read_is_served_and_readable(api: Api) -> None:
    for resource in SERVED:
        listing = await list_all(api.connection, resource)
        assert listing.problems == [], resource.kind
        # That it begins is all: there may be nothing to tell.
        params = {"watch": "true", "resourceVersion": listing.resource_version, **resource.selectors}
        async with api.connection.stream(resource.path, params=params, silence=DEADLINE):
            pass


async def test_labels_select(api: Api) -> None:
    await make(api, "a", ours="yes", tier="web", size="2")
    await make(api, "b", ours="yes", tier="cache")
    await make(api, "c", ours="yes", tier="web", size="10")
    await make(api, "d", ours="yes")
    for selector, found in (
        ("tier=web", "ac"),
        ("tier==web", "ac"),
        ("tier!=web", "bd"),
        ("tier in (web,cache)", "abc"),
        ("tier notin (web, cache)", "d"),
        ("tier", "abc"),
        ("!tier", "d"),
        ("size>2", "c"),
        ("size<3", "a"),
        ("tier=web,size>2", "c"),
        ("tier=web,!size", ""),
        ("tier=", ""),
    ):
        assert names(await listed(api, labelSelector=selector)) == [*found], selector


async def test_a_selector_that_is_none_is_a_bad_request(api: Api) -> None:
    for params in ({"labelSelector": "a=b=c"}, {"labelSelector": "in (a"}, {"fieldSelector": "data=x"}):
        await api.refused(400, "BadRequest", "GET", api.path("ConfigMap"), params=params)


async def test_pods_are_selected_by_node_and_phase_and_name(api: Api) -> None:
    here, there = await api.node(), await api.node()
    await api.pod("a", node=here)
    await api.pod("b", node=there, phase="Succeeded")
    await api.pod("c", node=there)

    async def selected(selector: str) -> list[str]:
        _, answer = await api.request("GET", api.path("Pod"), params={"fieldSelector": selector})
        return names(answer)

    assert await selected(f"spec.nodeName={there}") == ["b", "c"]
    assert await selected("status.phase!=Succeeded,status.phase!=Failed") == ["a", "c"]
    assert await selected("metadata.name=b") == ["b"]
    assert await selected(f"metadata.namespace={api.namespace},spec.nodeName!={there}") == ["a"]


async def test_one_config_map_is_listed_and_watched_by_its_name(api: Api) -> None:
    await make(api, "mine", "other", ours="yes")
    answer = await listed(api, fieldSelector="metadata.name=mine")
    assert names(answer) == ["mine"]
    since = answer["metadata"]["resourceVersion"]
    params = {"fieldSelector": "metadata.name=mine", "resourceVersion": since}
    async with watching(api, api.path("ConfigMap"), **params) as following:
        for name in ("other", "mine"):
            await api.client.patch("ConfigMap", name, {"data": {"a": "b"}}, api.namespace)
        assert reported(await following()) == ("MODIFIED", "mine")


async def test_a_version_that_lies_ahead_is_not_reached(api: Api) -> None:
    ahead = str(int((await listed(api))["metadata"]["resourceVersion"]) + 1_000_000)
    await api.refused(504, "Timeout", "GET", api.path("ConfigMap"), params={"resourceVersion": ahead})
    await api.refused(400, "BadRequest", "GET", api.path("ConfigMap"), params={"resourceVersion": "turnip"})


# Watches.


async def test_a_watch_tells_what_happens_from_a_version_on(api: Api) -> None:
    await make(api, "before", ours="yes")
    since = (await listed(api))["metadata"]["resourceVersion"]
    await make(api, "a", ours="yes")
    params = {"labelSelector": "ours=yes", "resourceVersion": since, "timeoutSeconds": "60"}
    async with watching(api, api.path("ConfigMap"), **params) as following:
        assert reported(await following()) == ("ADDED", "a")
        await api.client.patch("ConfigMap", "a", {"data": {"x": "y"}}, api.namespace)
        event = await following()
        assert reported(event) == ("MODIFIED", "a")
        assert event["object"]["data"] == {"x": "y"}
        version = int(event["object"]["metadata"]["resourceVersion"])
        await api.client.delete("ConfigMap", "a", api.namespace)
        event = await following()
        assert reported(event) == ("DELETED", "a")
        assert (event["object"]["kind"], event["object"]["data"]) == ("ConfigMap", {"x": "y"})
        assert int(event["object"]["metadata"]["resourceVersion"]) > version


async def test_a_watch_without_a_version_begins_with_what_there_is(api: Api) -> None:
    await make(api, "a", "b", ours="yes")
    async with watching(api, api.path("ConfigMap"), labelSelector="ours=yes") as following:
        assert sorted([reported(await following()), reported(await following())]) == [("ADDED", "a"), ("ADDED", "b")]
        await make(api, "c", ours="yes")
        assert reported(await following()) == ("ADDED", "c")


async def test_what_comes_to_match_is_added_and_what_ceases_to_is_deleted(api: Api) -> None:
    await make(api, "a", ours="yes")
    since = (await listed(api))["metadata"]["resourceVersion"]
    params = {"labelSelector": "ours=yes,tier=web", "resourceVersion": since}
    async with watching(api, api.path("ConfigMap"), **params) as following:
        await api.client.patch("ConfigMap", "a", {"metadata": {"labels": {"tier": "web"}}}, api.namespace)
        assert reported(await following()) == ("ADDED", "a")
        await api.client.patch("ConfigMap", "a", {"metadata": {"labels": {"tier": None}}}, api.namespace)
        assert reported(await following()) == ("DELETED", "a")


async def test_a_pod_that_finishes_is_told_as_deleted_to_those_who_look_at_unfinished_ones(api: Api) -> None:
    pod = BY_KIND["Pod"].within(namespace=api.namespace)
    at = await api.node()
    _, answer = await api.request("GET", api.path("Pod"))
    since = answer["metadata"]["resourceVersion"]
    await api.pod(node=at, phase="Succeeded")
    async with watching(api, pod.path, resourceVersion=since, **pod.selectors) as following:
        assert reported(await following()) == ("ADDED", "web-0")
        while (event := await following())["type"] == "MODIFIED":
            pass
        assert reported(event) == ("DELETED", "web-0")


async def test_a_watch_ends_in_time_with_a_bookmark_if_it_may(api: Api) -> None:
    since = (await listed(api))["metadata"]["resourceVersion"]
    params = {"resourceVersion": since, "allowWatchBookmarks": "true", "labelSelector": "ours=yes"}
    seen: list[Json] = []
    async with watching(api, api.path("ConfigMap"), **params, timeoutSeconds="3") as following:
        while event := await following():
            seen.append(event)
    # A real server tells a bookmark in the last two seconds, if it gets to it then: it gives no guarantee.
    assert {each["type"] for each in seen} == {"BOOKMARK"} or (api.name != "embedded" and not seen)
    assert all(int(each["object"]["metadata"]["resourceVersion"]) >= int(since) for each in seen)
    assert all(each["object"]["kind"] == "ConfigMap" for each in seen)


async def test_a_watch_without_bookmarks_just_ends(api: Api) -> None:
    since = (await listed(api))["metadata"]["resourceVersion"]
    params = {"resourceVersion": since, "timeoutSeconds": "1", "labelSelector": "ours=yes"}
    async with watching(api, api.path("ConfigMap"), **params) as following:
        assert await following() == {}


async def test_the_end_of_the_beginning_is_marked_for_those_who_ask(api: Api) -> None:
    await make(api, "a", ours="yes")
    params = {
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "resourceVersionMatch": "NotOlderThan",
        "labelSelector": "ours=yes",
    }
    async with watching(api, api.path("ConfigMap"), **params) as following:
        assert reported(await following()) == ("ADDED", "a")
        event = await following()
        assert event["type"] == "BOOKMARK"
        assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_from_a_version_that_is_forgotten_is_told_so_in_its_stream(api: Api) -> None:
    await api.forget()
    try:
        async with watching(api, api.path("ConfigMap"), resourceVersion="1") as following:
            event = await following()
    except Gone:
        return
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_a_watch_from_a_version_that_is_none_is_an_error(api: Api) -> None:
    with pytest.raises(Unavailable):
        async with watching(api, api.path("ConfigMap"), resourceVersion="turnip") as following:
            await following()


async def test_a_watch_of_all_namespaces_sees_those_that_come(api: Api) -> None:
    _, answer = await api.request("GET", "/api/v1/namespaces")
    since = answer["metadata"]["resourceVersion"]
    name = unique("new")
    async with watching(
        api, "/api/v1/namespaces", resourceVersion=since, fieldSelector=f"metadata.name={name}"
    ) as following:
        await api.client.create({"kind": "Namespace", "metadata": {"name": name}})
        event = await following()
        assert reported(event) == ("ADDED", name)
        assert event["object"]["metadata"]["labels"]["kubernetes.io/metadata.name"] == name
    await api.client.delete("Namespace", name)
