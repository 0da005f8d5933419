"""``tightship fit``: tables, documents and files of recommendations; bad input is one line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest
import yaml

from tightship.objects.quantity import amount
from tightship_cli.cli import command
from tightship_cli.fitting import _usage
from tightship_simulator.generate import off_peak_cluster
from tightship_testkit import commands
from tightship_testkit.commands import Outcome

Json = dict[str, Any]
Cli = Callable[..., Outcome]
NOW = "2026-11-20T03:00:00Z"


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return lambda *given: commands.call("tightship", command, capfdbinary.readouterr, ("fit", *given, "--now", NOW))


@pytest.fixture(scope="module")
def items() -> list[Json]:
    found: list[Json] = off_peak_cluster(1, 12)["items"]
    return found


@pytest.fixture(scope="module")
def file(items: list[Json], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fit") / "cluster.json"
    path.write_bytes(msgspec.json.encode({"kind": "List", "items": items}))
    return path


def fitted(outcome: Outcome) -> Json:
    assert outcome.code == 0, outcome.err
    found: Json = msgspec.json.decode(outcome.out)
    assert found["kind"] == "FitDocument"
    return found["fitted"]  # type: ignore[no-any-return]


def running(items: list[Json]) -> Json:
    """Return a pod of a Deployment that runs."""
    return next(
        each
        for each in items
        if each["kind"] == "Pod"
        and each["spec"].get("nodeName")
        and each["metadata"].get("ownerReferences", [{}])[0].get("kind") == "ReplicaSet"
    )


def deployment(items: list[Json], pod: Json) -> str:
    owner = pod["metadata"]["ownerReferences"][0]["uid"]
    above = next((each for each in items if each["metadata"].get("uid") == owner), None)
    named = pod["metadata"]["ownerReferences"][0]["name"]
    return above["metadata"]["ownerReferences"][0]["name"] if above else named.rpartition("-")[0]


def test_the_table_shows_each_alternative_beside_what_there_is(cli: Cli, file: Path) -> None:
    outcome = cli("-f", file)
    assert outcome.code == 0
    rows = [line.split()[0] for line in outcome.out.splitlines() if line.startswith("  ") and "$" in line]
    assert rows[:1] == ["as"]
    assert {"same-types", "same-family", "any"} <= set(rows)
    assert "team-quote/oversized: no machine on offer is large enough" in outcome.out
    assert "proven by a linear program" in outcome.out


def test_yaml_says_what_json_says(cli: Cli, file: Path) -> None:
    given = ("-f", file, "--choose-from", "same-types", "-o")
    assert yaml.safe_load(cli(*given, "yaml").out) == msgspec.json.decode(cli(*given, "json").out)


def test_without_a_solver_the_bound_counts_volume(cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("-f", file, "--choose-from", "same-types")
    (proven,) = fitted(cli(*given, "-o", "json"))["answers"][0]["alternatives"]
    monkeypatch.setitem(sys.modules, "highspy", None)
    (found,) = fitted(cli(*given, "-o", "json"))["answers"][0]["alternatives"]
    assert (proven["solved"], found["solved"]) == (True, False)
    assert 0 < found["boundMicrosPerHour"] <= proven["microsPerHour"]
    assert found["unplaced"] == proven["unplaced"]
    assert "by volume alone: install tightship-cli[solver]" in cli(*given).out


@pytest.mark.parametrize(("selector", "spot"), [("no!=such", {True}), ("no=such", {False})])
def test_only_pods_that_the_selector_names_run_on_spot_machines(
    selector: str, spot: set[bool], cli: Cli, file: Path
) -> None:
    outcome = cli("-f", file, "--choose-from", "same-types", "--spot", selector, "-o", "json")
    (found,) = fitted(outcome)["answers"][0]["alternatives"]
    assert {each["spot"] for each in found["machines"]} == spot


def scan(kind: str, space: str, name: str, container: str, cpu: object, memory: object) -> Json:
    """Return a row of krr's result, as robusta_krr/core/models/result.py and objects.py make it."""
    unknown = {"value": None, "severity": "UNKNOWN"}
    return {
        "object": {
            "cluster": None,
            "name": name,
            "container": container,
            "pods": [{"name": f"{name}-1", "deleted": False}],
            "hpa": None,
            "namespace": space,
            "kind": kind,
            "allocations": {"requests": {"cpu": 2.0, "memory": None}, "limits": {"cpu": "?", "memory": None}},
        },
        "recommended": {
            "requests": {"cpu": {"value": cpu, "severity": "OK"}, "memory": {"value": memory, "severity": "OK"}},
            "limits": {"cpu": unknown, "memory": unknown},
            "info": {"cpu": None, "memory": "Not enough data"},
        },
        "severity": "CRITICAL",
        "metrics": {"cpu": {"query": "max()", "start_time": "2026-11-01T00:00:00", "step": "75s"}},
    }


