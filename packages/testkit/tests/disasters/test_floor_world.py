"""What floors follow in a disaster: traffic, what is scraped of it, how it is served, and what it means."""

from __future__ import annotations

import math
from random import Random

import pytest

from tightship_simulator.life.evaluation import evaluate
from tightship_simulator.life.promql import parse
from tightship_testkit.disasters.floors.market import HPA, autoscaler
from tightship_testkit.disasters.floors.scraping import Scraper, Target
from tightship_testkit.disasters.floors.serving import Cycles
from tightship_testkit.disasters.floors.spec import KINDS, App, Autoscaler, Floors, Source, query_of, text_of
from tightship_testkit.disasters.floors.traffic import Traffic
from tightship_testkit.disasters.floors.wishes import wish_of
from tightship_testkit.disasters.making import make
from tightship_testkit.disasters.run import run
from tightship_testkit.disasters.scenario import Controller, Scenario, Step, StoryError, decode, encode
from tightship_testkit.disasters.shrink import shrink
from tightship_testkit.disasters.world import World

LEVEL = App(name="shop", requests=100.0, targets=4)


def _scraper(app: App = LEVEL) -> Scraper:
    traffic = Traffic(app, 500.0)
    targets = [Target(app, traffic, number) for number in range(app.targets)]
    return Scraper(Source(name="default"), targets, lambda at: 1000.0 + at, Random(1))


def _value(scraper: Scraper, kind: str, at: float) -> list[float]:
    found = evaluate(scraper.samples, parse(text_of(kind, "shop", 30)), 1000.0 + at)
    return [float(each["value"][1]) for each in found["data"]["result"]]


def test_a_new_term_begins_a_cycle_however_soon_after_the_last_one() -> None:
    led: dict[str, float] = {}
    cycles = Cycles(lambda by: led.get(by, -math.inf))
    assert [cycles.asked("a", at) for at in (10.0, 12.0, 20.0)] == [10.0, 10.0, 20.0]
    led["a"] = 22.0
    assert [cycles.asked("a", at) for at in (23.0, 25.0)] == [23.0, 23.0]
    assert [cycles.asked("b", at) for at in (20.0, 23.0)] == [20.0, 20.0], "of another process"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_query_tells_the_traffic(kind: str) -> None:
    scraper = _scraper()
    scraper.until(100.0)
    assert _value(scraper, kind, 100.0) == [pytest.approx(100.0, rel=0.02)]
    query = query_of(text_of(kind, "shop", 30))
    assert query is not None
    assert (query.kind, query.app) == (kind, "shop")


def test_targets_that_are_away_are_missing_in_the_sum() -> None:
    scraper = _scraper()
    scraper.until(100.0)
    for each in scraper.targets[:3]:
        each.away = True
    scraper.until(140.0)
    assert _value(scraper, "gauge", 140.0) == [pytest.approx(25.0)]
    assert _value(scraper, "rate", 140.0) == [pytest.approx(25.0, rel=0.05)]


def test_a_second_version_takes_a_part_of_the_traffic_without_a_reset() -> None:
    scraper = _scraper()
    scraper.until(100.0)
    for each in scraper.targets:
        each.split(100.0, 0.5)
    scraper.until(160.0)
    assert _value(scraper, "by", 160.0) == [pytest.approx(50.0, rel=0.02)] * 2
    assert _value(scraper, "rate", 160.0) == [pytest.approx(100.0, rel=0.02)]


def test_a_spike_is_in_one_scrape_only() -> None:
    scraper = _scraper()
    scraper.until(100.0)
    scraper.targets[0].spike = 1000.0
    scraper.until(105.0)
    assert _value(scraper, "gauge", 105.0)[0] > 20_000
    scraper.until(111.0)
    assert _value(scraper, "gauge", 111.0) == [pytest.approx(100.0)]


def test_samples_that_lag_can_be_asked_for_later() -> None:
    scraper = _scraper(App(name="shop", requests=100.0, points=[(100.0, 1.0), (100.1, 3.0)]))
    scraper.until(100.0)
    scraper.lag = 20.0
    scraper.until(115.0)
    assert _value(scraper, "gauge", 115.0) == [pytest.approx(100.0)]
    scraper.until(130.0)
    assert _value(scraper, "gauge", 130.0) == [pytest.approx(300.0)]


def test_a_wiped_server_knows_nothing_and_its_rates_grow_with_its_age() -> None:
    scraper = _scraper()
    scraper.until(100.0)
    scraper.wipe()
    assert _value(scraper, "rate", 100.0) == []
    scraper.until(111.0)
    assert 0 < _value(scraper, "rate", 111.0)[0] < 60
    scraper.until(140.0)
    assert _value(scraper, "rate", 140.0) == [pytest.approx(100.0, rel=0.02)]


