"""The page of a plan in a real browser: by eye, by keyboard, on paper, in a narrow window, and without its script."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser, Page, expect

from tightship.documents.advice import AdviceEntry, AdviceSummary, ChangeEntry, GainEntry
from tightship.documents.document import NodePlan
from tightship.documents.html.page import render_page
from tightship.documents.plan_view import MANY, plan_page
from tightship_testkit.accessibility import assert_accessible
from tightship_testkit.browser import opened

from .plans import HOSTILE, hostile_plan, large_plan, node, plan, refusal, small_plan

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROWS = ".listing > tbody > tr"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def written(folder: Path, found: NodePlan, name: str = "plan.html") -> str:
    path = folder / name
    path.write_text(render_page(plan_page(found)), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def small(folder: Path) -> str:
    return written(folder, small_plan())


async def shows(page: Page, *names: str) -> None:
    """Wait until these nodes are seen and no others."""
    seen = page.locator(f"{ROWS}:visible a.name")
    await (expect(seen).to_have_text([*names]) if names else expect(seen).to_have_count(0))


async def test_a_file_loads_nothing_and_has_nothing_to_complain_of(browser: Browser, small: str) -> None:
    async with opened(browser, small) as (page, watch):
        await page.locator("#open").click()
        await page.locator("#query").fill("cart")
        assert (watch.said, watch.asked_for) == ([], [small])


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("web-3", ["web-1", "web-3"]),
        ("SHOP/cart-2", ["web-1", "web-2", "web-4"]),
        ("gpu 9d", ["gpu-1", "gpu-2"]),
        ("noplace", ["web-4", "gpu-2"]),
        ("noplace big", ["web-4"]),
        ("nothing-like-it", []),
    ],
)
async def test_a_search_leaves_what_has_all_its_words(
    browser: Browser, small: str, query: str, names: list[str]
) -> None:
    async with opened(browser, small) as (page, _):
        await page.get_by_role("searchbox", name="Search").fill(query)
        await shows(page, *names)
        await expect(page.locator("#count")).to_have_text(f"{len(names)} of 6 nodes")


async def test_reasons_and_states_filter_together(browser: Browser, small: str) -> None:
    async with opened(browser, small) as (page, _):
        reason = page.get_by_role("button", name="NoPlace")
        await reason.click()
        await shows(page, "web-4", "gpu-2")
        await expect(reason).to_have_attribute("aria-pressed", "true")
        await page.get_by_label("Show").select_option(label="nodes that take pods")
        await shows(page, "web-4")
        await reason.click()
        await shows(page, "web-3", "web-4")
        await expect(reason).to_have_attribute("aria-pressed", "false")


async def test_a_node_that_is_selected_shows_its_moves(browser: Browser, small: str) -> None:
    async with opened(browser, small) as (page, _):
        await page.get_by_role("link", name="web-1").first.click()
        await expect(page.locator("tr.target a.name")).to_have_text(["web-2", "web-3", "web-4"])
        await expect(page.locator("#pick span")).to_have_text("web-1: 3 pods to 3 nodes: web-3, web-2, web-4")
        await expect(page.locator(".map[data-side=before] > .chosen")).to_have_count(1)
        await expect(page.locator(".lines path")).to_have_attribute("d", re.compile(r"^([^C]*C){3}[^C]*$"))
        await page.get_by_role("button", name="Only these").click()
        await shows(page, "web-1", "web-2", "web-3", "web-4")
        await page.keyboard.press("Escape")
        await expect(page.locator(f"{ROWS}:visible a.name")).to_have_count(6)
        await expect(page.locator("tr.chosen, tr.target, .chosen, .lines")).to_have_count(0)
        await expect(page.locator("#pick")).to_be_hidden()


async def test_a_node_that_stays_shows_where_its_pods_come_from(browser: Browser, small: str) -> None:
    async with opened(browser, small) as (page, _):
        await page.locator("#n4 a.name").click()
        await expect(page.locator("tr.source a.name")).to_have_text(["web-1"])
        await expect(page.locator("#pick span")).to_have_text("web-4: takes 2 pods of 1 node: web-1")


async def test_a_pod_that_is_selected_shows_its_one_move(browser: Browser, small: str) -> None:
    async with opened(browser, small) as (page, _):
        await page.locator("#n0 summary").click()
        await page.locator("#n0").get_by_role("link", name="shop/pay-1").click()
        await expect(page.locator("tr.target a.name")).to_have_text(["web-4"])
        await expect(page.locator("#pick span")).to_have_text("shop/pay-1: web-1 → web-4")
        await expect(page.locator(".lines path")).to_have_attribute("d", re.compile(r"^([^C]*C){1}[^C]*$"))


async def test_a_slot_of_the_picture_is_its_node(browser: Browser, small: str) -> None:
    async with opened(browser, small) as (page, _):
        picture = page.locator(".map[data-side=before]").last
        await expect(picture).to_have_attribute("aria-label", "web before: 4 nodes")
        # Slots are 34 wide: the third of the pool.
        await picture.click(position={"x": 34 * 2 + 10, "y": 20})
        await expect(page.locator("#n3")).to_have_class("chosen")


async def test_a_link_to_a_node_that_is_filtered_out_brings_it_back(browser: Browser, small: str) -> None:
    async with opened(browser, small) as (page, _):
        await page.locator("#query").fill("pay-1")
        await page.get_by_label("Show").select_option(label="nodes that would go")
        await shows(page, "web-1")
        await page.locator("#n0 summary").click()
        await page.locator("#n0").get_by_role("link", name="web-3").click()
        await expect(page.locator("#n3")).to_be_visible()
        await expect(page.locator("#n3 a.name")).to_be_focused()


async def test_everything_can_be_done_by_keyboard_alone(browser: Browser, small: str) -> None:
    async with opened(browser, small) as (page, _):
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator("#list")).to_be_focused()
        await page.keyboard.press("Tab")
        await expect(page.locator("#n0 a.name")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("#n0")).to_have_class("chosen")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await expect(page.locator("#n2 a.name")).to_be_focused()
        await page.keyboard.press("End")
        await expect(page.locator("#n5 a.name")).to_be_focused()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator("#n5 details")).to_have_attribute("open", "")
        await page.keyboard.press("Escape")
        await expect(page.locator("#pick")).to_be_hidden()


FOCUSED = """() => {
  const at = document.activeElement;
  return [at.tagName, getComputedStyle(at).outlineStyle, at.textContent.slice(0, 20)];
}"""


async def test_the_focus_is_seen_on_its_way_through_the_whole_page(browser: Browser, small: str) -> None:
    async with opened(browser, small) as (page, _watch):
        await page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        places = []
        for _ in range(200):
            await page.keyboard.press("Tab")
            here = await page.evaluate(FOCUSED)
            if here[0] == "BODY":
                break
            assert here[1] != "none", here
            places.append(here[0])
        else:
            raise AssertionError("the focus never comes to the end of the page")
        assert {"A", "INPUT", "SELECT", "BUTTON", "SUMMARY"} <= set(places)


UNCOVERED = "document.styleSheets[0].insertRule('.lines { display: none }')"
"""Takes away the lines of moves, through which axe-core does not see what is behind a text."""


@pytest.mark.parametrize("dark", [False, True])
async def test_texts_can_be_read_in_light_and_dark(browser: Browser, small: str, dark: bool) -> None:
    async with opened(browser, small, dark=dark) as (page, _):
        await page.locator("#open").click()
        await page.locator("#n0 a.name").click()
        await page.get_by_role("button", name="LocalStorage").click()
        await page.get_by_role("button", name="LocalStorage").blur()
        await page.evaluate(UNCOVERED)
        await assert_accessible(page)


GROUND = "getComputedStyle(document.body).backgroundColor"


async def test_colours_follow_the_system_until_the_reader_chooses(browser: Browser, small: str) -> None:
    async with opened(browser, small) as (page, _):
        light = await page.evaluate(GROUND)
        await page.emulate_media(color_scheme="dark")
        dark = await page.evaluate(GROUND)
        assert light != dark
        await page.get_by_label("Colours").select_option("light")
        assert await page.evaluate(GROUND) == light
        await page.emulate_media(color_scheme="light")
        await page.get_by_label("Colours").select_option("dark")
        assert await page.evaluate(GROUND) == dark
        await page.reload()
        assert await page.evaluate(GROUND) == dark


async def test_on_paper_it_is_light_and_without_controls(browser: Browser, small: str) -> None:
    async with opened(browser, small, dark=True) as (page, _):
        await page.locator("#n0 a.name").click()
        await page.emulate_media(media="print", color_scheme="dark")
        assert await page.evaluate(GROUND) == "rgb(255, 255, 255)"
        await expect(page.locator(".controls")).to_be_hidden()
        await expect(page.locator("#pick")).to_be_hidden()
        await page.evaluate(UNCOVERED)
        await assert_accessible(page)
        assert (await page.pdf()).startswith(b"%PDF")


@pytest.mark.parametrize("width", [320, 375, 700, 1024, 1920])
async def test_a_narrow_window_scrolls_down_only(browser: Browser, folder: Path, width: int) -> None:
    for name, found in (("small", small_plan()), ("hostile", hostile_plan())):
        url = written(folder, found, f"{name}.html")
        async with opened(browser, url, width=width) as (page, _):
            await page.locator("#open").click()
            await page.locator("a.name").first.click()
            assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_without_the_script_everything_is_in_tables(browser: Browser, small: str) -> None:
    async with opened(browser, small, script=False) as (page, watch):
        await expect(page.locator(".controls")).to_be_hidden()
        await expect(page.locator("#pick")).to_be_hidden()
        await page.locator("#n0 summary").click()
        moves = page.locator("#n0 table")
        await expect(moves.locator("tbody tr").nth(2)).to_have_text(re.compile("shop/pay-1.*web-4"))
        await moves.get_by_role("link", name="shop/pay-1").click()
        await expect(page).to_have_url(re.compile("#n4$"))
        await expect(page.locator("#n4")).to_be_in_viewport()
        assert await page.evaluate("1") == 1
        assert watch.asked_for[0] == small


async def test_a_team_s_part_opens_by_its_address(browser: Browser, small: str) -> None:
    async with opened(browser, f"{small}#team-ml") as (page, watch):
        await expect(page.get_by_role("link", name="Link to ml")).to_be_in_viewport()
        await expect(page.get_by_role("link", name="Link to shop")).to_be_hidden()
        await page.evaluate("location.hash = '#team-shop'")
        await expect(page.get_by_role("link", name="Link to shop")).to_be_in_viewport()
        assert watch.said == []


async def test_a_command_is_copied_as_it_stands(browser: Browser, folder: Path) -> None:
    command = """kubectl -n shop patch pdb web -p '{"spec":{"maxUnavailable":1}}'"""
    piece = AdviceEntry(GainEntry(1, None), (ChangeEntry("NoPlace", "PDB shop/x", None),), (command,), None, (), ())
    found = msgspec.structs.replace(small_plan(), advice=AdviceSummary(1.0, 1, 0, (piece,), None, ()))
    async with opened(browser, written(folder, found, "advice.html")) as (page, watch):
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        copy = page.locator(".copy").first
        await copy.click()
        await expect(copy).to_have_text("Copied")
        assert await page.evaluate("navigator.clipboard.readText()") == command
        await page.evaluate("navigator.clipboard.writeText('')")
        # As where the page is no secure context.
        await page.evaluate("void (navigator.clipboard.writeText = () => Promise.reject())")
        await expect(copy).to_have_text("Copy")
        await copy.click()
        await expect(copy).to_have_text("Copied")
        assert await page.evaluate("navigator.clipboard.readText()") == command
        await assert_accessible(page)
        assert watch.said == []


async def test_an_opened_row_tells_what_keeps_many_nodes(browser: Browser, folder: Path) -> None:
    kept = [node(f"n-{number}", refusal("NoPlace", f"shop/p-{number}", "no room")) for number in range(MANY + 1)]
    async with opened(browser, written(folder, plan(*kept), "kept.html")) as (page, watch):
        row = page.locator("#n7")
        await row.locator("summary").click()
        await expect(row.locator(".why")).to_have_text("NoPlace shop/p-7: no roomdo that")
        await row.locator("summary").click()
        await row.locator("summary").click()
        await expect(row.locator(".why")).to_have_text("NoPlace shop/p-7: no roomdo that")
        await row.get_by_role("link", name="NoPlace").click()
        await expect(page.locator("#b0")).to_be_in_viewport()
        assert watch.said == []


async def test_hostile_names_are_texts(browser: Browser, folder: Path) -> None:
    url = written(folder, hostile_plan(), "hostile.html")
    async with opened(browser, url) as (page, watch):
        await page.locator("#open").click()
        await page.locator("a.name").first.click()
        assert await page.evaluate("window.pwned") is None
        assert await page.evaluate("document.scripts.length") == 1
        await expect(page.locator("img")).to_have_count(0)
        name = await page.locator("a.name").first.inner_text()
        assert name.startswith(HOSTILE[:40])
        assert "\\u202e" in name
        assert (watch.said, watch.asked_for) == ([], [url])


async def test_nothing_to_do_and_no_node_at_all(browser: Browser, folder: Path) -> None:
    for found, heading in ((plan(small_plan().nodes[3]), "None of 1 node would go"), (plan(), "There is no node")):
        async with opened(browser, written(folder, found, "little.html")) as (page, watch):
            await expect(page.get_by_role("heading", level=1)).to_have_text(heading)
            await assert_accessible(page)
            assert watch.said == []


async def test_five_thousand_nodes_are_searched_and_selected_like_few(browser: Browser, folder: Path) -> None:
    url = written(folder, large_plan(5000), "large.html")
    async with opened(browser, url) as (page, watch):
        assert await page.evaluate("document.querySelectorAll('*').length") < 5000 * 100
        await page.locator("#query").fill("ns-7/pod-107-1")
        await shows(page, "node-00107", "node-02607")
        await page.locator("#n107 a.name").click()
        await expect(page.locator("tr.target a.name")).to_have_text(["node-02607"])
        assert watch.said == []
