"""What the providers of real clusters share: charts by Helm, controllers in pods, nodes with kubelets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tightship.kube import credentials
from tightship.kube.credentials import ClusterAccess
from tightship_e2e.names import LABELS, NAMESPACES, RELEASE, SYSTEM
from tightship_e2e.providers import measures
from tightship_e2e.providers.kubelets import Container, Containers
from tightship_e2e.providers.pools import Pools
from tightship_e2e.providers.protocol import ImpossibleError, UnavailableError, Values
from tightship_e2e.providers.releases import Releases
from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.faults import Plan

CONTROLLERS = ("node-compactor", "node-refiner", "hpa-scaler")
DEADLINE = 180.0

ENDS = "trap 'sleep ${EXIT_AFTER:-0}; exit 0' TERM; while :; do sleep 3600 & wait $!; done"
"""A program that does nothing, and takes its time to end where an annotation of its pod says so."""


@dataclass(frozen=True)
class Images:
    """Where the controllers' images come from, and when (*pull*). A registry has a path: ``ghcr.io/tightship``."""

    registry: str
    tag: str
    pull: str = "IfNotPresent"

    def __post_init__(self) -> None:
        if not self.registry or not self.tag or self.pull not in ("Always", "IfNotPresent", "Never"):
            raise ValueError(f"images need a registry and a tag, not {self}")

    def name(self, controller: str) -> str:
        """Return the name of a controller's image."""
        return f"{self.registry}/{controller}:{self.tag}"

    def container(self, controller: str) -> Json:
        """Return what a container says of a controller's image."""
        return {"image": self.name(controller), "imagePullPolicy": self.pull}

    def values(self, chart: str, given: Values) -> Json:
        """Return values of a chart, of a controller or of all, by which it has these images."""
        if chart not in CONTROLLERS:
            return {**given, **{name: self.values(name, given.get(name, {})) for name in CONTROLLERS}}
        host, _, path = self.registry.partition("/")
        image = {"registry": host, "repository": f"{path}/{chart}".lstrip("/"), "tag": self.tag}
        return {**given, "image": {**image, "pullPolicy": self.pull, **given.get("image", {})}}


class Cluster:
    """The API server of a kubeconfig with one context."""

    def __init__(self, kubeconfig: Path, access: ClusterAccess) -> None:
        self.kubeconfig = kubeconfig
        self.server = access.server
        self._access = access

    @classmethod
    async def of(cls, kubeconfig: Path) -> Cluster:
        """Read a kubeconfig. A plugin's token is asked for once, so it has to last for a scenario."""
        access = await credentials.find(kubeconfig).access()
        if access.proxy or access.tls_server_name or urlsplit(access.server).path:
            raise UnavailableError(f"{access.origin}: a proxy, a name of its own for TLS, and a path are not done here")
        return cls(kubeconfig, access)

    def client(self) -> Client:
        """Return a client, not yet opened."""
        return Client(self.server, dict(self._access.headers), self._access.tls, concurrency=8)


