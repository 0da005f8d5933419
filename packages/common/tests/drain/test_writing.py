"""The patches a drain writes, byte for byte what they change and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tightship.drain.machine import NodeChange
from tightship.draining.writing import LiveNode, NodePatch, claim_patch, patch_node, read_node, record_patch
from tightship.kube.connection import Connection
from tightship.objects.api_errors import BadAnswer, KubeError, NotFound
from tightship.objects.drain_record import DRAIN_ANNOTATION, DrainRecord, Phase, encode_record
from tightship.objects.pod import DRAINING
from tightship_testkit.builders import node

Json = dict[str, Any]

NOT_YET = {"key": "node.example.com/new", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z", "size": 3}
OURS = {"key": DRAINING.key, "value": "op", "effect": "NoSchedule"}
RECORD = DrainRecord(phase=Phase.CLAIMED, op="op", holder="h")


class Recorder(Connection):
    """Keeps the last request, and answers it with the node that was asked for."""

    def __init__(self, answer: bytes | KubeError) -> None:
        self.server = "memory"
        self.sent: tuple[str, str, Json | None, str] = ("", "", None, "")
        self._answer = answer

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        body = more.get("body")
        self.sent = (method, path, json.loads(body) if body else None, more.get("content_type", ""))
        if isinstance(self._answer, KubeError):
            raise self._answer
        return self._answer


def raw(*taints: Json, unschedulable: bool = False, **notes: str) -> bytes:
    spec: Json = ({"taints": list(taints)} if taints else {}) | ({"unschedulable": True} if unschedulable else {})
    return json.dumps(node(notes=notes, meta={"resourceVersion": "42", "uid": "u"}, **spec)).encode()


async def live(*taints: Json, unschedulable: bool = False) -> LiveNode:
    found = await read_node(Recorder(raw(*taints, unschedulable=unschedulable)), "n1")
    assert found is not None
    return found


async def sent(at: LiveNode, patch: NodePatch) -> Json:
    recorder = Recorder(raw())
    await patch_node(recorder, at, patch, only_if=lambda: True)
    method, path, body, content_type = recorder.sent
    assert (method, path, content_type) == ("PATCH", "/api/v1/nodes/n1", "application/merge-patch+json")
    assert body is not None
    return body


def written(record: DrainRecord) -> Json:
    return {"resourceVersion": "42", "annotations": {DRAIN_ANNOTATION: encode_record(record)}}


async def test_a_claim_is_annotation_taint_and_cordon_in_one_patch_against_the_version_read() -> None:
    at = await live(NOT_YET)
    assert await sent(at, claim_patch(at, RECORD)) == {
        "metadata": written(RECORD),
        "spec": {"taints": [NOT_YET, OURS], "unschedulable": True},
    }


async def test_a_leftover_taint_of_an_earlier_drain_is_replaced_by_a_claim() -> None:
    at = await live({**OURS, "value": "before"}, NOT_YET)
    body = await sent(at, claim_patch(at, RECORD))
    assert body["spec"]["taints"] == [NOT_YET, OURS]


@pytest.mark.parametrize("phase", [Phase.EVICTING, Phase.DRAINED, Phase.RESTORING, Phase.YIELDED])
async def test_a_change_of_phase_touches_neither_taints_nor_cordon(phase: Phase) -> None:
    at = await live(OURS, NOT_YET, unschedulable=True)
    record = DrainRecord(phase=phase, op="op")
    assert await sent(at, record_patch(at, record, NodeChange.NOTHING)) == {"metadata": written(record)}


async def test_a_restore_takes_off_our_taint_and_the_cordon_and_keeps_what_others_put_there() -> None:
    at = await live(OURS, NOT_YET, unschedulable=True)
    record = DrainRecord(phase=Phase.BACKOFF, op="op")
    assert await sent(at, record_patch(at, record, NodeChange.RESTORE)) == {
        "metadata": written(record),
        "spec": {"taints": [NOT_YET], "unschedulable": None},
    }


async def test_a_node_that_was_cordoned_before_stays_cordoned() -> None:
    at = await live(OURS, NOT_YET, unschedulable=True)
    record = DrainRecord(phase=Phase.BACKOFF, op="op", prior_unschedulable=True)
    assert await sent(at, record_patch(at, record, NodeChange.RESTORE)) == {
        "metadata": written(record),
        "spec": {"taints": [NOT_YET]},
    }


async def test_the_last_taint_goes_with_its_list() -> None:
    at = await live(OURS, unschedulable=True)
    body = await sent(at, record_patch(at, DrainRecord(phase=Phase.BACKOFF), NodeChange.RESTORE))
    assert body["spec"] == {"taints": None, "unschedulable": None}


async def test_taints_are_not_sent_where_ours_is_gone_already() -> None:
    at = await live(NOT_YET, unschedulable=True)
    body = await sent(at, record_patch(at, DrainRecord(phase=Phase.BACKOFF), NodeChange.RESTORE))
    assert body["spec"] == {"unschedulable": None}


@pytest.mark.parametrize("unschedulable", [True, False])
async def test_untainting_leaves_the_cordon_to_whom_it_belongs(unschedulable: bool) -> None:
    at = await live(OURS, NOT_YET, unschedulable=unschedulable)
    body = await sent(at, record_patch(at, DrainRecord(phase=Phase.BACKOFF), NodeChange.UNTAINT))
    assert body["spec"] == {"taints": [NOT_YET]}


async def test_a_node_that_has_nothing_of_ours_any_more_only_gets_its_annotation() -> None:
    at = await live(NOT_YET)
    record = DrainRecord(phase=Phase.BACKOFF)
    assert await sent(at, record_patch(at, record, NodeChange.RESTORE)) == {"metadata": written(record)}


async def test_the_annotation_can_be_removed() -> None:
    at = await live(OURS, unschedulable=True)
    assert await sent(at, record_patch(at, None, NodeChange.RESTORE)) == {
        "metadata": {"resourceVersion": "42", "annotations": {DRAIN_ANNOTATION: None}},
        "spec": {"taints": None, "unschedulable": None},
    }


async def test_a_patch_returns_the_node_after_it() -> None:
    at = await live()
    after = await patch_node(Recorder(raw(OURS, unschedulable=True)), at, claim_patch(at, RECORD), only_if=lambda: True)
    assert (after.version, after.node.unschedulable, after.taints) == ("42", True, (OURS,))


async def test_a_node_that_is_gone_is_none() -> None:
    assert await read_node(Recorder(NotFound(404)), "n1") is None


@pytest.mark.parametrize("answer", [b"<html>", b"{}", b'{"metadata":{"name":"n1"},"spec":{"taints":{}}}'])
async def test_an_answer_that_is_no_node_is_an_error_of_the_edge(answer: bytes) -> None:
    with pytest.raises(BadAnswer, match="GET /api/v1/nodes/n1 at memory: not a node"):
        await read_node(Recorder(answer), "n1")
