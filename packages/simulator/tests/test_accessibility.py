"""Every kind of page that the commands print and the running controllers serve, judged by axe-core."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from playwright.async_api import Browser

import hpa_scaler.cli
import node_compactor.controller
import node_refiner.controller
from tightship_simulator.generate import off_peak_cluster
from tightship_simulator.virtual.loop import VirtualLoop
from tightship_testkit.accessibility import MORE, TAGS, assert_accessible, assert_accessible_in_every_way
from tightship_testkit.browser import opened
from tightship_testkit.commands import call
from tightship_testkit.embedded import cluster, embedded_cluster
from tightship_testkit.refining import quick
from tightship_testkit.replica import COMPACTOR, QUICK, REFINER, Program, Replica, Settings
from tightship_testkit.stall import stall

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

COMMANDS = {
    "node-compactor": node_compactor.controller.COMMANDS.command,
    "node-refiner": node_refiner.controller.COMMANDS.command,
    "hpa-scaler": hpa_scaler.cli.command,
}
SHOP = Path(__file__).parents[2] / "hpa-scaler" / "tests" / "data"
NODES = 8
HOUR = 3600.0
"""Seconds that a pod takes to end: a drain does not get further."""
ASKS = {"prometheus_query": "rate", "requests_per_replica": 10, "minimum_replicas": 1}

Printed = Callable[..., str]
Served = Callable[[Callable[[Path], Awaitable[str]]], str]


@pytest.fixture
def printed(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Printed:
    """Run a command and return the address of the page that it prints."""

    def run(program: str, *arguments: str | Path) -> str:
        said = call(program, COMMANDS[program], capfdbinary.readouterr, [*arguments, "-o", "html"])
        assert said.code == 0, said.err
        return kept(tmp_path, said.out)

    return run


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """Do something on virtual time that comes to a page, and return the page's address."""

    def run(work: Callable[[Path], Awaitable[str]]) -> str:
        async def page() -> str:
            return await work(tmp_path)

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return kept(tmp_path, runner.run(page()))

    return run


def kept(folder: Path, text: str) -> str:
    file = folder / "page.html"
    file.write_text(text)
    return file.as_uri()


async def home(replica: Replica) -> str:
    status, text = await replica.get("/")
    assert status == 200
    return text


@pytest.fixture(params=[("node-compactor", "--until-stable"), ("node-refiner",)], ids=lambda words: words[0])
def plan_of_nodes(request: pytest.FixtureRequest, printed: Printed, tmp_path: Path) -> str:
    fleet = tmp_path / "cluster.json"
    fleet.write_text(json.dumps(off_peak_cluster(7, NODES)))
    program, *more = request.param
    return printed(program, "plan", "-f", fleet, *more)


async def test_a_plan_of_nodes(browser: Browser, plan_of_nodes: str) -> None:
    await assert_accessible_in_every_way(browser, plan_of_nodes)


@pytest.fixture
def plan_of_floors(printed: Printed) -> str:
    return printed("hpa-scaler", "plan", "-f", SHOP / "shop.yaml", "--outcomes", SHOP / "outcomes.json")


async def test_a_plan_of_floors(browser: Browser, plan_of_floors: str) -> None:
    await assert_accessible_in_every_way(browser, plan_of_floors)


@pytest.fixture(
    params=[
        (COMPACTOR, QUICK, {**QUICK, "nodePools": {"*": {"enabled": "perhaps"}}}),
        (REFINER, quick(), quick(clusterCoolDownAfterDrain="soon")),
    ],
    ids=["node-compactor", "node-refiner"],
)
def nodes_at_work(request: pytest.FixtureRequest, served: Served) -> str:
    program: Program
    settings: Settings
    broken: Settings
    program, settings, broken = request.param

    async def work(folder: Path) -> str:
        places = dict.fromkeys(("n1", "n2", "n3", "n4"), 3)
        half_full = cluster(places, pools=dict.fromkeys(places, "spare"), cpu="620m")
        async with embedded_cluster(folder, half_full, settings, program, ending=HOUR) as on:
            replica = on.start()
            await on.seen(lambda: any("Evicting" in on.recorder.phases(name) for name in places), "a node is drained")
            await on.configured(broken)
            await replica.says("The configuration was refused")
            await on.passes(replica)
            return await home(replica)

    return served(work)


async def test_a_controller_of_nodes_at_work(browser: Browser, nodes_at_work: str) -> None:
    """In the middle of a drain, and after an edit that was refused."""
    await assert_accessible_in_every_way(browser, nodes_at_work)


@pytest.fixture
def floors_at_work(served: Served) -> str:
    async def work(folder: Path) -> str:
        async with stall(folder) as on:
            await on.stock("web", 3, 20, **ASKS)
            on.prometheus.set("rate", 72)
            replica = on.start(DECISION_LOG=str(folder / "decisions"))
            await on.until_bounds("web", 8, 20)
            await on.configured("circuitBreakerPause: soon")
            await replica.says("The configuration was refused")
            await on.cycles(replica)
            page = await home(replica)
            replica.asked_to_end()
            assert await replica.ended() == 0
            return page

    return served(work)


async def test_floors_at_work(browser: Browser, floors_at_work: str) -> None:
    await assert_accessible_in_every_way(browser, floors_at_work)


BAD = """<!doctype html><html lang="en"><title>bad</title>
<style>p, text, ::placeholder { color: #eee; fill: #eee }</style>
<main><h1>Bad</h1><p>pale</p><button></button><label>Ask <input placeholder="anything"></label>
<svg role="img" aria-label="picture"><text y="20">pale too</text></svg></main></html>"""


async def test_a_page_that_few_can_read_is_told_with_rule_element_and_what_mends_it(
    browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "bad.html"
    file.write_text(BAD)
    async with opened(browser, file.as_uri()) as (page, _):
        with pytest.raises(AssertionError) as reported:
            await assert_accessible(page)
        found = str(reported.value)
        assert "has 4 shortcomings" in found
        assert "color-contrast: Elements must meet minimum color contrast" in found
        assert "<p>pale</p>" in found
        assert "Expected contrast ratio of 4.5:1" in found
        assert 'color-contrast: <text> "pale too"' in found
        assert 'color-contrast: <input> "anything"' in found
        assert "button-name: " in found
        assert page.viewport_size == {"width": 1280, "height": 900}
        for tag in TAGS:
            assert await page.evaluate("(tag) => axe.getRules([tag]).length", tag), tag
        assert {*MORE} <= {*await page.evaluate("axe.getRules().map((each) => each.ruleId)")}