def scaler(kind: str, space: str, name: str, *targets: tuple[str, Json]) -> Json:
    """Return a VPA, as kubernetes/autoscaler's vpa-v1-crd-gen.yaml has it, or Goldilocks makes it."""
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": f"goldilocks-{name}", "namespace": space, "resourceVersion": "1"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
            "updatePolicy": {"updateMode": "Off"},
        },
        "status": {
            "conditions": [{"type": "RecommendationProvided", "status": "True"}],
            "recommendation": {
                "containerRecommendations": [
                    {
                        "containerName": container,
                        "lowerBound": {"cpu": "1m"},
                        "target": target,
                        "uncappedTarget": target,
                    }
                    for container, target in targets
                ]
            },
        },
    }


SMALL = {"cpu": "1m", "memory": "104857600"}
USAGE: dict[str, Callable[[str, str, str], list[Json]]] = {
    "krr": lambda space, name, container: [
        {
            "scans": [scan("Deployment", space, name, container, 5e-05, 104857600.0)],
            "score": 3,
            "strategy": {"name": "simple"},
        }
    ],
    "krr without enough data for memory": lambda space, name, container: [
        {"scans": [scan("Deployment", space, name, container, 0.001, "?")]}
    ],
    "krr that wants no request of memory": lambda space, name, container: [
        {"scans": [scan("Deployment", space, name, container, 0.001, None)]}
    ],
    "krr with a workload that is gone": lambda space, name, container: [
        {
            "scans": [
                scan("Deployment", space, "gone", "x", 1.0, 1.0),
                scan("Deployment", space, name, container, 0.001, 1e6),
            ]
        }
    ],
    "krr with a namesake of another kind": lambda space, name, container: [
        {
            "scans": [
                scan("Deployment", space, name, container, 0.001, 1e6),
                scan("StatefulSet", space, name, container, 500.0, 1e12),
            ]
        }
    ],
    "a list of VPAs": lambda space, name, container: [
        {
            "kind": "List",
            "metadata": {"resourceVersion": ""},
            "items": [
                scaler("Deployment", space, "new"),
                scaler("Deployment", space, name, ("no", SMALL), (container, SMALL)),
            ],
        }
    ],
    "one VPA": lambda space, name, container: [
        scaler("Deployment", space, name, (container, {"cpu": 0.001, "memory": 104857600}))
    ],
    "a stream of VPAs": lambda space, name, container: [
        scaler("StatefulSet", space, name),
        scaler("Deployment", space, name, (container, SMALL)),
    ],
    "VPAs without a status": lambda space, name, container: [
        {
            "items": [
                scaler("Deployment", space, "new") | {"status": {}},
                scaler("Deployment", space, "newer") | {"status": {"recommendation": None}},
            ]
        },
        scaler("Deployment", space, name, (container, SMALL)),
    ],
}


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("source", USAGE)
def test_files_of_recommendations_are_read_by_workload_and_container(source: str, form: str, tmp_path: Path) -> None:
    usage = tmp_path / "usage"
    given = USAGE[source]("shop", "web", "app")
    usage.write_text(
        yaml.safe_dump_all(given) if form == "yaml" else "\n".join(msgspec.json.encode(each).decode() for each in given)
    )
    found = _usage(str(usage)).containers["shop", "Deployment", "web"]["app"].requests
    assert amount("cpu", found["cpu"]) == 1
    assert amount("memory", found.get("memory", "1M")) in (10**6, 104_857_600)


