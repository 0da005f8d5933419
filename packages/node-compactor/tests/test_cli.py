"""The command from outside: exit codes, what goes to stdout and what to stderr, errors in one line each."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from node_compactor.settings import CompactorSettings, CoolDownKeys, PoolSettings
from tightship.process.settings.loading import flags_of, wire_keys
from tightship.process.settings.sections import DrainKeys, NodeKeys, SteeringKeys
from tightship_testkit import commands, manifests
from tightship_testkit.builders import NOW, node, pod, single_replica, when, workload
from tightship_testkit.cases import AT, NODES

SETTINGS = Path(__file__).resolve().parents[3] / "docs" / "settings.md"


def removed(outcome: Any) -> list[str]:
    return [node["name"] for node in json.loads(outcome.out)["nodes"] if node["decision"] == "remove"]


def test_a_plan_exits_with_0_and_with_2_where_asked(cli: Any, data: Path) -> None:
    assert cli("plan", "-f", data / "cluster.yaml").code == 0
    assert cli("plan", "-f", data / "cluster.yaml", "--exit-code").code == 2
    assert cli("plan", "-f", data / "cluster.yaml", "--exit-code", "--limit", "0").code == 0


def test_a_file_may_come_from_standard_input_or_be_compressed(data: Path, tmp_path: Path, start: Any, cli: Any) -> None:
    raw = (data / "cluster.yaml").read_bytes()
    packed = tmp_path / "cluster.json.gz"
    packed.write_bytes(gzip.compress(raw))
    direct = json.loads(cli("plan", "-f", data / "cluster.yaml", "-o", "json").out)
    compressed = json.loads(cli("plan", "-f", packed, "-o", "json").out)
    process = start("plan", "-f", "-", "-o", "json", "--now", "2026-03-10T00:00:00Z")
    out, err = process.communicate(raw, timeout=60)
    piped = json.loads(out)
    assert (process.returncode, err) == (0, b"")
    assert piped["source"] == {"type": "file", "name": "-"}
    assert {**direct, "source": 0} == {**compressed, "source": 0} == {**piped, "source": 0}


def test_every_problem_of_a_malformed_file_is_one_line(cli: Any, tmp_path: Path) -> None:
    bad = {"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": "none"}}
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"kind": "List", "items": [bad, {**bad, "metadata": {"name": "q", "namespace": "n"}}]}))
    outcome = cli("plan", "-f", path)
    assert (outcome.code, outcome.out) == (1, "")
    lines = outcome.err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"node-compactor: {path}: Pod n/") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "usage: node-compactor"),
        (("plan", "--nonsense"), "unrecognized arguments: --nonsense"),
        (("plan", "-o", "pdf"), "invalid choice: 'pdf'"),
        (("explain",), "required: NODE"),
        (("plan", "-f", "x", "--context", "y"), "give only one"),
        (("plan", "-l", "a in b"), "selector 'a in b': 'a in b' is not a requirement; allowed are"),
        (("plan", "--now", "yesterday"), "'yesterday' is not a time; allowed is RFC 3339"),
        (("plan", "--limit", "much", "--budget", "x%"), "--limit: 'much': "),
        (("plan", "--search", "-1s"), "--search: '-1s' is not a duration; allowed is"),
        (("plan", "--evictions", "0"), "--evictions: '0' is no number of evictions; allowed is a whole number from 1"),
        (
            ("plan", "--evictions", "-3"),
            "--evictions: '-3' is no number of evictions; allowed is",
        ),
        (("plan", "--evictions", "1.5"), "--evictions: '1.5' is no number of evictions; allowed is"),
        (("plan", "--evictions", "5", "--frontier"), "--frontier and --evictions don't go together; allowed is one"),
        (("plan", "--evictions", "5", "--search", "1s"), "--evictions and --search don't go together; allowed is one"),
        (("plan", "--frontier", "--until-stable"), "--frontier and --until-stable don't go together; allowed is one"),
        (("plan", "--frontier", "--placement", "likely"), "--frontier goes with --placement possible only"),
        (("plan", "--frontier", "-o", "csv"), "--frontier has no output 'csv'; allowed are table, json, yaml, html"),
        (("plan", "--search", "abc"), "--search: 'abc' is not a duration; allowed is"),
        (("plan", "--search", "1s", "--placement", "likely"), "--search goes with --placement possible only"),
    ],
)
def test_wrong_usage_exits_with_64(cli: Any, arguments: tuple[str, ...], says: str) -> None:
    outcome = cli(*arguments)
    assert (outcome.code, outcome.out) == (64, "")
    assert says in outcome.err
    assert "Traceback" not in outcome.err


def test_a_missing_file_is_one_line(cli: Any) -> None:
    outcome = cli("plan", "-f", "/nowhere/cluster.json")
    assert outcome.code == 1
    assert outcome.err == "node-compactor: /nowhere/cluster.json: No such file or directory\n"


def test_an_unknown_context_is_one_line(cli: Any, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        json.dumps({"apiVersion": "v1", "kind": "Config", "contexts": [], "clusters": [], "users": []})
    )
    outcome = cli("plan", "--kubeconfig", kubeconfig, "--context", "elsewhere")
    assert (outcome.code, outcome.out) == (1, "")
    assert len(outcome.err.splitlines()) == 1
    assert "elsewhere" in outcome.err


def test_an_unknown_node_is_named_with_near_ones(cli: Any, data: Path) -> None:
    outcome = cli("explain", "wep-1", "moon", "-f", data / "cluster.yaml")
    assert outcome.code == 1
    first, second = outcome.err.splitlines()
    assert first.startswith('node-compactor: node "wep-1" not found; did you mean web-1')
    assert second == 'node-compactor: node "moon" not found'


def test_a_defect_is_one_line(cli: Any, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightship.cli.commands.evaluate", lambda *_, **__: 1 / 0)
    outcome = cli("plan", "-f", data / "cluster.yaml")
    assert outcome.code == 1
    assert outcome.err == (
        "node-compactor: unexpected ZeroDivisionError: division by zero (the traceback: --log-level debug)\n"
    )


EVERY = ("--limit", "1.99", "--required-count", "0", "--advice-time", "0")


def test_a_frontier_has_plans_with_more_and_more_nodes(cli: Any, data: Path) -> None:
    shown = ("plan", "-f", data / "cluster.yaml", "--frontier", *EVERY)
    outcome = cli(*shown, "-o", "json")
    assert outcome.code == 0
    document = json.loads(outcome.out)
    points = document["points"]
    assert (document["kind"], document["placement"], document["nodes"]) == ("NodeFrontier", "possible", 9)
    assert [each["removed"] for each in points] == sorted({each["removed"] for each in points})
    assert points
    assert all(each["removed"] + each["nodesAfter"] == 9 for each in points)
    assert all(0 <= each["least"] <= each["evictions"] for each in points)
    text = cli(*shown).out
    assert "KEPT  REMOVED  EVICTIONS  PROVEN  FOR ONE MORE  SAVED A MONTH" in text
    page = cli(*shown, "-o", "html").out
    assert page.count("<circle") == len(points)
    assert cli(*shown, "--exit-code").code == 2


def test_a_frontier_counts_machines_as_the_plan_does(cli: Any) -> None:
    """A virtual kubelet (kubernetes/autoscaler#3151) is no node that is kept."""
    file = ("-f", NODES / "03a-virtual-kubelet-busy.json", "--now", AT, "-o", "json")
    found = json.loads(cli("plan", "--frontier", *file).out)
    [point] = found["points"]
    counted = json.loads(cli("plan", *file).out)["summary"]["nodes"]
    assert (found["nodes"], point["nodesAfter"]) == (counted["before"], counted["after"]) == (2, 1)


def test_a_plan_takes_no_more_evictions_than_allowed(cli: Any, data: Path) -> None:
    file = ("plan", "-f", data / "cluster.yaml", *EVERY, "-o", "json")
    most = json.loads(cli(*file, "--placement", "possible").out)["summary"]
    assert most["evictions"] > 1
    few = json.loads(cli(*file, "--evictions", "1").out)
    assert few["summary"]["evictions"] <= 1
    assert few["summary"]["nodes"]["removed"] >= 1
    assert "MaxEvictionsReached" in {reason for node in few["nodes"] for reason in node["reasons"]}
    many = json.loads(cli(*file, "--evictions", "1000").out)["summary"]
    assert many["nodes"]["removed"] >= most["nodes"]["removed"]


def test_a_searched_plan_says_so_and_chooses_places(cli: Any, data: Path) -> None:
    file = ("plan", "-f", data / "cluster.yaml", "--search", "500ms")
    document = json.loads(cli(*file, "-o", "json").out)
    greedy = json.loads(cli("plan", "-f", data / "cluster.yaml", "-o", "json", "--placement", "possible").out)
    reported = document["summary"]["search"]
    before = greedy["summary"]
    assert document["placement"] == "possible"
    assert reported["seconds"] == 0.5
    assert reported["greedy"] == {"nodesAfter": before["nodes"]["after"], "evictions": before["evictions"]}
    assert reported["searched"]["nodesAfter"] == document["summary"]["nodes"]["after"] <= before["nodes"]["after"]
    assert reported["searched"]["evictions"] == document["summary"]["evictions"]
    assert reported["bound"] <= reported["searched"]["nodesAfter"]
    assert "search" not in before
    table = cli(*file).out
    assert re.search(r"^Searched   for 0\.5 s, [\d,]+ iterations?: \d+ → \d+ nodes stay, ", table, re.MULTILINE)


def test_a_configuration_has_plans_searched_where_places_are_chosen(cli: Any, data: Path, tmp_path: Path) -> None:
    pools = {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75}}
    file, config = ("plan", "-f", data / "cluster.yaml", "-o", "json"), tmp_path / "config.json"

    def search(placement: str, *flags: str) -> Any:
        config.write_text(json.dumps({"nodePools": pools, "search": "200ms", "placement": placement}))
        return json.loads(cli(*file, "--config", config, *flags).out)["summary"].get("search")

    assert search("possible")["seconds"] == 0.2
    assert search("likely") is None
    assert search("possible", "--search", "0") is None
    assert search("likely", "--search", "100ms")["seconds"] == 0.1


