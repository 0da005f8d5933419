"""The provider ``existing``: somebody's cluster, by the name of a context of a kubeconfig.

Nothing is done that was not said: the context has to be named, and so have the nodes. What is made is in namespaces of
this run, but for the cluster-wide roles of the charts and one APIService, and goes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tightship.objects.quantity import milli
from tightship_e2e import binaries
from tightship_e2e.external_metrics import GROUP
from tightship_e2e.helm import HelmError, run
from tightship_e2e.names import LABELS, NAMESPACES, RELEASE
from tightship_e2e.providers import measures
from tightship_e2e.providers.kubelets import LABEL
from tightship_e2e.providers.pools import KEPT, Pools, is_ready
from tightship_e2e.providers.remote import Cluster, Images, RemoteProvider, prepared
from tightship_testkit.client import Client, Json
from tightship_testkit.manifests import POOL
from tightship_testkit.marks import OURS, taints

POOLS = ("system", "general", "memory")
ROOM = (3800, 4000)
"""Milli-CPU that a node may have for pods: the numbers of the scenarios are for nodes of 4 CPU."""
OPT_OUTS = {"tightship.dev/do-not-drain": "true", KEPT: "true"}
OPTED_IN = "estafette.io/hpa-scaler"
CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


class RefusedError(Exception):
    """A cluster is not touched; the message says everything that is in the way."""


@dataclass(frozen=True)
class Chosen:
    """What somebody has said: *context* of the kubeconfig, labels of the *nodes*, and the *images*."""

    context: str
    nodes: str
    images: Images


class ExistingProvider(RemoteProvider):
    """A scenario on somebody's cluster."""

    name = "a cluster that exists"


async def obstacles(api: Client, selector: str) -> list[str]:
    """Return everything for which a cluster is not to be touched."""
    nodes = await api.list("Node")
    reported = {each["metadata"]["name"]: each for each in await api.list("Node", labelSelector=selector)}
    emptied = {name for name, each in reported.items() if each["metadata"]["labels"].get(POOL) != "system"}
    found = [] if reported else [f"no node has the labels {selector}"]
    for node in nodes:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        if name in reported:
            found += [f"node {name} {problem}" for problem in _unfit(node)]
        elif not any(key in labels for key in CONTROL_PLANE) and not _opted_out(node):
            keep = " ".join(f"{key}={value}" for key, value in OPT_OUTS.items() if key != KEPT)
            found.append(f"node {name} is not named, but might be drained: kubectl annotate node {name} {keep}")
    for pod in await api.list("Pod"):
        meta, owners = pod["metadata"], pod["metadata"].get("ownerReferences") or []
        where = pod["spec"].get("nodeName")
        if where in emptied and not any(each["kind"] in ("DaemonSet", "Node") for each in owners):
            found.append(f"pod {meta['namespace']}/{meta['name']} is on node {where}, which is to be emptied")
        key, _, value = LABEL.partition("=")
        if (meta.get("labels") or {}).get(key) == value:
            found.append(f"pod {meta['namespace']}/{meta['name']} is of a Tightship that is there already")
    for each in await api.list("HorizontalPodAutoscaler"):
        meta = each["metadata"]
        if OPTED_IN in (meta.get("annotations") or {}):
            found.append(f"HPA {meta['namespace']}/{meta['name']} is opted in to a hpa-scaler: it would be scaled")
    manager = "app.kubernetes.io/managed-by"
    for each in await api.list("Namespace", labelSelector=f"{manager}={LABELS[manager]}"):
        name = each["metadata"]["name"]
        found.append(f"namespace {name} is of another run: if that is over, kubectl delete namespace {name}")
    if await measures.served_already(api):
        found.append(f"somebody serves {GROUP} already: kubectl get apiservices")
    return found


def _unfit(node: Json) -> list[str]:
    found = []
    if not is_ready(node):
        found.append("is not Ready")
    if node["spec"].get("unschedulable"):
        found.append("is cordoned")
    pool = (node["metadata"].get("labels") or {}).get(POOL)
    if pool not in POOLS:
        found.append(f"has {POOL}={pool}, which is none of {', '.join(POOLS)}")
    marks = [each["key"] for each in taints(node)] + list(node["metadata"].get("annotations") or {})
    found += [f"bears {each} already" for each in marks if each.startswith(OURS)]
    cpu = milli(str(node["status"]["allocatable"]["cpu"]))
    if pool != "system" and not ROOM[0] <= cpu <= ROOM[1]:
        found.append(f"has {cpu}m CPU for pods, not {ROOM[0]}m to {ROOM[1]}m")
    return found


def _opted_out(node: Json) -> bool:
    notes = node["metadata"].get("annotations") or {}
    return any(notes.get(key) == value for key, value in OPT_OUTS.items())


def intention(chosen: Chosen, server: str, nodes: list[str]) -> str:
    """Return what is about to be done to a cluster."""
    return "\n".join(
        [
            f"On the cluster of context {chosen.context}, {server}:",
            f"  makes and removes the namespaces {', '.join(NAMESPACES)}, and the APIService of {GROUP};",
            f"  installs and uninstalls the release {RELEASE}, with ClusterRoles of its name, and with images",
            f"  {chosen.images.registry}/*:{chosen.images.tag};",
            f"  cordons, drains, deletes and brings back the nodes {chosen.nodes}: {', '.join(nodes)}.",
        ]
    )


def contexts(kubectl: Path) -> list[str]:
    """Return the names of the contexts that kubectl knows."""
    return run([str(kubectl), "config", "get-contexts", "--output=name"], b"", {}).split()


def pinned(kubectl: Path, context: str, target: Path) -> Path:
    """Write a kubeconfig with this context only, so that nobody's switch of contexts leads anywhere else.

    Raises RefusedError when there is none of that name.
    """
    try:
        known = contexts(kubectl)
    except HelmError as error:
        raise RefusedError(f"kubectl knows no contexts: {error}") from error
    if context not in known:
        raise RefusedError(f"there is no context {context!r}; there are: {', '.join(known) or 'none'}")
    view = ("config", "view", "--raw", "--minify", "--flatten", f"--context={context}", "--output=json")
    target.touch(mode=0o600)
    target.write_text(run([str(kubectl), *view], b"", {}))
    return target


@asynccontextmanager
async def on_existing(chosen: Chosen, folder: Path, tell: Callable[[str], None]) -> AsyncIterator[ExistingProvider]:
    """Provide somebody's cluster; *folder* is for what there is on disk, *tell* is told first what will be done.

    Raises RefusedError, before anything is done, with everything that is in the way.
    """
    kubectl = binaries.find_or_installed("kubectl")
    kubeconfig = await asyncio.to_thread(pinned, kubectl, chosen.context, folder / "kubeconfig")
    cluster = await Cluster.of(kubeconfig)
    async with cluster.client() as api:
        found = await obstacles(api, chosen.nodes)
        if found:
            raise RefusedError("\n".join([f"the cluster of context {chosen.context} is left alone:", *found]))
        nodes = await api.list("Node", labelSelector=chosen.nodes)
        tell(intention(chosen, cluster.server, [each["metadata"]["name"] for each in nodes]))
        pools = Pools(api, nodes)
        provider = ExistingProvider(cluster, api, folder / "helm", chosen.images, pools, selector=chosen.nodes)
        async with prepared(provider):
            yield provider


__all__ = ["Chosen", "ExistingProvider", "RefusedError", "intention", "obstacles", "on_existing", "pinned"]
