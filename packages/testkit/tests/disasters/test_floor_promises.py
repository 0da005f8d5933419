"""No promise about floors is vacuous: for each there is a liar, a fake hpa-scaler that breaks it, and it is found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tightship.kube.host import HOST
from tightship_simulator.virtual.process import Process
from tightship_testkit.disasters.floors.market import HPA, SHOP
from tightship_testkit.disasters.floors.spec import PREFIX, STATE, App, Autoscaler, Floors, Source, text_of
from tightship_testkit.disasters.known import finding
from tightship_testkit.disasters.observer import Observer
from tightship_testkit.disasters.promises.base import Violation
from tightship_testkit.disasters.registry import PROMISES
from tightship_testkit.disasters.run import run
from tightship_testkit.disasters.scenario import Controller, Scenario
from tightship_testkit.disasters.steps.metrics import server_restarts
from tightship_testkit.disasters.world import Json, World, writing_as

NAME = "hpa-scaler-0"
RATE = text_of("rate", "shop", 20)
NEED = 10
NOTES = {"prometheus-query": RATE, "requests-per-replica": "10"}


class Liar:
    """A process that looks like a replica: it asks Prometheus, and writes to HPAs what it likes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ended = self.crashed = False
        self.error: BaseException | None = None
        self.name = NAME
        self.process = Process(world.simulation.loop, NAME, HOST.get())
        world.simulation.replicas.append(self)  # type: ignore[arg-type]
        world.teams["hpa-scaler"].replicas.append(self)  # type: ignore[arg-type]

    def stop(self) -> None:
        self.ended = True

    async def stopped(self) -> None:
        self.ended = True

    async def _send(self, method: str, url: str, **options: Any) -> int:
        async def send() -> int:
            async with (
                self.world.simulation.session() as session,
                session.request(method, url, **options) as answer,
            ):
                await answer.read()
                return answer.status

        return await self.process.run(send())

    async def query(self, text: str = RATE) -> None:
        """Ask Prometheus."""
        assert self.world.market is not None
        url = f"{self.world.market.servers['default'].url}/api/v1/query"
        await self._send("POST", url, data={"query": text, "time": f"{self.world.simulation.wall():.3f}"})

    async def cycles(self, count: int, text: str = RATE) -> None:
        """Ask so many times, as cycles do."""
        for _ in range(count):
            await self.query(text)
            await asyncio.sleep(10)

    async def read(self) -> None:
        """List the HPAs."""
        url = f"{self.world.simulation.url}/apis/autoscaling/v2/horizontalpodautoscalers"
        assert await self._send("GET", url) == 200

    async def write(
        self, name: str = "h0", *, least: int, most: int = 0, state: Json | None = None, **meta: Any
    ) -> None:
        """Read an HPA, and set its bounds."""
        await self.read()
        hpa = self.world.store.get(HPA, name, SHOP)
        own = {"originalMin": 3, "originalMax": 40} if state is None else state
        notes = {"annotations": {STATE: json.dumps(own) if own else None}}
        spec = {"minReplicas": least, "maxReplicas": most or hpa["spec"]["maxReplicas"]}
        await self.patch(name, {"metadata": {**notes, **meta}, "spec": spec})

    async def patch(self, name: str, body: Json) -> None:
        url = f"{self.world.simulation.url}/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers/{name}"
        headers = {"Content-Type": "application/merge-patch+json"}
        assert await self._send("PATCH", url, data=json.dumps(body), headers=headers) == 200


Script = Callable[[World], Awaitable[None]]
SCRIPTS: dict[str, list[tuple[Script, Scenario]]] = {}


