"""The command lines of the servers, and the files they read."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tightship_testkit import credentials

MOST_ALLOCATED = {
    "type": "MostAllocated",
    "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
}
"""The scoring of nodes by which kube-scheduler packs them."""

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")

# kwok renews a node's Lease every 30 s. The grace is long because a plane on a busy
# machine, or one whose kwok is paused for a while, must not lose its nodes by that.
NODE_GRACE = "10m"

# TaintNodesByCondition would taint hand-made nodes not-ready at birth. ServiceAccount and
# RuntimeClass refuse pods whose account or class is absent, and a cluster saved to a file
# rarely holds those; no container runs here, so nothing would use the token.
ADMISSION_OFF = "TaintNodesByCondition,ServiceAccount,RuntimeClass"

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": ["patch", "update"],
            "resources": [
                {"resources": ["nodes"]},
                {"group": "autoscaling", "resources": ["horizontalpodautoscalers"]},
            ],
        },
        {"level": "Metadata"},
    ],
}
"""What is logged of requests: what became of nodes and HPAs is told with what was written."""

ISSUER = "https://kubernetes.default.svc"


@dataclass(frozen=True)
class Layout:
    """The files and ports of one plane."""

    data_dir: Path
    token: str
    ports: dict[str, int]
    audit: bool

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"

    @property
    def ca_file(self) -> Path:
        return self.data_dir / "tls.crt"

    @property
    def tls_key(self) -> Path:
        return self.data_dir / "tls.key"

    @property
    def sa_key(self) -> Path:
        return self.data_dir / "sa.key"

    @property
    def kubeconfig(self) -> Path:
        return self.data_dir / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.data_dir / "audit.log"


def write_files(layout: Layout) -> None:
    """Write keys, certificate, kubeconfig and configuration files into the data directory."""
    data = layout.data_dir
    sa_key = credentials.write_key(layout.sa_key)
    credentials.write_public_key(sa_key, data / "sa.pub")
    tls_key = credentials.write_key(layout.tls_key)
    credentials.write_serving_certificate(tls_key, layout.ca_file)
    tokens = data / "tokens.csv"
    tokens.write_text(f'{layout.token},admin,admin,"system:masters"\n')
    tokens.chmod(0o600)
    credentials.write_kubeconfig(layout.kubeconfig, server=layout.server, ca_file=layout.ca_file, token=layout.token)
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(layout.kubeconfig), "qps": 1000, "burst": 2000},
        # A pod that did not fit is tried again soon after the cluster changed.
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
        "profiles": [
            {"schedulerName": "default-scheduler"},
            # As GKE's autoscaling profile optimize-utilization has it.
            {
                "schedulerName": "gke.io/optimize-utilization-scheduler",
                "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": MOST_ALLOCATED}}],
            },
        ],
    }
    (data / "scheduler.json").write_text(json.dumps(scheduler))
    (data / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
    kwok = importlib.resources.files("tightship_e2e").joinpath("kwok.yaml")
    (data / "kwok.yaml").write_bytes(kwok.read_bytes())


def etcd(layout: Layout) -> list[str]:
    """Return the flags of etcd, without the syncs a test can do without."""
    client = f"http://127.0.0.1:{layout.ports['etcd']}"
    peer = f"http://127.0.0.1:{layout.ports['etcd-peer']}"
    return [
        "--name=plane",
        f"--data-dir={layout.data_dir / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=plane={peer}",
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={4 * 2**30}",
        "--log-level=warn",
    ]


def kube_apiserver(layout: Layout) -> list[str]:
    """Return the flags of kube-apiserver."""
    data = layout.data_dir
    flags = [
        f"--etcd-servers=http://127.0.0.1:{layout.ports['etcd']}",
        f"--secure-port={layout.ports['kube-apiserver']}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--tls-cert-file={layout.ca_file}",
        f"--tls-private-key-file={layout.tls_key}",
        f"--token-auth-file={data / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        f"--service-account-issuer={ISSUER}",
        f"--api-audiences={ISSUER}",
        f"--service-account-key-file={data / 'sa.pub'}",
        f"--service-account-signing-key-file={layout.sa_key}",
        "--service-cluster-ip-range=10.0.0.0/16",
        "--endpoint-reconciler-type=none",
        f"--disable-admission-plugins={ADMISSION_OFF}",
        "--allow-privileged",
        "--profiling=false",
        "--delete-collection-workers=16",
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=1000",
    ]
    if layout.audit:
        policy = data / "audit-policy.json"
        flags += [f"--audit-policy-file={policy}", f"--audit-log-path={layout.audit_log}"]
        # At its usual 100 MB the server would begin a new file, and what is read by offset would be lost.
        flags.append("--audit-log-maxsize=100000")
    return flags


def kube_controller_manager(layout: Layout) -> list[str]:
    """Return the flags of kube-controller-manager."""
    kubeconfig = layout.kubeconfig
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports['kube-controller-manager']}",
        f"--tls-cert-file={layout.ca_file}",
        f"--tls-private-key-file={layout.tls_key}",
        f"--service-account-private-key-file={layout.sa_key}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        # No CSI driver would attach anything.
        "--controllers=*,-node-ipam-controller,-ttl-controller,-persistentvolume-attach-detach-controller",
        "--horizontal-pod-autoscaler-sync-period=1s",
        f"--node-monitor-grace-period={NODE_GRACE}",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        "--concurrent-replicaset-syncs=8",
    ]


def kube_scheduler(layout: Layout) -> list[str]:
    """Return the flags of kube-scheduler."""
    kubeconfig = layout.kubeconfig
    return [
        f"--config={layout.data_dir / 'scheduler.json'}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports['kube-scheduler']}",
        f"--tls-cert-file={layout.ca_file}",
        f"--tls-private-key-file={layout.tls_key}",
    ]


def kwok(layout: Layout) -> list[str]:
    """Return the flags of kwok, which plays the kubelets."""
    return [
        f"--config={layout.data_dir / 'kwok.yaml'}",
        f"--kubeconfig={layout.kubeconfig}",
        f"--server-address=127.0.0.1:{layout.ports['kwok']}",
    ]


FLAGS: dict[str, Callable[[Layout], list[str]]] = {
    "etcd": etcd,
    "kube-apiserver": kube_apiserver,
    "kube-controller-manager": kube_controller_manager,
    "kube-scheduler": kube_scheduler,
    "kwok": kwok,
}

# Where each server says that it is up. kwok answers once its watches run.
HEALTH = {
    "etcd": ("http", "/health"),
    "kube-apiserver": ("https", "/readyz"),
    "kube-controller-manager": ("https", "/healthz"),
    "kube-scheduler": ("https", "/healthz"),
    "kwok": ("http", "/healthz"),
}
