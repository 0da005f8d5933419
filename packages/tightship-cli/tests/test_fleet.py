"""``tightship plan`` of several clusters: contexts or files, side by side."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from playwright.async_api import Browser

from tightship_cli.cli import command
from tightship_cli.fleet.command import AT_ONCE
from tightship_simulator.generate import off_peak_cluster
from tightship_simulator.serve import EmbeddedCluster
from tightship_testkit import commands
from tightship_testkit.accessibility import assert_accessible
from tightship_testkit.browser import opened
from tightship_testkit.commands import Outcome

Json = dict[str, Any]
Cli = Callable[..., Outcome]
NOW = "2026-11-20T03:00:00Z"


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return lambda *given: commands.call("tightship", command, capfdbinary.readouterr, (*given, "--now", NOW))


def items(seed: int, nodes: int, teams: Mapping[str, str] = {}) -> list[Json]:
    """Return a cluster of machines with prices, whose namespaces have *teams*."""
    found: list[Json] = off_peak_cluster(seed, nodes)["items"]
    for each in found:
        meta = each["metadata"]
        if each["kind"] == "Node":
            meta["labels"] |= {"node.kubernetes.io/instance-type": "m5.2xlarge"}
            each["spec"]["providerID"] = f"aws:///us-east-1a/{meta['name']}"
        elif each["kind"] == "Namespace" and meta["name"] in teams:
            meta["labels"] = {**meta.get("labels", {}), "team": teams[meta["name"]]}
    return found


def write(path: Path, seed: int, nodes: int = 12, teams: Mapping[str, str] = {}) -> Path:
    path.write_bytes(msgspec.json.encode({"kind": "List", "items": items(seed, nodes, teams)}))
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "east.json", 7, 40), write(tmp_path / "west.json", 8)


def plan(cli: Cli, *given: str | Path) -> Json:
    found: Json = msgspec.json.decode(cli("plan", *given, "-o", "json").out)
    return found


def test_each_cluster_has_the_plan_that_it_has_alone(cli: Cli, files: tuple[Path, Path]) -> None:
    east, west = files
    fleet = plan(cli, "-f", east, "-f", west)
    assert fleet["kind"] == "FleetPlan"
    assert fleet["plans"] == [plan(cli, "-f", path, "--advice-time", "0") for path in files]
    assert [each["name"] for each in fleet["clusters"]] == ["east.json", "west.json"]


def test_the_totals_are_the_sums(cli: Cli, files: tuple[Path, Path]) -> None:
    fleet = plan(cli, *(word for path in files for word in ("-f", path)))
    alone = [each["summary"] for each in fleet["plans"]]
    assert fleet["totals"]["nodes"] == {
        key: sum(each["nodes"][key] for each in alone) for key in ("before", "after", "removed")
    }
    assert fleet["totals"]["nodes"]["removed"] > 0
    saved = sum(each["money"]["microsPerMonth"]["saved"] for each in alone)
    assert fleet["totals"]["money"]["USD"]["saved"] == saved > 0


def test_the_dearest_blockers_are_those_of_all_clusters(cli: Cli, files: tuple[Path, Path]) -> None:
    fleet = plan(cli, *(word for path in files for word in ("-f", path)))
    every = [each["microsAlone"] for one in fleet["plans"] for each in one["summary"]["blockers"]]
    assert len(fleet["blockers"]) == 10 < len(every)
    assert [each["microsAlone"] for each in fleet["blockers"]] == sorted(every, reverse=True)[:10]
    assert len({each["cluster"] for each in fleet["blockers"]}) == 2


@pytest.mark.parametrize("label", ["team", "owner"])
def test_namespaces_of_one_team_are_one_line(label: str, cli: Cli, tmp_path: Path) -> None:
    spaces = sorted({each["metadata"].get("namespace", "") for each in items(7, 20)} - {""})
    labelled = write(tmp_path / "a.json", 7, 20, dict.fromkeys(spaces, "all"))
    if label != "team":
        labelled.write_text(labelled.read_text().replace('"team":"all"', f'"{label}":"all"'))
    given = ("-f", labelled, "-f", write(tmp_path / "b.json", 8))
    fleet = plan(cli, *given, "--team-label", label)
    teams = {each["team"] for each in fleet["teams"] if each["cluster"] == "a.json"}
    assert teams == {"all"}
    (line,) = (each for each in fleet["teams"] if each["cluster"] == "a.json")
    kept = [node for node in fleet["plans"][0]["nodes"] if any("/" in each["subject"] for each in node["refusals"])]
    assert line["nodes"] == len(kept)
    assert len({each["team"] for each in fleet["teams"] if each["cluster"] == "b.json"}) > 1


def test_a_cluster_that_cannot_be_read_is_a_line(cli: Cli, files: tuple[Path, Path], tmp_path: Path) -> None:
    outcome = cli("plan", "-f", files[0], "-f", tmp_path / "gone.json", "-f", files[1])
    assert outcome.code == 3
    assert outcome.out.startswith("2 clusters: ")
    assert "gone.json is not in here: " in outcome.out
    fleet = plan(cli, "-f", files[0], "-f", tmp_path / "gone.json")
    assert [each.get("error", "") == "" for each in fleet["clusters"]] == [True, False]
    assert fleet["totals"]["unread"] == 1


def test_without_any_cluster_the_command_fails(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("plan", "-f", tmp_path / "a.json", "-f", tmp_path / "b.json")
    assert (outcome.code, outcome.out, len(outcome.err.splitlines())) == (1, "", 2)


def test_files_that_are_parts_of_one_cluster_are_read_together(cli: Cli, tmp_path: Path) -> None:
    every = items(7, 12)
    for name, kinds in (("nodes", {"Node"}), ("rest", {each["kind"] for each in every} - {"Node"})):
        held = {"kind": "List", "items": [each for each in every if each["kind"] in kinds]}
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(held))
    found = plan(cli, "-f", tmp_path / "nodes.json", "-f", tmp_path / "rest.json", "--advice-time", "0")
    whole = plan(cli, "-f", write(tmp_path / "whole.json", 7), "--advice-time", "0")
    assert found["nodes"] == whole["nodes"]


def test_files_of_one_name_are_told_apart(cli: Cli, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    paths = [write(tmp_path / name / "cluster.json", 7) for name in ("a", "b")]
    assert [each["name"] for each in plan(cli, "-f", paths[0], "-f", paths[1])["clusters"]] == [*map(str, paths)]


def test_the_exit_code_says_that_nodes_would_go(cli: Cli, files: tuple[Path, Path]) -> None:
    given = ("plan", "-f", files[0], "-f", files[1])
    assert cli(*given).code == 0
    assert cli(*given, "--exit-code").code == 2


@pytest.mark.parametrize("form", ["table", "summary", "yaml", "csv", "markdown"])
def test_each_form_names_each_cluster(form: str, cli: Cli, files: tuple[Path, Path]) -> None:
    out = cli("plan", "-f", files[0], "-f", files[1], "-o", form).out
    assert "east" in out
    assert "west" in out


@contextmanager
def served(folder: Path, clusters: Mapping[str, list[Json]], delay: float = 0.0) -> Iterator[tuple[Path, list[int]]]:
    """Serve *clusters* by the name of their context, one that refuses everything, and one that nobody serves.

    Yield the kubeconfig, and how many clusters were asked at once, each time that one was.
    """
    at_once: list[int] = []
    asked: dict[str, int] = {}
    ready, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    config: Json = {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [{"name": "u", "user": {}}]}
    config["contexts"] = []

    def add(name: str, url: str) -> None:
        config["clusters"].append({"name": name, "cluster": {"server": url}})
        config["contexts"].append({"name": name, "context": {"cluster": name, "user": "u"}})

    def counting(name: str) -> Any:
        @web.middleware
        async def counted(request: web.Request, handler: Any) -> web.StreamResponse:
            if name == "refused":
                return web.json_response(
                    {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}, status=403
                )
            asked[name] = asked.get(name, 0) + 1
            at_once.append(sum(map(bool, asked.values())))
            await asyncio.sleep(delay)
            try:
                answer: web.StreamResponse = await handler(request)
                return answer
            finally:
                asked[name] -= 1

        return counted

    async def serve() -> None:
        started = {
            name: EmbeddedCluster(middlewares=[counting(name)], budgets=False) for name in (*clusters, "refused")
        }
        for name, cluster in started.items():
            await cluster.__aenter__()
            cluster.store.load(clusters.get(name, []))
            add(name, cluster.url)
        add("dead", "http://127.0.0.1:1")
        (folder / "kubeconfig").write_text(json.dumps(config | {"current-context": next(iter(clusters))}))
        loops.append(asyncio.get_running_loop())
        ready.set()
        await stop.wait()
        for cluster in started.values():
            await cluster.__aexit__(None, None, None)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield folder / "kubeconfig", at_once
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join()


@pytest.mark.takes(11)
def test_contexts_are_planned_side_by_side(cli: Cli, tmp_path: Path) -> None:
    clusters = {f"prod-{number}": items(number, 6) for number in range(6)}
    with served(tmp_path, {**clusters, "dev": items(9, 6)}, delay=0.05) as (kubeconfig, at_once):
        by_glob = plan(cli, "--kubeconfig", kubeconfig, "--context", "prod-*", "--context", "prod-1*")
        assert [each["name"] for each in by_glob["clusters"]] == [*clusters]
        assert 1 < max(at_once) <= AT_ONCE
        alone = plan(cli, "--kubeconfig", kubeconfig, "--context", "prod-3", "--advice-time", "0")
        assert alone["kind"] == "NodePlan"
        assert by_glob["plans"][3]["nodes"] == alone["nodes"]
        # Long enough for those that answer, on a busy machine too.
        outcome = cli("plan", "--kubeconfig", kubeconfig, "--all-contexts", "--request-timeout", "9s", "-o", "json")
        lines = {each["name"]: each.get("error", "") for each in msgspec.json.decode(outcome.out)["clusters"]}
        assert outcome.code == 3
        assert [name for name, error in lines.items() if error] == ["refused", "dead"]
        unread = cli(
            "plan", "--kubeconfig", kubeconfig, "--context", "dead", "--context", "refused", "--request-timeout", "1s"
        )
        assert (unread.code, unread.out, len(unread.err.splitlines())) == (1, "", 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--context", "a", "--context", "a"), "--context a is given twice; allowed is each once"),
        (("--all-contexts", "--context", "a"), "--all-contexts goes without --context: give only one"),
        (("--all-contexts", "-f", "x"), "--all-contexts goes without --filename: give only one"),
        (("--context", "a", "-f", "x"), "--context is about a cluster and --filename names a file: give only one"),
        (("--context", "prdo-*"), "matches no context; there are dev, prod-1"),
        (
            ("--context", "dev", "--context", "prod-1", "-o", "wide"),
            "-o wide is about one cluster; of several, allowed is",
        ),
    ],
)
def test_bad_input_is_one_line_that_says_what_is_allowed(
    given: tuple[str, ...], said: str, cli: Cli, tmp_path: Path
) -> None:
    contexts = [{"name": name, "context": {"cluster": "x"}} for name in ("dev", "prod-1")]
    (tmp_path / "config").write_text(json.dumps({"contexts": contexts}))
    flags = ("--kubeconfig", tmp_path / "config") if "-f" not in given else ()
    outcome = cli("plan", *given, *flags)
    assert (outcome.code, outcome.out) == (64, "")
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_node_refiner_has_a_fleet_too(cli: Cli, files: tuple[Path, Path]) -> None:
    outcome = cli("refine", "plan", "-f", files[0], "-f", files[1])
    assert outcome.code == 0
    assert outcome.out.startswith("2 clusters: ")


UNLINKED = """[...document.querySelectorAll(".plan")].map((part) =>
    part.querySelectorAll(".listing .why > li > b").length)"""


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("width", [1280, 500])
async def test_the_page_has_a_part_for_each_cluster(
    width: int, browser: Browser, cli: Cli, files: tuple[Path, Path], tmp_path: Path
) -> None:
    page_file = tmp_path / "fleet.html"
    page_file.write_text(cli("plan", "-f", files[1], "-f", files[0], "-f", tmp_path / "gone.json", "-o", "html").out)
    async with opened(browser, page_file.as_uri(), width=width) as (page, watch):
        ids = await page.eval_on_selector_all("[id]", "all => all.map((each) => each.id)")
        assert len(ids) == len(set(ids))
        missing = await page.eval_on_selector_all(
            "a[href^='#']", "all => all.map((each) => each.hash.slice(1)).filter((id) => !document.getElementById(id))"
        )
        assert missing == []
        assert await page.locator(".plan").count() == 2
        assert await page.locator(".listing > tbody > tr").count() == 52
        await assert_accessible(page)
        # Reasons in an opened row of each part link to the reason's chapter, as the part's own table does.
        await page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        await page.wait_for_function("document.querySelector('.plan .listing .why > li > a.about')")
        unlinked = await page.evaluate(UNLINKED)
        assert unlinked == [0, 0]
        assert all(await page.evaluate(UNLINKED.replace(" > b", " > a.about")))
        # An arrow of the second cluster's moves is drawn in its own picture, after a turn of the screen too.
        await page.locator(".plan >> nth=1").locator("tr[data-state=go] a.name").first.click()
        assert await page.locator(".plan >> nth=1").locator("svg.lines path").count() == 1
        await page.set_viewport_size({"width": width - 20, "height": 700})
        assert await page.locator(".plan >> nth=1").locator("tr.chosen").count() == 1
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert (watch.said, watch.asked_for) == ([], [page_file.as_uri()])


def test_a_plan_of_one_cluster_has_advice_without_asking(cli: Cli, files: tuple[Path, Path]) -> None:
    assert "\nAdvice  " in cli("plan", "-f", files[0], "-o", "summary").out
    assert "\nAdvice  " not in cli("plan", "-f", files[0], "-o", "summary", "--advice-time", "0").out
