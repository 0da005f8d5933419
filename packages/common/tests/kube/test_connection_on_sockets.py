"""What a connection needs a machine for: plugins that are programs, and ports on which nobody listens."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tightship.kube.connection import connect
from tightship.kube.pacing import RetryPolicy
from tightship.objects.api_errors import ConfigError, ConnectionFailed
from tightship_testkit.scripted import ScriptedApi

from .conftest import FakeSleep, kubeconfig


async def test_an_exec_plugin_gives_the_token(api: ScriptedApi, tmp_path: Path) -> None:
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "plugged"},
    }
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "command": sys.executable,
        "args": ["-c", f"print({json.dumps(json.dumps(answer))})"],
    }
    path = kubeconfig(tmp_path / "config", api.url, {"exec": plugin})
    async with await connect(path) as connection:
        await connection.request("GET", "/api/v1/nodes")
    assert api.seen[0].headers["Authorization"] == "Bearer plugged"


async def test_a_failing_exec_plugin_is_an_error_and_not_an_anonymous_request(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "command": sys.executable,
        "args": ["-c", "import sys; sys.exit('please log in first')"],
    }
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {"exec": plugin})
    with pytest.raises(ConfigError, match=r"exec plugin.*please log in first"):
        await connect(path)


async def test_nobody_listening_is_told_without_a_status(fake_sleep: FakeSleep, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "http://user:pass@127.0.0.1:1", {})
    async with await connect(path, retry=RetryPolicy(attempts=2, sleep=fake_sleep)) as connection:
        with pytest.raises(ConnectionFailed) as caught:
            await connection.request("GET", "/version")
    assert str(caught.value).startswith("GET /version at http://127.0.0.1:1: ")
    assert "pass" not in str(caught.value)
    assert len(fake_sleep.waits) == 1
