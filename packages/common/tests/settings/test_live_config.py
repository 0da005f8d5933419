"""A configuration that changes while it is in use, written by people who make mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from kube.conftest import FakeSleep

from tightship.kube.connection import Connection
from tightship.kube.reflector import Timing
from tightship.process.settings.live import (
    Absent,
    ConfigMapSource,
    Content,
    FileSource,
    Found,
    LiveConfig,
    Report,
    Unusable,
)
from tightship_testkit.scripted import Json, Responder, ScriptedApi, event, page, status, stream
from tightship_testkit.simulated import until

pytestmark = pytest.mark.virtual_time

NAMESPACE = "tightship"
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
LIST, WATCH = f"LIST {PATH}", f"WATCH {PATH}"


class BadLimitError(ValueError):
    def __init__(self, *problems: str) -> None:
        super().__init__("bad")
        self.problems = list(problems)


def parse(data: Mapping[str, str]) -> int:
    """The limit. A text with blanks has two problems; "defect" is a defect of the parser."""
    if data["limit"] == "defect":
        raise KeyError("something else")
    if not data["limit"].isdigit():
        raise BadLimitError(*(f"limit: {word!r}: not a number" for word in data["limit"].split()))
    return int(data["limit"])


def config_map(limit: str, version: str = "5", name: str = "limits") -> Json:
    return {"metadata": {"name": name, "namespace": NAMESPACE, "resourceVersion": version}, "data": {"limit": limit}}


def changes(*limits: str, version: int = 11) -> list[bytes]:
    return [event("MODIFIED", config_map(limit, str(version + n))) for n, limit in enumerate(limits)]


DELETED = f"ConfigMap {NAMESPACE}/limits was deleted; nothing new begins until it is back"


class Scene:
    """A live configuration from the fake API server, and all that it reported."""

    def __init__(self, api: ScriptedApi, connection: Connection, fake_sleep: FakeSleep) -> None:
        self.api = api
        self.reports: list[Report] = []
        self._connection = connection
        self._fake_sleep = fake_sleep

    def live(
        self,
        starting: int = 1,
        *,
        lost: Callable[[int], int] | None = None,
        first_look: float = 10,
        silence: float = 60,
    ) -> LiveConfig[int]:
        timing = Timing(sleep=self._fake_sleep, silence=silence)
        source = ConfigMapSource(self._connection, NAMESPACE, "limits", timing=timing)
        report = self.reports.append
        return LiveConfig(source, parse, starting=starting, lost=lost, report=report, first_look=first_look)

    @property
    def reported(self) -> list[tuple[bool, bool]]:
        """Valid and changed of each report."""
        return [(each.valid, each.changed) for each in self.reports]

    def sentences(self, number: int) -> tuple[str, ...]:
        """What a report says to people."""
        notice = self.reports[number].notice
        return notice.sentences


@pytest.fixture
def scene(api: ScriptedApi, connection: Connection, fake_sleep: FakeSleep) -> Scene:
    return Scene(api, connection, fake_sleep)


async def test_the_config_map_is_asked_for_by_its_name(scene: Scene) -> None:
    scene.api.on(LIST, page([config_map("7", name="of-another"), config_map("3")]))
    async with scene.live() as live:
        assert live.current == 3
        await until(lambda: scene.api.count("WATCH", PATH) == 1)
    assert {each.params["fieldSelector"] for each in scene.api.seen} == {"metadata.name=limits"}
    assert scene.api.seen[1].params["resourceVersion"] == "10"
    assert scene.reports == [Report(f"ConfigMap {NAMESPACE}/limits", True, None, changed=True, absent=False)]


async def test_an_edit_is_in_use_and_wakes_who_waits(scene: Scene) -> None:
    scene.api.on(LIST, page([config_map("3")]))
    scene.api.on(WATCH, stream(*changes("4")))
    async with scene.live() as live, asyncio.timeout(60):
        live.changed.clear()
        await live.changed.wait()
        assert live.current == 4


async def test_a_bad_edit_keeps_the_last_good_one_and_is_told_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.api.on(LIST, page([config_map("3")]))
    scene.api.on(WATCH, stream(*changes("many few", "many few", "defect", "5")))
    async with scene.live() as live:
        await until(lambda: live.current == 5)
        assert live.valid
        assert live.problems == ()
    assert scene.reported == [(True, True), (False, False), (False, False), (True, True)]
    refused = "The configuration was refused; the last good one applies"
    assert scene.sentences(1) == (f"{refused}: limit: 'many': not a number", f"{refused}: limit: 'few': not a number")
    assert scene.sentences(2) == (f"{refused}: 'something else'",)
    assert caplog.text.count(refused) == 3


async def test_back_to_the_same_value_is_told_but_no_change(scene: Scene) -> None:
    scene.api.on(LIST, page([config_map("3")]))
    scene.api.on(WATCH, stream(*changes("x", "3", "03")))
    async with scene.live():
        await until(lambda: len(scene.reports) == 3)
    assert scene.reported == [(True, True), (False, False), (True, False)]


async def test_when_it_is_deleted_the_starting_one_stands(scene: Scene) -> None:
    scene.api.on(LIST, page([config_map("3")]))
    scene.api.on(WATCH, stream(event("DELETED", config_map("3", "12"))))
    async with scene.live() as live:
        await until(lambda: len(scene.reports) == 2)
        assert (live.current, live.valid) == (1, True)
        stands = "environment and defaults apply until it is back"
        assert live.problems == (f"ConfigMap {NAMESPACE}/limits was deleted; {stands}",)
    assert scene.reports[1].absent


async def test_when_it_is_deleted_the_starting_one_may_be_too_bold(scene: Scene) -> None:
    scene.api.on(LIST, page([config_map("3")]))
    gone = event("DELETED", config_map("3", "12"))
    scene.api.on(WATCH, stream(gone))
    async with scene.live(lost=lambda limit: -limit) as live:
        await until(lambda: len(scene.reports) == 2)
        assert live.current == -3
        assert live.problems == (DELETED,)


async def test_what_is_written_and_never_could_be_used_does_not_leave_the_starting_one_too_bold(scene: Scene) -> None:
    scene.api.on(LIST, page([config_map("x")]))
    scene.api.on(WATCH, stream(*changes("y", "5")))
    async with scene.live(lost=lambda limit: -abs(limit)) as live:
        await until(lambda: live.current == 5)
    off = "The configuration was refused; nothing new begins until there is a good one"
    assert scene.sentences(0) == (f"{off}: limit: 'x': not a number",)
    assert scene.sentences(1) == (f"{off}: limit: 'y': not a number",)
    assert scene.reported == [(False, True), (False, False), (True, True)]


async def test_a_bad_one_in_the_place_of_one_that_was_deleted_changes_nothing(scene: Scene) -> None:
    gone, bad = event("DELETED", config_map("3", "12")), event("ADDED", config_map("x", "13"))
    scene.api.on(LIST, page([config_map("3")]))
    scene.api.on(WATCH, stream(gone, bad))
    async with scene.live(lost=lambda limit: -abs(limit)) as live:
        await until(lambda: len(scene.reports) == 3)
        assert live.current == -3
    assert scene.sentences(1) == (DELETED,)
    assert "nothing new begins until there is a good one: " in scene.sentences(2)[0]


async def test_where_there_never_was_one_a_bold_starting_one_never_applies(scene: Scene) -> None:
    scene.api.on(LIST, page([]), status(403, "Forbidden", "no"), page([]))
    scene.api.on(WATCH, stream(end="close"))
    async with scene.live(lost=lambda limit: -abs(limit)) as live:
        await until(lambda: len(scene.reports) == 3)
        assert (live.current, live.valid) == (-1, True)
        assert live.problems == (f"ConfigMap {NAMESPACE}/limits does not exist; nothing new begins until it does",)
    assert scene.reported == [(True, True), (False, False), (True, False)]


async def test_once_it_is_back_it_counts_again(scene: Scene) -> None:
    scene.api.on(LIST, page([config_map("3")]))
    scene.api.on(WATCH, stream(event("DELETED", config_map("3", "12")), event("ADDED", config_map("5", "13"))))
    async with scene.live(lost=lambda limit: -limit) as live:
        await until(lambda: len(scene.reports) == 3)
        assert live.current == 5
    assert scene.reported == [(True, True), (False, True), (True, True)]


async def test_without_a_config_map_the_starting_one_stands(scene: Scene) -> None:
    scene.api.on(WATCH, stream(event("ADDED", config_map("3", "12"))))
    async with scene.live() as live:
        assert scene.reports[0] == Report(f"ConfigMap {NAMESPACE}/limits", True, None, changed=False, absent=True)
        await until(lambda: live.current == 3)


async def test_a_bad_start_falls_back_on_the_starting_one(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.api.on(LIST, page([config_map("x")]))
    async with scene.live() as live:
        assert (live.current, live.valid, live.read) == (1, False, True)
    assert "refused; environment and defaults apply: limit: 'x': not a number" in caplog.text


async def test_an_api_server_that_does_not_answer_is_not_waited_for_for_ever(scene: Scene) -> None:
    async def hang(_: object) -> None:
        await asyncio.Event().wait()

    scene.api.on(LIST, hang)  # type: ignore[arg-type]
    async with scene.live(first_look=0.05) as live:
        assert (live.current, live.read) == (1, False)
    assert scene.reports == []


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(stream(event("ERROR", {"code": 410, "reason": "Expired"})), id="410"),
        pytest.param(stream(event("ERROR", {"code": 500, "message": "etcd"})), id="an error event"),
        pytest.param(stream(end="reset"), id="reset"),
        pytest.param(stream(end="close"), id="closed at once"),
        pytest.param(stream(b"<html>\n"), id="no API server"),
        pytest.param(stream(b'{"type":"MODIFIED","object":{"meta', end="close"), id="cut off"),
        pytest.param(status(503), id="unavailable"),
    ],
)
async def test_a_watch_that_breaks_begins_anew_and_misses_nothing(
    scene: Scene, fake_sleep: FakeSleep, trouble: Responder
) -> None:
    scene.api.on(LIST, page([config_map("3")]), page([config_map("4")], version="20"))
    scene.api.on(WATCH, trouble, stream())
    async with scene.live() as live:
        await until(lambda: live.current == 4)
        await until(lambda: scene.api.count("WATCH", PATH) == 2)
        assert live.trouble == ""
    assert fake_sleep.waits
    assert scene.reported == [(True, True), (True, True)]


async def test_a_watch_that_says_nothing_is_found_out(scene: Scene) -> None:
    scene.api.on(LIST, page([config_map("3")]), page([config_map("4")]))
    scene.api.on(WATCH, stream())
    async with scene.live(silence=0.1) as live:
        await until(lambda: live.current == 4)


async def test_an_outage_changes_nothing_but_is_seen(scene: Scene) -> None:
    scene.api.on(LIST, page([config_map("3")]), status(500))
    scene.api.on(WATCH, status(500))
    async with scene.live() as live:
        await until(lambda: "500" in live.trouble)
        assert (live.current, live.valid) == (3, True)
    assert len(scene.reports) == 1


async def test_a_permission_that_is_taken_away_and_given_back_is_told(scene: Scene) -> None:
    scene.api.on(LIST, page([config_map("3")]), status(403, "Forbidden", "no"), page([config_map("3")]))
    scene.api.on(WATCH, stream(end="close"))
    async with scene.live() as live:
        await until(lambda: len(scene.reports) == 3)
        assert live.current == 3
    assert scene.reported == [(True, True), (False, False), (True, False)]


async def test_data_that_is_no_text_is_a_problem(scene: Scene) -> None:
    scene.api.on(LIST, page([config_map("3")]))
    broken = config_map("3", "12")
    broken["data"] = {"limit": 7}
    scene.api.on(WATCH, stream(event("MODIFIED", broken)))
    async with scene.live() as live:
        await until(lambda: not live.valid)
        assert live.current == 3
        assert "can't be read" in live.problems[0]


async def test_a_report_that_fails_does_no_harm(scene: Scene, connection: Connection) -> None:
    def broken(_: Report) -> None:
        raise RuntimeError("no")

    scene.api.on(LIST, page([config_map("3")]))
    source = ConfigMapSource(connection, NAMESPACE, "limits")
    async with LiveConfig(source, parse, starting=1, report=broken) as live:
        assert live.current == 3


async def test_a_source_with_a_defect_is_tried_again(fake_sleep: FakeSleep, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        name, trouble, runs = "broken", "", 0

        async def run(self, sink: Callable[[Content], None]) -> None:
            self.runs += 1
            if self.runs == 1:
                raise RuntimeError("a defect")
            sink(Found({"limit": "3"}))
            await asyncio.Event().wait()

    async with LiveConfig(Broken(), parse, starting=1, sleep=fake_sleep) as live:
        assert live.current == 3
    assert "a defect" in caplog.text


class Ticks:
    """Sleeps until told to go on."""

    def __init__(self) -> None:
        self._go = asyncio.Semaphore(0)
        self.sleeping = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.sleeping.set()
        await self._go.acquire()

    async def tick(self) -> None:
        """Let it look once more, and wait until it has."""
        await self.sleeping.wait()
        self.sleeping.clear()
        self._go.release()
        await self.sleeping.wait()


async def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    ticks, path = Ticks(), tmp_path / "limit"
    path.write_text("3")
    reports: list[Report] = []
    async with LiveConfig(FileSource(path, sleep=ticks), parse, starting=1, report=reports.append) as live:
        assert live.current == 3
        path.write_text("x")
        await ticks.tick()
        assert (live.current, live.valid) == (3, False)
        await ticks.tick()
        path.write_bytes(b"\xff")
        await ticks.tick()
        assert live.problems == (
            f"The configuration was refused; the last good one applies: {path}: is not UTF-8 text",
        )
        path.write_text("4")
        await ticks.tick()
        assert (live.current, live.valid, live.trouble) == (4, True, "")
        path.unlink()
        await ticks.tick()
        assert live.current == 4  # perhaps it is just being replaced
        await ticks.tick()
        assert live.current == 1
    assert [each.valid for each in reports] == [True, False, False, True, True]


async def test_without_a_file_the_starting_one_stands(tmp_path: Path) -> None:
    async with LiveConfig(FileSource(tmp_path / "limit", sleep=Ticks()), parse, starting=1) as live:
        assert (live.current, live.valid) == (1, True)


async def test_a_mounted_config_map_is_read_as_one_version(tmp_path: Path) -> None:
    """As the kubelet lays it out: files link into ..data, which links to the version in force."""
    for version, limit in (("..v1", "3"), ("..v2", "4")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "limit").write_text(limit)
        (tmp_path / version / "other").write_text(limit)
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "limit").symlink_to("..data/limit")
    (tmp_path / "other").symlink_to("..data/other")
    ticks, seen = Ticks(), list[Content]()
    task = asyncio.create_task(FileSource(tmp_path, sleep=ticks).run(seen.append))
    await ticks.sleeping.wait()
    (tmp_path / "..next").symlink_to("..v2")
    (tmp_path / "..next").rename(tmp_path / "..data")
    await ticks.tick()
    task.cancel()
    assert seen == [Found({"limit": "3", "other": "3"}), Found({"limit": "4", "other": "4"})]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param("absent", Absent(), id="absent"),
        pytest.param("loop", Unusable, id="a link to itself"),
        pytest.param("marked", Found({"limit": "3"}), id="with a byte order mark"),
    ],
)
async def test_what_a_path_may_be(tmp_path: Path, kind: str, expected: object) -> None:
    path = tmp_path / "limit"
    if kind == "loop":
        path.symlink_to(path)
    if kind == "marked":
        path.write_text("\ufeff3")
    seen: list[Content] = []
    ticks = Ticks()
    task = asyncio.create_task(FileSource(path, sleep=ticks).run(seen.append))
    await ticks.sleeping.wait()
    task.cancel()
    assert isinstance(seen[0], Unusable) if expected is Unusable else seen == [expected]
