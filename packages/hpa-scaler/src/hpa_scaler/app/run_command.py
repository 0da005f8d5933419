"""The command ``hpa-scaler run``: the controller itself."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import hpa_scaler
from hpa_scaler.app.options import PROCESS_FLAGS, add_process_options
from hpa_scaler.app.run_settings import PROGRAM, RunSettings
from hpa_scaler.app.running import serve
from tightship.app.cli import Parser
from tightship.app.cli.run_command import add_run as add


def add_run(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the command to *commands*."""
    add(
        commands,
        PROGRAM,
        hpa_scaler.__version__,
        does="ask, judge, and set the floors of HPAs, cycle after cycle",
        description="Run the controller: ask Prometheus what annotated HPAs want to know, judge where their floors "
        "belong, and set them, again and again. Serves metrics, probes and its last cycle over HTTP.",
        live="servers, defaults and how careful it is",
        migration="docs/migration.md",
        settings=RunSettings,
        serve=serve,
        own=_own_flags,
    )


def _own_flags(run: Parser) -> Sequence[str]:
    group = run.add_argument_group("floors")
    add_process_options(group)
    group.add_argument("--decision-log", metavar="FILE", help="append every judgement to FILE, for `replay`")
    group.add_argument(
        "--watch", action="store_const", const=True, help="watch HPAs too, and raise again at once what is set back"
    )
    return (*PROCESS_FLAGS, "decision_log", "watch")


__all__ = ["add_run"]
