"""What HPAs may ask for, on a real control plane: rules for missing data, steps, caps, maxima, pauses, dry runs."""

from __future__ import annotations

import itertools
import time

from aiohttp import web
from floors import Open, Shop

from tightship.times import rfc3339
from tightship_simulator.life.prometheus import Prometheus, body, says
from tightship_testkit.client import Json, wait_for
from tightship_testkit.fleet import ALONE, Fleet
from tightship_testkit.floors import HPA, SHOP, autoscaler, hpa_annotations

PER_POD = {"requests_per_replica": 10, "minimum_replicas": 1}


def asks(name: str, **more: object) -> dict[str, object]:
    """Return the annotations of an HPA whose query is its name."""
    return {**PER_POD, "prometheus_query": name, **more}


# Missing data.


def now_and_then(prometheus: Prometheus, query: str) -> list[int]:
    """Answer *query* with nothing twice, then with 80, and so on; what is returned grows by each answer."""
    told: list[int] = []
    answers = itertools.cycle([says(body()), says(body()), says(body("80"))])

    async def answer(request: web.Request) -> web.StreamResponse:
        told.append(len(told))
        return await next(answers)(request)

    prometheus.answers[query] = answer
    return told


def test_missing_data_are_treated_by_their_rule_and_an_answer_begins_the_count_anew(in_shop: Open) -> None:
    rules = {"hold": "hold", "zero": "zero", "four": "replicas=4", "current": "current", "higher": "currentIfHigher"}

    async def work(on: Shop) -> None:
        fleet = Fleet(on)
        await on.configured({**ALONE, "circuitBreakerFailures": 1000})
        hpas = {name: asks(name, missing_data=rule, missing_data_after=2) for name, rule in rules.items()}
        hpas["outage"] = asks("outage", missing_data="zero", missing_data_after=1)
        hpas["broken-off"] = asks("broken-off", missing_data="zero", missing_data_after=3)
        for name in hpas:
            on.prometheus.set(name, 80)
        await fleet.stand(hpas)
        fleet.start()
        await fleet.until_floors(dict.fromkeys(hpas, 8))

        for name in rules:
            on.prometheus.set(name)
        on.prometheus.answers["outage"] = says("no store", 500)
        told = now_and_then(on.prometheus, "broken-off")
        await fleet.until_floors({"zero": 1, "four": 4})
        await fleet.until_status(dict.fromkeys(("zero", "four", "current"), "MissingDataPolicy"))
        await fleet.scale(["hold", "outage", "current", "higher"], 12)
        stands = {"hold": 8, "outage": 8, "zero": 1, "four": 4, "current": 12, "higher": 12, "broken-off": 8}
        await fleet.until_floors(stands)

        async def often() -> bool:
            return len(told) >= 9

        await on.until(often, "three runs of two cycles without data")
        assert await fleet.floors(hpas) == stands
        assert fleet.moves("broken-off") == [(2, 8)]
        for name in hpas:
            on.prometheus.set(name, 90)
        await fleet.until_floors(dict.fromkeys(hpas, 9))

    in_shop(work)


# Steps, caps and maxima.


