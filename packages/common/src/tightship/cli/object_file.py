"""API objects in a file, in any form that kubectl prints.

A ``List``, a ``PodList`` or the like, single objects, several documents in sequence, compressed or not. Every malformed
object is reported, not only the first.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TypeAlias

import msgspec
from msgspec import Struct

from tightship.cli.documents import ALLOWED, LARGEST, DocumentError, beginning, documents, read_stream, unpack
from tightship.objects import ObjectError
from tightship.objects.unreadable import UNREADABLE

Known: TypeAlias = Callable[[str, str], bool]
"""Whether to take objects of a kind and ``apiVersion`` (perhaps empty); others are ignored."""

Take: TypeAlias = Callable[[str, bytes | msgspec.Raw], None]
"""Takes one object of a kind. May raise :class:`~tightship.objects.ObjectError`."""


class FileError(Exception):
    """An unusable file. *problems* are whole lines for people, each beginning with the file's name."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class FileObjects(Struct):
    """The contents of files: how many objects of each kind were taken and *passed_over*, and the *problems*.

    *present* are the known kinds that the files mention, even if only by an empty list, and *lists* how many lists say
    that they hold nothing else. *named* are the file's names.
    """

    named: list[str]
    counts: Counter[str]
    passed_over: Counter[str]
    present: set[str]
    problems: list[str]
    lists: Counter[str]

    @property
    def name(self) -> str:
        """The names of all files, for people."""
        return ", ".join(self.named)

    def described(self) -> str:
        """Return the contents by kind, for people."""
        held = [f"{count} {kind}" for kind, count in sorted((self.counts + self.passed_over).items())]
        return ", ".join(held) or "empty lists"


class _Head(Struct):
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    items: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_heads = msgspec.json.Decoder(_Head)
_items = msgspec.json.Decoder(list[msgspec.Raw] | None)


def read_bytes(path: str | os.PathLike[str]) -> tuple[bytes, str]:
    """Return the bytes of *path*, ``-`` for standard input, and its name for people. Raises :class:`FileError`."""
    name = os.fspath(path)
    if name == "-":
        if sys.stdin is None:
            raise FileError(("standard input: is closed",))
        return _read(sys.stdin.buffer, "standard input"), "standard input"
    try:
        with Path(name).open("rb") as file:
            return _read(file, name), name
    except OSError as error:
        raise FileError((f"{name}: {error.strerror or error}",)) from error


def _read(stream: IO[bytes], name: str) -> bytes:
    found = read_stream(stream, LARGEST)
    if found is None:
        raise FileError((f"{name}: has more than {LARGEST:,} bytes, the most that is allowed",))
    return found


def files_in(path: str | os.PathLike[str]) -> list[str]:
    """Return *path*, or the files with objects in the folder *path*, in the order of their names.

    Raises :class:`FileError` for a folder without such a file.
    """
    name = os.fspath(path)
    if not Path(name).is_dir():
        return [name]
    inside = [Path(folder, each) for folder, _, names in os.walk(name) for each in names]
    found = sorted(str(each) for each in inside if each.name.removesuffix(".gz").endswith(_OBJECTS))
    if not found:
        raise FileError((f"{name}: Is a directory without a file *.json, *.yaml or *.yml; {_HOW_FOLDER}",))
    return found


_OBJECTS = (".json", ".yaml", ".yml")
_HOW_FOLDER = "kubectl cluster-info dump --all-namespaces --output-directory=DIR writes such files"


def read_all(paths: Sequence[str | os.PathLike[str]], known: Known, take: Take) -> FileObjects:
    """Give *take* every *known* object in the files *paths*, and return the contents of all files together.

    A folder stands for the files in it, which may also hold other things than API objects. Raises :class:`FileError`
    with all files that can't be opened.
    """
    held = _nothing()
    problems: list[str] = []
    for path in paths:
        try:
            files = files_in(path)
        except FileError as error:
            problems += error.problems
            continue
        of_folder = files != [os.fspath(path)]
        for file in files:
            try:
                raw, name = read_bytes(file)
            except FileError as error:
                problems += error.problems
            else:
                read_objects(raw, name, known, take, held, of_folder=of_folder)
        if of_folder:
            held.named[-len(files) :] = [os.fspath(path)]
    if problems:
        raise FileError((*problems, *held.problems))
    return held


