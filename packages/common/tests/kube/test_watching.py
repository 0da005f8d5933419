"""The watch without I/O: lines, events, versions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tightship.kube.reflector import Applied, Bookmark, Expired, LineSplitter, Removed, WatchDriver
from tightship.kube.resources import BY_KIND
from tightship.objects.api_errors import ApiError, BadAnswer


def driver(kind: str = "Pod") -> WatchDriver:
    return WatchDriver(BY_KIND[kind], "7", server="https://api", server_timeout=300, spread=lambda: 0.5)


def line(kind: str, thing: Any) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode()


META = {"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "9"}}


@pytest.mark.parametrize(
    ("raw", "expected", "version"),
    [
        pytest.param(line("ADDED", META), Applied, "9", id="added"),
        pytest.param(line("MODIFIED", META), Applied, "9", id="modified"),
        pytest.param(line("DELETED", META), Removed("ns", "a"), "9", id="deleted"),
        pytest.param(line("BOOKMARK", {"metadata": {"resourceVersion": "12"}}), Bookmark(), "12", id="bookmark"),
        pytest.param(line("ERROR", {"code": 410, "reason": "Expired"}), Expired(), "7", id="expired"),
        pytest.param(
            line("MODIFIED", {"metadata": {"name": 3}}), Applied, "7", id="malformed metadata keeps the version"
        ),
        pytest.param(line("ADDED", 5), Applied, "7", id="not even an object"),
    ],
)
def test_a_line_becomes_an_event(raw: bytes, expected: Any, version: str) -> None:
    watch = driver()
    event = watch.take(raw)
    assert isinstance(event, Applied) if expected is Applied else event == expected
    assert watch.resource_version == version
    assert watch.params()["resourceVersion"] == version


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        pytest.param(line("ERROR", {"code": 500, "message": "etcd"}), ApiError, id="another error"),
        pytest.param(b"<html>", BadAnswer, id="not JSON"),
        pytest.param(b'{"object": {}}', BadAnswer, id="no type"),
        pytest.param(line("SOMETHING", META), BadAnswer, id="unknown type"),
        pytest.param(b'{"type":"ADDED","object":{"meta', BadAnswer, id="cut off"),
    ],
)
def test_what_is_no_event_raises(raw: bytes, error: type[Exception]) -> None:
    watch = driver()
    with pytest.raises(error, match="WATCH /api/v1/pods at https://api"):
        watch.take(raw)
    assert watch.resource_version in ("7", "9")


def test_a_request_asks_for_bookmarks_a_server_timeout_and_unfinished_pods() -> None:
    assert driver().params() == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "450",
        "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
    }
    assert "fieldSelector" not in driver("Node").params()


@given(st.lists(st.binary(min_size=1).filter(lambda raw: b"\n" not in raw and raw.strip() != b"")), st.data())
def test_lines_do_not_depend_on_where_chunks_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(each + b"\n" for each in lines)
    splitter, found, rest = LineSplitter(), [], whole
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += splitter.feed(rest[:size])
        rest = rest[size:]
    assert found == lines


def test_a_long_line_in_many_chunks_arrives_whole() -> None:
    splitter = LineSplitter()
    for _ in range(2000):
        assert splitter.feed(b"x" * 1000) == []
    assert splitter.feed(b"\nnext\n") == [b"x" * 2_000_000, b"next"]


def test_a_line_without_end_is_refused() -> None:
    splitter = LineSplitter(longest=10)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        splitter.feed(b"x" * 11)
