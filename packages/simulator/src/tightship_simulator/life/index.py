"""What lives in a cluster, kept at hand for the behaviours: by owner, by node, and what asks to be judged again. Pure.

A look at everything would cost the same whether everything has changed or nothing. An index is told of each change, and
notes what can be different because of it: a workload is judged again when it or something of its own has changed, a
pod is looked at as long as its kubelet has something to do for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tightship_simulator.api.budgets import controller_of
from tightship_simulator.life.changes import Json, controller_uid, finished, key_of, leaving, ready, uid_of

Key = tuple[str, str]

BOOTING = "tightship-simulator/booting"
"""Label of a node that has not started yet: without it a node that is not Ready stays so."""

OWNED = ("Pod", "ReplicaSet")
"""Kinds that the garbage collector looks after."""

_WORKED = ("DaemonSet", "Deployment", "StatefulSet", *OWNED)


class Index:
    """The objects of a cluster; those of *items* to begin with.

    *stale* holds the uids of owners that are to be judged again, *renewed* whether nodes have changed since that was
    last set to false. *booting* are the nodes, *unsettled* and *unbound* the pods, *strays* what has lost its owner
    (perhaps), each by key. *nodes* are by name, *pods* by ``namespace/name``. None of them is to be changed.
    """

    def __init__(self, items: Iterable[Json] = ()) -> None:
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.stale: set[str] = set()
        self.renewed = True
        self.booting: dict[str, Json] = {}
        self.unsettled: dict[Key, Json] = {}
        self.unbound: dict[Key, Json] = {}
        self.strays: dict[tuple[str, Key], Json] = {}
        self._objects: dict[str, dict[Key, Json]] = defaultdict(dict)
        self._uids: dict[tuple[str, str], int] = defaultdict(int)
        self._of: dict[str, dict[tuple[str, Key], Json]] = defaultdict(dict)
        self._on: dict[str, dict[Key, Json]] = defaultdict(dict)
        for item in items:
            self.put(item)

    # Reading.

    def every(self, kind: str) -> list[Json]:
        """Return the objects of a kind, by namespace and name."""
        found = self._objects[kind]
        return [found[key] for key in sorted(found)]

    def find(self, kind: str, namespace: str, name: str) -> Json | None:
        """Return an object, ``None`` where there is none."""
        return self._objects[kind].get((namespace, name))

    def owned(self, owner: Json, kind: str) -> list[Json]:
        """Return what *owner* controls of a kind, by namespace and name."""
        found = self._of.get(uid_of(owner))
        return [] if found is None else [found[key] for key in sorted(found) if key[0] == kind]

    def there(self, kind: str, uid: str) -> bool:
        """Whether there is an object of that kind with that uid."""
        return (kind, uid) in self._uids

    # Being told.

    def put(self, item: Json) -> None:
        """Take in an object that is new, or has changed."""
        kind, key = item["kind"], key_of(item)
        old = self._objects[kind].get(key)
        if old is not None:
            self._forget(kind, key, old)
        self._objects[kind][key] = item
        self._uids[kind, uid_of(item)] += 1
        self.again(item)
        if kind in OWNED and (owner := controller_of(item)) is not None:
            self._of[owner["uid"]][kind, key] = item
            if not self.there(owner["kind"], owner["uid"]):
                self.strays[kind, key] = item
        if kind == "Pod":
            self.pods["/".join(key)] = item
            self._put_pod(key, item)
        elif kind == "Node":
            self._put_node(item)

    def drop(self, item: Json) -> None:
        """Forget an object that is gone."""
        kind, key = item["kind"], key_of(item)
        old = self._objects[kind].pop(key, None)
        if old is None:
            return
        self._forget(kind, key, old)
        uid = uid_of(old)
        if not self.there(kind, uid):
            self.strays.update(self._of.get(uid, {}))
        if kind == "Pod":
            del self.pods["/".join(key)]
        elif kind == "Node":
            self._drop_node(key[1])

    def again(self, item: Json) -> None:
        """Have what *item* is, and what controls it, judged again."""
        if item["kind"] in _WORKED:
            self.stale.add(uid_of(item))
            if uid := controller_uid(item):
                self.stale.add(uid)

    def _forget(self, kind: str, key: Key, old: Json) -> None:
        uid, above = uid_of(old), controller_uid(old)
        self._uids[kind, uid] -= 1
        if not self._uids[kind, uid]:
            del self._uids[kind, uid]
        self.again(old)
        self.strays.pop((kind, key), None)
        if above and kind in OWNED:
            mine = self._of[above]
            mine.pop((kind, key), None)
            if not mine:
                del self._of[above]
        if kind == "Pod":
            self.unsettled.pop(key, None)
            self.unbound.pop(key, None)
            place = old["spec"].get("nodeName")
            if place:
                here = self._on[place]
                here.pop(key, None)
                if not here:
                    del self._on[place]

    def _put_pod(self, key: Key, pod: Json) -> None:
        place = pod["spec"].get("nodeName")
        if place:
            self._on[place][key] = pod
        elif not finished(pod):
            self.unbound[key] = pod
        self._settle(key, pod)

    def _settle(self, key: Key, pod: Json) -> None:
        """Note whether a kubelet, or who cleans up after one, has something to do for *pod*."""
        place = pod["spec"].get("nodeName")
        starts = bool(place) and not finished(pod) and not ready(pod)
        if starts or leaving(pod) or (place and place not in self.nodes):
            self.unsettled[key] = pod
        else:
            self.unsettled.pop(key, None)

    def _put_node(self, node: Json) -> None:
        name = node["metadata"]["name"]
        fresh = name not in self.nodes
        self.renewed = True
        self.nodes[name] = node
        self.booting.pop(name, None)
        if BOOTING in (node["metadata"].get("labels") or {}):
            self.booting[name] = node
        if fresh:
            self._settle_all(name)

    def _drop_node(self, name: str) -> None:
        self.renewed = True
        self.nodes.pop(name, None)
        self.booting.pop(name, None)
        self._settle_all(name)

    def _settle_all(self, name: str) -> None:
        for key, pod in self._on.get(name, {}).items():
            self._settle(key, pod)


def in_order(found: dict[Key, Json]) -> Iterator[Json]:
    """Yield objects by their keys; they may be forgotten meanwhile."""
    for key in sorted(found):
        yield found[key]


__all__ = ["BOOTING", "Index", "in_order"]