def test_floors_climb_by_steps_and_end_at_their_caps(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        fleet = Fleet(on)
        await on.configured(ALONE)
        hpas = {
            "pods": asks("pods", scale_up_max_pods=3),
            "share": asks("share", scale_up_max_ratio=0.5),
            "capped": asks("capped", maximum_replicas=20),
            "clamped": asks("clamped", max_replicas_policy="clamp"),
            "endless": asks("endless"),
            "raised": asks("raised"),
        }
        for name in [*hpas, "disabled"]:
            on.prometheus.set(name, 20)
        disabled = {"scaleUp": {"selectPolicy": "Disabled"}}
        await fleet.stand({"disabled": asks("disabled")}, behavior=disabled)
        await fleet.stand(hpas)
        fleet.start()
        await fleet.until_status(dict.fromkeys(hpas, "FollowsQuery"))

        for name, value in {"pods": 110, "share": 110, "disabled": 110, "raised": 400}.items():
            on.prometheus.set(name, value)
        for name in ("capped", "clamped", "endless"):
            on.prometheus.set(name, 1e12)
        spikes = {"pods": 11, "share": 11, "capped": 20, "clamped": 30, "endless": 2, "disabled": 2, "raised": 40}
        await fleet.until_floors(spikes)
        await fleet.until_status({"capped": "AtUpperBound", "clamped": "AtMaxReplicas"})
        await fleet.until_told({"endless": "OutOfRange", "disabled": "BehaviorLimit"})
        assert fleet.moves("pods") == [(2, 5), (5, 8), (8, 11)]
        assert fleet.moves("share") == [(2, 3), (3, 4), (4, 6), (6, 9), (9, 11)]
        await fleet.until_replicas({"pods": 11, "disabled": 2})

        # Whose maximum was raised knows it, and gets it back.
        assert await on.bounds("raised") == (40, 41)
        assert (await on.state("raised"))["originalMax"] == 30
        await fleet.until_samples("tightship_hpa_max_replicas_raised", {("raised", SHOP): 11})
        await fleet.until_events({"raised": "MaxRaised"})
        for name in ("capped", "clamped", "raised"):
            on.prometheus.set(name, 50)
        await fleet.until_floors({"capped": 5, "clamped": 5, "raised": 5})
        await fleet.until_events({"raised": "MaxTakenBack"})
        for name in ("capped", "clamped", "raised"):
            assert await on.bounds(name) == (5, 30)

    in_shop(work)


# What is left alone.


def test_what_is_not_ours_is_not_patched_and_pauses_end_by_themselves(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        fleet = Fleet(on)
        await on.configured(ALONE)
        left = {
            "typing": (asks("low", requests_per_replica="abc"), "InvalidAnnotation"),
            "unknown": (asks("low", scale_down_ratio="0.2"), "InvalidAnnotation"),
            "below": (asks("low", scale_down_max_ratio="-0.5"), "InvalidAnnotation"),
            "owned": (asks("low"), "ControlledByOther"),
            "asleep": (asks("low"), "TargetAtZero"),
            "paused": (asks("low", paused="true"), "Paused"),
            "until": (asks("low", paused=rfc3339(time.time() + 3600)), "Paused"),
            "down": (asks("low", paused_scale_down="true"), "PausedScaleDown"),
            "up": (asks("high", paused_scale_up="true"), "PausedScaleUp"),
        }
        wanted = {name: reason for name, (_, reason) in left.items()}
        on.prometheus.set("low", 20)
        on.prometheus.set("high", 200)
        await fleet.stand({name: notes for name, (notes, _) in left.items()}, minimum=8)
        owner = {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "name": "owned",
            "uid": "u",
            "controller": True,
        }
        await on.api.patch(HPA, "owned", {"metadata": {"ownerReferences": [owner]}}, SHOP)
        await fleet.scale(["asleep"], 0)
        fleet.patches()
        fleet.start()
        await fleet.until_status(wanted)
        trouble = {
            name: reason for name, reason in wanted.items() if reason in ("InvalidAnnotation", "ControlledByOther")
        }
        await fleet.until_events(trouble)
        for name in trouble:
            assert [each["type"] for each in await fleet.events(name)] == ["Warning"]
        [typing] = await fleet.events("typing")
        assert "'abc': allowed is a number above 0" in typing["message"]
        await fleet.cycles()
        assert (await fleet.counted())["InvalidAnnotation"] == 3
        assert await fleet.floors(left) == dict.fromkeys(left, 8)
        # A floor that is only kept from coming down has what it waits for written down.
        assert set(fleet.patches()) <= {"down"}

        for name in ("typing", "unknown", "below"):
            await on.annotate(name, requests_per_replica="10", scale_down_ratio=None, scale_down_max_ratio=None)
        await on.annotate("paused", paused=None)
        await on.annotate("until", paused=rfc3339(time.time() + 2))
        await on.annotate("down", paused_scale_down=None)
        await on.annotate("up", paused_scale_up=rfc3339(time.time() + 2))
        await fleet.scale(["asleep"], 8)
        await on.api.patch(HPA, "owned", {"metadata": {"ownerReferences": None}}, SHOP)
        await fleet.until_floors({**dict.fromkeys(left, 2), "up": 20})

        # Nobody knows yet how many replicas there are.
        with on.plane.paused("kube-controller-manager"):
            await on.api.create(autoscaler("typing-2", 8, 30, hpa_annotations(**asks("low"))))
            await fleet.until_status({"typing-2": "ReplicasUnknown"})
            await fleet.cycles(1)
            assert await fleet.floors(["typing-2"]) == {"typing-2": 8}

    in_shop(work)


# Dry runs.

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


def test_a_dry_run_sets_nothing_and_shows_what_the_api_server_would_refuse(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        fleet = Fleet(on)
        await on.configured(ALONE)
        on.prometheus.set("dry", 90)
        on.prometheus.set("wet", 90)
        await fleet.stand({"dry": asks("dry", dry_run="true"), "wet": asks("wet")})
        fleet.start()
        await fleet.until_told({"dry": "DryRun"})
        await fleet.until_floors({"dry": 2, "wet": 9})
        await fleet.until_samples("tightship_hpa_would_be_min_replicas", {("dry", SHOP): 9})
        assert set(fleet.moves("dry", dry=True)) == {(2, 9)}
        assert await on.state("dry") == {}
        made, bound = policy("at-most-ten", 10)
        await on.api.call("POST", POLICIES, body=made)
        try:
            await on.api.call("POST", BINDINGS, body=bound)
            await refuses(on)
            on.prometheus.set("dry", 150)
            on.prometheus.set("wet", 150)
            await fleet.until_told({"dry": "WriteRefused", "wet": "WriteRefused"})
            for name in ("dry", "wet"):
                told = [each["message"] for each in await fleet.events(name) if each["reason"] == "WriteRefused"]
                assert "no more than 10 here" in told[0]
            assert await fleet.floors(["dry", "wet"]) == {"dry": 2, "wet": 9}
        finally:
            await on.api.request("DELETE", f"{BINDINGS}/at-most-ten")
            await on.api.request("DELETE", f"{POLICIES}/at-most-ten")
        await fleet.until_floors({"wet": 15})
        assert fleet.moves("dry") == []

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
