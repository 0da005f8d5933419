r"""A real Prometheus as a process, which a test can pause, kill, empty and bring back.

    with Exporter() as exporter, Prometheus(exporter.target) as prometheus:
        exporter.set("requests", 12, app="web")
        prometheus.wait_for_value("sum(requests)", 12)

What Prometheus 3.13.5 answered to POST /api/v1/query, as `application/json` unless said otherwise:

* a value: 200 `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"app":"web"},
  "value":[1795291644.294,"12.5"]}]}}`; NaN and the infinities likewise, as "NaN", "+Inf", "-Inf"
* `1` and `"x"`: 200 with `"resultType":"scalar"` and `"string"`, `"result":[1795291644.3,"1"]`
* `up[2s]`: 200 with `"resultType":"matrix"`, each series with `"values":[[1795291644.251,"1"]]`
* no such series, or no data at all: 200 with `"resultType":"vector","result":[]`; with `or vector(0)` the value "0"
* `quantile(2, up)`: 200, the value "+Inf", and beside `data` a list `"warnings":["PromQL warning: quantile value ..."]`
* what does not parse: 400 `{"status":"error","errorType":"bad_data","error":"invalid parameter ..."}`; so too for
  `timeout=1ns`, "cannot parse ... to a valid duration"
* many-to-many matching: 422 with `"errorType":"execution"`; so too beyond `--query.max-samples`, "query processing
  would load too many samples into memory in query execution"
* longer than `--query.timeout` or the parameter `timeout`: 503
  `{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}`
* waiting for one of `--query.max-concurrency` places for longer than the parameter `timeout`: 400
  `{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": context deadline exceeded"}`, so not
  every `bad_data` is the asker's fault; some got 422, `execution`, "context deadline exceeded"
* `//api/v1/query`: 307 to `/api/v1/query` without a body
* a path it does not know: 404 `text/plain`; PUT: 405 `text/plain`
* paused: the connection is accepted and nothing answered; stopped or killed: it is refused

The timeout is looked at between the steps of an evaluation only: one function over a large range ran for 5 s under a
timeout of 2 s. With its data wiped, `rate(x[5m])` answers with 200 and no warning what little was seen divided by five
minutes: 0.13 after half a second and 0.77 after 2 s, where the true rate was 110.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import shutil
import signal
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from tightship_e2e import binaries
from tightship_testkit.client import Json
from tightship_testkit.ports import free_ports
from tightship_testkit.processes import Processes, ServerError

NAME = "prometheus"
START_DEADLINE = 120.0  # seconds until it is ready, on a busy machine
VALUE_DEADLINE = 90.0  # seconds until a query has a value that a test waits for
TIMEOUT = 20.0  # seconds for one request

SLOW = " + ".join(["max_over_time(quantile_over_time(0.5, vector(1)[1m:1ms])[5s:100ms])"] * 40)
"""A query that needs no data and seconds of a core (7 s on a busy one); its timeout is looked at all the while."""

Wanted: TypeAlias = float | Callable[[float | None], bool] | None


@dataclass(frozen=True)
class Reply:
    """What Prometheus answered; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Json:
        """The body as JSON; ValueError when it is none."""
        document: Json = json.loads(self.body)
        return document


