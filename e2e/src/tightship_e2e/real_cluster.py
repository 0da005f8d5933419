"""A control plane as the contract suite in ``packages/simulator/tests`` needs it beside the embedded cluster."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path

from tightship_e2e import settle
from tightship_e2e.plane import ControlPlane
from tightship_testkit.client import Client


class RealCluster:
    """What is asked of a cluster besides its API."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    @property
    def kubeconfig(self) -> Path:
        """An administrator's kubeconfig."""
        return self._plane.kubeconfig

    def client(self) -> Client:
        """Return an administrator's client, not yet opened."""
        return self._plane.client()

    def paused_budgets(self) -> AbstractContextManager[None]:
        """Have no budget computed meanwhile."""
        return self._plane.paused("kube-controller-manager")

    async def attended(self, client: Client, node: str) -> None:
        """Wait until the pods of a new node would run."""
        await settle.attended(client, node)

    async def forget(self, version: str) -> None:
        """Let etcd forget what was before *version*, and the API server what it has in memory."""
        origin = f"http://127.0.0.1:{self._plane.layout.ports['etcd']}"
        async with Client(origin, {}, None) as etcd:
            await etcd.call("POST", "/v3/kv/compaction", body={"revision": version, "physical": True})
        await asyncio.to_thread(self._plane.restart, "kube-apiserver")
