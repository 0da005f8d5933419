"""Scheduling gates and nominations: what may be written of a pod, and what the scheduler makes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from contract_api import Api, Json

from tightship.core.objects import Pod, decode
from tightship.drain_io import landing_map
from tightship.drain_io.ungating import Ungating

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
OURS, THEIRS = "tightship.dev/landing", "example.com/theirs"
SETTLES = 1.5
"""Seconds in which a scheduler that may bind a pod has done it."""


def gates_of(pod: Json) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates", [])]


def condition_of(pod: Json) -> Json:
    found: list[Json] = [each for each in pod["status"].get("conditions", []) if each["type"] == "PodScheduled"]
    return found[0] if found else {}


async def gated(api: Api, *gates: str, name: str = "web-0", **spec: Any) -> Json:
    return await api.pod(name, node="", schedulingGates=[{"name": each} for each in gates], **spec)


async def ungate(api: Api, name: str = "web-0", *, gate: str = OURS, uid: str = "") -> tuple[int, Json]:
    body: Json = {"spec": {"schedulingGates": [{"name": gate, "$patch": "delete"}]}}
    if uid:
        body["metadata"] = {"uid": uid}
    return await api.request("PATCH", api.path("Pod", name), body=body, content_type=STRATEGIC)


async def nominate(api: Api, node: str, name: str = "web-0", *, uid: str = "") -> tuple[int, Json]:
    body: Json = {"status": {"nominatedNodeName": node}}
    if uid:
        body["metadata"] = {"uid": uid}
    return await api.request("PATCH", api.path("Pod", name, "status"), body=body, content_type=MERGE)


async def test_a_gate_is_taken_off_by_its_name_and_others_stay(api: Api) -> None:
    made = await gated(api, "example.com/before", OURS, THEIRS)
    for _ in range(2):
        # The second time there is nothing left to do.
        code, after = await ungate(api, uid=made["metadata"]["uid"])
        assert (code, gates_of(after)) == (200, ["example.com/before", THEIRS])


async def test_when_the_last_gate_goes_there_are_none(api: Api) -> None:
    await gated(api, OURS)
    code, after = await ungate(api)
    assert code == 200
    assert "schedulingGates" not in after["spec"]


async def test_a_gate_can_only_be_taken_off(api: Api) -> None:
    await gated(api, THEIRS)
    for gate in (OURS, "example.com/more"):
        body = {"spec": {"schedulingGates": [{"name": gate}]}}
        answer = await api.refused(422, "Invalid", "PATCH", api.path("Pod", "web-0"), body=body, content_type=STRATEGIC)
        assert "spec.schedulingGates" in answer["message"]
        assert "only deletion is allowed" in answer["message"]
    await api.pod("free", node="", nodeSelector={"no": "where"})
    body = {"spec": {"schedulingGates": [{"name": OURS}]}}
    await api.refused(422, "Invalid", "PATCH", api.path("Pod", "free"), body=body, content_type=STRATEGIC)


async def test_only_the_pod_of_the_uid_is_written(api: Api) -> None:
    await gated(api, OURS)
    other = "11111111-2222-3333-4444-555555555555"
    for code, answer in (await ungate(api, uid=other), await nominate(api, "n", uid=other)):
        assert (code, answer["reason"]) == (UID_DIFFERS[0], UID_DIFFERS[1]), answer
    found = await api.get("Pod", "web-0")
    assert gates_of(found) == [OURS]
    assert "nominatedNodeName" not in found["status"]


UID_DIFFERS = (422, "Invalid")


async def test_a_pod_that_is_gone_is_not_found(api: Api) -> None:
    for code, _ in (await ungate(api, "nobody"), await nominate(api, "n", "nobody")):
        assert code == 404


async def test_a_gated_pod_says_so_is_on_no_node_and_is_not_bound(api: Api) -> None:
    node = await api.node()
    found = condition_of(await gated(api, OURS))
    assert (found["status"], found["reason"]) == ("False", "SchedulingGated")
    target = {"kind": "Binding", "apiVersion": "v1", "metadata": {"name": "web-0"}, "target": {"name": node}}
    await api.refused(409, "Conflict", "POST", api.path("Pod", "web-0", "binding"), body=target)
    meta = {"name": "both", "namespace": api.namespace}
    spec = {"nodeName": node, "schedulingGates": [{"name": OURS}], "containers": [{"name": "c", "image": "i"}]}
    body = {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec}
    await api.refused(422, "Invalid", "POST", api.path("Pod"), body=body)


async def test_a_nomination_is_the_status_alone(api: Api) -> None:
    made = await gated(api, OURS)
    body = {"status": {"nominatedNodeName": "anywhere"}, "spec": {"schedulingGates": None}}
    code, after = await api.request("PATCH", api.path("Pod", "web-0", "status"), body=body, content_type=MERGE)
    assert (code, after["status"]["nominatedNodeName"]) == (200, "anywhere")
    assert after["spec"] == made["spec"]
    code, after = await nominate(api, "")
    assert code == 200
    assert not after["status"].get("nominatedNodeName")


# What the controllers write.


def as_read(pod: Json) -> Pod:
    found = decode("Pod", msgspec.json.encode(pod))
    assert isinstance(found, Pod)
    return found


async def test_a_controller_nominates_and_sets_free_by_these_requests(api: Api) -> None:
    pod = as_read(await gated(api, THEIRS, OURS))
    await landing_map.nominate(api.connection, pod, "anywhere", only_if=lambda: True)
    assert (await api.get("Pod", "web-0"))["status"]["nominatedNodeName"] == "anywhere"
    await landing_map.ungate(api.connection, pod)
    assert gates_of(await api.get("Pod", "web-0")) == [THEIRS]


async def test_another_pod_of_the_same_name_is_left_alone_and_is_no_trouble(api: Api) -> None:
    made = await gated(api, OURS)
    made["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    ungating, pod = Ungating(api.connection, lambda: True), as_read(made)
    ungating.see([pod], 0.0)
    await ungating.begin(pod, "anywhere", "")
    assert ungating.problems == ()
    found = await api.get("Pod", "web-0")
    assert (gates_of(found), found["status"].get("nominatedNodeName")) == ([OURS], None)


# What the scheduler makes of it.


def only_on(*nodes: str) -> Json:
    wanted = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}]}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wanted]}}
    return {"affinity": {"nodeAffinity": terms}}


def asking(cpu: str) -> Json:
    return {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}


async def bound(api: Api, name: str = "web-0") -> str:
    found = await api.until("Pod", name, lambda pod: bool(pod["spec"].get("nodeName")))
    return str(found["spec"]["nodeName"])


@pytest.mark.newest
@pytest.mark.usefixtures("scheduler")
async def test_an_ungated_pod_goes_where_it_was_nominated_past_the_emptier_node(api: Api) -> None:
    full, empty = await api.node(), await api.node()
    await api.pod("old", node=full, **asking("2"))
    await gated(api, OURS, **asking("1"), **only_on(full, empty))
    assert (await nominate(api, full))[0] == 200
    assert (await ungate(api))[0] == 200
    assert await bound(api) == full
    # The binding clears it (ClearingNominatedNodeNameAfterBinding).
    assert not (await api.get("Pod", "web-0"))["status"].get("nominatedNodeName")


@pytest.mark.usefixtures("scheduler")
async def test_a_nomination_keeps_the_room_of_a_pod_that_is_still_gated(api: Api) -> None:
    small, spare = await api.node(), await api.node()
    await gated(api, OURS, **asking("3"), **only_on(small, spare))
    assert (await nominate(api, small))[0] == 200
    await asyncio.sleep(SETTLES)
    await api.pod("other", node="", **asking("2"), **only_on(small))
    await asyncio.sleep(SETTLES)
    assert "nodeName" not in (await api.get("Pod", "other"))["spec"]
    assert (await ungate(api))[0] == 200
    assert await bound(api) == small


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("why", ["full", "unknown"])
async def test_a_nomination_that_can_not_be_is_passed_over(api: Api, why: str) -> None:
    full, empty = await api.node(), await api.node()
    await api.pod("old", node=full, **asking("3500m"))
    await gated(api, OURS, **asking("1"), **only_on(full, empty))
    assert (await nominate(api, full if why == "full" else "nowhere"))[0] == 200
    assert (await ungate(api))[0] == 200
    assert await bound(api) == empty


@pytest.mark.usefixtures("scheduler")
async def test_another_gate_keeps_a_pod_waiting(api: Api) -> None:
    node = await api.node()
    await gated(api, OURS, THEIRS, **only_on(node))
    await nominate(api, node)
    await ungate(api)
    await asyncio.sleep(SETTLES)
    assert "nodeName" not in (await api.get("Pod", "web-0"))["spec"]
    await ungate(api, gate=THEIRS)
    assert await bound(api) == node
