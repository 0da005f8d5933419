"""What reaches the API server, and what becomes of it when that says no, nothing, or something else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from hpa_scaler.annotations.spec import ENABLE, PREFIX
from tightship_testkit.client import Json

from .world import ASKS, STATE, Refused, World

pytestmark = pytest.mark.virtual_time


async def test_a_floor_is_raised_and_the_original_kept_in_the_same_patch(world: World) -> None:
    await world.started()
    state = world.api.state()
    assert (state["originalMin"], state["originalMax"], state["applied"]) == (3, 20, 8)
    [patch] = [each for each in world.api.sent if each.verb == "PATCH"]
    ops: Any = patch.body
    assert [(op["op"], op["path"]) for op in ops] == [
        ("test", "/metadata/uid"),
        ("test", "/spec/minReplicas"),
        ("test", "/spec/maxReplicas"),
        ("replace", "/spec/minReplicas"),
        ("add", "/metadata/annotations/tightship.dev~1hpa-scaler-state"),
    ]


async def test_a_floor_that_is_right_is_not_written_again(world: World) -> None:
    await world.started()
    await world.cycles(5)
    assert world.api.written() == [("web", 200)]


async def test_a_change_in_between_is_read_judged_and_written_once_more(world: World) -> None:
    world.stock()
    world.api.once(lambda: world.api.edit(minReplicas=5))
    world.start()
    await world.until(lambda: world.api.bounds() == (8, 20))
    assert [code for _, code in world.api.written()] == [422, 200]
    # What somebody set meanwhile is the user's own.
    assert world.api.state()["originalMin"] == 5


async def test_a_status_update_in_between_makes_no_difference(world: World) -> None:
    world.stock()

    async def controller(_: str, thing: Json) -> None:
        world.api.touch()

    world.api.before = controller
    world.start()
    await world.until(lambda: world.api.bounds() == (8, 20))
    assert [code for _, code in world.api.written()] == [200]


async def test_a_refusal_has_its_reason_and_is_tried_no_more_than_once_a_cycle(world: World) -> None:
    world.stock()
    world.api.refuses(422, 'admission policy "floors" denied the request: at most 5', reason="Invalid")
    world.start()
    await world.until(lambda: world.api.notes("WriteRefused"))
    lists, patches = world.lists, world.api.patches
    await world.cycles(5)
    assert world.api.patches - patches <= 2 * (world.lists - lists + 1)
    assert "at most 5" in world.api.notes("WriteRefused")[0]
    assert len(world.api.notes("WriteRefused")) == 1
    assert world.api.bounds() == (3, 20)
    world.api.before = None
    await world.until(lambda: world.api.bounds() == (8, 20))
    assert world.api.state()["originalMin"] == 3


@pytest.mark.parametrize("code", [400, 403])
async def test_what_is_plainly_refused_is_not_tried_twice_in_a_cycle(world: World, code: int) -> None:
    world.stock()
    world.api.refuses(code, 'admission webhook "floors" denied the request')
    world.start()
    await world.until(lambda: world.api.notes("WriteRefused"))
    assert world.api.patches <= world.lists + 1


async def test_an_hpa_that_is_gone_is_forgotten(world: World) -> None:
    world.stock()
    world.api.once(world.api.remove)
    world.start()
    await world.until(lambda: world.api.patches)
    await world.cycles()
    assert world.api.written() == [("web", 404)]


async def test_the_original_survives_a_write_whose_answer_was_lost(world: World) -> None:
    """Taken for not written, our own bound would count as the user's from then on."""
    world.stock()
    world.api.drops_answers = True
    world.start()
    await world.until(lambda: world.api.bounds() == (8, 20))
    world.api.drops_answers = False
    await world.cycles()
    world.prometheus.set("rate", 95)
    await world.until(lambda: world.api.bounds() == (10, 20))
    assert world.api.state()["originalMin"] == 3
    assert "ChangedByOthers" not in {reason for reason, _ in world.api.reported()}
    world.api.edit(notes={f"{PREFIX}/{ENABLE}": "false"})
    await world.until(lambda: world.api.bounds() == (3, 20))


