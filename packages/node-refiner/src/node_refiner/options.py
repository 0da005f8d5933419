"""The flags of ``plan`` and ``explain``: each names a setting; values are checked with those of all other sources."""

from __future__ import annotations

import argparse

from node_refiner.configuration import KEYS, Flags
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

_GATES = (
    Flag(
        "--threshold",
        "excess_nodes_threshold",
        "NODES",
        "nodes the cluster must be able to do without before one may go (default: 2)",
    ),
    Flag("--min-nodes", "minimum_nodes", "N", "nodes the cluster keeps (default: 2)"),
    Flag(
        "--min-non-tainted-nodes",
        "minimum_non_tainted_nodes",
        "N",
        "nodes without a taint that keeps pods away, which the cluster keeps (default: 2)",
    ),
)
_PLAN = (
    Flag(
        "--candidate-order",
        "candidate_order",
        "WORD",
        "which nodes go first: score, fewest_evictions or pods_priority (default: score)",
    ),
    Flag("--cpu-weight", "cpu_weight", "W", "weight of the CPU ratio in the score (default: 0.8)"),
    Flag("--memory-weight", "memory_weight", "W", "weight of the memory ratio in the score (default: 0.2)"),
    PLACEMENT,
    MAX_NODES,
)
_RULES = (POOL_LABEL, DISABLE_RULE, SYSTEM_POD_TIMEOUT, SCALE_UP_VETO, SCALE_UP_REPLICAS)

FLAGS = (*_GATES, *_PLAN, *_RULES)
"""All flags that set a setting."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags for what may go, threshold and minimums, the plan and the rules, by topic."""
    options.add_options(
        parser,
        config="configuration: a ConfigMap manifest as SAP node-refiner has it (node-refiner-cm), or its keys as flat "
        "YAML or JSON (default: that controller's defaults)",
        gates={"threshold and minimums (each replaces the value of --config)": _GATES},
        plan=_PLAN,
        rules=_RULES,
    )


def flags_of(arguments: argparse.Namespace) -> Flags:
    """Return the settings that were given as flags."""
    return given(arguments, FLAGS, KEYS)
