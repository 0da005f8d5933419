"""The objects of an embedded cluster: plain JSON, one resource version, a bounded memory of changes to watch.

For behaviours in the same process (a scheduler, a kubelet) this is the whole API; all of it but :meth:`Store.watch` and
:meth:`Store.wait` is synchronous, so what is done without an ``await`` is one transaction::

    pod = store.get("Pod", "web-0", "shop")                       # or find(): None where there is none
    for node in store.list("Node"): ...
    store.create("Pod", {"metadata": {"generateName": "web-", "namespace": "shop"}, "spec": {...}})
    store.modify("Pod", "web-0", "shop", lambda pod: pod["status"].update(phase="Running"))
    store.delete("Pod", "web-0", "shop", grace=0, uid=pod["metadata"]["uid"])    # what a kubelet does at the end
    async for change in store.watch("Pod", since=store.version): ...
    store_version = await store.wait(store_version)               # something has changed

What is returned is shared: never change it, but in :meth:`Store.modify`, which hands out a copy. Refusals are those of
the API server: subclasses of :class:`~tightship_simulator.api.errors.Refused`.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from tightship_simulator.api.errors import (
    BadRequest,
    Forbidden,
    already_exists,
    conflict,
    invalid,
    not_found,
)
from tightship_simulator.api.kept import AUTHOR, HISTORY, Changes, Items, Kept, Listener
from tightship_simulator.api.kinds import BY_NAME, KINDS, Kind
from tightship_simulator.api.landing import LandingPolicies
from tightship_simulator.api.objects import (
    attributed,
    check_preconditions,
    completed,
    copied,
    copy_of,
    grace_of,
    normalized,
    timestamp,
    uid_differs,
)
from tightship_simulator.api.validity import malformed, problems
from tightship_simulator.api.versioned import Change, key_of

Json = dict[str, Any]
Part = Literal["all", "main", "status"]
"""What a write may change: the object without its status (``main``), the ``status`` alone, or both."""

MANAGER: ContextVar[str] = ContextVar("manager", default="")
"""The field manager of who writes: what a client says of itself; empty for what goes by its author."""
FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_KEPT = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


class Store(Kept):
    """The objects of a cluster, of one event loop. *history* changes of each kind are remembered.

    *now* is the cluster's clock (an aware time), for timestamps and what is counted from them. *seed* makes uids and
    generated names the same in every run.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        history: int = HISTORY,
        seed: int | None = None,
    ) -> None:
        super().__init__(history)
        self.now = now
        self._random = random.Random(seed)  # noqa: S311 - names, not secrets
        self.landings = LandingPolicies(now, seed)
        self.mutating: list[Callable[[Json], None]] = []
        """Mutating policies on updates: each may change the object that is about to be stored."""
        self.listeners.append(self.landings.reported)
        for name in FIRST_NAMESPACES:
            self.create("Namespace", {"metadata": {"name": name}})

    # Writing.

    def create(self, kind: str, thing: Mapping[str, Any], *, dry_run: bool = False) -> Json:
        """Create an object as the API server does, defaults included; ``metadata.generateName`` is enough of a name.

        The status is kept, as only behaviours in the process give one. Raises
        :class:`~tightship_simulator.api.errors.AlreadyExists`, ``Invalid``, and ``NotFound`` or ``Forbidden`` for a
        namespace that is not there or is going.
        """
        about = BY_NAME[kind]
        made = copied(about, thing)
        meta = made["metadata"]
        self._name(about, meta)
        if about.namespaced:
            self.check_namespace(about.qualified, meta["name"], meta.setdefault("namespace", "default"))
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            meta.pop(key, None)
        made["metadata"] = {**meta, **self._origin(about)}
        return self._added(about, self.landings.admitted(made), dry_run=dry_run)

    def load(self, things: Iterable[Mapping[str, Any]]) -> dict[str, int]:
        """Take in objects as ``kubectl get -o json`` prints them, uids, times and status as they are.

        Namespaces that are not among them are made. Returns how many there were of each kind that is not served; they
        are left out. Raises what :meth:`create` raises for names that are taken.
        """
        skipped: dict[str, int] = {}
        untouched = set(FIRST_NAMESPACES)
        for thing in sorted(things, key=lambda each: each.get("kind") != "Namespace"):
            kind = str(thing.get("kind"))
            if kind not in BY_NAME:
                skipped[kind] = skipped.get(kind, 0) + 1
                continue
            about = BY_NAME[kind]
            made = copied(about, thing)
            meta = made["metadata"]
            self._name(about, meta)
            if kind == "Namespace" and meta["name"] in untouched:
                # Those of the file have labels and uids of their own.
                untouched.remove(meta["name"])
                self._removed(about, self.get(kind, meta["name"]), dry_run=False)
            if about.namespaced and self.find("Namespace", meta.setdefault("namespace", "default")) is None:
                self.create("Namespace", {"metadata": {"name": meta["namespace"]}})
            made["metadata"] = {**self._origin(about), **meta}
            self._added(about, made)
        return skipped

    def modify(
        self,
        kind: str,
        name: str,
        namespace: str = "",
        change: Callable[[Json], Json | None] = lambda _: None,
        *,
        part: Part = "all",
        dry_run: bool = False,
    ) -> Json:
        """Change an object: *change* changes its copy, or returns another; what comes to the same is no change.

        A ``resourceVersion`` that it sets to another is a precondition. Raises
        :class:`~tightship_simulator.api.errors.NotFound`, ``Conflict`` and ``Invalid``.
        """
        old = self.get(kind, name, namespace)
        mine = copy_of(old)
        after = change(mine)
        new, about = mine if after is None else after, BY_NAME[kind]
        if wrong := malformed(new):
            raise invalid(about, name, [("patch", f"Invalid value: {wrong}")])
        uid = (new.get("metadata") or {}).get("uid")
        if uid and uid != old["metadata"]["uid"]:
            raise invalid(about, name, [("metadata.uid", f'Invalid value: "{uid}": field is immutable')])
        return self._written(about, old, new, part, dry_run=dry_run)

    def update(self, kind: str, thing: Mapping[str, Any], *, part: Part = "all", dry_run: bool = False) -> Json:
        """Replace an object by another of its name. Raises as :meth:`modify` does."""
        about = BY_NAME[kind]
        meta = thing.get("metadata") or {}
        namespace = str(meta.get("namespace") or "default") if about.namespaced else ""
        old = self.find(kind, str(meta.get("name")), namespace)
        if old is None:
            if meta.get("uid"):
                raise conflict(about, str(meta.get("name")), uid_differs(str(meta["uid"]), ""))
            raise not_found(about, str(meta.get("name")))
        if kind == "Lease" and not meta.get("resourceVersion"):
            reported = [("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")]
            raise invalid(about, str(meta["name"]), reported)
        return self._written(about, old, copied(about, thing), part, dry_run=dry_run)

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        grace: int | None = None,
        uid: str | None = None,
        version: str | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Delete an object, or begin to: a pod on a node goes when it is deleted with *grace* 0, after its finalizers.

        *grace* is in seconds, the pod's own unless given; one that is running is only ever shortened. *uid* and
        *version* are preconditions. Returns the object as it then is, or was. Raises
        :class:`~tightship_simulator.api.errors.NotFound` and ``Conflict``.
        """
        about = BY_NAME[kind]
        old = self.get(kind, name, namespace)
        check_preconditions(about, old, uid=uid, version=version)
        seconds = grace_of(old, grace) if kind == "Pod" else 0
        meta = dict(old["metadata"])
        running = meta.get("deletionGracePeriodSeconds") if "deletionTimestamp" in meta else None
        if running is not None and running <= seconds:
            # Deletion is under way and would not be any sooner; a grace period of 0 makes an end of it.
            return old if seconds or meta.get("finalizers") else self._removed(about, old, dry_run=dry_run)
        if kind == "Namespace":
            return self._namespace_ends(about, old, dry_run=dry_run)
        if not seconds and not meta.get("finalizers"):
            return self._removed(about, old, dry_run=dry_run)
        # A grace period that is shortened still counts from when it began.
        ends = self.now() if running is None else datetime.fromisoformat(meta["deletionTimestamp"])
        meta["deletionTimestamp"] = timestamp(ends + timedelta(seconds=seconds - (running or 0)))
        meta["deletionGracePeriodSeconds"] = seconds
        return self._replaced(about, old, {**old, "metadata": meta}, dry_run=dry_run)

    # What writing is made of.

    def _origin(self, kind: Kind) -> Json:
        """Return what is in the metadata of every object that is new."""
        uid = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        counted = {"generation": 1} if kind.generation else {}
        return {"uid": uid, "creationTimestamp": timestamp(self.now()), **counted}

    def _name(self, kind: Kind, meta: Json) -> None:
        if meta.get("generateName") and not meta.get("name"):
            meta["name"] = meta["generateName"] + "".join(self._random.choices(_SUFFIX, k=5))
        if not meta.get("name"):
            raise invalid(kind, "", [("metadata.name", "Required value: name or generateName is required")])
        if not kind.namespaced:
            meta.pop("namespace", None)

    def check_namespace(self, what: str, thing: str, name: str) -> None:
        """Raise for a namespace in which nothing can be created: not *what*, such as ``pods``, called *thing*.

        Raises :class:`~tightship_simulator.api.errors.NotFound` and ``Forbidden``.
        """
        space = self.find("Namespace", name)
        if space is None:
            raise not_found(BY_NAME["Namespace"], name)
        if "deletionTimestamp" in space["metadata"]:
            detail = f"unable to create new content in namespace {name} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated"}
            about = {"name": thing, "kind": what, "causes": [{**cause, "field": "metadata.namespace"}]}
            raise Forbidden(f'{what} "{thing}" is forbidden: {detail}', details=about)

    def _priority(self, thing: Json) -> int | None:
        """Return the priority of a pod by its class, which may be one of those that every cluster has."""
        name = (thing.get("spec") or {}).get("priorityClassName") if thing["kind"] == "Pod" else None
        found = self.find("PriorityClass", name) if name else None
        return int(found.get("value", 0)) if found else None

    def _added(self, kind: Kind, made: Json, *, dry_run: bool = False) -> Json:
        made = self._attributed(normalized(kind.name, completed(kind.name, made, self._priority(made))), None)
        self._valid(kind, made)
        if key_of(made) in self._by_kind[kind.name].objects:
            raise already_exists(kind, made["metadata"]["name"])
        if not dry_run:
            self._commit(kind, "ADDED", made, None)
        return made

    def _attributed(self, thing: Json, old: Json | None) -> Json:
        if thing["kind"] != "Node":
            return thing
        return attributed(thing, old, MANAGER.get() or AUTHOR.get() or "embedded", self.now())

    def _valid(self, kind: Kind, thing: Json, old: Json | None = None) -> None:
        if wrong := problems(kind.name, thing, old):
            raise invalid(kind, thing["metadata"]["name"], wrong)

    def _written(self, kind: Kind, old: Json, new: Json, part: Part, *, dry_run: bool) -> Json:
        before, meta = old["metadata"], dict(new.get("metadata") or {})
        if meta.get("name", before["name"]) != before["name"]:
            raise BadRequest("the name of the object does not match the name on the URL")
        check_preconditions(kind, old, uid=meta.get("uid"), version=meta.get("resourceVersion"))
        for key in _KEPT:
            meta.pop(key, None)
            if key in before:
                meta[key] = before[key]
        if kind.status and part == "status":
            new = {**old, "status": new.get("status")}
        else:
            new = {**new, "kind": kind.name, "apiVersion": kind.group_version, "metadata": meta}
            if kind.status and part == "main":
                new["status"] = old.get("status")
        new = normalized(kind.name, new)
        for mutate in self.mutating:
            mutate(new)
        new = self._attributed(new, old)
        new["metadata"]["resourceVersion"] = before["resourceVersion"]
        if "generation" in before:
            counts = new.get("spec") != old.get("spec")
            # deploymentStrategy.PrepareForUpdate: annotations are copied to ReplicaSets, so they count.
            counts |= kind.name == "Deployment" and new["metadata"].get("annotations") != before.get("annotations")
            new["metadata"]["generation"] = before["generation"] + counts
        self._valid(kind, new, old)
        meta = new["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds"):
            return self._removed(kind, old, new, dry_run=dry_run)
        return old if new == old else self._replaced(kind, old, new, dry_run=dry_run)

    def _replaced(self, kind: Kind, old: Json, new: Json, *, dry_run: bool) -> Json:
        if not dry_run:
            new = {**new, "metadata": dict(new["metadata"])}
            self._commit(kind, "MODIFIED", new, old)
        return new

    def _removed(self, kind: Kind, old: Json, last: Json | None = None, *, dry_run: bool) -> Json:
        last = {**(last or old), "metadata": dict((last or old)["metadata"])}
        if not dry_run:
            self._commit(kind, "DELETED", last, old)
            if kind.namespaced:
                self._namespace_emptied(last["metadata"]["namespace"])
        return last

    # Namespaces take what is in them along.

    def _namespace_ends(self, kind: Kind, old: Json, *, dry_run: bool) -> Json:
        meta = {**old["metadata"], "deletionTimestamp": timestamp(self.now())}
        ending = {**old, "metadata": meta, "status": {**(old.get("status") or {}), "phase": "Terminating"}}
        ending = self._replaced(kind, old, ending, dry_run=dry_run)
        if dry_run:
            return ending
        for each in KINDS:
            for thing in self.list(each.name, meta["name"]) if each.namespaced else ():
                self.delete(each.name, thing["metadata"]["name"], meta["name"])
        self._namespace_emptied(meta["name"])
        return ending

    def _namespace_emptied(self, name: str) -> None:
        space = self.find("Namespace", name)
        if space is None or "deletionTimestamp" not in space["metadata"]:
            return
        if not any(self.list(each.name, name) for each in KINDS if each.namespaced):
            self._removed(BY_NAME["Namespace"], space, dry_run=False)


__all__ = [
    "AUTHOR",
    "FIRST_NAMESPACES",
    "HISTORY",
    "MANAGER",
    "Change",
    "Changes",
    "Items",
    "Listener",
    "Part",
    "Store",
]
