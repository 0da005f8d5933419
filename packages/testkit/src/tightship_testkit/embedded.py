"""An embedded cluster that lives, for controllers that run on it on virtual time, and clusters to begin with."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from aiohttp.typedefs import Middleware

from tightship_simulator.api.requests import Asked
from tightship_simulator.life.changes import Json
from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.node_autoscaler import NodeGroup, Rules
from tightship_simulator.life.prometheus import Prometheus
from tightship_simulator.life.remover import Remover
from tightship_simulator.small import replicas
from tightship_simulator.virtual.simulation import Simulation
from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import Client, wait_for
from tightship_testkit.drains import DEADLINE, Place, all_ready, spare
from tightship_testkit.embedded_audit import EmbeddedAudit
from tightship_testkit.invariants import Recorder
from tightship_testkit.manifests import POOL, as_list, budget
from tightship_testkit.marks import TAINT
from tightship_testkit.replica import COMPACTOR, Program, Replica, Settings
from tightship_testkit.virtual import Machine

AGENT = "tightship/"
"""With what the controllers' ``User-Agent`` begins."""

Key = tuple[str, str]
"""Namespace and name."""

OFTEN = "0.3"
"""Seconds between two passes of a controller."""

PATIENT = {
    "LEASE_DURATION": "60s",
    "LEASE_RENEW_DEADLINE": "40s",
    "REQUEST_TIMEOUT": "30s",
}
"""Variables of a replica that a busy machine may hold up for a while: it leads on, and asks nothing twice."""

SHORT = {"LEASE_DURATION": "3s", "LEASE_RENEW_DEADLINE": "2s", "LEASE_RETRY_PERIOD": "0.3s"}
"""Variables of replicas that have to wait for each other's Leases."""


class Yard:
    """A served store with life in it, its administrator, and the processes of the controllers."""

    def __init__(self, simulation: Simulation, machine: Machine, api: Client, kubeconfig: Path) -> None:
        self.simulation = simulation
        self.cluster = simulation.cluster
        self.machine = machine
        self.api = api
        self.kubeconfig = kubeconfig

    def client(self) -> Client:
        """Return an administrator's client, not yet opened."""
        return Client(self.cluster.url, {}, None)

    def asked(self) -> list[Asked]:
        """Return the requests of controllers."""
        return [each for each in self.cluster.requests if each.agent.startswith(AGENT)]

    def written(self) -> list[Asked]:
        """Return those of them that may have changed something."""
        return [each for each in self.asked() if each.writes]

    def evicted(self) -> list[str]:
        """Return the pods that controllers have evicted, each time."""
        return [each.name for each in self.written() if each.subresource == "eviction" and each.code == 201]


@asynccontextmanager
async def yard(
    folder: Path,
    cluster: Json | None = None,
    *,
    ending: float = 0.2,
    prometheus: Prometheus | None = None,
    audit: EmbeddedAudit | None = None,
    admission: Middleware | None = None,
) -> AsyncIterator[Yard]:
    """Serve *cluster* and let it live: pods start within half a second and end within *ending* seconds."""
    items = (cluster or {"items": []})["items"]
    # The autoscaler removes what is empty and nothing else: what it does by itself is tested elsewhere.
    speeds = Speeds(Pace(0.5, ending, 0.5), Rules(0.5, 0.2, 30, threshold=0), horizontal_every=0.2, nodes_every=0.2)
    between = [*([audit.middleware] if audit is not None else []), *([admission] if admission is not None else [])]
    async with Simulation(
        0, folder, groups=groups(items), speeds=speeds, prometheus=prometheus, middlewares=between
    ) as simulation:
        assert simulation.store.load(items) == {}
        machine = Machine(simulation)
        with machine.logging():
            async with Client(simulation.url, {}, None) as api:
                yield Yard(simulation, machine, api, simulation.kubeconfig)


def groups(items: list[Json]) -> list[NodeGroup]:
    """Return the pools of nodes as a cloud would know them; none can grow."""
    pools: dict[str, list[Json]] = {}
    for item in items:
        if item["kind"] == "Node":
            pools.setdefault(item["metadata"]["labels"].get(POOL, ""), []).append(item)
    return [NodeGroup(name, nodes[0], 0, 0) for name, nodes in pools.items() if name]


