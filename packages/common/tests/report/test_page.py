"""The page of a plan as text: it holds what the table holds, no text becomes markup, and it loads nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from tightship.documents.document import NodePlan, SchedulerForecast, StuckNode
from tightship.documents.formats import formats_of
from tightship.documents.html.markup import VOID, tag
from tightship.documents.html.page import render_page
from tightship.documents.html.timeline import COLUMNS
from tightship.documents.node_rows import arrivals_of
from tightship.documents.plan_page import plan_page
from tightship.documents.plan_view import PLAN
from tightship.documents.presentation import Chart, Page, Section, Series
from tightship.documents.terminal import Terminal

from .plans import HOSTILE, hostile_plan, large_plan, plan, refusal, small_plan


def page_of(found: NodePlan, terminal: Terminal = Terminal()) -> str:
    return str(formats_of(PLAN)["html"].render(found, PLAN, terminal))


class Reader(HTMLParser):
    """Reads a page: what elements and attributes it has, and what it says outside of style and script."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.texts: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_says_what_the_table_says() -> None:
    found = small_plan()
    message = " ".join(read(page_of(found)).texts)
    for word in (
        "node-compactor: 6 → 3 nodes",
        "file cluster.json at 2026-03-10T00:00:00Z",
        "limit 0.75; strategy least-utilized, placement likely",
        "PDB waits: shop/pdb",
        "24 cores",
        "evictions they forbid are not seen",
    ):
        assert word in message
    for node in found.nodes:
        assert node.name in message
        for move in node.moves:
            assert move.pod in message
            assert move.owner is None or move.owner in message
        for each in node.refusals:
            assert each.reason in message
            assert each.subject in message
            assert each.detail in message
            assert each.fix is None or each.fix in message


def test_every_link_leads_somewhere_in_the_page_and_no_place_is_there_twice() -> None:
    reader = read(page_of(small_plan()))
    assert len(set(reader.ids)) == len(reader.ids)
    assert all(link.startswith("#") for link in reader.links)
    assert {link[1:] for link in reader.links} - set(reader.ids) == set()


def test_what_only_a_forecast_gives_leads_nowhere() -> None:
    found = small_plan()
    stuck = StuckNode("web-1", (refusal("SchedulerMayStrand", "shop/cart-1", "no node is left for it"),))
    forecast = SchedulerForecast(2, 4, 3, 3, (stuck,))
    summary = msgspec.structs.replace(found.summary, scheduler=forecast)
    reader = read(page_of(msgspec.structs.replace(found, summary=summary)))
    assert "no node is left for it" in reader.texts
    assert {link[1:] for link in reader.links} - set(reader.ids) == set()


def test_the_same_plan_gives_the_same_page() -> None:
    assert page_of(small_plan()) == page_of(small_plan(), Terminal(80, colour=True))


def test_no_text_becomes_markup() -> None:
    html = page_of(hostile_plan())
    reader = read(html)
    harmless = read(page_of(small_plan()))
    assert reader.tags <= harmless.tags
    assert reader.attributes <= harmless.attributes
    shown = HOSTILE.replace("\u2028", "\\u2028").replace("\u202e", "\\u202e").replace("\x1b", "\\u001b")
    assert sum(text.count(shown) for text in reader.texts) > 10
    assert re.search("[\u2028\u202e\x1b]", html) is None


def test_attributes_are_escaped_and_left_out_by_none_and_false() -> None:
    assert tag("a", "x", href='"><b>', hidden=True, open=False, id=None) == '<a href="&quot;&gt;&lt;b&gt;" hidden>x</a>'


def test_a_file_names_its_own_policy_and_loads_nothing() -> None:
    html = page_of(small_plan())
    assert 'http-equiv="Content-Security-Policy" content="default-src &#x27;none&#x27;;' in html
    assert "connect-src" not in html.partition("</head>")[0]
    outside = re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.DOTALL)
    for word in ("http://", "https://", "src=", "@import", " style=", "onclick"):
        assert word not in outside


def test_a_page_that_is_served_is_fetched_anew_without_the_script_too() -> None:
    head = render_page(Page("x", refresh=30)).partition("</head>")[0]
    assert '<noscript><meta http-equiv="refresh" content="30"></noscript>' in head
    assert "refresh" not in page_of(small_plan()).partition("<style>")[0]


def test_pods_that_move_twice_arrive_once_where_they_end() -> None:
    arrived = arrivals_of(small_plan())
    assert {name: [(each.move.pod, each.origin) for each in came] for name, came in arrived.items()} == {
        "web-3": [("shop/cart-1", "web-1")],
        "web-4": [("shop/pay-1", "web-1"), ("shop/cart-2", "web-1")],
    }


def test_bars_after_the_plan_add_up_to_its_sums() -> None:
    found = small_plan()
    [fleet] = [section.fleet for section in plan_page(found).sections if section.fleet is not None]
    slots = {slot.key: slot for group in fleet.groups for slot in group.slots}
    after = sum((slots[node.name].cpu.after or 0) * node.cpu_milli.allocatable for node in found.nodes)
    assert round(after) == found.summary.cpu_milli.after.requested
    assert [slots[name].cpu.gone for name in ("web-1", "web-2", "gpu-1", "web-3")] == [True, True, True, False]
    assert (slots["web-4"].cpu.now, slots["web-4"].cpu.after, slots["web-4"].cpu.arrived) == (0.25, 0.5, 0.25)


