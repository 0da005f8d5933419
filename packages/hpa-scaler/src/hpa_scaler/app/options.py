"""The flags of ``plan`` and ``explain``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from hpa_scaler.app.fleet import KINDS, Selection
from hpa_scaler.app.run_settings import RunSettings
from hpa_scaler.report.document import HpaEntry
from tightship.app.cli.arguments import add_cluster_arguments, add_flags, add_time_argument, value_of
from tightship.app.cli.selector import parse_selector

_ACTIONS = ("raise", "lower", "hold", "skip")

ORDERS: Mapping[str, Callable[[HpaEntry], object] | None] = {
    "name": None,
    "action": lambda entry: _ACTIONS.index(entry.action),
    "change": lambda entry: -abs(entry.minimum.after - entry.minimum.now),
}
"""Sort orders of a plan's HPAs, the default first. Namespace and name break ties."""


def _selector(text: str) -> str:
    parse_selector(text)
    return text


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags for inputs, settings and answers."""
    cluster = add_cluster_arguments(parser, KINDS)
    add_selection(cluster)
    settings = parser.add_argument_group("settings")
    settings.add_argument(
        "--config", metavar="FILE", help="what the controller's ConfigMap holds, or the manifest of one"
    )
    add_flags(settings, RunSettings, "floors", plan=True)
    add_time_argument(settings)
    answers = parser.add_argument_group("queries")
    answers.add_argument(
        "--outcomes", metavar="FILE", help="take the answers from FILE instead of asking servers (see --save-outcomes)"
    )
    answers.add_argument("--save-outcomes", metavar="FILE", help="write the answers to FILE, for another --outcomes")


def add_selection(group: argparse._ArgumentGroup, *, all_by_default: bool = True) -> None:
    """Add the flags that select HPAs."""
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "-n", "--namespace", metavar="NAME", action="append", help="only HPAs of this namespace; repeatable"
    )
    which.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="HPAs of all namespaces" + (" (the default)" if all_by_default else ""),
    )
    group.add_argument(
        "-l",
        "--selector",
        metavar="SELECTOR",
        type=value_of(_selector),
        help="only HPAs with these labels, as for kubectl: a=b, a!=b, a, !a, 'a in (b,c)', joined by commas",
    )


def selection_of(arguments: argparse.Namespace, namespaces: tuple[str, ...], selector: str) -> Selection:
    """Return the selection of HPAs: the flags', else the configuration's."""
    chosen = tuple(dict.fromkeys(arguments.namespace or ())) or (() if arguments.all_namespaces else namespaces)
    return Selection(chosen, selector if arguments.selector is None else arguments.selector)


__all__ = ["ORDERS", "add_options", "add_selection", "selection_of"]