def test_pools_and_selectors_limit_what_may_go(cli: Any, data: Path) -> None:
    file = ("-f", data / "cluster.yaml", "-o", "json", "--placement", "possible")
    assert set(removed(cli("plan", *file))) == {"web-1", "web-5"}
    assert removed(cli("plan", *file, "--pool", "batch")) == []
    assert removed(cli("plan", *file, "-l", "kubernetes.io/hostname in (web-5, web-3)")) == ["web-5"]
    outcome = cli("plan", *file, "--pool", "moon")
    assert outcome.code == 1
    assert 'no node is in pool "moon"; the pools are batch, control, gpu, web' in outcome.err
    document = json.loads(cli("plan", *file, "-l", "no=where").out)
    assert sum(node["reasons"].count("NotSelected") for node in document["nodes"]) == 9
    assert document["warnings"][0].startswith("--selector and --pool select no node")


def test_rows_alone_go_to_stdout_without_headers(cli: Any, data: Path, tmp_path: Path) -> None:
    text = (data / "cluster.yaml").read_text().replace("kind: PodDisruptionBudget", "kind: Nothing")
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    outcome = cli("plan", "-f", file, "--no-headers", "--sort-by", "name")
    names = [line.split()[0] for line in outcome.out.splitlines()]
    assert names == sorted(names)
    assert len(names) == 9
    warned = "node-compactor: warning: PodDisruptionBudgets are not in the file: evictions they forbid are not seen"
    assert warned in outcome.err.splitlines()


