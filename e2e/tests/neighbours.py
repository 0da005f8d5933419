"""Somebody's cluster for tests: a control plane whose pods are reached as pods are, by their addresses.

kwok's pods do not run. Here the controllers' and that of the measures do, as processes of this machine; their addresses
are the machine's, so that the API server, its aggregator and a provider reach them by the ways of a real cluster.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tightship_e2e import ControlPlane
from tightship_e2e.providers.pods import Pods
from tightship_e2e.providers.protocol import UnavailableError
from tightship_testkit.client import ApiError, Client, Json
from tightship_testkit.manifests import POOL

NODES = [
    ("system-0", "system"),
    *((f"general-{n}", "general") for n in range(6)),
    *((f"memory-{n}", "memory") for n in range(3)),
]
LABELS = {"example.com/mine": "yes"}
SELECTOR = "example.com/mine=yes"
LOOK = 0.2


def address() -> str:
    """Return an address of this machine that is not loopback: the API server goes to no other.

    Raises UnavailableError where there is none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("203.0.113.1", 9))  # nothing is sent
        found: str = probe.getsockname()[0]
        if not found.startswith("127."):
            return found
    raise UnavailableError("pods that can be reached: this machine has no address besides loopback")


def node(name: str, pool: str) -> Json:
    """Return a node of a pool."""
    room = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    system = {"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, POOL: pool, **system, **LABELS}},
        "spec": {},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


class Kubelets:
    """Gives pods that run as processes the machine's *address*, and what listens at their ports."""

    def __init__(self, plane: ControlPlane, api: Client, folder: Path, address: str) -> None:
        self.pods = Pods(plane, api, folder / "volumes", lambda account: account)
        self._plane = plane
        self._api = api
        self._folder = folder
        self._address = address
        self._known: set[str] = set()
        self._relays: list[asyncio.Server] = []

    async def run(self) -> None:
        """Look for new pods until cancelled."""
        while True:
            try:
                await self._look()
            except ApiError as error:
                if error.status != 404:  # a pod that went while it was attended to
                    raise
            await asyncio.sleep(LOOK)

    async def _look(self) -> None:
        for uid, each in list(self.pods.running.items()):
            if uid not in self._known:
                pod = await self._api.get("Pod", each.pod, each.namespace)
                if pod["status"].get("phase") != "Running":
                    continue  # kwok has yet to give it an address, which would take the place of ours
                self._known.add(uid)
                # The process has one port for all, its probes too.
                for port in [named["containerPort"] for named in pod["spec"]["containers"][0].get("ports", ())]:
                    await self._relay(port, each.port)
                await self._reachable(pod)
        for pod in await self._api.list("Pod", labelSelector="e2e.tightship.dev/pod=measures"):
            if pod["metadata"]["uid"] not in self._known and pod["status"].get("phase") == "Running":
                self._known.add(pod["metadata"]["uid"])
                await self._measure(pod)
                await self._reachable(pod)

    async def _measure(self, pod: Json) -> None:
        """Run the pod's command, with the files of its volumes."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        folder = self._folder / pod["metadata"]["uid"]
        folder.mkdir()
        code = (await self._api.get("ConfigMap", name, namespace))["data"]
        secret = (await self._api.get("Secret", name, namespace))["data"]
        for file, content in {**code, **{key: base64.b64decode(each).decode() for key, each in secret.items()}}.items():
            (folder / file).write_text(content)
        container = pod["spec"]["containers"][0]
        # -I: as in the image, where nothing of ours can be imported by accident.
        argv = [sys.executable, "-I", str(folder / "server.py"), *container["args"], f"--tls={folder}"]
        self._plane.spawn(pod["metadata"]["uid"], argv)

    async def _reachable(self, pod: Json) -> None:
        status = {"status": {"podIP": self._address, "podIPs": [{"ip": self._address}]}}
        meta = pod["metadata"]
        await self._api.patch("Pod", meta["name"], status, meta["namespace"], subresource="status")

    async def _relay(self, outside: int, inside: int) -> None:
        async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await reader.read(65536):
                    writer.write(data)
                    await writer.drain()
            writer.close()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there = await asyncio.open_connection("127.0.0.1", inside)
            except OSError:
                writer.close()
                return
            await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))

        self._relays.append(await asyncio.start_server(serve, self._address, outside))

    def close(self) -> None:
        """Listen no more."""
        for each in self._relays:
            each.close()


@asynccontextmanager
async def neighbours(plane: ControlPlane, api: Client, folder: Path, address: str) -> AsyncIterator[Kubelets]:
    """Have pods run for the body's time."""
    made = Kubelets(plane, api, folder, address)
    async with made.pods:
        task = asyncio.create_task(made.run(), name="kubelets")
        try:
            yield made
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            made.close()
