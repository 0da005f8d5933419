"""No promise about floors is vacuous: a fake hpa-scaler breaks each, and it is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tightship_testkit.disasters.floors.market import HPA, SHOP
from tightship_testkit.disasters.floors.spec import PREFIX, STATE, App, Autoscaler, Floors, Source, text_of
from tightship_testkit.disasters.known import finding
from tightship_testkit.disasters.registry import PROMISES
from tightship_testkit.disasters.rogue_replicas import RogueReplica, RogueStory, Step
from tightship_testkit.disasters.run import run
from tightship_testkit.disasters.scenario import Controller, Scenario
from tightship_testkit.disasters.steps.metrics import server_restarts
from tightship_testkit.disasters.world import Json, World, writing_as

RATE = text_of("rate", "shop", 20)
NEED = 10
NOTES = {"prometheus-query": RATE, "requests-per-replica": "10"}


class Setter(RogueReplica):
    """A rogue replica about floors: it asks Prometheus, and writes to HPAs what it likes."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "hpa-scaler-0")
        assert world.market is not None
        self.server = world.market.servers["default"]

    async def query(self) -> None:
        """Ask Prometheus."""
        at = f"{self.world.simulation.wall():.3f}"
        await self.send("POST", f"{self.server.url}/api/v1/query", data={"query": RATE, "time": at})

    async def read(self) -> None:
        """List the HPAs."""
        url = f"{self.world.simulation.url}/apis/autoscaling/v2/horizontalpodautoscalers"
        assert await self.send("GET", url) == 200

    async def patch(self, name: str, body: Json) -> None:
        url = f"{self.world.simulation.url}/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers/{name}"
        headers = {"Content-Type": "application/merge-patch+json"}
        assert await self.send("PATCH", url, data=json.dumps(body), headers=headers) == 200


# What rogue replicas do.

Act = Callable[[Setter], object]
ASK = Setter.query


def cycles(count: int) -> tuple[Step[Setter], ...]:
    """Ask so many times, as cycles do."""
    return (ASK, 10) * count


def sets(least: int, most: int = 0, *, name: str = "h0", own: Json | None = None, **meta: Any) -> Act:
    """Read an HPA, and set its bounds; *own* is what is then remembered of the user's."""

    async def write(on: Setter) -> None:
        await on.read()
        hpa = on.world.store.get(HPA, name, SHOP)
        state = {"originalMin": 3, "originalMax": 40} if own is None else own
        notes = {"annotations": {STATE: json.dumps(state) if state else None}}
        spec = {"minReplicas": least, "maxReplicas": most or hpa["spec"]["maxReplicas"]}
        await on.patch(name, {"metadata": {**notes, **meta}, "spec": spec})

    return write


def raises(least: int = 12, own: int = NEED, **meta: Any) -> Act:
    return sets(least, own={"originalMin": own}, **meta)


def edited(least: int) -> Act:
    """Have a person set the floor."""
    return _modified(lambda each: each["spec"].update(minReplicas=least))


def noted(key: str, text: str) -> Act:
    """Have a person set an annotation."""
    return _modified(lambda each: each["metadata"]["annotations"].update({key: text}))


def _modified(change: Callable[[Json], object]) -> Act:
    def modify(on: Setter) -> None:
        with writing_as("person"):
            on.world.store.modify(HPA, "h0", SHOP, change)

    return modify


def answers(*ways: str) -> Act:
    """Have Prometheus answer in these ways from now on."""

    def answer(on: Setter) -> None:
        on.server.ways[:] = ways

    return answer


def scenario(*, notes: dict[str, str] = NOTES, count: int = 1, app: App | None = None, **changes: Any) -> Scenario:
    scaler = changes.pop("autoscaler", {})
    settings = changes.pop("settings", {})
    variables = {"INTERVAL": "10"}
    apps = [app or App(name="shop", requests=10.0 * NEED, targets=2)]
    hpas = [Autoscaler(name=f"h{number}", app="shop", at=NEED, notes=notes, **scaler) for number in range(count)]
    made: dict[str, Any] = {
        "seed": 1,
        "story": 200.0,
        "quiet": 5.0,
        "floors": Floors(apps=apps, sources=[Source(name="default")], autoscalers=hpas),
        "controllers": [Controller(program="hpa-scaler", skews=[], settings=settings, variables=variables)],
        **changes,
    }
    return Scenario(**made)


