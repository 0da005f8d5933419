"""The command ``node-compactor run``: the controller itself."""

from __future__ import annotations

import argparse
import sys

import node_compactor
from node_compactor.run_settings import RunSettings
from node_compactor.running import CONTROLLER, serve
from tightship.cli import CliError, Parser
from tightship.cli.arguments import environment
from tightship.observability.logging import LoggingError, set_up
from tightship.runtime.main import Runtime, run_controller
from tightship.settings.loading import SettingsError
from tightship.settings.process import load_process

_EPILOG = """Everything can also be set in the environment, the older controller's names included (docs/migration.md);
flags come first. Pools and gates come from the ConfigMap, live.
exit codes: 0 stopped by SIGTERM; 1 an error; 64 wrong usage; 130 interrupted."""


def add_run(commands: argparse._SubParsersAction[Parser], program: str) -> None:
    """Add the command to *commands*."""
    run = commands.add_parser(
        "run",
        help="run the controller: mark, drain, hand over, loop after loop",
        description="Run the controller: mark underutilized nodes, drain the least utilized, hand it to the Cluster "
        "Autoscaler, again and again. Serves metrics, probes and its last plan over HTTP.",
        epilog=_EPILOG,
    )
    run.usage = f"{program} run [flags]"
    where = run.add_argument_group("cluster")
    where.add_argument("--kubeconfig", metavar="FILE", help="default: its service account, or $KUBECONFIG")
    where.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    where.add_argument("--namespace", metavar="NAME", help="of its ConfigMap and Leases (default: its own)")
    config = run.add_argument_group("configuration")
    config.add_argument("--config-map", metavar="NAME", help="ConfigMap with pools and gates, watched")
    config.add_argument("--config", metavar="FILE", dest="config_path", help="a mounted file or folder instead, polled")
    config.add_argument("--interval", metavar="SECONDS", help="between two passes, more or less by a quarter")
    config.add_argument("--dry-run", action="store_const", const=True, help="judge and show, change nothing")
    config.add_argument(
        "--no-leader-elect", action="store_const", const=False, dest="leader_elect", help="for a single replica"
    )
    config.add_argument("--port", action="append", type=int, dest="ports", metavar="PORT", help="HTTP port, may repeat")
    config.add_argument("--host", metavar="ADDRESS", help="address to serve on")
    logs = run.add_argument_group("logging")
    logs.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    logs.add_argument("--log-format", metavar="FORMAT", help="plaintext, console, json, stackdriver or v3")
    run.set_defaults(run=_run)


_FLAGS = (
    "kubeconfig",
    "context",
    "namespace",
    "config_map",
    "config_path",
    "interval",
    "dry_run",
    "leader_elect",
    "ports",
    "host",
    "log_level",
    "log_format",
)


def _run(arguments: argparse.Namespace) -> int:
    given = {name: getattr(arguments, name) for name in _FLAGS if getattr(arguments, name) is not None}
    try:
        settings = load_process(RunSettings, environment(), given)
        set_up(settings.log_format, settings.log_level, controller=CONTROLLER, environment=environment())
    except SettingsError as error:
        raise CliError(*error.problems) from error
    except LoggingError as error:
        raise CliError(str(error)) from error
    return _controller(settings)


def _controller(settings: RunSettings) -> int:
    async def main(runtime: Runtime) -> None:
        await serve(runtime, settings, environment())

    sys.stderr.write(f"node-compactor {node_compactor.__version__}\n")
    return run_controller(main, settings.grace, name=CONTROLLER)
