"""Pages of floors: a plan, a decision log over time, and what a running controller serves, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hpa_builder import NOW, HpaCycles, answer, failure, hpa, spec
from playwright.async_api import Browser, expect

from hpa_scaler.annotations.queries import Query
from hpa_scaler.annotations.spec import Rules
from hpa_scaler.documents import FloorPlan, PlanContext, plan_page
from hpa_scaler.documents.chart import Chart
from hpa_scaler.documents.pages import CHARTED, Row, Scale
from hpa_scaler.judge.decision import DropState, FloorDecision, Subject
from hpa_scaler.judge.judge import Cycle, judge_cycle
from hpa_scaler.process.status import ServedCycle, Timelines, nothing_yet, show
from hpa_scaler.write.applying import Records
from tightship.documents.document import Generator, SettingsView, Source
from tightship.documents.html.page import Page, render_page
from tightship.process.settings.live import Standing, deleted, refused
from tightship_testkit.accessibility import assert_accessible
from tightship_testkit.browser import opened

ROWS = ".listing > tbody > tr"
HOSTILE = "<script>pwned=1</script>\"' \u2028\u202e"


@pytest.fixture
def plan(data: Path) -> FloorPlan:
    return msgspec.json.decode((data / "golden" / "plan.json").read_bytes(), type=FloorPlan)


def written(path: Path, html: str) -> str:
    path.write_text(html, encoding="utf-8")
    return path.as_uri()


def rows_of(page: Page) -> list[Row]:
    rows: Any = page.values["rows"]
    return list(rows())


def scales(plan: FloorPlan) -> dict[str, Scale]:
    return {row.hpa.key: row.scale for row in rows_of(plan_page(plan))}


def test_what_is_in_trouble_comes_first(plan: FloorPlan) -> None:
    rows = rows_of(plan_page(plan))
    states = [row.state for row in rows]
    assert states[:5] == ["trouble"] * 5
    assert "trouble" not in states[5:]
    keys = [row.hpa.key for row in rows]
    assert keys[:5] == sorted(keys[:5])
    assert keys[5:] == sorted(keys[5:])


def test_a_scale_has_every_number_that_is_known(plan: FloorPlan) -> None:
    marks = {mark.kind: mark.value for mark in scales(plan)["shop/web"].marks}
    assert marks == {"minimum": 5, "after": 12, "wanted": 12, "desired": 10, "current": 10, "maximum": 40}
    assert "after" not in {mark.kind for mark in scales(plan)["shop/cart"].marks}


def test_a_maximum_far_away_does_not_flatten_the_rest(plan: FloorPlan) -> None:
    far = msgspec.structs.replace(plan.hpas[-1].maximum, now=5000, after=5000)
    changed = msgspec.structs.replace(plan, hpas=(msgspec.structs.replace(plan.hpas[-1], maximum=far),))
    [scale] = scales(changed).values()
    assert scale.top == 24
    assert max(mark.value for mark in scale.marks) == 5000
    assert [scale.place(value) for value in (0, 12, 24, 5000)] == [8, 120, 232, 232]


def test_the_page_says_what_the_plan_says(plan: FloorPlan) -> None:
    html = render_page(plan_page(plan))
    for entry in plan.hpas:
        assert f"{entry.namespace}/{entry.name}" in html
        for cause in entry.causes:
            assert cause.reason in html
    assert "69 → 103" in html
    assert "ceil(-0.5 + 231.4/20) = 12" in html


def test_the_command_prints_the_page(cli: Any, data: Path) -> None:
    ended = cli("plan", "-f", data / "shop.yaml", "--outcomes", data / "outcomes.json", "-o", "html")
    assert (ended.code, ended.out[:15]) == (0, "<!doctype html>")


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("dark", [False, True])
async def test_a_plan_in_a_browser(browser: Browser, plan: FloorPlan, tmp_path: Path, dark: bool) -> None:
    url = written(tmp_path / "plan.html", render_page(plan_page(plan)))
    async with opened(browser, url, dark=dark) as (page, watch):
        await page.get_by_role("searchbox", name="Search").fill("checkout")
        await expect(page.locator(f"{ROWS}:visible a.name")).to_have_text(["shop/checkout"])
        await page.locator("#query").fill("")
        await page.get_by_role("button", name="FollowsRatio").click()
        await expect(page.locator("#count")).to_have_text("2 of 9 HPAs")
        await page.get_by_role("button", name="FollowsRatio").click()
        await page.get_by_label("Show").select_option("trouble")
        await expect(page.locator("#count")).to_have_text("5 of 9 HPAs")
        await page.get_by_role("button", name="Open all").click()
        await page.locator("#n0 a.name").click()
        await assert_accessible(page)
        assert (watch.said, watch.asked_for) == ([], [url])


@pytest.mark.asyncio(loop_scope="session")
async def test_hostile_texts_of_a_plan_are_texts(browser: Browser, plan: FloorPlan, tmp_path: Path) -> None:
    bad = json.loads(msgspec.json.encode(plan).decode())
    for entry in bad["hpas"]:
        entry |= {"namespace": HOSTILE, "name": HOSTILE + entry["name"], "target": HOSTILE, "formula": HOSTILE}
        entry["causes"] = [each | {"detail": HOSTILE, "fix": HOSTILE} for each in entry["causes"]]
        entry["queries"] = [each | {"query": HOSTILE, "server": HOSTILE} for each in entry["queries"]]
    found = msgspec.json.decode(json.dumps(bad), type=FloorPlan)
    url = written(tmp_path / "plan.html", render_page(plan_page(found)))
    async with opened(browser, url, width=360) as (page, watch):
        await page.get_by_role("button", name="Open all").click()
        assert await page.evaluate("[window.pwned, document.scripts.length]") == [None, 1]
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        assert (watch.said, watch.asked_for) == ([], [url])


ASKED = spec(prometheus_query="requests", requests_per_replica="10", scale_down_max_ratio="0.5")


def after(web: HpaCycles, decision: FloorDecision, *, writes: bool = True) -> None:
    """Have the web as it is after the decision."""
    changes = decision.changes and writes
    if changes:
        web.set(minimum=decision.target, maximum=decision.target_maximum)
    web.history = decision.written if changes else decision.history


def asked_of(web: HpaCycles, minute: int, value: float | None) -> Subject:
    """What is known of the HPA of *web* at a minute; ``None`` is a query that failed."""
    outcome = failure() if value is None else answer(value)
    return Subject(
        hpa=web.hpa,
        asked=ASKED,
        outcomes={Query(ASKED.queries[0].text, ASKED.queries[0].server): outcome},
        history=web.history,
        rules=web.rules,
        now=NOW + 60 * minute,
    )


def plan_context(judged: Cycle, now: float = NOW) -> PlanContext:
    return PlanContext(
        generator=Generator("hpa-scaler", "1"),
        source=Source("cluster", "c"),
        settings=SettingsView("s", {}),
        cycle=judged,
        rules=Rules(),
        not_enabled=0,
        now=now,
    )


def kept(*, writes: bool = True) -> Timelines:
    return Timelines(Records("tightship.dev", writes=True), NOW, writes=writes)


def served(**changes: Any) -> list[str]:
    """The alerts of a running controller's page."""
    subject = Subject(hpa=hpa(), asked=ASKED, now=NOW)
    given: dict[str, Any] = {"leader": "me", "dry_run": False, "circuits": {"p": "closed"}, **changes}
    judged = judge_cycle([subject], DropState(), Rules(), NOW)
    made = show(plan_context(judged), kept().recent(), **given)
    page = made.page()
    assert json.loads(made.json())["plan"]["summary"]["hpas"] == 1
    assert page.refresh == 30
    assert ", leader me</p>" in render_page(page)
    return list(page.alerts)


