"""Who owns the bounds of an HPA, and the patches that set them or give them back.

The controller compares three values of a bound: the present value, the value that we last set, and the user's value
before. If the first two differ, somebody else has changed the bound, and its present value is the user's own.

What we last set is in the controller's record and in the state annotation. An annotation counts if it is newer than the
one last seen or written: then a write whose answer was lost did succeed, or a write of the previous leader came late.
Otherwise our own bound would count as the user's from then on. An older annotation, for example from a manifest that
somebody kept, does not count, with one exception: nobody else owns a bound that the annotation says we set, and the HPA
has exactly these bounds. Then etcd has restored our earlier write.

Each write is one JSON patch that tests the uid and both bounds before setting anything. So the status updates in
between, one every 15 s, do not matter. If a bound changed, or another object has the name, the API server answers 422,
and the HPA must be read and judged again. A patch of a deleted HPA gets a 404 and never creates one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.parsing import prefix_of, state_name, state_text, states_of
from hpa_scaler.annotations.spec import FloorSpec, Problems, Rules
from hpa_scaler.judge.decision import Asked, FloorDecision
from hpa_scaler.judge.history import FloorHistory, State, StateError, decode_state, encode_state, moment, with_floor
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.autoscaling import FieldManager
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import format_duration

MANAGER = "hpa-scaler"
"""Our name as a field manager."""

SURGE = "evictionSurgeReplicas"
"""On an HPA whose ``minReplicas`` Azure's eviction-autoscaler has raised. In the write that removes the annotation, the
controller sets ``minReplicas`` back to what it found (Azure/eviction-autoscaler, ``hpa_surge_applier.go``)."""

CONTENT_TYPE = "application/json-patch+json"


class Ownership(Struct, frozen=True):
    """The user's own bounds, and the *history* that records them; *changed* tells of a change by somebody else."""

    minimum: int
    maximum: int
    history: FloorHistory
    changed: Refusal | None = None


class Remembered(Struct, frozen=True):
    """A *history*, the *annotation* seen or written with it, and the bounds of a return that may have succeeded."""

    history: FloorHistory
    annotation: str | None
    returned: tuple[int, int] | None = None


def unchanged(hpa: HorizontalPodAutoscaler, history: FloorHistory) -> tuple[bool, bool]:
    """Return whether ``minReplicas`` and ``maxReplicas`` of *hpa* are what we last set, as far as we set any."""
    return history.applied_min in (None, hpa.min_replicas), history.applied_max in (None, hpa.max_replicas)


def valid_history(
    hpa: HorizontalPodAutoscaler, remembered: Remembered, annotation: str | None, *, writes: bool
) -> FloorHistory | None:
    """Return the history of *hpa* with this state *annotation*, ``None`` if the annotation's counts.

    A process that does not write (a dry run) must expect another writer: what it has *remembered* counts as long as the
    annotation does not change.
    """
    history = remembered.history
    if annotation == remembered.annotation:
        return history
    if not writes:
        return None
    if annotation is None:
        # Somebody removed the annotation, or we gave the HPA back to its user.
        return None if remembered.returned == (hpa.min_replicas, hpa.max_replicas) else history
    then, last = _history_in(annotation), _history_in(remembered.annotation)
    if then is None:
        return history
    before = 0.0 if last is None else last.evaluated or 0.0
    newer = then.evaluated is not None and then.evaluated >= before
    return None if newer else _brought_back(hpa, history, then)


def _history_in(state: str | None) -> FloorHistory | None:
    """Return the history in the annotation *state*, ``None`` without one that can be read."""
    with suppress(StateError):
        return None if state is None else decode_state(state).history
    return None


def _brought_back(hpa: HorizontalPodAutoscaler, history: FloorHistory, then: FloorHistory) -> FloorHistory:
    """Return *history*, with the owned bounds from *then* if *hpa* has exactly these, and nobody else owns them.

    Otherwise our own floor would count as the user's from then on, and the user's own would be lost.
    """
    others = [each for each in hpa.managers if each.manager != MANAGER]
    theirs = any(each.sets_min for each in others), any(each.sets_max for each in others)
    applied = (then.applied_min, then.applied_max)
    # The user owns a maximum that we had not raised.
    raised = then.original_max != then.applied_max
    ours = None not in applied and all(unchanged(hpa, then)) and not theirs[0] and not (theirs[1] and raised)
    if not ours or (history.applied_min, history.applied_max) == applied:
        return history
    return msgspec.structs.replace(
        history,
        original_min=then.original_min,
        original_max=then.original_max,
        applied_min=then.applied_min,
        applied_max=then.applied_max,
        seen=None,
    )


