"""API objects in a file, in any form that kubectl prints.

A ``List``, a ``PodList`` or the like, single objects, several documents in sequence, compressed or not. Every malformed
object is reported, not only the first.

The bytes of a file become JSON documents: gzip, byte order marks, concatenated JSON, YAML, cluster-info dump. The
content decides the format, never the file's name. YAML has JSON's types: an unquoted time or ``10:30`` stays text, as
in the API, and only ``true``, ``false``, ``null`` and plain numbers are not text. A number in a map of quantities
(``cpu: 1``) becomes text, as on the API server.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import mmap
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeAlias, cast, overload

import msgspec
import yaml
from msgspec import Struct

from tightship.objects import ObjectError
from tightship.objects.mistyped import mend
from tightship.objects.quoting import quoted
from tightship.objects.unreadable import UNREADABLE

LARGEST = 4 << 30
"""Most bytes of a file, once unpacked. kubectl prints some 10 kB for a pod: 150,000 pods are 1.5 GB."""

LARGEST_RATIO = 200
"""How much larger than itself a compressed file may become. kubectl's output becomes ten to fifty times as large."""

_LARGE = 32 << 20
"""Bytes from which a file of JSON is given back to the system while its objects are taken."""

_PLAIN = (b'{"', b"{\n", b"{ ", b"{\r", b"[{", b"[\n")
"""How JSON begins, as kubectl prints it."""

_ALWAYS_ALLOWED = 64 << 20
"""Bytes to which a compressed file may unpack, however small it is."""

_GZIP = b"\x1f\x8b"
_UTF8_MARK = codecs.BOM_UTF8
_BLOCK = 1 << 20
_BLANK = re.compile(r"[ \t\r\n\ufeff]*")

_OTHERS = (
    (0, b"PK\x03\x04", "a zip archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\xfd7zXZ\x00", "compressed by xz"),
    (0, b"(\xb5/\xfd", "compressed by zstd"),
    (0, b"BZh", "compressed by bzip2"),
)
"""Where forms that are not read have which bytes."""

_LOGS = re.compile(
    rb"^==== START logs for container (\S+ of pod \S+) ====[ \t\r]*$.*?==== END logs for container \1 ====",
    re.MULTILINE | re.DOTALL,
)
_LOGS_BEGIN = re.compile(rb"^==== START logs for container (\S+ of pod \S+) ====", re.MULTILINE)
_DUMPED = re.compile(rb"^Cluster info dumped to standard output[ \t\r]*$", re.MULTILINE)
"""What ``kubectl cluster-info dump`` writes between and, before 1.19, after its objects (``clusterinfo_dump.go``)."""


_SAID = re.compile(rb"(?:(?:Warning: |[IWE]\d{4} \d\d:\d\d:\d\d\.).*\r?\n\s*)+")
"""Warnings of the API server and klog's lines, which kubectl writes to standard error."""

_ERROR = re.compile(r"(?:Error from server|error:|Unable to connect).*")

ALLOWED = "allowed is what kubectl prints with -o json or -o yaml"


class DocumentError(ValueError):
    """The bytes hold no readable documents; the text says where."""


