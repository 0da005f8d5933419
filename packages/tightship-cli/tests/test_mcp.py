"""``tightship mcp``: the official client of the protocol lists the tools and calls each."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tightship_cli.cli import command
from tightship_cli.mcp.command import INSTALL
from tightship_cli.mcp.tools import TOOLS
from tightship_simulator.generate import off_peak_cluster
from tightship_testkit import commands
from tightship_testkit.commands import Outcome

Json = dict[str, Any]
Cli = Callable[..., Outcome]
PACKAGES = Path(__file__).resolve().parents[2]
NODES = PACKAGES / "node-compactor" / "tests" / "data" / "cluster.yaml"
FLOORS = PACKAGES / "hpa-scaler" / "tests" / "data"
CALLS: dict[str, tuple[Json, tuple[str, ...]]] = {
    "plan": ({"pool": ["web"], "maxNodes": 1}, ("plan", "--pool", "web", "--max-nodes", "1")),
    "frontier": ({"pool": ["web"]}, ("plan", "--frontier", "--pool", "web")),
    "explain": ({"nodes": ["web-1", "web-2"]}, ("explain", "web-1", "web-2")),
    "fit": ({"types": "n2,e2", "atMost": 1}, ("fit", "--types", "n2,e2", "--at-most", "1")),
    "lint": ({}, ("lint",)),
    "floors": ({"namespace": ["shop"]}, ("floors", "plan", "--namespace", "shop")),
}
"""For each tool arguments, and the command that answers the same."""


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return lambda *given: commands.call("tightship", command, capfdbinary.readouterr, given)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fleet") / "cluster.json"
    path.write_bytes(msgspec.json.encode(off_peak_cluster(1, 12)))
    return path


def source_of(tool: str, fleet: Path) -> tuple[str, ...]:
    if tool == "fit":
        return "-f", str(fleet)
    of_floors = ("-f", str(FLOORS / "shop.yaml"), "--outcomes", str(FLOORS / "outcomes.json"))
    return of_floors if tool == "floors" else ("-f", str(NODES))


RUNNING = re.compile(r"20[0-9T:-]+Z|\(in \w+\)")
"""Floors are judged at the time of the clock."""


def printed(*words: str) -> str:
    """Return what the command prints as JSON."""
    whole = [sys.executable, "-m", "tightship_cli", *words, "-o", "json"]
    return subprocess.run(whole, stdout=subprocess.PIPE, check=False).stdout.decode()


async def asked(source: tuple[str, ...], *calls: tuple[str, Json]) -> tuple[list[Any], list[tuple[bool, str]]]:
    """Return the tools of a server of *source*, and for each of *calls* whether the tool answered, and what."""
    started = StdioServerParameters(command=sys.executable, args=["-m", "tightship_cli", "mcp", *source])
    async with stdio_client(started) as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        found = []
        for name, given in calls:
            result = await session.call_tool(name, given)
            (content,) = result.content
            assert content.type == "text"
            found.append((not result.is_error, content.text))
    return tools, found


def test_each_tool_has_a_call_here() -> None:
    assert CALLS.keys() == TOOLS.keys()


@pytest.mark.asyncio
@pytest.mark.parametrize("tool", CALLS)
async def test_a_tool_answers_what_the_command_prints_as_json(tool: str, fleet: Path) -> None:
    given, words = CALLS[tool]
    tools, ((good, text),) = await asked(source_of(tool, fleet), (tool, given))
    assert good, text
    assert RUNNING.sub("", text) == RUNNING.sub("", await asyncio.to_thread(printed, *words, *source_of(tool, fleet)))
    listed = {each.name: each for each in tools}
    assert listed.keys() == TOOLS.keys()
    assert all(each.annotations.read_only_hint for each in tools)
    assert given.keys() <= listed[tool].input_schema["properties"].keys()


@pytest.mark.asyncio
async def test_bad_arguments_are_told_and_the_server_goes_on() -> None:
    calls: list[tuple[str, Json]] = [
        ("plan", {"filename": "/etc/passwd"}),
        ("plan", {"strategy": "--config=/etc/passwd"}),
        ("plan", {"maxNodes": "1"}),
        ("plan", {"maxNodes": True}),
        ("plan", {"pool": "web"}),
        ("plan", {"pool": ["--kubeconfig=/etc/passwd"]}),
        ("explain", {}),
        ("explain", {"nodes": ["-f/etc/passwd"]}),
        ("run", {}),
        ("lint", {}),
    ]
    _, found = await asked(("-f", str(NODES)), *calls)
    said = [
        "'filename' is no argument; allowed is pool, selector",
        "--strategy: '--config=/etc/passwd': allowed is",
        "maxNodes: '1' is no integer",
        "maxNodes: 'True' is no integer",
        "pool: 'web' is no array of strings",
        'no node is in pool "--kubeconfig=/etc/passwd"',
        "nodes is missing: names of nodes",
        'node "-f/etc/passwd" not found',
        "there is no tool run; allowed is plan, frontier, explain, fit, lint, floors",
    ]
    for (good, text), expected in zip(found, said, strict=False):
        assert not good
        assert expected in text
        assert "root:" not in text
    assert found[-1][0]


@pytest.mark.asyncio
async def test_no_path_of_the_source_is_told(tmp_path: Path) -> None:
    path = tmp_path / "gone.json"
    _, ((good, text),) = await asked(("-f", str(path)), ("plan", {}))
    assert not good
    assert "gone.json: No such file" in text
    assert str(tmp_path) not in text


def test_without_the_sdk_the_command_says_how_to_install_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    outcome = cli("mcp", "-f", NODES)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.splitlines() == [f"tightship: mcp needs the protocol's SDK: {INSTALL}"]


def test_the_protocol_has_standard_input_to_itself(cli: Cli) -> None:
    outcome = cli("mcp", "-f", "-")
    assert outcome.code == 64
    assert len(outcome.err.splitlines()) == 1


def test_no_other_command_loads_the_sdk() -> None:
    code = "import sys, tightship_cli.cli as c; c.build_parser(); sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