async def test_a_write_that_never_arrived_is_made_again(world: World) -> None:
    world.stock()

    async def broken(*_: object) -> None:
        world.api.before = None
        raise Refused(503, "no healthy upstream")

    world.api.before = broken
    world.start()
    await world.until(lambda: world.api.bounds() == (8, 20))
    assert world.api.state()["originalMin"] == 3


async def test_somebodys_change_after_a_lost_answer_is_still_somebodys(world: World) -> None:
    world.stock()
    world.api.drops_answers = True

    async def somebody(*_: object) -> None:
        world.api.after = None
        world.api.edit(minReplicas=6)
        world.api.drops_answers = False
        await asyncio.sleep(0)

    world.api.after = somebody
    world.start()
    await world.until(lambda: world.api.bounds() == (8, 20))
    await world.until(lambda: world.api.notes("ChangedByOthers"))
    assert world.api.state()["originalMin"] == 6


@pytest.mark.parametrize(
    "notes",
    [{f"{PREFIX}/{ENABLE}": "false"}, {f"{PREFIX}/{ENABLE}": None}, {f"{PREFIX}/{ENABLE}": None, STATE: None}],
    ids=["false", "removed", "our annotation removed too"],
)
async def test_on_opt_out_the_users_bounds_are_back_and_our_annotation_is_gone(
    world: World, notes: dict[str, str | None]
) -> None:
    world.api.stock(maximum=6, **ASKS)
    world.prometheus.set("rate", 72)
    world.start()
    await world.until(lambda: world.api.bounds() == (8, 9))
    world.api.edit(notes=notes)
    await world.until(lambda: world.api.bounds() == (3, 6))
    assert STATE not in world.api.hpa()["metadata"]["annotations"]
    await world.until(lambda: ("Restored", "web") in world.api.reported())
    writes = len(world.api.sent)
    await world.cycles()
    assert world.api.written().count(("web", 200)) == 2
    assert len([each for each in world.api.sent[writes:] if each.verb == "PATCH"]) == 0


async def test_on_opt_out_what_somebody_set_meanwhile_stays(world: World) -> None:
    await world.started()
    world.api.edit(minReplicas=5, notes={f"{PREFIX}/{ENABLE}": "false"})
    await world.until(lambda: STATE not in world.api.hpa()["metadata"]["annotations"])
    assert world.api.bounds() == (5, 20)


async def test_on_opt_out_what_the_user_set_in_a_pause_stays(world: World) -> None:
    await world.started()
    world.api.edit(notes={f"{PREFIX}/{ENABLE}-paused": "true"})
    world.api.edit(minReplicas=4)
    await world.cycles(5)
    assert world.api.bounds() == (4, 20)
    world.api.edit(notes=dict.fromkeys(world.api.hpa()["metadata"]["annotations"].keys() - {STATE}))
    await world.until(lambda: STATE not in world.api.hpa()["metadata"].get("annotations", {}))
    writes = len(world.api.written())
    await world.cycles()
    assert world.api.bounds() == (4, 20)
    assert len(world.api.written()) == writes


async def test_a_return_whose_answer_was_lost_is_not_taken_for_somebodys_change(world: World) -> None:
    await world.started()
    world.api.drops_answers = True
    world.api.edit(notes={f"{PREFIX}/{ENABLE}": "false"})
    await world.until(lambda: world.api.bounds() == (3, 20))
    world.api.drops_answers = False
    await world.cycles()
    assert world.api.patches == 2
    assert STATE not in world.api.hpa()["metadata"]["annotations"]


async def test_an_hpa_in_dry_run_is_only_shown_to_the_api_server(world: World) -> None:
    world.api.stock(dry_run="true", **ASKS)
    world.prometheus.set("rate", 72)
    process = world.start()
    await process.says("would be raised")
    await world.until(lambda: world.api.notes("DryRun"))
    await world.shows(process, "/metrics", 'tightship_hpa_would_be_min_replicas{hpa="web",namespace="shop"} 8')
    await world.cycles()
    assert world.api.bounds() == (3, 20)
    assert STATE not in world.api.hpa()["metadata"]["annotations"]
    assert {code for _, code in world.api.written()} == {200}
    assert len(world.api.notes("DryRun")) == 1