def _scenario(*, notes: dict[str, str] = NOTES, count: int = 1, app: App | None = None, **changes: Any) -> Scenario:
    scaler = changes.pop("autoscaler", {})
    settings = changes.pop("settings", {})
    apps = [app or App(name="shop", requests=10.0 * NEED, targets=2)]
    hpas = [Autoscaler(name=f"h{number}", app="shop", at=NEED, notes=notes, **scaler) for number in range(count)]
    made: dict[str, Any] = {
        "seed": 1,
        "story": 200.0,
        "quiet": 5.0,
        "floors": Floors(apps=apps, sources=[Source(name="default")], autoscalers=hpas),
        "controllers": [
            Controller(
                program="hpa-scaler",
                skews=[],
                settings=settings,
                variables={"SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS": "10"},
            )
        ],
        **changes,
    }
    return Scenario(**made)


def lies(promise: str, **changes: Any) -> Callable[[Script], Script]:
    """Register a script that breaks *promise*."""

    def register(script: Script) -> Script:
        SCRIPTS.setdefault(promise, []).append((script, _scenario(**changes)))
        return script

    return register


def _edit(world: World, name: str = "h0", **spec: int) -> None:
    with writing_as("person"):
        world.store.modify(HPA, name, SHOP, lambda each: each["spec"].update(spec))


def _annotate(world: World, key: str, text: str) -> None:
    with writing_as("person"):
        world.store.modify(HPA, "h0", SHOP, lambda each: each["metadata"]["annotations"].update({key: text}))


# Lowering.


