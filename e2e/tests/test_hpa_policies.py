"""An admission policy that says no."""

from __future__ import annotations

from floors import Open, Shop

from tightship_testkit.client import Json, wait_for
from tightship_testkit.fleet import ALONE, Fleet
from tightship_testkit.floors import SHOP

PER_POD = {"requests_per_replica": 10, "minimum_replicas": 1}


def asks(name: str, **more: object) -> dict[str, object]:
    """Return the annotations of an HPA whose query is its name."""
    return {**PER_POD, "prometheus_query": name, **more}


POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


def policy(name: str, most: int) -> tuple[Json, Json]:
    """Return a policy that takes no minReplicas above *most*, and what puts it into force."""
    rule = {
        "apiGroups": ["autoscaling"],
        "apiVersions": ["v2"],
        "operations": ["UPDATE"],
        "resources": ["horizontalpodautoscalers"],
    }
    check = {"expression": f"object.spec.minReplicas <= {most}", "message": f"no more than {most} here"}
    made = {"matchConstraints": {"resourceRules": [rule]}, "validations": [check], "failurePolicy": "Fail"}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    return {"metadata": {"name": name}, "spec": made}, {"metadata": {"name": name}, "spec": bound}


def test_what_a_policy_refuses_is_told_in_its_words_and_tried_again(in_shop: Open) -> None:
    """Dry runs too: they are tried on virtual time, in ``packages/hpa-scaler/tests/scaling/test_policies.py``."""

    async def work(on: Shop) -> None:
        fleet = Fleet(on)
        await on.configured(ALONE)
        on.prometheus.set("wet", 90)
        await fleet.stand({"wet": asks("wet"), "dry": asks("wet", dry_run="true")})
        fleet.start()
        await fleet.until_floors({"wet": 9})
        made, bound = policy("at-most-ten", 10)
        await on.api.call("POST", POLICIES, body=made)
        try:
            await on.api.call("POST", BINDINGS, body=bound)
            await refuses(on)
            on.prometheus.set("wet", 150)
            await fleet.until_reported({"wet": "WriteRefused", "dry": "WriteRefused"})
            reported = [each["message"] for each in await fleet.events("wet") if each["reason"] == "WriteRefused"]
            assert "no more than 10 here" in reported[0]
        finally:
            await on.api.request("DELETE", f"{BINDINGS}/at-most-ten")
            await on.api.request("DELETE", f"{POLICIES}/at-most-ten")
        await fleet.until_floors({"wet": 15})

    in_shop(work)


async def refuses(on: Shop) -> None:
    """Wait until the policy is in force, which takes the API server some time."""
    path = f"/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers/wet"
    merge = "application/merge-patch+json"

    async def refused() -> bool:
        patch = {"spec": {"minReplicas": 11}}
        status, _ = await on.api.request("PATCH", path, body=patch, params={"dryRun": "All"}, content_type=merge)
        return status == 422

    await wait_for(refused, 60, "the policy is in force")