class EmbeddedCluster(Place):
    """A yard whose nodes, pods and budgets are watched, and teams of replicas whose requests are noted in *audit*."""

    def __init__(self, yard: Yard, recorder: Recorder, audit: EmbeddedAudit) -> None:
        super().__init__(yard.machine, yard.api, recorder)
        self.yard = yard
        self.machine = yard.machine
        self.audit = audit
        self.living = yard.simulation.living
        self.kubeconfig = yard.kubeconfig
        self.began = yard.simulation.wall()
        """When the recorder began, in seconds since 1970."""

    def start(self, **variables: str) -> Replica:
        """Start one more replica, which judges often."""
        made = super().start(**{self.program.interval: OFTEN, **PATIENT, **variables})
        self.audit.users[made.name] = self.program.user
        return made

    @contextmanager
    def removing(self, after: float = 0.5) -> Iterator[Remover]:
        """Have nodes removed meanwhile that a drain has emptied."""
        remover = Remover(TAINT, after)
        self.living.others.append(remover)
        self.living.wake()
        try:
            yield remover
        finally:
            self.living.others.remove(remover)

    async def ended_well(self, *nodes: str) -> None:
        """See these nodes go, all pods Ready, no claim left, and nothing wrong so far."""
        for name in nodes:
            await self.gone(name)
        await all_ready(self.api)
        await self.free()
        await self.checked()

    @property
    def events(self) -> list[AuditEvent]:
        """The requests of all replicas so far, as the API server's audit log would have them."""
        return self.audit.events

    async def checked(self) -> None:
        """Hold everything that was seen and written against the invariants; no eviction is granted twice."""
        await super().checked()
        self.audit.checked()
        moved = self.yard.evicted()
        twice = sorted({pod for pod in moved if moved.count(pod) > 1})
        assert not twice, f"evicted more than once: {twice}\n{self.logs()}"


@asynccontextmanager
async def embedded_cluster(
    folder: Path,
    cluster: Json,
    settings: Settings,
    program: Program = COMPACTOR,
    *,
    ending: float = 0.2,
    autoscaling: bool = False,
    admission: Middleware | None = None,
) -> AsyncIterator[EmbeddedCluster]:
    """Serve *cluster*, write *settings*, and hold all that is seen against the invariants in the end.

    *admission* stands before the API, as webhooks and policies do.
    No node is removed but within :meth:`EmbeddedCluster.removing`; the HPA controller acts only with *autoscaling*.
    """
    audit = EmbeddedAudit()
    async with yard(folder, owned(cluster), ending=ending, audit=audit, admission=admission) as made:
        audit.store = made.simulation.store
        idle = ("nodes",) if autoscaling else ("nodes", "horizontal")
        with made.simulation.living.paused(*idle):
            await _settled(made.api)
            async with Recorder(made) as recorder:
                on = EmbeddedCluster(made, recorder, audit)
                await on.staff(program, settings)
                yield on
                await on.checked()


async def _settled(api: Client) -> None:
    """Wait until every pod is Ready, and every budget counts them."""

    async def counted() -> bool:
        budgets = await api.list("PodDisruptionBudget")
        stated = [(each["metadata"].get("generation", 1), each.get("status") or {}) for each in budgets]
        return all(
            status.get("observedGeneration") == generation
            and status.get("currentHealthy") == status.get("expectedPods")
            for generation, status in stated
        )

    await all_ready(api)
    await wait_for(counted, DEADLINE, "all budgets count their pods")


def owned(cluster: Json) -> Json:
    """Return *cluster* with a ReplicaSet for each that its pods name, and without the uids that pods share.

    One that lacks a template has that of its first pod. So it is with clusters that are loaded into a control plane.
    """
    cluster = copy.deepcopy(cluster)
    sets = {_key(each): each for each in cluster["items"] if each["kind"] == "ReplicaSet"}
    given, pods = set(sets), [each for each in cluster["items"] if each["kind"] == "Pod"]
    counts: dict[Key, int] = {}
    items = [each for each in cluster["items"] if each["kind"] not in ("Pod", "ReplicaSet")]
    for pod in pods:
        meta = {name: value for name, value in pod["metadata"].items() if name not in ("uid", "resourceVersion")}
        owners = []
        for each in meta.get("ownerReferences") or []:
            key = meta["namespace"], each["name"]
            if each["kind"] == "ReplicaSet":
                made = _replica_set(each["name"], pod)
                sets[key] = found = sets.get(key, made)
                found["spec"].setdefault("template", made["spec"]["template"])
                counts[key] = counts.get(key, 0) + 1
                owners.append({**each, "uid": found["metadata"]["uid"]})
            else:
                owners.append(each)
        items.append({**pod, "metadata": {**meta, "ownerReferences": owners}})
    for key in sets.keys() - given:
        sets[key]["spec"]["replicas"] = counts[key]
    return {**cluster, "items": [*items, *sets.values()]}


def _key(item: Json) -> Key:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _replica_set(name: str, pod: Json) -> Json:
    meta = pod["metadata"]
    labels = dict(meta.get("labels") or {})
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": meta["namespace"], "uid": f"uid-{name}", "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


# Clusters.


def cluster(
    places: Mapping[str, int], *, pools: Mapping[str, str] = {}, least: int | str = 0, cpu: str = "100m"
) -> Json:
    """Return nodes with so many pods of one ReplicaSet each, and a budget; without *least* it allows one disruption.

    *pools* are the nodes' pools, ``rest`` by default, as in :func:`drains.small`.
    """
    where = [name for name, count in places.items() for _ in range(count)]
    nodes = [spare(name, pool=pools.get(name, "rest")) for name in places]
    return as_list(*nodes, *replicas("web", where, {}, cpu=cpu), budget("web", least or len(where) - 1, app="web"))


def small(*, least: int | str = 0) -> Json:
    """Return a cluster whose n1 may go; n2 and n3 have room and stay."""
    return cluster({"n1": 3, "n2": 1, "n3": 1}, pools={"n1": "spare"}, least=least)