def ownership(
    hpa: HorizontalPodAutoscaler, history: FloorHistory, rules: Rules, now: float, *, window: float = 0.0
) -> Ownership:
    """Return who owns the bounds of *hpa*. A bound that somebody else has changed is theirs from now on.

    A floor that somebody else has raised counts as wanted now, and stays for the lowering *window*.
    """
    min_changed, max_changed = (not same for same in unchanged(hpa, history))
    held_min = history.applied_min is not None and not min_changed
    held_max = history.applied_max is not None and not max_changed
    cause = None
    if min_changed or max_changed:
        found = []
        if min_changed:
            found.append(f"minReplicas from {history.applied_min} to {hpa.min_replicas}")
        if max_changed:
            found.append(f"maxReplicas from {history.applied_max} to {hpa.max_replicas}")
        who = _who(hpa, of_min=min_changed)
        cause = Refusal(
            Reason.CHANGED_BY_OTHERS,
            detail=f"{who} changed {' and '.join(found)}; the controller now treats this as the user's own bound",
        )
        again = now - history.reset_at <= max(rules.contest_window, 2 * _pause(history.resets, rules))
        ousted = (
            hpa.min_replicas if history.applied_min is None else history.applied_min,
            hpa.max_replicas if history.applied_max is None else history.applied_max,
        )
        history = msgspec.structs.replace(
            history, resets=history.resets + 1 if again else 1, reset_at=now, ousted=ousted
        )
    elif history.ousted == (hpa.min_replicas, hpa.max_replicas) and not (held_min and held_max):
        # Who set our bounds back has restored them, as kube-downscaler does in the morning: the contest is over.
        history = msgspec.structs.replace(history, resets=0, ousted=None)
    before = [each for each in (history.applied_min, history.seen) if each is not None]
    if before and hpa.min_replicas > max(before):
        history = msgspec.structs.replace(history, floors=with_floor(history.floors, hpa.min_replicas, now, window))
    history = msgspec.structs.replace(
        history,
        original_min=history.original_min if held_min else None,
        applied_min=history.applied_min if held_min else None,
        original_max=history.original_max if held_max else None,
        applied_max=history.applied_max if held_max else None,
    )
    return Ownership(
        minimum=hpa.min_replicas if history.original_min is None else history.original_min,
        # We never lower a maximum below the user's own: an annotation that says so was tampered with.
        maximum=min(hpa.max_replicas, hpa.max_replicas if history.original_max is None else history.original_max),
        history=history,
        changed=cause,
    )


def contested(
    hpa: HorizontalPodAutoscaler, history: FloorHistory, rules: Rules, now: float, wanted: int = 0
) -> Refusal | None:
    """Return why the controller leaves *hpa* alone for now, ``None`` if nobody contests its bounds.

    The contest is about the floor that somebody set back. If more than that is *wanted*, the shortest pause is enough.
    """
    if history.resets < rules.contest_resets:
        return None
    fought = None if history.ousted is None else history.ousted[0]
    if fought is not None and wanted > fought and now - history.reset_at >= rules.contest_pause:
        return None
    left = history.reset_at + _pause(history.resets, rules) - now
    if left <= 0:
        return None
    detail = (
        f"{_who(hpa, of_min=True)} has set the bounds back {counted(history.resets, 'time')}, most recently "
        f"{format_duration(now - history.reset_at)} ago; next try at {moment(now + left, now)} at the latest"
    )
    return Refusal(Reason.CONTESTED, detail=detail, fix=_advice(_manager(hpa, of_min=True)))


def _pause(resets: int, rules: Rules) -> float:
    more = resets - rules.contest_resets
    return 0.0 if more < 0 else min(rules.contest_longest_pause, rules.contest_pause * 2 ** min(more, 32))


def _manager(hpa: HorizontalPodAutoscaler, *, of_min: bool) -> FieldManager | None:
    """Return the last other field manager that set the bound, by the API server's record."""
    others = [each for each in hpa.managers if each.manager != MANAGER and (each.sets_min if of_min else each.sets_max)]
    return max(others, key=lambda each: each.time, default=None)


def _who(hpa: HorizontalPodAutoscaler, *, of_min: bool) -> str:
    manager = _manager(hpa, of_min=of_min)
    return "somebody" if manager is None else f"{manager.manager} ({manager.operation})"


