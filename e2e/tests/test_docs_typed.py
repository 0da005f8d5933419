"""What the how-tos and the migration pages tell people to type does what they say, typed on a real control plane."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from day import AT_NIGHT, NIGHT, RELEASE, SYSTEM, Live, ShopCluster
from test_day import custom_resources_served
from typing_pages import ROOT, Typist

from tightship_e2e.names import SHOP
from tightship_testkit.client import Json
from tightship_testkit.floors import HPA, PREFIX, STATE
from tightship_testkit.manifests import POOL
from tightship_testkit.marks import drain

pytestmark = [pytest.mark.providers("controlplane"), pytest.mark.takes(30)]

OLDER = "estafette.io/node-compactor-state"
SOON = {"--set dryRun=true": "--set dryRun=true --set interval=1s"}
"""A test has no minute to wait for the next pass."""


def test_the_way_from_a_first_look_to_running_and_back(on_shop_cluster: Live, tmp_path: Path) -> None:
    async def work(on: ShopCluster) -> None:
        await on.metrics.backfill("".join(past(hours=6)))
        typist = Typist(on, tmp_path, {"NODE": "general-0"})
        older = (await on.api.get(HPA, "web", SHOP))["metadata"].get("annotations") or {}
        none = {key: None for key in older if key.startswith(PREFIX)}
        await on.api.patch(HPA, "web", {"metadata": {"annotations": none}}, SHOP)
        async with autoscaler(on):
            await typist.page("five-steps.md")
            await typist.page("hpa-scaler.md", last="hpa-scaler-\n")
            await typist.page("operations.md", first="annotate lease", last="get nodes -o custom-columns")
        assert await on.provider.controllers(SYSTEM) == []
        assert [each for each in await on.left_behind() if "tightship" in each] == []

    on_shop_cluster(work, by_night=True)


def past(hours: int) -> Iterator[str]:
    """A load that rises and falls once, minute by minute until a few minutes ago."""
    yield "# TYPE load_web gauge\n"
    until = int(time.time()) // 60 * 60 - 600
    for minute in range(hours * 60):
        load = 120 + 60 * math.sin(2 * math.pi * minute / (hours * 60))
        yield f"load_web {load:.1f} {until - 60 * (hours * 60 - minute)}\n"
    yield "# EOF\n"


STATUS = {"nodeGroups": [{"name": "general", "health": {"minSize": 1, "maxSize": 9}}]}


def test_the_how_to_for_each_platform(on_shop_cluster: Live, tmp_path: Path) -> None:
    async def work(on: ShopCluster) -> None:
        await on.provider.add_node("spare-0", "spare")
        await on.provider.add_node("spare-1", "spare")
        typist = Typist(on, tmp_path, {"OTHERNODE": "spare-1", "NODE": "spare-0"})
        (tmp_path / "prices.yaml").write_text("instanceTypes: {m5.large: 0.1}\n")
        async with custom_resources_served(on), autoscaler(on):
            disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
            body = {"metadata": {"name": "general"}, "spec": {"disruption": disruption}}
            path = "/apis/karpenter.sh/v1/nodepools"
            await on.api.call("POST", path, body={"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **body})
            await typist.page("platforms.md")
            # Nothing is in drain, so nobody waits for what would give nodes back.
            await typist.type(f"helm uninstall {RELEASE} -n {SYSTEM} --no-hooks")
            assert "spare-0" not in await on.nodes("spare")

    on_shop_cluster(work, by_night=True)


@asynccontextmanager
async def autoscaler(on: ShopCluster) -> AsyncIterator[None]:
    """What a cluster with Cluster Autoscaler has in kube-system, for the body's time."""
    where = {"name": "cluster-autoscaler-status", "namespace": "kube-system"}
    labels = {"app": "cluster-autoscaler"}
    command = ["./cluster-autoscaler", "--scale-down-unneeded-time=10m"]
    pod = {"containers": [{"name": "main", "image": "none", "command": command}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    made = [
        {"kind": "ConfigMap", "metadata": where, "data": {"status": yaml.safe_dump(STATUS)}},
        {"kind": "Deployment", "metadata": {**where, "name": "cluster-autoscaler"}, "spec": spec},
    ]
    for each in made:
        await on.api.create(each)
    try:
        yield
    finally:
        for each in made:
            await on.api.delete(each["kind"], each["metadata"]["name"], "kube-system")


def older(name: str, namespace: str, rules: list[Json], more: list[Json]) -> list[Json]:
    """Manifests of the shape of an older controller's: an account, its rights, and a Deployment that does nothing."""
    account = {"name": name, "namespace": namespace}
    labels = {"app": name}
    rbac = "rbac.authorization.k8s.io"
    pod = {
        "serviceAccountName": name,
        "nodeSelector": {POOL: "system"},
        "containers": [{"name": name, "image": "none"}],
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{name}-admin"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", **account}],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**account, "labels": labels},
            "spec": {**spec, "template": {"metadata": {"labels": labels}, "spec": pod}},
        },
        *more,
    ]


def settings(name: str, namespace: str, data: dict[str, str]) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


async def released(typist: Typist, name: str, manifests: list[Json]) -> None:
    """Install *manifests* as the release *name* of a chart."""
    chart = typist.folder / "older"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": name, "version": "0.1.0"}))
    (chart / "templates/all.yaml").write_text(yaml.safe_dump_all(manifests))
    await typist.type(f"helm install {name} older -n estafette --create-namespace")