def test_what_only_a_running_controller_knows_stands_on_top() -> None:
    assert served() == []
    assert served(
        dry_run=True, problems=refused(Standing.LAST_GOOD, ("bad: 1",)).sentences, circuits={"p": "open"}
    ) == [
        "The configuration was refused; the last good one applies: bad: 1",
        "Dry run: nothing is changed.",
        "Server p gets no queries for now, because it failed.",
    ]
    gone = deleted(Standing.STARTING, "ConfigMap here/ours").sentences
    assert tuple(served(problems=gone)) == gone
    assert nothing_yet("hpa-scaler", "Stands by.", "prod").page() == Page(
        "prod · hpa-scaler", alerts=("Stands by.",), refresh=5
    )


def shown_after(values: list[float | None], *, writes: bool = True) -> tuple[ServedCycle, Timelines]:
    """What is served of one HPA, a minute between two cycles; ``None`` is a query that failed."""
    web, past = (
        HpaCycles(hpa(3, 60, 10), ASKED, Rules(age_query="")),
        kept(writes=writes),
    )
    for number, value in enumerate(values):
        subject = asked_of(web, number, value)
        judged = judge_cycle([subject], DropState(), web.rules, subject.now)
        [one] = judged.decisions
        past.note(judged, {"u1": "written"} if one.changes and writes else {}, subject.now)
        after(web, one, writes=writes)
    return show(plan_context(judged, subject.now), past.recent(), leader="me", dry_run=not writes, circuits={}), past


