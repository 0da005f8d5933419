"""What tests of the running hpa-scaler share: HPAs of one namespace, and replicas that set their floors."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from tightship_simulator.life.prometheus import Prometheus, body, says
from tightship_testkit.client import Client, Items, Json, wait_for
from tightship_testkit.fault_proxy import FaultProxy
from tightship_testkit.replica import SCALER, Host, Replica, Settings, configure, new_team
from tightship_testkit.virtual import Machine

SHOP = "shop"
"""The namespace of the HPAs and of what they scale."""
HPA = "HorizontalPodAutoscaler"
PREFIX = "estafette.io/hpa-scaler"
STATE = f"{PREFIX}-state"
DEADLINE = 120.0

QUICK: Settings = {"coldSourceGuard": False, "dataAgeQuery": ""}
"""A fake server has no past."""


def hpa_annotations(**named: object) -> dict[str, str]:
    """Return the annotations of an HPA that is opted in, by their names with ``_`` for ``-``."""
    return {PREFIX: "true", **{f"{PREFIX}-{name.replace('_', '-')}": str(value) for name, value in named.items()}}


def autoscaler(name: str, minimum: int, maximum: int, notes: dict[str, str] | None = None) -> Json:
    """Return an HPA of the Deployment of its name; its metric is not served, so that it stays at its floor."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    return {
        "kind": HPA,
        "metadata": {"name": name, "namespace": SHOP, "annotations": notes or {}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": minimum,
            "maxReplicas": maximum,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }


def deployment(name: str, replicas: int) -> Json:
    """Return a Deployment whose pods have no node: nothing has to run for an HPA to scale it."""
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
    }


def answering_one() -> Prometheus:
    """Return a Prometheus that answers 1 to every query that it is not told to answer otherwise."""
    return Prometheus(otherwise=says(body("1")))


class Source(Protocol):
    """A Prometheus."""

    url: str


class Market:
    """HPAs of one namespace, a Prometheus for them, and a team of replicas, which are processes of *host*."""

    proxy: FaultProxy
    """The replicas' way to the API server."""

    def __init__(self, host: Host, api: Client, source: Source, team: str = "") -> None:
        self.host = host
        self.api = api
        self.source = source
        self.team = team or new_team()
        self.kubeconfig = self.admin = Path()
        self.replicas: list[Replica] = []

    async def open(self) -> None:
        """Make the namespace, and the configuration of the replicas."""
        await self.api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": SHOP}})
        await self.configured()

    async def configured(self, settings: Settings | str | None = None, **more: object) -> None:
        """Write the team's configuration."""
        text = settings if isinstance(settings, str) else {**QUICK, **(settings or {}), **more}
        await configure(self.api, self.team, text, SCALER)

    def start(self, **variables: str) -> Replica:
        """Start one more replica."""
        given = {"PROMETHEUS_SERVER_URL": self.source.url, **variables}
        self.replicas.append(Replica(self.host, self.team, self.kubeconfig, SCALER, **given))
        return self.replicas[-1]

    async def stock(self, name: str, minimum: int, maximum: int, replicas: int | None = None, **notes: object) -> None:
        """Make a Deployment and its HPA, opted in by *notes*, and wait until the HPA controller has seen it."""
        await self.api.create(deployment(name, minimum if replicas is None else replicas))
        await self.api.create(autoscaler(name, minimum, maximum, hpa_annotations(**notes) if notes else None))

        async def seen() -> bool:
            return bool((await self.hpa(name)).get("status", {}).get("currentReplicas"))

        await wait_for(seen, DEADLINE, f"the HPA {name} has a status")

    async def hpa(self, name: str) -> Json:
        """Return an HPA as it is."""
        return await self.api.get(HPA, name, SHOP)

    async def hpas(self) -> dict[str, Json]:
        """Return all HPAs by name."""
        return {each["metadata"]["name"]: each for each in await self.api.list(HPA, SHOP)}

    async def events(self, namespace: str = SHOP) -> Items:
        """Return the Events of a namespace."""
        return await self.api.list("Event", namespace)

    async def bounds(self, name: str) -> tuple[int, int]:
        """Return its minReplicas and maxReplicas."""
        spec = (await self.hpa(name))["spec"]
        return spec["minReplicas"], spec["maxReplicas"]

    async def state(self, name: str) -> Json:
        """Return what its state annotation says, empty where there is none."""
        text = (await self.hpa(name))["metadata"].get("annotations", {}).get(STATE, "{}")
        found: Json = json.loads(text)
        return found

    async def edit(self, name: str, **spec: int) -> None:
        """Change its bounds as somebody else would."""
        await self.api.patch(HPA, name, {"spec": spec}, SHOP)

    async def annotate(self, name: str, **notes: str | None) -> None:
        """Change its annotations by their names with ``_`` for ``-``; ``enabled`` is the one that opts in."""
        named = {
            PREFIX if key == "enabled" else f"{PREFIX}-{key.replace('_', '-')}": text for key, text in notes.items()
        }
        await self.api.patch(HPA, name, {"metadata": {"annotations": named}}, SHOP)

    async def until_bounds(self, name: str, minimum: int, maximum: int, deadline: float = DEADLINE) -> None:
        """Wait until it has these bounds."""

        async def there() -> bool:
            return await self.bounds(name) == (minimum, maximum)

        await self.until(
            there, f"{name} has the bounds {minimum} and {maximum}, not {await self.bounds(name)}", deadline
        )

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str, deadline: float = DEADLINE) -> None:
        """Wait for a condition; the replicas' logs are in the error."""
        try:
            await wait_for(condition, deadline, what)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    async def cycles(self, replica: Replica, more: int = 3) -> None:
        """Wait until a replica has judged so many times more."""
        before = replica.log.count('"judged"')

        async def judged() -> bool:
            return replica.log.count('"judged"') >= before + more

        await self.until(judged, f"{more} cycles of {replica.name}")

    async def deposed(self, replica: Replica) -> None:
        """Wait until a replica knows that it does not lead."""

        async def stands_by() -> bool:
            return "tightship_leader 0.0" in (await replica.get("/metrics"))[1]

        await self.until(stands_by, f"{replica.name} leads no longer")

    def logs(self) -> str:
        """Return the ends of what the replicas have said."""
        return "\n".join(f"--- {each.name} (exit {each.code})\n{each.log[-12000:]}" for each in self.replicas)


async def cli(on: Market, *arguments: str) -> tuple[int, str, str]:
    """Run a command as an administrator; return its exit code, output and complaints."""
    if isinstance(on.host, Machine):
        return on.host.command(f"{SCALER.module}.cli", *arguments, LEASE_NAME=f"{on.team}-leader")
    environment = {**os.environ, "KUBECONFIG": str(on.admin), "LEASE_NAME": f"{on.team}-leader"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        SCALER.module,
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
