"""Every answer that the API server gives to an eviction, provoked for real, means what the drain takes it for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tightship.drain.answers import FATAL, GOING, Answer, Heard
from tightship.drain.evicting import send_away
from tightship.kube.connection import Connection, connect
from tightship.objects import Pod, decode
from tightship.reasons import Reason
from tightship_e2e import ControlPlane, load
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.manifests import as_list, budget, node, owner, pod, replicas

DEADLINE = 60.0
Scene = Callable[[Client, Connection, ControlPlane], Awaitable[Heard]]


def web(*more: Json) -> Json:
    return as_list(node("n1"), *replicas("web", ["n1", "n1"], app="web"), *more)


async def the_pod(api: Client, name: str = "web-0") -> Pod:
    found = decode("Pod", msgspec.json.encode(await api.get("Pod", name, "shop")))
    assert isinstance(found, Pod)
    return found


async def evicted(api: Client, connection: Connection, name: str = "web-0") -> Heard:
    return await send_away(connection, await the_pod(api, name), past_budgets=False)


async def counted(api: Client, name: str, allowed: int) -> None:
    async def done() -> bool:
        status = (await api.get("PodDisruptionBudget", name, "shop")).get("status") or {}
        return status.get("disruptionsAllowed") == allowed and bool(status.get("observedGeneration"))

    await wait_for(done, DEADLINE, f"budget {name} allows {allowed}")


async def allowed(api: Client, connection: Connection, plane: ControlPlane) -> Heard:
    del plane
    await load(api, web(budget("web", 1, app="web")))
    await counted(api, "web", 1)
    return await evicted(api, connection)


async def none_allowed(api: Client, connection: Connection, plane: ControlPlane) -> Heard:
    del plane
    await load(api, web(budget("web", 2, app="web")))
    await counted(api, "web", 0)
    return await evicted(api, connection)


async def two_budgets(api: Client, connection: Connection, plane: ControlPlane) -> Heard:
    del plane
    await load(api, web(budget("web", 0, app="web"), budget("too", 0, app="web")))
    return await evicted(api, connection)


async def failed_sync(api: Client, connection: Connection, plane: ControlPlane) -> Heard:
    """A budget that was computed, until it got a pod whose owner has no scale."""
    del plane
    await load(api, web(budget("web", "50%", app="web")))
    await counted(api, "web", 1)
    at = (await api.get("Node", "n1"))["metadata"]
    of = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": at["uid"], "controller": True}
    meta = {"name": "odd", "namespace": "shop", "labels": {"app": "web"}, "ownerReferences": [of]}
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}
    await api.create({"kind": "Pod", "metadata": meta, "spec": spec})
    await failed(api)
    return await evicted(api, connection)


async def failed_from_the_first(api: Client, connection: Connection, plane: ControlPlane) -> Heard:
    """A budget that never was computed: its status stays older than its spec, and that is what the server says."""
    del plane
    await load(api, as_list(node("n1"), pod("web-0", "n1", owner("DaemonSet", "web"), {"app": "web"})))
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    meta = {"name": "web", "namespace": "shop"}
    await api.create({"kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})
    await failed(api)
    return await evicted(api, connection)


async def failed(api: Client) -> None:
    async def said() -> bool:
        status = (await api.get("PodDisruptionBudget", "web", "shop")).get("status") or {}
        return any(each.get("reason") == "SyncFailed" for each in status.get("conditions") or [])

    await wait_for(said, DEADLINE, "the budget can't be computed")


async def stale_status(api: Client, connection: Connection, plane: ControlPlane) -> Heard:
    await load(api, web(budget("web", 1, app="web")))
    await counted(api, "web", 1)
    with plane.paused("kube-controller-manager"):
        await api.patch("PodDisruptionBudget", "web", {"spec": {"minAvailable": 0}}, "shop")
        return await evicted(api, connection)


async def another_pod(api: Client, connection: Connection, plane: ControlPlane) -> Heard:
    del plane
    await load(api, web())
    wrong = msgspec.structs.replace(await the_pod(api), uid="11111111-2222-3333-4444-555555555555")
    return await send_away(connection, wrong, past_budgets=False)


async def gone(api: Client, connection: Connection, plane: ControlPlane) -> Heard:
    del plane
    await load(api, web())
    missing = msgspec.structs.replace(await the_pod(api), name="nobody")
    return await send_away(connection, missing, past_budgets=False)


async def forbidden(api: Client, connection: Connection, plane: ControlPlane) -> Heard:
    del connection
    await load(api, web())
    file = await asyncio.to_thread(plane.service_account_kubeconfig, "default", "default")
    async with await connect(file) as nobody:
        return await evicted(api, nobody)


async def with_finalizer(api: Client, connection: Connection, plane: ControlPlane) -> Heard:
    """The object stays, with its deletion begun: evicting it again says the same."""
    del plane
    await load(api, web())
    await api.patch("Pod", "web-0", {"metadata": {"finalizers": ["example.com/held"]}}, "shop")
    first = await evicted(api, connection)
    assert first.answer is Answer.ACCEPTED
    again = await the_pod(api)
    assert again.deletion is not None
    return await send_away(connection, again, past_budgets=False)


async def unready_below_minimum(api: Client, connection: Connection, plane: ControlPlane) -> Heard:
    """A pod that is not Ready does not get past a budget that is short already."""
    del plane
    ill = [pod(f"web-{n}", "n1", owner("ReplicaSet", "web"), {"app": "web"}) for n in range(2)]
    for each in ill:
        each["metadata"]["annotations"] = {"e2e.tightship.dev/phase": "Unready"}
        each["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    await load(api, as_list(node("n1"), *ill, budget("web", 1, app="web")))
    await counted(api, "web", 0)
    return await evicted(api, connection)


SCENES: list[tuple[Scene, Answer, Reason | None]] = [
    (allowed, Answer.ACCEPTED, None),
    (none_allowed, Answer.BUDGET, None),
    (two_budgets, Answer.MULTIPLE_BUDGETS, Reason.MULTIPLE_PDBS),
    (failed_sync, Answer.BUDGET_SYNC_FAILED, Reason.PDB_SYNC_FAILED),
    (failed_from_the_first, Answer.BUDGET_NOT_CURRENT, None),
    (stale_status, Answer.BUDGET_NOT_CURRENT, None),
    (another_pod, Answer.CONFLICT, None),
    (gone, Answer.GONE, None),
    (forbidden, Answer.FORBIDDEN, Reason.EVICTION_FORBIDDEN),
    (with_finalizer, Answer.ACCEPTED, None),
    (unready_below_minimum, Answer.BUDGET, None),
]


@pytest.mark.parametrize(("scene", "answer", "fatal"), SCENES, ids=[scene.__name__ for scene, _, _ in SCENES])
def test_an_answer_of_the_server(empty_plane: ControlPlane, scene: Scene, answer: Answer, fatal: Reason | None) -> None:
    async def work(api: Client) -> None:
        async with await connect(empty_plane.kubeconfig) as connection:
            heard = await scene(api, connection, empty_plane)
        print(f"\n{scene.__name__}: {heard.answer}: {heard.text!r}, retry after {heard.retry_after}")
        assert heard.answer is answer
        assert FATAL.get(heard.answer) is fatal
        assert (heard.retry_after is not None) == (answer is Answer.BUDGET_NOT_CURRENT)
        assert (heard.answer in GOING) == (answer is Answer.ACCEPTED)

    empty_plane.run(work)


def test_a_namespace_that_is_ending(empty_plane: ControlPlane) -> None:
    """Its pods go by themselves: whatever is answered, the pod counts as on its way or gone."""

    async def work(api: Client) -> None:
        space = "ending"
        await api.create({"kind": "Namespace", "metadata": {"name": space}})
        await load(api, as_list(node("n1")))
        meta = {"name": "last", "namespace": space, "labels": {"app": "last"}, "finalizers": ["example.com/held"]}
        body = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}
        made = await api.create({"kind": "Pod", "metadata": meta, "spec": body})
        await api.create(
            {
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "last", "namespace": space},
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "last"}}},
            }
        )
        await api.delete("Namespace", space)
        last = decode("Pod", msgspec.json.encode(made))
        assert isinstance(last, Pod)
        try:
            async with await connect(empty_plane.kubeconfig) as connection:
                heard = await send_away(connection, last, past_budgets=False)
            print(f"\nnamespace terminating: {heard.answer}: {heard.text!r}")
            assert heard.answer in {Answer.NAMESPACE_TERMINATING, Answer.ACCEPTED}
            assert heard.answer in GOING
        finally:
            await api.patch("Pod", "last", {"metadata": {"finalizers": None}}, space)

    empty_plane.run(work)
