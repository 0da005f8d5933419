"""``node-refiner run`` killed in every waiting period: nothing begins early afterwards, and drains are ended well."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime

import pytest
from drains import Run, Site

from tightship_e2e import ControlPlane
from tightship_testkit.audit import AuditEvent
from tightship_testkit.drains import all_ready, removing
from tightship_testkit.invariants import claims_made, evictions_by, node_writes
from tightship_testkit.refining import ALONE, CLOCKS, HOUR, entered, given_back, quick, refuse, relent, two_to_spare
from tightship_testkit.replica import REFINER

Pause = Callable[[Site], Awaitable[float]]
"""Waits until a pause has begun, and returns since when it counts, in seconds since 1970."""


async def after_an_addition(on: Site) -> float:
    """The cluster's nodes were made a moment ago."""
    made = [each["metadata"]["creationTimestamp"] for each in await on.api.list("Node")]
    return datetime.fromisoformat(max(made)).timestamp()


async def after_a_success(on: Site) -> float:
    await on.phase("n4", "Drained")
    began = time.time()
    async with removing(on.api):
        await on.gone("n4")
    await on.free()
    return began


async def after_a_failure(on: Site) -> float:
    await on.phase("n4", "Claimed")
    began = time.time()
    await refuse(on, "n4")
    await on.configured(quick(settle_time="5s", time_gap=HOUR))
    await given_back(on, "n4")
    await on.free()
    await relent(on)
    return began


PAUSES: list[tuple[Pause, str, int | str]] = [
    (after_an_addition, "time_since_last_addition", "5s"),
    (after_a_success, "time_gap", "5s"),
    # What no budget lets go has to be there before its node has settled.
    (after_a_failure, "time_gap", HOUR),
]
"""Each with the setting of its length, and for how long a node settles until it has begun."""


@pytest.mark.parametrize(("pause", "key", "settles"), PAUSES, ids=[pause.__name__ for pause, *_ in PAUSES])
def test_killed_in_a_pause_nothing_begins_early(
    on_site: Run, control_plane: ControlPlane, pause: Pause, key: str, settles: int | str
) -> None:
    """The pause is an hour first, and cut to some seconds from now on once the next one has stood it for a while."""

    async def work(on: Site) -> None:
        control_plane.audit_events()
        first = on.start(**ALONE)
        await on.passes(first, 1)
        since = await pause(on)
        await on.passes(first, 2)
        first.kill()
        before = control_plane.audit_events()
        second = on.start(**ALONE)
        await on.passes(second, 4)
        held = (await second.status())["held"]
        assert {each["reason"] for each in held.values()} == {"CoolDown"}
        meanwhile = control_plane.audit_events()
        assert claims_made(meanwhile) == []
        length = int(time.time() - since) + 4
        await on.configured(quick(settle_time="5s", **{key: f"{length}s"}))
        after: list[AuditEvent] = []

        def logged() -> bool:
            # The recorder's watch may tell of a claim before the audit log does.
            after.extend(control_plane.audit_events())
            return bool(claims_made(after))

        await on.seen(logged, "a drain begins")
        begun = claims_made(after)[0]
        ended = [each.asked for each in node_writes([*before, *meanwhile]) if each.drain.get("phase") == "Backoff"]
        assert begun.seconds >= (ended[0] if ended else since) + length - CLOCKS
        async with removing(on.api):
            await on.gone(begun.name)
        print(f"\nbegan {begun.seconds - since:.1f} s after, with a pause of {length} s")

    on_site(work, two_to_spare(), settings=quick(settle_time=settles, **{key: HOUR}), program=REFINER)


def test_killed_while_a_node_settles_its_pods_are_left_for_as_long(on_site: Run, control_plane: ControlPlane) -> None:
    async def work(on: Site) -> None:
        control_plane.audit_events()
        first = on.start(**ALONE)
        await on.phase("n4", "Claimed")
        await on.passes(first, 1)
        first.kill()
        second = on.start(**ALONE)
        await on.passes(second, 4)
        assert on.recorder.phases("n4") == ["Claimed"]
        events = control_plane.audit_events()
        [claim] = claims_made(events)
        length = int(time.time() - claim.asked) + 4
        await on.configured(quick(settle_time=f"{length}s", time_gap=HOUR))
        async with removing(on.api):
            await on.gone("n4")
        await on.free()
        await all_ready(on.api)
        events += control_plane.audit_events()
        settled = entered(node_writes(events), "Evicting").seconds - claim.asked
        evicted = evictions_by(events, REFINER.user)
        assert set(evicted.values()) == {1}
        assert settled >= length - CLOCKS
        assert claims_made(events) == [claim]
        print(f"\nevicting began {settled:.1f} s after the claim, to be settled for {length} s")

    on_site(work, two_to_spare(), settings=quick(settle_time=HOUR, time_gap=HOUR), program=REFINER)


@pytest.mark.parametrize(
    ("phase", "unseen"),
    [("Evicting", False), ("Drained", False), ("Drained", True)],
    ids=["evicting", "drained", "drained, and taken unseen"],
)
def test_killed_in_a_drain_it_is_ended_and_the_next_one_waits(
    on_site: Run, control_plane: ControlPlane, phase: str, unseen: bool
) -> None:
    """The pause after a drain holds too where the autoscaler took the node while nobody was there to see it."""

    async def work(on: Site) -> None:
        def asked_to_go() -> bool:
            return any(each.call.path.endswith("/eviction") and each.status == 201 for each in on.proxy.writes)

        control_plane.audit_events()
        first = on.start(**ALONE)
        await on.phase("n4", phase)
        await on.seen(asked_to_go, "a pod is evicted")
        first.kill()
        if unseen:
            async with removing(on.api):
                await on.gone("n4")
        second = on.start(**ALONE)
        await on.passes(second, 2)
        async with removing(on.api):
            await on.gone("n4")
            await on.free()
            await all_ready(on.api)
            await on.passes(second, 4)
        events = control_plane.audit_events()
        assert set(evictions_by(events, REFINER.user).values()) == {1}
        assert len(claims_made(events)) == 1
        assert on.recorder.phases("n1") == []
        held = (await second.status())["held"]
        assert {name: each["reason"] for name, each in held.items()} == {"n1": "CoolDown"}

    cluster = two_to_spare("4s" if phase == "Evicting" else "")
    on_site(work, cluster, settings=quick(time_gap=HOUR), program=REFINER)
