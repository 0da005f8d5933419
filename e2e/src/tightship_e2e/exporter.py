"""A target for Prometheus to scrape, whose series a test sets at will."""

from __future__ import annotations

import contextlib
import math
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Self

from tightship_simulator.life.samples import Labels
from tightship_simulator.life.scraping import Exporter as Series
from tightship_testkit.ports import free_ports

POLL = 0.05  # seconds between two looks at a condition
REBIND = 60.0  # seconds in which the port of a stopped exporter must be had again


class Exporter(Series):
    """Serves `/metrics` on 127.0.0.1 from a thread of its own, so that a test may block as it likes.

    It keeps its port. Between `stop` and `start` connections are refused: the scrape fails, and Prometheus marks the
    series stale at once. A sample with a time of its own (`at`) is not marked so and ages by the lookback; one that is
    older than what Prometheus has of the series is dropped, and so is one from before its head of some hours.
    """

    def __init__(self) -> None:
        super().__init__("")
        self._port = 0
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def exposition(self) -> str:
        """Return what a scrape gets."""
        return "".join(_line(labels, value, at) for labels, value, at in self.shown())

    def start(self) -> None:
        """Listen, on the same port as before."""
        if self._server:
            raise ValueError("the exporter listens already")
        self._port = self._port or free_ports("exporter")["exporter"]
        self.target = f"127.0.0.1:{self._port}"
        self._server = self._bind()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections until the next `start`."""
        server, self._server = self._server, None
        if server and self._thread:
            server.shutdown()
            server.server_close()
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _bind(self) -> _Server:
        until = time.monotonic() + REBIND
        while True:
            try:
                return _Server(self, self._port)
            except OSError:
                # Somebody's outgoing connection has our port for the moment.
                if time.monotonic() > until:
                    raise
            time.sleep(POLL)  # noqa: TID251 - between two tries with a deadline


def _line(labels: Labels, value: float, at: float | None) -> str:
    named = dict(labels)
    name = named.pop("__name__")
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in named.items())
    shown = repr(value) if math.isfinite(value) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    when = "" if at is None else f" {round(at * 1000)}"
    return f"{name}{{{inside}}} {shown}{when}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, exporter: Exporter, port: int) -> None:
        self.exporter = exporter
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        body = self.server.exporter.exposition().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        with contextlib.suppress(ConnectionError):  # a Prometheus may be killed while it scrapes
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is that of the base class
        """A scrape a second is no news."""
