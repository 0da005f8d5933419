"""Flags that name settings; their values are checked with those of all other sources."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

from msgspec import Struct

from tightship.app.cli.arguments import add_selector_argument, add_time_argument
from tightship.app.settings.fields import SWITCHABLE_RULES


class Flag(Struct, frozen=True):
    """A flag for the *field* of a model; *metavar* as argparse has it. A *switch* has a ``--no-`` form."""

    flag: str
    field: str
    metavar: str
    help: str
    repeatable: bool = False
    switch: bool = False

    @property
    def destination(self) -> str:
        return self.flag.lstrip("-").replace("-", "_")


PLACEMENT = Flag(
    "--placement",
    "placement",
    "WORD",
    "how sure a pod's new place must be: possible (there is one), likely (kube-scheduler's scoring, as modelled, "
    "finds one), certain (whatever it picks, all find one) (default: likely)",
)
MAX_NODES = Flag("--max-nodes", "max_nodes", "N", "removals after which the plan stops, 1 or more (default: no limit)")
POOL_LABEL = Flag(
    "--pool-label",
    "pool_labels",
    "LABEL",
    "node label that names the pool; repeatable, the first that a node carries counts (default: the labels of the "
    "known clouds)",
    repeatable=True,
)
DISABLE_RULE = Flag(
    "--disable-rule",
    "disabled_rules",
    "REASON",
    "switch a rule off; repeatable, and together they replace the file's list: "
    f"{', '.join(sorted(SWITCHABLE_RULES))} (default: all rules are on)",
    repeatable=True,
)
SCALE_UP_VETO = Flag(
    "--scale-up-veto",
    "scale_up_veto",
    "",
    "keep nodes whose removal would need the room of replicas that HPAs are about to start (default: on)",
    switch=True,
)
SCALE_UP_REPLICAS = Flag(
    "--scale-up-replicas",
    "scale_up_replicas",
    "N",
    "for how many replicas of each HPA room is kept, 1 or more (default: 100)",
)
SYSTEM_POD_TIMEOUT = Flag(
    "--system-pod-timeout",
    "system_pod_timeout",
    "DURATION",
    "how long after its creation a kube-system pod without a PodDisruptionBudget keeps its node (default: 1h)",
)


def add_options(
    parser: argparse.ArgumentParser,
    *,
    config: str,
    gates: Mapping[str, Iterable[Flag]],
    plan: Iterable[Flag],
    rules: Iterable[Flag],
) -> None:
    """Add the flags for what may go, the *gates* by title, the *plan* and the *rules*; *config* is that flag's help."""
    group = parser.add_argument_group("which nodes may go")
    group.add_argument("--config", metavar="FILE", help=config)
    group.add_argument(
        "--pool",
        metavar="NAME",
        action="append",
        help="only nodes of this pool may be removed; repeatable (default: all pools)",
    )
    add_selector_argument(group)
    for title, flags in gates.items():
        _add(parser.add_argument_group(title), flags)
    group = parser.add_argument_group("plan")
    _add(group, plan)
    group.add_argument(
        "--until-stable",
        action="store_true",
        help="plan round after round, as if the moved pods had become Ready, until no more node can go "
        "(default: one round)",
    )
    group = parser.add_argument_group("rules")
    _add(group, rules)
    add_time_argument(group)


def _add(group: argparse._ArgumentGroup, flags: Iterable[Flag]) -> None:
    for each in flags:
        if each.switch:
            group.add_argument(each.flag, action=argparse.BooleanOptionalAction, default=None, help=each.help)
        else:
            action = "append" if each.repeatable else "store"
            group.add_argument(each.flag, metavar=each.metavar, action=action, help=each.help.replace("%", "%%"))


def given(
    arguments: argparse.Namespace, flags: Iterable[Flag], keys: Mapping[str, str]
) -> dict[str, tuple[str, object]]:
    """Return what was given of *flags*, by the key that *keys* has for the field, each value with its flag."""
    values = [(each, getattr(arguments, each.destination)) for each in flags]
    return {keys[each.field]: (each.flag, value) for each, value in values if value is not None}
