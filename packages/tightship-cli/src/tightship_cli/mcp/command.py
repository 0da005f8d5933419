"""The command ``mcp``: serves the tools over stdio, of one source that is named when the server starts."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import PurePath

from tightship.cli.app import CliError, UsageError
from tightship.cli.arguments import CommandParser, add_cluster_arguments, add_logging_arguments
from tightship.cli.source import files_of
from tightship_cli.mcp.tools import TOOLS

INSTALL = "pipx inject tightship-cli 'mcp>=2.3,<3'"
_OF_CLUSTER = ("filename", "kubeconfig", "context", "request_timeout")


def add_mcp(
    commands: argparse._SubParsersAction[CommandParser],
    program: str,
    version: str,
    command: Callable[[Sequence[str]], int],
) -> None:
    """Add the command ``mcp`` of *program*, whose tools run *command*."""
    parser = commands.add_parser(
        "mcp",
        help=f"serve {', '.join(TOOLS)} to agents as read-only tools (Model Context Protocol over stdio)",
        description=f"Serve {', '.join(TOOLS)} as read-only tools of the Model Context Protocol, over standard input "
        "and output. Answers are what `-o json` prints. The source is named here: no tool takes a path, an address or "
        f"a context. Needs the protocol's SDK: {INSTALL}",
        epilog="examples:\n"
        f"  {program} mcp -f cluster.json      # a snapshot\n"
        f"  {program} mcp --context prod       # a live cluster, read anew by each call",
    )
    parser.usage = f"{program} mcp [-f FILE | --context NAME] [flags]"
    add_cluster_arguments(parser)
    source = parser.add_argument_group("other sources")
    source.add_argument("--config", metavar="FILE", help="node-compactor's configuration")
    source.add_argument("--floors-config", metavar="FILE", help="hpa-scaler's configuration")
    source.add_argument("--prometheus-server-url", metavar="URL", help="the Prometheus that floors ask")
    source.add_argument("--outcomes", metavar="FILE", help="answers for floors instead, as of `floors plan`")
    add_logging_arguments(parser)
    parser.set_defaults(run=lambda arguments: _serve(arguments, program, version, command))


def _serve(arguments: argparse.Namespace, program: str, version: str, command: Callable[[Sequence[str]], int]) -> int:
    if "-" in files_of(arguments):
        raise UsageError("-f - is standard input, on which the protocol speaks; allowed is a file")
    if importlib.util.find_spec("mcp") is None:
        raise CliError(f"mcp needs the protocol's SDK: {INSTALL}")
    from tightship_cli.mcp.server import Answers, serve

    paths = [each for each in (*(arguments.filename or ()), arguments.kubeconfig) if each]
    paths += [each for each in (arguments.config, arguments.floors_config, arguments.outcomes) if each]
    hidden = {each: PurePath(each).name for each in sorted(paths, key=len, reverse=True)}
    given = {name: _flags(arguments, name) for name in (*_OF_CLUSTER, *_others())}
    of_cluster = [flag for name in _OF_CLUSTER for flag in given[name]]
    sources = {
        name: [*of_cluster, *(flag for each in tool.source for flag in given[each])] for name, tool in TOOLS.items()
    }
    return serve(Answers(program, command, sources, hidden), program, version)


def _others() -> set[str]:
    return {each for tool in TOOLS.values() for each in tool.source}


def _flags(arguments: argparse.Namespace, name: str) -> list[str]:
    """Return the flags of *name* as one of the commands takes them."""
    value = getattr(arguments, name)
    flag = "--config" if name == "floors_config" else f"--{name.replace('_', '-')}"
    return [] if value is None else [f"{flag}={each}" for each in (value if isinstance(value, list) else [value])]