@pytest.mark.parametrize(("writes", "says"), [(True, "1 of 1 floor moving"), (False, "1 of 1 floor would move")])
def test_only_a_dry_run_says_what_would_be(writes: bool, says: str) -> None:
    shown, _ = shown_after([100.0, 205.0], writes=writes)
    page = shown.page()
    assert page.title == f"c: {says} · hpa-scaler"
    html = render_page(page)
    assert html.index("<h2>Reasons") < html.index(">HPAs</h2>") < html.index("<h2>About this plan")


def test_an_hpa_of_its_own_dry_run_moves_nothing() -> None:
    asked = msgspec.structs.replace(ASKED, dry_run=True)
    subject = msgspec.structs.replace(asked_of(HpaCycles(hpa(3, 60, 10), asked), 0, 205.0), asked=asked)
    judged = judge_cycle([subject], DropState(), Rules(age_query=""), NOW)
    shown = show(
        plan_context(judged),
        kept().recent(),
        leader="me",
        dry_run=False,
        circuits={},
    )
    assert judged.decisions[0].action == "raise"
    assert shown.page().title == "c: None of 1 floor moving · hpa-scaler"


def charts(page: Page) -> list[Chart]:
    return [row.chart for row in rows_of(page) if row.chart is not None]


def test_the_page_of_a_running_controller_has_each_hpa_over_time() -> None:
    shown, _ = shown_after([100.0, 205.0, None, 50.0])
    [chart] = charts(shown.page())
    lines = {series.kind: series.values for series in chart.series}
    assert chart.times == (NOW, NOW + 60, NOW + 120, NOW + 180)
    assert lines["traffic"] == (10.0, 20.5, None, 5.0)
    assert lines["floor"][:3] == (10, 21, 21)
    html = render_page(shown.page())
    assert "3 → 10" in html
    assert "since 2027-01-15T08:00:00Z it leads" in html
    assert "With --decision-log FILE all of it is kept" in html
    assert html.index("10 → 21") < html.index("3 → 10")


def test_the_status_does_not_grow_with_what_is_remembered() -> None:
    short, long = shown_after([100.0, 205.0]), shown_after([100.0, 205.0] * 50)
    assert len(long[0].json()) - len(short[0].json()) < 100
    assert len(render_page(long[0].page())) - len(render_page(short[0].page())) > 1000