def test_a_fleet_is_a_few_paths_however_many_nodes_there_are() -> None:
    def paths(count: int) -> int:
        html = page_of(large_plan(count))
        return sum(svg.count("<path") for svg in re.findall(r'<svg class="map".*?</svg>', html))

    assert paths(28) == paths(2800)


@pytest.mark.parametrize("removes", [False, True])
def test_a_cluster_without_nodes_or_anything_to_do(removes: bool) -> None:
    nodes = () if removes else (small_plan().nodes[3],)
    detail = " ".join(read(page_of(plan(*nodes))).texts)
    assert ("0 nodes, none would go" if removes else "1 node, none would go") in detail
    assert ("There is no node." in detail) is removes


def test_what_planned_nodes_wait_for_stands_beside_them() -> None:
    found = small_plan()
    held = {"web-1": msgspec.structs.replace(found.nodes[3].refusals[0], reason="CoolDown", detail="60s to go")}
    listing = plan_page(msgspec.structs.replace(found, held=held)).listing
    assert [entry.cells[4].detail for entry in listing.entries[:2]] == ["waits: CoolDown, 60s to go", ""]


def line(html: str) -> str:
    [found] = re.findall(r'<svg class="chart".*?<path class="line floor[^"]*" d="([^"]*)"', html)
    return str(found)


def points(drawn: str) -> list[tuple[int, int]]:
    """The corners of a line, of which only the first of each part is not told by the way from the one before."""
    found: list[tuple[int, int]] = []
    for command, numbers in re.findall(r"([Mhvl])([-\d ]+)", drawn):
        first, *rest = map(int, numbers.split())
        x, y = found[-1] if found else (0, 0)
        match command:
            case "M":
                found.append((first, rest[0]))
            case "h":
                found.append((x + first, y))
            case "v":
                found.append((x, y + first))
            case _:
                found.append((x + first, y + rest[0]))
    return found


def test_a_long_chart_keeps_its_highest_and_lowest_and_its_gaps() -> None:
    count = 20 * COLUMNS
    values: list[float | None] = [10.0] * count
    values[7], values[count - 7], values[count // 2] = 100.0, 0.0, None
    chart = Chart(tuple(map(float, range(count))), (Series("floor", "floor", tuple(values)),), "pods", "x")
    drawn = line(render_page(Page("x", sections=(Section("c", chart=chart),))))
    assert len(drawn) < 40 * COLUMNS
    assert drawn.count("M") == 2
    assert {22, 234} <= {y for _, y in points(drawn)}


def test_a_step_holds_until_the_next() -> None:
    chart = Chart((0.0, 60.0, 120.0), (Series("floor", "floor", (1.0, 1.0, 2.0), step=True),), "pods", "x")
    drawn = line(render_page(Page("x", sections=(Section("c", chart=chart),))))
    assert points(drawn) == [(46, 128), (950, 128), (950, 22)]


@pytest.mark.parametrize("step", [False, True])
def test_a_line_goes_through_its_points_and_has_no_other_corners(step: bool) -> None:
    times = tuple(60.0 * number for number in range(7))
    chart = Chart(times, (Series("floor", "floor", (1, 1, 1, 2, 2, None, 4), step=step),), "pods", "x")
    drawn = line(render_page(Page("x", sections=(Section("c", chart=chart),))))
    last = (498, 181) if step else (347, 181)
    assert points(drawn) == [(46, 181), last, (498, 128), (649, 128), (950, 22)]


@pytest.mark.parametrize("last", range(0, 86400, 3571))
def test_every_moment_of_a_chart_ends_within_it(last: int) -> None:
    times = (1_366_800_000.0, 1_366_800_000.0 + 7 * 86400 + last)
    html = render_page(
        Page("x", sections=(Section("c", chart=Chart(times, (Series("f", "floor", (1, 2)),), "pods", "x")),))
    )
    moments = re.findall(r'<text x="(\d+)" y="252">([^<]+)</text>', html)
    assert len(moments) >= 7
    assert all(int(x) >= 46 and int(x) + 3.5 * len(name) <= 960 for x, name in moments)


def test_marked_times_have_a_stroke_each_and_a_name() -> None:
    times = tuple(float(each) for each in range(0, 7200, 60))
    chart = Chart(times, (Series("f", "floor", (1.0,) * 120),), "pods", "x", (60.0, 61.0, 3600.0), "short of replicas")
    html = render_page(Page("x", sections=(Section("c", chart=chart),)))
    [drawn] = re.findall(r'<path class="line marked" d="(M\d\d\d? 234[^"]*)"', html)
    assert drawn.count("M") == 2
    assert "short of replicas</li>" in html
    bare = Chart(times, chart.series, "pods", "x")
    assert 'class="line marked"' not in render_page(Page("x", sections=(Section("c", chart=bare),)))


def test_a_chart_without_times_is_nothing() -> None:
    html = render_page(Page("x", sections=(Section("c", chart=Chart((), (), "pods", "x")),)))
    assert "chart" not in html.partition("<body")[2].partition("<script>")[0]