_MANIFEST = (
    "remove the line minReplicas from the manifest, and keep the lowest floor in the annotation minimum-replicas"
)
_ADVICE: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("argocd",),
        (
            "in the Application: ignoreDifferences: [{group: autoscaling, kind: HorizontalPodAutoscaler, "
            "managedFieldsManagers: [hpa-scaler]}], and the sync option RespectIgnoreDifferences=true"
        ),
    ),
    (
        ("kustomize-controller", "flux"),
        "in the Kustomization: driftIgnoreRules with the path /spec/minReplicas for HorizontalPodAutoscalers",
    ),
    (("helm-controller",), "in the HelmRelease: driftDetection.ignore with the path /spec/minReplicas"),
    (("helm",), "leave minReplicas out of the chart's HorizontalPodAutoscaler"),
    (
        ("hashicorp", "terraform", "opentofu"),
        (
            "in the resource: lifecycle { ignore_changes = [spec[0].min_replicas, spec[0].max_replicas] }, "
            "or for a kubernetes_manifest: computed_fields"
        ),
    ),
    (("pulumi",), "in the resource's options: ignoreChanges of spec.minReplicas and spec.maxReplicas"),
    (("keda",), "remove our annotations from this HPA, and set minReplicaCount in the ScaledObject"),
    (
        ("pykube", "downscaler"),
        'set downscaler/exclude: "true" on the HPA, or leave it the nights by our annotation paused',
    ),
    (
        ("kubectl-edit", "kubectl-patch", "kubectl-autoscale", "mozilla", "node-fetch"),
        "ask who edits the HPA by hand; the lowest floor belongs in the annotation minimum-replicas",
    ),
)
"""What ends a contest, by words of the field manager's name; the first that is found counts.

A client without a name of its own is called by its User-Agent up to the slash (apimachinery, managedfields):
pykube-ng is kube-downscaler and py-kube-downscaler, HashiCorp is Terraform's provider.
"""


def _advice(manager: FieldManager | None) -> str:
    """Return the advice that ends a contest with *manager*."""
    name = "" if manager is None else manager.manager.lower()
    return next((advice for words, advice in _ADVICE if any(word in name for word in words)), _MANIFEST)


Ending = Literal["written", "unneeded", "refused", "gone", "failed", "unheard", "left"]
"""How a write ended.

``unneeded``: the HPA had changed, and nothing was left to do. ``refused``: by the API server or an admission plugin.
``failed``: the write was not made. ``unheard``: nobody knows whether the write succeeded. ``left``: to the present
leader, or to the next cycle.
"""

ENDINGS: tuple[Ending, ...] = Ending.__args__  # type: ignore[attr-defined]


class Patch(Struct, frozen=True):
    """A PATCH request: its path, parameters and body. *state* is the annotation after it, ``None`` for none."""

    path: str
    params: Mapping[str, str]
    body: bytes
    state: str | None


class Restoration(Struct, frozen=True):
    """Gives an HPA back to its user: the restored bounds, and the patch.

    *left* says which bound stays because somebody else set a newer value, and who; empty if none stays.
    """

    minimum: int
    maximum: int
    cause: Refusal
    patch: Patch
    left: str


def change(decision: FloorDecision, spec: FloorSpec, rules: Rules, now: float) -> Patch:
    """Return the patch that sets the bounds of *decision* together with the state.

    In a dry run the API server checks the patch, but stores nothing. Raises :class:`ValueError` for a decision that
    changes nothing.
    """
    if not decision.changes:
        raise ValueError(f"{decision.key}: the decision {decision.action} changes nothing")
    state = State(
        history=decision.written, inputs=decision.inputs, target=decision.target, reason=decision.reason.value
    )
    text = encode_state(state, spec, now)
    bounds = (decision.target, decision.target_maximum)
    return _patch(decision, (decision.minimum, decision.maximum), bounds, rules, text, dry_run=decision.dry_run)


def remember(decision: FloorDecision, spec: FloorSpec, before: State, rules: Rules, now: float) -> Patch:
    """Return the patch that writes only the history; *before* is the annotation's present content."""
    history = msgspec.structs.replace(decision.history, evaluated=now)
    state = msgspec.structs.replace(before, history=history)
    text = encode_state(state, spec, now)
    bounds = (decision.minimum, decision.maximum)
    return _patch(decision, bounds, bounds, rules, text, dry_run=decision.dry_run)


def restoration(hpa: HorizontalPodAutoscaler, history: FloorHistory, rules: Rules, now: float) -> Restoration | None:
    """Return the restoration of *hpa*, ``None`` if nothing of ours is on it.

    A bound that differs from the value we last set is the user's own already, and stays. During a surge nothing is
    restored: the surge ends with the floor that it found, which is ours. *history* is the controller's
    memory, or else from :func:`state_of`.
    """
    if hpa.deletion is not None or surged(hpa) is not None:
        return None
    annotated = state_of(hpa, rules.prefix)[0].known
    if not (annotated or history.ours):
        return None
    own = ownership(hpa, history, rules, now)
    maximum = own.maximum
    minimum = min(own.minimum, maximum)
    detail = f"minReplicas is {minimum} and maxReplicas {maximum} again"
    left = "" if own.changed is None else own.changed.detail
    if left:
        detail += f"; {left}"
    patch = _patch(hpa, (hpa.min_replicas, hpa.max_replicas), (minimum, maximum), rules, annotated=annotated)
    return Restoration(minimum, maximum, Refusal(Reason.RESTORED, detail=detail), patch, left)


