"""Scenarios on somebody's cluster: nothing happens that was not said, and afterwards it is as it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from day import AT_NIGHT, CONTROLLERS, SYSTEM, ShopCluster, live_in
from neighbours import NODES, SELECTOR, address, neighbours, node

from tightship_e2e import ControlPlane, reset
from tightship_e2e.plugin import require_binaries
from tightship_e2e.providers import measures
from tightship_e2e.providers.choice import available
from tightship_e2e.providers.existing import Chosen, RefusedError, on_existing
from tightship_e2e.providers.kubelets import Container
from tightship_e2e.providers.remote import Images
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.floors import autoscaler, hpa_annotations
from tightship_testkit.ports import free_ports

pytestmark = [pytest.mark.xdist_group("existing"), pytest.mark.takes(12)]

CONTEXT = "tightship-e2e"
IMAGES = Images("registry.example.com/tightship", "1.2.3")
CHOSEN = Chosen(CONTEXT, SELECTOR, IMAGES)
DEADLINE = 180.0


@pytest.fixture(scope="module")
def somebodys() -> Iterator[ControlPlane]:
    """A cluster whose API server goes to the pods themselves where a service is meant: there is no kube-proxy."""
    require_binaries("helm", "kubectl")
    with ControlPlane(audit=True, flags={"kube-apiserver": ["--enable-aggregator-routing=true"]}) as plane:
        yield plane


@pytest.fixture
def cluster(somebodys: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> ControlPlane:
    """That cluster with its nodes, and the kubeconfig of whoever runs the tests."""

    async def fill(api: Client) -> None:
        await reset(api)
        for name, pool in NODES:
            await api.create(node(name, pool))

    somebodys.run(fill)
    somebodys.audit_events()
    monkeypatch.setenv("KUBECONFIG", str(somebodys.kubeconfig))
    return somebodys


async def everything(api: Client) -> Json:
    """Return what there is: of nodes what lasts, of the rest the names."""
    nodes = {
        each["metadata"]["name"]: (
            each["metadata"]["labels"],
            each["metadata"].get("annotations") or {},
            each["spec"].get("taints") or [],
            bool(each["spec"].get("unschedulable")),
        )
        for each in await api.list("Node")
    }
    names = {
        kind: sorted(each["metadata"]["name"] for each in await api.list(kind))
        for kind in ("Namespace", "ClusterRole", "APIService", "Pod", "HorizontalPodAutoscaler")
    }
    return {"nodes": nodes, **names}


async def as_it_was(api: Client, before: Json, *, but: str = "") -> None:
    """Wait until there is what there was, *but* for a node: a cordon's taint goes by the controller-manager's hand."""
    after: Json = {}
    before["nodes"].pop(but, None)

    async def same() -> bool:
        after.update(await everything(api))
        after["nodes"].pop(but, None)
        return after == before

    with suppress(TimeoutError):
        await wait_for(same, DEADLINE, "the cluster is as it was")
    assert after == before


def test_a_cluster_is_left_alone_with_everything_said_that_is_in_the_way(cluster: ControlPlane, tmp_path: Path) -> None:
    async def work(api: Client) -> None:
        foreign = node("foreign", "general")
        foreign["metadata"]["labels"].pop("example.com/mine")
        await api.create(foreign)
        await api.patch("Node", "general-1", {"spec": {"unschedulable": True}})
        await api.patch("Node", "general-2", {"metadata": {"labels": {"cloud.google.com/gke-nodepool": "other"}}})
        await api.patch("Node", "general-3", {"metadata": {"annotations": {"tightship.dev/drain": "{}"}}})
        small = {"status": {"allocatable": {"cpu": "2"}}}
        await api.patch("Node", "memory-0", small, subresource="status")
        container = {"name": "main", "image": "none"}
        meta = {"name": "precious", "namespace": "default"}
        await api.create(
            {"kind": "Pod", "metadata": meta, "spec": {"containers": [container], "nodeName": "general-4"}}
        )
        theirs = autoscaler("theirs", 1, 3, hpa_annotations())
        theirs["metadata"]["namespace"] = "default"
        await api.create(theirs)

        async def tainted() -> bool:
            taints = (await api.get("Node", "general-1"))["spec"].get("taints") or []
            return any(each["key"] == "node.kubernetes.io/unschedulable" for each in taints)

        # By the controller-manager's hand, some time after the cordon.
        await wait_for(tainted, DEADLINE, "general-1 has the taint of its cordon")
        before = await everything(api)
        cluster.audit_events()
        with pytest.raises(RefusedError) as refused:
            async with on_existing(CHOSEN, tmp_path, pytest.fail):
                pytest.fail("it was used")
        assert str(refused.value).splitlines() == [
            f"the cluster of context {CONTEXT} is left alone:",
            (
                "node foreign is not named, but might be drained: "
                "kubectl annotate node foreign tightship.dev/do-not-drain=true"
            ),
            "node general-1 is cordoned",
            "node general-2 has cloud.google.com/gke-nodepool=other, which is none of system, general, memory",
            "node general-3 bears tightship.dev/drain already",
            "node memory-0 has 2000m CPU for pods, not 3800m to 4000m",
            "pod default/precious is on node general-4, which is to be emptied",
            "HPA default/theirs is opted in to a hpa-scaler: it would be scaled",
        ]
        assert await everything(api) == before
        ours = [
            each for each in cluster.audit_events() if each.user_agent.startswith(("tightship-e2e", "Helm", "kubectl"))
        ]
        assert {each.verb for each in ours} <= {"get", "list"}

    cluster.run(work)


@pytest.mark.takes(45)
def test_a_scenario_on_somebodys_cluster(
    cluster: ControlPlane, charts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controllers and measures are processes here, reached as pods are; the rest is as on any cluster."""
    with available("controlplane"):
        own = address()
    monkeypatch.setattr(measures, "PORTS", free_ports(*measures.PORTS))
    monkeypatch.setattr(measures.RemoteMetrics, "url", f"http://{own}:{measures.PORTS['prometheus']}")
    served, probed = free_ports(*CONTROLLERS), free_ports(*CONTROLLERS)
    ports: dict[str, Any] = {name: {"http": {"port": served[name], "probePort": probed[name]}} for name in CONTROLLERS}
    reported: list[str] = []

    async def scenario(on: ShopCluster) -> None:
        await on.install(**ports)
        floors = {"web": 6, "cache": 3, "api": 3}

        async def there() -> bool:
            found = await on.floors()
            return {name: found[name] for name in floors} == floors

        await on.until(there, f"the floors {floors}", on.pods_told)
        await on.seen(lambda: bool(on.remover.removed), "a node is taken away")
        [scaler] = [each for each in await on.provider.controllers(SYSTEM) if each.name == "hpa-scaler"]
        assert isinstance(scaler, Container)
        assert (await scaler.get("/metrics"))[0] == 200
        assert (await scaler.get("/nothing"))[0] == 404
        assert (await replace(scaler, port=probed["hpa-scaler"]).get("/healthz"))[0] == 200
        assert await replace(scaler, port=1).get("/metrics") == (0, "")
        async with on.metrics.outage():

            async def failed() -> bool:
                # That nobody answers is told for a cycle or two, which may be over before somebody looks; this lasts.
                return "CircuitOpen" in await on.reasons("web")

            await on.until(failed, "Prometheus does not answer")
        await on.until_ready(AT_NIGHT)
        pods = await on.api.list("Pod", SYSTEM)
        images = {each["spec"]["containers"][0]["image"] for each in pods}
        assert images == {IMAGES.name(each) for each in CONTROLLERS}
        assert len(reported) == 1

    async def work(api: Client) -> None:
        before = await everything(api)
        async with (
            neighbours(cluster, api, tmp_path, own),
            on_existing(CHOSEN, tmp_path, reported.append) as provider,
        ):
            await live_in(provider.cluster, provider, charts, scenario, by_night=True)
        assert all(f"  cordons, drains, deletes and brings back the nodes {SELECTOR}" in each for each in reported)
        await as_it_was(api, before)

    cluster.run(work)


