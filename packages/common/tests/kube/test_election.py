"""Election of a leader on virtual time, over links that fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from links import Client, term

from tightship.kube.connection import Connection
from tightship.kube.leases import STOP_ANNOTATION, Elector, LeaseTiming
from tightship.objects.api_errors import ApiError
from tightship_testkit.faults import Answer, Call, Fault
from tightship_testkit.simulated import Simulated, simulated, until

pytestmark = pytest.mark.virtual_time

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/leader"
DEADLINE = LeaseTiming().renew_deadline
DURATION = LeaseTiming().duration
PERIOD = LeaseTiming().retry_period


def now() -> float:
    return asyncio.get_running_loop().time()


class Replica:
    """An elector that runs, with its own connection and its own clocks."""

    def __init__(self, client: Client, identity: str = "a", wall: float = 1_700_000_000.0) -> None:
        self.client = client
        self.link = client.link
        self.skew = 0.0
        self.wall = wall
        self.changes: list[bool] = []
        self.stops: list[str | None] = []
        self.stop = asyncio.Event()
        self.elector = Elector(
            client.connection,
            namespace="ns",
            name="leader",
            identity=identity,
            clock=lambda: now() + self.skew,
            wall_clock=lambda: self.wall,
            on_change=self.changes.append,
            on_stop=lambda: self.stops.append(self.elector.stopped),
        )
        self.task = client.process.run(self.elector.run(self.stop))

    @property
    def leads(self) -> bool:
        return self.elector.is_leader

    async def gone(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Scene:
    """A cluster with the Lease that replicas want."""

    def __init__(self, api: Simulated) -> None:
        self.api = api
        self.began = now()
        self._clients = 0

    def client(self, identity: str) -> Client:
        self._clients += 1
        return Client(self.api, f"{identity}-{self._clients}")

    def replica(self, identity: str = "a", **more: Any) -> Replica:
        return Replica(self.client(identity), identity, **more)

    async def leader(self, identity: str = "a") -> Replica:
        made = self.replica(identity)
        await term(made.elector)
        return made

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the Lease as somebody else would."""
        self.api.edit("Lease", "leader", change, "ns")

    @property
    def lease(self) -> dict[str, Any]:
        return self.api.store.get("Lease", "leader", "ns")

    @property
    def spec(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.lease["spec"])


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with simulated(tmp_path, {"kind": "Namespace", "metadata": {"name": "ns"}}) as api:
        yield Scene(api)


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
    assert a.link.sent.count("GET") == 1


async def test_what_others_wrote_into_the_lease_stays(scene: Scene) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "o"}
    meta = {"name": "leader", "namespace": "ns", "labels": {"team": "x"}, "annotations": {"note": "hands off"}}
    spec = {"strategy": "OldestEmulationVersion", "leaseTransitions": 41, "holderIdentity": None}
    scene.api.add({"kind": "Lease", "metadata": {**meta, "ownerReferences": [owner]}, "spec": spec})
    a = await scene.leader()
    await asyncio.sleep(10)
    lease = scene.lease
    assert lease["metadata"]["labels"] == {"team": "x"}
    assert lease["metadata"]["annotations"]["note"] == "hands off"
    assert lease["metadata"]["ownerReferences"] == [owner]
    assert lease["spec"]["strategy"] == "OldestEmulationVersion"
    assert a.elector.epoch == 42


@pytest.mark.parametrize("mode", ["refused", "hang", "lost answer", 500, 429, 403, 401])
async def test_an_outage_shorter_than_the_deadline_keeps_leadership(scene: Scene, mode: str | int) -> None:
    a, b = await scene.leader("a"), scene.replica("b")
    await asyncio.sleep(20.5)
    for each in (a, b):
        each.link.mode = mode
    for _ in range(55):
        await asyncio.sleep(0.1)
        assert a.leads
    for each in (a, b):
        each.link.mode = "up"
    for _ in range(300):
        await asyncio.sleep(0.1)
        assert a.leads
        assert not b.leads
    assert a.changes == [True]
    assert a.elector.epoch == 1
    assert a.elector.failure is None