@lies("no-floor-lowered-on-bad-data")
async def _believes_a_server_that_lost_its_data(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(30)
    await liar.cycles(2)
    await server_restarts(world, source="default", wipe=True, seconds=3.0)
    await asyncio.sleep(12)
    await liar.query()
    await liar.write(least=4)


@lies("no-floor-lowered-on-bad-data")
async def _goes_below_the_lower_bound(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(30)
    await liar.query()
    await liar.write(least=2)


@lies("no-floor-lowered-on-bad-data", app=App(name="shop", requests=100.0, points=[(40.0, 1.0), (41.0, 0.3)]))
async def _lowers_before_the_window_is_over(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(25)
    await liar.cycles(6)
    await liar.query()
    await liar.write(least=3)


@lies("lowered-by-good-answers")
async def _lowers_without_asking(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(30)
    await liar.write(least=5)


@lies("lowered-by-good-answers")
async def _lowers_by_an_empty_answer(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(30)
    assert world.market is not None
    world.market.servers["default"].ways.append("empty")
    await liar.query()
    await liar.write(least=5)


@lies("lowered-by-good-answers", app=App(name="shop", requests=40.0))
async def _lowers_soon_after_a_failure(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(30)
    assert world.market is not None
    world.market.servers["default"].ways.append("http-503")
    await liar.query()
    world.market.servers["default"].ways.clear()
    await asyncio.sleep(10)
    await liar.query()
    await liar.write(least=4)


@lies("lowered-by-good-answers", app=App(name="shop", requests=100.0, points=[(30.0, 1.0), (31.0, 0.4)]))
async def _forgets_an_answer_of_its_window(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(30)
    await liar.cycles(5)
    await liar.query()
    await liar.write(least=4)


@lies("lowered-in-steps", notes={**NOTES, "scale-down-max-ratio": "0.2"}, app=App(name="shop", requests=30.0))
async def _takes_half_at_once(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(30)
    await liar.query()
    await liar.write(least=5)


@lies("no-fleet-lowered-at-once", count=3, settings={"correlatedDropMinimumCount": 3})
async def _lowers_them_all(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(30)
    await liar.query()
    for name in ("h0", "h1"):
        await liar.write(name, least=3)


# Raising.


@lies("no-floor-raised-without-bound")
async def _raises_a_thousandfold(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(30)
    await liar.query()
    await liar.write(least=10_000, most=10_001)


# Bounds.


@lies("own-bounds-are-kept")
async def _forgets_what_was_there(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(30)
    await liar.write(least=12, state={"originalMin": 5, "originalMax": 40})


@lies("own-bounds-are-kept")
async def _gives_an_older_bound_back(world: World) -> None:
    liar = Liar(world)
    await liar.write(least=12, state={"originalMin": NEED})
    _edit(world, minReplicas=7)
    await liar.write(least=12, state={"originalMin": 7})
    _annotate(world, PREFIX, "false")
    await liar.write(least=NEED, state={})


@lies("own-bounds-are-kept")
async def _gives_nothing_back(world: World) -> None:
    liar = Liar(world)
    await liar.write(least=12, state={"originalMin": NEED})
    await asyncio.sleep(30)
    _annotate(world, PREFIX, "false")


@lies("nothing-overwritten")
async def _writes_over_an_edit(world: World) -> None:
    liar = Liar(world)
    await liar.read()
    _edit(world, minReplicas=20)
    await liar.patch("h0", {"spec": {"minReplicas": 12}})


@lies("nothing-overwritten")
async def _writes_a_label(world: World) -> None:
    liar = Liar(world)
    await liar.write(least=12, state={"originalMin": NEED}, labels={"mine": "now"})


@lies("only-ours-is-written", autoscaler={"enabled": False})
async def _writes_to_one_that_never_asked(world: World) -> None:
    await Liar(world).write(least=12, state={"originalMin": NEED})


@lies("only-ours-is-written", notes={**NOTES, "dry-run": "true"})
async def _writes_to_one_that_wants_a_dry_run(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(60)
    await liar.write(least=12, state={"originalMin": NEED})


# Quarrels, and following.


@lies("quarrels-end")
async def _insists(world: World) -> None:
    liar = Liar(world)
    for _ in range(4):
        await liar.write(least=12, state={"originalMin": NEED})
        await asyncio.sleep(5)
        _edit(world, minReplicas=NEED)
        await asyncio.sleep(5)


@lies("quarrels-end")
async def _gives_in_and_says_nothing(world: World) -> None:
    liar = Liar(world)
    await asyncio.sleep(1)
    for _ in range(3):
        await liar.write(least=12, state={"originalMin": NEED})
        await asyncio.sleep(5)
        _edit(world, minReplicas=NEED)
        await asyncio.sleep(5)


@lies("floors-follow", app=App(name="shop", requests=100.0, points=[(10.0, 1.0), (20.0, 2.0)]), quiet=60.0)
async def _sees_no_rise(world: World) -> None:
    Liar(world)
    await asyncio.sleep(0)


@lies("floors-follow", app=App(name="shop", requests=100.0, points=[(10.0, 1.0), (20.0, 0.3)]), quiet=60.0)
async def _never_comes_down(world: World) -> None:
    Liar(world)
    await asyncio.sleep(0)


def _played(script: Script, scenario: Scenario) -> list[Violation]:
    tasks: list[asyncio.Task[None]] = []

    def ready(world: World, _: Observer) -> None:
        async def play() -> None:
            await script(world)

        tasks.append(asyncio.create_task(play()))

    result = run(scenario, ready)
    [task] = tasks
    assert task.done(), "the liar was not done in time"
    task.result()
    return result.violations


LIARS = [(promise, *each) for promise, found in SCRIPTS.items() for each in found]
NAMES = [f"{promise}{script.__name__}" for promise, script, _ in LIARS]


@pytest.mark.parametrize(("promise", "script", "scenario"), LIARS, ids=NAMES)
def test_a_liar_is_found_and_no_known_finding_takes_it(promise: str, script: Script, scenario: Scenario) -> None:
    found = [each for each in _played(script, scenario) if each.promise == promise]
    assert [each for each in found if finding(each) is None], found


def test_each_promise_about_floors_has_a_liar() -> None:
    assert set(SCRIPTS) == {name for name, each in PROMISES.items() if each.about == "floors"}


def test_where_nobody_lies_nothing_is_broken() -> None:
    async def nothing(_: World) -> None:
        await asyncio.sleep(0)

    found = [each for each in _played(nothing, _scenario()) if PROMISES[each.promise].about == "floors"]
    assert found == []