def state_of(hpa: HorizontalPodAutoscaler, prefix: str) -> tuple[State, str]:
    """Return the content of *hpa*'s state annotation, and why it is unreadable (empty if readable, or absent)."""
    text = state_text(hpa.annotations, prefix)
    if text is None:
        return State(), ""
    try:
        return decode_state(text), ""
    except StateError as error:
        return State(), str(error)


def path_of(namespace: str, name: str) -> str:
    """Return the API path of an HPA."""
    return f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}"


def _patch(
    about: FloorDecision | HorizontalPodAutoscaler,
    present: tuple[int, int],
    bounds: tuple[int, int],
    rules: Rules,
    state: str | None = None,
    *,
    annotated: bool = True,
    dry_run: bool = False,
) -> Patch:
    """Return the patch from the *present* bounds to *bounds*, with the annotation *state*.

    If the HPA is *annotated*, the patch removes the annotation without a *state*, and one of another prefix with it.
    """
    paths = ("/spec/minReplicas", "/spec/maxReplicas")
    moves = [(path, now, after) for path, now, after in zip(paths, present, bounds, strict=True)]
    annotations = (about if isinstance(about, HorizontalPodAutoscaler) else about.subject.hpa).annotations
    note, there = state_name(prefix_of(annotations, rules.prefix)), states_of(annotations, rules.prefix)
    ops: list[dict[str, object]] = [{"op": "test", "path": "/metadata/uid", "value": about.uid}]
    ops += [{"op": "test", "path": path, "value": now} for path, now, _ in moves]
    ops += [{"op": "replace", "path": path, "value": after} for path, now, after in moves if after != now]
    if state is not None:
        ops.append({"op": "add", "path": _path(note), "value": state})
    if annotated:
        ops += [{"op": "remove", "path": _path(each)} for each in there if state is None or each != note]
    params = {"fieldManager": MANAGER, "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
    return Patch(path_of(about.namespace, about.name), params, msgspec.json.encode(ops), state)


def _path(annotation: str) -> str:
    return f"/metadata/annotations/{annotation.replace('~', '~0').replace('/', '~1')}"


def not_ours(hpa: HorizontalPodAutoscaler, asked: Asked, now: float) -> Refusal | None:
    """Return why *hpa* stays as it is, ``None`` if nothing forbids moving it."""
    if hpa.deletion is not None:
        return Refusal(Reason.HPA_TERMINATING, detail="the HPA is being deleted")
    if asked is None:
        return Refusal(Reason.NOT_ENABLED, detail="no annotation opts the HPA in")
    other = _controlled(hpa) or surged(hpa)
    if other is not None:
        return other
    if isinstance(asked, Problems):
        return Refusal(Reason.INVALID_ANNOTATION, detail="; ".join(asked.lines), fix="correct the annotation")
    if asked.paused.active(now):
        return Refusal(Reason.PAUSED, detail="paused" + asked.paused.left(now))
    active = hpa.condition("ScalingActive")
    if active is not None and active.status == "False" and active.reason == "ScalingDisabled":
        return Refusal(Reason.TARGET_AT_ZERO, detail=f"{hpa.target} is scaled to 0, which switches the HPA off")
    if hpa.min_replicas == 0 and asked.lowest is None:
        fix = "set the annotation minimum-replicas, to 0 or more, if the floor should be raised"
        return Refusal(Reason.SCALE_TO_ZERO, detail="minReplicas is 0: the HPA is meant to scale to zero", fix=fix)
    return None


def _controlled(hpa: HorizontalPodAutoscaler) -> Refusal | None:
    if hpa.owner is None:
        return None
    fix = f"set the bounds in {hpa.owner}, and remove the annotation"
    detail = f"{hpa.owner} controls the HPA and would set the bounds back"
    return Refusal(Reason.CONTROLLED_BY_OTHER, detail=detail, fix=fix)


def surged(hpa: HorizontalPodAutoscaler) -> Refusal | None:
    """Return why nothing of *hpa* moves during the surge of a drain, ``None`` without one."""
    if SURGE not in hpa.annotations:
        return None
    detail = f"eviction-autoscaler has minReplicas at {hpa.min_replicas} while a node drains, and sets it back"
    return Refusal(Reason.EVICTION_SURGE, detail=detail, fix=f"remove the annotation {SURGE} if nobody else does")