@pytest.mark.parametrize("mode", ["refused", "hang", "lost answer", 500, 403])
async def test_a_longer_outage_ends_leadership_in_time_though_the_process_goes_on(
    scene: Scene, mode: str | int
) -> None:
    a = await scene.leader()
    await asyncio.sleep(20.5)
    began, a.link.mode = now(), mode
    await until(lambda: not a.elector.is_leader)
    assert DEADLINE - PERIOD - 0.1 < now() - began <= DEADLINE
    assert a.changes == [True, False]
    await asyncio.sleep(60)
    assert not a.leads
    assert not a.task.done()
    a.link.mode = "up"
    assert await term(a.elector) > 1
    assert a.changes == [True, False, True]


async def test_the_term_counts_from_before_the_request_was_sent(scene: Scene) -> None:
    a = scene.replica()
    a.link.delay = lambda: 3.0
    await term(a.elector)
    assert a.elector.remaining == pytest.approx(DEADLINE - 3.0, abs=0.1)


async def test_a_write_answered_after_the_deadline_prolongs_nothing(scene: Scene) -> None:
    a = await scene.leader()
    await asyncio.sleep(0.5)
    a.link.delay = lambda: 1.0
    await asyncio.sleep(2)
    a.skew += 8.5  # stopped while the request was on its way; counted from its start there would be a second left
    assert not a.leads
    await asyncio.sleep(1)
    assert not a.leads
    assert a.changes == [True, False]
    a.link.delay = lambda: 0.01
    assert await term(a.elector) == 2


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


async def test_a_process_that_was_stopped_is_no_leader_when_it_wakes(scene: Scene) -> None:
    a = await scene.leader("a")
    await asyncio.sleep(5)
    a.skew += 60
    assert not a.leads
    assert a.elector.remaining == 0
    assert await term(a.elector) == 2
    assert a.changes == [True, False, True]


async def test_a_process_that_was_stopped_while_another_took_over_stays_a_candidate(scene: Scene) -> None:
    a = await scene.leader("a")
    await asyncio.sleep(5)
    scene.edit(taken_by("b"))
    a.skew += 60
    assert not a.leads
    await asyncio.sleep(DURATION - 1)
    assert not a.leads
    assert a.elector.holder == "b"
    assert await term(a.elector) == 3


async def test_a_dead_leader_is_succeeded_after_the_duration(scene: Scene) -> None:
    a, b = await scene.leader("a"), scene.replica("b")
    await asyncio.sleep(30)
    await a.gone()
    died = now()
    assert not a.leads
    assert scene.spec["holderIdentity"] == "a"
    assert await term(b.elector) == 2
    assert DURATION - PERIOD <= now() - died <= DURATION + 2.5 * PERIOD


async def test_release_hands_over_at_once(scene: Scene) -> None:
    a, b = await scene.leader("a"), scene.replica("b")
    await asyncio.sleep(30)
    a.stop.set()
    await a.task
    assert not a.leads
    assert (scene.spec["holderIdentity"], scene.spec["leaseDurationSeconds"]) == ("", 1)
    released = now()
    assert await term(b.elector) == 2
    assert now() - released <= 1.25 * PERIOD + 0.1
    assert a.changes == [True, False]


async def test_stopping_a_candidate_writes_nothing(scene: Scene) -> None:
    await scene.leader("a")
    b = scene.replica("b")
    await asyncio.sleep(30)
    b.stop.set()
    await b.task
    assert set(b.link.sent) == {"GET"}
    assert scene.spec["holderIdentity"] == "a"


@pytest.mark.parametrize("mode", ["hang", "refused", 500])
async def test_a_release_that_fails_does_not_hold_up_the_end(scene: Scene, mode: str | int) -> None:
    a = await scene.leader("a")
    a.link.mode = mode
    a.stop.set()
    stopped = now()
    await a.task
    assert now() - stopped <= LeaseTiming().request_timeout + 0.1
    assert not a.leads


async def test_a_release_after_a_lost_answer_reads_first(scene: Scene) -> None:
    a = await scene.leader("a")
    a.link.once.append("lost answer")
    await asyncio.sleep(PERIOD + 1)
    a.stop.set()
    await a.task
    assert scene.spec["holderIdentity"] == ""


async def test_a_release_never_takes_the_lease_from_another(scene: Scene) -> None:
    a = await scene.leader("a")
    scene.edit(taken_by("b"))
    a.stop.set()
    await a.task
    assert scene.spec["holderIdentity"] == "b"


