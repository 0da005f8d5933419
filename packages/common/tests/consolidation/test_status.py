"""What is shown of a pass, as JSON and as a page."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.async_api import Browser

from tightship.documents.advice import AdviceEntry, AdviceSummary, ChangeEntry, GainEntry
from tightship.documents.document import Generator, SettingsView
from tightship.documents.html.page import Page, render_page
from tightship.nodes.background import MeasuredAdvice
from tightship.nodes.status import Situation, Status, nothing_yet, show
from tightship.objects.drain_record import DRAIN_ANNOTATION, DrainRecord, Finished, Phase, encode_record
from tightship.objects.money import HOURLY_PRICE
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.evaluate import Evaluation, evaluate
from tightship.process.settings.live import Notice, Standing, deleted, refused
from tightship_testkit.accessibility import assert_accessible_in_every_way
from tightship_testkit.builders import NOW, node, snapshot

from .toy import NAME, ToyJudge, parse

Json = dict[str, Any]
PLAIN = Situation(
    generator=Generator(NAME, "0.7"),
    settings=SettingsView("as it is told", {"goes": "n1"}),
    kind="ToyStatus",
    cluster="https://c",
    leader="me",
    dry_run=False,
    switched_off=False,
)
SICK = Refusal(Reason.CLUSTER_UNHEALTHY, "cluster", "why")


def decision(unhealthy: Refusal | None = None, **data: str) -> Evaluation:
    since = {"Claimed": NOW - 90, "Evicting": NOW - 60}
    drain = DrainRecord(phase=Phase.EVICTING, controller="node-sibling", op="x", since=since, deadline=NOW, reason="r")
    mark = DrainRecord(phase=Phase.MARKED, controller=NAME, since={"Marked": NOW})
    cluster = snapshot(
        node("n1"),
        node("n2", notes={DRAIN_ANNOTATION: encode_record(drain)}),
        node("n3", notes={DRAIN_ANNOTATION: encode_record(mark)}),
    )
    found = evaluate(cluster, ToyJudge(parse({"goes": "n1", **data})), NOW)
    return msgspec.structs.replace(found, unhealthy=unhealthy)


def shown(found: Evaluation, **changed: Any) -> tuple[Json, Page]:
    made = show(found, msgspec.structs.replace(PLAIN, **changed))
    return json.loads(made.json()), made.page()


def table(page: Page, heading: str) -> list[list[str]]:
    """The rows under *heading*, as texts."""
    part = render_page(page).partition(f"<h3>{heading}</h3>")[2].partition("</table>")[0].partition("<tbody>")[2]
    return [[text(cell) for cell in re.findall("<td.*?</td>", row)] for row in re.findall("<tr>.*?</tr>", part)]


def text(html: str) -> str:
    return unescape(re.sub("<[^>]*>", "", html))


def figures(page: Page) -> dict[str, str]:
    told = page.values["figures"]
    assert isinstance(told, tuple)
    return dict(told)


def test_the_status_has_the_controllers_kind_and_always_the_same_fields() -> None:
    status, _ = shown(decision())
    fields = [each.encode_name for each in msgspec.structs.fields(Status)]
    assert list(status) == [
        name
        for name in fields
        if name
        not in (
            "switchedOff",
            "finishing",
            "hindrance",
            "ended",
            "saved",
            "landings",
            "installations",
            "problems",
            "search",
        )
    ]
    assert (status["apiVersion"], status["kind"], status["cluster"]) == ("tightship.dev/v1", "ToyStatus", "https://c")
    assert (status["leader"], status["dryRun"], status["unhealthy"]) == ("me", False, None)
    assert status["plan"]["generator"] == {"name": NAME, "version": "0.7"}
    assert status["plan"]["settings"]["summary"] == "as it is told"


def test_a_pass_is_told_in_money() -> None:
    priced = snapshot(node("n1", notes={HOURLY_PRICE: "0.5"}), node("n2", notes={HOURLY_PRICE: "1"}), node("n3"))
    status, page = shown(evaluate(priced, ToyJudge(parse({"goes": "n1"})), NOW))
    reported = status["plan"]["summary"]["money"]
    assert reported["microsPerMonth"] == {"before": 1_095_000_000, "after": 730_000_000, "saved": 365_000_000}
    assert (reported["currency"], reported["priced"], reported["unpriced"]) == ("USD", 2, 1)
    html = text(render_page(page))
    assert "saved now$0.5 an hour$365 of $1,095 a month, if it lasts; 1 node without a price" in html
    assert page.title == f"https://c: $0.5 an hour, 1 of 3 nodes · {NAME}"


def test_nodes_in_drain_whoevers_they_are_and_no_others() -> None:
    status, page = shown(decision())
    [drain] = status["inDrain"]
    assert (drain["node"], drain["controller"], drain["phase"], drain["reason"]) == (
        "n2",
        "node-sibling",
        "Evicting",
        "r",
    )
    assert drain["since"] < drain["deadline"]
    assert drain["podsLeft"] == []
    [row] = table(page, "In drain")
    assert (row[0], row[2]) == ("n2", "Evicting")
    assert figures(page)["in drain"] == "1 node of all controllers"


def test_drains_that_ended_lately_the_newest_first() -> None:
    ended = [
        Finished(
            node=f"n{number}",
            pool="web",
            controller="node-sibling",
            ending="restored",
            at=NOW - 60 + number,
            reason="why",
        )
        for number in (1, 2)
    ]
    status, page = shown(decision(), finished=ended)
    assert [each["node"] for each in status["ended"]] == ["n2", "n1"]
    assert (status["ended"][0]["ending"], status["ended"][0]["reason"]) == ("restored", "why")
    assert [row[0] for row in table(page, "Last drains")] == ["n2", "n1"]


def test_of_many_drains_that_ended_the_page_shows_the_newest() -> None:
    ended = [
        Finished(
            node=f"n{number}",
            pool="web",
            controller="node-sibling",
            ending="handed_over",
            at=NOW - 60 + number,
            reason="",
        )
        for number in range(30)
    ]
    status, page = shown(decision(), finished=ended)
    assert len(status["ended"]) == 30
    lately = table(page, "Last drains")
    assert [row[0] for row in lately][::9] == ["n29", "n20"]
    assert lately[0][2] == "handed over"
    assert "The newest; /status has 20 more." in text(render_page(page))


@pytest.mark.parametrize(
    "notice",
    [
        refused(Standing.LAST_GOOD, ("limit: -1 is too small", "age: -2 is too small")),
        deleted(Standing.OFF, "ConfigMap here/ours"),
    ],
    ids=["refused", "deleted"],
)
def test_what_became_of_the_configuration_is_told_on_top_in_its_own_words(notice: Notice) -> None:
    status, page = shown(decision(), problems=notice.sentences)
    assert tuple(status["problems"]) == notice.sentences
    assert page.alerts[: len(notice.sentences)] == notice.sentences


def test_what_planned_nodes_wait_for() -> None:
    status, page = shown(decision(held="n1"))
    assert status["held"]["n1"]["reason"] == "CoolDown"
    assert figures(page)["held back"] == "1 node planned, and waiting"
    assert [row[:2] for row in table(page, "Held back")] == [["n1", "CoolDown"]]
    assert "<small>waits: CoolDown" in render_page(page)
    status, page = shown(decision(SICK))
    assert (status["unhealthy"]["reason"], status["unhealthy"]["detail"]) == ("ClusterUnhealthy", "why")
    assert page.alerts[0] == "ClusterUnhealthy: why"


def test_that_nothing_is_done_is_told_on_top() -> None:
    status, page = shown(decision(SICK), dry_run=True, switched_off=True)
    assert (status["dryRun"], status["switchedOff"]) == (True, True)
    assert page.alerts[:3] == (
        "ClusterUnhealthy: why",
        "Dry run: nothing is changed.",
        "Switched off: drains under way end, and no new drain begins.",
    )


def test_a_controller_adds_figures() -> None:
    _, page = shown(decision(SICK), figures=(("excess", "1.7"),))
    assert page.title == f"https://c: 1 of 3 nodes would go · {NAME}"
    assert figures(page)["excess"] == "1.7"
    assert page.alerts[0] == "ClusterUnhealthy: why"


@pytest.mark.asyncio(loop_scope="session")
async def test_a_page_with_all_that_it_may_have_is_for_everybody(browser: Browser, tmp_path: Path) -> None:
    ended = [
        Finished(
            node=f"n{number}",
            pool="web",
            controller="node-sibling",
            ending="restored",
            at=NOW - 60 + number,
            reason="why",
        )
        for number in range(30)
    ]
    notice = deleted(Standing.OFF, "ConfigMap here/ours")
    _, page = shown(
        decision(SICK, held="n1"),
        figures=(("excess", "1.7"),),
        finished=ended, problems=notice.sentences, dry_run=True, switched_off=True,
    )  # fmt: skip
    file = tmp_path / "page.html"
    # Nothing answers a file: it would be called old after its first minute.
    file.write_text(render_page(msgspec.structs.replace(page, refresh=0)))
    await assert_accessible_in_every_way(browser, file.as_uri())


def test_nothing_that_is_never_filled_is_shown() -> None:
    """A dry run has no leader, and a pass measures no advice by itself."""
    _, page = shown(decision(), leader="", dry_run=True)
    html = render_page(page)
    for word in ("leader", "More without it", "What would free nodes", "Last drains", "Held back"):
        assert word not in html.partition("<header")[2].partition("<script>")[0]
    assert ", leader me</p>" in render_page(shown(decision())[1])


def test_the_advice_that_was_measured_is_on_the_page_with_its_time() -> None:
    made = show(decision(), PLAIN)
    kept = {each["reason"] for each in json.loads(made.json())["plan"]["summary"]["keptBy"]}
    piece = AdviceEntry(GainEntry(2, None), (ChangeEntry("NoPlace", "shop/x", None),), ("kubectl x",), None, (), ())
    advice = AdviceSummary(10.0, 1, 0, (piece,), None, ())
    told = render_page(
        made.page(MeasuredAdvice("2027-01-15T08:00:00Z", advice, {next(iter(kept)): GainEntry(2, None)}))
    )
    assert "Measured at 2027-01-15T08:00:00Z." in told
    assert "<code>kubectl x</code>" in told
    assert "More without it" in told
    assert '<td class="number">2 nodes</td>' in told


def test_before_the_first_pass() -> None:
    made = nothing_yet(NAME, "ToyStatus", "prod")
    assert made.json() == b'{"apiVersion":"tightship.dev/v1","kind":"ToyStatus","cluster":"prod","plan":null}\n'
    assert (made.page().title, made.page().alerts) == (f"prod · {NAME}", ("No pass has run yet.",))
