"""Who decides about a pod's annotations, and the command that changes them there.

An annotation of a pod comes from a template, and the template that counts is the one at the top: a Deployment writes
those of its ReplicaSets, a CronJob those of its Jobs. A change below it would be undone, or lost with the pod.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.objects import WORKLOAD_KINDS, Owner, Pod, PodTemplate, Workload
from tightship.objects.meta import NOBODY, ManagedBy

TEMPLATE_HASH = "pod-template-hash"
"""The label that ends the name of a Deployment's ReplicaSet."""

_DEEPEST = 8
"""Owners above a pod that are looked at. Two are usual."""

_OTHERS = ("Rollout.argoproj.io", "CloneSet.apps.kruise.io", "StatefulSet.apps.kruise.io")
"""Kinds of other groups that roll out their template."""

_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    **dict.fromkeys(("Deployment", *_OTHERS, *WORKLOAD_KINDS), ("spec", "template")),
}
"""Where kinds have the template of their pods."""

_ROLLS_OUT = frozenset({"Deployment", "StatefulSet", "DaemonSet", *_OTHERS})
"""Kinds that replace their pods when their template changes. Others leave the pods that run as they are."""

_FIXED = frozenset({"Job"})
"""Kinds whose template can't be changed."""


def top_owner(snapshot: Snapshot, pod: Pod) -> Owner | None:
    """Return the controller whose template counts, as far as *snapshot* shows; ``None`` for a pod without one."""
    owner = pod.owner
    for _ in range(_DEEPEST):
        if owner is None:
            return None
        above = _above(snapshot, pod, owner)
        if above is None:
            return owner
        owner = above
    return owner


def owners_of(template: PodTemplate, workloads: Mapping[str, Mapping[str, Workload]]) -> list[tuple[str, str, str]]:
    """Return the owners of pods of *template* (namespace, kind, name): their controller, and its controller.

    The name of an unread ReplicaSet still tells its Deployment, because it ends in the hash that its pods carry.
    """
    owner, namespace = template.owner, template.namespace
    if owner is None:
        return []
    found = [(namespace, owner.kind, owner.name)]
    workload = workloads.get(owner.kind, {}).get(f"{namespace}/{owner.name}")
    if workload is not None:
        if workload.owner is not None:
            found.append((namespace, workload.owner.kind, workload.owner.name))
    elif owner.kind == "ReplicaSet":
        ending = f"-{template.labels.get(TEMPLATE_HASH, '')}"
        if len(ending) > 1 and owner.name.endswith(ending):
            found.append((namespace, "Deployment", owner.name.removesuffix(ending)))
    return found


def named(snapshot: Snapshot, pod: Pod) -> str:
    """Return the object that a person would edit to change this pod, such as ``deployment/cart``."""
    owner = top_owner(snapshot, pod)
    return f"{owner.kind.lower()}/{owner.name}" if owner is not None else f"pod/{pod.name}"


class AnnotationEdit(Struct, frozen=True):
    """One annotation written to, or with *value* ``None`` removed from, a pod or the template of its top owner.

    *kind* is ``Pod`` or the owner's. *rolls_out* says that the owner then replaces its pods by ones with the change.
    """

    namespace: str
    kind: str
    name: str
    key: str
    value: str | None
    rolls_out: bool = False

    @property
    def command(self) -> str:
        """The command that makes the change."""
        if self.kind == "Pod":
            return _annotate_pods(self.namespace, self.name, self.key, self.value)
        change = {"metadata": {"annotations": {self.key: self.value}}}
        return patching(self.namespace, Owner(self.kind, self.name, ""), change, "--type merge ")


def template_of(owner: Owner) -> tuple[str, ...] | None:
    """Return where *owner* has the template of its pods, if that may be changed."""
    return None if owner.kind in _FIXED else _TEMPLATES.get(owner.kind)


def patching(namespace: str, owner: Owner, change: Mapping[str, object], how: str = "") -> str:
    """Return the command that makes *change* in the pod template of *owner*; kubectl's patches are strategic merges."""
    written: object = change
    for step in reversed(_TEMPLATES[owner.kind]):
        written = {step: written}
    patch = shlex.quote(msgspec.json.encode(written).decode())
    return f"kubectl -n {namespace} patch {owner.kind.lower()} {owner.name} {how}-p {patch}"


