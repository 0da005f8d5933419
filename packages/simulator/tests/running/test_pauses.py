"""node-refiners that are killed in a waiting period of an hour: nothing begins early, and drains are ended well."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

import pytest

from tightship_testkit.audit_readings import NodeWrite, claims_made, evictions_by, node_writes
from tightship_testkit.drains import all_ready
from tightship_testkit.embedded import EmbeddedCluster, embedded_cluster
from tightship_testkit.refining import ALONE, HOUR, entered, given_back, quick, refuse, relent, two_to_spare
from tightship_testkit.replica import REFINER, Replica

pytestmark = pytest.mark.virtual_time

Pause = Callable[[EmbeddedCluster], Awaitable[float]]
"""Waits until a pause has begun, and returns since when it counts, in seconds since 1970."""

EVERY = 20.0
"""Seconds between two passes."""
LENGTH = 3600.0
"""Seconds of each pause."""
LATE = EVERY * 1.2 + 1
"""Seconds after which what may be done is done: a pass comes up to a fifth of its interval later, then it writes."""
STAMP = 0.001
"""Seconds to which times are written on a node."""


def start(on: EmbeddedCluster) -> Replica:
    return on.start(**ALONE, **{REFINER.interval: str(EVERY)})


async def after_an_addition(on: EmbeddedCluster) -> float:
    """The cluster's nodes were made a moment ago."""
    made = [each["metadata"]["creationTimestamp"] for each in await on.api.list("Node")]
    return datetime.fromisoformat(max(made)).timestamp()


def gone(on: EmbeddedCluster, node: str) -> float:
    """Return when a node was deleted, in seconds since 1970."""
    [at] = [each.at for each in on.recorder.moments if (each.node, each.phase) == (node, "gone")]
    return on.began + at


async def after_a_success(on: EmbeddedCluster) -> float:
    await on.phase("n4", "Drained")
    with on.removing():
        await on.gone("n4")
    await on.free()
    return gone(on, "n4")


async def after_a_failure(on: EmbeddedCluster) -> float:
    await on.phase("n4", "Claimed")
    await refuse(on, "n4")
    await on.configured(quick(settleTime="5s", clusterCoolDownAfterDrain=HOUR))
    await given_back(on, "n4")
    await on.free()
    await relent(on)
    return entered(node_writes(on.events), "Backoff").asked


PAUSES: list[tuple[Pause, str, int | str]] = [
    (after_an_addition, "clusterCoolDownAfterNodeAdded", "5s"),
    (after_a_success, "clusterCoolDownAfterDrain", "5s"),
    # What no budget lets go has to be there before its node has settled.
    (after_a_failure, "clusterCoolDownAfterDrain", HOUR),
]
"""Each with the setting of its length, and for how long a node settles until it has begun."""


async def begins(on: EmbeddedCluster, before: int) -> NodeWrite:
    """Wait until one more drain has begun than *before*."""

    def claimed() -> bool:
        return [each.phase for each in on.recorder.moments].count("Claimed") > before

    await on.seen(claimed, "a drain begins", 2 * LENGTH)
    return claims_made(on.events)[before]


@pytest.mark.parametrize(("pause", "key", "settles"), PAUSES, ids=[pause.__name__ for pause, *_ in PAUSES])
async def test_killed_in_a_pause_nothing_begins_early(
    tmp_path: Path, pause: Pause, key: str, settles: int | str
) -> None:
    settings = quick(settleTime=settles, **{key: HOUR})
    async with embedded_cluster(tmp_path, two_to_spare(), settings, REFINER) as on:
        first = start(on)
        await on.passes(first, 1)
        since = await pause(on)
        await on.passes(first, 2)
        first.kill()
        before = len(claims_made(on.events))
        second = start(on)
        await on.passes(second, 4)
        held = (await second.status())["held"]
        assert {each["reason"] for each in held.values()} == {"CoolDown"}
        assert len(claims_made(on.events)) == before
        begun = await begins(on, before)
        assert since + LENGTH - STAMP <= begun.asked <= since + LENGTH + LATE
        with on.removing():
            await on.gone(begun.name)


async def test_killed_while_a_node_settles_its_pods_are_left_for_as_long(tmp_path: Path) -> None:
    async with embedded_cluster(
        tmp_path, two_to_spare(), quick(settleTime=HOUR, clusterCoolDownAfterDrain=HOUR), REFINER
    ) as on:
        first = start(on)
        await on.phase("n4", "Claimed")
        await on.passes(first, 1)
        first.kill()
        second = start(on)
        await on.passes(second, 4)
        assert on.recorder.phases("n4") == ["Claimed"]
        [claim] = claims_made(on.events)
        with on.removing():
            await on.gone("n4", 2 * LENGTH)
        await on.free()
        await all_ready(on.api)
        settled = entered(node_writes(on.events), "Evicting").asked - claim.asked
        assert LENGTH - STAMP <= settled <= LENGTH + LATE
        assert set(evictions_by(on.events, REFINER.user).values()) == {1}
        assert claims_made(on.events) == [claim]


@pytest.mark.parametrize(
    ("phase", "unseen"),
    [("Evicting", False), ("Drained", False), ("Drained", True)],
    ids=["evicting", "drained", "drained, and taken unseen"],
)
async def test_killed_in_a_drain_it_is_ended_and_the_next_one_waits(tmp_path: Path, phase: str, unseen: bool) -> None:
    """The pause after a drain holds too where the autoscaler took the node while nobody was there to see it."""
    cluster = two_to_spare("4s" if phase == "Evicting" else "")
    async with embedded_cluster(tmp_path, cluster, quick(clusterCoolDownAfterDrain=HOUR), REFINER) as on:
        first = start(on)
        await on.phase("n4", phase)
        await on.seen(lambda: bool(on.yard.evicted()), "a pod is evicted")
        first.kill()
        if unseen:
            with on.removing():
                await on.gone("n4")
        second = start(on)
        await on.passes(second, 2)
        with on.removing():
            await on.gone("n4")
            await on.free()
            await all_ready(on.api)
            ended = on.yard.simulation.wall()
            await on.passes(second, 4)
        assert set(evictions_by(on.events, REFINER.user).values()) == {1}
        assert len(claims_made(on.events)) == 1
        assert on.recorder.phases("n1") == []
        held = (await second.status())["held"]
        assert {name: each["reason"] for name, each in held.items()} == {"n1": "CoolDown"}
        begun = await begins(on, 1)
        assert begun.name == "n1"
        assert gone(on, "n4") + LENGTH - STAMP <= begun.asked <= ended + LENGTH + LATE
