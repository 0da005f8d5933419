"""Connections to an API server that answers as it is told, and objects for its lists."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from links import connected

from tightship.kube.connection import Connection
from tightship.kube.credentials import ClusterAccess
from tightship.kube.pacing import RetryPolicy
from tightship_testkit.scripted import Json, ScriptedApi, serving


def node(name: str, **more: Any) -> Json:
    allocatable = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return {"metadata": {"name": name, "resourceVersion": "1"}, "status": {"allocatable": allocatable}, **more}


def pod(name: str, node: str = "n1", version: str = "1", **meta: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "default", "resourceVersion": version, **meta},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running"},
    }


def bad_pod(name: str, node: str = "n1") -> Json:
    broken = pod(name, node)
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "a lot"
    return broken


@pytest_asyncio.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with serving() as made:
        yield made


def kubeconfig(path: Path, server: str, user: Json, **more: object) -> Path:
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        **more,
    }
    path.write_text(json.dumps(document))
    return path


class FakeSleep:
    """Sleeps, and remembers for how long each time."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(seconds)


@pytest.fixture
def fake_sleep() -> FakeSleep:
    return FakeSleep()


@pytest_asyncio.fixture
async def connection(api: ScriptedApi, fake_sleep: FakeSleep) -> AsyncIterator[Connection]:
    async with connected(ClusterAccess(api.url), RetryPolicy(attempts=3, sleep=fake_sleep), 60) as made:
        yield made
