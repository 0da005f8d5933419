"""The page of a running controller in a real browser: it is kept up to date, and the reader keeps their place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.async_api import Browser, expect
from report.plans import node, plan, refusal, small_plan

from tightship.documents.document import NodePlan
from tightship.documents.html.page import Page
from tightship.documents.plan_view import plan_page
from tightship.process.http import Content, HttpServer
from tightship.process.metrics import new_registry
from tightship_testkit.accessibility import assert_accessible
from tightship_testkit.browser import opened
from tightship_testkit.ports import free_ports

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOST = "127.0.0.1"


def served(found: NodePlan) -> Callable[[], Page]:
    page = plan_page(found, refresh=1)
    return lambda: page


def another_plan() -> NodePlan:
    """What small_plan() has become: a node has come before all others, and one has gone."""
    return plan(
        node("web-0", order=1),
        *(each for each in small_plan().nodes if each.name != "gpu-1"),
        node("web-9", refusal("TooYoung", "web-9")),
        warnings=("Something new.",),
    )


class Scene:
    """A server whose page can be exchanged."""

    def __init__(self) -> None:
        self.draw = served(small_plan())
        self.port = free_ports("http")["http"]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def server(self) -> HttpServer:
        content = Content(
            registry=new_registry("x", "1"),
            heartbeats=(),
            not_ready=list,
            status=lambda: lambda: b"{}",
            page=lambda: self.draw,
        )
        return HttpServer(content, host=HOST, ports=(self.port,))


SETTLED = """async () => {
  // Rows get their true heights only as they are seen, over some frames, and may be exchanged meanwhile.
  const top = () => document.querySelector("tr[id].chosen").getBoundingClientRect().top;
  for (let same = 0, last = NaN; same < 10; last = top()) {
    await new Promise(requestAnimationFrame);
    same = top() === last ? same + 1 : 0;
  }
  return top();
}"""


async def test_what_is_new_is_put_in_place_and_the_reader_keeps_theirs(browser: Browser) -> None:
    scene = Scene()
    async with scene.server(), opened(browser, scene.url) as (page, watch):
        await page.locator("#query").fill("web-")
        await page.get_by_role("button", name="Open all").click()
        await page.locator("#n0 a.name").click()
        await page.locator("#n0 a.name").focus()
        top = await page.evaluate(SETTLED)
        scene.draw = served(another_plan())
        await expect(page.get_by_text("Something new.")).to_be_visible()
        await expect(page).to_have_title("cluster.json: 3 of 7 nodes would go · node-compactor")
        chosen = page.locator("tr.chosen a.name")
        await expect(chosen).to_have_text("web-1")
        await expect(chosen).to_be_focused()
        await expect(page.locator("#query")).to_have_value("web-")
        await expect(page.locator("#count")).to_have_text("6 of 7 nodes")
        opened_rows = page.locator(".listing > tbody > tr:has(details[open]) a.name")
        await expect(opened_rows).to_have_text(["web-1", "web-2", "web-3", "web-4"])
        await expect(page.locator("#pick span")).to_have_text("web-1: 3 pods to 3 nodes: web-3, web-2, web-4")
        await page.wait_for_function(
            "top => Math.abs(document.querySelector('tr[id].chosen').getBoundingClientRect().top - top) < 2", arg=top
        )
        assert watch.said == []
        assert {url.partition("#")[0] for url in watch.asked_for} == {scene.url}


async def test_a_reason_stays_chosen_though_the_table_is_new(browser: Browser) -> None:
    scene = Scene()
    async with scene.server(), opened(browser, scene.url) as (page, _):
        await page.get_by_role("button", name="PdbSpentByPlan").click()
        await page.get_by_label("Show").select_option(label="nodes that take pods")
        scene.draw = served(another_plan())
        await expect(page.get_by_text("Something new.")).to_be_visible()
        await expect(page.get_by_role("button", name="PdbSpentByPlan")).to_have_attribute("aria-pressed", "true")
        await expect(page.locator("#count")).to_have_text("1 of 7 nodes")


async def test_a_reader_can_have_it_left_as_it_is(browser: Browser) -> None:
    scene = Scene()
    async with scene.server(), opened(browser, scene.url) as (page, watch):
        await page.clock.install()
        await page.reload()
        alive = page.get_by_label("keep up to date")
        await alive.uncheck()
        scene.draw = served(another_plan())
        asked = len(watch.asked_for)
        await page.clock.run_for(10_000)
        assert len(watch.asked_for) == asked
        await alive.check()
        await page.clock.run_for(1_000)
        await expect(page.get_by_text("Something new.")).to_be_visible()


async def test_what_is_old_is_called_old_until_there_is_an_answer_again(browser: Browser) -> None:
    scene = Scene()
    async with scene.server(), opened(browser, scene.url) as (page, _):
        stale = page.locator("#stale")
        await expect(stale).to_be_hidden()
        scene.draw = broken
        await expect(stale).to_contain_text("what you see is old")
        await assert_accessible(page)
        assert await page.locator("a.name").count() == 6
        scene.draw = served(another_plan())
        await expect(stale).to_be_hidden()
        await expect(page.get_by_text("Something new.")).to_be_visible()


def broken() -> Page:
    raise RuntimeError


async def test_the_first_page_of_a_controller_becomes_its_plan(browser: Browser) -> None:
    scene = Scene()
    scene.draw = lambda: Page("node-compactor", alerts=("No pass has run yet.",), refresh=1)
    async with scene.server(), opened(browser, scene.url) as (page, watch):
        await expect(page.get_by_text("No pass has run yet.")).to_be_visible()
        scene.draw = served(small_plan())
        await expect(page.locator("a.name")).to_have_count(6)
        await page.get_by_label("Show").select_option(label="nodes that would go")
        await expect(page.locator("#count")).to_have_text("3 of 6 nodes")
        assert watch.said == []


async def test_without_the_script_the_browser_asks_again(browser: Browser) -> None:
    scene = Scene()
    async with scene.server(), opened(browser, scene.url, script=False) as (page, _):
        scene.draw = served(another_plan())
        await expect(page.get_by_text("Something new.")).to_be_visible()
