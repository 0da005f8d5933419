"""A running controller's search: when it runs, what the next pass makes of it, and that it ends at once."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest
from search_fleets import gpu_fleet

from tightship.cluster import Snapshot
from tightship.kube.host import HOST, Host
from tightship.nodes.background import PATIENCE, REST, BackgroundSearch, SearchState
from tightship.planning.evaluate import Evaluation, Evaluator, Facts
from tightship.planning.plan import STRATEGIES, Placement, Plan, Strategy
from tightship.planning.plan.strategies import after
from tightship.search import search
from tightship_testkit.planning import NOW, plain, snapshot_of

from .toy import ToyJudge, parse

SECONDS = 30.0
"""600 iterations where time is virtual."""


class Judge(ToyJudge):
    """Packs tightly: every node may go."""

    def __init__(self, placement: Placement = "possible") -> None:
        super().__init__(parse({}))
        self.placement = placement

    def strategy(self, facts: Facts) -> Strategy:
        return STRATEGIES["fewest-nodes"]


class Passes:
    """Passes of a controller beside its search, on a clock that only the test moves."""

    def __init__(self, snapshot: Snapshot, judge: Judge | None = None, seconds: float = SECONDS) -> None:
        self.snapshot = snapshot
        self.judge = judge or Judge()
        self.seconds = seconds
        self.now = 1000.0
        self.allowed = True
        self.wake = asyncio.Event()
        self.search: BackgroundSearch = BackgroundSearch(
            self.wake, may=lambda: self.allowed, clock=lambda: self.now, logger=logging.getLogger("test")
        )
        self._evaluate = Evaluator()

    def judged(self) -> Evaluation:
        """One pass."""
        found = self._evaluate(self.snapshot, self.judge, NOW, self.search.horizon(self.seconds), improve=search)
        self.search.judged(found, self.judge, self.seconds)
        return found

    @property
    def state(self) -> SearchState:
        state = self.search.state(self.seconds)
        assert state is not None
        return state

    async def ended(self) -> None:
        """Wait for the running search."""
        while self.state.running:  # noqa: ASYNC110 - the state has no event
            await asyncio.sleep(0.01)

    async def searched(self) -> Plan:
        """The plan of a pass after all searches that it and the next ones begin."""
        while True:
            plan = self.judged().plan
            if not self.state.running:
                return plan
            await self.ended()


@pytest.fixture(scope="module")
def fleet() -> Snapshot:
    return snapshot_of(gpu_fleet(1))


@pytest.fixture
def _virtual() -> Iterator[None]:
    token = HOST.set(Host(stopwatch=None))
    yield
    HOST.reset(token)


def removed(plan: Plan) -> tuple[int, int]:
    return len(plan.removals), -plan.evictions


virtual = pytest.mark.usefixtures("_virtual")


@virtual
@pytest.mark.takes(4)
async def test_the_pass_after_a_search_plans_what_it_found(fleet: Snapshot) -> None:
    passes = Passes(fleet)
    greedy = passes.judged().plan
    assert greedy.searched is None
    assert passes.search.claims_wait()
    await passes.ended()
    assert passes.wake.is_set()
    assert not passes.search.claims_wait()
    found = passes.judged().plan
    assert removed(found) > removed(greedy)
    assert found.searched is not None
    assert found.searched.greedy_removed == len(greedy.removals)
    assert found.searched.removed == len(found.removals)
    assert found.searched.iterations > 0
    assert (passes.state.searches, passes.state.improved) == (1, 1)


@virtual
async def test_claims_wait_for_the_first_search_also_where_other_settings_end_it(fleet: Snapshot) -> None:
    passes = Passes(fleet)
    passes.judged()
    passes.judge = Judge()
    passes.judged()
    await passes.ended()
    assert passes.state.searches == 0
    assert passes.search.claims_wait()
    passes.now += 3 * SECONDS + PATIENCE
    assert not passes.search.claims_wait(), "though none has ended"
    passes.now -= 1
    await passes.searched()
    assert not passes.search.claims_wait()


@virtual
async def test_equal_searches_find_equal_plans(fleet: Snapshot) -> None:
    one, other = [await Passes(fleet).searched() for _ in range(2)]
    assert plain(one) == plain(other)


@virtual
async def test_an_unchanged_cluster_is_not_searched_again_once_that_brought_nothing(fleet: Snapshot) -> None:
    passes = Passes(fleet)
    last = await passes.searched()
    searches = passes.state.searches
    for _ in range(5):
        passes.now += 1000 * SECONDS
        assert passes.judged().plan is last
        assert not passes.state.running
    assert passes.state.searches == searches


@virtual
async def test_after_a_search_that_brought_nothing_it_rests_unless_the_plan_gets_worse(fleet: Snapshot) -> None:
    passes = Passes(fleet)
    last = await passes.searched()
    passes.snapshot = after(fleet, list(last.removals[:12]))
    passes.now += SECONDS
    held = passes.judged().plan
    assert held.searched is not None
    assert (held.searched.broken, passes.state.running) == (0, False)
    passes.now += REST * SECONDS
    passes.snapshot = after(fleet, list(last.removals[:13]))
    passes.judged()
    assert passes.state.running
    await passes.ended()
    left = [each for each in last.removals[13:] if each.moves]
    target = left[0].moves[0].target
    nodes = {name: view for name, view in passes.snapshot.nodes.items() if name != target}
    passes.snapshot = msgspec.structs.replace(passes.snapshot, nodes=nodes)
    worse = passes.judged().plan
    assert worse.searched is not None
    assert worse.searched.broken > 0
    passes.now += SECONDS
    passes.judged()
    assert passes.state.running
    await passes.ended()


@virtual
async def test_nothing_is_searched_unless_wanted_and_possible(fleet: Snapshot) -> None:
    for passes in (Passes(fleet, seconds=0.0), Passes(fleet, Judge("likely"))):
        plan = passes.judged().plan
        state = passes.search.state(passes.seconds)
        assert plan.searched is None
        assert state is None or not state.running
        assert not passes.search.claims_wait()


@virtual
async def test_who_does_not_lead_searches_nothing_and_forgets_what_was_known(fleet: Snapshot) -> None:
    passes = Passes(fleet)
    found = await passes.searched()
    passes.allowed = False
    passes.snapshot = msgspec.structs.replace(fleet, missing={"Lease": "gone"})
    passes.judged()
    passes.snapshot = msgspec.structs.replace(fleet)
    assert removed(passes.judged().plan) < removed(found)
    assert not passes.state.running
    assert passes.state.last_ended == ""
    passes.allowed = True
    assert len((await passes.searched()).removals) == len(found.removals)


async def test_a_search_ends_at_once_when_it_may_no_longer_run(fleet: Snapshot) -> None:
    for end in ("lost", "stopped", "switched off"):
        passes = Passes(fleet, seconds=300.0)
        passes.judged()
        await asyncio.sleep(0.3)
        assert passes.state.running
        if end == "lost":
            passes.allowed = False
        elif end == "stopped":
            passes.search.stop()
        else:
            passes.search.horizon(0.0)
        async with asyncio.timeout(100):  # far less than the search would take
            await passes.ended()
        assert (passes.state.searches, passes.wake.is_set()) == (0, False)


async def test_a_search_waits_while_a_pass_decides_and_can_end_then(fleet: Snapshot) -> None:
    passes = Passes(fleet, seconds=300.0)
    passes.judged()
    await asyncio.sleep(0.3)
    with passes.search.paused():
        await asyncio.sleep(0.5)
        spent = time.process_time()
        await asyncio.sleep(0.3)
        assert time.process_time() - spent < 0.2
        passes.search.stop()
        await passes.ended()
    assert threading.active_count() < 50


async def test_the_event_loop_turns_while_a_search_runs(fleet: Snapshot) -> None:
    passes = Passes(fleet, seconds=2.0)
    passes.judged()
    latest = 0.0
    while passes.state.running:
        before = time.monotonic()
        await asyncio.sleep(0.01)
        latest = max(latest, time.monotonic() - before - 0.01)
    assert latest < 8, "a Lease is lost after 10 s"


async def test_a_search_that_fails_leaves_the_plan_as_it_was(
    fleet: Snapshot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Plan:
        raise ValueError("a defect")

    passes = Passes(fleet)
    monkeypatch.setattr(passes.search, "_work", broken)
    plan = await passes.searched()
    assert "search failed" in caplog.text
    assert (passes.state.searches, passes.state.improved) == (1, 0)
    assert passes.judged().plan is plan
