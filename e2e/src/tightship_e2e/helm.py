"""Helm and kubectl in tests: rendering a chart, and what a real API server says of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

Json = dict[str, Any]

DEADLINE = 300.0
"""Seconds for one command."""
SPARING = "--disable-openapi-validation"
"""Takes half a second of a processor off an installation or upgrade. ``e2e/tests/test_charts.py`` has Helm and the API
server check every chart."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C reads what a chart renders ten times as fast."""


class HelmError(Exception):
    """Helm or kubectl ended with an error; the message is what it said."""


class Helm:
    """The program *path*, with caches in *home* and speaking to the cluster of *kubeconfig*, if any."""

    def __init__(self, path: Path, home: Path, kubeconfig: Path | None = None) -> None:
        self.path = path
        self._environment = {
            "HELM_CACHE_HOME": str(home / "cache"),
            "HELM_CONFIG_HOME": str(home / "config"),
            "HELM_DATA_HOME": str(home / "data"),
            "KUBECONFIG": str(kubeconfig or home / "none"),
            # It ends before it would have to make room: looking for garbage is a quarter of its work.
            "GOGC": "off",
            "GOMEMLIMIT": "1GiB",
        }

    def __call__(self, *arguments: str | Path, values: Mapping[str, object] | None = None) -> str:
        """Run ``helm`` with *arguments* and *values*, and return what it printed. Raises :class:`HelmError`."""
        given = [str(self.path), *(str(each) for each in arguments)]
        if values is not None:
            given += ["--values", "-"]
        return run(given, msgspec.json.encode(values or {}), self._environment)

    def template(
        self,
        chart: Path,
        values: Mapping[str, object] | None = None,
        *,
        release: str = "rel",
        namespace: str = "ns",
        apis: Sequence[str] | None = (),
        kubernetes: str = "",
        tests: bool = False,
    ) -> list[Json]:
        """Return the objects that *chart* renders, in the order of their installation, with its *tests* or without.

        *apis* are the kinds that the cluster serves besides those that every release of Kubernetes has, such as
        ``monitoring.coreos.com/v1/ServiceMonitor``; ``None`` renders without a cluster. *kubernetes* is its version.
        """
        # A list with a Pod is what a cluster, or Argo CD, says of itself.
        flags = [f"--api-versions={each}" for each in (() if apis is None else ("v1/Pod", *apis))]
        flags += [f"--kube-version={kubernetes}"] if kubernetes else []
        flags += [] if tests else ["--skip-tests"]
        text = self("template", release, chart, "--namespace", namespace, *flags, values=values or {})
        return objects(text)


def objects(text: str) -> list[Json]:
    """Return the objects in a stream of YAML documents, and those in lists of them."""
    read = [each for each in yaml.load_all(text, _LOADER) if each]
    return [item for each in read for item in (each["items"] if each["kind"] == "List" else [each])]


def run(command: Sequence[str], given: bytes, environment: Mapping[str, str]) -> str:
    """Return what *command* printed, *given* on its input. Raises :class:`HelmError` with what it complained of."""
    answer = subprocess.run(
        list(command),
        input=given,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=DEADLINE,
        check=False,
    )
    if answer.returncode != 0:
        raise HelmError(answer.stderr.decode(errors="replace").strip())
    return answer.stdout.decode()


__all__ = ["SPARING", "Helm", "HelmError", "objects", "run"]
