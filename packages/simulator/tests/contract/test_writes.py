"""Reads and writes of single objects: what is answered, what is kept, and who wins."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from contract_api import DEADLINE, Api, Json, unique

from tightship.deletion_costs.costs import notes_of, removal
from tightship.draining.writing import NodePatch, patch_node, read_node
from tightship.kube.leases import LeaseStore, decode_lease
from tightship.objects.api_errors import Conflict
from tightship.objects.drain_record import FIELD_MANAGER
from tightship.process.events import EventRecorder, ObjectRef
from tightship.process.events import Pace as EventPace
from tightship.rules.disruption_cost import DELETION_COST
from tightship_testkit.client import RESOURCES, wait_for

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
LEASES = "/apis/coordination.k8s.io/v1/namespaces"


def config_map(api: Api, name: str = "config", **data: str) -> Json:
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": api.namespace},
        "data": data,
    }


def autoscaler(api: Api, least: int = 2, most: int = 10, **notes: str) -> Json:
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": least,
        "maxReplicas": most,
    }
    meta = {"name": "web", "namespace": api.namespace, "annotations": notes or {"team": "shop"}}
    return {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", "metadata": meta, "spec": spec}


def deployment(api: Api) -> Json:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": "web", "namespace": api.namespace}
    return {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": meta, "spec": spec}


def lease(api: Api, name: str = "leader", **spec: object) -> Json:
    meta = {"name": name, "namespace": api.namespace}
    held = {"holderIdentity": "one", "leaseDurationSeconds": 15, **spec}
    return {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": meta, "spec": held}


def leases(api: Api, name: str = "") -> str:
    return f"{LEASES}/{api.namespace}/leases" + (f"/{name}" if name else "")


# Creation.


async def test_what_is_created_gets_its_uid_its_version_and_its_time(api: Api) -> None:
    code, made = await api.request("POST", api.path("ConfigMap"), body=config_map(api, key="value"))
    assert code == 201
    meta = made["metadata"]
    assert meta["uid"]
    assert meta["resourceVersion"]
    assert meta["creationTimestamp"].endswith("Z")
    assert made["data"] == {"key": "value"}
    assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")


async def test_a_name_is_taken_once(api: Api) -> None:
    await api.client.create(config_map(api))
    code, answer = await api.request("POST", api.path("ConfigMap"), body=config_map(api))
    assert (code, answer["reason"], answer["message"]) == (409, "AlreadyExists", 'configmaps "config" already exists')


async def test_a_name_can_be_left_to_the_server(api: Api) -> None:
    manifest = config_map(api)
    manifest["metadata"] = {"generateName": "made-"}
    _, made = await api.request("POST", api.path("ConfigMap"), body=manifest)
    assert made["metadata"]["name"].startswith("made-")
    assert len(made["metadata"]["name"]) == len("made-") + 5


async def test_nothing_is_created_in_a_namespace_that_is_not_there(api: Api) -> None:
    manifest = config_map(api)
    manifest["metadata"]["namespace"] = space = unique("nowhere")
    code, answer = await api.request("POST", f"/api/v1/namespaces/{space}/configmaps", body=manifest)
    assert (code, answer["reason"], answer["message"]) == (404, "NotFound", f'namespaces "{space}" not found')


async def test_a_body_of_another_namespace_or_kind_is_refused(api: Api) -> None:
    manifest = config_map(api)
    manifest["metadata"]["namespace"] = "default"
    await api.refused(400, "BadRequest", "POST", api.path("ConfigMap"), body=manifest)
    await api.refused(400, "BadRequest", "POST", api.path("Secret"), body=config_map(api))


async def test_what_is_tried_in_a_dry_run_is_not_there_afterwards(api: Api) -> None:
    code, _ = await api.request("POST", api.path("ConfigMap"), body=config_map(api), params={"dryRun": "All"})
    assert code == 201
    code, _ = await api.request("GET", api.path("ConfigMap", "config"))
    assert code == 404


async def test_a_status_can_only_be_given_by_its_own_path(api: Api) -> None:
    made = await api.client.create({**deployment(api), "status": {"replicas": 7}})
    assert made.get("status", {}).get("replicas", 0) == 0
    patched = await api.client.patch("Deployment", "web", {"status": {"replicas": 7}}, api.namespace)
    assert patched.get("status", {}).get("replicas", 0) == 0
    body = {"spec": {"replicas": 3}, "status": {"conditions": [{"type": "Paused", "status": "True"}]}}
    patched = await api.client.patch("Deployment", "web", body, api.namespace, subresource="status")
    assert patched["spec"]["replicas"] == 0
    assert "Paused" in [each["type"] for each in patched["status"]["conditions"]]


# Reading.


async def test_what_is_not_there_is_not_found_by_name(api: Api) -> None:
    code, answer = await api.request("GET", api.path("ConfigMap", "nothing"))
    assert (code, answer["kind"], answer["status"], answer["reason"]) == (404, "Status", "Failure", "NotFound")
    assert answer["message"] == 'configmaps "nothing" not found'
    assert answer["details"] == {"name": "nothing", "kind": "configmaps"}
    assert answer["code"] == 404


async def test_a_kind_that_is_not_served_is_not_found(api: Api) -> None:
    for path in ("/api/v1/turnips", "/apis/turnip.example.com/v1/turnips", "/apis/apps/v7/deployments"):
        assert (await api.request("GET", path))[0] == 404, path


# Merge patches: nodes.


async def test_a_claim_is_one_merge_patch_of_annotation_taint_and_cordon(api: Api) -> None:
    name = await api.node()
    before = await api.client.get("Node", name)
    taint = {"key": "tightship.dev/draining", "value": "op", "effect": "NoSchedule"}
    body = {
        "metadata": {
            "resourceVersion": before["metadata"]["resourceVersion"],
            "annotations": {"tightship.dev/drain": "{}"},
        },
        "spec": {"taints": [*before["spec"].get("taints", []), taint], "unschedulable": True},
    }
    code, after = await api.request("PATCH", api.path("Node", name), body=body, content_type=MERGE)
    assert code == 200
    assert after["spec"]["unschedulable"] is True
    assert {each["key"] for each in after["spec"]["taints"]} >= {"tightship.dev/draining"}
    assert after["metadata"]["annotations"]["tightship.dev/drain"] == "{}"
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


async def test_a_patch_of_an_older_version_is_a_conflict_and_changes_nothing(api: Api) -> None:
    name = await api.node()
    old = (await api.client.get("Node", name))["metadata"]["resourceVersion"]
    await api.client.patch("Node", name, {"metadata": {"annotations": {"a": "b"}}})
    body = {"metadata": {"resourceVersion": old, "annotations": {"c": "d"}}}
    answer = await api.refused(409, "Conflict", "PATCH", api.path("Node", name), body=body, content_type=MERGE)
    assert "the object has been modified" in answer["message"]
    assert "c" not in (await api.client.get("Node", name))["metadata"]["annotations"]


async def test_of_several_that_race_one_wins(api: Api) -> None:
    name = await api.node()
    version = (await api.client.get("Node", name))["metadata"]["resourceVersion"]

    async def race(number: int) -> int:
        body = {"metadata": {"resourceVersion": version, "annotations": {"winner": str(number)}}}
        return (await api.request("PATCH", api.path("Node", name), body=body, content_type=MERGE))[0]

    codes = await asyncio.gather(*(race(number) for number in range(8)))
    assert sorted(codes) == [200, *[409] * 7]


async def test_null_takes_away_annotation_taints_and_cordon(api: Api) -> None:
    name = await api.node(unschedulable=True)
    taint = {"key": "a", "effect": "PreferNoSchedule"}
    await api.client.patch("Node", name, {"metadata": {"annotations": {"gone": "x"}}, "spec": {"taints": [taint]}})
    body = {"metadata": {"annotations": {"gone": None, "never": None}}, "spec": {"taints": None, "unschedulable": None}}
    after = await api.client.patch("Node", name, body)
    assert "gone" not in after["metadata"].get("annotations", {})
    assert "a" not in [each["key"] for each in after["spec"].get("taints", [])]
    assert "unschedulable" not in after["spec"]


async def test_a_cordon_that_is_false_is_no_cordon(api: Api) -> None:
    name = await api.node(unschedulable=True)
    after = await api.client.patch("Node", name, {"spec": {"unschedulable": False}})
    assert "unschedulable" not in after["spec"]


def cordoned_by(node: Json) -> list[str]:
    entries = node["metadata"].get("managedFields") or []
    return [each["manager"] for each in entries if "f:unschedulable" in each["fieldsV1"].get("f:spec", {})]


async def test_a_cordon_belongs_to_who_changed_it_last_and_to_nobody_who_found_it(api: Api) -> None:
    name = await api.node()
    path = api.path("Node", name)

    async def cordon(on: bool, manager: str, **notes: str) -> list[str]:
        body = {"metadata": {"annotations": notes}, "spec": {"unschedulable": True if on else None}}
        params = {"fieldManager": manager}
        code, after = await api.request("PATCH", path, body=body, params=params, content_type=MERGE)
        assert code == 200
        return cordoned_by(after)

    assert await cordon(True, "one") == ["one"]
    assert await cordon(True, "two", also="this") == ["one"]
    assert await cordon(False, "two") == []
    assert await cordon(True, "two") == ["two"]
    assert await cordon(True, "one") == ["two"]
    await api.client.patch("Node", name, {"metadata": {"labels": {"a": "b"}}})
    assert cordoned_by(await api.client.get("Node", name)) == ["two"]


async def test_the_cordon_of_a_drain_is_known_as_ours(api: Api) -> None:
    live = await read_node(api.connection, await api.node())
    assert live is not None
    after = await patch_node(api.connection, live, NodePatch(unschedulable=True), only_if=lambda: True)
    assert after.node.cordoned_by == (FIELD_MANAGER,)


async def test_taints_are_replaced_whole_by_both_merges(api: Api) -> None:
    name = await api.node()
    for patch_type in ("merge", "strategic-merge"):
        first = {"key": "one", "effect": "PreferNoSchedule"}
        await api.client.patch("Node", name, {"spec": {"taints": [first]}}, patch_type=patch_type)
        second = {"key": "two", "effect": "PreferNoSchedule"}
        after = await api.client.patch("Node", name, {"spec": {"taints": [second]}}, patch_type=patch_type)
        assert [each["key"] for each in after["spec"]["taints"] if each["key"] in {"one", "two"}] == ["two"]


async def test_what_changes_nothing_has_the_same_version(api: Api) -> None:
    await api.client.create(config_map(api, key="value"))
    before = await api.get("ConfigMap", "config")
    after = await api.client.patch("ConfigMap", "config", {"data": {"key": "value"}}, api.namespace)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_patch_of_what_is_gone_makes_nothing_new(api: Api) -> None:
    body = {"metadata": {"annotations": {"a": "b"}}}
    await api.refused(404, "NotFound", "PATCH", f"/api/v1/nodes/{unique('gone')}", body=body, content_type=MERGE)


async def test_a_strategic_patch_merges_containers_by_name(api: Api) -> None:
    await api.client.create(deployment(api))
    containers = [{"name": "c", "image": "newer"}, {"name": "sidecar", "image": "s"}]
    body = {"spec": {"template": {"spec": {"containers": containers}}}}
    after = await api.client.patch("Deployment", "web", body, api.namespace, patch_type="strategic-merge")
    images = {each["name"]: each["image"] for each in after["spec"]["template"]["spec"]["containers"]}
    assert images == {"c": "newer", "sidecar": "s"}
    body = {"spec": {"template": {"spec": {"containers": [{"name": "sidecar", "$patch": "delete"}]}}}}
    after = await api.client.patch("Deployment", "web", body, api.namespace, patch_type="strategic-merge")
    assert [each["name"] for each in after["spec"]["template"]["spec"]["containers"]] == ["c"]


async def test_a_patch_of_an_unknown_form_is_refused(api: Api) -> None:
    await api.client.create(config_map(api))
    path = api.path("ConfigMap", "config")
    await api.refused(
        415, "UnsupportedMediaType", "PATCH", path, body={"data": {}}, content_type="application/turnip+json"
    )


# JSON patches: HPAs.


async def test_a_json_patch_that_tests_uid_and_bounds_is_carried_out(api: Api) -> None:
    made = await api.client.create(autoscaler(api))
    ops = [
        {"op": "test", "path": "/metadata/uid", "value": made["metadata"]["uid"]},
        {"op": "test", "path": "/spec/minReplicas", "value": 2},
        {"op": "replace", "path": "/spec/minReplicas", "value": 5},
        {"op": "add", "path": "/metadata/annotations/hpa.example.com~1state", "value": "text"},
    ]
    params = {"fieldManager": "hpa-scaler", "fieldValidation": "Strict"}
    path = api.path("HorizontalPodAutoscaler", "web")
    code, after = await api.request("PATCH", path, body=ops, params=params, content_type=JSON_PATCH)
    assert code == 200
    assert after["spec"]["minReplicas"] == 5
    assert after["metadata"]["annotations"] == {"team": "shop", "hpa.example.com/state": "text"}


async def test_a_json_patch_that_does_not_apply_is_invalid_and_changes_nothing(api: Api) -> None:
    await api.client.create(autoscaler(api))
    path = api.path("HorizontalPodAutoscaler", "web")
    for op in (
        {"op": "test", "path": "/spec/minReplicas", "value": 3},
        {"op": "test", "path": "/metadata/uid", "value": "another"},
        {"op": "remove", "path": "/metadata/annotations/nothing"},
        {"op": "add", "path": "/spec/nothing/deeper", "value": 1},
        {"op": "replace", "path": "/spec/minReplicas", "value": "five"},
    ):
        ops = [op, {"op": "replace", "path": "/spec/maxReplicas", "value": 20}]
        await api.refused(422, "Invalid", "PATCH", path, body=ops, content_type=JSON_PATCH)
        spec = (await api.get("HorizontalPodAutoscaler", "web"))["spec"]
        assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 10), op


async def test_a_replacement_of_what_is_absent_adds_it(api: Api) -> None:
    await api.client.create(autoscaler(api))
    ops = [{"op": "replace", "path": "/metadata/annotations/new", "value": "text"}]
    path = api.path("HorizontalPodAutoscaler", "web")
    code, after = await api.request("PATCH", path, body=ops, content_type=JSON_PATCH)
    assert (code, after["metadata"]["annotations"]) == (200, {"team": "shop", "new": "text"})


async def test_a_json_patch_in_a_dry_run_says_the_same_and_changes_nothing(api: Api) -> None:
    await api.client.create(autoscaler(api))
    path, ops = api.path("HorizontalPodAutoscaler", "web"), [{"op": "replace", "path": "/spec/minReplicas", "value": 5}]
    code, after = await api.request("PATCH", path, body=ops, params={"dryRun": "All"}, content_type=JSON_PATCH)
    assert (code, after["spec"]["minReplicas"]) == (200, 5)
    assert (await api.get("HorizontalPodAutoscaler", "web"))["spec"]["minReplicas"] == 2


async def test_bounds_the_wrong_way_round_are_invalid(api: Api) -> None:
    await api.client.create(autoscaler(api))
    path = api.path("HorizontalPodAutoscaler", "web")
    for value in (11, -1):
        ops = [{"op": "replace", "path": "/spec/minReplicas", "value": value}]
        answer = await api.refused(422, "Invalid", "PATCH", path, body=ops, content_type=JSON_PATCH)
        assert answer["details"]["kind"] == "HorizontalPodAutoscaler"


async def test_no_json_patch_is_lost_to_status_updates_however_many_there_are(api: Api) -> None:
    """As the HPA controller writes them. A PUT of what was read before, the older way, is lost to one."""
    await api.client.create(autoscaler(api, 1, 100))
    path = api.path("HorizontalPodAutoscaler", "web")
    churned = 0

    async def churn() -> None:
        nonlocal churned
        while True:
            churned += 1
            body = {"status": {"currentReplicas": 1, "desiredReplicas": churned % 50}}
            await api.client.patch("HorizontalPodAutoscaler", "web", body, api.namespace, subresource="status")

    churning = [asyncio.create_task(churn()) for _ in range(4)]
    try:
        for value in range(2, 52):
            ops = [
                {"op": "test", "path": "/spec/minReplicas", "value": value - 1},
                {"op": "replace", "path": "/spec/minReplicas", "value": value},
            ]
            code, after = await api.request("PATCH", path, body=ops, content_type=JSON_PATCH)
            assert (code, after["spec"]["minReplicas"]) == (200, value)
        read, before = await api.get("HorizontalPodAutoscaler", "web"), churned

        async def written() -> bool:
            return churned > before + len(churning)

        await wait_for(written, DEADLINE, "the status is written")
    finally:
        for each in churning:
            each.cancel()
        ended = await asyncio.gather(*churning, return_exceptions=True)
    assert {type(each) for each in ended} == {asyncio.CancelledError}
    read["spec"]["minReplicas"] = 60
    assert (await api.request("PUT", path, body=read))[0] == 409
    assert (await api.get("HorizontalPodAutoscaler", "web"))["spec"]["minReplicas"] == 51


async def test_the_floor_of_an_hpa_is_one_unless_it_says_otherwise(api: Api) -> None:
    manifest = autoscaler(api)
    del manifest["spec"]["minReplicas"]
    assert (await api.client.create(manifest))["spec"]["minReplicas"] == 1


# Leases.


async def test_a_lease_is_created_read_and_replaced(api: Api) -> None:
    code, made = await api.request("POST", leases(api), body=lease(api))
    assert code == 201
    made["spec"]["holderIdentity"] = "two"
    code, after = await api.request("PUT", leases(api, "leader"), body=made)
    assert (code, after["spec"]["holderIdentity"]) == (200, "two")
    code, again = await api.request("GET", leases(api, "leader"))
    assert (code, again) == (200, after)


async def test_a_lease_that_somebody_else_has_replaced_is_a_conflict(api: Api) -> None:
    _, made = await api.request("POST", leases(api), body=lease(api))
    first = {**made, "spec": {**made["spec"], "holderIdentity": "two"}}
    assert (await api.request("PUT", leases(api, "leader"), body=first))[0] == 200
    second = {**made, "spec": {**made["spec"], "holderIdentity": "three"}}
    await api.refused(409, "Conflict", "PUT", leases(api, "leader"), body=second)


async def test_a_lease_that_was_deleted_is_not_made_again_by_a_replacement(api: Api) -> None:
    _, made = await api.request("POST", leases(api), body=lease(api))
    assert (await api.request("DELETE", leases(api, "leader")))[0] == 200
    await api.refused(409, "Conflict", "PUT", leases(api, "leader"), body=made)
    with pytest.raises(Conflict):
        await LeaseStore(api.connection, api.namespace, "leader").write(decode_lease(msgspec.json.encode(made)), 30)
    assert (await api.request("GET", leases(api, "leader")))[0] == 404


async def test_leases_are_found_by_name(api: Api) -> None:
    for name in ("one", "two"):
        await api.request("POST", leases(api), body=lease(api, name))
    _, found = await api.request("GET", leases(api), params={"fieldSelector": "metadata.name=two"})
    assert [each["metadata"]["name"] for each in found["items"]] == ["two"]


# Events.


def event(api: Api, **more: object) -> Json:
    about = {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "namespace": api.namespace, "uid": "u"}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "web-0.1", "namespace": api.namespace},
        "eventTime": "2026-03-01T04:00:00.000000Z",
        "reportingController": "tightship.dev/node-compactor",
        "reportingInstance": "one",
        "action": "Drain",
        "reason": "Evicted",
        "regarding": about,
        "note": "because",
        "type": "Normal",
        **more,
    }


def events(api: Api, group: str = "events.k8s.io/v1") -> str:
    root = "/api/v1" if group == "v1" else f"/apis/{group}"
    return f"{root}/namespaces/{api.namespace}/events"


async def event_code(api: Api, namespace: str = "", **changed: object) -> int:
    """The answer to an Event, which is only tried."""
    namespace = namespace or api.namespace
    body = event(api, **changed) | {"metadata": {"name": "x", "namespace": namespace}}
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    return (await api.request("POST", path, body=body, params={"dryRun": "All"}))[0]


async def test_an_event_is_written_in_the_new_form_and_read_in_both(api: Api) -> None:
    code, made = await api.request("POST", events(api), body=event(api))
    assert (code, made["note"]) == (201, "because")
    _, new = await api.request("GET", f"{events(api)}/web-0.1")
    assert (new["regarding"]["name"], new["reportingController"]) == ("web-0", "tightship.dev/node-compactor")
    params = {"fieldSelector": "involvedObject.kind=Pod,involvedObject.name=web-0,involvedObject.uid=u"}
    _, found = await api.request("GET", events(api, "v1"), params=params)
    [old] = found["items"]
    assert (old["message"], old["involvedObject"]["name"], old["reason"]) == ("because", "web-0", "Evicted")
    assert old["reportingComponent"] == "tightship.dev/node-compactor"


async def test_an_event_of_a_name_that_is_taken_is_a_conflict(api: Api) -> None:
    await api.request("POST", events(api), body=event(api))
    await api.refused(409, "AlreadyExists", "POST", events(api), body=event(api))


async def test_an_event_that_lacks_something_or_says_what_is_none_is_invalid(api: Api) -> None:
    for field in ("eventTime", "reportingController", "reportingInstance", "action", "reason", "type"):
        manifest = event(api)
        del manifest[field]
        await api.refused(422, "Invalid", "POST", events(api), body=manifest)
    assert await event_code(api, reportingController="a/b/c") == 422
    assert await event_code(api, type="Loud") == 422


async def test_a_text_of_an_event_has_a_longest_length(api: Api) -> None:
    for field, longest in (("note", 1024), ("action", 128), ("reason", 128), ("reportingInstance", 128)):
        assert await event_code(api, **{field: "x" * longest}) == 201, field
        assert await event_code(api, **{field: "x" * (longest + 1)}) == 422, field


async def test_an_event_about_what_has_no_namespace_is_in_one_of_two_and_any_other_wherever_it_likes(api: Api) -> None:
    node, pod = {"kind": "Node", "name": "n1"}, {"kind": "Pod", "name": "web-0", "namespace": api.namespace}
    for namespace, code in (("default", 201), ("kube-system", 201), ("kube-public", 422), (api.namespace, 422)):
        assert await event_code(api, namespace, regarding=node) == code, namespace
        assert await event_code(api, namespace, regarding=pod) == 201, namespace


async def test_the_longest_words_and_oddest_names_of_the_recorder_are_accepted(api: Api) -> None:
    reported = {"controller": "tightship.dev/node-compactor", "instance": "i" * 300}
    dropped: list[str] = []
    pace = EventPace(timeout=60, flush=60)
    async with EventRecorder(api.connection, **reported, pace=pace, dropped=dropped.append) as recorder:
        recorder.record(ObjectRef("Node", "n" * 253, "u"), "Warning", "r" * 300, "n" * 2000, "a" * 300)
        recorder.record(ObjectRef("ClusterRole", "system:a_B", "u"), "Normal", "R", "", "A")
        # An API object of another group; dots at the ends of a name cut short are not allowed.
        hpa = ObjectRef("HorizontalPodAutoscaler", "h.", "u", api.namespace, "autoscaling/v2")
        recorder.record(hpa, "Normal", "R", "n", "A")
    assert dropped == []


# Deletion.


async def test_what_is_deleted_is_gone_and_its_uid_is_told(api: Api) -> None:
    made = await api.client.create(config_map(api))
    code, answer = await api.request("DELETE", api.path("ConfigMap", "config"))
    assert (code, answer["kind"], answer["status"]) == (200, "Status", "Success")
    assert answer["details"]["uid"] == made["metadata"]["uid"]
    assert (await api.request("DELETE", api.path("ConfigMap", "config")))[0] == 404


async def test_only_the_pod_of_the_uid_is_deleted(api: Api) -> None:
    await api.web(1)
    options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "another"}}
    await api.refused(409, "Conflict", "DELETE", api.path("Pod", "web-0"), body=options)
    options["preconditions"]["uid"] = (await api.get("Pod", "web-0"))["metadata"]["uid"]
    code, answer = await api.request("DELETE", api.path("Pod", "web-0"), body=options)
    assert (code, answer["kind"]) == (200, "Pod")
    assert answer["metadata"]["deletionTimestamp"]


async def test_a_pod_on_no_node_or_without_grace_goes_at_once(api: Api) -> None:
    await api.web(1)
    await api.pod("waits", node="", schedulerName="nobody")
    for name, grace in (("waits", None), ("web-0", 0)):
        await api.client.delete("Pod", name, api.namespace, grace=grace)
        assert (await api.request("GET", api.path("Pod", name)))[0] == 404, name


async def test_a_finalizer_holds_what_is_deleted_until_it_is_taken_away(api: Api) -> None:
    manifest = config_map(api)
    manifest["metadata"]["finalizers"] = ["example.com/held"]
    await api.client.create(manifest)
    await api.client.delete("ConfigMap", "config", api.namespace)
    assert (await api.get("ConfigMap", "config"))["metadata"]["deletionTimestamp"]
    await api.client.patch("ConfigMap", "config", {"metadata": {"finalizers": None}}, api.namespace)
    assert (await api.request("GET", api.path("ConfigMap", "config")))[0] == 404


# Generations, scales, tokens.


async def test_the_generation_counts_changes_of_the_spec(api: Api) -> None:
    made = await api.budget(counted=False, minAvailable=1)
    assert made["metadata"]["generation"] == 1
    body: Json = {"metadata": {"annotations": {"a": "b"}}}
    noted = await api.client.patch("PodDisruptionBudget", "web", body, api.namespace)
    assert noted["metadata"]["generation"] == 1
    changed = await api.client.patch("PodDisruptionBudget", "web", {"spec": {"minAvailable": 2}}, api.namespace)
    assert changed["metadata"]["generation"] == 2


async def test_of_a_deployment_annotations_count_too(api: Api) -> None:
    before = (await api.client.create(deployment(api)))["metadata"]["generation"]
    noted = await api.client.patch("Deployment", "web", {"metadata": {"annotations": {"a": "b"}}}, api.namespace)
    assert noted["metadata"]["generation"] > before


async def test_a_workload_is_scaled_by_its_scale(api: Api) -> None:
    await api.client.create(deployment(api))
    path = api.path("Deployment", "web", "scale")
    code, scale = await api.request("GET", path)
    assert (code, scale["kind"], scale["apiVersion"]) == (200, "Scale", "autoscaling/v1")
    assert scale["status"]["selector"] == "app=web"
    code, scale = await api.request("PATCH", path, body={"spec": {"replicas": 3}}, content_type=MERGE)
    assert (code, scale["spec"]["replicas"]) == (200, 3)
    assert (await api.get("Deployment", "web"))["spec"]["replicas"] == 3
    # Without a version: on a real cluster the Deployment's controller writes its status at some time.
    del scale["metadata"]["resourceVersion"]
    scale["spec"]["replicas"] = 2
    code, scale = await api.request("PUT", path, body=scale)
    assert (code, scale["spec"]["replicas"]) == (200, 2)
    stale = {**scale, "metadata": {**scale["metadata"], "resourceVersion": "1"}}
    assert (await api.request("PUT", path, body=stale))[0] == 409


async def test_a_service_account_gets_a_token(api: Api) -> None:
    await api.client.create({"kind": "ServiceAccount", "metadata": {"name": "runner", "namespace": api.namespace}})
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    code, answer = await api.request("POST", api.path("ServiceAccount", "runner", "token"), body=body)
    assert code == 201
    assert answer["status"]["token"]
    assert answer["status"]["expirationTimestamp"]
    code, _ = await api.request("POST", api.path("ServiceAccount", "nobody", "token"), body=body)
    assert code == 404


async def test_the_target_of_an_hpa_that_is_not_there_is_not_found(api: Api) -> None:
    for kind in ("Deployment", "ReplicaSet", "StatefulSet"):
        await api.refused(404, "NotFound", "GET", RESOURCES[kind].path(api.namespace, "nothing"))


# What is no object of its kind.


async def test_a_patch_that_makes_no_object_of_a_node_is_refused(api: Api) -> None:
    name = await api.node()
    before = await api.client.get("Node", name)
    for patch, reported in (
        ({"metadata": {"annotations": {"a": 5}}}, (422, "Invalid")),
        ({"metadata": {"labels": {"a": True}}}, (422, "Invalid")),
        ({"metadata": {"annotations": "text"}}, (422, "Invalid")),
        ({"metadata": "text"}, (422, "Invalid")),
        ({"spec": {"taints": "text"}}, (422, "Invalid")),
        ({"spec": {"taints": [{"key": "one", "effect": "Sometimes"}]}}, (422, "Invalid")),
        ({"spec": "text"}, (422, "Invalid")),
        ({"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}}, (422, "Invalid")),
        ([], (400, "BadRequest")),
    ):
        code, answer = await api.request("PATCH", api.path("Node", name), body=patch, content_type=MERGE)
        assert (code, answer["reason"]) == reported, patch
        assert (await api.client.get("Node", name))["spec"] == before["spec"], patch


async def test_what_is_created_must_be_an_object_of_its_kind(api: Api) -> None:
    changes: tuple[Json, ...] = ({"metadata": {"labels": {"a": 5}}}, {"metadata": 7}, {"spec": []})
    for change in changes:
        await api.refused(
            400, "BadRequest", "POST", api.path("Pod"), body={"kind": "Pod", "apiVersion": "v1", **change}
        )


async def test_a_budget_or_a_lease_that_makes_no_sense_is_invalid(api: Api) -> None:
    meta = {"name": "web", "namespace": api.namespace}
    for spec in ({"minAvailable": "half"}, {"minAvailable": 1, "maxUnavailable": 1}, {"maxUnavailable": -1}):
        body = {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": meta, "spec": spec}
        await api.refused(422, "Invalid", "POST", api.path("PodDisruptionBudget"), body=body)
    await api.refused(422, "Invalid", "POST", leases(api), body=lease(api, leaseDurationSeconds=0))


# JSON patches: deletion costs of pods.


async def test_a_deletion_cost_is_written_beside_its_mark_and_removed_only_while_it_is_ours(api: Api) -> None:
    made = await api.pod("web-0", node="", schedulerName="nobody")
    path, meta = api.path("Pod", "web-0"), made["metadata"]
    ours = notes_of("node-compactor", -7)
    body = {"metadata": {"resourceVersion": meta["resourceVersion"], "annotations": ours}}
    code, after = await api.request("PATCH", path, body=body, content_type=MERGE)
    assert code == 200
    assert after["metadata"]["annotations"] == {**meta.get("annotations", {}), **ours}
    await api.refused(409, "Conflict", "PATCH", path, body=body, content_type=MERGE)
    theirs = {"metadata": {"annotations": {DELETION_COST: "3"}}}
    assert (await api.request("PATCH", path, body=theirs, content_type=MERGE))[0] == 200
    await api.refused(422, "Invalid", "PATCH", path, body=removal(ours), content_type=JSON_PATCH)
    now = {**ours, DELETION_COST: "3"}
    code, after = await api.request("PATCH", path, body=removal(now), content_type=JSON_PATCH)
    assert code == 200
    assert after["metadata"]["annotations"] == {**meta.get("annotations", {}), DELETION_COST: "3"}


@pytest.mark.parametrize("more", [0, 1])
async def test_annotations_of_an_object_take_256_kib_together(api: Api, more: int) -> None:
    body = lease(api, "full")
    body["metadata"]["annotations"] = {"e/a": "é" * 131_000}
    await api.client.create(body)
    note = "x" * (256 * 1024 - 2 * 131_000 - len("e/a") - len("other") + more)
    changed = {"metadata": {"annotations": {"other": note}}}
    code, answer = await api.client.request("PATCH", leases(api, "full"), body=changed, content_type=MERGE)
    assert code == (422 if more else 200)
    if more:
        assert "metadata.annotations: Too long: may not be more than 262144 bytes" in answer["message"]
