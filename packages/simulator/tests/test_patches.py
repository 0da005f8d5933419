"""Patches where the three kinds differ, and what is no patch."""

from __future__ import annotations

from typing import Any

import pytest

from tightship_simulator.api.errors import BadRequest, Invalid
from tightship_simulator.api.patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, patched

Json = dict[str, Any]


def pod() -> Json:
    containers = [{"name": "a", "image": "i", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "i"}]
    return {"metadata": {"name": "p", "finalizers": ["one"]}, "spec": {"containers": containers}}


@pytest.mark.parametrize(
    ("patch", "images"),
    [
        ({"containers": [{"name": "b", "image": "j"}]}, {"a": "i", "b": "j"}),
        ({"containers": [{"name": "c", "image": "j"}]}, {"a": "i", "b": "i", "c": "j"}),
        ({"containers": [{"name": "a", "$patch": "delete"}]}, {"b": "i"}),
        ({"containers": [{"$patch": "replace"}, {"name": "c", "image": "j"}]}, {"c": "j"}),
        ({"$setElementOrder/containers": [{"name": "b"}]}, {"a": "i", "b": "i"}),
        ({"containers": None}, {}),
    ],
    ids=str,
)
def test_a_strategic_patch_merges_what_has_a_key(patch: Json, images: Json) -> None:
    after = patched(pod(), {"spec": patch}, STRATEGIC_PATCH)
    assert {each["name"]: each["image"] for each in after["spec"].get("containers", [])} == images


def test_a_strategic_patch_reaches_lists_within_lists() -> None:
    patch = {"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}}
    [first, _] = patched(pod(), patch, STRATEGIC_PATCH)["spec"]["containers"]
    assert {each["name"]: each["value"] for each in first["env"]} == {"X": "1", "Y": "2"}


def test_finalizers_are_a_set_to_a_strategic_patch_and_a_list_to_a_merge_patch() -> None:
    patch = {"metadata": {"finalizers": ["two"]}}
    assert patched(pod(), patch, STRATEGIC_PATCH)["metadata"]["finalizers"] == ["one", "two"]
    assert patched(pod(), patch, MERGE_PATCH)["metadata"]["finalizers"] == ["two"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["one"]}}
    assert patched(pod(), patch, STRATEGIC_PATCH)["metadata"]["finalizers"] == []


def test_volumes_keep_only_what_a_strategic_patch_retains() -> None:
    before = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    kept = {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/v"}}
    after = patched(before, {"spec": {"volumes": [kept]}}, STRATEGIC_PATCH)
    assert after["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/v"}}]


def test_ports_have_the_key_of_what_they_are_of() -> None:
    before = {"spec": {"ports": [{"port": 80, "name": "http"}]}}
    after = patched(before, {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}, STRATEGIC_PATCH)
    assert after["spec"]["ports"] == [{"port": 80, "name": "http", "targetPort": 8080}]


@pytest.mark.parametrize(
    ("operations", "after"),
    [
        ([{"op": "add", "path": "/list/1", "value": 9}], [1, 9, 2]),
        ([{"op": "add", "path": "/list/-", "value": 9}], [1, 2, 9]),
        ([{"op": "replace", "path": "/list/0", "value": 9}], [9, 2]),
        ([{"op": "remove", "path": "/list/0"}], [2]),
        ([{"op": "move", "from": "/list/0", "path": "/list/1"}], [2, 1]),
        ([{"op": "copy", "from": "/list/0", "path": "/list/-"}], [1, 2, 1]),
    ],
    ids=str,
)
def test_a_json_patch_of_a_list(operations: list[Json], after: list[int]) -> None:
    assert patched({"list": [1, 2]}, operations, JSON_PATCH) == {"list": after}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "replace", "path": "/list/-", "value": 1},
        {"op": "test", "path": "/list/0", "value": True},
        {"op": "turn", "path": "/list"},
        {"op": "add", "path": "list", "value": 1},
        {"op": "add", "path": 7, "value": 1},
        {"op": "add", "value": 1},
        {"op": "add", "path": "/list/0/deeper", "value": 1},
        {"op": "replace", "path": "", "value": []},
    ],
    ids=str,
)
def test_a_json_patch_that_does_not_apply_is_invalid(operation: Json) -> None:
    with pytest.raises(Invalid):
        patched({"list": [1, 2]}, [operation], JSON_PATCH)


@pytest.mark.parametrize(
    ("patch", "form"), [([], MERGE_PATCH), ("text", STRATEGIC_PATCH), ({}, JSON_PATCH), ([7], JSON_PATCH)]
)
def test_what_is_no_patch_is_a_bad_request(patch: object, form: str) -> None:
    with pytest.raises(BadRequest):
        patched({}, patch, form)


@pytest.mark.parametrize("form", [MERGE_PATCH, STRATEGIC_PATCH])
def test_a_patch_leaves_what_it_is_applied_to_alone(form: str) -> None:
    before = pod()
    patched(before, {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "j"}]}}, form)
    assert before == pod()