def test_a_cluster_is_as_it_was_after_a_cancellation_in_the_middle(
    cluster: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def served(_: measures.RemoteMetrics) -> None:
        """Nobody waits for what does not run here."""

    monkeypatch.setattr(measures.RemoteMetrics, "ready", served)

    async def work(api: Client) -> None:
        before = await everything(api)
        begun = asyncio.Event()

        async def use() -> None:
            async with on_existing(CHOSEN, tmp_path, lambda _: None) as provider:
                await provider.add_node("any", "system")
                await api.request("POST", "/api/v1/namespaces/default/configmaps", body={"metadata": {"name": "mine"}})
                mark = {"spec": {"taints": [{"key": "tightship.dev/draining", "value": "x", "effect": "NoSchedule"}]}}
                notes = {"metadata": {"annotations": {"tightship.dev/drain": json.dumps({"phase": "Evicting"})}}}
                await api.patch("Node", "general-0", {**mark, **notes})
                await api.patch("Node", "general-0", {"spec": {"unschedulable": True}})
                await api.patch("Node", "general-1", {"spec": {"unschedulable": True}})
                await api.delete("Node", "general-2")
                begun.set()
                await asyncio.Event().wait()

        using = asyncio.create_task(use())
        waiting = asyncio.create_task(begun.wait())
        await asyncio.wait({using, waiting}, return_when=asyncio.FIRST_COMPLETED)
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        # A cordon without a mark of ours is somebody else's.
        assert (await api.get("Node", "general-1"))["spec"]["unschedulable"]
        await as_it_was(api, before, but="general-1")
        assert (await api.get("ConfigMap", "mine", "default"))["metadata"]["name"] == "mine"

    cluster.run(work)
