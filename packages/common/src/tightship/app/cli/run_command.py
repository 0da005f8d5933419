"""The command ``run`` of a controller: its flags, its settings, its log, and its process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from tightship.app.cli.app import CliError
from tightship.app.cli.arguments import Parser, environment
from tightship.app.observability.logging import LoggingError, set_up
from tightship.app.runtime.main import Runtime, run_controller
from tightship.app.settings.loading import SettingsError
from tightship.app.settings.process import ProcessSettings, load_process

_Settings = TypeVar("_Settings", bound=ProcessSettings)

Serve = Callable[[Runtime, _Settings, Mapping[str, str]], Awaitable[None]]
"""Runs a controller until ``runtime.stop``, by its settings and the environment."""

_EPILOG = """Everything can also be set in the environment, the older controller's names included ({migration});
flags come first. {live} come from the ConfigMap, live.
exit codes: 0 stopped by SIGTERM; 1 an error; 64 wrong usage; 130 interrupted."""

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
    "probe_port",
    "host",
    "log_level",
    "log_format",
)


def add_run(
    commands: argparse._SubParsersAction[Parser],
    program: str,
    version: str,
    *,
    does: str,
    description: str,
    live: str,
    migration: str,
    settings: type[_Settings],
    serve: Serve[_Settings],
    own: Callable[[Parser], Sequence[str]] = lambda _: (),
) -> None:
    """Add the command to *commands*.

    *program* is the controller's name. *does* is what it does in a few words, *live* what its ConfigMap holds, such as
    "pools and gates"; *migration* the page that has the names of the older controller. *serve* runs it by its
    *settings*. *own* adds flags that only this controller has, and returns their fields of the settings.
    """
    run = commands.add_parser(
        "run",
        help=f"run the controller: {does}",
        description=description,
        epilog=_EPILOG.format(live=live[:1].upper() + live[1:], migration=migration),
    )
    run.usage = f"{program} run [flags]"
    where = run.add_argument_group("cluster")
    where.add_argument("--kubeconfig", metavar="FILE", help="default: its service account, or $KUBECONFIG")
    where.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    where.add_argument("--namespace", metavar="NAME", help="of its ConfigMap and Leases (default: its own)")
    config = run.add_argument_group("configuration")
    config.add_argument("--config-map", metavar="NAME", help=f"ConfigMap with {live}, watched")
    config.add_argument("--config", metavar="FILE", dest="config_path", help="a mounted file or folder instead, polled")
    config.add_argument("--interval", metavar="SECONDS", help="between two passes, more or less by a quarter")
    config.add_argument("--dry-run", action="store_const", const=True, help="judge and show, but change nothing")
    config.add_argument(
        "--no-leader-elect", action="store_const", const=False, dest="leader_elect", help="for a single replica"
    )
    config.add_argument("--port", action="append", type=int, dest="ports", metavar="PORT", help="HTTP port, repeatable")
    config.add_argument("--probe-port", type=int, metavar="PORT", help="HTTP port for the probes only")
    config.add_argument("--host", metavar="ADDRESS", help="address to serve on")
    logs = run.add_argument_group("logging")
    logs.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    logs.add_argument("--log-format", metavar="FORMAT", help="plaintext, console, json, stackdriver or v3")
    fields = (*_FLAGS, *own(run))

    def begin(arguments: argparse.Namespace) -> int:
        given = {name: getattr(arguments, name) for name in fields if getattr(arguments, name) is not None}
        return _run(given, program, version, settings, serve)

    run.set_defaults(run=begin)


def _run(
    given: Mapping[str, object], program: str, version: str, settings: type[_Settings], serve: Serve[_Settings]
) -> int:
    variables = environment()
    try:
        loaded = load_process(settings, variables, given)
        set_up(loaded.log_format, loaded.log_level, controller=program, environment=variables)
    except SettingsError as error:
        raise CliError(*error.problems) from error
    except LoggingError as error:
        raise CliError(str(error)) from error

    async def main(runtime: Runtime) -> None:
        await serve(runtime, loaded, variables)

    sys.stderr.write(f"{program} {version}\n")
    return run_controller(main, loaded.grace, name=program)


__all__ = ["Serve", "add_run"]
