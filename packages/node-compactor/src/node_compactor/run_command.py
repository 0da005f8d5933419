"""The command ``node-compactor run``: the controller itself."""

from __future__ import annotations

import argparse

import node_compactor
from node_compactor.run_settings import RunSettings
from node_compactor.running import serve
from tightship.app.cli import Parser
from tightship.app.cli.run_command import add_run as add


def add_run(commands: argparse._SubParsersAction[Parser], program: str) -> None:
    """Add the command to *commands*."""
    add(
        commands,
        program,
        node_compactor.__version__,
        does="mark, drain, hand over, loop after loop",
        description="Run the controller: mark underutilized nodes, drain the least utilized, hand it to Cluster "
        "Autoscaler, again and again. Serves metrics, probes and its last plan over HTTP.",
        live="pools and gates",
        migration="docs/migration.md",
        settings=RunSettings,
        serve=serve,
    )
