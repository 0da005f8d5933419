"""What is shown of a pass, as JSON and as a page."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tightship.consolidation.status import Remarks, Situation, Status, nothing_yet, show
from tightship.drain_record import DRAIN_ANNOTATION, DrainRecord, Phase, encode_record
from tightship.reasons import Reason, Refusal
from tightship.report import Generator
from tightship.runtime.page import Fact, Page
from tightship_e2e.making import NOW, node, snapshot

from .toy import NAME, ToyDecision, decide, parse

Json = dict[str, Any]
PLAIN = Situation(
    generator=Generator(NAME, "0.7"),
    kind="ToyStatus",
    cluster="https://c",
    leader="me",
    dry_run=False,
    switched_off=False,
)
SICK = Refusal(Reason.CLUSTER_UNHEALTHY, "cluster", "why")


def decision(unhealthy: Refusal | None = None, **data: str) -> ToyDecision:
    since = {"Claimed": NOW - 90, "Evicting": NOW - 60}
    drain = DrainRecord(phase=Phase.EVICTING, controller="node-sibling", op="x", since=since, deadline=NOW, reason="r")
    mark = DrainRecord(phase=Phase.MARKED, controller=NAME, since={"Marked": NOW})
    cluster = snapshot(
        node("n1"),
        node("n2", notes={DRAIN_ANNOTATION: encode_record(drain)}),
        node("n3", notes={DRAIN_ANNOTATION: encode_record(mark)}),
    )
    return decide(cluster, parse({"goes": "n1", **data}), NOW, finished=(), unhealthy=unhealthy)


def shown(found: ToyDecision, remarks: Remarks = Remarks(), **changed: Any) -> tuple[Json, Page]:
    made = show(found, msgspec.structs.replace(PLAIN, **changed), remarks)
    return json.loads(made.json), made.page


def test_the_status_has_the_controllers_kind_and_always_the_same_fields() -> None:
    status, _ = shown(decision())
    fields = [each.encode_name for each in msgspec.structs.fields(Status)]
    assert list(status) == [name for name in fields if name != "switchedOff"]
    assert (status["apiVersion"], status["kind"]) == ("tightship.dev/v1", "ToyStatus")
    assert (status["leader"], status["dryRun"], status["unhealthy"]) == ("me", False, None)
    assert status["plan"]["generator"] == {"name": NAME, "version": "0.7"}
    assert status["plan"]["settings"]["summary"] == "as it is told"


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
    assert page.sections[0].table is not None
    assert [row[0] for row in page.sections[0].table.rows] == ["n2"]


def test_what_planned_nodes_wait_for() -> None:
    status, page = shown(decision(held="n1"))
    assert status["held"]["n1"]["reason"] == "CoolDown"
    assert Fact("held back", "1", "warn") in page.facts
    status, page = shown(decision(SICK))
    assert (status["unhealthy"]["reason"], status["unhealthy"]["detail"]) == ("ClusterUnhealthy", "why")
    assert page.alerts == ("ClusterUnhealthy: why",)


def test_that_nothing_is_done_is_told_on_top() -> None:
    status, page = shown(decision(SICK), dry_run=True, switched_off=True)
    assert (status["dryRun"], status["switchedOff"]) == (True, True)
    assert page.alerts == (
        "ClusterUnhealthy: why",
        "Dry run: nothing is changed.",
        "Switched off: what is under way is finished, nothing new is begun.",
    )


def test_a_controller_adds_figures_and_alerts() -> None:
    _, page = shown(decision(SICK), Remarks((Fact("excess", "1.7"),), ("Look out.",)))
    assert page.title == NAME
    assert page.facts[-1] == Fact("excess", "1.7")
    assert page.alerts == ("ClusterUnhealthy: why", "Look out.")


def test_before_the_first_pass() -> None:
    made = nothing_yet(NAME, "ToyStatus")
    assert made.json == b'{"apiVersion":"tightship.dev/v1","kind":"ToyStatus","plan":null}\n'
    assert (made.page.title, made.page.alerts) == (NAME, ("No pass has been made yet.",))
