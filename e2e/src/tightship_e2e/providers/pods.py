"""Runs the containers of charts' pods as processes, where kwok only says that they run.

A pod that the Deployment controller has made and the scheduler has bound is started as its spec says, with a token of
its own ServiceAccount and nothing else, and ended as a kubelet does it: SIGTERM when it is deleted, SIGKILL after its
grace. The pod of a Job has succeeded, or failed, when its process has ended. What is not so: kwok calls a pod Ready at
once and lets it go at once, so that a rollout does not wait for its probes, and the process that ends overlaps with the
one that starts. Ports are free ones of 127.0.0.1. A process that ends by itself is not started again: that is a
failure, see `ended`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tightship_e2e.plane import ControlPlane
from tightship_e2e.providers.container import command_of, volumes_of
from tightship_testkit.client import ApiError, Client, Json, wait_for
from tightship_testkit.ports import free_ports
from tightship_testkit.processes import fetch
from tightship_testkit.replica import IN_POD

LABEL = "app.kubernetes.io/part-of=tightship"
LOOK = 0.4  # seconds between two looks


@dataclass
class Running:
    """A process in the place of a container; *leaving* is when it was told to end, on the monotonic clock."""

    plane: ControlPlane
    pod: str
    name: str
    namespace: str
    process: str
    pid: int
    port: int
    grace: float
    job: bool = False
    leaving: float | None = None

    async def get(self, path: str) -> tuple[int, str]:
        """Ask it over HTTP: status and text; 0 when it does not answer."""
        return await fetch(self.port, path)

    async def said(self) -> str:
        """Return everything it has written."""
        return await asyncio.to_thread(self.plane.logs[self.process].read_text, errors="replace")

    async def environment(self) -> list[str]:
        """Return the environment of its process, each as ``NAME=value``."""
        data = await asyncio.to_thread(Path(f"/proc/{self.pid}/environ").read_bytes)
        return data.decode().split("\0")


class Pods:
    """Looks for pods of the charts all the time; *via* makes a kubeconfig reach the API server another way."""

    def __init__(self, plane: ControlPlane, api: Client, folder: Path, via: Callable[[Path], Path]) -> None:
        self.running: dict[str, Running] = {}
        """By the pod's uid; in the order of their start."""
        self.past: dict[str, Running] = {}
        """Those that have ended."""
        self.ended: dict[str, int] = {}
        """Exit codes of processes that ended though their pods had not been deleted, by pod."""
        self._plane = plane
        self._api = api
        self._folder = folder
        self._via = via
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="pods")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failure: BaseException | None = None
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                try:
                    await self._task
                except Exception as found:  # it is the test's failure, once all processes have ended
                    failure = found
        for each in self.running.values():
            if each.process not in self._plane.exits():
                self._plane.kill(each.process)
        if failure is not None and error is None:
            raise failure

    async def gone(self, namespace: str) -> None:
        """Wait until no process of a namespace is left."""

        async def none() -> bool:
            return not any(each.namespace == namespace for each in self.running.values())

        await wait_for(none, 120, f"the processes in {namespace} have ended")

    async def _run(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(LOOK)

    async def _look(self) -> None:
        pods = {each["metadata"]["uid"]: each for each in await self._api.list("Pod", labelSelector=LABEL)}
        codes = self._plane.exits()
        for uid, each in list(self.running.items()):
            code = codes.get(each.process)
            wanted = uid in pods and not pods[uid]["metadata"].get("deletionTimestamp")
            if code is not None:
                self.past[uid] = self.running.pop(uid)
                if each.job and wanted:
                    await self._finish(each, code)
                elif each.leaving is None:
                    self.ended[each.pod] = code
            elif each.leaving is not None and time.monotonic() > each.leaving + each.grace:
                self._plane.kill(each.process)
            elif each.leaving is None and not wanted:
                each.leaving = time.monotonic()
                os.kill(each.pid, signal.SIGTERM)
        for uid, pod in pods.items():
            known = uid in self.running or uid in self.past
            if not known and pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"):
                self.running[uid] = await self._start(pod)

    async def _start(self, pod: Json) -> Running:
        meta, spec = pod["metadata"], pod["spec"]
        directories = {
            name: await self._volume(meta["namespace"], meta["uid"], name, kind, source)
            for name, (kind, source) in volumes_of(pod).items()
        }
        command = command_of(pod, directories)
        account = await asyncio.to_thread(
            self._plane.service_account_kubeconfig, meta["namespace"], spec["serviceAccountName"]
        )
        port = free_ports("http")["http"]
        here = {"KUBECONFIG": str(self._via(account)), "HTTP_HOST": "127.0.0.1", "HTTP_PORTS": str(port), **IN_POD}
        # The port of the probes that the chart names may be another pod's here.
        here["HTTP_PROBE_PORT"] = "0"
        program, *arguments = command.argv
        # The image has nothing but the controller's own environment in its path.
        argv = [str(Path(sys.executable).parent / program), *arguments]
        pid = self._plane.spawn(_process(pod), argv, env={**command.environment, **here})
        name = spec["containers"][0]["name"]
        job = any(each["kind"] == "Job" for each in meta.get("ownerReferences") or [])
        return Running(self._plane, meta["name"], name, meta["namespace"], _process(pod), pid, port, command.grace, job)

    async def _finish(self, ended: Running, code: int) -> None:
        """Say of the pod of a Job how its container has ended."""
        state = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
        container = {"name": ended.name, "state": state, "ready": False, "restartCount": 0, "image": "", "imageID": ""}
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container]}
        path = f"/api/v1/namespaces/{ended.namespace}/pods/{ended.pod}/status"
        body, kind = {"status": status}, "application/merge-patch+json"
        code, answer = await self._api.request("PATCH", path, body=body, content_type=kind)
        if code >= 400 and code != 404:
            raise ApiError("PATCH", path, code, answer)

    async def _volume(self, namespace: str, uid: str, name: str, kind: str, source: str) -> Path:
        """Write the files of a volume; they stay as they are for the pod's life."""
        directory = self._folder / uid / name
        directory.mkdir(parents=True, exist_ok=True)
        found: Json = await self._api.get(kind, source, namespace) if kind else {}
        for key, value in (found.get("data") or {}).items():
            content = base64.b64decode(value) if kind == "Secret" else value.encode()
            (directory / key).write_bytes(content)
        return directory


def _process(pod: Json) -> str:
    return f"{pod['metadata']['name']}-{pod['metadata']['uid']}"


__all__ = ["Pods", "Running"]
