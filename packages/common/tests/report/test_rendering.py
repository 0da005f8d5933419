"""Renderers on documents made by hand: widths, escaping, colours, large plans, YAML."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import yaml

from tightship.cli.output import text_of
from tightship.documents.amounts import cores, memory, memory_pair
from tightship.documents.document import (
    ORDERS,
    ExcessSummary,
    NodeEntry,
    NodePlan,
    PendingSummary,
    Share,
    ShareTotals,
    sorted_nodes,
)
from tightship.documents.formats import formats_of
from tightship.documents.plan_view import PLAN
from tightship.documents.presentation import reason_words
from tightship.documents.terminal import Terminal, clean

from .plans import GIB, node, plan, refusal


def render_table(plan: NodePlan, terminal: Terminal) -> str:
    return text_of(formats_of(PLAN)["table"].render(plan, PLAN, terminal))


def render_wide(plan: NodePlan, terminal: Terminal) -> str:
    return text_of(formats_of(PLAN)["wide"].render(plan, PLAN, terminal))


def render_json(plan: NodePlan, terminal: Terminal) -> str:
    return text_of(formats_of(PLAN)["json"].render(plan, PLAN, terminal))


def render_yaml(plan: NodePlan, terminal: Terminal) -> str:
    return text_of(formats_of(PLAN)["yaml"].render(plan, PLAN, terminal))


def entry(name: str, *reasons: str, cpu: int = 2000, pool: str = "web", order: int | None = None) -> NodeEntry:
    refusals = (refusal(reason, name, f"{name} for {reason}", None) for reason in reasons)
    return node(name, *refusals, cpu=cpu, pool=pool, order=order)


LONG = "ip-10-0-101-17.eu-central-1.compute.internal.example"
REASONS = ("TooYoung", "NotSafeToEvict", "PdbExhausted", "NoPlaceTogether")


def test_a_pipe_gets_whole_names_and_three_reasons() -> None:
    text = render_table(plan(entry(LONG, *REASONS)), Terminal())
    assert LONG in text
    assert "TooYoung, NotSafeToEvict, PdbExhausted +1" in text
    assert "\x1b" not in text


def test_a_very_long_name_leaves_the_rest_of_the_table_in_sight() -> None:
    name = "ip-10-0-101-17." + "x" * 230 + ".internal"
    text = render_table(plan(entry(name, *REASONS), entry("n", order=1)), Terminal())
    rows = [line for line in text.splitlines() if "  web  " in line]
    assert max(map(len, rows)) < 200
    assert all(row.startswith(start) for row, start in zip(rows, ("ip-10-0-101-17.x", "n  "), strict=True))
    assert "x.internal  web" in rows[0]
    assert name in render_wide(plan(entry(name, *REASONS)), Terminal())


def test_a_long_resource_name_is_whole_in_the_summary() -> None:
    share = ShareTotals(Share(1, 4, 0.25), Share(1, 4, 0.25))
    found = plan(entry("n", "TooYoung"))
    summary = msgspec.structs.replace(found.summary, other={"nvidia.com/mig-1g.10gb": share})
    text = render_table(msgspec.structs.replace(found, summary=summary), Terminal())
    assert "\nmig-1g.10gb 1 of 4 nvidia.com/mig-1g.10gb requested" in text


@pytest.mark.parametrize(
    ("pods", "could", "said"),
    [
        (186, 12, "Pending    186 pods wait for a node; nodes could run 12 of them now, and the plan keeps that room"),
        (186, 0, "Pending    186 pods wait for a node, and no node could run any of them now"),
        (1, 1, "Pending    1 pod waits for a node; a node could run it now, and the plan keeps that room"),
        (1, 0, "Pending    1 pod waits for a node, and no node could run it now"),
    ],
)
def test_pods_without_a_node_are_told(pods: int, could: int, said: str) -> None:
    found = plan(entry("n", "TooYoung"))
    summary = msgspec.structs.replace(found.summary, pending=PendingSummary(pods, could))
    assert said in render_table(msgspec.structs.replace(found, summary=summary), Terminal())


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_terminal_is_never_exceeded(width: int) -> None:
    text = render_table(plan(entry(LONG, *REASONS), entry("n", order=1), warnings=("w " * 100,)), Terminal(width))
    assert max(len(line) for line in text.splitlines()) <= width
    assert "TooYoung" in text
    assert "17.eu" in text or "example" in text


def test_a_wide_terminal_has_bars_and_a_narrow_one_percentages() -> None:
    nodes = plan(entry("node-1", "TooYoung"))
    assert "██▌·······" in render_table(nodes, Terminal(200))
    narrow = render_table(nodes, Terminal(60))
    assert "█" not in narrow
    assert "25%" in narrow


def test_wide_names_every_reason_with_its_detail() -> None:
    text = render_wide(plan(entry("node-1", *REASONS)), Terminal(80))
    assert ",".join(REASONS) in text
    assert all(f"node-1 for {reason}" in text for reason in REASONS)


def test_data_never_steers_the_terminal() -> None:
    text = render_table(plan(entry("evil\x1b[2J", "TooYoung"), warnings=("\x9b31m[red]",)), Terminal(colour=False))
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "evil\\u001b[2J" in text
    assert "[red]" in text
    assert clean("übung") == "übung"


def test_without_headers_only_rows_are_left() -> None:
    for rendered in (render_table, render_wide):
        text = rendered(plan(entry("b"), entry("a")), Terminal(headers=False))
        assert [line.split()[0] for line in text.splitlines()] == ["b", "a"]


def with_excess(**given: object) -> NodePlan:
    figures = ExcessSummary(
        nodes=1.5,
        resource="memory",
        cpu=2.25,
        memory=1.5,
        candidate="small-1",
        could_go=1200,
        threshold=2.5,
        counted_nodes=1,
        cpu_milli=Share(6000, 16000, 0.375),
        memory_bytes=Share(8 * GIB, 64 * GIB, 0.125),
    )
    whole = plan(entry("n"))
    changed = msgspec.structs.replace(figures, **given)
    return msgspec.structs.replace(whole, summary=msgspec.structs.replace(whole.summary, excess=changed))


@pytest.mark.parametrize("rendered", [render_table, render_wide])
def test_what_the_cluster_could_do_without_is_in_the_summary(rendered: Any) -> None:
    lines = rendered(with_excess(), Terminal()).splitlines()
    assert (
        "Excess     1,200 nodes could go, one after another; room is free for 1.50 like small-1 "
        "(CPU 2.25, memory 1.50); the threshold is 2.5" in lines
    )
    assert "Counted    1 node: CPU 6 of 16 requested (38%), memory 8Gi of 64Gi (12%)" in lines
    assert not any(
        line.startswith(("Excess", "Counted")) for line in rendered(plan(entry("n")), Terminal()).splitlines()
    )


def test_what_is_not_known_of_the_excess_is_said_so() -> None:
    assert "room is free for 1.50 like small-1 (CPU any, memory 1.50)" in render_table(
        with_excess(cpu=None), Terminal()
    )
    nothing = with_excess(nodes=None, resource=None, cpu=None, memory=None, candidate=None, counted_nodes=0)
    assert "Excess     1,200 nodes could go, one after another, no node is counted" in render_table(nothing, Terminal())


def test_a_summary_without_an_excess_has_no_such_key() -> None:
    assert "excess" not in json.loads(render_json(plan(entry("n")), Terminal()))["summary"]
    assert "excess:" not in render_yaml(plan(entry("n")), Terminal())
    figures = json.loads(render_json(with_excess(), Terminal()))["summary"]["excess"]
    assert (figures["couldGo"], figures["countedNodes"], figures["threshold"]) == (1200, 1, 2.5)


def test_yaml_reads_back_as_json_does() -> None:
    nasty = (
        "yes",
        "1.5",
        "a: b",
        "- x",
        "#",
        "~",
        "é\u2028\x85\x7f\ufeff",
        "emoji 😀",
        "",
        "multi\nline",
        "0x1F",
        "2026-01-01",
    )
    document = plan(*(entry(text, "TooYoung", pool="null") for text in nasty), warnings=nasty)
    as_json = json.loads(render_json(document, Terminal()))
    assert yaml.safe_load(render_yaml(document, Terminal())) == as_json
    assert as_json == json.loads(msgspec.json.encode(document))


def test_a_share_of_nothing_is_a_dash_and_no_error() -> None:
    empty = msgspec.structs.replace(entry("n", "NoAllocatable"), cpu_milli=Share(100, 0, None))
    assert " - " in render_table(plan(empty), Terminal())
    assert json.loads(render_json(plan(empty), Terminal()))["nodes"][0]["cpuMilli"]["ratio"] is None


def test_orders_are_total_and_as_documented() -> None:
    nodes = (
        entry("c", cpu=100, pool="b"),
        entry("a", cpu=3000, pool="b"),
        entry("b", cpu=100, pool="a", order=2),
        entry("d", cpu=2000, pool="z", order=1),
        entry("e", cpu=50, pool="a"),
    )
    orders = {by: "".join(node.name for node in sorted_nodes(nodes[::-1], by)) for by in ORDERS}
    assert orders == {
        "decision": "dbeca",
        "name": "abcde",
        "pool": "ebcad",
        "cpu": "ebcda",
        "memory": "abcde",
        "age": "abcde",
        "price": "abcde",
    }


def test_hundreds_of_nodes_render_in_every_form() -> None:
    document = plan(*(entry(f"node-{number:05}", *REASONS) for number in range(300)))
    for rendered in (render_table, render_wide, render_json, render_yaml):
        assert rendered(document, Terminal(120)).count("node-00299") >= 1


def test_reasons_are_counted_beyond_those_named() -> None:
    assert reason_words(entry("n", *REASONS).reasons, 2) == "TooYoung, NotSafeToEvict +2"


@pytest.mark.parametrize(
    ("milli", "text"), [(0, "0"), (50, "0.05"), (250, "0.25"), (1500, "1.5"), (32000, "32"), (12345678, "12,345.7")]
)
def test_cores_are_written_as_people_do(milli: int, text: str) -> None:
    assert cores(milli) == text


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0"), (512 << 20, "512Mi"), (3 * GIB // 2, "1.5Gi"), (4 << 50, "4Pi")]
)
def test_bytes_are_written_with_a_binary_suffix(amount: int, text: str) -> None:
    assert memory(amount) == text


def test_a_pair_of_bytes_shares_its_unit_unless_one_is_tiny() -> None:
    assert memory_pair(Share(51 * GIB, 256 * GIB, 0.2)) == "51.0/256Gi"
    assert memory_pair(Share(1 << 20, 256 * GIB, 0.0)) == "1Mi/256Gi"
    assert memory_pair(Share(0, 0, None)) == "0.0/0"
