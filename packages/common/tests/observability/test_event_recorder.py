"""Events are recorded beside the work, and never in its way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from kube.conftest import FakeSleep

from tightship.kube.connection import Connection
from tightship.process.events import EventRecorder, ObjectRef, Pace, cut
from tightship_testkit.scripted import Json, ScriptedApi, status
from tightship_testkit.simulated import until

pytestmark = pytest.mark.virtual_time

PATH = "/apis/events.k8s.io/v1/namespaces/{}/events"
NODE = ObjectRef("Node", "n1", "uid-1")
POD = ObjectRef("Pod", "web-0", "uid-2", "shop")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class RecordedEvents:
    """Takes Events in, and has a recorder that tells its causes."""

    def __init__(self, api: ScriptedApi, connection: Connection) -> None:
        self.events: list[Json] = []
        self.dropped: list[str] = []
        self.clock = Clock()
        self._connection = connection
        self.api = api
        for namespace in ("default", "shop"):
            api.on(f"POST {PATH.format(namespace)}", self.take)

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.events.append(await request.json())
        return web.json_response({}, status=201)

    def recorder(self, silent: bool = False, **pace: Any) -> EventRecorder:
        paced = Pace(
            clock=self.clock, sleep=self.clock.sleep, now=lambda: datetime(2026, 1, 2, 3, 4, 5, 67, UTC), **pace
        )
        return EventRecorder(
            self._connection,
            controller="tightship.dev/node-compactor",
            instance="compactor-abc",
            pace=paced,
            dropped=self.dropped.append,
            silent=silent,
        )


@pytest.fixture
def recorded(api: ScriptedApi, connection: Connection) -> RecordedEvents:
    return RecordedEvents(api, connection)


def tell(recorder: EventRecorder, note: str = "all moved", about: ObjectRef = NODE) -> None:
    recorder.record(about, "Normal", "Drained", note, "Drain")


async def test_a_silent_recorder_sends_nothing_and_misses_nothing(recorded: RecordedEvents) -> None:
    async with recorded.recorder(silent=True) as recorder:
        tell(recorder)
    assert recorded.events == []
    assert recorded.dropped == []


async def test_an_event_is_sent_as_the_api_wants_it(recorded: RecordedEvents) -> None:
    async with recorded.recorder() as recorder:
        tell(recorder)
        tell(recorder, about=POD)
    first, second = recorded.events
    name = first["metadata"].pop("name")
    assert name.startswith("n1.")
    assert first == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "default"},
        "eventTime": "2026-01-02T03:04:05.000067Z",
        "reportingController": "tightship.dev/node-compactor",
        "reportingInstance": "compactor-abc",
        "action": "Drain",
        "reason": "Drained",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1"},
        "note": "all moved",
        "type": "Normal",
    }
    assert second["metadata"]["namespace"] == second["regarding"]["namespace"] == "shop"
    assert len(recorded.events) == 2
    assert recorded.dropped == []


async def test_the_same_is_told_once_in_a_while(recorded: RecordedEvents) -> None:
    async with recorded.recorder(window=600) as recorder:
        tell(recorder)
        tell(recorder)
        recorded.clock.now += 599
        tell(recorder)
        tell(recorder, "something else")
        recorded.clock.now += 1
        tell(recorder)
    assert len(recorded.events) == 3
    assert recorded.dropped == []


async def test_a_flood_is_slowed_down_and_what_waits_is_bounded(recorded: RecordedEvents) -> None:
    async with recorded.recorder(burst=3, rate=2, queue=10, flush=60) as recorder:
        for number in range(12):
            tell(recorder, str(number))
    assert [each["note"] for each in recorded.events] == [str(number) for number in range(10)]
    assert recorded.dropped == ["queue-full"] * 2
    assert recorded.clock.slept == [0.5] * 7


async def test_an_outage_is_logged_once_and_then_it_is_told_again(
    recorded: RecordedEvents, api: ScriptedApi, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"POST {PATH.format('default')}"
    with caplog.at_level(logging.INFO):
        async with recorded.recorder() as recorder:
            api.on(path, status(403, "Forbidden", "may not create events"))
            tell(recorder, "a")
            tell(recorder, "b")
            await until(lambda: len(recorded.dropped) == 2)
            api.on(path, recorded.take)
            tell(recorder, "a")  # not suppressed: it was never recorded
    assert [each["note"] for each in recorded.events] == ["a"]
    assert recorded.dropped == ["failed", "failed"]
    reported = [each.message for each in caplog.records if each.name == "tightship.process.events"]
    assert len(reported) == 2
    assert "may not create events" in reported[0]
    assert reported[1] == "Events are recorded again"


async def test_a_lost_answer_makes_no_second_event(recorded: RecordedEvents, api: ScriptedApi) -> None:
    names: list[str] = []

    async def lost(request: web.Request) -> web.StreamResponse:
        names.append((await request.json())["metadata"]["name"])
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def there_already(request: web.Request) -> web.StreamResponse:
        names.append((await request.json())["metadata"]["name"])
        return await status(409, "AlreadyExists")(request)

    api.on(f"POST {PATH.format('default')}", lost, there_already)
    async with recorded.recorder() as recorder:
        tell(recorder)
    assert len(names) == 2
    assert len(set(names)) == 1
    assert recorded.dropped == []


async def test_the_end_waits_for_what_is_queued_but_not_for_ever(
    recorded: RecordedEvents, api: ScriptedApi, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    api.on(f"POST {PATH.format('default')}", hang)
    async with asyncio.timeout(60):
        async with recorded.recorder(flush=0.05) as recorder:
            tell(recorder, "a")
            tell(recorder, "b")
            await asked.wait()
    assert recorded.dropped == ["closed", "closed"]
    assert "2 Events were not recorded before the end" in caplog.text
    tell(recorder, "c")
    assert recorded.dropped == ["closed"] * 3


@pytest.mark.parametrize(
    "say",
    [
        pytest.param(lambda r: r.record(NODE, "Loud", "R", "n", "A"), id="unknown type"),
        pytest.param(lambda r: r.record(NODE, "Normal", "", "n", "A"), id="no reason"),
        pytest.param(lambda r: r.record(NODE, "Normal", "R", "n", ""), id="no action"),
        pytest.param(lambda r: r.record(None, "Normal", "R", "n", "A"), id="about nothing"),
        pytest.param(lambda r: r.record(NODE, "Normal", "R", None, "A"), id="no note at all"),
    ],
)
async def test_a_defect_of_the_caller_is_counted_not_raised(
    recorded: RecordedEvents, caplog: pytest.LogCaptureFixture, say: Callable[[EventRecorder], None]
) -> None:
    async with recorded.recorder() as recorder:
        say(recorder)
    assert (recorded.events, recorded.dropped) == ([], ["invalid"])
    assert "can't be made" in caplog.text


async def test_what_is_too_long_is_cut_to_bytes_not_characters(recorded: RecordedEvents) -> None:
    async with recorded.recorder() as recorder:
        recorder.record(ObjectRef("Pod", "p" * 253, namespace="shop"), "Warning", "r" * 200, "é" * 1000, "a" * 200)
    [event] = recorded.events
    assert len(event["note"].encode()) <= 1024
    assert event["note"].endswith("é…")
    assert len(event["reason"].encode()) <= 128
    assert len(event["action"].encode()) <= 128
    assert len(event["metadata"]["name"]) <= 253


@pytest.mark.parametrize("text", ["", "a", "é", "€", "😀", "\ud800"])
@pytest.mark.parametrize("times", [1, 2, 3, 4, 50])
def test_cutting_leaves_valid_text(text: str, times: int) -> None:
    result = cut(text * times, 8)
    assert len(result.encode()) <= 8


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"controller": "tightship dev"}, "qualified name"),
        ({"controller": "a/b/c"}, "qualified name"),
        ({"instance": ""}, "must not be empty"),
    ],
)
async def test_what_the_api_would_refuse_is_refused_at_the_start(
    connection: Connection, wrong: dict[str, str], message: str
) -> None:
    arguments = {"controller": "tightship.dev/x", "instance": "i", **wrong}
    with pytest.raises(ValueError, match=message):
        EventRecorder(connection, dropped=print, **arguments)


async def test_a_counter_that_fails_does_no_harm(connection: Connection, fake_sleep: FakeSleep) -> None:
    causes: list[str] = []

    def broken(cause: str) -> None:
        causes.append(cause)
        raise RuntimeError("no")

    recorder = EventRecorder(connection, controller="tightship.dev/x", instance="i", dropped=broken)
    tell(recorder)
    assert causes == ["closed"]
