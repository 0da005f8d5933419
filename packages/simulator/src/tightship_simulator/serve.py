"""An embedded cluster on loopback: ``async with EmbeddedCluster() as cluster``, or this module as a program.

Inside a process::

    async with EmbeddedCluster() as cluster:
        cluster.store.load(items)                      # what kubectl get -o json prints
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        ...                                            # controllers and kubectl at cluster.url

``python -m tightship_simulator.serve -f cluster.json`` serves a file and says how to point kubectl at it. Nothing runs
in it but the disruption controller: no scheduler, no kubelet; behaviours are tasks that work on the store.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from tightship_simulator.api.disruption import keep_budgets
from tightship_simulator.api.errors import Refused
from tightship_simulator.api.rights import Allows
from tightship_simulator.api.server import ApiServer
from tightship_simulator.api.store import Store
from tightship_simulator.api.watching import BOOKMARKS

Json = dict[str, Any]

HOST = "127.0.0.1"
_SHUTDOWN = 0.1
"""Seconds that requests under way have at the end: watches would never end."""


class EmbeddedCluster:
    """A store, the API on it on a port of loopback, and what keeps PodDisruptionBudgets, while the context lasts.

    *port* 0 takes a free one. With *budgets* false the status of PodDisruptionBudgets is left to who writes it.
    *bookmarks* is the time between two bookmarks of a watch, in seconds. *middlewares* are aiohttp's,
    around every answer. *requests* are those that were answered.
    Entering raises :class:`OSError` where the port is taken; leaving raises what has ended the disruption controller.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        port: int = 0,
        budgets: bool = True,
        bookmarks: float = BOOKMARKS,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self.store = Store() if store is None else store
        self._port = port
        self._budgets = budgets
        self._keeper: asyncio.Task[None] | None = None
        api = ApiServer(self.store, bookmarks=bookmarks, middlewares=middlewares)
        self.requests = api.requests
        self._api = api
        # A watch must end when its client goes, not when it next has something to tell.
        self._runner = web.AppRunner(api.app, access_log=None, shutdown_timeout=_SHUTDOWN, handler_cancellation=True)

    def permit(self, allows: Allows | None) -> None:
        """Let clients do what *allows* says from here on; ``None``: everything."""
        self._api.allows = allows

    @property
    def url(self) -> str:
        """Where the API is served."""
        return f"http://{HOST}:{self._runner.addresses[0][1]}"

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this cluster to *path* and return it."""
        named = {"cluster": "embedded", "user": "embedded", "namespace": "default"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": {"server": self.url}}],
            "users": [{"name": "embedded", "user": {}}],
            "contexts": [{"name": "embedded", "context": named}],
            "current-context": "embedded",
        }
        path.write_text(json.dumps(config, indent=2) + "\n")
        return path

    def pause_budgets(self) -> None:
        """Stop the disruption controller: the status of PodDisruptionBudgets stays what it is."""
        if self._keeper is not None:
            self._keeper.cancel()
            self._keeper = None

    def resume_budgets(self) -> None:
        """Start the disruption controller, if it is not running."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(keep_budgets(self.store), name="disruption controller")

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, HOST, self._port).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        if self._budgets:
            self.resume_budgets()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper


class FileError(ValueError):
    """A file that holds no objects; the text says why."""


def read_items(raw: bytes) -> list[Mapping[str, Any]]:
    """Return the objects of a List, or the one object, in *raw*. Raises :class:`FileError`."""
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise FileError("not an object: allowed is what kubectl get -o json prints")
    items = document.get("items", [document])
    wrong = [number for number, each in enumerate(items) if not (isinstance(each, dict) and each.get("kind"))]
    if wrong:
        raise FileError(f"items {', '.join(map(str, wrong[:10]))}: no objects with a kind")
    return list(items)


async def _serve(store: Store, port: int, directory: Path) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with EmbeddedCluster(store, port=port) as cluster:
        kubeconfig = cluster.kubeconfig(directory / "kubeconfig")
        _say(f"serving the Kubernetes API at {cluster.url}; Ctrl-C ends it")
        _say(f"  export KUBECONFIG={kubeconfig}")
        _say("  kubectl get nodes")
        await stop.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tightship_simulator.serve", description="Serve the Kubernetes API of an embedded cluster."
    )
    parser.add_argument("-f", "--file", type=Path, help="objects to begin with: what kubectl get ... -o json prints")
    parser.add_argument("--port", type=int, default=0, help="port of 127.0.0.1; a free one unless given")
    chosen = parser.parse_args(arguments)
    store = Store()
    try:
        if chosen.file is not None:
            for kind, count in sorted(store.load(read_items(chosen.file.read_bytes())).items()):
                _say(f"left out: {count} of kind {kind}, which is not served")
        with tempfile.TemporaryDirectory(prefix="tightship-") as directory:
            asyncio.run(_serve(store, chosen.port, Path(directory)))
    except (OSError, ValueError, Refused) as error:
        sys.stderr.write(f"error: {f'{chosen.file}: ' if chosen.file else ''}{error}\n")
        return 1
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
