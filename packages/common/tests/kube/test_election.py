"""Election of a leader in virtual time, against Leases in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from lease_server import LeaseServer, MemoryConnection, now, virtually

from tightship.kube.connection import Connection
from tightship.kube.election import Elector, LeaseTiming
from tightship.kube.errors import ApiError

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/leader"
DEADLINE = LeaseTiming().renew_deadline
DURATION = LeaseTiming().duration
PERIOD = LeaseTiming().retry_period


@dataclass
class Replica:
    """An elector that runs, with its own connection and its own clocks."""

    api: LeaseServer
    identity: str = "a"
    skew: float = 0.0
    wall: float = 1_700_000_000.0
    changes: list[bool] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.connection = MemoryConnection(self.api)
        self.elector = Elector(
            cast("Connection", self.connection),
            namespace="ns",
            name="leader",
            identity=self.identity,
            clock=lambda: now() + self.skew,
            wall_clock=lambda: self.wall,
            on_change=self.changes.append,
        )
        self.task = asyncio.create_task(self.elector.run(self.stop))

    @property
    def leads(self) -> bool:
        return self.elector.is_leader

    async def gone(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Scene:
    """Replicas that end with the test."""

    def __init__(self) -> None:
        self.api = LeaseServer()
        self.replicas: list[Replica] = []

    def replica(self, identity: str = "a", **more: Any) -> Replica:
        self.replicas.append(Replica(self.api, identity, **more))
        return self.replicas[-1]

    async def leader(self, identity: str = "a") -> Replica:
        made = self.replica(identity)
        await made.elector.wait_for_leadership()
        return made

    @property
    def spec(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.api.objects[PATH]["spec"])


@asynccontextmanager
async def _ended(scene: Scene) -> Any:
    try:
        yield
    finally:
        for each in scene.replicas:
            await each.gone()


def scene(test: Callable[[Scene], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def work() -> None:
            made = Scene()
            async with _ended(made):
                await test(made)

        virtually(work)

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


def taken_by(holder: str) -> Callable[[dict[str, Any]], None]:
    def change(lease: dict[str, Any]) -> None:
        lease["spec"]["holderIdentity"] = holder
        lease["spec"]["leaseTransitions"] += 1
        lease["spec"]["renewTime"] = "2026-01-01T00:00:00.000001Z"

    return change


@pytest.mark.parametrize(
    ("duration", "deadline", "period"),
    [(10, 10, 2), (15, 2, 2), (15, 10, 0), (float("inf"), 10, 2), (15, float("nan"), 2)],
)
def test_timing_that_could_not_work_is_refused_with_its_values(duration: float, deadline: float, period: float) -> None:
    with pytest.raises(
        ValueError, match=f"duration {duration:g}, renew_deadline {deadline:g}, retry_period {period:g}"
    ):
        LeaseTiming(duration=duration, renew_deadline=deadline, retry_period=period)


def test_an_empty_identity_is_refused() -> None:
    with pytest.raises(ValueError, match="identity"):
        Elector(cast("Connection", None), namespace="ns", name="leader", identity="")


@scene
async def test_a_replica_alone_leads_and_renews(scene: Scene) -> None:
    a = await scene.leader()
    assert a.elector.epoch == scene.spec["leaseTransitions"] == 1
    assert scene.spec["leaseDurationSeconds"] == 15
    renewed = scene.spec["renewTime"]
    for _ in range(600):
        await asyncio.sleep(0.5)
        assert a.leads
    assert a.elector.holder == scene.spec["holderIdentity"] == "a"
    assert scene.spec["renewTime"] > renewed
    assert a.changes == [True]
    assert a.elector.epoch == 1
    assert a.connection.sent.count("GET") == 1


@scene
async def test_what_others_wrote_into_the_lease_stays(scene: Scene) -> None:
    scene.api.objects[PATH] = {
        "kind": "Lease",
        "metadata": {
            "name": "leader",
            "resourceVersion": "7",
            "uid": "u",
            "labels": {"team": "x"},
            "annotations": {"note": "hands off"},
            "ownerReferences": [{"name": "o"}],
        },
        "spec": {"strategy": "OldestEmulationVersion", "leaseTransitions": 41, "holderIdentity": None},
    }
    a = await scene.leader()
    await asyncio.sleep(10)
    lease = scene.api.objects[PATH]
    assert lease["metadata"]["labels"] == {"team": "x"}
    assert lease["metadata"]["annotations"]["note"] == "hands off"
    assert lease["metadata"]["ownerReferences"] == [{"name": "o"}]
    assert lease["spec"]["strategy"] == "OldestEmulationVersion"
    assert a.elector.epoch == 42


@pytest.mark.parametrize("mode", ["refused", "hang", "lost answer", 500, 429, 403, 401])
def test_an_outage_shorter_than_the_deadline_keeps_leadership(mode: str | int) -> None:
    @scene
    async def run(scene: Scene) -> None:
        a, b = await scene.leader("a"), scene.replica("b")
        await asyncio.sleep(20.5)
        for each in (a, b):
            each.connection.mode = mode
        for _ in range(55):
            await asyncio.sleep(0.1)
            assert a.leads
        for each in (a, b):
            each.connection.mode = "up"
        for _ in range(300):
            await asyncio.sleep(0.1)
            assert a.leads
            assert not b.leads
        assert a.changes == [True]
        assert a.elector.epoch == 1
        assert a.elector.failure is None

    run()


@pytest.mark.parametrize("mode", ["refused", "hang", "lost answer", 500, 403])
def test_a_longer_outage_ends_leadership_in_time_though_the_process_goes_on(mode: str | int) -> None:
    @scene
    async def run(scene: Scene) -> None:
        a = await scene.leader()
        await asyncio.sleep(20.5)
        began, a.connection.mode = now(), mode
        await a.elector.wait_for_loss()
        assert DEADLINE - PERIOD - 0.1 < now() - began <= DEADLINE
        assert a.changes == [True, False]
        await asyncio.sleep(60)
        assert not a.leads
        assert not a.task.done()
        a.connection.mode = "up"
        assert await a.elector.wait_for_leadership() > 1
        assert a.changes == [True, False, True]

    run()


@scene
async def test_the_term_counts_from_before_the_request_was_sent(scene: Scene) -> None:
    a = scene.replica()
    a.connection.delay = lambda: 3.0
    await a.elector.wait_for_leadership()
    assert a.elector.remaining == pytest.approx(DEADLINE - 3.0, abs=0.1)


@scene
async def test_a_write_answered_after_the_deadline_prolongs_nothing(scene: Scene) -> None:
    a = await scene.leader()
    await asyncio.sleep(0.5)
    a.connection.delay = lambda: 1.0
    await asyncio.sleep(2)
    a.skew += 8.5  # stopped while the request was on its way; counted from its start there would be a second left
    assert not a.leads
    await asyncio.sleep(1)
    assert not a.leads
    assert a.changes == [True, False]
    a.connection.delay = lambda: 0.01
    assert await a.elector.wait_for_leadership() == 2


@scene
async def test_wall_clocks_that_jump_or_differ_do_not_matter(scene: Scene) -> None:
    a, b = await scene.leader("a"), scene.replica("b", wall=4_000_000_000.0)
    for jump in (0, 86400, -86400 * 400, 3600, 0):
        a.wall += jump
        b.wall -= jump
        for _ in range(30):
            await asyncio.sleep(1)
            assert a.leads
            assert not b.leads
    assert a.changes == [True]


@scene
async def test_a_process_that_was_stopped_is_no_leader_when_it_wakes(scene: Scene) -> None:
    a = await scene.leader("a")
    await asyncio.sleep(5)
    a.skew += 60
    assert not a.leads
    assert a.elector.remaining == 0
    assert await a.elector.wait_for_leadership() == 2
    assert a.changes == [True, False, True]


@scene
async def test_a_process_that_was_stopped_while_another_took_over_stays_a_candidate(scene: Scene) -> None:
    a = await scene.leader("a")
    await asyncio.sleep(5)
    scene.api.edit(PATH, taken_by("b"))
    a.skew += 60
    assert not a.leads
    await asyncio.sleep(DURATION - 1)
    assert not a.leads
    assert a.elector.holder == "b"
    assert await a.elector.wait_for_leadership() == 3


@scene
async def test_a_dead_leader_is_succeeded_after_the_duration(scene: Scene) -> None:
    a, b = await scene.leader("a"), scene.replica("b")
    await asyncio.sleep(30)
    await a.gone()
    died = now()
    assert not a.leads
    assert scene.spec["holderIdentity"] == "a"
    assert await b.elector.wait_for_leadership() == 2
    assert DURATION - PERIOD <= now() - died <= DURATION + 2.5 * PERIOD


@scene
async def test_release_hands_over_at_once(scene: Scene) -> None:
    a, b = await scene.leader("a"), scene.replica("b")
    await asyncio.sleep(30)
    a.stop.set()
    await a.task
    assert not a.leads
    assert (scene.spec["holderIdentity"], scene.spec["leaseDurationSeconds"]) == ("", 1)
    released = now()
    assert await b.elector.wait_for_leadership() == 2
    assert now() - released <= 1.25 * PERIOD + 0.1
    assert a.changes == [True, False]


@scene
async def test_stopping_a_candidate_writes_nothing(scene: Scene) -> None:
    await scene.leader("a")
    b = scene.replica("b")
    await asyncio.sleep(30)
    b.stop.set()
    await b.task
    assert set(b.connection.sent) == {"GET"}
    assert scene.spec["holderIdentity"] == "a"


@pytest.mark.parametrize("mode", ["hang", "refused", 500])
def test_a_release_that_fails_does_not_hold_up_the_end(mode: str | int) -> None:
    @scene
    async def run(scene: Scene) -> None:
        a = await scene.leader("a")
        a.connection.mode = mode
        a.stop.set()
        stopped = now()
        await a.task
        assert now() - stopped <= LeaseTiming().request_timeout + 0.1
        assert not a.leads

    run()


@scene
async def test_a_release_after_a_lost_answer_reads_first(scene: Scene) -> None:
    a = await scene.leader("a")
    a.connection.once.append("lost answer")
    await asyncio.sleep(PERIOD + 1)
    a.stop.set()
    await a.task
    assert scene.spec["holderIdentity"] == ""


@scene
async def test_a_release_never_takes_the_lease_from_another(scene: Scene) -> None:
    a = await scene.leader("a")
    scene.api.edit(PATH, taken_by("b"))
    a.stop.set()
    await a.task
    assert scene.spec["holderIdentity"] == "b"


@scene
async def test_a_conflict_with_another_holder_ends_leadership_at_once(scene: Scene) -> None:
    a = await scene.leader("a")
    scene.api.edit(PATH, taken_by("b"))
    await asyncio.sleep(PERIOD + 0.1)
    assert not a.leads
    assert a.changes == [True, False]
    assert a.elector.holder == "b"


@scene
async def test_a_conflict_with_a_new_label_is_none(scene: Scene) -> None:
    a = await scene.leader("a")
    for turn in range(20):
        scene.api.edit(PATH, lambda lease, turn=turn: lease["metadata"].update(labels={"turn": str(turn)}))  # type: ignore[misc]
        await asyncio.sleep(1)
        assert a.leads
    assert scene.api.objects[PATH]["metadata"]["labels"] == {"turn": "19"}
    assert a.elector.epoch == 1


@scene
async def test_labels_that_change_are_no_sign_of_life(scene: Scene) -> None:
    a, b = await scene.leader("a"), scene.replica("b")
    await asyncio.sleep(10)
    await a.gone()
    for turn in range(20):
        scene.api.edit(PATH, lambda lease, turn=turn: lease["metadata"].update(labels={"turn": str(turn)}))  # type: ignore[misc]
        await asyncio.sleep(1)
    assert b.leads


@pytest.mark.parametrize("mode", ["lost answer", "late", "twice"])
def test_a_renewal_whose_answer_was_lost_costs_nothing(mode: str) -> None:
    @scene
    async def run(scene: Scene) -> None:
        a = await scene.leader("a")
        a.connection.once.extend([mode, "up"] * 5)
        for _ in range(600):
            await asyncio.sleep(0.1)
            assert a.leads
        assert a.elector.epoch == 1
        assert not a.connection.once

    run()


@pytest.mark.parametrize("mode", ["lost answer", "late", "twice"])
def test_an_acquisition_whose_answer_was_lost_begins_a_later_term(mode: str) -> None:
    @scene
    async def run(scene: Scene) -> None:
        a = scene.replica("a")
        a.connection.once.append(mode)
        epoch = await a.elector.wait_for_leadership()
        assert epoch == scene.spec["leaseTransitions"] == 2
        assert now() < 1000 + DEADLINE

    run()


@scene
async def test_a_restart_under_the_same_identity_waits_and_begins_a_new_term(scene: Scene) -> None:
    a = await scene.leader("a")
    await asyncio.sleep(10)
    again = scene.replica("a")
    await asyncio.sleep(60)
    assert a.leads
    assert not again.leads
    await a.gone()
    died = now()
    assert await again.elector.wait_for_leadership() == 2
    assert now() - died >= DURATION - PERIOD - 0.1


@scene
async def test_the_holders_own_longer_duration_counts(scene: Scene) -> None:
    a = await scene.leader("a")
    await a.gone()
    scene.api.edit(PATH, lambda lease: lease["spec"].update(leaseDurationSeconds=100))
    b = scene.replica("b")
    began = now()
    await b.elector.wait_for_leadership()
    assert 100 <= now() - began <= 100 + 1.25 * PERIOD + 0.1


@scene
async def test_a_deleted_lease_ends_the_term_and_no_epoch_comes_back(scene: Scene) -> None:
    a, b = await scene.leader("a"), scene.replica("b")
    await asyncio.sleep(10)
    b.connection.delay = lambda: 0.001  # first to look
    del scene.api.objects[PATH]
    for _ in range(100):
        await asyncio.sleep(0.1)
        assert not (a.leads and b.leads)
        assert not b.leads
    assert a.changes == [True, False, True]
    assert a.elector.epoch == scene.spec["leaseTransitions"] == 2


def test_trouble_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    @scene
    async def run(scene: Scene) -> None:
        a = scene.replica("a")
        a.connection.mode = 403
        await asyncio.sleep(120)
        assert isinstance(a.elector.failure, ApiError)
        a.connection.mode = "up"
        await a.elector.wait_for_leadership()

    with caplog.at_level(logging.INFO, "tightship.kube.election"):
        run()
    told = [each.message for each in caplog.records if "403" in each.message]
    assert len(told) == 1
    assert PATH in told[0]


@scene
async def test_what_on_change_raises_ends_the_run_without_leadership(scene: Scene) -> None:
    def broken(leads: bool) -> None:
        if leads:
            raise ZeroDivisionError

    elector = Elector(
        cast("Connection", MemoryConnection(scene.api)),
        namespace="ns",
        name="leader",
        identity="a",
        clock=now,
        on_change=broken,
    )
    with pytest.raises(ZeroDivisionError):
        await elector.run(asyncio.Event())
    assert not elector.is_leader


@scene
async def test_an_elector_runs_once_at_a_time_and_again_after_its_end(scene: Scene) -> None:
    a = await scene.leader("a")
    with pytest.raises(RuntimeError, match="runs already"):
        await a.elector.run(asyncio.Event())
    assert a.leads
    a.stop.set()
    await a.task
    a.stop.clear()
    a.task = asyncio.create_task(a.elector.run(a.stop))
    assert await a.elector.wait_for_leadership() == 2
