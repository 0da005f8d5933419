"""Every kind of page that the commands print and the running controllers serve, judged by axe-core."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser
from yard import cluster, ground, stall

from tightship_simulator.generate import off_peak_cluster
from tightship_testkit.accessibility import MORE, TAGS, assert_accessible, assert_accessible_in_every_way
from tightship_testkit.browser import opened
from tightship_testkit.refining import quick
from tightship_testkit.replica import COMPACTOR, QUICK, REFINER, Program, Replica, Settings

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPTS = Path(sys.executable).parent
SHOP = Path(__file__).parents[2] / "hpa-scaler" / "tests" / "data"
NODES = 8
HOUR = 3600.0
"""Seconds that a pod takes to end: a drain does not get further."""
ASKS = {"prometheus_query": "rate", "requests_per_replica": 10, "minimum_replicas": 1}


async def printed(folder: Path, *command: str | Path) -> str:
    """Run a command and return where the page is that it prints."""
    process = await asyncio.create_subprocess_exec(
        SCRIPTS / command[0], *command[1:], "-o", "html",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    page, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    file = folder / "page.html"
    file.write_bytes(page)
    return file.as_uri()


def home(replica: Replica) -> str:
    return f"http://127.0.0.1:{replica.port}/"


@pytest.mark.parametrize(("program", "more"), [("node-compactor", ["--until-stable"]), ("node-refiner", [])])
async def test_a_plan_of_nodes(browser: Browser, tmp_path: Path, program: str, more: list[str]) -> None:
    fleet = tmp_path / "cluster.json"
    fleet.write_text(json.dumps(off_peak_cluster(7, NODES)))
    await assert_accessible_in_every_way(browser, await printed(tmp_path, program, "plan", "-f", fleet, *more))


async def test_a_plan_of_floors(browser: Browser, tmp_path: Path) -> None:
    known = SHOP / "outcomes.json"
    url = await printed(tmp_path, "hpa-scaler", "plan", "-f", SHOP / "shop.yaml", "--outcomes", known)
    await assert_accessible_in_every_way(browser, url)


@pytest.mark.parametrize(
    ("program", "settings", "broken"),
    [
        (COMPACTOR, QUICK, {**QUICK, "nodePools": {"*": {"enabled": "perhaps"}}}),
        (REFINER, quick(), quick(time_gap="soon")),
    ],
    ids=["node-compactor", "node-refiner"],
)
async def test_a_controller_of_nodes_at_work(
    browser: Browser, tmp_path: Path, program: Program, settings: Settings, broken: Settings
) -> None:
    """In the middle of a drain, and after an edit that was refused."""
    places = dict.fromkeys(("n1", "n2", "n3", "n4"), 3)
    half_full = cluster(places, pools=dict.fromkeys(places, "spare"), cpu="620m")
    async with ground(tmp_path, half_full, settings, program, ending=HOUR) as on:
        replica = on.start()
        await on.seen(lambda: any("Evicting" in on.recorder.phases(name) for name in places), "a node is drained")
        await on.configured(broken)
        await replica.says("The configuration was refused")
        await on.passes(replica)
        await assert_accessible_in_every_way(browser, home(replica))


async def test_floors_at_work_and_their_log(browser: Browser, tmp_path: Path) -> None:
    log = tmp_path / "decisions"
    async with stall(tmp_path) as on:
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        replica = on.start(DECISION_LOG=str(log))
        await on.until_bounds("web", 8, 20)
        await on.configured("circuitBreakerPause: soon")
        await replica.says("The configuration was refused")
        await on.cycles(replica)
        await assert_accessible_in_every_way(browser, home(replica))
        replica.told_to_end()
        assert await replica.ended() == 0
    await assert_accessible_in_every_way(browser, await printed(tmp_path, "hpa-scaler", "replay", log))


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
        with pytest.raises(AssertionError) as told:
            await assert_accessible(page)
        found = str(told.value)
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
