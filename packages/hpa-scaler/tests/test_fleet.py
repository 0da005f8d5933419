"""Looking at a cluster: HPAs, their targets, and what may go wrong with either."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hpa_builder import NOW, annotated, hpa
from kube.conftest import api, connection, fake_sleep

from hpa_scaler.annotations.spec import Rollout
from hpa_scaler.cli import build_parser
from hpa_scaler.process.commands import CommandSettings, judge_selected
from hpa_scaler.process.fleet import Selection, fleet_of_cluster, fleet_of_files, read_rollout
from hpa_scaler.process.forecasts import made_by
from tightship.kube.connection import Connection
from tightship.objects.api_errors import Forbidden
from tightship.objects.autoscaling import ScaleTargetRef
from tightship_testkit.scripted import Json, ScriptedApi, page, status

pytestmark = pytest.mark.virtual_time

__all__ = ["api", "connection", "fake_sleep"]

HPAS = "LIST /apis/autoscaling/v2/horizontalpodautoscalers"
TARGET = "LIST /apis/apps/v1/namespaces/shop/deployments/web"


def wire(name: str = "web", namespace: str = "shop", **annotations: str) -> Json:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"u-{name}", "annotations": annotated(**annotations)},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 10,
            "maxReplicas": 20,
        },
        "status": {"currentReplicas": 10, "conditions": [{"type": "AbleToScale", "status": "True"}]},
    }


def deployment(updated: int) -> Any:
    async def respond(_: web.Request) -> web.StreamResponse:
        content = {
            "metadata": {"name": "web", "namespace": "shop", "generation": 1},
            "status": {"replicas": 4, "updatedReplicas": updated, "observedGeneration": 1},
        }
        return web.json_response(content)

    return respond


async def test_a_target_is_read_by_one_get(api: ScriptedApi, connection: Connection) -> None:
    api.on(TARGET, deployment(2))
    assert await read_rollout(connection, hpa()) == Rollout("rolling", "Deployment web has 2 new pods of 4")
    api.on(TARGET, deployment(4))
    assert (await read_rollout(connection, hpa())).state == "steady"
    assert len(api.seen) == 2


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (status(403, "Forbidden", "no"), "Deployment/web: may not be read: no"),
        (status(404, "NotFound", "x"), "Deployment/web: not found"),
        (status(500, "InternalError", "broken"), "Deployment/web: "),
        (page([]), "Deployment/web: "),
    ],
)
async def test_a_target_that_can_not_be_read_is_unknown(
    api: ScriptedApi, connection: Connection, answer: Any, says: str
) -> None:
    api.on(TARGET, answer)
    found = await read_rollout(connection, hpa())
    assert found.state == "unknown"
    assert found.detail.startswith(says)


async def test_a_kind_whose_rollouts_nobody_knows_is_not_asked_for(api: ScriptedApi, connection: Connection) -> None:
    found = await read_rollout(connection, hpa(target=ScaleTargetRef("Fleet", "web", "example.com/v1")))
    assert found.state == "unknown"
    assert "rollouts are known of Deployment, ReplicaSet, Rollout, StatefulSet" in found.detail
    assert api.seen == []


async def test_an_argo_rollout_is_asked_for_in_its_group(api: ScriptedApi, connection: Connection) -> None:
    await read_rollout(connection, hpa(target=ScaleTargetRef("Rollout", "web", "argoproj.io/v1alpha1")))
    assert api.seen[0].path == "/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/web"


async def test_hpas_are_listed_and_those_that_can_not_be_read_are_named(
    api: ScriptedApi, connection: Connection
) -> None:
    api.on(HPAS, page([wire("a"), {**wire("b"), "spec": {}}, wire("c")]))
    said: list[str] = []
    fleet = await fleet_of_cluster(connection, Selection(selector="team=a"), said.append)
    assert [each.name for each in fleet.hpas] == ["a", "c"]
    assert fleet.problems == ("HorizontalPodAutoscaler shop/b: spec.scaleTargetRef is missing",)
    assert api.seen[0].params["labelSelector"] == "team=a"
    assert said == ["reading HPAs: 3"]


async def test_each_namespace_is_listed_by_itself(api: ScriptedApi, connection: Connection) -> None:
    for namespace in ("shop", "back"):
        path = f"LIST /apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        api.on(path, page([wire(namespace=namespace)]))
    fleet = await fleet_of_cluster(connection, Selection(("shop", "back")), lambda _: None)
    assert [each.key for each in fleet.hpas] == ["shop/web", "back/web"]


async def test_a_list_that_is_forbidden_is_an_error(api: ScriptedApi, connection: Connection) -> None:
    api.on(HPAS, status(403, "Forbidden", "no"))
    with pytest.raises(Forbidden):
        await fleet_of_cluster(connection, Selection(), lambda _: None)


def test_a_file_may_hold_targets_and_other_things(tmp_path: Path) -> None:
    def thing(kind: str, version: str, **more: Any) -> Json:
        return {"kind": kind, "apiVersion": version, "metadata": {"name": "web", "namespace": "shop"}, **more}

    path = tmp_path / "all.json"
    things = [
        {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", **wire()},
        thing("Deployment", "apps/v1", status={"replicas": 2}),
        thing("StatefulSet", "apps/v1"),
        thing("Rollout", "argoproj.io/v1alpha1", status={"phase": "Healthy"}),
        thing("Rollout", "other.example.com/v1", status="not ours"),
        thing("Pod", "v1"),
    ]
    path.write_text(json.dumps(things))
    fleet = fleet_of_files([str(path)], Selection())
    assert [each.key for each in fleet.hpas] == ["shop/web"]
    assert set(fleet.targets) == {(kind, "shop", "web") for kind in ("Deployment", "StatefulSet", "Rollout")}


def arguments(*given: str) -> argparse.Namespace:
    return build_parser().parse_args(["plan", *given])


async def test_a_cluster_is_planned_on_with_recorded_answers(api: ScriptedApi, tmp_path: Path) -> None:
    at_once = {"prometheus_query": "q", "query_range": "0", "lowering_window": "0"}
    things = [
        wire("web", enable_scale_down_ratio_deployment_checking="true", **at_once),
        wire("other", **at_once),
        {**wire("plain"), "metadata": {"name": "plain", "namespace": "shop"}},
        {**wire("broken"), "spec": {}},
    ]
    api.on(HPAS, page(things))
    api.on(TARGET, deployment(1))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": api.url}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    outcomes = tmp_path / "outcomes.json"
    outcomes.write_text('{"outcomes": [{"query": "q", "values": [4]}]}')
    given = arguments("--kubeconfig", str(kubeconfig), "--outcomes", str(outcomes))
    context = await judge_selected(
        given, CommandSettings.of(given, {}), NOW, None, lambda _: None, forecasts=made_by(())
    )
    decided = {each.name: (each.action, each.reason) for each in context.cycle.decisions}
    assert decided == {"web": ("hold", "RolloutInProgress"), "other": ("lower", "FollowsQuery")}
    assert (context.source.type, context.source.name, context.not_enabled) == ("cluster", "here", 1)
    [warning] = context.warnings
    assert warning.startswith("Unreadable: HorizontalPodAutoscaler shop/broken: spec.scaleTargetRef is missing")
    assert {each.verb for each in api.seen} == {"LIST"}