def test_a_dry_run_shows_the_floor_that_would_be_set() -> None:
    shown, _ = shown_after([100.0, 205.0, 205.0, 150.0], writes=False)
    page = shown.page()
    [chart] = charts(page)
    floors = {series.name: series.values for series in chart.series}["minReplicas that would be set"]
    assert floors == (10, 21, 21, 15)
    assert "since 2027-01-15T08:00:00Z it makes a dry run" in render_page(page)


def test_a_page_has_what_was_remembered_when_it_was_shown() -> None:
    """However late it is drawn: the same page is the same for everybody who asks for it."""
    shown, past = shown_after([100.0, 205.0])
    before = render_page(shown.page())
    subject = Subject(hpa=hpa(21, 60, 10), asked=ASKED, now=NOW + 120)
    cycle = judge_cycle([subject], DropState(), Rules(), subject.now)
    past.note(cycle, {}, subject.now)
    assert render_page(shown.page()) == before
    after = show(plan_context(cycle, subject.now), past.recent(), leader="me", dry_run=False, circuits={}).page()
    assert len(charts(after)[0].times) > len(charts(shown.page())[0].times)


def test_after_the_first_cycle_there_is_no_line_to_draw_yet() -> None:
    shown, _ = shown_after([100.0])
    assert charts(shown.page()) == []
    assert "3 → 10" in render_page(shown.page())


def test_of_very_many_hpas_the_first_ones_have_what_was() -> None:
    past, many = kept(), range(CHARTED + 5)
    for number in range(2):
        now = NOW + 60 * number
        subjects = [Subject(hpa=hpa(name=f"w{each:04}", uid=f"u{each}"), asked=ASKED, now=now) for each in many]
        judged = judge_cycle(subjects, DropState(), Rules(), now)
        past.note(judged, {}, now)
    page = show(plan_context(judged), past.recent(), leader="me", dry_run=False, circuits={}).page()
    assert len(charts(page)) == CHARTED
    assert "Only the first 1,000 rows have it here." in str(page.values["past"])


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("dark", [False, True])
async def test_the_page_of_a_running_controller_in_a_browser(browser: Browser, tmp_path: Path, dark: bool) -> None:
    shown, _ = shown_after([100.0, 205.0, None, 50.0] * 30)
    url = written(tmp_path / "live.html", render_page(msgspec.structs.replace(shown.page(), refresh=0)))
    async with opened(browser, url, width=360, dark=dark) as (page, watch):
        chart = page.get_by_role("img")
        await expect(chart).to_be_hidden()
        await page.locator("#n0 summary").click()
        await expect(chart).to_be_visible()
        assert (await chart.locator(".traffic").get_attribute("d") or "").count("M") == 31
        await expect(page.get_by_role("group", name="Changes")).to_contain_text("→")
        await assert_accessible(page)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        assert (watch.said, watch.asked_for) == ([], [url])


@pytest.mark.asyncio(loop_scope="session")
async def test_the_first_hpas_are_seen_without_scrolling(browser: Browser, plan: FloorPlan, tmp_path: Path) -> None:
    """In a window of 900 pixels, with many reasons and servers, and with an alert."""
    served = kept().recent()
    circuits = {f"prometheus-{number}": "open" if number == 0 else "closed" for number in range(12)}
    subjects = [Subject(hpa=hpa(), asked=ASKED, now=NOW)]
    shown = show(
        plan_context(judge_cycle(subjects, DropState(), Rules(), NOW)),
        served,
        leader="me",
        dry_run=False,
        circuits=circuits,
    ).page()
    many = plan_page(plan, served)
    page_ = msgspec.structs.replace(shown, refresh=0, values={**shown.values, **many.values})
    url = written(tmp_path / "live.html", render_page(page_))
    async with opened(browser, url) as (page, _):
        second = await page.locator(f"{ROWS} a.name").nth(1).bounding_box()
        assert second is not None
        assert second["y"] + second["height"] < 900
        assert "prometheus-11" in await page.locator("main").inner_text()
