"""A file in place of a cluster: what ``kubectl get nodes,pods,... -A -o json`` (or ``-o yaml``) prints.

A ``List``, a ``PodList`` and its like, single objects, several documents one after the other, compressed or not. Of
two objects of one kind, namespace and name the later one counts. Kinds that are not read are passed over; finished
pods are left out, as in a live cluster. Every malformed object is reported, not only the first.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from tightship.cluster import ClusterState, Snapshot
from tightship.kube.documents import DocumentError, documents, unpack
from tightship.kube.resources import BY_KIND, RESOURCES
from tightship.objects import ObjectError, decode

NOT_IN_FILE = "not in the file"

_HOW = f"kubectl get {','.join(resource.qualified for resource in RESOURCES)} -A -o json"


class FileError(Exception):
    """A file that can't be judged. *problems* are whole lines for people, each beginning with the file's name."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class FileContents(Struct, frozen=True):
    """The *snapshot*, how many objects of each kind it was made of, and how many of other kinds were *passed_over*."""

    snapshot: Snapshot
    counts: Mapping[str, int]
    passed_over: Mapping[str, int]


class _Head(Struct):
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    items: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_heads = msgspec.json.Decoder(_Head)
_items = msgspec.json.Decoder(list[msgspec.Raw] | None)


def read_file(path: str | os.PathLike[str]) -> Snapshot:
    """Return the snapshot of *path*, ``-`` for standard input. Raises :class:`FileError`, with all there is to say."""
    return load_file(path).snapshot


def load_file(path: str | os.PathLike[str]) -> FileContents:
    """Return what *path* holds, ``-`` for standard input. Raises :class:`FileError`, with all there is to say."""
    name = os.fspath(path)
    if name == "-":
        return parse(sys.stdin.buffer.read(), "standard input")
    try:
        raw = Path(name).read_bytes()
    except OSError as error:
        raise FileError((f"{name}: {error.strerror or error}",)) from error
    return parse(raw, name)


def parse(raw: bytes, name: str) -> FileContents:
    """Return what the bytes of the file called *name* hold. Raises :class:`FileError`."""
    reader = _Reader(name)
    try:
        for number, document in enumerate(documents(unpack(raw)), 1):
            reader.take(document, f"document {number}")
    except DocumentError as error:
        reader.problem(str(error))
    return reader.contents()


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._state = ClusterState()
        self._problems: list[str] = []
        self._counts: Counter[str] = Counter()
        self._passed_over: Counter[str] = Counter()
        self._present: set[str] = set()

    def problem(self, text: str) -> None:
        self._problems.append(f"{self._name}: {text}")

    def take(self, raw: bytes | msgspec.Raw, place: str, kind: str = "", api_version: str = "") -> None:
        """Take in a document or an item; *kind* and *api_version* are those of the items of its list, if it says so."""
        if bytes(raw[:1] if isinstance(raw, bytes) else memoryview(raw)[:1]) == b"[":
            self._take_all(raw, place)
            return
        try:
            head = _heads.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.problem(f"{place}: not an API object: {error}")
            return
        kind, api_version = head.kind or kind, head.api_version or api_version
        if not kind:
            self.problem(f"{place}: has no kind")
        elif kind.endswith("List") and head.items is not msgspec.UNSET:
            of = kind.removesuffix("List")
            if _known(of, api_version):
                self._present.add(of)
            self._take_all(head.items, place, of, api_version if of else "")
        elif _known(kind, api_version):
            self._take_object(kind, raw, place)
        else:
            self._passed_over[kind] += 1

    def _take_all(self, raw: bytes | msgspec.Raw, place: str, kind: str = "", api_version: str = "") -> None:
        try:
            items = _items.decode(raw) or []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.problem(f"{place}: not a list of API objects: {error}")
            return
        for number, item in enumerate(items, 1):
            self.take(item, f"{place}, item {number}", kind, api_version)

    def _take_object(self, kind: str, raw: bytes | msgspec.Raw, place: str) -> None:
        self._present.add(kind)
        self._counts[kind] += 1
        try:
            self._state.upsert(kind, decode(kind, raw))
        except ObjectError as error:
            self.problem(str(error) if error.name else f"{place}: {error}")
        except RecursionError:
            self.problem(f"{place}: {kind}: nested too deeply")

    def contents(self) -> FileContents:
        """Return what was read. Raises :class:`FileError` if anything was wrong, or there is no node."""
        if not self._problems and not self._counts["Node"]:
            held = [f"{count} {kind}" for kind, count in sorted((self._counts + self._passed_over).items())]
            self.problem(f"holds no Node (only {', '.join(held) or 'empty lists'}); write it by: {_HOW}")
        if self._problems:
            raise FileError(tuple(self._problems))
        for resource in RESOURCES:
            if resource.kind not in self._present:
                self._state.mark_missing(resource.kind, NOT_IN_FILE)
        return FileContents(self._state.snapshot(), dict(self._counts), dict(self._passed_over))


def _known(kind: str, api_version: str) -> bool:
    """Whether *kind* is one that is read: there are Nodes of other groups. Any version of the right group will do."""
    resource = BY_KIND.get(kind)
    if resource is None:
        return False
    group, _, _ = api_version.rpartition("/")
    return not api_version or group == resource.group