class Prometheus:
    """A Prometheus of its own that scrapes *targets* every *interval* seconds.

    It keeps its port on 127.0.0.1 and its data directory from `start` to `close`, whatever is done to it meanwhile.
    *flags* are added to its command line, such as ``--query.timeout=1s`` or ``--query.lookback-delta=2s``.
    `start` raises NotBuiltError when the program is not built, ServerError when it is not ready within *deadline*
    seconds; the error shows the end of its log. With `TIGHTSHIP_E2E_KEEP=1` data and log outlive the test.
    """

    def __init__(
        self, *targets: str, interval: float = 0.5, flags: Sequence[str] = (), deadline: float = START_DEADLINE
    ) -> None:
        self.port = 0
        self._targets = targets
        self._interval = interval
        self._flags = flags
        self._deadline = deadline
        self._processes = Processes("Prometheus", ServerError)

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self._processes.logs[NAME]

    @property
    def storage(self) -> Path:
        """The directory of its TSDB."""
        return self._processes.data_dir / "tsdb"

    @property
    def pids(self) -> list[int]:
        """The processes that must be gone once this one is: Prometheus and its supervisor."""
        return [self._processes.supervisor_pid, *self._processes.pids.values()]

    # Its life.

    def start(self) -> Self:
        """Start it, with what data it has, and wait until it is ready."""
        try:
            if not self._processes.is_open:
                self._processes.open()
                (self._processes.data_dir / "prometheus.json").write_text(json.dumps(self._config()))
            self._start(binaries.find(NAME)[NAME], time.monotonic() + self._deadline)
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """End it as an orderly shutdown does (SIGTERM); its data is written out, and connections are refused."""
        self._processes.signal(NAME, signal.SIGTERM)
        self._wait_until(lambda: not self._running(), self._deadline, "the end of Prometheus", watched=())

    def kill(self) -> None:
        """End it at once (SIGKILL), a paused one too; connections are refused."""
        self._processes.kill(NAME)

    def wipe(self) -> None:
        """Remove its data; ServerError while it runs."""
        if self._running():
            raise ServerError("Prometheus runs: its data can be removed only after `stop` or `kill`")
        shutil.rmtree(self.storage)

    def backfill(self, text: str) -> None:
        """Add a past to its data: *text* is OpenMetrics with times. ServerError while it runs, or if it is refused.

        Raises NotBuiltError when promtool is not built.
        """
        if self._running():
            raise ServerError("Prometheus runs: its data can be added to only after `stop` or `kill`")
        past = self._processes.data_dir / "past.om"
        past.write_text(text)
        program = binaries.find("promtool")["promtool"]
        command = [str(program), "tsdb", "create-blocks-from", "openmetrics", str(past), str(self.storage)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_DEADLINE, check=False)
        if done.returncode != 0:
            raise ServerError(f"promtool: {done.stdout}{done.stderr}")

    def scrape(self, *targets: str) -> None:
        """Scrape these *targets* from now on, as after a ServiceMonitor came or went (SIGHUP)."""
        self._targets = targets
        (self._processes.data_dir / "prometheus.json").write_text(json.dumps(self._config()))
        self._processes.signal(NAME, signal.SIGHUP)

    def pause(self) -> None:
        """Stop it (SIGSTOP): connections are still accepted, by the kernel, and nothing is answered."""
        self._processes.signal(NAME, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self._processes.signal(NAME, signal.SIGCONT)

    def paused(self) -> AbstractContextManager[None]:
        """Pause it for the body's time."""
        return self._processes.paused(NAME)

    def close(self) -> None:
        """Kill it and remove its data, its log and its port."""
        self._processes.close()
        self.port = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What it knows.

    def query(self, expression: str, **parameters: str) -> Reply:
        """Return its answer to an instant query; *parameters* are such as ``time`` and ``timeout``."""
        body = urllib.parse.urlencode({"query": expression, **parameters})
        return self.request("POST", "/api/v1/query", body)

    def value(self, expression: str) -> float | None:
        """Return the one value of an expression, None when its vector is empty.

        Raises ServerError on an error, ValueError when there are several series.
        """
        reply = self.query(expression)
        if reply.status != 200:
            raise ServerError(f"{expression}: {reply.status} {reply.body.decode(errors='replace')}")
        data = reply.document["data"]
        if data["resultType"] == "scalar":
            return float(data["result"][1])
        if len(data["result"]) > 1:
            raise ValueError(f"{expression}: {len(data['result'])} series, not one")
        return float(data["result"][0]["value"][1]) if data["result"] else None

    def wait_for_value(self, expression: str, wanted: Wanted, deadline: float = VALUE_DEADLINE) -> float | None:
        """Ask until the value is *wanted*, or *wanted* is true of it, and return it; ServerError after *deadline*."""
        last: float | None = None

        def fits() -> bool:
            nonlocal last
            try:
                last = self.value(expression)
            except (OSError, http.client.HTTPException):
                return False
            return wanted(last) if callable(wanted) else _same(last, wanted)

        try:
            self._wait_until(fits, deadline, f"the value of {expression}", watched=(NAME,))
        except ServerError as error:
            raise ServerError(f"last value {last}; {error}") from error
        return last

    def request(self, method: str, path: str, body: str = "", *, timeout: float = TIMEOUT) -> Reply:
        """Send a request with a form as its body; TimeoutError when no answer comes within *timeout* seconds."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(method, path, body or None, {"Content-Type": "application/x-www-form-urlencoded"})
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, headers, answer.read())

    # Within.

    def _start(self, program: Path, until: float) -> None:
        keeps_port = bool(self.port)
        while True:
            if not keeps_port:
                self.port = free_ports(NAME)[NAME]
            self._processes.spawn(NAME, [str(program), *self._arguments()])
            try:
                self._wait_until(self._ready, until - time.monotonic(), "Prometheus", watched=(NAME,))
            except ServerError as error:
                # Somebody else has the port for the moment.
                if "address already in use" not in str(error) or time.monotonic() > until:
                    raise
            else:
                return

    def _arguments(self) -> list[str]:
        return [
            f"--config.file={self._processes.data_dir / 'prometheus.json'}",
            f"--storage.tsdb.path={self.storage}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--scrape.discovery-reload-interval=100ms",
            *self._flags,
        ]

    def _config(self) -> Json:
        every = f"{round(self._interval * 1000)}ms"
        job = {"job_name": "e2e", "static_configs": [{"targets": list(self._targets)}]}
        return {"global": {"scrape_interval": every, "scrape_timeout": every}, "scrape_configs": [job]}

    def _ready(self) -> bool:
        try:
            return self.request("GET", "/-/ready").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def _running(self) -> bool:
        return NAME in self._processes.pids and NAME not in self._processes.exits()

    def _wait_until(self, condition: Callable[[], bool], seconds: float, what: str, *, watched: Sequence[str]) -> None:
        until = time.monotonic() + seconds
        self._processes.wait_until(condition, until, what, watched=watched, shown=NAME)


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))
