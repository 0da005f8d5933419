"""Every answer to an eviction that a drain branches on, on the embedded cluster as on the real one."""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec
import pytest
from contract_api import DEADLINE, EXIT_AFTER, Api, Json, unique

from tightship.drain.answers import FATAL, GOING, EvictionAnswer
from tightship.draining.writing import send_away
from tightship.objects import Pod, decode
from tightship.objects.reasons import Reason
from tightship_testkit.client import wait_for

OTHER = "11111111-2222-3333-4444-555555555555"


def causes(answer: Json) -> list[Json]:
    found: list[Json] = (answer.get("details") or {}).get("causes") or []
    return found


FATAL_ONES = {
    EvictionAnswer.MULTIPLE_BUDGETS: Reason.MULTIPLE_PDBS,
    EvictionAnswer.BUDGET_SYNC_FAILED: Reason.PDB_SYNC_FAILED,
}
"""Answers that end a drain, and why."""


async def heard(api: Api, name: str = "web-0", namespace: str = "", /, **changed: str) -> EvictionAnswer:
    """What the drain makes of the answer; *changed* is what it wrongly believes of the pod."""
    _, raw = await api.request("GET", api.path("Pod", name, namespace=namespace))
    pod = decode("Pod", msgspec.json.encode(raw))
    assert isinstance(pod, Pod)
    reported = await send_away(
        api.connection, msgspec.structs.replace(pod, **changed), past_budgets=False, only_if=lambda: True
    )
    assert FATAL.get(reported.answer) is FATAL_ONES.get(reported.answer)
    # The time to come back is a header, too.
    assert reported.retry_after == (10 if reported.answer is EvictionAnswer.BUDGET_NOT_CURRENT else None)
    assert (reported.answer in GOING) == (
        reported.answer in {EvictionAnswer.ACCEPTED, EvictionAnswer.NAMESPACE_TERMINATING}
    )
    return reported.answer


