"""The flags of ``plan`` and ``explain``: each names a setting; values are checked with those of all other sources."""

from __future__ import annotations

import argparse

from node_compactor.configuration import Flags
from node_compactor.settings import CompactorSettings, PoolSettings
from tightship.app.cli import options
from tightship.app.cli.options import (
    DISABLE_RULE,
    MAX_NODES,
    PLACEMENT,
    POOL_LABEL,
    SCALE_UP_REPLICAS,
    SCALE_UP_VETO,
    SYSTEM_POD_TIMEOUT,
    Flag,
    given,
)
from tightship.app.settings.loading import wire_keys
from tightship.planning.plan import STRATEGIES

POOL_GATES = (
    Flag(
        "--limit",
        "limit",
        "RATIO",
        "CPU requests over allocatable CPU below which a node may go (without --config: 0.75)",
    ),
    Flag(
        "--required-count",
        "required_count",
        "N",
        "underutilized nodes a pool must have before one may go (without --config: 1)",
    ),
    Flag("--min-nodes", "minimum_nodes", "N", "nodes every pool keeps (default: 0)"),
    Flag(
        "--budget",
        "budget",
        "N|P%",
        "nodes of a pool that may be out at once, those in drain, not Ready and planned together: a number or a "
        "percentage (default: no limit)",
    ),
)
_GATES = (
    Flag(
        "--cluster-budget",
        "cluster_budget",
        "N|P%",
        "the same for the whole cluster (default: no limit)",
    ),
    Flag(
        "--min-age",
        "minimum_age",
        "DURATION",
        "age below which a node stays: 90s, 10m, 1h30m, or a plain number of seconds (default: 0 while planning)",
    ),
    Flag(
        "--marked-for",
        "marked_for",
        "DURATION",
        "how long a node must have been marked underutilized, in the same forms (default: 0 while planning)",
    ),
)
_PLAN = (
    Flag(
        "--strategy",
        "strategy",
        "NAME",
        f"which nodes go first: {' or '.join(STRATEGIES)} (default: {next(iter(STRATEGIES))})",
    ),
    PLACEMENT,
    MAX_NODES,
)
_RULES = (
    POOL_LABEL,
    Flag(
        "--ignore-daemonsets",
        "ignore_daemonsets",
        "",
        "leave DaemonSet pods out of both sides of the ratio (default: no)",
        switch=True,
    ),
    Flag(
        "--ignore-mirror-pods",
        "ignore_mirror_pods",
        "",
        "leave mirror pods out of both sides of the ratio (default: no)",
        switch=True,
    ),
    DISABLE_RULE,
    SYSTEM_POD_TIMEOUT,
    SCALE_UP_VETO,
    SCALE_UP_REPLICAS,
)

FLAGS = (*POOL_GATES, *_GATES, *_PLAN, *_RULES)
"""All flags that set a setting."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags for what may go, the gates, the plan and the rules, by topic."""
    options.add_options(
        parser,
        config="configuration: the JSON of estafette-k8s-node-compactor as it is, the same as YAML, or a ConfigMap "
        "manifest that holds either (default: every pool enabled with limit 0.75 and required count 1)",
        gates={"gates (each replaces the value of --config, for every pool)": (*POOL_GATES, *_GATES)},
        plan=_PLAN,
        rules=_RULES,
    )


def flags_of(arguments: argparse.Namespace) -> Flags:
    """Return the settings that were given as flags."""
    return Flags(
        given(arguments, POOL_GATES, wire_keys(PoolSettings)),
        given(arguments, (*_GATES, *_PLAN, *_RULES), wire_keys(CompactorSettings)),
    )
