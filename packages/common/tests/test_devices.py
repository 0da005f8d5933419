"""Devices of dynamic resource allocation: counted where slices and classes tell, refused by name where they don't."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tightship.cluster import Snapshot
from tightship.objects import ObjectError
from tightship.objects.devices import Device
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.facts import FactRules, candidates_of, gather
from tightship.planning.plan import Planner
from tightship.rules.disruption import DisruptionLedger
from tightship.scheduler.devices import SelectorUnknownError, selected, with_devices
from tightship_testkit.builders import NOW, Json, node, pod, state_of, workload

GPU = "example.com/gpu"
DRIVER = "gpu.example.com"


def pool(on: str, count: int = 2, **more: Any) -> Json:
    """The slice of node *on*, with its devices gpu-0, gpu-1 and so on."""
    listed = [{"name": f"gpu-{n}", "attributes": {"model": {"string": "a100"}}} for n in range(count)]
    spec = {"driver": DRIVER, "nodeName": on, "pool": {"name": on, "generation": 1, "resourceSliceCount": 1}}
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": f"{on}-{DRIVER}"},
        "spec": {**spec, "devices": listed, **more},
    }


def device_class(name: str = "gpu", cel: str = f'device.driver == "{DRIVER}"', extended: str = GPU) -> Json:
    more = {"extendedResourceName": extended} if extended else {}
    return {
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": cel}}], **more},
    }


def claim(name: str, *held: str, on: str = "n1", **asked: Any) -> Json:
    request = {
        "name": "gpu",
        "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **asked},
    }
    results = [{"request": "gpu", "driver": DRIVER, "pool": on, "device": each} for each in held]
    status = {"allocation": {"devices": {"results": results}}} if held else {}
    meta = {"name": name, "namespace": "shop"}
    return {"kind": "ResourceClaim", "metadata": meta, "spec": {"devices": {"requests": [request]}}, "status": status}


def with_claim(name: str, made: str, **more: Any) -> Json:
    """A pod with a claim from a template, for which the claim *made* was made."""
    wants = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    item = pod(name, resourceClaims=wants, **more)
    item["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": made}]
    return item


def extended(name: str, count: int = 1, **more: Any) -> Json:
    item = pod(name, **more)
    item["spec"]["containers"][0]["resources"]["requests"][GPU] = str(count)
    return item


def seen(*items: Json, missing: str = "") -> Snapshot:
    state = state_of(workload(), *items)
    if missing:
        state.mark_missing("ResourceSlice", missing)
    return with_devices(state.snapshot())


def refused(snapshot: Snapshot, name: str = "n1") -> list[Refusal]:
    candidates = candidates_of(gather(snapshot, FactRules(), NOW))
    planner = Planner(snapshot, DisruptionLedger(snapshot), candidates, "likely")
    return planner.attempt(planner.candidates[name])


TWO = [node("n1"), node("n2")]


@pytest.mark.parametrize("free", [True, False])
def test_a_claim_of_a_template_goes_where_a_device_is_free(*, free: bool) -> None:
    there = [with_claim("web-2", "c2", on="n2"), claim("c2", "gpu-0", on="n2")]
    mine = [with_claim("web-1", "c1", on="n1"), claim("c1", "gpu-0")]
    found = refused(seen(*TWO, pool("n1"), pool("n2", 2 if free else 1), device_class(), *mine, *there))
    assert [each.reason for each in found] == ([] if free else [Reason.NO_PLACE])
    assert free or GPU in found[0].detail


@pytest.mark.parametrize("free", [True, False])
def test_an_extended_resource_backed_by_devices_goes_where_one_is_free(*, free: bool) -> None:
    there = [with_claim("web-2", "c2", on="n2"), claim("c2", "gpu-0", on="n2")]
    snapshot = seen(*TWO, pool("n1"), pool("n2", 2 if free else 1), device_class(), extended("web-1", on="n1"), *there)
    assert [each.reason for each in refused(snapshot)] == ([] if free else [Reason.NO_PLACE])


def test_a_pending_pod_that_waits_for_a_device_holds_it_and_its_room() -> None:
    waiting = extended("wait", on="", phase="Pending", cpu="1")
    items = [*TWO, pool("n1"), pool("n2", 1), device_class(), extended("web-1", on="n1"), waiting]
    taken = with_devices(seen(*items, node("n3"), pool("n3", 0)))
    assert refused(taken)[0].reason in (Reason.NO_PLACE, Reason.PENDING_POD_NEEDS_NODE)


def test_a_pending_pod_whose_claim_is_unknown_holds_the_rest_of_its_room() -> None:
    waiting = with_claim("wait", "nowhere", on="", phase="Pending", cpu="3500m")
    items = [*TWO, pool("n1"), device_class(), pod("web-1", on="n1", cpu="1")]
    assert refused(seen(*items)) == []
    assert [each.reason for each in refused(seen(*items, waiting))] in (
        [Reason.NO_PLACE],
        [Reason.PENDING_POD_NEEDS_NODE],
    )


@pytest.mark.parametrize(
    ("items", "reported"),
    [
        ([claim("c1", allocationMode="All")], "claim shop/c1 asks for all devices"),
        ([claim("c1", adminAccess=True)], "claim shop/c1 asks for administrative access"),
        ([claim("c1", deviceClassName="other")], "DeviceClass other does not exist, or can't be read"),
        ([claim("c1", selectors=[{"cel": {"expression": "device.driver.size() > 3"}}])], "'device.driver.size() > 3'"),
        ([], "the claim for gpu does not exist yet"),
        ([claim("c1"), pool("n3", nodeName="", allNodes=True)], "may be shared, or used on several nodes"),
    ],
)
def test_what_cant_be_judged_keeps_the_node_and_says_what(items: list[Json], reported: str) -> None:
    base = [*TWO, pool("n1"), pool("n2"), device_class(), with_claim("web-1", "c1", on="n1")]
    [refusal] = refused(seen(*base, *items))
    assert (refusal.reason, refusal.subject) == (Reason.RESOURCE_CLAIMS, "shop/web-1")
    assert reported in refusal.detail


def test_an_unreadable_class_is_none_that_does_not_exist() -> None:
    state = state_of(workload(), *TWO, pool("n1"), with_claim("web-1", "c1", on="n1"), claim("c1"))
    state.mark_unreadable(ObjectError("DeviceClass", "", "gpu", "spec: 7 is not a mapping"))
    [refusal] = refused(with_devices(state.snapshot()))
    assert refusal.detail.endswith("DeviceClass gpu does not exist, or can't be read")


def test_a_claim_by_name_may_serve_several_pods() -> None:
    shared = pod("web-1", on="n1", resourceClaims=[{"name": "gpu", "resourceClaimName": "ours"}])
    [refusal] = refused(seen(*TWO, pool("n1"), device_class(), shared, claim("ours", "gpu-0")))
    assert "claim shop/ours may serve several pods" in refusal.detail


@pytest.mark.parametrize("asks", [with_claim("web-1", "c1", on="n1"), extended("web-1", on="n1")])
def test_unreadable_slices_are_a_reason_of_their_own(asks: Json) -> None:
    [refusal] = refused(seen(*TWO, device_class(), asks, missing="forbidden"))
    assert refusal.reason is Reason.RESOURCE_CLAIMS
    assert "ResourceSlice objects could not be read (forbidden)" in refusal.detail


def test_sets_of_devices_that_overlap_are_not_counted() -> None:
    some = device_class("some", f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].model == "a100"', "")
    items = [*TWO, pool("n1"), pool("n2"), device_class(), some, extended("web-1", on="n1")]
    more = pool("n2")["spec"]["devices"] + [{"name": "old", "attributes": {"model": {"string": "k80"}}}]
    other = [with_claim("web-2", "c2", on="n2"), claim("c2", "gpu-0", on="n2", deviceClassName="some")]
    assert refused(seen(*items, *other)) == []  # both classes mean all devices
    [refusal] = refused(seen(*items, *other, pool("n2", devices=more)))
    assert refusal.reason is Reason.RESOURCE_CLAIMS
    assert "so neither can be counted" in refusal.detail


def test_incomplete_pools_and_tainted_devices_take_nobody() -> None:
    mine = [extended("web-1", on="n1"), claim("c0", "gpu-0")]
    half = {"name": "n2", "generation": 2, "resourceSliceCount": 2}
    assert refused(seen(*TWO, pool("n1"), pool("n2", pool=half), device_class(), *mine))
    ill = [{"name": "gpu-0", "taints": [{"key": "ill", "effect": "NoSchedule"}]}]
    assert refused(seen(*TWO, pool("n1"), pool("n2", devices=ill), device_class(), *mine))


def test_a_device_plugin_comes_before_devices() -> None:
    plugged = {"cpu": "4", "memory": "16Gi", "pods": "110", GPU: "1"}
    items = [
        node("n1", allocatable=plugged),
        node("n2", allocatable=plugged),
        device_class(),
        extended("web-1", on="n1"),
    ]
    assert refused(seen(*items)) == []


def test_the_same_devices_give_the_same_templates() -> None:
    state = state_of(workload(), *TWO, pool("n1"), pool("n2"), device_class(), extended("web-1", on="n1"))
    first, second = (with_devices(state.snapshot()).nodes["n1"].pods[0].template for _ in range(2))
    assert first is second


DEVICE = {
    "name": "d",
    "attributes": {"model": {"string": "a100"}, "other.io/slot": {"int": 3}, "fast": {"bool": True}},
    "capacity": {"memory": {"value": "40Gi"}},
}


@pytest.mark.parametrize(
    ("expression", "meets"),
    [
        (f"device.driver == '{DRIVER}'", True),
        ('device.driver == "else"', False),
        (f'device.attributes["{DRIVER}"].model == "a100"', True),
        (f'device.attributes["{DRIVER}"].model == "h100"', False),
        ('device.attributes["other.io"].slot == 3', True),
        (f'device.attributes["{DRIVER}"].fast == true', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("41Gi")) >= 0', False),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) <= 0', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("39Gi")) <= 0', False),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("41Gi")) < 0', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) < 0', False),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("39Gi")) > 0', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) > 0', False),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) == 0', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("41Gi")) == 0', False),
        ('device.driver == "else" && device.attributes["else"].nothing == 1', False),
    ],
)
def test_selectors_that_are_judged(expression: str, *, meets: bool) -> None:
    assert selected(expression, DRIVER, msgspec.convert(DEVICE, Device)) is meets


@pytest.mark.parametrize(
    "expression",
    ["", "true", f'device.attributes["{DRIVER}"].none == "x"', "device.driver != 'x'", '"' * 9000,
     f'device.capacity["{DRIVER}"].memory.compareTo(quantity("forty")) >= 0',
     f'device.attributes["{DRIVER}"].model == {"9" * 5000}'],
)  # fmt: skip
def test_selectors_that_are_not(expression: str) -> None:
    with pytest.raises(SelectorUnknownError):
        selected(expression, DRIVER, msgspec.convert(DEVICE, Device))
