"""The process over time: who leads, what an outage does, what is reported, and how it ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from hpa_scaler.judge.decision_log import replay
from hpa_scaler.process.loop import CycleTooLongError
from tightship_simulator.life.prometheus import silent
from tightship_testkit.faults import Answer, Hang
from tightship_testkit.replica import NAMESPACE, Replica

from .world import ASKS, World

pytestmark = pytest.mark.virtual_time


async def age(replica: Replica) -> float:
    """How long ago its last good cycle was."""
    code, text = await replica.get("/metrics")
    assert code == 200
    return float(next(line for line in text.splitlines() if line.startswith("tightship_loop_age_seconds")).split()[1])


def asked(world: World) -> int:
    return len(world.prometheus.seen)


async def test_while_the_api_server_is_away_nothing_is_decided_and_the_age_grows(world: World) -> None:
    process = await world.started(LEADER_ELECT="false")
    assert await age(process) < 100
    world.api.away = True
    world.prometheus.set("rate", 95)
    questions = asked(world)
    await world.sleep(1200)
    assert 1100 < await age(process) < 1300
    # It is alive: a restart would mend nothing.
    assert (await process.get("/healthz"))[0] == 200
    assert world.api.bounds() == (8, 20)
    assert asked(world) == questions
    world.api.away = False
    await world.until(lambda: world.api.bounds() == (10, 20))
    assert process.code is None


async def test_a_list_that_never_ends_ends_the_cycle(world: World) -> None:
    process = await world.started(CYCLE_DEADLINE="20")
    world.api.on_list = Hang()
    words = str(CycleTooLongError("did not answer within"))
    assert words not in process.log
    await process.says(words, 600)
    world.api.on_list = None
    await world.cycles()
    assert process.code is None


async def test_a_silent_prometheus_holds_and_a_stop_does_not_wait_for_it(world: World) -> None:
    world.api.stock(**ASKS)
    world.prometheus.otherwise = silent
    process = world.start()
    await world.until(lambda: asked(world))
    async with asyncio.timeout(8):  # a query has ten seconds
        await world.ended(process)
    assert world.api.bounds() == (3, 20)
    assert world.api.holder() == ""


async def test_a_stop_finishes_the_write_under_way_and_begins_no_other(world: World) -> None:
    world.stock(*(f"web-{number}" for number in range(40)))
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> None:
        begun.set()
        await go_on.wait()

    world.api.before = slow
    process = world.start()
    await begun.wait()
    await world.until(lambda: world.api.patches >= 5)
    under_way = world.api.patches
    ending = asyncio.create_task(world.ended(process))
    await world.sleep(2)
    assert world.api.holder().startswith(process.name)
    go_on.set()
    await ending
    assert len(world.api.written()) <= under_way + 8
    written = [name for name, code in world.api.written() if code == 200]
    assert written
    assert all(world.api.bounds(name) == (8, 20) for name in written)
    assert sum(world.api.bounds(f"web-{number}") == (8, 20) for number in range(40)) == len(written)
    # The Lease is given up after the last write.
    verbs = [each.verb for each in world.api.sent if each.verb == "PATCH" or "leases" in each.path]
    assert verbs[-1] == "PUT"


async def test_what_many_lowerings_wait_for_is_not_written_in_the_second_cycle(world: World) -> None:
    """2,000 of 2,000 HPAs were written, and none was moved."""
    for number in range(40):
        world.api.stock(f"web-{number}", lowering_window="1h", **ASKS)
    world.prometheus.set("rate", 72)
    world.start()
    await world.until(lambda: all(world.api.bounds(f"web-{number}") == (8, 20) for number in range(40)))
    world.prometheus.set("rate", 65)
    await world.cycles(5)
    assert len(world.api.written()) == 40


async def test_what_a_lowering_waits_for_is_written_down_at_the_end(world: World) -> None:
    world.api.stock(minimum=8, replicas=8, lowering_window="1h", **ASKS)
    world.prometheus.set("rate", 72)
    process = world.start()
    await world.until(lambda: world.api.bounds() == (8, 20) and asked(world))
    world.prometheus.set("rate", 31)
    await world.cycles(4)
    assert world.api.bounds() == (8, 20)
    assert world.api.written() == []
    await world.ended(process)
    assert [code for _, code in world.api.written()] == [200]
    assert [floor for _, floor in world.api.state()["history"]["floors"]] == [8, 4]
    assert world.api.bounds() == (8, 20)


async def test_a_standby_asks_and_writes_nothing_and_takes_over_with_what_is_on_the_hpas(world: World) -> None:
    first = await world.started()
    second = world.start()
    await second.ready()
    identity = world.api.holder()
    assert identity.startswith(first.name)
    await world.shows(second, "/", f"Stands by: {identity} leads.")
    _, metrics = await second.get("/metrics")
    assert 'hpa="web"' not in metrics
    assert (await second.get("/readyz"))[0] == 200
    status = json.loads((await second.get("/status"))[1])
    assert (status["plan"], status["leader"]) == (None, identity)
    await world.ended(first)
    world.prometheus.set("rate", 41)
    await world.until(lambda: world.api.bounds() == (5, 20))
    assert world.api.state()["originalMin"] == 3
    assert world.api.holder().startswith(second.name)


async def test_a_leader_that_lost_its_lease_in_a_cycle_writes_no_more(world: World) -> None:
    world.stock(*(f"web-{number}" for number in range(40)))

    async def taken(*_: object) -> None:
        world.api.before = None
        world.api.taken()
        await until_noticed.wait()

    until_noticed = asyncio.Event()
    world.api.before = taken
    world.configure(maximumWritesPerSecond=20)
    process = world.start()
    await world.until(lambda: world.api.before is None)
    await world.shows(process, "/metrics", "tightship_leader 0.0")
    until_noticed.set()
    await world.sleep(20)
    written = len(world.api.written())
    await world.sleep(600)
    assert len(world.api.written()) == written < 40


async def test_an_api_server_that_goes_away_between_writes_is_not_asked_all_the_rest(world: World) -> None:
    world.stock(*(f"web-{number}" for number in range(60)))

    async def breaks(*_: object) -> None:
        world.api.drops_answers = True

    world.api.before = breaks
    world.start()
    await world.until(lambda: world.api.patches >= 5)
    await world.sleep(60)
    assert world.api.patches < 20
    assert all(each.verb != "PATCH" or each.code == 200 for each in world.api.sent)


async def test_a_dry_run_judges_and_shows_and_changes_nothing(world: World) -> None:
    world.api.stock(**ASKS)
    world.api.stock("off", minimum=9)
    world.api.edit("off", notes={"tightship.dev/hpa-scaler": None})
    world.prometheus.set("rate", 72)
    version = world.on.store.version
    process = world.start(DRY_RUN="true")
    await world.cycles(5)
    status = await process.status()
    assert status["dryRun"] is True
    [web] = status["plan"]["hpas"]
    assert (web["action"], web["minimum"]) == ("raise", {"now": 3, "after": 8})
    assert 'would_be_min_replicas{hpa="web",namespace="shop"} 8' in (await process.get("/metrics"))[1]
    await world.ended(process)
    assert any("horizontalpodautoscalers" in each.call.path for each in world.on.proxy.log)
    assert world.on.proxy.writes == []
    assert world.on.store.version == version


async def test_a_dry_run_beside_a_controller_does_not_take_its_writes_for_a_quarrel(world: World) -> None:
    world.stock()
    dry = world.start(DRY_RUN="true")
    await world.cycles(3)
    world.start()
    for rate, floor in ((72, 8), (95, 10), (41, 5), (72, 8), (31, 4)):
        world.prometheus.set("rate", rate)
        await world.until(lambda floor=floor: world.api.bounds() == (floor, 20))
        await world.cycles(4)
    status = json.loads((await dry.get("/status"))[1])
    assert status["plan"]["hpas"][0]["reasons"] == ["FollowsQuery"]


async def test_a_bad_configuration_leaves_the_last_good_one_in_force(world: World) -> None:
    world.stock()
    world.configure(defaults={"maximumReplicas": "6"})
    process = world.start()
    await world.until(lambda: world.api.bounds() == (6, 20))
    world.configure(defaults={"maximumReplicas": "many"}, nonsense=1)
    await process.says("The configuration was refused; the last good one applies", 600)
    await world.until(lambda: ("ConfigInvalid", world.on.team) in world.api.reported())
    await world.cycles(4)
    assert world.api.bounds() == (6, 20)
    assert "the last good one applies" in (await process.get("/"))[1]
    world.configure()
    await world.until(lambda: world.api.bounds() == (8, 20))


async def test_a_deleted_configuration_is_told_with_what_is_in_force(world: World) -> None:
    world.stock()
    world.configure(defaults={"maximumReplicas": 6})
    process = world.start()
    await world.until(lambda: world.api.bounds() == (6, 20))
    world.on.store.delete("ConfigMap", world.on.team, NAMESPACE)
    reported = f"ConfigMap {NAMESPACE}/{world.on.team} was deleted; environment and defaults apply until it is back"
    await process.says(reported, 600)
    await world.cycles()
    assert (await process.status())["problems"] == [reported]
    assert f">{reported}<" in (await process.get("/"))[1]


async def test_events_tell_changes_and_trouble_once_and_nothing_of_a_calm_start(world: World) -> None:
    world.api.stock("calm", minimum=8, replicas=8, **ASKS)
    world.api.stock("moves", minimum=3, prometheus_query="rate-2", minimum_replicas="1")
    world.api.stock("typo", requests_per_replica="2,5")
    world.prometheus.set("rate", 75)
    world.prometheus.set("rate-2", 4)
    world.start()
    await world.until(lambda: ("FollowsQuery", "moves") in world.api.reported())
    await world.until(lambda: ("InvalidAnnotation", "typo") in world.api.reported())
    await world.cycles(5)
    assert sorted(world.api.reported()) == [("FollowsQuery", "moves"), ("InvalidAnnotation", "typo")]
    assert {each["reportingComponent"] for each in world.api.events()} == {"tightship.dev/hpa-scaler"}
    kinds = {each["reason"]: (each["type"], each["action"]) for each in world.api.events()}
    assert kinds == {"FollowsQuery": ("Normal", "Raise"), "InvalidAnnotation": ("Warning", "Hold")}
    world.prometheus.set("rate", "NaN")
    await world.until(lambda: ("NotANumber", "calm") in world.api.reported())


async def test_a_decision_log_is_replayed_without_a_difference(world: World, tmp_path: Path) -> None:
    world.stock()
    world.api.once(lambda: world.api.edit(minReplicas=5))
    log = tmp_path / "decisions.jsonl"
    process = world.start(DECISION_LOG=str(log))
    await world.until(lambda: world.api.bounds() == (8, 20))
    world.prometheus.set("rate", 41)
    await world.until(lambda: world.api.bounds() == (5, 20))
    await world.ended(process)
    found = replay(log.read_bytes().splitlines())
    assert found.differences == ()
    assert found.unended == 0
    assert found.decisions >= 3


async def test_a_decision_log_begins_anew_before_it_is_too_large(world: World, tmp_path: Path) -> None:
    world.stock()
    log = tmp_path / "decisions.jsonl"
    world.start(DECISION_LOG=str(log), DECISION_LOG_MEGABYTES="0.003")
    older = tmp_path / "decisions.jsonl.1"
    await world.until(older.exists)
    await world.cycles(6)
    assert older.stat().st_size < 10_000
    assert replay(older.read_bytes().splitlines()).unended == 0


async def test_a_decision_log_that_cant_be_written_holds_nothing_up(world: World, tmp_path: Path) -> None:
    process = await world.started(DECISION_LOG=str(tmp_path / "nowhere" / "decisions.jsonl"))
    await world.cycles(3)
    assert process.log.count("decision log not written") == 1


async def test_an_hpa_that_cant_be_read_is_told_and_the_others_go_on(world: World) -> None:
    world.stock()
    world.api.stock("broken")
    # The API server would not take it: another version of it may know more than we do.
    world.api.hpa("broken")["spec"]["maxReplicas"] = "many"
    process = world.start()
    await world.until(lambda: world.api.bounds() == (8, 20))
    await world.cycles()
    status = json.loads((await process.get("/status"))[1])
    assert "shop/broken" in status["plan"]["warnings"][0]
    assert 'tightship_hpas_by_reason{reason="Unreadable"} 1.0' in (await process.get("/metrics"))[1]


async def test_what_is_opted_out_leaves_the_metrics(world: World) -> None:
    process = await world.started()
    await world.cycles()
    assert 'hpa="web"' in (await process.get("/metrics"))[1]
    world.api.edit(notes={"tightship.dev/hpa-scaler": "false"})
    await world.until(lambda: world.api.bounds() == (3, 20))
    await world.cycles()
    assert 'hpa="web"' not in (await process.get("/metrics"))[1]


async def test_when_nobody_fights_any_more_the_floor_comes_back(world: World) -> None:
    world.stock()
    world.start()
    while not world.api.notes("Contested"):
        await world.until(lambda: world.api.bounds() == (8, 20))
        world.api.edit(minReplicas=3)
        await world.cycles(1)
    began, writes = world.on.simulation.wall(), len(world.api.written())
    await world.sleep(600)
    assert world.api.bounds() == (3, 20)
    # One more is a note of what is waited for, which a restart would forget.
    assert len(world.api.written()) - writes <= 1
    # For a quarter of an hour by default.
    await world.until(lambda: world.api.bounds() == (8, 20), 900)
    assert world.on.simulation.wall() - began >= 600
    await world.cycles(30)
    assert world.api.bounds() == (8, 20)
    assert len(world.api.notes("Contested")) == 1


async def test_a_replica_that_may_not_read_hpas_is_not_ready_and_says_why(world: World) -> None:
    world.api.on_list = Answer(403, "Forbidden", "cannot list resource")
    process = world.start()

    await world.shows(process, "/readyz", "cannot list resource; see docs/permissions.md")
    assert world.api.sent == []
    world.api.on_list = None
    world.stock()
    await world.until(lambda: world.api.bounds() == (8, 20))
    assert (await process.get("/readyz"))[0] == 200