@overload
def unpack(raw: bytes) -> bytes: ...
@overload
def unpack(raw: memoryview) -> bytes | memoryview: ...
def unpack(raw: bytes | memoryview) -> bytes | memoryview:
    """Return *raw* as UTF-8 without a byte order mark, decompressed. Raises :class:`DocumentError`."""
    if isinstance(raw, memoryview):
        if bytes(raw[:2]) in _PLAIN:
            _check_utf8(raw)
            return raw
        raw = bytes(raw)
    if raw.startswith(_GZIP):
        try:
            raw = _gunzip(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise DocumentError(f"damaged gzip data: {error}") from error
    other = next((what for at, mark, what in _OTHERS if raw.startswith(mark, at)), "")
    if other:
        raise DocumentError(f"is {other}: unpack it, and give the files or their folder")
    encoding = json.detect_encoding(raw[:4])
    if not encoding.startswith("utf-8"):
        # Redirection in Windows PowerShell writes UTF-16.
        try:
            raw = raw.decode(encoding).removeprefix("\ufeff").encode()
        except UnicodeDecodeError as error:
            raise DocumentError(f"byte {error.start}: not {encoding.upper()}: {error.reason}") from error
    raw = raw.removeprefix(_UTF8_MARK)
    _check_utf8(raw)
    if not raw or raw.isspace():
        raise DocumentError("is empty")
    return raw


def read_stream(stream: IO[bytes] | gzip.GzipFile, most: int) -> bytes | None:
    """Return what *stream* holds, ``None`` if that is more than *most* bytes."""
    held = io.BytesIO()
    while piece := stream.read(_BLOCK):
        held.write(piece)
        if held.tell() > most:
            return None
    return held.getvalue()


def _most_unpacked(size: int) -> int:
    return min(LARGEST, max(_ALWAYS_ALLOWED, LARGEST_RATIO * size))


def _gunzip(raw: bytes) -> bytes:
    most = _most_unpacked(len(raw))
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
        found = read_stream(stream, most)
    if found is None:
        why = f"allowed for one of {len(raw):,} bytes"
        raise DocumentError(f"is a compressed file that unpacks to more than the {most:,} bytes {why}; unpack it first")
    return found


def documents(raw: bytes | memoryview) -> Iterator[bytes | msgspec.Raw]:
    """Yield each document of *raw* (from :func:`unpack`) as JSON. Raises :class:`DocumentError`."""
    begins = bytes(raw[:_BLOCK]).lstrip()
    if begins[:1] not in (b"{", b"[") and (said := _SAID.match(begins)):
        # With 2>&1 a file begins with what kubectl says to people. Its lines stay, as empty ones.
        raw = b"\n" * said[0].count(b"\n") + bytes(raw).lstrip()[said.end() :]
        begins = raw[:_BLOCK].lstrip()
    if begins[:1] in (b"{", b"["):
        return _json_documents(raw)
    return _yaml_documents(_without_logs(bytes(raw)))


def beginning(raw: bytes | memoryview) -> str:
    """Return the first line of *raw* (from :func:`unpack`) with something on it, quoted."""
    return quoted(bytes(raw[:_BLOCK]).decode(errors="replace").strip().partition("\n")[0].strip())


def _without_logs(raw: bytes) -> bytes:
    """Return *raw* without what ``kubectl cluster-info dump`` writes beside objects, each line as an empty one."""
    if b"==== START logs for container " in raw:
        raw = _LOGS.sub(lambda found: b"\n" * found[0].count(b"\n"), raw)
        cut = _LOGS_BEGIN.search(raw)
        if cut is not None:
            line = raw.count(b"\n", 0, cut.start()) + 1
            raise DocumentError(f"line {line}: the logs of container {cut[1].decode()} don't end: the file is cut off")
    return _DUMPED.sub(b"", raw)


def _check_utf8(raw: bytes | memoryview) -> None:
    """Check in blocks: nobody needs the text of a large dump, which would take as much memory again."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(raw)
    for start in range(0, len(raw), _BLOCK):
        pending = len(decoder.getstate()[0])
        try:
            decoder.decode(view[start : start + _BLOCK], final=start + _BLOCK >= len(raw))
        except UnicodeDecodeError as error:
            raise DocumentError(f"byte {start - pending + error.start}: not UTF-8: {error.reason}") from error


def _json_documents(raw: bytes | memoryview) -> Iterator[bytes | msgspec.Raw]:
    try:
        whole = msgspec.json.decode(raw, type=msgspec.Raw)
    except UNREADABLE:
        # Several documents, or broken JSON: the standard parser tells where a document ends and where an error is.
        yield from _one_by_one(_without_logs(bytes(raw)).decode())
    else:
        yield whole


def _one_by_one(text: str) -> Iterator[bytes]:
    at = 0
    parser = json.JSONDecoder()
    while (at := _after_blank(text, at)) < len(text):
        try:
            _, end = parser.raw_decode(text, at)
        except json.JSONDecodeError as error:
            if told := _ERROR.match(text, at):
                why = f"kubectl failed with {quoted(told[0].strip())}"
                raise DocumentError(f"line {error.lineno}: {why}; ask again without what it names") from error
            cut = error.msg.startswith("Unterminated string") or not text[error.pos :].strip()
            why = f"{error.msg}: the file is cut off" if cut else error.msg
            raise DocumentError(f"line {error.lineno}, column {error.colno}: not JSON: {why}") from error
        except RecursionError as error:
            raise DocumentError("nested too deeply") from error
        yield text[at:end].encode()
        at = end


def _after_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


class _Loader(yaml.CSafeLoader):
    """libyaml's parser with JSON's rules for which plain scalars are not text, and a limit on what merge keys add."""

    _merged = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Take in what the merge keys of *node* refer to, each entry as often as it is referred to."""
        merging = [value for key, value in node.value if key.tag == "tag:yaml.org,2002:merge"]
        if merging:
            each = [part for value in merging for part in (value.value if _is_list(value) else [value])]
            self._merged += sum(len(part.value) for part in each)
            if len(each) > _MOST_MERGES or self._merged > _LEAST_SIZE:
                raise DocumentError("not YAML: merge keys (<<) repeat too much")
        super().flatten_mapping(node)

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own form


for _tag, _form, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", ("t", "T", "f", "F")),
    ("null", r"^(?:~|null|Null|NULL|)$", ("~", "n", "N", "")),
    ("int", r"^-?(?:0|[1-9][0-9]*)$", tuple("-0123456789")),
    ("float", r"^-?(?:0|[1-9][0-9]*)\.[0-9]+$", tuple("-0123456789")),
    ("merge", r"^<<$", ("<",)),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_form), _first)


