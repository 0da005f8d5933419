"""The command ``run``: what reaches the controller, and what is said when it can't."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import pytest

from tightship.cli.arguments import Parser, add_run
from tightship.process.loop import Runtime
from tightship.process.settings.loading import BadFlagsError
from tightship.process.settings.process import Name, Ports, Positive, ProcessSettings, RunWords, variable


class Own(ProcessSettings):
    words = RunWords("again and again", "Runs.", "queries and limits")

    interval: Positive = variable("PAUSE_SECONDS", default=300.0)
    config_map: Name = variable("CONFIG_MAP_NAME", default="own-config")
    ports: Ports = variable("HTTP_PORTS", default=(5000,))
    lease_name: Name = variable("LEASE_NAME", default="own")


class Command:
    """The command, and what its controller was given."""

    def __init__(self) -> None:
        self.given: list[tuple[Own, Mapping[str, str]]] = []
        self.parser = Parser("own", "Does its own.")
        commands = self.parser.add_subparsers(parser_class=Parser)
        add_run(commands, "own", "7.8", Own, self.serve)

    async def serve(self, runtime: Runtime, settings: Own, environment: Mapping[str, str]) -> None:
        self.given.append((settings, environment))
        runtime.end()

    def __call__(self, *arguments: str) -> int:
        parsed = self.parser.parse_args(["run", *arguments])
        code: int = parsed.run(parsed)
        return code


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    for name in ("LEASE_NAME", "LOG_LEVEL", "PAUSE_SECONDS"):
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield Command()
    root.handlers, root.level = before


def test_flags_and_environment_reach_the_controller(
    run: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEASE_NAME", "lease")
    monkeypatch.setenv("PAUSE_SECONDS", "9")
    code = run("--interval", "5", "--port", "1", "--port", "2", "--dry-run", "--no-leader-elect", "--config", "c.yaml")
    assert code == 0
    [(settings, environment)] = run.given
    assert (settings.interval, settings.ports, settings.lease_name) == (5, (1, 2), "lease")
    assert (settings.dry_run, settings.leader_elect, str(settings.config_path)) == (True, False, "c.yaml")
    assert environment["PAUSE_SECONDS"] == "9"
    assert capsys.readouterr().err.endswith(" own 7.8\n")


@pytest.mark.parametrize(
    ("flags", "dry_run"),
    [((), True), (("--dry-run",), True), (("--dry-run=false",), False), (("--dry-run", "true"), True)],
)
def test_a_run_by_hand_is_live_only_if_that_is_typed(
    run: Command, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], dry_run: bool
) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "DRY_RUN"):
        monkeypatch.delenv(name, raising=False)
    assert run(*flags) == 0
    [(settings, _)] = run.given
    assert settings.dry_run is dry_run


def test_a_switch_takes_no_other_word(run: Command) -> None:
    with pytest.raises(BadFlagsError) as refused:
        run("--dry-run=maybe")
    assert refused.value.problems == ["--dry-run: 'maybe': is not a switch; allowed are true and false"]


def test_all_that_is_wrong_is_told_before_anything_runs(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASE_NAME", "A B")
    with pytest.raises(BadFlagsError) as refused:
        run("--interval", "soon", "--log-level", "loud")
    assert [each.partition(": ")[0] for each in refused.value.problems] == ["--interval", "--log-level", "LEASE_NAME"]
    assert run.given == []


def test_the_help_says_what_is_live(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "ConfigMap with queries and limits, watched" in text
    assert "Queries and limits come from the ConfigMap, live." in text


def test_the_help_names_the_variable_and_the_default_behind_each_flag(
    run: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run("--help")
    text = " ".join(capsys.readouterr().out.split())
    for reported in (
        "(default: $PAUSE_SECONDS, else 300)",
        "(default: $HTTP_PORTS, else 5000)",
        "(default: $DRY_RUN, else false in a pod and true elsewhere)",
        "(default: $CONFIG_PATH)",
    ):
        assert reported in text
