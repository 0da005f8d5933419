"""What HPAs may ask for, where the API server and others have a say: maxima, pauses, rollouts, dry runs."""

from __future__ import annotations

import pytest

from tightship.objects.times import rfc3339
from tightship_simulator.small import node
from tightship_testkit.client import Json
from tightship_testkit.faults import Answer, Call, Fault
from tightship_testkit.fleet import ALONE, Fleet
from tightship_testkit.floors import HPA, SHOP, autoscaler, hpa_annotations
from tightship_testkit.stall import Stall

pytestmark = pytest.mark.virtual_time

PER_POD = {"requests_per_replica": 10, "minimum_replicas": 1}


def asks(name: str, **more: object) -> dict[str, object]:
    """Return the annotations of an HPA whose query is its name."""
    return {**PER_POD, "prometheus_query": name, **more}


async def test_a_raised_maximum_is_shown_and_given_back(on: Stall) -> None:
    fleet = Fleet(on)
    await on.configured({**ALONE, "suddenRiseFactor": 0})
    on.prometheus.set("raised", 400)
    await fleet.stand({"raised": asks("raised")})
    fleet.start()
    await fleet.until_floors({"raised": 40})
    assert await on.bounds("raised") == (40, 41)
    assert (await on.state("raised"))["originalMax"] == 30
    await fleet.until_samples("tightship_hpa_max_replicas_raised", {("raised", SHOP): 11})
    await fleet.until_events({"raised": "MaxRaised"})
    on.prometheus.set("raised", 50)
    await fleet.until_floors({"raised": 5})
    await fleet.until_events({"raised": "MaxTakenBack"})
    assert await on.bounds("raised") == (5, 30)


# What is left alone.


async def test_what_is_not_ours_is_not_patched_and_pauses_end_by_themselves(on: Stall) -> None:
    fleet = Fleet(on)
    await on.configured(ALONE)
    left = {
        "typing": (asks("low", requests_per_replica="abc"), "InvalidAnnotation"),
        "unknown": (asks("low", scale_down_ratio="0.2"), "InvalidAnnotation"),
        "below": (asks("low", scale_down_max_ratio="-0.5"), "InvalidAnnotation"),
        "owned": (asks("low"), "ControlledByOther"),
        "asleep": (asks("low"), "TargetAtZero"),
        "paused": (asks("low", paused="true"), "Paused"),
        "until": (asks("low", paused=rfc3339(on.simulation.wall() + 3600)), "Paused"),
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
    trouble = {name: reason for name, reason in wanted.items() if reason in ("InvalidAnnotation", "ControlledByOther")}
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
    await on.annotate("until", paused=rfc3339(on.simulation.wall() + 2))
    await on.annotate("down", paused_scale_down=None)
    await on.annotate("up", paused_scale_up=rfc3339(on.simulation.wall() + 2))
    await fleet.scale(["asleep"], 8)
    await on.api.patch(HPA, "owned", {"metadata": {"ownerReferences": None}}, SHOP)
    await fleet.until_floors({**dict.fromkeys(left, 2), "up": 20})

    # Nobody knows yet how many replicas there are.
    await on.api.create(autoscaler("nobody", 8, 30, hpa_annotations(**asks("low"))))
    await fleet.until_status({"nobody": "ReplicasUnknown"})
    await fleet.cycles()
    assert await fleet.floors(["nobody"]) == {"nobody": 8}


# Dry runs.


async def test_a_dry_run_sets_nothing_and_shows_what_the_api_server_would_refuse(on: Stall) -> None:
    fleet = Fleet(on)
    await on.configured(ALONE)
    on.prometheus.set("dry", 90)
    on.prometheus.set("wet", 90)
    await fleet.stand({"dry": asks("dry", dry_run="true"), "wet": asks("wet")})
    fleet.start()
    await fleet.until_reported({"dry": "DryRun"})
    await fleet.until_floors({"dry": 2, "wet": 9})
    await fleet.until_samples("tightship_hpa_would_be_min_replicas", {("dry", SHOP): 9})
    assert set(fleet.moves("dry", dry=True)) == {(2, 9)}
    assert await on.state("dry") == {}

    async def policy(call: Call) -> Fault | None:
        """Refuse what a ValidatingAdmissionPolicy would, in its words."""
        if call.verb != "PATCH" or "horizontalpodautoscalers" not in call.path:
            return None
        message = (
            "ValidatingAdmissionPolicy 'at-most-ten' with binding 'at-most-ten' denied request: no more than 10 here"
        )
        return Answer(422, "Invalid", message)

    on.proxy.plan = policy
    on.prometheus.set("dry", 150)
    on.prometheus.set("wet", 150)
    await fleet.until_reported({"dry": "WriteRefused", "wet": "WriteRefused"})
    for name in ("dry", "wet"):
        reported = [each["message"] for each in await fleet.events(name) if each["reason"] == "WriteRefused"]
        assert "no more than 10 here" in reported[0]
    assert await fleet.floors(["dry", "wet"]) == {"dry": 2, "wet": 9}
    on.proxy.plan = None
    await fleet.until_floors({"wet": 15})
    assert fleet.moves("dry") == []


# Rollouts.

REPLICAS = 4


def rolling(name: str, cpu: str) -> Json:
    """Return a Deployment of a namesake's label."""
    labels = {"app": "same", "of": name}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": SHOP, "labels": labels},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def test_a_rollout_holds_the_floor_of_its_own_hpa_until_it_is_over(on: Stall) -> None:
    """A rollout that is stuck for want of room, and beside it an HPA of another target with the same ``app`` label."""
    fleet = Fleet(on)
    await on.configured(ALONE)
    await on.api.create(node("n1", cpu="4"))
    on.prometheus.set("rate", 40)
    notes = hpa_annotations(
        prometheus_query="rate",
        requests_per_replica=10,
        minimum_replicas=1,
        enable_scale_down_ratio_deployment_checking="true",
    )
    for name, cpu in (("web", "900m"), ("cart", "50m")):
        await on.api.create(rolling(name, cpu))
        hpa = autoscaler(name, REPLICAS, 30, notes)
        hpa["metadata"]["labels"] = {"app": "same"}
        await on.api.create(hpa)

    def status(name: str) -> Json:
        found: Json = on.store.get("Deployment", name, SHOP).get("status") or {}
        return found

    async def all_run() -> bool:
        return all(status(name).get("availableReplicas") == REPLICAS for name in ("web", "cart"))

    async def surges() -> bool:
        return (status("web").get("replicas"), status("web").get("updatedReplicas")) == (REPLICAS + 1, 1)

    await on.until(all_run, "all pods run")
    await fleet.until_replicas({"web": REPLICAS, "cart": REPLICAS})
    fleet.start()
    await fleet.until_status({"web": "FollowsQuery", "cart": "FollowsQuery"})
    changed = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    await on.api.patch("Deployment", "web", changed, SHOP)
    await on.until(surges, "a new pod waits beside all old ones")

    on.prometheus.set("rate", 20)
    await fleet.until_floors({"cart": 2})
    await fleet.until_reported({"web": "RolloutInProgress"})
    await fleet.cycles(10)
    assert await fleet.floors(["web"]) == {"web": REPLICAS}
    # The surge is not in what an HPA knows.
    assert (await on.hpa("web"))["status"]["currentReplicas"] == REPLICAS

    await on.api.create(node("n2", cpu="4"))
    await fleet.until_floors({"web": 2})
    done = status("web")
    assert done.get("replicas") == done["updatedReplicas"]
    assert (fleet.moves("web"), fleet.moves("cart")) == ([(4, 2)], [(4, 2)])