def test_a_file_is_judged_as_of_its_own_newest_time(tmp_path: Path, start: Any) -> None:
    path = tmp_path / "cluster.json"
    made = {"name": "old", "creationTimestamp": "2026-01-01T00:00:00Z"}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": made}))
    process = start("plan", "-f", path, "-o", "json")
    out, _ = process.communicate(timeout=60)
    assert json.loads(out)["evaluatedAt"] == "2026-01-01T00:00:00Z"


def test_an_output_without_unicode_is_ascii(data: Path, start: Any) -> None:
    process = start("plan", "-f", data / "cluster.yaml", PYTHONIOENCODING="ascii")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.isascii()
    assert b"#" in out
    assert b"->" in out


def test_a_reader_that_leaves_early_is_no_error(data: Path, start: Any) -> None:
    process = start("plan", "-f", data / "cluster.yaml", "-o", "json")
    process.stdout.close()
    process.stdin.close()
    err = process.stderr.read()
    assert process.wait(60) == 141
    assert err == b""
    process.stderr.close()


def test_an_interrupt_exits_with_130_and_says_nothing(start: Any) -> None:
    process = start("plan", "-f", "-")
    fd = process.stdin.fileno()
    os.write(fd, b"{")
    deadline = time.monotonic() + 60
    # Interrupt once it reads: before that Python itself is still starting, and would complain.
    while Path(f"/proc/{process.pid}/wchan").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{process.pid}/wchan").read_text() in ("pipe_read", "anon_pipe_read"):
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")


