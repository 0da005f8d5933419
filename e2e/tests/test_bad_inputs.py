"""Bad inputs of all three controllers: each ends with its exit code and a few lines that say what is wrong.

Every case is wrong in one way only. What may not happen is the same for all: a traceback, a "defect", a flood of lines,
silence.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bad_files import BAD_HPAS, HPA, MALFORMED, QUESTIONABLE, UNREADABLE, beside, listed
from bad_flags import BOTH, COMPACTOR, KUBECONFIGS, NODES, REFINER, SCALER, kubeconfig

import hpa_scaler.cli
import node_compactor.controller
import node_refiner.controller
from tightship_testkit import commands
from tightship_testkit.commands import Outcome

MOST_LINES = 25
MOST_MEMORY = 300
"""MiB."""
PROGRAMS: dict[str, Any] = {
    "node-compactor": node_compactor.controller.COMMANDS.command,
    "node-refiner": node_refiner.controller.COMMANDS.command,
    "hpa-scaler": hpa_scaler.cli.command,
}
OF_NODES = ("node-compactor", "node-refiner")
MODULES = {"hpa-scaler": "cli", **dict.fromkeys(OF_NODES, "controller")}
FILES = {**UNREADABLE, **MALFORMED}
FLAGS = {
    "node-compactor": {**BOTH, **NODES, **COMPACTOR},
    "node-refiner": {**BOTH, **NODES, **REFINER},
    "hpa-scaler": {**BOTH, **SCALER},
}

Tell = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _nobody_s_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NO_COLOR", "PROMETHEUS_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def tell(capfdbinary: pytest.CaptureFixture[bytes]) -> Tell:
    """Run a program here, and hold what it says against what no input may cause."""

    def run(program: str, *arguments: str | Path) -> Outcome:
        outcome = commands.call(program, PROGRAMS[program], capfdbinary.readouterr, arguments)
        lines = outcome.err.splitlines()
        assert "Traceback" not in outcome.err
        assert not re.search(r"unexpected \w+(Error|Exception)", outcome.err)
        assert "object at 0x" not in outcome.err
        if "usage:" not in outcome.err:
            assert len(lines) <= MOST_LINES
        assert max(map(len, lines), default=0) < 1100
        return outcome

    return run


def refused(outcome: Outcome, code: int, says: str) -> None:
    assert (outcome.code, outcome.out) == (code, "")
    assert says in outcome.err
    assert outcome.err.strip()


def programs(*tables: tuple[tuple[str, ...], dict[str, Any]]) -> list[Any]:
    return [
        pytest.param(name, *case, id=f"{name}: {what}")
        for names, table in tables
        for name in names
        for what, case in table.items()
    ]


def test_there_are_enough_of_them() -> None:
    reported = [*FILES, *QUESTIONABLE, *BAD_HPAS, *KUBECONFIGS, *{**BOTH, **NODES, **COMPACTOR, **REFINER, **SCALER}]
    assert len(set(reported)) == len(reported)
    assert len(reported) >= 150


@pytest.mark.parametrize(
    ("program", "content", "says"),
    programs((OF_NODES, FILES), (("hpa-scaler",), {**UNREADABLE, **BAD_HPAS})),
)
def test_a_bad_file_is_refused_with_what_is_wrong_with_it(
    tell: Tell, tmp_path: Path, program: str, content: bytes, says: str
) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content)
    refused(tell(program, "plan", "-f", path), 1, says)


READ_ALL = r"""
import re, sys
from importlib import import_module
from pathlib import Path
from tightship.cli.app import run
name, module, *paths = sys.argv[1:]
cli = import_module(module)
command = cli.command if hasattr(cli, "command") else cli.COMMANDS.command
for path in paths:
    try:
        run(name, command, ["plan", "-f", path])
    except SystemExit:
        pass
