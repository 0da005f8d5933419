"""A target for Prometheus to scrape, whose series a test sets at will."""

from __future__ import annotations

import contextlib
import math
import socketserver
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Self, TypeAlias

from tightship_testkit.ports import free_ports

Value: TypeAlias = float | Callable[[], float]
Labels: TypeAlias = tuple[tuple[str, str], ...]

POLL = 0.05  # seconds between two looks at a condition
REBIND = 60.0  # seconds in which the port of a stopped exporter must be had again


class Exporter:
    """Serves `/metrics` on 127.0.0.1 from a thread of its own, so that a test may block as it likes.

    It keeps its port. Between `stop` and `start` connections are refused: the scrape fails, and Prometheus marks the
    series stale at once. A sample with a time of its own (`at`) is not marked so and ages by the lookback.
    """

    def __init__(self) -> None:
        self.text = ""
        """Lines of the exposition format that are served as they are, after the series that are set."""
        self._series: dict[tuple[str, Labels], tuple[Value, float | None]] = {}
        self._lock = threading.Lock()
        self._port = 0
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def target(self) -> str:
        """Host and port, as a scrape configuration names them."""
        return f"127.0.0.1:{self._port}"

    def set(self, name: str, value: Value, /, *, at: float | None = None, **labels: str) -> None:
        """Serve this value from now on; a function is asked at each scrape. `at` is in seconds since 1970.

        NaN and both infinities are values like others. Prometheus drops a sample that is older than what it has of
        the series, and one from before its head of some hours.
        """
        with self._lock:
            self._series[name, tuple(sorted(labels.items()))] = (value, at)

    def remove(self, name: str, /, **labels: str) -> None:
        """Serve this series no more; KeyError when it is not there."""
        with self._lock:
            del self._series[name, tuple(sorted(labels.items()))]

    def exposition(self) -> str:
        """Return what a scrape gets."""
        with self._lock:
            lines = [_line(name, labels, value, at) for (name, labels), (value, at) in self._series.items()]
            return "".join(lines) + self.text

    def start(self) -> Self:
        """Listen, on the same port as before."""
        if self._server:
            raise ValueError("the exporter listens already")
        self._port = self._port or free_ports("exporter")["exporter"]
        self._server = self._bind()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL,), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Refuse connections until the next `start`."""
        server, self._server = self._server, None
        if server and self._thread:
            server.shutdown()
            server.server_close()
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

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


def growing(per_second: float, start: float = 0.0) -> Callable[[], float]:
    """Return a counter for `Exporter.set` that grows evenly by the clock, whenever it is scraped."""
    began = time.monotonic()
    return lambda: start + per_second * (time.monotonic() - began)


def _line(name: str, labels: Labels, value: Value, at: float | None) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    number = float(value() if callable(value) else value)
    shown = repr(number) if math.isfinite(number) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(number, "NaN")
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