async def replica_set(api: Api, node: str, count: int) -> None:
    template = {
        "metadata": {"labels": {"app": "web"}, "annotations": {EXIT_AFTER: "3600s"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": count, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    await api.client.create(
        {"kind": "ReplicaSet", "metadata": {"name": "web", "namespace": api.namespace}, "spec": spec}
    )


async def test_an_eviction_without_a_budget_is_granted_and_tells_why_on_the_pod(api: Api) -> None:
    await api.web(1)
    code, answer = await api.evict()
    assert (code, answer["kind"], answer["status"]) == (201, "Status", "Success")
    pod = await api.get("Pod", "web-0")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    [reported] = [each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (reported["status"], reported["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_a_budget_that_allows_one_is_spent_by_one(api: Api) -> None:
    await api.web(2)
    await api.budget(minAvailable=1)
    await api.allows(1)
    with api.paused_budgets():
        assert await heard(api) is EvictionAnswer.ACCEPTED
        status = (await api.get("PodDisruptionBudget", "web"))["status"]
        assert status["disruptionsAllowed"] == 0
        assert list(status["disruptedPods"]) == ["web-0"]
        code, _ = await api.evict("web-1")
        assert code == 429


async def test_a_pod_that_is_leaving_no_longer_counts_as_healthy(api: Api) -> None:
    await api.web(3)
    await api.budget(minAvailable=1)
    await api.allows(2)
    assert (await api.evict("web-0"))[0] == 201

    # The disruption controller has seen it: until then the eviction itself is what is counted.
    def seen(budget: Json) -> bool:
        return not budget["status"].get("disruptedPods") and bool(budget["status"]["currentHealthy"] == 2)

    status = (await api.until("PodDisruptionBudget", "web", seen))["status"]
    assert (status["disruptionsAllowed"], status["desiredHealthy"], status["expectedPods"]) == (1, 1, 3)


async def test_a_budget_that_allows_none_refuses_with_its_counts_and_without_a_time(api: Api) -> None:
    await api.web(2)
    await api.budget(minAvailable=2)
    # It may be computed before the pods are seen to be healthy.
    await api.until("PodDisruptionBudget", "web", lambda budget: budget["status"]["currentHealthy"] == 2)
    code, answer = await api.evict()
    assert (code, answer["reason"]) == (429, "TooManyRequests")
    assert answer["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    detail = "The disruption budget web needs 2 healthy pods and has 2 currently"
    assert causes(answer) == [{"reason": "DisruptionBudget", "message": detail}]
    assert "retryAfterSeconds" not in answer["details"]
    assert await heard(api) is EvictionAnswer.BUDGET


async def test_a_budget_that_was_changed_asks_to_come_back(api: Api) -> None:
    await api.web(2)
    await api.budget(minAvailable=1)
    await api.allows(1)
    with api.paused_budgets():
        await api.client.patch("PodDisruptionBudget", "web", {"spec": {"minAvailable": 0}}, api.namespace)
        code, answer = await api.evict()
        assert code == 429
        assert answer["details"]["retryAfterSeconds"] == 10
        detail = "The disruption budget web is still being processed by the server."
        assert causes(answer) == [{"reason": "DisruptionBudget", "message": detail}]
        assert await heard(api) is EvictionAnswer.BUDGET_NOT_CURRENT


@pytest.mark.newest
async def test_a_budget_that_cannot_be_computed_any_more_says_so(api: Api) -> None:
    at = await api.node()
    await replica_set(api, at, 2)
    await api.budget(counted=False, minAvailable="50%")
    await api.allows(1)
    about = await api.client.get("Node", at)
    owner = {"apiVersion": "v1", "kind": "Node", "name": at, "uid": about["metadata"]["uid"], "controller": True}
    await api.pod("odd", node=at, meta={"ownerReferences": [owner]})

    def failed(budget: Json) -> bool:
        return any(each["reason"] == "SyncFailed" for each in budget["status"].get("conditions") or [])

    budget = await api.until("PodDisruptionBudget", "web", failed)
    [condition] = budget["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("DisruptionAllowed", "False")
    assert budget["status"]["disruptionsAllowed"] == 0
    code, answer = await api.evict("odd")
    [cause] = causes(answer)
    assert (code, cause["reason"]) == (429, "DisruptionBudget")
    assert "failed sync" in cause["message"]
    assert "retryAfterSeconds" not in answer["details"]
    assert await heard(api, "odd") is EvictionAnswer.BUDGET_SYNC_FAILED


async def test_a_budget_that_was_never_computed_asks_to_come_back(api: Api) -> None:
    """Its status stays older than its spec, and that is what the server says."""
    at = await api.node()
    uid = (await api.client.get("Node", at))["metadata"]["uid"]
    # A node has no scale to count by.
    owner = {"apiVersion": "v1", "kind": "Node", "name": at, "uid": uid, "controller": True}
    await api.pod(node=at, meta={"ownerReferences": [owner]})
    await api.budget(counted=False, maxUnavailable=1)

    def failed(budget: Json) -> bool:
        conditions = (budget.get("status") or {}).get("conditions") or []
        return any(each["reason"] == "SyncFailed" for each in conditions)

    await api.until("PodDisruptionBudget", "web", failed)
    assert await heard(api) is EvictionAnswer.BUDGET_NOT_CURRENT


async def test_a_share_of_replicas_is_rounded_up(api: Api) -> None:
    at = await api.node()
    await replica_set(api, at, 3)
    await api.budget("most", counted=False, maxUnavailable="34%")
    status = (await api.allows(2, "most"))["status"]
    assert (status["expectedPods"], status["desiredHealthy"], status["currentHealthy"]) == (3, 1, 3)
    # Of two budgets over one pod the disruption controller counts only the first anew when the pod changes
    # (getPdbForPod): the second one is made when no pod changes any more, or it may stay at its first count.
    await api.budget("least", counted=False, minAvailable="34%")
    status = (await api.allows(1, "least"))["status"]
    assert (status["expectedPods"], status["desiredHealthy"], status["currentHealthy"]) == (3, 2, 3)


async def test_a_pod_with_two_budgets_is_refused_without_a_reason_also_in_a_dry_run(api: Api) -> None:
    await api.web(2)
    await api.budget(minAvailable=0)
    await api.budget("too", minAvailable=0)
    for params in (None, {"dryRun": "All"}):
        code, answer = await api.evict(params=params)
        assert code == 500
        assert answer.get("reason", "") == ""
        assert answer["message"] == (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    assert await heard(api) is EvictionAnswer.MULTIPLE_BUDGETS


async def test_another_pod_of_the_same_name_is_not_evicted(api: Api) -> None:
    await api.web(1)
    code, answer = await api.evict(preconditions={"uid": OTHER})
    assert (code, answer["reason"]) == (409, "Conflict")
    assert await heard(api, uid=OTHER) is EvictionAnswer.CONFLICT
    assert "deletionTimestamp" not in (await api.get("Pod", "web-0"))["metadata"]


async def test_an_eviction_for_another_version_is_a_conflict(api: Api) -> None:
    await api.web(1)
    code, answer = await api.evict(preconditions={"resourceVersion": "1"})
    assert (code, answer["reason"]) == (409, "Conflict")


async def test_the_wrong_uid_burns_what_the_budget_allows(api: Api) -> None:
    await api.web(2)
    await api.budget(minAvailable=1)
    await api.allows(1)
    with api.paused_budgets():
        code, _ = await api.evict(preconditions={"uid": OTHER})
        assert code == 409
        status = (await api.get("PodDisruptionBudget", "web"))["status"]
        assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["web-0"])


async def test_a_pod_that_is_gone_is_not_found(api: Api) -> None:
    code, answer = await api.evict("nobody")
    assert (code, answer["reason"]) == (404, "NotFound")
    assert (answer["details"]["kind"], answer["details"]["name"]) == ("pods", "nobody")
    await api.web(1)
    assert await heard(api, name="nobody") is EvictionAnswer.GONE


async def test_a_body_about_another_pod_is_refused(api: Api) -> None:
    await api.web(1)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other", "namespace": api.namespace}}
    await api.refused(400, "BadRequest", "POST", api.path("Pod", "web-0", "eviction"), body=body)


async def test_in_a_namespace_that_is_going_nothing_is_evicted(api: Api) -> None:
    space = unique("ending")
    await api.client.create({"kind": "Namespace", "metadata": {"name": space}})
    await api.pod("last", namespace=space, meta={"finalizers": ["example.com/held"]})
    await api.client.delete("Namespace", space)

    async def refused() -> Json | None:
        code, answer = await api.evict("last", namespace=space)
        return answer if code == 403 else None

    try:
        answer = await wait_for(refused, DEADLINE, "403")
        assert answer is not None
        assert [each["reason"] for each in causes(answer)] == ["NamespaceTerminating"]
        assert await heard(api, "last", space) is EvictionAnswer.NAMESPACE_TERMINATING
    finally:
        # What a kubelet and the owner of the finalizer would do.
        await api.client.delete("Pod", "last", space, grace=0)
        await api.client.patch("Pod", "last", {"metadata": {"finalizers": None}}, space)

    async def gone() -> bool:
        return (await api.request("GET", f"/api/v1/namespaces/{space}"))[0] == 404

    await wait_for(gone, DEADLINE, "the namespace is gone")


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_a_pod_that_does_not_run_passes_every_budget(api: Api, phase: str) -> None:
    at = await api.node()
    await api.pod(node=at, phase=phase)
    await api.budget(minAvailable=1)
    assert (await api.evict())[0] == 201


async def test_an_unready_pod_passes_where_enough_are_healthy(api: Api) -> None:
    await api.web(1)
    await api.pod("ill", phase="Unready")
    await api.budget(minAvailable=1)

    def counted(budget: Json) -> bool:
        # It may be computed before the healthy pod is seen to be.
        return (budget["status"]["currentHealthy"], budget["status"]["desiredHealthy"]) == (1, 1)

    status = (await api.until("PodDisruptionBudget", "web", counted))["status"]
    assert status["disruptionsAllowed"] == 0
    assert (await api.evict("ill"))[0] == 201


@pytest.mark.parametrize(("policy", "code"), [("IfHealthyBudget", 429), ("AlwaysAllow", 201)])
async def test_an_unready_pod_below_the_minimum_goes_by_the_policy(api: Api, policy: str, code: int) -> None:
    await api.pod("ill", phase="Unready")
    await api.budget(minAvailable=1, unhealthyPodEvictionPolicy=policy)
    assert (await api.evict("ill"))[0] == code
    assert await heard(api, "ill") is (EvictionAnswer.BUDGET if code == 429 else EvictionAnswer.ACCEPTED)


async def test_a_dry_run_has_the_same_verdicts_and_costs_nothing(api: Api) -> None:
    await api.web(2)
    await api.budget(minAvailable=1)
    await api.allows(1)
    for name in ("web-0", "web-1"):
        assert (await api.evict(name, params={"dryRun": "All"}))[0] == 201
        assert (await api.evict(name, dryRun=["All"]))[0] == 201
        assert "deletionTimestamp" not in (await api.get("Pod", name))["metadata"]
    assert (await api.get("PodDisruptionBudget", "web"))["status"]["disruptionsAllowed"] == 1


async def test_a_pod_that_is_leaving_is_evicted_again_and_only_ever_sooner(api: Api) -> None:
    await api.web(1, terminationGracePeriodSeconds=300)
    assert (await api.evict())[0] == 201
    first = (await api.get("Pod", "web-0"))["metadata"]
    assert first["deletionGracePeriodSeconds"] == 300
    assert (await api.evict(gracePeriodSeconds=600))[0] == 201
    assert (await api.get("Pod", "web-0"))["metadata"]["deletionGracePeriodSeconds"] == 300
    assert (await api.evict(gracePeriodSeconds=10))[0] == 201
    last = (await api.get("Pod", "web-0"))["metadata"]
    assert last["deletionGracePeriodSeconds"] == 10
    assert datetime.fromisoformat(last["deletionTimestamp"]) < datetime.fromisoformat(first["deletionTimestamp"])


async def test_a_finalizer_keeps_the_pod_after_its_process_is_gone(api: Api) -> None:
    await api.web(1, meta={"finalizers": ["example.com/held"]})
    assert (await api.evict())[0] == 201
    assert await heard(api) is EvictionAnswer.ACCEPTED, "its deletion has begun: to be evicted again says the same"
    await api.client.delete("Pod", "web-0", api.namespace, grace=0)
    held = await api.get("Pod", "web-0")
    assert held["metadata"]["deletionTimestamp"]
    await api.client.patch("Pod", "web-0", {"metadata": {"finalizers": None}}, api.namespace)
    code, _ = await api.request("GET", api.path("Pod", "web-0"))
    assert code == 404


async def test_the_older_form_of_an_eviction_is_accepted(api: Api) -> None:
    await api.web(1)
    metadata = {"name": "web-0", "namespace": api.namespace}
    body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": metadata}
    code, _ = await api.request("POST", api.path("Pod", "web-0", "eviction"), body=body)
    assert code == 201


async def test_evictions_at_the_same_moment_get_what_the_budget_allows_and_no_more(api: Api) -> None:
    await api.web(5)
    await api.budget(minAvailable=2)
    await api.allows(3)
    with api.paused_budgets():
        answers = await asyncio.gather(*(api.evict(f"web-{number}") for number in range(5)))
    assert sorted(code for code, _ in answers) == [201, 201, 201, 429, 429]


async def test_a_cordon_does_not_keep_a_pod_from_being_bound(api: Api) -> None:
    at = await api.node(unschedulable=True)
    await api.pod("placed", node=at)
    await api.pod("bound", node="", schedulerName="nobody")
    await api.client.bind(api.namespace, "bound", at)
    bound = await api.get("Pod", "bound")
    assert bound["spec"]["nodeName"] == at
    metadata = {"name": "bound", "namespace": api.namespace}
    target = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": at}}
    await api.refused(409, "Conflict", "POST", api.path("Pod", "bound", "binding"), body=target)