# What getrusage() tells begins with the size of the process that started this one.
kibibytes = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]
print(int(kibibytes) // 1024, file=sys.__stdout__)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells a process's largest size")
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_file_however_bad_fills_the_memory(tmp_path: Path, program: str) -> None:
    files = {**UNREADABLE, **BAD_HPAS} if program == "hpa-scaler" else {**FILES, **QUESTIONABLE}
    paths = [tmp_path / str(number) for number in range(len(files))]
    for path, (content, _) in zip(paths, files.values(), strict=True):
        path.write_bytes(content)
    command = [sys.executable, "-c", READ_ALL, program, f"{program.replace('-', '_')}.{MODULES[program]}", *paths]
    read = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(read.stdout.splitlines()[-1]) < MOST_MEMORY


@pytest.mark.parametrize(("program", "content", "says"), programs((OF_NODES, QUESTIONABLE)))
def test_a_questionable_file_is_planned_on_with_a_warning(
    tell: Tell, tmp_path: Path, program: str, content: bytes, says: str
) -> None:
    path = tmp_path / "odd"
    path.write_bytes(content)
    outcome = tell(program, "plan", "-f", path, "-o", "json")
    assert (outcome.code, outcome.err) == (0, "")
    warnings = json.loads(outcome.out)["warnings"]
    assert len(warnings) <= MOST_LINES
    assert says in "\n".join(warnings)


@pytest.mark.parametrize(
    ("program", "line", "code", "says"), programs(*(((program,), table) for program, table in FLAGS.items()))
)
def test_a_bad_command_line_is_refused_with_its_exit_code(
    tell: Tell, tmp_path: Path, program: str, line: str, code: int, says: str
) -> None:
    here, ok, hpas, answers = (tmp_path / name for name in ("here", "ok.json", "hpas.json", "answers.json"))
    here.mkdir()
    ok.write_bytes(listed(HPA) if program == "hpa-scaler" else beside())
    hpas.write_bytes(listed(HPA))
    answers.write_text('{"outcomes": []}')
    arguments = [word.format(here=here, ok=ok, hpas=hpas, answers=answers) for word in shlex.split(line)]
    refused(tell(program, *arguments), code, says)


@pytest.mark.parametrize(
    ("program", "content", "says"),
    [
        pytest.param(list(PROGRAMS)[number % 3], *case, id=f"{list(PROGRAMS)[number % 3]}: {what}")
        for number, (what, case) in enumerate(KUBECONFIGS.items())
    ],
)
def test_a_bad_kubeconfig_is_refused_with_its_key(
    tell: Tell, tmp_path: Path, program: str, content: Any, says: str
) -> None:
    path = tmp_path / "config"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    outcome = tell(program, "plan", "--kubeconfig", path, "--request-timeout", "30s")
    refused(outcome, 1, says)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_silent_server_is_given_up_and_named(tell: Tell, tmp_path: Path, program: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        path = tmp_path / "config"
        path.write_text(json.dumps(kubeconfig({"server": address})))
        outcome = tell(program, "plan", "--kubeconfig", path, "--request-timeout", "50ms")
    refused(outcome, 1, f"at {address}: no answer in 0.05 s")


@pytest.mark.parametrize("program", OF_NODES)
def test_nodes_and_pods_may_be_in_two_files(tell: Tell, tmp_path: Path, program: str) -> None:
    together = json.loads(beside())["items"]
    paths = [tmp_path / "nodes.json", tmp_path / "pods.json"]
    for path, thing in zip(paths, together, strict=True):
        path.write_bytes(listed(thing))
    both = json.loads(tell(program, "plan", "-f", paths[0], "-f", paths[1], "-o", "json").out)
    path = tmp_path / "all.json"
    path.write_bytes(beside())
    one = json.loads(tell(program, "plan", "-f", path, "-o", "json").out)
    assert both["source"] == {"type": "file", "name": "nodes.json, pods.json"}
    assert {**both, "source": 0} == {**one, "source": 0}
