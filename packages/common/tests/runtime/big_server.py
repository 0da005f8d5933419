"""A program: serves a large page and many metrics, prints its ports, and goes on until it is told to end."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys

from prometheus_client import Gauge
from report.plans import node, plan

from tightship.documents.plan_view import plan_page
from tightship.process.http import Content, HttpServer
from tightship.process.logging import set_up
from tightship.process.metrics import new_registry

NODES = 2_000
DESCRIPTORS = 1024


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    registry = new_registry("big", "1")
    series = Gauge("of_nodes", "One for each node", ["node"], registry=registry)
    for number in range(NODES):
        series.labels(f"node-{number}").set(number)
    page = plan_page(plan(*(node(f"node-{number}") for number in range(NODES))))
    status = b'{"filler": "%s"}' % (b"x" * 5_000_000)
    draw, write = lambda: page, lambda: status  # one object each, as a controller's are until its next pass
    content = Content(registry=registry, heartbeats=(), not_ready=list, status=lambda: write, page=lambda: draw)
    async with HttpServer(content, host="127.0.0.1", ports=(0,), probe_port=0) as server:
        print(server.ports[0], server.probe_port, flush=True)
        await stop.wait()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    set_up(stream=sys.stderr)
    asyncio.run(main())
