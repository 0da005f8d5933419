"""What the controllers and HPAs of a real cluster measure: runs in a pod, with Python's standard library only.

Three servers hold the same numbers: an HTTP API like that of Prometheus, which knows ``sum(NAME)`` and any query of the
age of its data; ``external.metrics.k8s.io`` over TLS; and one by which a test sets the numbers, and takes Prometheus
away:

    PUT /state  {"gauges": {"load_web": 60}, "external": {"traffic_web": 20}, "down": false}

Ports are 9090, 8443 and 8080 (``--prometheus``, ``--external``, ``--control``); the certificate is ``tls.crt`` and
``tls.key`` in the folder ``--tls``.
"""

from __future__ import annotations

import argparse
import json
import re
import ssl
import threading
import time
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
SUM = re.compile(r"\s*sum\(\s*([A-Za-z_:][A-Za-z0-9_:]*)\s*\)\s*")
AGE = "time() - min("
OLD = 3600.0 * 24
"""Seconds since which there are data: long enough for any query, so that no floor waits for them."""


class Server(ThreadingHTTPServer):
    """Connections end with it: one that is kept alive would outlast an outage."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


class Numbers:
    """The numbers, and the server of Prometheus' API, which may be down."""

    def __init__(self, port: int) -> None:
        self.gauges: dict[str, float] = {}
        self.external: dict[str, float] = {}
        self._port = port
        self._lock = threading.Lock()
        self._prometheus: Server | None = None

    def up(self) -> None:
        """Have Prometheus answer, unless it does."""
        with self._lock:
            if self._prometheus is None:
                self._prometheus = serve(self._port, Prometheus, self)

    def down(self) -> None:
        """Have nobody listen at its port."""
        with self._lock:
            if self._prometheus is not None:
                self._prometheus.shutdown()
                self._prometheus.server_close()
                self._prometheus = None

    def take(self, state: dict[str, Any]) -> None:
        """Take over a part of a state, or all of it."""
        self.gauges.update(state.get("gauges") or {})
        self.external.update(state.get("external") or {})
        if "down" in state:
            (self.down if state["down"] else self.up)()

    def answer(self, query: str) -> dict[str, Any]:
        """Return what Prometheus answers to a query."""
        now = time.time()
        found = SUM.fullmatch(query)
        value = self.gauges.get(found[1]) if found else (OLD if query.startswith(AGE) else None)
        if not found and value is None:
            return {"status": "error", "errorType": "bad_data", "error": f"not known here: {query}"}
        series = [] if value is None else [{"metric": {}, "value": [now, f"{value:g}"]}]
        return {"status": "success", "data": {"resultType": "vector", "result": series}}


class Handler(BaseHTTPRequestHandler):
    """What the three have in common."""

    numbers: Numbers

    def say(self, content: object, status: int = 200) -> None:
        """Answer with JSON."""
        raw = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def body(self) -> str:
        """Read what was sent."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Say nothing of each request."""


class Prometheus(Handler):
    """``/api/v1/query`` by GET and POST."""

    def do_GET(self) -> None:
        """Answer a query in the address."""
        self.query(urlsplit(self.path).query)

    def do_POST(self) -> None:
        """Answer a query in a form."""
        self.query(self.body())

    def query(self, form: str) -> None:
        """Answer a query."""
        if urlsplit(self.path).path != "/api/v1/query":
            self.say({"status": "error", "errorType": "not_found", "error": self.path}, 404)
            return
        found = self.numbers.answer((parse_qs(form).get("query") or [""])[0])
        self.say(found, 200 if found["status"] == "success" else 400)


class External(Handler):
    """The external metrics of every namespace, by name."""

    def do_GET(self) -> None:
        """Answer with the kinds, or with a value."""
        path = urlsplit(self.path).path
        version = EXTERNAL.removeprefix("/apis/")
        if path == EXTERNAL:
            known = {"name": "*", "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList"}
            kinds = [{**known, "verbs": ["get"]}]
            self.say({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": kinds})
            return
        name = path.rpartition("/")[2]
        value = self.numbers.external.get(name)
        if value is None or not path.startswith(f"{EXTERNAL}/namespaces/"):
            self.say({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}, 404)
            return
        at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: UP017 - any Python 3 will do
        item = {"metricName": name, "metricLabels": {}, "timestamp": at, "value": f"{round(value * 1000)}m"}
        self.say({"kind": "ExternalMetricValueList", "apiVersion": version, "metadata": {}, "items": [item]})


class Control(Handler):
    """By which a test sets the numbers."""

    def do_GET(self) -> None:
        """Answer that it is there."""
        self.say({"gauges": self.numbers.gauges, "external": self.numbers.external})

    def do_PUT(self) -> None:
        """Take over a state."""
        self.numbers.take(json.loads(self.body()))
        self.do_GET()


def serve(port: int, kind: type[Handler], numbers: Numbers, tls: ssl.SSLContext | None = None) -> Server:
    """Serve *numbers* in a thread."""
    server = Server(("", port), type(kind.__name__, (kind,), {"numbers": numbers}))
    if tls is not None:
        # The handshake is the thread's that serves the connection, not that of the one that accepts it.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser()
    for name, port in (("prometheus", 9090), ("external", 8443), ("control", 8080)):
        parser.add_argument(f"--{name}", type=int, default=port)
    parser.add_argument("--tls", type=Path, default=Path("/etc/measures/tls"))
    options = parser.parse_args()
    numbers = Numbers(options.prometheus)
    numbers.up()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(options.tls / "tls.crt", options.tls / "tls.key")
    serve(options.external, External, numbers, tls)
    serve(options.control, Control, numbers)
    threading.Event().wait()


if __name__ == "__main__":
    main()
