"""The flags of ``plan`` and ``explain``: each names a setting; values are checked with those of all other sources."""

from __future__ import annotations

import argparse

from msgspec import Struct

from node_compactor.configuration import Flags
from node_compactor.settings import CompactorSettings, PoolSettings
from tightship.cli.arguments import add_selector_argument, add_time_argument
from tightship.plan import STRATEGIES
from tightship.settings.fields import SWITCHABLE_RULES
from tightship.settings.loading import wire_keys


class _Flag(Struct, frozen=True):
    """A flag for the *field* of a model; *action* and *metavar* as argparse has them."""

    flag: str
    field: str
    metavar: str
    help: str
    repeatable: bool = False
    switch: bool = False

    @property
    def destination(self) -> str:
        return self.flag.lstrip("-").replace("-", "_")


_POOL_GATES = (
    _Flag(
        "--limit",
        "limit",
        "RATIO",
        "CPU requests over allocatable CPU below which a node may go (without --config: 0.75)",
    ),
    _Flag(
        "--required-count",
        "required_count",
        "N",
        "underutilized nodes a pool must have before one may go (without --config: 1)",
    ),
    _Flag("--min-nodes", "minimum_nodes", "N", "nodes every pool keeps (default: 0)"),
    _Flag(
        "--budget",
        "budget",
        "N|P%",
        "nodes of a pool that may be out at once, those in drain, not Ready and planned together: a number or a "
        "percentage (default: no limit)",
    ),
)
_GATES = (
    _Flag(
        "--cluster-budget",
        "cluster_budget",
        "N|P%",
        "the same for the whole cluster (default: no limit)",
    ),
    _Flag(
        "--min-age",
        "minimum_age",
        "DURATION",
        "age below which a node stays: 90s, 10m, 1h30m, or a plain number of seconds (default: 0 while planning)",
    ),
    _Flag(
        "--marked-for",
        "marked_for",
        "DURATION",
        "how long a node must have been marked underutilized, in the same forms (default: 0 while planning)",
    ),
)
_PLAN = (
    _Flag(
        "--strategy",
        "strategy",
        "NAME",
        f"which nodes go first: {' or '.join(STRATEGIES)} (default: {next(iter(STRATEGIES))})",
    ),
    _Flag(
        "--placement",
        "placement",
        "WORD",
        "how sure a pod's new place must be: possible (there is one), likely (kube-scheduler's scoring, as modelled, "
        "finds one), certain (whatever it picks, all find one) (default: likely)",
    ),
    _Flag("--max-nodes", "max_nodes", "N", "removals after which the plan stops, 1 or more (default: no limit)"),
)
_RULES = (
    _Flag(
        "--pool-label",
        "pool_labels",
        "LABEL",
        "node label that names the pool; repeatable, the first that a node carries counts (default: the labels of the "
        "known clouds)",
        repeatable=True,
    ),
    _Flag(
        "--ignore-daemonsets",
        "ignore_daemonsets",
        "",
        "leave DaemonSet pods out of both sides of the ratio",
        switch=True,
    ),
    _Flag(
        "--ignore-mirror-pods",
        "ignore_mirror_pods",
        "",
        "leave mirror pods out of both sides of the ratio",
        switch=True,
    ),
    _Flag(
        "--disable-rule",
        "disabled_rules",
        "REASON",
        "switch a rule off; repeatable, and together they replace the file's list: "
        f"{', '.join(sorted(SWITCHABLE_RULES))} (default: all rules are on)",
        repeatable=True,
    ),
    _Flag(
        "--system-pod-timeout",
        "system_pod_timeout",
        "DURATION",
        "how long after its creation a kube-system pod without a PodDisruptionBudget keeps its node (default: 1h)",
    ),
)

FLAGS = (*_POOL_GATES, *_GATES, *_PLAN, *_RULES)
"""All flags that set a setting."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags for what may go, the gates, the plan and the rules, by topic."""
    group = parser.add_argument_group("what may go")
    group.add_argument(
        "--config",
        metavar="FILE",
        help="configuration: the JSON of estafette-k8s-node-compactor as it is, the same as YAML, or a ConfigMap "
        "manifest that holds either (default: every pool enabled with limit 0.75 and required count 1)",
    )
    group.add_argument(
        "--pool",
        metavar="NAME",
        action="append",
        help="only nodes of this pool may be removed; repeatable (default: all pools)",
    )
    add_selector_argument(group)
    _add(
        parser.add_argument_group("gates (each replaces the value of --config, for every pool)"),
        (*_POOL_GATES, *_GATES),
    )
    plan = parser.add_argument_group("plan")
    _add(plan, _PLAN)
    plan.add_argument(
        "--until-stable",
        action="store_true",
        help="plan round after round, as if the moved pods had become Ready, until nothing more goes "
        "(default: one round)",
    )
    rules = parser.add_argument_group("rules")
    _add(rules, _RULES)
    add_time_argument(rules)


def _add(group: argparse._ArgumentGroup, flags: tuple[_Flag, ...]) -> None:
    for each in flags:
        if each.switch:
            text = f"{each.help} (default: no)"
            group.add_argument(each.flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            action = "append" if each.repeatable else "store"
            group.add_argument(each.flag, metavar=each.metavar, action=action, help=each.help.replace("%", "%%"))


def flags_of(arguments: argparse.Namespace) -> Flags:
    """Return the settings that were given as flags."""
    pool_keys, top_keys = wire_keys(PoolSettings), wire_keys(CompactorSettings)

    def given(flags: tuple[_Flag, ...], keys: dict[str, str]) -> dict[str, tuple[str, object]]:
        values = [(each, getattr(arguments, each.destination)) for each in flags]
        return {keys[each.field]: (each.flag, value) for each, value in values if value is not None}

    return Flags(given(_POOL_GATES, pool_keys), given((*_GATES, *_PLAN, *_RULES), top_keys))
