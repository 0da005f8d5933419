"""Controllers in pods that really run, and what the API server and kubectl tell of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from tightship_e2e.helm import run
from tightship_testkit.client import Client, Json, wait_for

LABEL = "app.kubernetes.io/part-of=tightship"
DEADLINE = 180.0


@dataclass(frozen=True)
class Container:
    """The controller of a pod."""

    api: Client
    kubectl: Path
    kubeconfig: Path
    namespace: str
    pod: str
    name: str
    port: int

    async def get(self, path: str) -> tuple[int, str]:
        """Ask it over HTTP, through the API server: status and text; 0 when it does not answer."""
        status, text = await self.api.text(f"{self._path()}:{self.port}/proxy{path}")
        # A pod that can't be reached is told of with a Status by the API server itself.
        silent = status >= 400 and '"kind":"Status"' in text
        return (0, "") if silent else (status, text)

    async def said(self) -> str:
        """Return everything it has written since it was started, empty when its pod is gone."""
        status, text = await self.api.text(f"{self._path()}/log")
        return text if status == 200 else ""

    async def environment(self) -> list[str]:
        """Return the environment of its process, each as ``NAME=value``."""
        words = [str(self.kubectl), "exec", "--namespace", self.namespace, self.pod, "--container", self.name]
        given = {"KUBECONFIG": str(self.kubeconfig)}
        return (await asyncio.to_thread(run, [*words, "--", "cat", "/proc/1/environ"], b"", given)).split("\0")

    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.pod}"


class Containers:
    """The controllers of a cluster; remembers those that it has met, and how containers of theirs ended."""

    def __init__(self, api: Client, kubectl: Path, kubeconfig: Path) -> None:
        self.ended: dict[str, int] = {}
        """Exit codes of controllers that ended though their pods had not been deleted, by pod."""
        self._api = api
        self._kubectl = kubectl
        self._kubeconfig = kubeconfig
        self._last: dict[str, str] = {}

    async def running(self, namespace: str) -> list[Container]:
        """Return what runs in a namespace now, in the order of its start."""
        pods = await self._api.list("Pod", namespace, labelSelector=LABEL)
        self._note(pods)
        found = [each for each in pods if each["status"].get("phase") == "Running" and _stays(each)]
        return [self._container(each) for each in sorted(found, key=lambda each: each["status"]["startTime"])]

    async def gone(self, namespace: str) -> None:
        """Wait until no pod of a release is left in a namespace."""

        async def none() -> bool:
            pods = await self._api.list("Pod", namespace, labelSelector=LABEL)
            self._note(pods)
            return not pods

        await wait_for(none, DEADLINE, f"the controllers in {namespace} have ended")

    async def keep_logs(self, namespace: str) -> None:
        """Keep the ends of the logs in a namespace: those of a pod go with it."""
        for each in await self.running(namespace):
            self._last[each.pod] = (await each.said())[-6000:]

    async def logs(self, namespace: str) -> str:
        """Return the ends of what all have said."""
        await self.keep_logs(namespace)
        return "\n".join(f"--- {pod}\n{text}" for pod, text in self._last.items())

    def _note(self, pods: list[Json]) -> None:
        for pod in pods:
            for each in (pod.get("status") or {}).get("containerStatuses") or []:
                past = (each.get("lastState") or {}).get("terminated") or (
                    _stays(pod) and (each.get("state") or {}).get("terminated")
                )
                if past:
                    self.ended[pod["metadata"]["name"]] = past["exitCode"]

    def _container(self, pod: Json) -> Container:
        meta, [first, *_] = pod["metadata"], pod["spec"]["containers"]
        [port] = [each["containerPort"] for each in first["ports"] if each["name"] == "http"]
        where = (self._api, self._kubectl, self._kubeconfig, meta["namespace"])
        return Container(*where, meta["name"], first["name"], port)


def _stays(pod: Json) -> bool:
    return not pod["metadata"].get("deletionTimestamp")


__all__ = ["LABEL", "Container", "Containers"]
