"""What the answer to an eviction means, by the bodies a real API server sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tightship.core.api_errors import BadAnswer, ConnectionFailed, api_error
from tightship.drain.answers import FATAL, GOING, EvictionAnswer, classify

BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
MULTIPLE = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


def cause(message: str, reason: str = "DisruptionBudget") -> dict[str, Any]:
    return {"causes": [{"reason": reason, "message": message}]}


ANSWERS: list[tuple[str, int, dict[str, Any], str | None, EvictionAnswer]] = [
    (
        "the budget allows none",
        429,
        {
            "reason": "TooManyRequests",
            "message": BUDGET,
            "details": cause("The disruption budget web needs 2 healthy pods and has 2 currently"),
        },
        None,
        EvictionAnswer.BUDGET,
    ),
    (
        "the budget's status is old",
        429,
        {
            "reason": "TooManyRequests",
            "message": BUDGET,
            "details": {
                "retryAfterSeconds": 10,
                **cause("The disruption budget web is still being processed by the server."),
            },
        },
        "10",
        EvictionAnswer.BUDGET_NOT_CURRENT,
    ),
    (
        "the budget can't be computed",
        429,
        {
            "reason": "TooManyRequests",
            "message": BUDGET,
            "details": cause(
                "The disruption budget web does not allow evicting pods currently because it failed sync: "
                "found no controller ref for pod"
            ),
        },
        None,
        EvictionAnswer.BUDGET_SYNC_FAILED,
    ),
    ("two budgets", 500, {"message": MULTIPLE}, None, EvictionAnswer.MULTIPLE_BUDGETS),
    (
        "priority and fairness",
        429,
        {"reason": "TooManyRequests", "message": "Too many requests, please try again later."},
        "1",
        EvictionAnswer.BUSY,
    ),
    (
        "KubeVirt moves the machine away",
        429,
        {
            "reason": "TooManyRequests",
            "message": 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '
            "Eviction triggered evacuation of VMI 'shop/vm'",
        },
        None,
        EvictionAnswer.EVACUATING,
    ),
    (
        "another pod of this name",
        409,
        {"reason": "Conflict", "message": "the UID in the precondition (a) does not match the UID in record (b)"},
        None,
        EvictionAnswer.CONFLICT,
    ),
    ("no such pod", 404, {"reason": "NotFound", "message": 'pods "web-1" not found'}, None, EvictionAnswer.GONE),
    (
        "a namespace on its way out",
        403,
        {
            "reason": "Forbidden",
            "message": "unable to create new content in namespace shop because it is being terminated",
            "details": cause("namespace shop is being terminated", "NamespaceTerminating"),
        },
        None,
        EvictionAnswer.NAMESPACE_TERMINATING,
    ),
    (
        "no permission",
        403,
        {"reason": "Forbidden", "message": 'pods "web-1" is forbidden: User "x" cannot create resource'},
        None,
        EvictionAnswer.FORBIDDEN,
    ),
    (
        "a request that makes no sense",
        400,
        {"reason": "BadRequest", "message": "name mismatch"},
        None,
        EvictionAnswer.INVALID,
    ),
    ("refused by validation", 422, {"reason": "Invalid", "message": "spec: invalid"}, None, EvictionAnswer.INVALID),
    (
        "too many writes to one budget",
        504,
        {"reason": "Timeout", "message": "couldn't update PodDisruptionBudget due to conflicts"},
        None,
        EvictionAnswer.SERVER_ERROR,
    ),
    (
        "an internal error",
        500,
        {"reason": "InternalError", "message": "etcdserver: leader changed"},
        None,
        EvictionAnswer.SERVER_ERROR,
    ),
    (
        "expired credentials",
        401,
        {"reason": "Unauthorized", "message": "Unauthorized"},
        None,
        EvictionAnswer.SERVER_ERROR,
    ),
]


@pytest.mark.parametrize(("body", "code", "wait", "answer"), [
    pytest.param(body, code, wait, answer, id=name) for name, code, body, wait, answer in ANSWERS
])  # fmt: skip
def test_an_eviction_answered_with(body: dict[str, Any], code: int, wait: str | None, answer: EvictionAnswer) -> None:
    full = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, **body}).encode()
    heard = classify(api_error(code, full, retry_after=wait))
    assert heard.answer is answer
    assert heard.text == body["message"]
    assert heard.retry_after == (None if wait is None else float(wait))


def test_a_2xx_is_an_acceptance() -> None:
    assert classify(None).answer is EvictionAnswer.ACCEPTED


@pytest.mark.parametrize("error", [ConnectionFailed("POST", "/x", "s", "reset"), BadAnswer("POST", "/x", "s", "html")])
def test_silence_is_no_verdict(error: ConnectionFailed | BadAnswer) -> None:
    heard = classify(error)
    assert heard.answer is EvictionAnswer.NO_ANSWER
    assert heard.text == str(error)


def test_an_answer_in_plain_text_is_kept_for_people() -> None:
    assert classify(api_error(502, b"<html>Bad Gateway</html>")).text == "<html>Bad Gateway</html>"


def test_a_drain_is_given_up_only_for_what_waiting_does_not_mend() -> None:
    assert set(FATAL) == {
        EvictionAnswer.BUDGET_SYNC_FAILED,
        EvictionAnswer.MULTIPLE_BUDGETS,
        EvictionAnswer.FORBIDDEN,
        EvictionAnswer.INVALID,
    }
    assert {EvictionAnswer.ACCEPTED, EvictionAnswer.EVACUATING, EvictionAnswer.NAMESPACE_TERMINATING} == GOING