def read_objects(
    raw: bytes, name: str, known: Known, take: Take, held: FileObjects | None = None, *, of_folder: bool = False
) -> FileObjects:
    """Give *take* every *known* object in the bytes of the file called *name*, and return the contents.

    The contents are those of *held* too, which came from earlier files. A file *of_folder* may hold other things.
    """
    reader = _Reader(name, known, take, _nothing() if held is None else held, of_folder)
    try:
        reader.whole = unpack(raw)
        for number, document in enumerate(documents(reader.whole), 1):
            reader.take(document, f"document {number}")
    except DocumentError as error:
        reader.problem(str(error))
    return reader.held


def _nothing() -> FileObjects:
    return FileObjects([], Counter(), Counter(), set(), [], Counter())


class _Reader:
    def __init__(self, name: str, known: Known, take: Take, held: FileObjects, of_folder: bool) -> None:
        self._name = name
        self._of_folder = of_folder
        self.whole = b""
        self._known = known
        self._take = take
        self.held = held
        held.named.append(name)

    def problem(self, text: str) -> None:
        self.held.problems.append(f"{self._name}: {text}")

    def _text(self, raw: bytes | msgspec.Raw) -> str:
        """Return what to say of a document *raw* that is just text, such as a table for people; empty for any other."""
        try:
            msgspec.json.decode(raw, type=str)
        except UNREADABLE:
            return ""
        return f"just text; the file begins with {beginning(self.whole)}: {ALLOWED}"

    def _no_object(self, text: str, *, always: bool = False) -> None:
        if self._of_folder and not always:
            self.held.passed_over["other"] += 1
        else:
            self.problem(text)

    def take(self, raw: bytes | msgspec.Raw, place: str, kind: str = "", api_version: str = "") -> None:
        """Take a document, or an item of a list whose head may give the *kind* and *api_version* of its items."""
        if bytes(raw[:1] if isinstance(raw, bytes) else memoryview(raw)[:1]) == b"[":
            self._take_all(raw, place)
            return
        try:
            head = _heads.decode(raw)
        except UNREADABLE as error:
            self._no_object(f"{place}: not an API object: {self._text(raw) or error}")
            return
        kind, api_version = head.kind or kind, head.api_version or api_version
        if not kind:
            cut = head.items is not msgspec.UNSET
            why = ", but items: the file is cut off" if cut else "" if ", item" in place else f"; {ALLOWED}"
            self._no_object(f"{place}: has no kind{why}", always=cut)
        elif kind.endswith("List") and head.items is not msgspec.UNSET:
            of = kind.removesuffix("List")
            if self._known(of, api_version):
                self.held.present.add(of)
                self.held.lists[of] += 1
            self._take_all(head.items, place, of, api_version if of else "")
        elif self._known(kind, api_version):
            self._take_object(kind, raw, place)
        else:
            self.held.passed_over[kind] += 1

    def _take_all(self, raw: bytes | msgspec.Raw, place: str, kind: str = "", api_version: str = "") -> None:
        try:
            items = _items.decode(raw) or []
        except UNREADABLE as error:
            self.problem(f"{place}: not a list of API objects: {error}")
            return
        for number, item in enumerate(items, 1):
            self.take(item, f"{place}, item {number}", kind, api_version)

    def _take_object(self, kind: str, raw: bytes | msgspec.Raw, place: str) -> None:
        self.held.present.add(kind)
        self.held.counts[kind] += 1
        try:
            self._take(kind, raw)
        except ObjectError as error:
            self.problem(str(error) if error.name else f"{place}: {error}")
        except RecursionError:
            self.problem(f"{place}: {kind}: nested too deeply")