HPAS, CHANGES = 10, 20


async def test_no_change_is_lost_to_status_updates(world: World) -> None:
    """The HPA controller writes the status now and then; here it does right before and right after each patch."""
    names = [f"web-{number}" for number in range(HPAS)]
    for name in names:
        world.api.stock(name, maximum=100, **ASKS)

    async def status(name: str, _: Json) -> None:
        world.api.touch(name)

    world.api.before = world.api.after = status
    process = world.start()
    for change in range(1, CHANGES + 1):
        world.prometheus.set("rate", 10 * (3 + change) - 1)
        await world.until(lambda change=change: all(world.api.bounds(name) == (3 + change, 100) for name in names))
    await world.cycles(1)
    _, metrics = await process.get("/metrics")
    results = {line for line in metrics.splitlines() if line.startswith("tightship_hpa_writes_total")}
    counted = {line.partition('result="')[2].partition('"')[0]: float(line.split()[1]) for line in results}
    assert {result: count for result, count in counted.items() if count} == {"written": HPAS * CHANGES}
    assert "tightship_hpa_rejudged_total 0.0" in metrics


async def test_writes_keep_to_their_pace(world: World) -> None:
    world.configure(maximumWritesPerSecond=5)
    world.stock(*(f"web-{number}" for number in range(12)))
    times: list[float] = []

    async def note(*_: object) -> None:
        times.append(asyncio.get_running_loop().time())

    world.api.before = note
    world.start()
    await world.until(lambda: len(times) == 12)
    assert times[-1] - times[0] == pytest.approx(11 / 5)


async def test_raises_go_before_lowerings(world: World) -> None:
    names = [f"web-{number}" for number in range(12)]
    for number, name in enumerate(names):
        world.api.stock(name, minimum=5, prometheus_query=f"rate-{number}", minimum_replicas="1")
        world.prometheus.set(f"rate-{number}", 8 if number % 4 == 3 else 4)
    world.start()
    await world.until(lambda: len(world.api.written()) == 12)
    raised = {name for number, name in enumerate(names) if number % 4 == 3}
    order = [name for name, _ in world.api.written()]
    assert max(order.index(name) for name in raised) < 8


async def test_a_write_of_the_leader_before_that_comes_late_is_not_somebodys_change(world: World) -> None:
    """It may be on its way for as long as a request may take, and arrive after the next leader has listed."""
    world.stock(rate=30)
    world.start()
    await world.cycles(3)
    late = {
        "originalMin": 3,
        "originalMax": 20,
        "applied": 8,
        "appliedMax": 20,
        "history": {"evaluated": int(world.on.simulation.wall())},
    }
    world.api.edit(minReplicas=8, notes={STATE: json.dumps(late)})
    await world.until(lambda: world.api.bounds() == (3, 20))
    await world.cycles(3)
    assert world.api.state()["originalMin"] == 3
    assert "ChangedByOthers" not in {reason for reason, _ in world.api.reported()}


@pytest.mark.parametrize("opted", [True, False])
async def test_a_maximum_that_nobody_recorded_is_the_users_where_a_policy_says_so(world: World, opted: bool) -> None:
    """As the charts' admission policy does: without the state annotation, maxReplicas may not be lowered."""
    world.stock(rate=235)
    world.start()
    await world.until(lambda: world.api.bounds() == (24, 25))
    refused = 0

    async def policy(_: str, hpa: Json) -> None:
        nonlocal refused
        if STATE not in hpa["metadata"]["annotations"] and not refused:
            refused += 1
            raise Refused(
                422, "ValidatingAdmissionPolicy 'a' denied request: no further than the user's own", "Invalid"
            )

    world.api.before = policy
    if opted:
        world.api.edit(notes={STATE: None})
        world.prometheus.set("rate", 295)
        await world.until(lambda: world.api.bounds() == (30, 31))
        assert world.api.state()["originalMax"] == 25
    else:
        world.api.edit(notes={STATE: None, f"{PREFIX}/{ENABLE}": None})
        await world.until(lambda: world.api.bounds() == (3, 25))
    assert refused == 1
