"""The page of a plan as text: it holds what the table holds, no text becomes markup, and it loads nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from tightship.documents.advice import AdviceEntry, AdviceSummary, ChangeEntry, GainEntry
from tightship.documents.document import NodePlan, NodeTotals, Plain, SchedulerForecast, SettingsView, StuckNode
from tightship.documents.formats import formats_of
from tightship.documents.html.page import SITE, Page, page_parts, render_page
from tightship.documents.money import MoneySummary, MonthTotals
from tightship.documents.plan_view import MANY, PLAN, Row, arrivals_of, headline, plan_page, teams_of
from tightship.documents.terminal import Terminal
from tightship.objects.reasons import Reason

from .plans import HOSTILE, hostile_plan, large_plan, node, plan, refusal, small_plan

ROOT = Path(__file__).resolve().parents[4]


def rows_of(found: NodePlan) -> Sequence[Row]:
    rows = plan_page(found).values["rows"]
    assert isinstance(rows, tuple)
    return rows


def page_of(found: NodePlan, terminal: Terminal = Terminal()) -> str:
    return str(formats_of(PLAN)["html"].render(found, PLAN, terminal))


VOID = frozenset({"input", "meta"})
"""Elements without an end tag."""
IMPLIED = frozenset({"li", "td", "th", "tr"})
"""Elements whose end tag HTML lets out."""


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
        if tag not in VOID | IMPLIED:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in IMPLIED or self.open.pop() == tag

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
    detail = " ".join(read(page_of(found)).texts)
    for word in (
        "3 of 6 nodes would go",
        "file cluster.json at 2026-03-10T00:00:00Z",
        "limit 0.75; strategy least-utilized, placement likely",
        "PDB waits: shop/pdb",
        "24 cores",
        "evictions they forbid are not seen",
    ):
        assert word in detail
    for one in found.nodes:
        assert one.name in detail
        for move in one.moves:
            assert move.pod in detail
            assert move.owner is None or move.owner in detail
        for each in one.refusals:
            assert each.reason in detail
            assert each.subject in detail
            assert each.detail in detail
            assert each.fix is None or each.fix in detail


def test_every_link_leads_somewhere_in_the_page_and_no_place_is_there_twice() -> None:
    reader = read(page_of(small_plan()))
    assert len(set(reader.ids)) == len(reader.ids)
    inside = {link[1:] for link in reader.links if link.startswith("#")}
    assert inside - set(reader.ids) == set()
    assert {link for link in reader.links if not link.startswith((f"{SITE}/", "#"))} == set()


def test_each_reason_leads_to_its_chapter_and_a_word_that_is_none_of_ours_nowhere() -> None:
    chapters = set(re.findall("^### (.+)$", (ROOT / "docs" / "reasons.md").read_text("utf-8"), re.MULTILINE))
    found = plan(*(node(reason.value, refusal(reason.value, "a/b")) for reason in Reason))
    links = {link.partition("/reasons/#")[2] for link in read(page_of(found)).links if "/reasons/#" in link}
    assert links == {reason.lower() for reason in Reason}
    assert {reason.value for reason in Reason} <= chapters
    assert "/reasons/#" not in page_of(plan(node("x", refusal("Made<up>", "a/b"))))


def test_what_only_a_forecast_gives_leads_nowhere() -> None:
    found = small_plan()
    stuck = StuckNode("web-1", (refusal("SchedulerMayStrand", "shop/cart-1", "no node is left for it"),))
    forecast = SchedulerForecast(2, 4, 3, 3, (stuck,))
    summary = msgspec.structs.replace(found.summary, scheduler=forecast)
    reader = read(page_of(msgspec.structs.replace(found, summary=summary)))
    assert any("no node is left for it" in text for text in reader.texts)
    assert {link[1:] for link in reader.links if link.startswith("#")} - set(reader.ids) == set()


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


def test_a_file_names_its_own_policy_and_loads_nothing() -> None:
    html = page_of(small_plan())
    assert 'http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;;' in html
    assert "connect-src" not in html.partition("</head>")[0]
    outside = re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.DOTALL)
    assert set(re.findall("https?://[a-z.]+/tightship", outside)) <= {SITE}
    for word in ("http://", "src=", "@import", " style=", "onclick"):
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
    slots = {row.node.name: row for row in rows_of(found)}
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
    assert ("There is no node" if removes else "None of 1 node would go") in detail
    assert ("There is no node." in detail) is removes


def test_what_planned_nodes_wait_for_stands_beside_them() -> None:
    found = small_plan()
    held = {"web-1": msgspec.structs.replace(found.nodes[3].refusals[0], reason="CoolDown", detail="60s to go")}
    html = page_of(msgspec.structs.replace(found, held=held))
    first, second = html.partition('id="n0"')[2].split('id="n1"', 1)
    assert "waits: CoolDown, 60s to go" in first
    assert "<small>waits:" not in second


def test_the_headline_is_money_and_nodes() -> None:
    def told(saved: int, removed: int = 6) -> str:
        summary = small_plan().summary
        money = MoneySummary("USD", 730, MonthTotals(15_000_000_000, 15_000_000_000 - saved, saved), 40, 0, 0, ())
        nodes = NodeTotals(40, 40 - removed, removed)
        return headline(msgspec.structs.replace(summary, nodes=nodes, money=money))

    assert told(1_547_816_080) == "$2.12 an hour, 6 of 40 nodes"
    assert told(0) == "6 of 40 nodes would go"
    assert told(0, 0) == "None of 40 nodes would go"
    html = page_of(small_plan())
    assert "<title>cluster.json: 3 of 6 nodes would go · node-compactor</title>" in html
    assert html.count('class="tile"') == 4


def test_a_team_is_told_what_it_keeps_and_what_of_it_moves() -> None:
    shop, ml = teams_of(small_plan())
    assert (shop.name, shop.anchor, shop.nodes, shop.alone, shop.evicted) == ("shop", "team-shop", 2, 2, 3)
    assert shop.moves == [("ReplicaSet/x", 3)]
    assert [(each.reason, each.pods, each.nodes) for each in shop.blockers] == [
        ("PdbSpentByPlan", ["shop/cart-9", "shop/cart-8"], ("web-3",)),
        ("NoPlace", ["shop/big-1"], ("web-4",)),
        ("LocalStorage", ["shop/big-1"], ("web-4",)),
    ]
    assert (ml.anchor, ml.nodes, ml.alone, ml.evicted) == ("team-ml", 1, 1, 0)


def test_two_namespaces_never_have_one_place() -> None:
    found = plan(*(node(name, refusal("NoPlace", f"{name}/pod")) for name in ("shop", "team-shop", "team-ml", "db")))
    anchors = {team.name: team.anchor for team in teams_of(found)}
    assert anchors == {"shop": "of-shop", "team-shop": "team-shop", "team-ml": "team-ml", "db": "team-db"}


def test_a_team_gets_the_advice_about_its_things_by_the_numbers_of_the_whole() -> None:
    def piece(thing: str) -> AdviceEntry:
        return AdviceEntry(GainEntry(1, None), (ChangeEntry("NoPlace", thing, None),), ("kubectl x",), None, (), ())

    pieces = tuple(map(piece, ("every pool", "PDB shop/pdb", "ml/deployment/train", "shopping/pod/x")))
    found = msgspec.structs.replace(small_plan(), advice=AdviceSummary(1.0, 4, 0, pieces, None, ()))
    shop, ml = teams_of(found)
    assert [number for number, _ in shop.changes] == [2]
    assert [number for number, _ in ml.changes] == [3]
    html = page_of(found)
    assert html.count('<code>kubectl x</code><button type="button" class="copy js"') == 6
    assert "More without it" not in html


def test_the_limit_of_its_pool_is_on_each_bar_of_cpu() -> None:
    def limit(value: float) -> dict[str, Plain]:
        return {"cpuRequestRatioLimit": value}

    settings = SettingsView("s", {"nodePools": {"*": limit(0.5), "gpu": limit(0.75), "idle": limit(0)}})
    rows = rows_of(msgspec.structs.replace(small_plan(), settings=settings))
    assert {row.node.pool: (row.cpu.limit, row.memory.limit) for row in rows} == {
        "web": (0.5, None),
        "gpu": (0.75, None),
    }
    html = page_of(msgspec.structs.replace(small_plan(), settings=settings))
    assert html.count('<path class="limit" d="M60 0') == 4
    assert html.count('<path class="limit" d="M90 0') == 2
    assert 'class="limit"' not in page_of(small_plan())


def test_what_keeps_several_of_very_many_nodes_is_told_once() -> None:
    kept = [node(f"n{number}", refusal("NoPlace", f"shop/p-{number}", "no room at all")) for number in range(MANY + 1)]
    told = page_of(plan(*kept))
    assert told.count("no room at all") == 1
    assert told.count('href="#b0"') == len(kept)
    assert page_of(plan(*kept[1:])).count("no room at all") == MANY + 1


def test_a_page_of_two_thousand_nodes_is_below_three_megabytes() -> None:
    parts = list(page_parts(plan_page(large_plan(2000))))
    assert len(parts) > 10
    assert sum(len(part.encode()) for part in parts) < 3_000_000