def _is_list(node: yaml.Node) -> bool:
    return isinstance(node, yaml.SequenceNode)


_DEEPEST = 200
"""Levels of mappings and lists. API objects have some twenty; libyaml overflows the stack at some ten thousand."""

_MOST_MERGES = 100
"""Mappings that one mapping may merge."""

_LEAST_SIZE = 100_000
"""Values that a document may have, however short its text is."""

_MOST_REPEATS = 20
"""How much larger aliases may make a document than its text: each value takes at least a byte."""

_INDENTED = re.compile(rb"^[ ?:-]{%d}" % _DEEPEST, re.MULTILINE)


def _seems_deep(raw: bytes) -> bool:
    """Whether *raw* may be nested too deeply. Texts with many brackets seem so too."""
    if _INDENTED.search(raw):
        return True
    brackets = raw.translate(None, bytes(set(range(256)) - set(b"[]{}")))
    for _ in range(_DEEPEST):
        left = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if left == brackets:
            break
        brackets = left
    return len(brackets) > _DEEPEST


def _check_depth(raw: bytes) -> None:
    depth = 0
    for event in yaml.parse(raw, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise DocumentError("nested too deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check_size(document: object, length: int) -> None:
    """Refuse a *document* that aliases make much larger than its text, or endless. Every part is looked at once."""
    sizes: dict[int, int] = {}
    most = max(_LEAST_SIZE, _MOST_REPEATS * length)

    def size(node: object) -> int:
        if not isinstance(node, dict | list):
            return 1
        known = sizes.get(id(node))
        if known == 0:
            raise DocumentError("not YAML: an alias (*) contains itself")
        if known is None:
            sizes[id(node)] = 0
            values = node if isinstance(node, list) else [*node, *node.values()]
            sizes[id(node)] = known = 1 + sum(map(size, values))
            if known > most:
                raise DocumentError(f"not YAML: aliases (*) repeat too much: more than {most:,} values")
        return known

    size(document)


def _yaml_documents(raw: bytes) -> Iterator[bytes | msgspec.Raw]:
    return (msgspec.json.encode(document) for document, _ in marked_documents(raw))


def _loaded(raw: bytes) -> Iterator[tuple[object, yaml.Node]]:
    loader = _Loader(raw)
    try:
        while loader.check_node():
            node = loader.get_node()
            document = loader.construct_document(node)
            if node is not None and document is not None:
                yield document, node
    finally:
        loader.dispose()


def _pieces(raw: bytes) -> list[bytes]:
    """Return each document of a stream of JSON, which is no YAML, on its line; anything else as it is."""
    found: list[bytes] = []
    at = 0
    with suppress(DocumentError):
        for piece in _one_by_one(raw.decode()) if raw.lstrip()[:1] == b"{" else ():
            start = raw.index(piece, at)
            found.append(b"\n" * raw.count(b"\n", 0, start) + piece)
            at = start + len(piece)
        return found or [raw]
    return [raw]


def marked_documents(raw: bytes) -> Iterator[tuple[object, yaml.Node]]:
    """Yield each document of the YAML or JSON *raw* (from :func:`unpack`), and its nodes, which know their lines.

    Raises :class:`DocumentError`.
    """
    try:
        if _seems_deep(raw):
            _check_depth(raw)
        for document, node in (each for piece in _pieces(raw) for each in _loaded(piece)):
            _check_size(document, len(raw))
            mend(document)
            yield document, node
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark, " ".join(str(error.problem or error.context).split())
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise DocumentError(f"{where}not YAML: {problem}; the file begins with {beginning(raw)}: {ALLOWED}") from error
    except DocumentError:
        raise
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        raise DocumentError("not YAML: " + " ".join(str(error).split())) from error


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
    that they hold nothing else. *named* are the file's names, *untyped* the lists in folders whose kind nobody knows.
    """

    named: list[str]
    counts: Counter[str]
    passed_over: Counter[str]
    present: set[str]
    problems: list[str]
    lists: Counter[str]
    untyped: list[str]

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
    event: object = msgspec.field(default=None, name="type")
    of_event: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="object")


_EVENTS = ("ADDED", "MODIFIED")
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


def _held(path: str | os.PathLike[str]) -> tuple[memoryview, str] | None:
    """Return the bytes of a large file, unpacked, in memory that can be given back in parts, and its name."""
    with suppress(OSError, ValueError, EOFError, zlib.error), Path(path).open("rb") as file:
        stream: IO[bytes] | gzip.GzipFile = file
        size = most = os.fstat(file.fileno()).st_size
        if file.peek(2)[:2] == _GZIP:
            file.seek(-4, os.SEEK_END)  # the size of what was packed, modulo 2**32 (RFC 1952)
            size, most = int.from_bytes(file.read(4), "little"), _most_unpacked(size)
            file.seek(0)
            stream = gzip.GzipFile(fileobj=file)
        if hasattr(mmap, "MADV_DONTNEED") and _LARGE <= size <= min(most, LARGEST):
            held, at = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), 0
            with memoryview(held) as whole:
                while piece := stream.read(_BLOCK):
                    whole[at : at + len(piece)] = piece
                    at += len(piece)
            if at == size:
                return memoryview(held), os.fspath(path)
    return None


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
                raw, name = _held(file) or read_bytes(file)
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
    raw: bytes | memoryview,
    name: str,
    known: Known,
    take: Take,
    held: FileObjects | None = None,
    *,
    of_folder: bool = False,
) -> FileObjects:
    """Give *take* every *known* object in the bytes of the file called *name*, and return the contents.

    The contents are those of *held* too, which came from earlier files. A file *of_folder* may hold other things.
    """
    reader = _Reader(name, known, take, _nothing() if held is None else held, of_folder)
    try:
        reader.whole = unpack(raw)
        reader.beginning = beginning(reader.whole)
        for number, document in enumerate(documents(reader.whole), 1):
            reader.take(document, f"document {number}")
    except DocumentError as error:
        reader.problem(str(error))
    return reader.held


def _nothing() -> FileObjects:
    return FileObjects([], Counter(), Counter(), set(), [], Counter(), [])


class _Reader:
    def __init__(self, name: str, known: Known, take: Take, held: FileObjects, of_folder: bool) -> None:
        self._name = name
        self._of_folder = of_folder
        self.whole: bytes | memoryview = b""
        self.beginning = ""
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
        return f"just text; the file begins with {self.beginning}: {ALLOWED}"

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
        if not head.kind and head.of_event is not msgspec.UNSET and head.event in _EVENTS:
            self.take(head.of_event, place)  # of --output-watch-events
        elif not head.kind and head.of_event is not msgspec.UNSET and head.event == "DELETED":
            self._no_object(f"{place}: says that an object was deleted; {ALLOWED}, but without --watch")
        elif not kind:
            # kubectl writes the kind of a List in YAML last. JSON that is cut off can't be read at all.
            items, cut = head.items is not msgspec.UNSET, self.beginning[1:2] not in "{["
            if items and self._of_folder and not cut:
                self.held.untyped.append(self._name)
            else:
                why = "" if ", item" in place else f"; {ALLOWED}"
                why = ", but items: the file is cut off" if items and cut else ", but items" + why if items else why
                self._no_object(f"{place}: has no kind{why}", always=items)
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
        taken = given_back = 0
        for number, item in enumerate(items, 1):
            self.take(item.copy(), f"{place}, item {number}", kind, api_version)
            taken += memoryview(item).nbytes
            if isinstance(self.whole, memoryview) and taken - given_back > _LARGE // 4:
                # What is before the end of this item is done with, and nothing keeps a part of the file.
                given_back = taken - taken % mmap.PAGESIZE
                cast("mmap.mmap", self.whole.obj).madvise(mmap.MADV_DONTNEED, 0, given_back)

    def _take_object(self, kind: str, raw: bytes | msgspec.Raw, place: str) -> None:
        self.held.present.add(kind)
        self.held.counts[kind] += 1
        try:
            self._take(kind, raw)
        except ObjectError as error:
            self.problem(str(error) if error.name else f"{place}: {error}")
        except RecursionError:
            self.problem(f"{place}: {kind}: nested too deeply")
