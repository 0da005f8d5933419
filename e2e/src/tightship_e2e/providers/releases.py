"""Releases by the real Helm, the controllers' own commands, and kubectl, on the cluster of a kubeconfig."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tightship_e2e.binaries import find_or_installed
from tightship_e2e.helm import SPARING, Helm, objects, run
from tightship_e2e.providers.protocol import Values
from tightship_testkit.client import Json


class Releases:
    """What a scenario does with releases. Methods raise HelmError where Helm or the command refuses."""

    def __init__(self, home: Path, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.kubectl = find_or_installed("kubectl")
        self._helm = Helm(find_or_installed("helm"), home, kubeconfig)

    async def install(self, release: str, chart: Path, namespace: str, values: Values) -> str:
        """Install or upgrade a release, and return what Helm printed."""
        where = ("--namespace", namespace, "--create-namespace", SPARING)
        return await asyncio.to_thread(self._helm, "upgrade", "--install", release, chart, *where, values=values)

    async def uninstall(self, release: str, namespace: str, *, hooks: bool = True) -> None:
        """Uninstall a release, if it is there; its pods may outlast that."""
        where = ("--namespace", namespace, "--ignore-not-found", *(() if hooks else ("--no-hooks",)))
        await asyncio.to_thread(self._helm, "uninstall", release, *where)

    async def roll_back(self, release: str, namespace: str, revision: int) -> None:
        """Have a release be what it was in an earlier revision."""
        await asyncio.to_thread(self._helm, "rollback", release, str(revision), "--namespace", namespace)

    async def manifest(self, release: str, namespace: str) -> list[Json]:
        """Return the objects of an installed release."""
        return objects(await asyncio.to_thread(self._helm, "get", "manifest", release, "--namespace", namespace))

    async def tested(self, release: str, namespace: str) -> str:
        """Run ``helm test``, and return what it and its pods said."""
        return await asyncio.to_thread(self._helm, "test", release, "--namespace", namespace, "--logs")

    async def command(self, *words: str) -> str:
        """Run a controller's command, or kubectl, as an administrator, and return what it printed."""
        ours = Path(sys.executable).parent
        argv = [str(self.kubectl if words[0] == "kubectl" else ours / words[0]), *words[1:]]
        return await asyncio.to_thread(run, argv, b"", {"KUBECONFIG": str(self.kubeconfig)})


__all__ = ["Releases"]