@pytest.mark.parametrize("source", ["krr", "a list of VPAs"])
def test_recommended_requests_are_a_second_answer(
    source: str, cli: Cli, items: list[Json], file: Path, tmp_path: Path
) -> None:
    pod = running(items)
    container = pod["spec"]["containers"][0]["name"]
    (given,) = USAGE[source](pod["metadata"]["namespace"], deployment(items, pod), container)
    usage = tmp_path / "usage.json"
    usage.write_bytes(msgspec.json.encode(given))
    now, then = fitted(cli("-f", file, "--choose-from", "same-types", "--usage", usage, "-o", "json"))["answers"]
    assert then["demand"] == "recommended"
    assert "recommends nothing for any" not in str(then["remarks"])
    assert then["cpuMilli"] < now["cpuMilli"]
    assert f"if you did what {usage} recommends" in then["told"]


def test_pools_are_printed_as_configuration(cli: Cli, file: Path) -> None:
    (_, _, found) = fitted(cli("-f", file, "-o", "json"))["answers"][0]["alternatives"]
    outcome = cli("-f", file, "--as", "computeclass")
    assert outcome.code == 0
    assert outcome.out.startswith("# any, for what runs now: ")
    classes = list(yaml.safe_load_all(outcome.out))
    assert [each["metadata"]["name"] for each in classes] == ["general", "gpu", "memory", "small"]
    types = [rule["machineType"] for each in classes for rule in each["spec"]["priorities"]]
    assert sorted(types) == sorted(each["type"] for each in found["spread"])


@contextmanager
def prometheus(replicas: dict[str, tuple[str, str, int]], token: str = "") -> Iterator[tuple[str, list[str]]]:
    """Serve a sample of each metric at :data:`PEAK`: namespace, name, replicas. Yields the address and the queries."""
    queries: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {key: values[0] for key, values in parse_qs(body).items()}
            queries.append(form["query"])
            if token and self.headers["Authorization"] != f"Bearer {token}":
                self.send_error(401)
                return
            at = PEAK if float(form["start"]) <= PEAK <= float(form["end"]) else None
            result = [
                {
                    "metric": {"namespace": space, metric.split("_")[1]: name},
                    "values": [[at, str(count)]],
                }
                for metric, (space, name, count) in replicas.items()
                if metric in form["query"] and at is not None
            ]
            sent = {"status": "success", "data": {"resultType": "matrix", "result": result}}
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(msgspec.json.encode(sent))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", queries
        finally:
            server.shutdown()
            thread.join()


PEAK = datetime(2026, 11, 19, 2, tzinfo=UTC).timestamp()


def test_the_peak_is_a_second_answer(cli: Cli, items: list[Json], file: Path) -> None:
    pod = running(items)
    space, name = pod["metadata"]["namespace"], deployment(items, pod)
    given = {
        "kube_deployment_status_replicas": (space, name, 40),
        "kube_statefulset_status_replicas": ("gone", "gone", 3),
    }
    with prometheus(given) as (url, queries):
        found = fitted(cli("-f", file, "--choose-from", "same-types", "--prometheus", url, "-o", "json"))
    now, then = found["answers"]
    assert (then["demand"], then["told"]) == ("peak", "the peak of the last 14 days, 2026-11-19T02:00:00Z")
    of_it = [
        each
        for each in items
        if each["kind"] == "Pod"
        and each["metadata"]["namespace"] == space
        and each["metadata"].get("ownerReferences") == pod["metadata"]["ownerReferences"]
    ]
    assert then["pods"] - now["pods"] == 40 - len(of_it)
    untold, gone = then["remarks"]
    assert untold.endswith("of workloads without a series: as many as now")
    assert gone == "3 pods of the peak were of workloads without a pod now: left out"
    assert len(queries) == 28


