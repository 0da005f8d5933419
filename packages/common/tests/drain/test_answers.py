"""What the answer to an eviction means, by the bodies a real API server sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tightship.drain.answers import FATAL, GOING, EvictionAnswer, classify
from tightship.objects.api_errors import BadAnswer, ConnectionFailed, api_error


def cause(message: str, reason: str = "DisruptionBudget") -> dict[str, Any]:
    return {"causes": [{"reason": reason, "message": message}]}


BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
MULTIPLE = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
MOVES = (
    'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '
    "Eviction triggered evacuation of VMI 'shop/vm'"
)
OTHER_UID = "the UID in the precondition (a) does not match the UID in record (b)"
ENDS = "unable to create new content in namespace shop because it is being terminated"
NOT_ALLOWED = 'pods "web-1" is forbidden: User "x" cannot create resource'
CONFLICTS = "couldn't update PodDisruptionBudget due to conflicts"
NONE_LEFT = cause("The disruption budget web needs 2 healthy pods and has 2 currently")
OLD = {"retryAfterSeconds": 10, **cause("The disruption budget web is still being processed by the server.")}
UNKNOWN = cause(
    "The disruption budget web does not allow evicting pods currently because it failed sync: "
    "found no controller ref for pod"
)
ONE_UNKNOWN = {"causes": [*NONE_LEFT["causes"], *UNKNOWN["causes"]]}
ENDING = cause("namespace shop is being terminated", "NamespaceTerminating")


@pytest.mark.parametrize(
    ("code", "reason", "message", "details", "wait", "answer"),
    [
        (429, "TooManyRequests", BUDGET, NONE_LEFT, None, EvictionAnswer.BUDGET),
        (429, "TooManyRequests", BUDGET, OLD, "10", EvictionAnswer.BUDGET_NOT_CURRENT),
        (429, "TooManyRequests", BUDGET, UNKNOWN, None, EvictionAnswer.BUDGET_SYNC_FAILED),
        (429, "TooManyRequests", BUDGET, ONE_UNKNOWN, None, EvictionAnswer.BUDGET_SYNC_FAILED),
        (500, "", MULTIPLE, {}, None, EvictionAnswer.MULTIPLE_BUDGETS),
        (429, "TooManyRequests", "Too many requests, please try again later.", {}, "1", EvictionAnswer.BUSY),
        (429, "TooManyRequests", MOVES, {}, None, EvictionAnswer.EVACUATING),
        (409, "Conflict", OTHER_UID, {}, None, EvictionAnswer.CONFLICT),
        (404, "NotFound", 'pods "web-1" not found', {}, None, EvictionAnswer.GONE),
        (403, "Forbidden", ENDS, ENDING, None, EvictionAnswer.NAMESPACE_TERMINATING),
        (403, "Forbidden", NOT_ALLOWED, {}, None, EvictionAnswer.FORBIDDEN),
        (400, "BadRequest", "name mismatch", {}, None, EvictionAnswer.INVALID),
        (422, "Invalid", "spec: invalid", {}, None, EvictionAnswer.INVALID),
        (504, "Timeout", CONFLICTS, {}, None, EvictionAnswer.SERVER_ERROR),
        (500, "InternalError", "etcdserver: leader changed", {}, None, EvictionAnswer.SERVER_ERROR),
        (401, "Unauthorized", "Unauthorized", {}, None, EvictionAnswer.SERVER_ERROR),
    ],
)
def test_an_eviction_answered_with(
    code: int, reason: str, message: str, details: dict[str, Any], wait: str | None, answer: EvictionAnswer
) -> None:
    reported = {"reason": reason, "message": message, "details": details}
    body = {name: value for name, value in reported.items() if value}
    full = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, **body}).encode()
    result = classify(api_error(code, full, retry_after=wait))
    assert result.answer is answer
    assert result.text == message
    assert result.retry_after == (None if wait is None else float(wait))


def test_a_2xx_is_an_acceptance() -> None:
    assert classify(None).answer is EvictionAnswer.ACCEPTED


@pytest.mark.parametrize("error", [ConnectionFailed("POST", "/x", "s", "reset"), BadAnswer("POST", "/x", "s", "html")])
def test_silence_is_no_verdict(error: ConnectionFailed | BadAnswer) -> None:
    result = classify(error)
    assert result.answer is EvictionAnswer.NO_ANSWER
    assert result.text == str(error)


def test_an_answer_in_plain_text_is_kept_for_people() -> None:
    assert classify(api_error(502, b"<html>Bad Gateway</html>")).text == "<html>Bad Gateway</html>"


def test_a_drain_is_given_up_only_for_what_waiting_does_not_mend() -> None:
    assert set(FATAL) == {
        EvictionAnswer.BUDGET_SYNC_FAILED,
        EvictionAnswer.MULTIPLE_BUDGETS,
        EvictionAnswer.FORBIDDEN,
        EvictionAnswer.INVALID,
    }
    assert {
        EvictionAnswer.ACCEPTED,
        EvictionAnswer.EVACUATING,
        EvictionAnswer.NAMESPACE_TERMINATING,
    } == GOING