def managing(snapshot: Snapshot, pod: Pod) -> ManagedBy:
    """Return who deploys the controller of *pod*, as far as *snapshot* shows."""
    known = None if pod.owner is None else _workload(snapshot, pod, pod.owner)
    return NOBODY if known is None else known.managed


def commands(changes: Iterable[AnnotationEdit]) -> tuple[str, ...]:
    """Return the commands that make *changes*: one for all pods that get the same annotation."""
    pods: dict[tuple[str, str, str | None], list[str]] = {}
    found: list[str] = []
    for each in changes:
        if each.kind == "Pod":
            pods.setdefault((each.namespace, each.key, each.value), []).append(each.name)
        else:
            found.append(each.command)
    together = [_annotate_pods(space, " ".join(names), key, value) for (space, key, value), names in pods.items()]
    return (*found, *together)


def _annotate_pods(namespace: str, names: str, key: str, value: str | None) -> str:
    written = shlex.quote(f"{key}-" if value is None else f"{key}={value}")
    overwrite = "" if value is None else " --overwrite"
    return f"kubectl -n {namespace} annotate pod {names} {written}{overwrite}"


def annotation_changes(snapshot: Snapshot, pod: Pod, key: str, value: str | None) -> tuple[AnnotationEdit, ...]:
    """Return what gives *pod*, and its successors, the annotation; with ``None`` what removes it."""
    owner = top_owner(snapshot, pod)
    of_pod = AnnotationEdit(pod.namespace, "Pod", pod.name, key, value)
    if owner is None or template_of(owner) is None or _orphaned(snapshot, pod) or managing(snapshot, pod).operator:
        return (of_pod,)
    if value is None and not _has(snapshot, pod, key):
        # Somebody annotated the pod alone.
        return (of_pod,)
    of_owner = AnnotationEdit(pod.namespace, owner.kind, owner.name, key, value, owner.kind in _ROLLS_OUT)
    return (of_owner,) if of_owner.rolls_out else (of_owner, of_pod)


def lasting(snapshot: Snapshot, pod: Pod, key: str, value: str | None) -> str:
    """Return where :func:`annotation_changes` has to be made besides for the successors of *pod*, and who else has a
    say; empty if they are enough.
    """
    owner, name, by = top_owner(snapshot, pod), named(snapshot, pod), managing(snapshot, pod)
    if owner is None or _orphaned(snapshot, pod):
        return ""
    if owner.kind in _FIXED:
        return f"what {name} is made of can't change: later ones need the change where they are written"
    if template_of(owner) is None or by.operator:
        return f"new pods get what {by.operator or name} says: change it there to last"
    if value is None and not _has(snapshot, pod, key):
        return f"the pods alone carry it, not the template of {name}"
    return by.note(name)


def annotating(snapshot: Snapshot, pod: Pod, key: str, value: str | None) -> str:
    """Return the commands of :func:`annotation_changes`, and where the change belongs."""
    joined = " && ".join(each.command for each in annotation_changes(snapshot, pod, key, value))
    note = lasting(snapshot, pod, key, value)
    return f"{joined}  # {note}" if note else joined


def _above(snapshot: Snapshot, pod: Pod, owner: Owner) -> Owner | None:
    known = _workload(snapshot, pod, owner)
    if known is not None:
        return known.owner
    # A Deployment calls its ReplicaSets by its own name and the hash that it gives the pods as a label.
    ending = f"-{pod.template.labels.get(TEMPLATE_HASH, '')}"
    if (
        owner.kind == "ReplicaSet"
        and owner.kind in snapshot.missing
        and len(ending) > 1
        and owner.name.endswith(ending)
    ):
        return Owner("Deployment", owner.name.removesuffix(ending), "")
    return None


def _orphaned(snapshot: Snapshot, pod: Pod) -> bool:
    """Whether the controller of *pod* is known not to exist."""
    owner = pod.owner
    if owner is None or owner.kind not in WORKLOAD_KINDS or owner.kind in snapshot.missing:
        return False
    return _workload(snapshot, pod, owner) is None


def _workload(snapshot: Snapshot, pod: Pod, owner: Owner) -> Workload | None:
    return snapshot.workloads.get(owner.kind, {}).get(f"{pod.namespace}/{owner.name}")


def _has(snapshot: Snapshot, pod: Pod, key: str) -> bool:
    """Whether the template from which *pod* was made has the annotation; true if that is unknown."""
    known = None if pod.owner is None else _workload(snapshot, pod, pod.owner)
    return known is None or known.annotations is None or key in known.annotations
