"""Make the kind cluster of the tests, load the controllers' images into it, delete it.

    python -m tightship_e2e.providers.kind_cluster create [--node-image IMAGE]
    python -m tightship_e2e.providers.kind_cluster load [--registry REGISTRY] [--tag TAG]
    python -m tightship_e2e.providers.kind_cluster delete

The cluster is that of ``.github/kind.yaml``, and its nodes give 4 CPU each: of a machine with more, the rest is
reserved.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tightship_e2e import binaries
from tightship_e2e.options import KIND_CLUSTER
from tightship_e2e.providers.remote import CONTROLLERS, Images
from tightship_testkit.manifests import POOL

ROOT = Path(__file__).resolve().parents[4]
CONFIG = ROOT / ".github/kind.yaml"
CPUS = 4
"""Of each node: what the scenarios count with."""
DEADLINE = 1200.0


class ClusterError(Exception):
    """The cluster can't be made or used; the message says why."""


def configuration(cpus: int) -> dict[str, Any]:
    """Return the cluster's configuration for a machine of so many CPUs. Raises ClusterError when there are too few."""
    if cpus < CPUS:
        raise ClusterError(f"containers have {cpus} CPUs here, the nodes of the scenarios need {CPUS}")
    found: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    if cpus > CPUS:
        reserved = {"kind": "KubeletConfiguration", "systemReserved": {"cpu": str(cpus - CPUS)}}
        found["kubeadmConfigPatches"].append(yaml.safe_dump(reserved))
    return found


def create(cluster: str, image: str) -> None:
    """Make the cluster, unless it is there; *image* is that of its nodes, empty for kind's own."""
    if cluster in _said("kind", "get", "clusters").split():
        print(f"the kind cluster {cluster} is there already")
        return
    cpus = int(_said("docker", "info", "--format", "{{.NCPU}}"))
    chosen = ["--image", image] if image else []
    # Paths in the configuration are those of the repository's root.
    _run(
        "kind",
        "create",
        "cluster",
        "--name",
        cluster,
        "--config",
        "-",
        "--wait",
        "5m",
        *chosen,
        given=configuration(cpus),
    )


def load(cluster: str, images: Images) -> None:
    """Load the images where they run; those that docker does not have are built before.

    hpa-scaler's is also that of the workloads, so every node needs it. Eleven copies of the others fill a disk.
    """
    names = [images.name(each) for each in CONTROLLERS]
    there = [
        subprocess.run([_program("docker"), "image", "inspect", each], capture_output=True, check=False)
        for each in names
    ]
    if any(each.returncode for each in there):
        _run("make", "images", f"REGISTRY={images.registry}", f"TAG={images.tag}")
    everywhere = images.name("hpa-scaler")
    there_only = [each for each in names if each != everywhere]
    _run("kind", "load", "docker-image", "--name", cluster, everywhere)
    _run("kind", "load", "docker-image", "--name", cluster, "--nodes", system_node(cluster), *there_only)


def system_node(cluster: str) -> str:
    """Return kind's name of the node that is for the controllers: kind numbers workers in their order."""
    workers = [each for each in yaml.safe_load(CONFIG.read_text())["nodes"] if each["role"] == "worker"]
    [place] = [place for place, each in enumerate(workers) if each["labels"][POOL] == "system"]
    return f"{cluster}-worker{place + 1 if place else ''}"


def delete(cluster: str) -> None:
    """Delete the cluster, if it is there."""
    _run("kind", "delete", "cluster", "--name", cluster)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked for; 1 when it can't be done."""
    parser = argparse.ArgumentParser(prog="python -m tightship_e2e.providers.kind_cluster")
    parser.add_argument("what", choices=("create", "load", "delete"))
    parser.add_argument("--cluster", default=KIND_CLUSTER)
    parser.add_argument("--node-image", default="")
    parser.add_argument("--registry", default="ghcr.io/tightship")
    parser.add_argument("--tag", default="dev")
    given = parser.parse_args(arguments)
    try:
        match given.what:
            case "create":
                create(given.cluster, given.node_image)
            case "load":
                load(given.cluster, Images(given.registry, given.tag))
            case _:
                delete(given.cluster)
    except (ClusterError, binaries.NotBuiltError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _program(name: str) -> str:
    return str(binaries.find_or_installed(name))


def _said(name: str, *arguments: str) -> str:
    answer = subprocess.run([_program(name), *arguments], capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode:
        raise ClusterError(f"{name} {' '.join(arguments)}: {answer.stderr.strip()}")
    return answer.stdout


def _run(name: str, *arguments: str, given: object = None) -> None:
    text = None if given is None else yaml.safe_dump(given)
    answer = subprocess.run(
        [_program(name), *arguments], input=text, text=True, cwd=ROOT, timeout=DEADLINE, check=False
    )
    if answer.returncode:
        raise ClusterError(f"{name} {' '.join(arguments)} ended with {answer.returncode}")


if __name__ == "__main__":
    sys.exit(main())


__all__ = ["CONFIG", "ClusterError", "configuration", "create", "delete", "load", "main"]