def test_the_servers_credentials_are_those_of_the_configuration(
    cli: Cli, items: list[Json], file: Path, tmp_path: Path
) -> None:
    pod = running(items)
    given = {"kube_deployment_status_replicas": (pod["metadata"]["namespace"], deployment(items, pod), 40)}
    (tmp_path / "token").write_text("secret")
    config = tmp_path / "floors.yaml"
    with prometheus(given, token="secret") as (url, _):
        servers = {"central": {"url": url, "bearerTokenFile": str(tmp_path / "token")}}
        config.write_text(yaml.safe_dump({"prometheusServers": servers}))
        asked = ("-f", file, "--choose-from", "same-types", "--prometheus", url, "-o", "json")
        refused = cli(*asked)
        assert (refused.code, refused.out) == (1, "")
        assert "401" in refused.err
        assert len(fitted(cli(*asked, "--floors-config", config))["answers"]) == 2


def test_a_server_without_the_series_is_one_line(cli: Cli, file: Path) -> None:
    with prometheus({}) as (url, _):
        outcome = cli("-f", file, "--prometheus", url)
    assert (outcome.code, outcome.out) == (1, "")
    assert f"--prometheus {url}: no series kube_deployment_status_replicas in the last 14 days" in outcome.err
    outcome = cli("-f", file, "--prometheus", url)
    assert (outcome.code, outcome.out) == (1, "")
    assert f"--prometheus {url}: ConnectionFailed" in outcome.err


BAD: list[tuple[list[str], int, str]] = [
    (["--pool", "gerneral"], 1, "no node is in pool 'gerneral'; the pools are general, gpu"),
    (["--types", "n9z"], 1, "--types 'n9z' is no machine type and no family"),
    (["--types", "n2,,e2"], 64, "'n2,,e2' is no list of types"),
    (["--choose-from", "anny"], 64, "'anny' is no choice of machines; allowed are same-types, same-family, any"),
    (["--as", "helm"], 64, "'helm' is no form of pools; allowed are nodepool, computeclass, eksctl, aks, terraform"),
    (
        ["--as", "aks"],
        1,
        "--as aks describes pools of Azure, pool 'general' is of Google Cloud; allowed for",
    ),
    (["--as", "aks", "-o", "json"], 64, "--as prints configuration, and -o json a document; allowed is one of them"),
    (["--prometheus", "prometheus:9090"], 64, "'prometheus:9090' is not an http or https address"),
    (["--at-most", "0"], 64, "'0' is not a count; allowed is a whole number from 1"),
    (["--spot", "a b"], 64, "--spot"),
    (["--usage", "gone.json"], 64, "gone.json: "),
    (["--prices", "gone.yaml"], 1, "gone.yaml"),
]


@pytest.mark.parametrize(("given", "code", "said"), BAD, ids=lambda each: " ".join(each) if type(each) is list else "")
def test_bad_input_is_one_line_that_names_it(given: list[str], code: int, said: str, cli: Cli, file: Path) -> None:
    outcome = cli("-f", file, *given)
    assert (outcome.code, outcome.out) == (code, "")
    lines = [line for line in outcome.err.splitlines() if said in line]
    assert len(lines) == 1, outcome.err


@pytest.mark.parametrize(
    "text", ["[]", "{}", "no json", '{"scans": 3}', '{"items": [{"metadata": {}}]}', '{"scans": []}']
)
def test_a_file_that_recommends_nothing_is_refused(text: str, cli: Cli, file: Path, tmp_path: Path) -> None:
    usage = tmp_path / "usage.json"
    usage.write_text(text)
    outcome = cli("-f", file, "--usage", usage)
    assert (outcome.code, outcome.out) == (64, "")
    assert "allowed is the JSON of krr (-f json), or of `kubectl get vpa -A -o json`" in outcome.err


def test_an_amount_that_is_none_names_its_file(cli: Cli, file: Path, items: list[Json], tmp_path: Path) -> None:
    pod = running(items)
    usage = tmp_path / "usage.json"
    target = {
        "object": {
            "name": deployment(items, pod),
            "namespace": pod["metadata"]["namespace"],
            "container": pod["spec"]["containers"][0]["name"],
        },
        "recommended": {"requests": {"cpu": {"value": "much"}}},
    }
    usage.write_bytes(msgspec.json.encode({"scans": [target]}))
    outcome = cli("-f", file, "--usage", usage)
    assert (outcome.code, outcome.out) == (64, "")
    assert f"{usage}: " in outcome.err
    assert "'much'" in outcome.err
