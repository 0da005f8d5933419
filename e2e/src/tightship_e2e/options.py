"""Options of pytest by which a run chooses its cluster. They are read before anything of the tests is."""

from __future__ import annotations

import argparse
import os
import secrets
import signal

import pytest

PROVIDERS = ("controlplane", "existing", "kind")
YES = "--yes-use-this-cluster"
MARKER = "providers(*names): a scenario of these providers only"
KIND_CLUSTER = "tightship"
SUFFIX_VARIABLE = "TIGHTSHIP_E2E_SUFFIX"


def add_options(parser: pytest.Parser) -> None:
    """Let a run choose its cluster."""
    group = parser.getgroup("clusters", "the cluster that whole releases are tried on")
    group.addoption("--provider", choices=PROVIDERS, default="controlplane", help="default: %(default)s")
    group.addoption(YES, metavar="CONTEXT", help="existing: a context of your kubeconfig, whose nodes will be drained")
    group.addoption("--existing-nodes", metavar="SELECTOR", help="existing: labels of the nodes that may be drained")
    group.addoption("--kind-cluster", default=KIND_CLUSTER, help="kind: the cluster's name, default: %(default)s")
    group.addoption("--registry", default="ghcr.io/tightship", help="existing, kind: of images, default: %(default)s")
    group.addoption("--tag", default="dev", help="existing, kind: that of images, default: %(default)s")


def problems(options: argparse.Namespace) -> list[str]:
    """Return everything that is wrong with what was chosen."""
    found = []
    given = {YES: options.yes_use_this_cluster, "--existing-nodes": options.existing_nodes}
    for flag, value in given.items():
        if options.provider == "existing" and not value:
            found.append(f"--provider existing installs releases and drains nodes: say on which, with {flag}")
        elif options.provider != "existing" and value:
            found.append(f"{flag} is for --provider existing, not {options.provider}")
    if options.provider != "controlplane" and (getattr(options, "numprocesses", None) or 0):
        found.append(f"--provider {options.provider} is one cluster: scenarios on it can't run beside each other (-n)")
    return found


def name_run(options: argparse.Namespace) -> None:
    """Give the run a suffix of its own on somebody's cluster; tests that are read later have it in their names."""
    if options.provider == "existing":
        os.environ[SUFFIX_VARIABLE] = f"-{secrets.token_hex(3)}"
        # By default it ends a process at once: nothing would be cleaned up.
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for other providers."""
    provider = config.getoption("provider")
    others = {each for each in items if any(provider not in mark.args for mark in each.iter_markers("providers"))}
    if others:
        config.hook.pytest_deselected(items=list(others))
        items[:] = [each for each in items if each not in others]


__all__ = [
    "KIND_CLUSTER",
    "MARKER",
    "SUFFIX_VARIABLE",
    "YES",
    "add_options",
    "deselect",
    "name_run",
    "problems",
]
