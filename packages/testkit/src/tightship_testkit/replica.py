"""Replicas of ``run`` of a controller as processes, and the account, settings and Leases they use."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tightship.kube.host import wall
from tightship_testkit.client import ApiError, Client, Json, wait_for
from tightship_testkit.settings_text import with_units

NAMESPACE = "default"
DEADLINE = 120.0
IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
"""What the kubelet sets in every pod."""
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
CLAIMS = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
"""Where the ledgers of claims are, one for all namespaces."""
RBAC = "/apis/rbac.authorization.k8s.io/v1"

Settings = Mapping[str, object]


@dataclass(frozen=True)
class Program:
    """A controller: its *name*, which its account bears too, and its *module*.

    *interval* is the variable for the pause between two passes.
    """

    name: str
    module: str
    interval: str

    @property
    def user(self) -> str:
        """Its account, as the audit log names it."""
        return f"system:serviceaccount:{NAMESPACE}:{self.name}"

    def data(self, settings: Settings | str) -> dict[str, str]:
        """Return the data of a ConfigMap with settings (a text as it is)."""
        if isinstance(settings, str):
            return {"config.yaml": settings}
        return {"config.yaml": json.dumps(with_units(settings))}


COMPACTOR = Program("node-compactor", "node_compactor", "INTERVAL")
REFINER = Program("node-refiner", "node_refiner", "INTERVAL")
SCALER = Program("hpa-scaler", "hpa_scaler", "INTERVAL")
ACCOUNT = COMPACTOR.name
USER = COMPACTOR.user

_DRAINS: Mapping[str, float] = {
    "settleTime": 0.5,
    "podEvictionTimeout": 60,
    "nodeDrainTimeout": 60,
    "notReadyTimeout": 60,
    "handOverTimeout": 60,
    "backoff": 1,
    "backoffLimit": 2,
    "holdOff": 600,
    "workloadPause": 0,
}
"""Seconds."""

QUICK: Settings = {
    "nodePools": {
        "*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75, "scaleDownRequiredUnderutilizedNodeCount": 1}
    },
    "neededMarkedTimeForRemoval": 0,
    "minimumNodeAge": 0,
    **_DRAINS,
    "coolDownAfterNodeAdded": 0,
    "coolDownAfterNodeDeleted": 0,
    "coolDownAfterFailure": 0,
    "clusterCoolDownAfterNodeAdded": 0,
    "clusterCoolDownAfterNodeDeleted": 0,
    "clusterCoolDownAfterFailure": 0,
    "maximumAPIFailures": 1000,
}
"""A configuration whose pauses are as short as a test wants them."""

QUICK_REFINER: Settings = {
    "excessNodesThreshold": 1,
    "clusterCoolDownAfterDrain": 0,
    "clusterCoolDownAfterNodeAdded": 0,
    **_DRAINS,
    "maximumAPIFailures": 1000,
}
"""The same for the refiner; its minimums are those it has by itself."""

_READ = {
    "": [
        "nodes",
        "pods",
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "replicationcontrollers",
        "podtemplates",
    ],
    "apps": ["replicasets", "statefulsets", "daemonsets"],
    "autoscaling": ["horizontalpodautoscalers"],
    "autoscaling.x-k8s.io": ["capacitybuffers"],
    "autoscaling.k8s.io": ["verticalpodautoscalers"],
    "batch": ["jobs"],
    "karpenter.sh": ["nodepools"],
    "leaderworkerset.x-k8s.io": ["leaderworkersets"],
    "policy": ["poddisruptionbudgets"],
    "resource.k8s.io": ["resourceslices", "deviceclasses", "resourceclaims"],
    "scheduling.k8s.io": ["podgroups"],
    "storage.k8s.io": ["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"],
}
RULES: list[Json] = [
    *({"apiGroups": [group], "resources": kinds, "verbs": ["get", "list", "watch"]} for group, kinds in _READ.items()),
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {
        "apiGroups": ["autoscaling"],
        "resources": ["horizontalpodautoscalers"],
        "verbs": ["get", "list", "watch", "patch"],
    },
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
]


async def permit(api: Client, account: str = ACCOUNT) -> None:
    """Make an account that replicas run under, unless it is there."""
    meta = {"name": account}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    core = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    for path, body in (
        (core, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}),
        (f"{RBAC}/clusterroles", {"metadata": meta, "rules": RULES}),
        (f"{RBAC}/clusterrolebindings", {"metadata": meta, "roleRef": role, "subjects": [subject]}),
    ):
        try:
            await api.call("POST", path, body=body)
        except ApiError as error:
            if error.status != 409:
                raise


async def configure(api: Client, name: str, settings: Settings | str, program: Program = COMPACTOR) -> None:
    """Write settings, and nothing else, into the ConfigMap *name*."""
    data = program.data(settings)
    try:
        await api.create({"kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data})
    except ApiError as error:
        if error.status != 409:
            raise
        replaced = [{"op": "add", "path": "/data", "value": data}]
        await api.patch("ConfigMap", name, replaced, NAMESPACE, patch_type="json")


async def lease(api: Client, name: str, where: str = LEASES) -> Json:
    """Return a Lease, empty where there is none."""
    status, answer = await api.request("GET", f"{where}/{name}")
    return answer if status == 200 else {}


async def claims(api: Client, team: str) -> list[Json]:
    """Return the claims in the ledger of *team*."""
    found = await lease(api, f"{team}-claims", CLAIMS)
    text = (found.get("metadata", {}).get("annotations") or {}).get("tightship.dev/claims", "[]")
    decoded: list[Json] = json.loads(text)
    return decoded


class Log(Protocol):
    """What a process has written, such as a file."""

    def read_text(self, *, errors: str) -> str: ...


class Host(Protocol):
    """Whose child processes replicas are, such as a plane; see :class:`~tightship_testkit.processes.Processes`."""

    @property
    def logs(self) -> Mapping[str, Log]: ...

    def spawn(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> int: ...

    def signal(self, name: str, number: signal.Signals) -> None: ...

    def kill(self, name: str) -> None: ...

    def exits(self) -> Mapping[str, int]: ...

    def free_port(self) -> int:
        """Return a port for a process that is started on it later."""

    async def fetch(self, name: str, port: int, path: str) -> tuple[int, str]:
        """Ask a process over HTTP: status and text; 0 when it does not answer."""


class Replica:
    """One process of a program's ``run``. All with the same *team* share ConfigMap, election and ledger."""

    def __init__(
        self,
        host: Host,
        team: str,
        kubeconfig: Path,
        program: Program = COMPACTOR,
        **variables: str,
    ) -> None:
        self.host = host
        self.name = f"{team}-{sum(each.startswith(f'{team}-') for each in host.logs)}"
        self.port = host.free_port()
        environment = {
            "KUBECONFIG": str(kubeconfig),
            **IN_POD,
            "NAMESPACE": NAMESPACE,
            "POD_NAME": self.name,
            "CONFIG_MAP_NAME": team,
            "LEASE_NAME": f"{team}-leader",
            "CLAIMS_LEASE_NAME": f"{team}-claims",
            program.interval: "1",
            "LEASE_DURATION": "6s",
            "LEASE_RENEW_DEADLINE": "4s",
            "LEASE_RETRY_PERIOD": "0.5s",
            "REQUEST_TIMEOUT": "5s",
            "HTTP_HOST": "127.0.0.1",
            "HTTP_PORTS": str(self.port),
            "LOG_LEVEL": "debug",
            "LOG_FORMAT": "json",
            **variables,
        }
        command = [sys.executable, "-m", program.module, "run"]
        self.pid = host.spawn(self.name, command, env=environment)

    @property
    def log(self) -> str:
        """Everything it has written."""
        return self.host.logs[self.name].read_text(errors="replace")

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self.host.exits().get(self.name)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.code is None:
            self.host.kill(self.name)

    def asked_to_end(self) -> None:
        """SIGTERM."""
        self.host.signal(self.name, signal.SIGTERM)

    async def ended(self, deadline: float = DEADLINE) -> int:
        """Wait for its end and return the exit code."""

        async def over() -> bool:
            return self.code is not None

        await wait_for(over, deadline, f"the end of {self.name}")
        assert self.code is not None
        return self.code

    async def get(self, path: str) -> tuple[int, str]:
        """Ask it over HTTP; 0 when it does not answer."""
        return await self.host.fetch(self.name, self.port, path)

    async def ready(self) -> None:
        """Wait until it says that it is ready."""

        async def answers() -> bool:
            if self.code is not None:
                raise AssertionError(f"{self.name} ended with {self.code}:\n{self.log}")
            return (await self.get("/readyz"))[0] == 200

        await wait_for(answers, DEADLINE, f"{self.name} is ready")

    async def status(self) -> Any:
        """Return what it says of its last pass."""
        return json.loads((await self.get("/status"))[1])

    async def says(self, text: str, deadline: float = DEADLINE) -> None:
        """Wait until its log holds *text*."""

        async def there() -> bool:
            return text in self.log

        try:
            await wait_for(there, deadline, f"{self.name} says {text!r}")
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.log[-8000:]}") from None


def new_team() -> str:
    """Return a name that no Lease bears yet: Leases outlive the emptying of a plane."""
    return f"team-{int(wall() * 1e9)}"
