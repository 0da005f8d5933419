"""Turns the bytes of a file into JSON documents: gzip, byte order marks, concatenated JSON, YAML, cluster-info dump.

The content decides the format, never the file's name. YAML has JSON's types: an unquoted time or ``10:30`` stays text,
as in the API, and only ``true``, ``false``, ``null`` and plain numbers are not text. A number in a map of quantities
(``cpu: 1``) becomes text, as on the API server.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from typing import IO

import msgspec
import yaml

from tightship.objects.mistyped import quote_quantities
from tightship.objects.quoting import quoted
from tightship.objects.unreadable import UNREADABLE

LARGEST = 4 << 30
"""Most bytes of a file, once unpacked. kubectl prints some 10 kB for a pod: 150,000 pods are 1.5 GB."""

LARGEST_RATIO = 200
"""How much larger than itself a compressed file may become. kubectl's output becomes ten to fifty times as large."""

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


ALLOWED = "allowed is what kubectl prints with -o json or -o yaml"


class DocumentError(ValueError):
    """The bytes hold no readable documents; the text says where."""


def unpack(raw: bytes) -> bytes:
    """Return *raw* as UTF-8 without a byte order mark, decompressed. Raises :class:`DocumentError`."""
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


def _gunzip(raw: bytes) -> bytes:
    most = min(LARGEST, max(_ALWAYS_ALLOWED, LARGEST_RATIO * len(raw)))
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
        found = read_stream(stream, most)
    if found is None:
        why = f"allowed for one of {len(raw):,} bytes"
        raise DocumentError(f"is a compressed file that unpacks to more than the {most:,} bytes {why}; unpack it first")
    return found


def documents(raw: bytes) -> Iterator[bytes | msgspec.Raw]:
    """Yield each document of *raw* (from :func:`unpack`) as JSON. Raises :class:`DocumentError`."""
    if raw[:_BLOCK].lstrip()[:1] in (b"{", b"["):
        return _json_documents(raw)
    return _yaml_documents(_without_logs(raw))


def beginning(raw: bytes) -> str:
    """Return the first line of *raw* (from :func:`unpack`) with something on it, quoted."""
    return quoted(raw[:_BLOCK].decode(errors="replace").strip().partition("\n")[0].strip())


def _without_logs(raw: bytes) -> bytes:
    """Return *raw* without what ``kubectl cluster-info dump`` writes beside objects, each line as an empty one."""
    if b"==== START logs for container " in raw:
        raw = _LOGS.sub(lambda found: b"\n" * found[0].count(b"\n"), raw)
        cut = _LOGS_BEGIN.search(raw)
        if cut is not None:
            line = raw.count(b"\n", 0, cut.start()) + 1
            raise DocumentError(f"line {line}: the logs of container {cut[1].decode()} don't end: the file is cut off")
    return _DUMPED.sub(b"", raw)


def _check_utf8(raw: bytes) -> None:
    """Check in blocks: nobody needs the text of a large dump, which would take as much memory again."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(raw)
    for start in range(0, len(raw), _BLOCK):
        pending = len(decoder.getstate()[0])
        try:
            decoder.decode(view[start : start + _BLOCK], final=start + _BLOCK >= len(raw))
        except UnicodeDecodeError as error:
            raise DocumentError(f"byte {start - pending + error.start}: not UTF-8: {error.reason}") from error


def _json_documents(raw: bytes) -> Iterator[bytes | msgspec.Raw]:
    try:
        whole = msgspec.json.decode(raw, type=msgspec.Raw)
    except UNREADABLE:
        # Several documents, or broken JSON: the standard parser tells where a document ends and where an error is.
        yield from _one_by_one(_without_logs(raw).decode())
    else:
        yield whole


def _one_by_one(text: str) -> Iterator[bytes]:
    at = 0
    parser = json.JSONDecoder()
    while (at := _after_blank(text, at)) < len(text):
        try:
            _, end = parser.raw_decode(text, at)
        except json.JSONDecodeError as error:
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


def marked_documents(raw: bytes) -> Iterator[tuple[object, yaml.Node]]:
    """Yield each document of the YAML *raw* (from :func:`unpack`), and its nodes, which know their lines.

    Raises :class:`DocumentError`.
    """
    try:
        if _seems_deep(raw):
            _check_depth(raw)
        for document, node in _loaded(raw):
            _check_size(document, len(raw))
            quote_quantities(document)
            yield document, node
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark, " ".join(str(error.problem or error.context).split())
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise DocumentError(f"{where}not YAML: {problem}; the file begins with {beginning(raw)}: {ALLOWED}") from error
    except DocumentError:
        raise
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        raise DocumentError("not YAML: " + " ".join(str(error).split())) from error
