"""The command ``run`` of a controller: flags, settings, log, process."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

from tightship.cli.app import CliError
from tightship.cli.arguments import CommandParser, add_flags, environment, given
from tightship.process.logging import LoggingError, set_up
from tightship.process.loop import Runtime, run_controller
from tightship.process.settings.loading import Flag, flags_of
from tightship.process.settings.process import ProcessSettings, load_process

_Settings = TypeVar("_Settings", bound=ProcessSettings)

Serve = Callable[[Runtime, _Settings, Mapping[str, str]], Awaitable[None]]
"""Runs a controller with its settings and the environment until ``runtime.stop``."""

_EPILOG = """Everything can also be set in the environment; flags come first. {live} come from the ConfigMap, live.
exit codes: 0 stopped by SIGTERM; 1 an error; 64 wrong usage; 130 interrupted."""

_TITLES = {"cluster": "cluster", "": "configuration", "logging": "logging"}


def add_run(
    commands: argparse._SubParsersAction[CommandParser],
    program: str,
    version: str,
    settings: type[_Settings],
    serve: Serve[_Settings],
) -> None:
    """Add the command to *commands*; *serve* runs the controller *program* with its *settings*."""
    words = settings.words
    run = commands.add_parser(
        "run",
        help=f"run the controller: {words.does}",
        description=words.description,
        epilog=_EPILOG.format(live=words.live[:1].upper() + words.live[1:]),
    )
    run.usage = f"{program} run [flags]"
    own = {flag.topic: flag.topic for flag in flags_of(settings).values() if flag.topic not in _TITLES}
    for topic, title in (_TITLES | own).items():
        add_flags(
            run.add_argument_group(title), settings, topic, otherwise=partial(_otherwise, settings), live=words.live
        )

    def begin(arguments: argparse.Namespace) -> int:
        return _run(given(arguments, settings), program, version, settings, serve)

    run.set_defaults(run=begin)


def _otherwise(settings: type[ProcessSettings], field: str, flag: Flag) -> str:
    """Return the variable and the default that apply without *flag*; empty if its help names them already."""
    if "default" in flag.help:
        return ""
    default = settings.model_fields[field].default
    values = default if isinstance(default, tuple) else (default,)
    texts = (f"{each:g}" if isinstance(each, float) else str(each) for each in values)
    switch = str(default).lower() if isinstance(default, bool) else ",".join(texts)
    return f" (default: ${settings.variables(field)[0]}" + ("" if default is None else f", else {switch}") + ")"


def _run(
    given: Mapping[str, object], program: str, version: str, settings: type[_Settings], serve: Serve[_Settings]
) -> int:
    variables = environment()
    try:
        loaded = load_process(settings, variables, given)
        set_up(loaded.log_format, loaded.log_level, environment=variables)
    except LoggingError as error:
        raise CliError(str(error)) from error

    async def main(runtime: Runtime) -> None:
        await serve(runtime, loaded, variables)

    logging.getLogger(program.replace("-", "_")).info("%s %s", program, version)
    return run_controller(main, loaded.grace, name=program)