async def deployments(on: ShopCluster, namespace: str) -> set[str]:
    return {each["metadata"]["name"] for each in await on.api.list("Deployment", namespace)}


def test_moving_from_the_older_node_compactor(on_shop_cluster: Live, tmp_path: Path) -> None:
    name, marked, begun = "estafette-k8s-node-compactor", "general-3", "general-4"
    pools = {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75, "scaleDownRequiredUnderutilizedNodeCount": 1}
    config = {f"{name}-config.yaml": json.dumps({"nodePools": {"general": pools}})}
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "update", "watch"]}]

    async def work(on: ShopCluster) -> None:
        ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        state = {"markedForRemoval": True, "markedAt": ago, "scaleDownInProgress": False, "lastUpdated": ago}
        ended = {**state, "markedForRemoval": False, "markedAt": "", "scaleDownInProgress": True}
        on.recorder.human |= {marked, begun}
        for node, each in ((marked, state), (begun, ended)):
            patch = {"metadata": {"annotations": {OLDER: json.dumps(each)}}}
            await on.api.patch("Node", node, patch)
        await on.api.patch("Node", begun, {"spec": {"unschedulable": True}})
        typist = Typist(on, tmp_path, {"NODE": begun, **SOON})
        [values] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/moving.md").read_text(), re.DOTALL)
        given = yaml.safe_load(values)
        pool = given["config"]["nodePools"]["mynodepool"]
        given["config"]["nodePools"] = {"general": {**pool, "requiredUnderutilizedNodeCount": 1}}
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(given))
        await released(typist, name, older(name, "estafette", rules, [settings(name, "estafette", config)]))
        try:
            await typist.page("moving.md", last="get deployments")
            assert await deployments(on, "estafette") == {name, "node-compactor"}
            await typist.page("moving.md", first="helm uninstall", last="get nodes")
            assert await deployments(on, "estafette") == {"node-compactor"}

            async def taken_over() -> bool:
                return OLDER not in (await on.api.get("Node", marked))["metadata"]["annotations"]

            await on.until(taken_over, "the mark is taken over")
            node = await on.api.get("Node", begun)
            assert json.loads(node["metadata"]["annotations"][OLDER]) == ended
            assert node["spec"]["unschedulable"]
            await typist.page("moving.md", first="annotate node", last="uncordon")
            await on.seen(lambda: marked in on.remover.removed, f"{marked}, marked by the older one, goes at once")
            # The others wait for their own ten minutes.
            assert on.remover.removed == [marked]
            left = await on.api.list("Node", labelSelector=f"{POOL}=general")
            assert {drain(each).get("phase") for each in left} == {"Marked"}
        finally:
            await on.provider.uninstall("node-compactor", "estafette")

    on_shop_cluster(work, by_night=True)


def test_moving_from_the_older_node_refiner(on_shop_cluster: Live, tmp_path: Path) -> None:
    data = {"drainer_enabled": "false", "time_gap": "0", "time_since_last_addition": "0", "minimum_nodes": "3"}
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]

    async def work(on: ShopCluster) -> None:
        typist = Typist(on, tmp_path, SOON)
        await typist.type("kubectl create namespace node-refiner --dry-run=client -o yaml | kubectl apply -f -")
        found = older("node-refiner", "node-refiner", everything, [settings("node-refiner-cm", "node-refiner", data)])
        (tmp_path / "manifests.yaml").write_text(yaml.safe_dump_all(found))
        await typist.type("kubectl apply -f manifests.yaml")
        try:
            await typist.page("moving.md", first="get configmap node-refiner-cm", last="patch configmap")
            assert await deployments(on, "node-refiner") == {"tightship-node-refiner"}
            await on.seen(lambda: bool(on.remover.removed), "a node goes once drainer_enabled is true")
        finally:
            await on.provider.uninstall("tightship", "node-refiner")
            await typist.type("kubectl delete -f manifests.yaml --ignore-not-found")

    on_shop_cluster(work, by_night=True)


def test_moving_from_the_older_hpa_scaler(on_shop_cluster: Live, tmp_path: Path) -> None:
    name = "estafette-k8s-hpa-scaler"
    rules = [{"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["list", "update"]}]
    state = '{"enabled":"true","prometheusQuery":"sum(load_web)","requestsPerReplica":10,"delta":0}'

    async def work(on: ShopCluster) -> None:
        # The older one has set this floor, and no record of what was there before.
        await on.api.patch(HPA, "web", {"metadata": {"annotations": {STATE: state}}, "spec": {"minReplicas": 6}}, SHOP)
        typist = Typist(on, tmp_path, SOON)
        await released(typist, name, older(name, "estafette", rules, []))
        try:
            async with on.watch_lows():
                await typist.page("moving.md", first="floors plan", last="get hpa")
                assert await deployments(on, "estafette") == {"hpa-scaler"}

                assert (await on.floors())["web"] == 6
                await on.be({**NIGHT, "load_web": 90})

                async def raised() -> bool:
                    return (await on.floors())["web"] == 9

                await on.until(raised, "the floor follows the query")
                written = json.loads((await on.api.get(HPA, "web", SHOP))["metadata"]["annotations"][STATE])
                assert list(written)[:3] == list(json.loads(state))[:3]
                assert len(written) > len(json.loads(state))
            assert on.lowest["web"] == AT_NIGHT["web"]
        finally:
            await on.provider.uninstall("hpa-scaler", "estafette")

    on_shop_cluster(work, by_night=True)