async def test_a_conflict_with_another_holder_ends_leadership_at_once(scene: Scene) -> None:
    a = await scene.leader("a")
    scene.edit(taken_by("b"))
    await asyncio.sleep(PERIOD + 0.1)
    assert not a.leads
    assert a.changes == [True, False]
    assert a.elector.holder == "b"


async def test_a_conflict_with_a_new_label_is_none(scene: Scene) -> None:
    a = await scene.leader("a")
    for turn in range(20):
        scene.edit(lambda lease, turn=turn: lease["metadata"].update(labels={"turn": str(turn)}))  # type: ignore[misc]
        await asyncio.sleep(1)
        assert a.leads
    assert scene.lease["metadata"]["labels"] == {"turn": "19"}
    assert a.elector.epoch == 1


async def test_labels_that_change_are_no_sign_of_life(scene: Scene) -> None:
    a, b = await scene.leader("a"), scene.replica("b")
    await asyncio.sleep(10)
    await a.gone()
    for turn in range(20):
        scene.edit(lambda lease, turn=turn: lease["metadata"].update(labels={"turn": str(turn)}))  # type: ignore[misc]
        await asyncio.sleep(1)
    assert b.leads


@pytest.mark.parametrize("mode", ["lost answer", "late", "twice"])
async def test_a_renewal_whose_answer_was_lost_costs_nothing(scene: Scene, mode: str) -> None:
    a = await scene.leader("a")
    a.link.once.extend([mode, "up"] * 5)
    for _ in range(600):
        await asyncio.sleep(0.1)
        assert a.leads
    assert a.elector.epoch == 1
    assert not a.link.once


@pytest.mark.parametrize("mode", ["lost answer", "late", "twice"])
async def test_an_acquisition_whose_answer_was_lost_begins_a_later_term(scene: Scene, mode: str) -> None:
    a = scene.replica("a")
    a.link.once.append(mode)
    epoch = await term(a.elector)
    assert epoch == scene.spec["leaseTransitions"] == 2
    assert now() < scene.began + DEADLINE


async def test_a_restart_under_the_same_identity_waits_and_begins_a_new_term(scene: Scene) -> None:
    a = await scene.leader("a")
    await asyncio.sleep(10)
    again = scene.replica("a")
    await asyncio.sleep(60)
    assert a.leads
    assert not again.leads
    await a.gone()
    died = now()
    assert await term(again.elector) == 2
    assert now() - died >= DURATION - PERIOD - 0.1


async def test_the_holders_own_longer_duration_counts(scene: Scene) -> None:
    a = await scene.leader("a")
    await a.gone()
    scene.edit(lambda lease: lease["spec"].update(leaseDurationSeconds=100))
    b = scene.replica("b")
    began = now()
    await term(b.elector)
    assert 100 <= now() - began <= 100 + 1.25 * PERIOD + 0.1


async def test_a_deleted_lease_ends_the_term_and_no_epoch_comes_back(scene: Scene) -> None:
    a, b = await scene.leader("a"), scene.replica("b")
    await asyncio.sleep(10)
    b.link.delay = lambda: 0.001  # first to look
    scene.api.remove("Lease", "leader", "ns")
    for _ in range(100):
        await asyncio.sleep(0.1)
        assert not (a.leads and b.leads)
        assert not b.leads
    assert a.changes == [True, False, True]
    assert a.elector.epoch == scene.spec["leaseTransitions"] == 2


async def test_trouble_is_told_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tightship.kube.leases"):
        a = scene.replica("a")
        a.link.mode = 403
        await asyncio.sleep(120)
        assert isinstance(a.elector.failure, ApiError)
        a.link.mode = "up"
        await term(a.elector)
    reported = [each.message for each in caplog.records if "403" in each.message]
    assert len(reported) == 1
    assert PATH in reported[0]


async def test_what_on_change_raises_ends_the_run_without_leadership(scene: Scene) -> None:
    def broken(leads: bool) -> None:
        if leads:
            raise ZeroDivisionError

    client = scene.client("a")
    elector = Elector(
        client.connection,
        namespace="ns",
        name="leader",
        identity="a",
        clock=now,
        on_change=broken,
    )
    with pytest.raises(ZeroDivisionError):
        await client.does(elector.run(asyncio.Event()))
    assert not elector.is_leader


