"""The command from outside: exit codes, errors, terminals, and that every setting has its flag and its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_refiner.controller import COMMANDS, REFINER, load_settings, summarize
from node_refiner.settings import RefinerSettings
from tightship.process.settings.loading import flags_of, wire, wire_keys
from tightship.process.settings.sections import DrainKeys, NodeKeys, SteeringKeys
from tightship_testkit import commands
from tightship_testkit.builders import budget, node, pod, workload

DOCS = Path(__file__).resolve().parents[3] / "docs"

RUNNING = {"drainer_enabled", "windows", "time_gap", "time_since_last_addition", "cluster_budget"}
"""What only a running refiner goes by, besides the sections of drains, health and steering."""


def removed(outcome: Any) -> list[str]:
    return [each["name"] for each in json.loads(outcome.out)["nodes"] if each["decision"] == "remove"]


def half_full(tmp_path: Path) -> Path:
    """Four equal nodes, half of whose CPU is requested."""
    items = [
        *(node(f"n{number}") for number in range(1, 5)),
        *(
            pod(f"p{number}-{each}", on=f"n{number}", cpu="1", memory="1Gi")
            for number in range(1, 5)
            for each in (1, 2)
        ),
        workload(),
        budget(status={"disruptionsAllowed": 8}),
    ]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def test_the_readmes_scenario(cli: Any, tmp_path: Path) -> None:
    file = ("-f", half_full(tmp_path), "-o", "json")
    outcome = cli("plan", *file)
    figures = json.loads(outcome.out)["summary"]["excess"]
    assert (figures["nodes"], figures["resource"], figures["couldGo"], figures["threshold"]) == (2.0, "cpu", 2, 2.0)
    assert removed(outcome) == ["n1"]
    # n1's pods would land on n2 and n3, so n4 is next.
    assert removed(cli("plan", *file, "--threshold", "1")) == ["n1", "n4"]
    assert removed(cli("plan", *file, "--threshold", "1", "--min-nodes", "3")) == ["n1"]
    assert removed(cli("plan", *file, "--threshold", "1", "--min-non-tainted-nodes", "4")) == []


def test_rounds_go_on_until_threshold_or_minimums_end_them(cli: Any, cluster: Path) -> None:
    file = ("-f", cluster, "-o", "json", "--until-stable")
    once = cli("plan", "-f", cluster, "-o", "json")
    stable = cli("plan", *file)
    assert removed(stable)[: len(removed(once))] == removed(once)
    assert json.loads(stable.out)["summary"]["excess"] == json.loads(once.out)["summary"]["excess"]


def test_a_plan_exits_with_0_and_with_2_where_asked(cli: Any, cluster: Path) -> None:
    assert cli("plan", "-f", cluster).code == 0
    assert cli("plan", "-f", cluster, "--exit-code").code == 2
    assert cli("plan", "-f", cluster, "--exit-code", "--threshold", "99").code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "usage: node-refiner"),
        (("plan", "--limit", "1"), "unrecognized arguments: --limit"),
        (("explain",), "required: NODE"),
        (("plan", "--threshold", "much", "--min-nodes", "-1"), "--threshold: 'much': "),
        (("plan", "--cpu-weight", "0", "--memory-weight", "0"), "--memory-weight: '0': cpuWeight is 0 as well"),
    ],
)
def test_wrong_usage_exits_with_64(cli: Any, arguments: tuple[str, ...], says: str) -> None:
    outcome = cli(*arguments)
    assert (outcome.code, outcome.out) == (64, "")
    assert says in outcome.err
    assert "Traceback" not in outcome.err


def test_all_problems_of_a_configuration_are_told_at_once(cli: Any, cluster: Path, tmp_path: Path) -> None:
    config = tmp_path / "cm.yaml"
    config.write_text(yaml.safe_dump({"kind": "ConfigMap", "data": {"time_gap": "soon", "minimum_node": "3"}}))
    outcome = cli("plan", "-f", cluster, "--config", config)
    assert (outcome.code, outcome.out) == (1, "")
    assert [line.split(": ")[:3] for line in outcome.err.splitlines()] == [
        ["node-refiner", str(config), "minimum_node"],
        ["node-refiner", str(config), "time_gap"],
    ]


def test_the_older_controllers_manifest_is_a_configuration(cli: Any, cluster: Path, tmp_path: Path) -> None:
    config = tmp_path / "cm.yaml"
    data = {"drainer_enabled": "false", "time_gap": "5", "minimum_nodes": "8", "excess_nodes_threshold": "1"}
    config.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "data": data}))
    outcome = cli("plan", "-f", cluster, "--config", config)
    assert (
        f"threshold 1, minimum 8 nodes and 2 untainted (from {config}); drainer disabled; strategy score" in outcome.out
    )


def test_an_unknown_node_is_named_with_near_ones(cli: Any, cluster: Path) -> None:
    outcome = cli("explain", "wep-1", "-f", cluster)
    assert outcome.code == 1
    assert outcome.err.startswith('node-refiner: node "wep-1" not found; did you mean web-1')


def test_pools_and_selectors_limit_what_may_go_and_not_what_counts(cli: Any, cluster: Path) -> None:
    file = ("-f", cluster, "-o", "json", "--threshold", "1")
    assert removed(cli("plan", *file, "--pool", "batch")) == []
    outcome = cli("plan", *file, "-l", "kubernetes.io/hostname in (web-1)")
    assert removed(outcome) == ["web-1"]
    whole = json.loads(cli("plan", *file).out)["summary"]["excess"]
    selected = json.loads(outcome.out)["summary"]["excess"]
    assert selected["countedNodes"] == whole["countedNodes"]
    assert selected["couldGo"] == 1
    assert cli("plan", *file, "--pool", "moon").code == 1


def test_output_fits_its_terminal_but_for_single_long_words(cluster: Path) -> None:
    file = ("-f", str(cluster), "--now", commands.NOW)
    runs = [
        (width, {"NO_COLOR": "1"}, [*what, *file])
        for width in (60, 80, 120, 150)
        for what in (["plan"], ["explain", "web-4", "gpu-1"])
    ]
    texts = commands.on_a_terminal("node_refiner.controller", *runs)
    assert [commands.spilled(text, width) for text, (width, _, _) in zip(texts, runs, strict=True)] == [[]] * 8


def test_an_output_without_unicode_is_ascii(cluster: Path, start: Any) -> None:
    process = start("plan", "-f", cluster, PYTHONIOENCODING="ascii")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.isascii()
    assert b"Excess " in out


def test_help_names_every_setting_and_so_does_the_documentation(cli: Any) -> None:
    outcome = cli("plan", "--help-all")
    assert outcome.code == 0
    sections = {name for section in (DrainKeys, NodeKeys, SteeringKeys) for name in section.model_fields}
    flags = flags_of(RefinerSettings)
    assert RefinerSettings.model_fields.keys() - flags.keys() == RUNNING | sections
    settings = (DOCS / "settings.md").read_text()
    for key in wire_keys(RefinerSettings).values():
        assert f"`{key}`" in settings
    for each in flags.values():
        assert each.name in outcome.out
        assert f"`{each.name}`" in settings
    assert re.search(r"\(default:[^)]*\)\s+\(default:", outcome.out) is None


def test_nothing_is_given_unless_a_flag_is() -> None:
    assert REFINER.flags_given(COMMANDS.parser().parse_args(["plan"])) == {}


def test_the_settings_of_a_document_read_back(cli: Any, cluster: Path) -> None:
    flags = {
        "disabled_rules": ["LocalStorage", "NotReplicated"],
        "settle": "90s",
        "time_gap": "7m",
        "cluster_budget": "10%",
        "hold_off": "0",
    }
    settings = REFINER.planned(None, {}, flags)
    plain: Any = json.loads(json.dumps(wire(settings)))
    assert (plain["settleTime"], plain["clusterCoolDownAfterDrain"], plain["holdOff"]) == ("1m30s", "7m", "0")
    assert load_settings(plain) == settings
    shown = json.loads(cli("plan", "-f", cluster, "-o", "json").out)["settings"]["values"]
    assert load_settings(shown) == RefinerSettings()


def test_the_summary_says_what_shapes_the_plan() -> None:
    settings = load_settings(
        {"cpuWeight": 1, "memoryWeight": 1, "maximumNodesInPlan": 3, "disabledRules": ["LocalStorage"]}
    )
    assert summarize(settings, "c.yaml") == (
        "threshold 2, minimum 2 nodes and 2 untainted (from c.yaml); weights 1 CPU, 1 memory; at most 3 removals; "
        "without LocalStorage"
    )


def test_explain_says_what_a_sibling_has_written(cli: Any, tmp_path: Path) -> None:
    mark = {"v": 1, "phase": "Marked", "controller": "node-compactor", "since": {"Marked": "2026-03-01T00:00:00.000Z"}}
    soft = [{"key": "tightship.dev/candidate", "value": "node-compactor", "effect": "PreferNoSchedule"}]
    path = tmp_path / "cluster.json"
    items = [node("n1", notes={"tightship.dev/drain": json.dumps(mark)}, taints=soft), node("n2"), node("n3")]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    text = cli("explain", "n1", "-f", path).out
    assert "after a drain; at most 1 out at once (0 are now)" in text
    assert "mark       marked underutilized by node-compactor since 2026-03-01T00:00:00Z; no obstacle" in text
    assert "steering   node-compactor would take it soon too; no obstacle" in text
    assert "Decision  remove #1 of 1" in text
    assert "steering" not in cli("explain", "n2", "-f", path).out


def test_version_names_the_program(cli: Any) -> None:
    outcome = cli("version")
    assert outcome.code == 0
    assert outcome.out.startswith("node-refiner 0.")