class RemoteProvider(Releases):
    """A scenario on nodes with kubelets. What can't be done is raised as ImpossibleError."""

    name = "a real cluster"

    def __init__(
        self, cluster: Cluster, api: Client, home: Path, images: Images, pools: Pools, *, selector: str = ""
    ) -> None:
        super().__init__(home, cluster.kubeconfig)
        self.client = api
        self.cluster = cluster
        self.selector = selector
        self.metrics = measures.RemoteMetrics(api)
        self.containers = Containers(api, self.kubectl, cluster.kubeconfig)
        self.images = images
        self.pools = pools

    @property
    def container(self) -> Json:
        """A container that does nothing; the annotation of its pod is kwok's for the same."""
        seconds = {"fieldRef": {"fieldPath": "metadata.annotations['e2e.tightship.dev/exit-after']"}}
        return {
            **self.images.container("hpa-scaler"),
            "command": ["sh", "-c", ENDS],
            "env": [{"name": "EXIT_AFTER", "valueFrom": seconds}],
            "securityContext": measures.RESTRICTED,
        }

    async def add_node(self, name: str, pool: str) -> None:
        """Have one more of the nodes of a pool; it has its own name."""
        del name
        await self.pools.add(pool)

    async def install(self, release: str, chart: Path, namespace: str, values: Values) -> str:
        """Install or upgrade a release with this provider's images, and return what Helm printed."""
        return await super().install(release, chart, namespace, self.images.values(chart.name, values))

    async def uninstall(self, release: str, namespace: str, *, hooks: bool = True) -> None:
        """Uninstall a release, if it is there, and wait until its pods are gone."""
        await self.containers.keep_logs(namespace)
        await super().uninstall(release, namespace, hooks=hooks)
        await self.containers.gone(namespace)

    async def controllers(self, namespace: str) -> Sequence[Container]:
        """Return what runs in a namespace now, in the order of its start."""
        return await self.containers.running(namespace)

    async def ended(self) -> Mapping[str, int]:
        """Return the exit codes of controllers that ended though their pods had not been deleted, by pod."""
        await self.containers.running(SYSTEM)
        return self.containers.ended

    async def logs(self) -> str:
        """Return the ends of what all controllers have said, for an error."""
        return await self.containers.logs(SYSTEM)

    def owns(self, namespace: Json) -> bool:
        """Return whether a namespace is of this run."""
        return namespace["metadata"]["name"] in NAMESPACES and made_here(namespace)

    async def command(self, *words: str) -> str:
        """Run a controller's command, or kubectl, as an administrator; on no other nodes than those of the scenario."""
        chosen = f"--selector={self.selector}"
        everywhere = self.selector and words[0] == "kubectl" and "nodes" in words
        return await super().command(*(chosen if each == "--all" and everywhere else each for each in words))

    def outage(self) -> AbstractAsyncContextManager[None]:
        """Nobody may take the API server from a cluster that is not the tests' own."""
        raise ImpossibleError(f"an outage of the API server: {self.name} is not the tests' own")

    def disturb(self, plan: Plan) -> None:
        """There is no proxy between pods and the API server."""
        del plan
        raise ImpossibleError(f"disturbing what controllers ask: on {self.name} there is no proxy in their way")

    async def audit(self) -> list[AuditEvent]:
        """The log is where only those who run the API server come."""
        raise ImpossibleError(f"the audit log: that of {self.name} can't be read from here")


def made_here(item: Json) -> bool:
    """Return whether an object bears the labels of this run."""
    return LABELS.items() <= (item["metadata"].get("labels") or {}).items()


async def prepare(provider: RemoteProvider) -> None:
    """Make the namespaces and what is measured."""
    there = {each["metadata"]["name"] for each in await provider.client.list("Namespace") if provider.owns(each)}
    for name in NAMESPACES:
        if name not in there:
            await provider.client.create({"kind": "Namespace", "metadata": {"name": name, "labels": LABELS}})
    await measures.install(provider.client, provider.images.container("hpa-scaler"))


async def clean(provider: RemoteProvider) -> None:
    """Undo everything: the release, the marks on nodes, the namespaces; also the rest of it when something fails."""
    api = provider.client
    errors: list[Exception] = []

    async def attempt(step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Exception as error:  # told below
            errors.append(error)

    async def namespaces() -> None:
        await measures.remove(api)
        every = await api.list("Namespace")
        own = {each["metadata"]["name"] for each in every if provider.owns(each)}
        for name in own:
            await api.delete("Namespace", name)

        async def gone() -> bool:
            return not {each["metadata"]["name"] for each in await api.list("Namespace")} & own

        await wait_for(gone, DEADLINE, f"{', '.join(NAMESPACES)} are gone")

    await attempt(lambda: provider.uninstall(RELEASE, SYSTEM))
    await attempt(provider.pools.restore)
    await attempt(namespaces)
    if errors:
        raise ExceptionGroup(f"{provider.name} is not as it was", errors)


@asynccontextmanager
async def prepared(provider: RemoteProvider) -> AsyncIterator[None]:
    """Have everything there that a scenario needs, and nothing of it afterwards, also when the body is cancelled."""
    try:
        await prepare(provider)
        yield
    finally:
        await clean(provider)


__all__ = ["Cluster", "Images", "RemoteProvider", "clean", "made_here", "prepared"]
