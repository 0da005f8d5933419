"""What a behaviour wants changed in the cluster, as values: judged without a cluster, applied by :mod:`.living`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from msgspec import Struct

from tightship_simulator.api.budgets import controller_of

Json = dict[str, Any]

Look = Callable[[str], Iterable[Json]]
"""Gives every object of a kind, in any order. They are read, never changed."""


class Create(Struct, frozen=True):
    """Make *item*, which has its ``apiVersion`` and ``kind``."""

    item: Json


class Patch(Struct, frozen=True):
    """Merge *merge* into *item* as it was read; *status* is whether that is its status subresource.

    With *guarded* it fails if anybody has changed the object since: for lists that a merge replaces whole.
    """

    item: Json
    merge: Json
    status: bool = False
    guarded: bool = False


class Delete(Struct, frozen=True):
    """Delete *item*; with *grace* 0 at once, without one as the object says."""

    item: Json
    grace: int | None = None


class Bind(Struct, frozen=True):
    """Bind the pod *item* to *node*."""

    item: Json
    node: str


class Evict(Struct, frozen=True):
    """Ask for the eviction of the pod *item*; a budget may refuse."""

    item: Json


Change: TypeAlias = Create | Patch | Delete | Bind | Evict


def key_of(item: Json) -> tuple[str, str]:
    """Return (namespace, name); the namespace is empty for what has none."""
    meta = item["metadata"]
    return meta.get("namespace") or "", meta["name"]


def uid_of(item: Json) -> str:
    """Return the uid, the name of an object that has none yet."""
    meta = item["metadata"]
    return str(meta.get("uid") or "/".join(key_of(item)))


def leaving(item: Json) -> bool:
    """Whether the object is being deleted."""
    return bool(item["metadata"].get("deletionTimestamp"))


def finished(pod: Json) -> bool:
    """Whether the pod has run to its end."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def ready(item: Json) -> bool:
    """Whether a node or a pod has the condition ``Ready``."""
    return condition(item, "Ready").get("status") == "True"


def condition(item: Json, kind: str) -> Json:
    """Return the condition of that type, empty where there is none."""
    for each in (item.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind:
            return dict(each)
    return {}


def with_condition(item: Json, kind: str, status: str, at: str, **more: str) -> list[Json]:
    """Return all conditions of *item* with that one set; *at* is when, kept where its status stays the same."""
    old = condition(item, kind)
    since = old["lastTransitionTime"] if old.get("status") == status and "lastTransitionTime" in old else at
    others = [each for each in (item.get("status") or {}).get("conditions") or () if each.get("type") != kind]
    return [*others, {"type": kind, "status": status, "lastTransitionTime": since, **more}]


def controller_uid(item: Json) -> str:
    """Return the uid of the object's controller, empty where it has none."""
    return str((controller_of(item) or {}).get("uid", ""))


def reference(owner: Json) -> Json:
    """Return what an object writes of its controller."""
    meta = owner["metadata"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**named, "controller": True, "blockOwnerDeletion": True}
