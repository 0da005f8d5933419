"""The command ``node-refiner run``: the controller itself."""

from __future__ import annotations

import argparse

import node_refiner
from node_refiner.run_settings import RunSettings
from node_refiner.running import serve
from tightship.app.cli import Parser
from tightship.app.cli.run_command import add_run as add


def add_run(commands: argparse._SubParsersAction[Parser], program: str) -> None:
    """Add the command to *commands*."""
    add(
        commands,
        program,
        node_refiner.__version__,
        does="count excess nodes, drain one, hand it over, loop after loop",
        description="Run the controller: count the nodes the cluster could do without, drain the one whose removal "
        "disturbs least, hand it to the Cluster Autoscaler, again and again. Serves metrics, probes and its last plan "
        "over HTTP.",
        live="threshold, minimums and pauses",
        migration="docs/migration-node-refiner.md",
        settings=RunSettings,
        serve=serve,
    )