def test_output_fits_its_terminal_but_for_single_long_words_and_has_colour_where_it_is_wanted(data: Path) -> None:
    file = ("-f", str(data / "cluster.yaml"), "--now", commands.NOW)
    colours = [(120, {"TERM": term}, ["plan", *file]) for term in ("xterm", "dumb")]
    plain = [
        (width, {"NO_COLOR": "1", "TERM": "xterm"}, [*what, *file])
        for width in (60, 80, 120)
        for what in (["plan"], ["explain", "web-2", "gpu-1"])
    ]
    coloured, dumb, *texts = commands.on_a_terminal("node_compactor.controller", *colours, *plain)
    assert "\x1b[" in coloured
    assert "\x1b[" not in dumb
    assert [commands.spilled(text, width) for text, (width, _, _) in zip(texts, plain, strict=True)] == [[]] * 6


def test_help_names_every_setting_and_so_does_the_documentation(cli: Any) -> None:
    outcome = cli("plan", "--help-all")
    assert outcome.code == 0
    flags = flags_of(PoolSettings) | flags_of(CompactorSettings)
    running = [name for section in (DrainKeys, CoolDownKeys, NodeKeys, SteeringKeys) for name in section.model_fields]
    only_in_the_file = {"pools", "enabled", "windows", *running}
    fields = set(CompactorSettings.model_fields) | set(PoolSettings.model_fields)
    assert fields - flags.keys() == only_in_the_file
    text = SETTINGS.read_text()
    for each in flags.values():
        assert each.name in outcome.out
        assert f"`{each.name}`" in text
    assert re.search(r"\(default:[^)]*\)\s+\(default:", outcome.out) is None
    for key in (*wire_keys(CompactorSettings).values(), *wire_keys(PoolSettings).values()):
        assert f"`{key}`" in text or f".{key}`" in text or f"`{key}." in text


def test_version_names_the_program(cli: Any) -> None:
    outcome = cli("version")
    assert outcome.code == 0
    assert outcome.out.startswith("node-compactor 0.")


def test_nothing_is_given_unless_a_flag_is() -> None:
    from node_compactor.controller import COMMANDS, COMPACTOR

    assert COMPACTOR.flags_given(COMMANDS.parser().parse_args(["plan"])) == {}


def test_a_node_that_a_plan_has_filled_says_so(cli: Any, tmp_path: Path) -> None:
    halves = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1950m"}}}]
    pods = [
        manifests.pod(f"p{name}", name, manifests.owner("ReplicaSet", "web"), containers=halves) for name in ("a", "b")
    ]
    path = tmp_path / "two.json"
    path.write_text(json.dumps(manifests.as_list(manifests.node("a"), manifests.node("b"), *pods)))
    plan = json.loads(cli("plan", "-f", path, "--until-stable", "--limit", "0.9", "-o", "json").out)
    [kept] = [each for each in plan["nodes"] if each["decision"] == "keep"]
    [why] = [each["detail"] for each in kept["refusals"] if each["reason"] == "FilledByPlan"]
    assert kept["cpuMilli"]["ratio"] == 0.5
    assert why == "with the pods of nodes planned before, CPU requests are 1.000 of allocatable, the limit is 0.9"


def test_the_help_of_explain_leaves_the_flags_of_plan_to_the_help_of_plan(cli: Any) -> None:
    reported = cli("explain", "--help").out
    assert "--limit" not in reported
    assert "those of `node-compactor plan`" in " ".join(reported.split())
    assert "--filename" in reported
    assert "--limit" in cli("plan", "--help").out


def test_explain_says_once_why_pods_that_lack_the_same_fit_nowhere(cli: Any, tmp_path: Path) -> None:
    items = [node(name, allocatable={"cpu": "4", "memory": "8Gi", "pods": "110"}) for name in ("n1", "n2")] + [
        workload()
    ]
    items += [pod(f"web-{number}", on="n1", cpu="1500m") for number in range(2)] + [pod("big", on="n2", cpu="3")]
    (tmp_path / "cluster.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    detail = " ".join(cli("explain", "-f", tmp_path / "cluster.json", "n1").out.split())
    assert detail.count("fits on 0 of 2 nodes: 1 insufficient cpu, 1 not receiving pods") == 1
    assert "NoPlace as shop/web-0" in detail


def test_a_plan_shows_what_make_before_break_would_move_if_deployments_are_in_the_file(
    cli: Any, tmp_path: Path
) -> None:
    *cluster, deployment = single_replica()
    config = tmp_path / "config.json"
    pool = {"enabled": True, "scaleDownCPURequestRatioLimit": 1}
    config.write_text(json.dumps({"nodePools": {"*": pool}, "makeBeforeBreak": "all"}))
    found = {}
    for name, items in (("with", [*cluster, deployment]), ("without", cluster)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        found[name] = removed(cli("plan", "-f", path, "--config", config, "-o", "json", "--now", when(NOW)))
    assert found == {"with": ["a"], "without": []}