async def test_an_elector_runs_once_at_a_time_and_again_after_its_end(scene: Scene) -> None:
    a = await scene.leader("a")
    with pytest.raises(RuntimeError, match="runs already"):
        await a.client.does(a.elector.run(asyncio.Event()))
    assert a.leads
    a.stop.set()
    await a.task
    a.stop.clear()
    a.task = a.client.process.run(a.elector.run(a.stop))
    assert await term(a.elector) == 2


def annotated(word: str | None) -> Callable[[dict[str, Any]], None]:
    """Return what ``kubectl annotate`` makes of the Lease; ``None`` is ``tightship.dev/stop-``."""

    def change(lease: dict[str, Any]) -> None:
        notes = lease["metadata"].setdefault("annotations", {})
        notes.pop(STOP_ANNOTATION, None)
        if word is not None:
            notes[STOP_ANNOTATION] = word

    return change


WORDS = [
    ("true", True), ("false", False), ("", True), ("False", True), ("TRUE", True), ("yes", True), ("no", True),
    ("0", True), (" false", True), ("false\n", True), ("{}", True), ("null", True), ("\u202efalse", True),
]  # fmt: skip


@pytest.mark.parametrize(("word", "stops"), WORDS)
async def test_every_word_but_false_stops(scene: Scene, word: str, stops: bool) -> None:
    leader = await scene.leader()
    scene.edit(annotated(word))
    await asyncio.sleep(PERIOD + 1)
    assert leader.elector.stopped == (word if stops else None)
    assert leader.leads
    scene.edit(annotated(None))
    await asyncio.sleep(PERIOD + 1)
    assert leader.elector.stopped is None
    assert leader.stops == ([word, None] if stops else [])
    await leader.gone()


async def test_a_leader_and_who_stands_by_are_stopped_within_a_second(scene: Scene) -> None:
    leader, other = await scene.leader(), scene.replica("b")
    await asyncio.sleep(10)
    for word in ("true", None, "perhaps", "true", None) * 4:
        await asyncio.sleep(0.37)
        scene.edit(annotated(word))
        await asyncio.sleep(1)
        assert [each.elector.stopped for each in (leader, other)] == [word, word]
    assert leader.leads
    assert len(leader.changes) == 1
    for each in (leader, other):
        await each.gone()


@pytest.mark.parametrize("fault", ["frozen", 403, 404, 500])
async def test_without_a_watch_the_next_renewal_tells(scene: Scene, fault: str | int) -> None:
    """A Role of an older chart grants none, and a watch may hang without a sign."""
    before = scene.api.proxy.plan
    assert before is not None

    async def plan(call: Call) -> Fault | None:
        return Answer(fault) if call.is_watch and isinstance(fault, int) else await before(call)

    scene.api.proxy.plan = plan
    scene.api.freeze("Lease")
    leader = await scene.leader()
    scene.edit(annotated("true"))
    await asyncio.sleep(PERIOD + 0.5)
    assert leader.elector.stopped == "true"
    assert leader.leads
    await leader.gone()


async def test_who_leads_after_a_stop_is_stopped_from_the_first_moment(scene: Scene) -> None:
    leader = await scene.leader()
    scene.edit(annotated("true"))
    await leader.gone()
    seen: list[str | None] = []
    other = scene.replica("b")
    other.elector._on_change = lambda _: seen.append(other.elector.stopped)
    await term(other.elector)
    assert seen == ["true"]
    await other.gone()


async def test_who_deletes_the_lease_does_not_start_the_controller(scene: Scene) -> None:
    leader = await scene.leader()
    scene.edit(annotated("true"))
    await asyncio.sleep(1)
    scene.api.store.delete("Lease", "leader", "ns")
    await asyncio.sleep(DURATION + 2 * PERIOD)
    assert leader.leads
    assert leader.elector.stopped == "true"
    assert scene.lease["metadata"]["annotations"][STOP_ANNOTATION] == "true"
    await leader.gone()


@pytest.mark.parametrize("mode", ["refused", "hang", "lost answer", 500])
async def test_who_cannot_hear_of_the_stop_leads_no_more_after_the_deadline(scene: Scene, mode: str | int) -> None:
    leader = await scene.leader()
    leader.link.mode = mode
    scene.edit(annotated("true"))
    await asyncio.sleep(DEADLINE + 0.1)
    assert leader.elector.stopped is None
    assert not leader.leads
    await leader.gone()
