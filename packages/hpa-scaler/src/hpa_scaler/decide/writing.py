"""Writes to an HPA: one JSON patch that applies only to the object and the bounds that were judged.

The patch tests the uid and both bounds before it sets anything. So a status update in between, of which there is one
every 15 s, does not matter. If the bounds changed, or another object has the name, the API server answers 422, and the
HPA has to be read and judged again. A patch of a deleted HPA is a 404 and never creates one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from hpa_scaler.decide.history import History
from hpa_scaler.decide.ownership import MANAGER, ownership
from hpa_scaler.decide.policy import Decision
from hpa_scaler.decide.state import State, StateError, decode_state, encode_state
from hpa_scaler.spec.annotations import STATE, name_of
from hpa_scaler.spec.rules import Rules
from hpa_scaler.spec.spec import Spec
from tightship.core.objects import HorizontalPodAutoscaler
from tightship.core.reasons import Reason, Refusal

CONTENT_TYPE = "application/json-patch+json"

_Op = dict[str, object]


class Patch(Struct, frozen=True):
    """A PATCH request: its path, parameters and body. *state* is the annotation after it, ``None`` for none."""

    path: str
    params: Mapping[str, str]
    body: bytes
    state: str | None


class Restoration(Struct, frozen=True):
    """Gives an HPA back to its user: the bounds after that, and the patch.

    *left* says which bound stays because it is somebody else's newer value, and whose; empty if none does.
    """

    minimum: int
    maximum: int
    cause: Refusal
    patch: Patch
    left: str


def change(decision: Decision, spec: Spec, rules: Rules, now: float) -> Patch:
    """Return the patch that sets the bounds of *decision*, and the state with them.

    In a dry run the API server only says what it would answer. Raises :class:`ValueError` for a decision that changes
    nothing.
    """
    if not decision.changes:
        raise ValueError(f"{decision.key}: the decision {decision.action} changes nothing")
    state = State(
        history=decision.written, inputs=decision.inputs, target=decision.target, reason=decision.reason.value
    )
    text = encode_state(state, spec, now)
    ops = [
        *_tests(decision.uid, decision.minimum, decision.maximum),
        *_bound("minReplicas", decision.minimum, decision.target),
        *_bound("maxReplicas", decision.maximum, decision.target_maximum),
        _annotation("add", rules.prefix, text),
    ]
    return _patch(decision.namespace, decision.name, ops, text, dry_run=decision.dry_run)


def remember(decision: Decision, spec: Spec, before: State, rules: Rules, now: float) -> Patch:
    """Return the patch that writes only the history; *before* is the annotation's present text."""
    history = msgspec.structs.replace(decision.history, evaluated=now)
    state = msgspec.structs.replace(before, history=history)
    text = encode_state(state, spec, now)
    ops = [*_tests(decision.uid, decision.minimum, decision.maximum), _annotation("add", rules.prefix, text)]
    return _patch(decision.namespace, decision.name, ops, text, dry_run=decision.dry_run)


def restoration(hpa: HorizontalPodAutoscaler, history: History, rules: Rules, now: float) -> Restoration | None:
    """Return what gives *hpa* back, ``None`` if nothing of ours is on it.

    A bound that is no longer what we set last is the user's own already, and stays. *history* is what the controller
    remembers, else what :func:`state_of` reads from the annotation.
    """
    if hpa.deletion is not None:
        return None
    annotated = state_of(hpa, rules.prefix)[0].known
    if not (annotated or history.ours):
        return None
    own = ownership(hpa, history, rules, now)
    maximum = own.maximum
    minimum = min(own.minimum, maximum)
    ops = [
        *_tests(hpa.uid, hpa.min_replicas, hpa.max_replicas),
        *_bound("minReplicas", hpa.min_replicas, minimum),
        *_bound("maxReplicas", hpa.max_replicas, maximum),
    ]
    if annotated:
        ops.append(_annotation("remove", rules.prefix))
    detail = f"minReplicas is {minimum} and maxReplicas {maximum} again"
    left = "" if own.changed is None else own.changed.detail
    if left:
        detail += f"; {left}"
    patch = _patch(hpa.namespace, hpa.name, ops, None)
    return Restoration(minimum, maximum, Refusal(Reason.RESTORED, detail=detail), patch, left)


def state_of(hpa: HorizontalPodAutoscaler, prefix: str) -> tuple[State, str]:
    """Return the content of *hpa*'s state annotation, and why it is unreadable: empty if it is readable, or absent."""
    text = hpa.annotations.get(name_of(prefix, STATE))
    if text is None:
        return State(), ""
    try:
        return decode_state(text), ""
    except StateError as error:
        return State(), str(error)


def path_of(namespace: str, name: str) -> str:
    """Return the API path of an HPA."""
    return f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}"


def _tests(uid: str, minimum: int, maximum: int) -> list[_Op]:
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/spec/minReplicas", "value": minimum},
        {"op": "test", "path": "/spec/maxReplicas", "value": maximum},
    ]


def _bound(name: str, before: int, after: int) -> list[_Op]:
    return [] if after == before else [{"op": "replace", "path": f"/spec/{name}", "value": after}]


def _annotation(op: str, prefix: str, text: str | None = None) -> _Op:
    escaped = name_of(prefix, STATE).replace("~", "~0").replace("/", "~1")
    value = {} if text is None else {"value": text}
    return {"op": op, "path": f"/metadata/annotations/{escaped}", **value}


def _patch(namespace: str, name: str, ops: list[_Op], state: str | None, *, dry_run: bool = False) -> Patch:
    params = {"fieldManager": MANAGER, "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
    return Patch(path_of(namespace, name), params, msgspec.json.encode(ops), state)


__all__ = ["CONTENT_TYPE", "Patch", "Restoration", "change", "path_of", "remember", "restoration", "state_of"]