def lie(promise: str, name: str, *steps: Step[Setter], **changes: Any) -> Any:
    return pytest.param(promise, RogueStory(Setter, steps, scenario(**changes)), id=f"{promise}: {name}")


def traffic(requests: float, *points: tuple[float, float]) -> App:
    return App(name="shop", requests=requests, points=list(points))


BAD, GOOD = "no-floor-lowered-on-bad-data", "lowered-by-good-answers"
QUARREL: tuple[Step[Setter], ...] = (raises(), 5, edited(NEED), 5)
WIPE: Act = lambda on: server_restarts(on.world, source="default", wipe=True, seconds=3.0)  # noqa: E731
ROGUES = [
    lie(BAD, "believes a server that lost its data", 30, *cycles(2), WIPE, 12, ASK, sets(4)),
    lie(BAD, "goes below the lower bound", 30, ASK, sets(2)),
    lie(
        BAD, "lowers before the window is over", 25, *cycles(6), ASK, sets(3), app=traffic(100, (40, 1), (41, 0.3))
    ),
    lie(GOOD, "lowers without asking", 30, sets(5)),
    lie(GOOD, "lowers by an empty answer", 30, answers("empty"), ASK, sets(5)),
    lie(
        GOOD, "lowers soon after a failure", 30, answers("http-503"), ASK, answers(), 10, ASK, sets(4),
        app=traffic(40),
    ),
    lie(
        GOOD, "forgets an answer of its window", 30, *cycles(5), ASK, sets(4), app=traffic(100, (30, 1), (31, 0.4))
    ),
    lie(
        "lowered-in-steps", "takes half at once", 30, ASK, sets(5),
        notes={**NOTES, "scale-down-max-ratio": "0.2"}, app=traffic(30),
    ),
    lie(
        "no-fleet-lowered-at-once", "lowers them all", 30, ASK, sets(3), sets(3, name="h1"),
        count=3, settings={"correlatedDropMinimumCount": 3},
    ),
    lie("no-floor-raised-without-bound", "raises a thousandfold", 30, ASK, sets(10_000, 10_001)),
    lie("own-bounds-are-kept", "forgets what was there", 30, sets(12, own={"originalMin": 5, "originalMax": 40})),
    lie(
        "own-bounds-are-kept", "gives an older bound back",
        raises(), edited(7), raises(own=7), noted(PREFIX, "false"), sets(NEED, own={}),
    ),
    lie("own-bounds-are-kept", "gives nothing back", raises(), 30, noted(PREFIX, "false")),
    lie(
        "nothing-overwritten", "writes over an edit",
        Setter.read, edited(20), lambda on: on.patch("h0", {"spec": {"minReplicas": 12}}),
    ),
    lie("nothing-overwritten", "writes a label", raises(labels={"mine": "now"})),
    lie("only-ours-is-written", "writes to one that never asked", raises(), autoscaler={"enabled": False}),
    lie("only-ours-is-written", "writes in a dry run", 60, raises(), notes={**NOTES, "dry-run": "true"}),
    lie("quarrels-end", "insists", *QUARREL * 4),
    lie("quarrels-end", "gives in and says nothing", 1, *QUARREL * 3),
    lie("floors-follow", "sees no rise", app=traffic(100, (10, 1), (20, 2)), quiet=60.0),
    lie("floors-follow", "never comes down", app=traffic(100, (10, 1), (20, 0.3)), quiet=60.0),
]  # fmt: skip


@pytest.mark.parametrize(("promise", "reported"), ROGUES)
def test_a_rogue_replica_is_found_and_no_known_finding_takes_it(promise: str, reported: RogueStory[Setter]) -> None:
    found = [each for each in reported.violations() if each.promise == promise]
    assert [each for each in found if finding(each) is None], found


def test_each_promise_about_floors_has_a_rogue_replica() -> None:
    assert {each.values[0] for each in ROGUES} == {name for name, each in PROMISES.items() if each.about == "floors"}


def test_where_nobody_lies_nothing_is_broken() -> None:
    assert [each for each in run(scenario()).violations if PROMISES[each.promise].about == "floors"] == []