@pytest.mark.parametrize(
    ("notes", "window", "replicas"),
    [
        ({"prometheus-query": text_of("rate", "a", 30)}, 70.0, 95),
        ({"prometheus-query": text_of("rate", "a", 30), "requests-per-replica": "2.5", "delta": "-1"}, 70.0, 37),
        ({"prometheus-query": text_of("gauge", "a")}, 160.0, 95),
        ({"prometheus-query": text_of("rule", "a")}, 70.0, 95),
        ({"prometheus-query": text_of("gauge", "a"), "query-range": "30s"}, 70.0, 95),
        ({"prometheus-query": text_of("gauge-fallback", "a")}, 160.0, 95),
        ({"prometheus-query": text_of("rate-fallback", "a", 30), "query-range": "20s"}, 70.0, 95),
        ({"prometheus-query": text_of("rate", "a", 30), "lowering-window": "0"}, 0.0, 95),
        ({"prometheus-query": text_of("rate", "a", 30), "maximum-replicas": "9"}, 70.0, 9),
        ({"prometheus-query": text_of("rate", "a", 30), "max-replicas-policy": "clamp"}, 70.0, 20),
        ({"prometheus-query": text_of("rate", "a", 30), "minimum-replicas": "99"}, 70.0, 99),
    ],
)
def test_annotations_come_to_what_the_docs_say(notes: dict[str, str], window: float, replicas: int) -> None:
    wish = wish_of(autoscaler(Autoscaler(name="h", app="a", most=20, notes=notes)), 10.0)
    assert wish is not None
    assert wish.window == window
    assert wish.capped(wish.parts[0].replicas(94.2), 20) == replicas


@pytest.mark.parametrize(
    "notes",
    [
        {"requests-per-replica": "0"},
        {"requests-per-replica": "abc"},
        {"delta": "many"},
        {"no-such-annotation": "x"},
        {"paused": "perhaps"},
        {"lowering-window": "soon"},
        {"prometheus-query": "sum(("},
    ],
)
def test_annotations_that_can_t_be_read_ask_for_nothing(notes: dict[str, str]) -> None:
    good = {"prometheus-query": text_of("rate", "a")}
    assert wish_of(autoscaler(Autoscaler(name="h", app="a", notes={**good, **notes})), 10.0) is None


def test_a_story_of_floors_that_names_what_is_not_there_is_refused() -> None:
    scenario = Scenario(seed=1, floors=Floors(autoscalers=[Autoscaler(name="h", app="b")], apps=[App(name="a")]))
    with pytest.raises(StoryError, match=r"HPA 'h' is of app 'b'; allowed are a$"):
        decode(encode(scenario))
    with pytest.raises(StoryError, match="'default'"):
        decode(encode(Scenario(seed=1, floors=Floors(sources=[Source(name="other")]))))


def test_an_honest_controller_on_good_data_breaks_nothing_and_follows() -> None:
    """Traffic rises and falls, and nothing is wrong: every floor is right in the end, and was never too low."""
    points = [(0.0, 1.0), (60.0, 2.0), (150.0, 0.4)]
    hpas = [
        Autoscaler(
            name=f"h{number}",
            app="shop",
            notes={"prometheus-query": text_of(kind, "shop", 20), "requests-per-replica": "10"},
        )
        for number, kind in enumerate(KINDS)
    ]
    controller = make(6).controller("hpa-scaler")
    assert controller is not None
    scenario = Scenario(
        seed=1,
        story=200.0,
        quiet=300.0,
        floors=Floors(apps=[App(name="shop", requests=100.0, targets=2, points=points)], autoscalers=hpas),
        controllers=[Controller(program="hpa-scaler", settings={}, variables=controller.variables)],
    )
    floors: list[int] = []

    def ready(world: World, _: object) -> None:
        world.store.listeners.append(
            lambda change, _author: (
                floors.append(int(change.object["spec"].get("minReplicas", 1)))
                if change.object["kind"] == HPA
                else None
            )
        )

    assert run(scenario, ready).violations == []
    assert max(floors) == math.ceil(2.0 * 100 / 10)
    assert floors[-1] == 4


def test_a_story_of_floors_shrinks_to_what_breaks_its_promise() -> None:
    """A gauge of one application that is wrong now and then, and hardly guarded; beside it what has no part in it."""
    wrong = {"app": "shop", "factor": 0.0}
    floors = Floors(
        apps=[LEVEL, App(name="other", requests=50.0)],
        autoscalers=[
            _following("h0", "shop", "gauge", **{"scale-up-max-pods": "5", "lowering-window": "1s"}),
            _following("h1", "other", "rate"),
        ],
    )
    scenario = Scenario(
        seed=1,
        story=100.0,
        quiet=5.0,
        floors=floors,
        controllers=make(6).controllers,
        steps=[Step(at=at, kind="sample-spikes", args=wrong) for at in (26.0, 27.0, 28.0, 29.0)],
    )
    shorter = shrink(scenario, "no-floor-lowered-on-bad-data", known=True, tries=60)
    assert shorter.floors is not None
    assert [each.name for each in shorter.floors.autoscalers] == ["h0"]
    assert [each.name for each in shorter.floors.apps] == ["shop"]
    assert set(shorter.floors.autoscalers[0].notes) == {"prometheus-query", "requests-per-replica", "lowering-window"}


def _following(name: str, app: str, kind: str, **notes: str) -> Autoscaler:
    query = {"prometheus-query": text_of(kind, app), "requests-per-replica": "10"}
    return Autoscaler(name=name, app=app, at=10, notes={**query, **notes})
