"""What people read of a plan: the decision first, on one screen at any size, and no line that contradicts another."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from node_compactor.advice import CompactorChanges
from node_compactor.controller import EVERY_POOL
from node_compactor.settings import load_settings
from tightship.advice.adviser import Adviser, Standing
from tightship.advice.catalogue import Catalogue
from tightship.cli.snapshot_file import read_file
from tightship.documents.advice import AdviceEntry, AdviceSummary, ChangeEntry, GainEntry, advice_lines
from tightship.documents.document import NodePlan
from tightship.documents.formats import formats_of
from tightship.documents.plan_view import PLAN
from tightship.documents.presentation import LABEL
from tightship.documents.terminal import Terminal, length
from tightship.planning.changes import Change, Scenario, TimeLimit
from tightship.planning.evaluate import Evaluation, evaluate
from tightship_simulator.generate import off_peak_cluster
from tightship_simulator.random_clusters import random_cluster

NOW = 1_795_143_600.0
FLEET_TIME = "2026-11-20T03:00:00Z"
DEFAULT = {
    "nodePools": EVERY_POOL,
    "utilization": "dominant",
    "minimumNodeAge": 0,
    "neededMarkedTimeForRemoval": 0,
}
QUICK = ("--now", FLEET_TIME, "--advice-time", "0")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    folder = tmp_path_factory.mktemp("fleets")

    def made(nodes: int, seed: int = 7) -> Path:
        path = folder / f"{nodes}.{seed}.json"
        if not path.exists():
            path.write_bytes(msgspec.json.encode(off_peak_cluster(seed, nodes)))
        return path

    return made


# -- on one screen


def test_from_a_hundred_nodes_on_a_plan_is_a_summary_that_names_ten_blockers(cli: Any, fleet: Any) -> None:
    told = cli("plan", "-f", fleet(300), *QUICK).out
    lines = told.splitlines()
    assert len(lines) <= 60
    assert max(map(length, lines)) <= 80
    at = next(number for number, line in enumerate(lines) if line.startswith("What keeps the rest"))
    blockers = lines[at + 2 : at + 12]
    document = json.loads(cli("plan", "-f", fleet(300), *QUICK, "-o", "json").out)
    for line, each in zip(blockers, document["summary"]["blockers"][:10], strict=True):
        assert each["thing"].startswith(line.split("  ")[1].strip().partition("…")[0])
    assert "more removals (--show removals" in told
    assert len(cli("plan", "-f", fleet(300), *QUICK, "-o", "table").out.splitlines()) > 300
    assert len(cli("plan", "-f", fleet(40), *QUICK).out.splitlines()) > 40


def test_a_summary_has_a_line_for_each_piece_of_advice_but_the_first_and_all_that_are_cited() -> None:
    def piece(number: int) -> AdviceEntry:
        change = ChangeEntry("LocalStorage", f"team-notify/deployment/notify-worker-{number:04}", None)
        return AdviceEntry(GainEntry(9, 9_999_000_000), (change,) * (1 + number % 2), ("kubectl x",), None, (), ())

    pieces = tuple(map(piece, range(12)))
    found = AdviceSummary(10.0, 20, 900, pieces, pieces[0], (1, 8))
    lines = [f"{each.label or ' ' * LABEL}{each.text}" for each in advice_lines(found, "USD", brief=True)]
    assert [line.partition(".")[0].split()[-1] for line in lines if "LocalStorage" in line] == list("123458")
    assert lines[7].endswith("and 6 more; how to make each change: -o table; as patches: -o patch")
    assert len(lines) == 10
    assert max(len(line) for line in lines[2:] if ";" not in line or "more;" in line) <= 80
    assert lines[3].endswith("LocalStorage: team-notify/…y-worker-0002")


def test_the_blockers_are_counted_from_the_refusals(cli: Any, fleet: Any) -> None:
    document = json.loads(cli("plan", "-f", fleet(40), *QUICK, "-o", "json").out)
    kept = [node for node in document["nodes"] if node["decision"] == "keep"]
    for each in document["summary"]["blockers"]:
        assert 0 <= each["alone"] <= each["nodes"] <= sum(each["reason"] in node["reasons"] for node in kept)
        assert each["microsAlone"] <= each["micros"]
    alone = [each["microsAlone"] for each in document["summary"]["blockers"]]
    assert alone == sorted(alone, reverse=True)


@pytest.mark.parametrize(
    ("flags", "decisions"),
    [(("--show", "removals"), {"remove"}), (("--show", "kept"), {"keep"}), (("--show", "all"), {"remove", "keep"})],
)
def test_only_the_nodes_that_are_asked_for_are_printed(
    cli: Any, fleet: Any, flags: tuple[str, ...], decisions: set[str]
) -> None:
    every = json.loads(cli("plan", "-f", fleet(40), *QUICK, "-o", "json", *flags).out)["nodes"]
    assert len(every) == 40
    rows = cli("plan", "-f", fleet(40), *QUICK, "--no-headers", *flags).out.splitlines()
    assert len(rows) == sum(each["decision"] in decisions for each in every)
    assert len(cli("plan", "-f", fleet(40), *QUICK, "--no-headers", *flags, "--limit-rows", "3").out.splitlines()) == 3


def test_a_selection_and_a_limit_of_the_plan_limit_what_is_printed_too(cli: Any, fleet: Any) -> None:
    pool = ("--pool", "memory")
    rows = cli("plan", "-f", fleet(40), *QUICK, "--no-headers", *pool).out.splitlines()
    assert rows
    assert all("-memory-" in row and "NotSelected" not in row for row in rows)
    few = cli("plan", "-f", fleet(40), *QUICK, "--no-headers", "--max-nodes", "2").out
    assert few.count("remove #") == 2
    assert "MaxNodesReached" not in few


@pytest.mark.parametrize("nodes", [5, 40])
def test_eighty_columns_have_the_pool_the_price_and_the_reason_of_each_node(cli: Any, fleet: Any, nodes: int) -> None:
    plan = msgspec.json.decode(cli("plan", "-f", fleet(nodes), *QUICK, "-o", "json").out, type=NodePlan)
    text = str(formats_of(PLAN)["table"].render(plan, PLAN, Terminal(width=80)))
    assert max(map(length, text.splitlines())) <= 80
    [head] = [line for line in text.splitlines() if line.startswith("NODE ")]
    assert {"POOL", "CPU", "MONTH", "DECISION"} <= set(head.split())
    for node in plan.nodes:
        assert (f"remove #{node.order}" if node.order else node.reasons[0]) in text


def test_a_node_that_the_plan_filled_shows_both_ratios(cli: Any, fleet: Any) -> None:
    given = ("plan", "-f", fleet(40), *QUICK, "--until-stable", "-o")
    filled = [each for each in json.loads(cli(*given, "json").out)["nodes"] if "FilledByPlan" in each["reasons"]]
    assert filled
    table = cli(*given, "table").out
    for node in filled:
        [row] = [line for line in table.splitlines() if line.startswith(node["name"])]
        after = (node["cpuMilli"]["requested"] + node["cpuMilliArriving"]) / node["cpuMilli"]["allocatable"]
        assert f"{node['cpuMilli']['ratio'] * 100:.0f}→{after * 100:.0f}%" in row
        assert after >= 0.75


def test_the_plan_of_a_night_says_that_it_is_a_moment(cli: Any, fleet: Any) -> None:
    at_night = cli("plan", "-f", fleet(5), *QUICK).out
    assert "A moment   it is 03:00 UTC" in at_night
    by_day = cli("plan", "-f", fleet(5), "--now", "2026-11-20T12:00:00Z", "--advice-time", "0").out
    assert "A moment" not in by_day


@pytest.mark.parametrize("nodes", [5, 600])
def test_markdown_fits_a_comment_with_the_summary_first(cli: Any, fleet: Any, nodes: int) -> None:
    text = cli("plan", "-f", fleet(nodes), *QUICK, "-o", "markdown").out
    assert len(text) < 65_536
    assert text.index("Nodes  ") < text.index("<details>")
    assert ("more rows" in text) == (nodes == 600)
    assert text.count("```") % 2 == 0


def test_advice_comes_as_patches_for_git(cli: Any, fleet: Any) -> None:
    import yaml

    text = cli("plan", "-f", fleet(40), "--now", FLEET_TIME, "-o", "patch").out
    component = yaml.safe_load(text)
    assert component["kind"] == "Component"
    patches = [yaml.safe_load(each["patch"]) for each in component["patches"]]
    assert {each["kind"] for each in patches} == {"Deployment", "PodDisruptionBudget"}
    assert len({json.dumps(each) for each in patches}) == len(patches)
    assert all({"apiVersion", "kind", "metadata", "spec"} == each.keys() for each in patches)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("pln",), "did you mean plan"),
        (("plan", "--strateg", "x"), "did you mean --strategy?"),
        (("plan", "--context", "a", "--context", "b"), "--context: is given twice; allowed is once"),
        (("plan", "--limit-rows", "0"), "'0' is no number of rows; allowed is 1 or more"),
        (("plan", "--show", "some"), "choose from 'removals', 'kept', 'all'"),
    ],
)
def test_bad_input_is_one_line_that_says_what_is_allowed(cli: Any, given: tuple[str, ...], said: str) -> None:
    outcome = cli(*given)
    assert outcome.code == 64
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


# -- advice on a large fleet


def judged(path: Path) -> tuple[Evaluation, CompactorChanges, Catalogue, Standing]:
    changes = CompactorChanges(load_settings(DEFAULT))
    snapshot = read_file(path)
    judge = changes.judge(changes.settings)
    base = evaluate(snapshot, judge, NOW)
    return base, changes, Catalogue(snapshot, base, changes), Standing(base, judge, None)


def known_sets(base: Evaluation, catalogue: Catalogue) -> list[tuple[Change, ...]]:
    found = {catalogue.all_of(name, refusals) for name, refusals in base.plan.refusals.items()}
    return [tuple(sorted(each, key=lambda one: (one.reason, one.thing))) for each in found if each]


def compared(path: Path) -> int:
    """Compare each try of what a change can touch with a whole plan, and return how many there were."""
    base, changes, catalogue, standing = judged(path)
    scenario = Scenario(read_file(path), changes.settings)
    tries = 0
    for each in known_sets(base, catalogue):
        plan = standing.planned(each)
        if plan is not None:
            after = scenario.after(each)
            whole = evaluate(after.snapshot, changes.judge(after.settings), NOW).plan
            assert [one.node for one in plan.removals] == [one.node for one in whole.removals], each
            assert plan.refusals.keys() == whole.refusals.keys()
            tries += 1
    return tries


@pytest.mark.takes(8)
@pytest.mark.parametrize("seed", [1, 7])
def test_a_try_comes_to_what_a_whole_plan_does(fleet: Any, seed: int) -> None:
    assert compared(fleet(40, seed)) > 5


@pytest.mark.takes(20)
def test_a_try_comes_to_what_a_whole_plan_does_on_awkward_clusters(tmp_path: Path) -> None:
    tries = 0
    for seed in range(120):
        path = tmp_path / f"{seed}.json"
        path.write_bytes(msgspec.json.encode(random_cluster(seed)))
        tries += compared(path)
    assert tries > 40


@pytest.mark.takes(4)
def test_where_there_is_no_time_for_all_ideas_the_gains_are_those_of_whole_plans_all_the_same(fleet: Any) -> None:
    path = fleet(120)
    base, changes, catalogue, standing = judged(path)
    clock = count()

    def measure(scenario: Scenario) -> Any:
        return evaluate(scenario.snapshot, changes.judge(scenario.settings), NOW).plan

    limits = TimeLimit(seconds=60.0, clock=lambda: float(next(clock)), planned=5.0)
    adviser = Adviser(base, Scenario(read_file(path), changes.settings), catalogue, measure, limits, lambda: standing)
    advice = adviser.advise()
    assert advice.bundles
    assert advice.untried
    for each in advice.bundles:
        plan = measure(Scenario(read_file(path), changes.settings).after(each.changes))
        assert len(plan.removals) - len(base.plan.removals) == each.gain.nodes
    assert next(clock) < 60 + 2 * (advice.tried + advice.untried), "an idea that is not tried costs nothing"
