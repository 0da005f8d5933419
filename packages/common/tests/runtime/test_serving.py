"""The frame of a controller: what it writes when, and in which order it ends, on an embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tightship.documents.document import Generator
from tightship.documents.html.page import Page
from tightship.kube.cache import CacheCrashed
from tightship.process.serving import Configuration, Frame, serve
from tightship.process.settings.loading import SettingsError
from tightship.process.settings.process import Name, Ports, Positive, ProcessSettings, load_process, variable
from tightship_testkit.replica import IN_POD
from tightship_testkit.simulated import Controller, Simulated, simulated, until

pytestmark = pytest.mark.virtual_time

CONFIG = "own-config"
LEASE = "own"


class Settings(ProcessSettings):
    interval: Positive = variable("PAUSE_SECONDS", default=1.0)
    config_map: Name = variable("CONFIG_MAP_NAME", default=CONFIG)
    ports: Ports = variable("HTTP_PORTS", default=(8080,))
    lease_name: Name = variable("LEASE_NAME", default=LEASE)


def parse(data: Mapping[str, str]) -> bool:
    """Whether it is on: on without a configuration."""
    switch = data.get("on", "true")
    if switch not in ("true", "false"):
        raise SettingsError([f"on: {switch!r}: allowed are true and false"])
    return switch == "true"


class Toy:
    """A controller that only tells what is asked of it."""

    def __init__(self, frame: Frame[bool]) -> None:
        self.frame = frame
        self.passes: list[tuple[bool, bool]] = []
        self.unfinished = False
        self.waiting: list[str] = []
        self.trouble: Exception | None = None
        self.led_at_stop: bool | None = None

    def waits_for(self) -> Sequence[str]:
        return self.waiting

    async def once(self) -> None:
        self.passes.append((self.frame.acting(), self.frame.leading()))
        if self.trouble is not None:
            raise self.trouble

    async def stop(self) -> None:
        self.led_at_stop = self.frame.leading()

    def status(self) -> Callable[[], bytes]:
        return lambda: b'{"toy": true}'

    def page(self) -> Callable[[], Page]:
        return lambda: Page("toy")


class Process(Controller):
    """A process of a toy."""

    def __init__(self, api: Simulated, name: str, settings: Settings, *, careful: bool = False) -> None:
        self.settings = settings
        self.toys: list[Toy] = []
        configuration = Configuration(parse, acting=lambda on: on, lost=(lambda _: False) if careful else None)
        program = Generator("own-controller", "1.2")
        super().__init__(api, name, lambda runtime: serve(runtime, settings, program, configuration, self._make))

    @asynccontextmanager
    async def _make(self, frame: Frame[bool]) -> AsyncIterator[Toy]:
        self.toys.append(Toy(frame))
        yield self.toys[0]

    @property
    def toy(self) -> Toy:
        return self.toys[0]

    async def passed(self, times: int = 3) -> None:
        """Wait for so many more passes."""
        await until(lambda: self.toys or self.task.done())
        wanted = len(self.toy.passes) + times
        await until(lambda: len(self.toy.passes) >= wanted or self.task.done())
        assert not self.task.done()

    def writes(self) -> list[str]:
        return [f"{each.call.verb} {each.call.path}" for each in self.api.did]


@pytest_asyncio.fixture
async def api(tmp_path: Path) -> AsyncIterator[Simulated]:
    async with simulated(tmp_path) as made:
        yield made


Start = Callable[..., Process]
REFUSED = "The configuration was refused; environment and defaults apply"


@pytest.fixture
def start(api: Simulated, tmp_path: Path) -> Start:
    made: list[Process] = []

    def begin(*, careful: bool = False, **flags: Any) -> Process:
        name = f"own-{len(made)}"
        given = {"kubeconfig": api.kubeconfig(), "namespace": "default", **flags}
        settings = load_process(Settings, {"POD_NAME": name, **IN_POD}, given, namespace_file=tmp_path / "none")
        made.append(Process(api, name, settings, careful=careful))
        return made[-1]

    return begin


async def test_a_leader_acts_and_at_the_end_finishes_before_the_lease_is_free(api: Simulated, start: Start) -> None:
    process = start()
    await until(lambda: process.toys and (True, True) in process.toy.passes)
    assert api.holder(LEASE) == process.settings.identity
    await process.ended()
    assert process.toy.led_at_stop
    assert api.holder(LEASE) == ""
    assert not process.runtime.crashed


async def test_of_two_replicas_one_leads(start: Start) -> None:
    first, second = start(), start()
    for each in (first, second):
        await until(lambda each=each: each.toys and each.toy.passes)
    await until(lambda: first.toy.frame.leading() or second.toy.frame.leading())
    assert first.toy.frame.leading() != second.toy.frame.leading()
    assert first.toy.frame.acting()
    assert second.toy.frame.acting()


async def test_a_bad_configuration_is_told_in_an_event(api: Simulated, start: Start) -> None:
    api.configure(CONFIG, {"on": "perhaps"})
    process = start()
    await process.passed()
    await until(api.events)
    [event] = api.events()
    assert (event["reason"], event["regarding"]["name"]) == ("ConfigInvalid", CONFIG)
    assert event["note"] == f"{REFUSED}: on: 'perhaps': allowed are true and false"
    assert process.toy.frame.live.current is True


async def test_one_that_switches_off_by_being_deleted_is_told_in_an_event_too(api: Simulated, start: Start) -> None:
    api.configure(CONFIG, {"on": "true"})
    process = start(careful=True)
    await process.passed()
    api.remove("ConfigMap", CONFIG, "default")
    await until(api.events)
    [event] = api.events()
    assert event["note"] == f"ConfigMap default/{CONFIG} was deleted; nothing new begins until it is back"
    assert process.toy.frame.switched_off()


async def test_where_the_starting_one_would_act_a_bad_one_at_the_start_switches_off(
    api: Simulated, start: Start
) -> None:
    api.configure(CONFIG, {"on": "perhaps"})
    process = start(careful=True)
    await process.passed()
    assert set(process.toy.passes) == {(False, False)}
    await until(api.events)
    [event] = api.events()
    assert "nothing new begins until there is a good one: on: 'perhaps'" in event["note"]


async def test_a_dry_run_writes_nothing_not_even_an_event(api: Simulated, start: Start) -> None:
    api.configure(CONFIG, {"on": "perhaps"})
    process = start(dry_run=True)
    await process.passed()
    api.configure(CONFIG, {"on": "also perhaps"})
    await until(
        lambda: process.toy.frame.live.problems == (f"{REFUSED}: on: 'also perhaps': allowed are true and false",)
    )
    await process.passed()
    await process.ended()
    assert process.writes() == []
    assert set(process.toy.passes) == {(False, False)}


async def test_a_dry_run_of_a_single_replica_leads_nothing_either(start: Start) -> None:
    process = start(dry_run=True, leader_elect=False)
    await process.passed()
    assert set(process.toy.passes) == {(False, False)}


async def test_switched_off_from_the_start_nothing_is_written_not_even_on_a_lease(api: Simulated, start: Start) -> None:
    api.configure(CONFIG, {"on": "false"})
    process = start()
    await process.passed(5)
    api.configure(CONFIG, {"on": "bad"})
    await until(lambda: process.toy.frame.live.problems)
    await process.passed(5)
    await process.ended()
    assert process.writes() == []
    assert set(process.toy.passes) == {(False, False)}


async def test_switched_off_the_lease_is_kept_until_all_is_finished(api: Simulated, start: Start) -> None:
    process = start()
    await until(lambda: process.toys and (True, True) in process.toy.passes)
    process.toy.unfinished = True
    api.configure(CONFIG, {"on": "false"})
    await until(lambda: process.toy.passes[-1] == (False, True))
    await process.passed(5)
    assert api.holder(LEASE) == process.settings.identity
    process.toy.unfinished = False
    await until(lambda: api.holder(LEASE) == "")
    written = process.writes()
    await process.passed(5)
    assert process.toy.passes[-1] == (False, False)
    assert process.writes() == written
    api.configure(CONFIG, {"on": "true"})
    await until(lambda: process.toy.passes[-1] == (True, True))
    assert api.holder(LEASE) == process.settings.identity


async def test_what_is_unfinished_is_a_reason_to_run_for_the_lease_though_off(api: Simulated, start: Start) -> None:
    api.configure(CONFIG, {"on": "false"})
    process = start()
    await process.passed()
    process.toy.unfinished = True
    await until(lambda: process.toy.passes[-1] == (False, True))
    process.toy.unfinished = False
    await until(lambda: api.holder(LEASE) == "")


async def test_a_single_replica_without_election_follows_the_switch(api: Simulated, start: Start) -> None:
    api.configure(CONFIG, {"on": "false"})
    process = start(leader_elect=False)
    await process.passed()
    assert set(process.toy.passes) == {(False, True)}
    api.configure(CONFIG, {"on": "true"})
    await until(lambda: process.toy.passes[-1] == (True, True))
    assert process.writes() == []


async def test_a_cache_that_crashes_ends_the_process_with_an_error_in_good_order(
    api: Simulated, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    process = start()
    await until(lambda: process.toys and (True, True) in process.toy.passes)
    process.toy.trouble = CacheCrashed("reflector of pods ended: ZeroDivisionError")
    await until(process.task.done)
    await process.task
    await process.runtime.close()
    assert process.runtime.crashed
    assert process.toy.led_at_stop
    assert api.holder(LEASE) == ""
    assert [each.getMessage() for each in caplog.records if each.levelname == "CRITICAL"] == [
        "own-controller ended: reflector of pods ended: ZeroDivisionError"
    ]
    assert "trying again" not in caplog.text


async def test_any_other_defect_of_a_pass_is_tried_again(start: Start) -> None:
    process = start()
    await process.passed()
    process.toy.trouble = ZeroDivisionError("defect")
    before = len(process.toy.passes)
    await until(lambda: len(process.toy.passes) > before)
    process.toy.trouble = None
    process.toy.frame.wake.set()
    await process.passed()


async def test_a_cache_that_crashes_before_the_first_pass_ends_the_process_too(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashed(_: Toy) -> Sequence[str]:
        raise CacheCrashed("defect")

    monkeypatch.setattr(Toy, "waits_for", crashed)
    process = start()
    await until(process.task.done)
    assert process.runtime.crashed
    assert process.toy.passes == []


async def test_what_a_replica_waits_for_is_told_until_it_is_ready(
    api: Simulated, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = ["not synced: Pod"]
    monkeypatch.setattr(Toy, "waits_for", lambda _: waiting)
    process = start()
    await until(lambda: process.toys)
    await asyncio.sleep(1)

    async def ready() -> tuple[int, str]:
        return await api.get(process.name, 8080, "/readyz")

    assert await ready() == (503, "not ok\nnot synced: Pod\n")
    assert process.toy.passes == []
    assert api.holder(LEASE) is None
    waiting.clear()
    await process.passed()
    assert await ready() == (200, "ok\n")
