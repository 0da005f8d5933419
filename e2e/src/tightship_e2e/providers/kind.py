"""The provider ``kind``: a cluster of containers, made of ``.github/kind.yaml`` for the tests alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tightship_e2e import binaries
from tightship_e2e.helm import HelmError, run
from tightship_e2e.names import NAMESPACES, RELEASE, SYSTEM
from tightship_e2e.providers.kubelets import LABEL
from tightship_e2e.providers.pools import DEADLINE, Pools
from tightship_e2e.providers.protocol import UnavailableError
from tightship_e2e.providers.remote import Cluster, Images, RemoteProvider, clean, prepared
from tightship_testkit import audit
from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.manifests import POOL

AUDIT_LOG = "/var/log/kubernetes/audit.log"
API_PORT = 6443
"""That of the API server in its node, whatever it is on the machine."""
BARRIER = ("--protocol", "tcp", "--destination-port", str(API_PORT), "--jump", "REJECT", "--reject-with", "tcp-reset")


@dataclass(frozen=True)
class Machines:
    """The containers that are the nodes of a cluster, by ``kind`` and ``docker``. Methods raise HelmError."""

    cluster: str
    kind: Path
    docker: Path

    def kubeconfig(self, target: Path) -> Path:
        """Write an administrator's kubeconfig."""
        target.touch(mode=0o600)
        target.write_text(run([str(self.kind), "get", "kubeconfig", "--name", self.cluster], b"", {}))
        return target

    def names(self) -> list[str]:
        """Return the names of all nodes, also of those that the API server does not know at the moment."""
        return sorted(run([str(self.kind), "get", "nodes", "--name", self.cluster], b"", {}).split())

    def execute(self, node: str, *words: str) -> str:
        """Run a command in a node as root, and return what it printed."""
        return run([str(self.docker), "exec", node, *words], b"", {})


class KindProvider(RemoteProvider):
    """A scenario on a kind cluster, of which everything may be used."""

    name = "a kind cluster"

    def __init__(
        self,
        cluster: Cluster,
        api: Client,
        home: Path,
        images: Images,
        pools: Pools,
        *,
        machines: Machines,
        head: str,
    ) -> None:
        super().__init__(cluster, api, home, images, pools)
        self._machines = machines
        self._head = head
        self._read = 0

    def owns(self, namespace: Json) -> bool:
        """Return whether a namespace is of the tests: a release of before has made its own."""
        return namespace["metadata"]["name"] in NAMESPACES

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Have the nodes of the controllers refuse what these send to the API server, for the body's time.

        The API server goes on, and can be asked of its pods.
        """
        pods = await self.client.list("Pod", SYSTEM, labelSelector=LABEL)
        cut = [(each["spec"]["nodeName"], each["status"]["podIP"]) for each in pods if each["status"].get("podIP")]
        done: list[tuple[str, str]] = []
        try:
            for node, address in cut:
                await self._barrier("--insert", node, address)
                done.append((node, address))
            yield
        finally:
            for node, address in done:
                await self._barrier("--delete", node, address)

    async def audit(self) -> list[AuditEvent]:
        """Return the audit log's events since the last call."""
        words = ("tail", f"--bytes=+{self._read + 1}", AUDIT_LOG)
        text = await asyncio.to_thread(self._machines.execute, self._head, *words)
        events, length = audit.parse(text.encode())
        self._read += length
        return events

    async def _barrier(self, how: str, node: str, address: str) -> None:
        words = ("iptables", "--wait", how, "FORWARD", "--source", address, *BARRIER)
        await asyncio.to_thread(self._machines.execute, node, *words)


async def come_back(api: Client, machines: Machines) -> list[Json]:
    """Return the workers, once each that the API server does not know has registered again.

    Who had them deleted was killed before he could bring them back.
    """
    there = {each["metadata"]["name"] for each in await api.list("Node")}
    for name in machines.names():
        if name not in there:
            await asyncio.to_thread(machines.execute, name, "systemctl", "restart", "kubelet")

    async def known() -> bool:
        return {each["metadata"]["name"] for each in await api.list("Node")} >= set(machines.names())

    await wait_for(known, DEADLINE, "every container of the cluster is a node")
    return await api.list("Node", labelSelector=POOL)


async def head(api: Client) -> str:
    """Return the node of the API server."""
    [found] = await api.list("Node", labelSelector="node-role.kubernetes.io/control-plane")
    name: str = found["metadata"]["name"]
    return name


@asynccontextmanager
async def on_kind(name: str, images: Images, folder: Path, *, keep: bool = False) -> AsyncIterator[KindProvider]:
    """Provide a kind cluster that is there, with the images loaded; *folder* is for what there is on disk.

    With *keep* a release that is there stays, and UnavailableError is raised if there is none. Raises UnavailableError
    without the programs, the cluster, or enough of it.
    """
    try:
        kind, docker = (binaries.find_or_installed(each) for each in ("kind", "docker"))
        machines = Machines(name, kind, docker)
        kubeconfig = await asyncio.to_thread(machines.kubeconfig, folder / "kubeconfig")
    except (binaries.NotBuiltError, HelmError) as error:
        raise UnavailableError(f"the kind cluster {name}, which `make kind-cluster` makes: {error}") from error
    cluster = await Cluster.of(kubeconfig)
    async with cluster.client() as api:
        pools = Pools(api, await come_back(api, machines))
        where = (cluster, api, folder / "helm", images, pools)
        provider = KindProvider(*where, machines=machines, head=await head(api))
        if not keep:
            await clean(provider)  # of whoever was killed
        elif not await installed(provider):
            raise UnavailableError("an upgrade from the last release: none is installed")
        async with prepared(provider):
            await provider.audit()
            yield provider


async def installed(provider: KindProvider) -> bool:
    """Return whether the release is there."""
    try:
        return bool(await provider.manifest(RELEASE, SYSTEM))
    except HelmError:
        return False


__all__ = ["KindProvider", "Machines", "on_kind"]
