"""What kube-score says of the charts, but for what is not so, or not so here."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from rendering import Json

from tightship_charts.matrix import Values
from tightship_charts.places import UMBRELLA
from tightship_e2e import binaries
from tightship_e2e.helm import Helm
from tightship_e2e.plugin import require_programs

HARDENED: Values = {"global": {"dryRun": False, "networkPolicy": {"enabled": True}}}
"""What an installation in earnest has. A NetworkPolicy is no default: it has no effect in some clusters, and in others
it would keep the controllers from an API server or a Prometheus whose ports nobody named."""

Finding = tuple[str, str, str]
"""The check, the kind of object, and what it says."""

EVERY = ("Deployment", "Job", "Pod")

EXCEPTIONS: Mapping[Finding, str] = {
    **{
        ("container-image-pull-policy", kind, "ImagePullPolicy is not set to Always"): """
            Tags of releases never change, and IfNotPresent starts a pod while the registry can't be reached.
            """
        for kind in EVERY
    },
    **{
        ("container-ephemeral-storage-request-and-limit", kind, f"Ephemeral Storage {what} is not set"): """
            The root file system is read-only, and the kubelet rotates the log. Only the decision log of hpa-scaler is
            written to a volume: its size is decisionLog.megabytes, and it is off by default.
            """
        for kind in EVERY
        for what in ("request", "limit")
    },
    **{
        ("container-resources", kind, "CPU limit is not set"): """
            A limit of CPU throttles a pass, and a throttled pass misses its deadline while other processors are idle.
            """
        for kind in EVERY
    },
    ("deployment-has-host-podantiaffinity", "Deployment", "Deployment does not have a host podAntiAffinity set"): """
        topologySpreadConstraints spread the replicas over nodes and zones; kube-score does not read them.
        """,
}
"""What is left as it is, and why."""


def findings(scored: list[Json]) -> Iterator[Finding]:
    for item in scored:
        for each in item["checks"]:
            if each["skipped"] or each["grade"] == 10:  # it has 1 for critical, 5 and 7 for warnings, 10 for all right
                continue
            for comment in each["comments"]:
                yield each["check"]["id"], item["type_meta"]["kind"], comment["summary"]


@pytest.fixture(scope="module")
def found(helm: Helm, charts: Path) -> set[Finding]:
    """What kube-score finds in the umbrella, hooks and tests among it."""
    require_programs("kube-score")
    text = helm("template", "rel", charts / UMBRELLA, "--namespace", "tightship", values=HARDENED)
    command = [str(binaries.find("kube-score")["kube-score"]), "score", "--output-format", "json", "-"]
    # With findings it ends with 1, and prints them all the same.
    answer = subprocess.run(command, input=text.encode(), capture_output=True, timeout=120, check=False)
    return set(findings(msgspec.json.decode(answer.stdout)))


def test_kube_score_finds_nothing_but_what_is_explained(found: set[Finding]) -> None:
    assert found - EXCEPTIONS.keys() == set()


def test_no_exception_outlives_its_finding(found: set[Finding]) -> None:
    assert EXCEPTIONS.keys() - found == set()
