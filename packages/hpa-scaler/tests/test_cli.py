"""The command: what it reads, what it prints, how it ends."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest

FILE = ("-f", "shop.yaml")
ANSWERS = ("--outcomes", "outcomes.json")


@pytest.fixture(autouse=True)
def _beside_the_data(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)


def floors(ended: Any) -> dict[str, tuple[int, int]]:
    """The floors before and after, by the HPA's name."""
    assert ended.code == 0, ended.err
    return {hpa["name"]: (hpa["minimum"]["now"], hpa["minimum"]["after"]) for hpa in json.loads(ended.out)["hpas"]}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "usage: hpa-scaler"),
        (("plan", "--nonsense"), "unrecognized arguments: --nonsense"),
        (("plan", "-o", "pdf"), "invalid choice: 'pdf'"),
        (("plan", "-n", "a", "-A"), "not allowed with"),
        (("plan", "-l", "a in b"), "'a in b' is not a requirement; allowed are"),
        (("plan", "-f", "x", "--context", "y"), "give only one"),
        (
            ("plan", "--lower-bound", "three"),
            "--lower-bound: 'three': allowed is a whole number as Go",
        ),
        (("plan", "--prometheus-server-url", "p:9090"), "--prometheus-server-url: 'p:9090'"),
        (("explain",), "required: NAME"),
        (("replay",), "required: LOG"),
    ],
)
def test_wrong_usage_exits_with_64(cli: Any, arguments: tuple[str, ...], says: str) -> None:
    ended = cli(*arguments)
    assert (ended.code, ended.out) == (64, "")
    assert says in ended.err
    assert "Traceback" not in ended.err


def test_the_version_is_one_line(cli: Any) -> None:
    assert cli("version").out.startswith("hpa-scaler 0.1.0 (tightship ")


def test_a_file_compressed_or_piped_is_the_same(cli: Any, data: Path, tmp_path: Path) -> None:
    packed = tmp_path / "shop.yaml"
    packed.write_bytes(gzip.compress((data / "shop.yaml").read_bytes()))
    first, second = (json.loads(cli("plan", "-f", path, *ANSWERS, "-o", "json").out) for path in (FILE[1], packed))
    assert first == second


def test_namespaces_and_labels_choose_the_hpas(cli: Any) -> None:
    given = ("plan", *FILE, *ANSWERS, "-o", "json")
    assert set(floors(cli(*given, "-n", "back"))) == {"batch", "scaled"}
    assert set(floors(cli(*given, "-l", "tier=front"))) == {"web", "checkout"}
    assert floors(cli(*given, "-n", "back", "-l", "tier=front")) == {}


def test_the_configuration_chooses_too_unless_a_flag_does(cli: Any, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("namespaces: [back]\n")
    given = ("plan", *FILE, *ANSWERS, "-o", "json", "--config", config)
    assert set(floors(cli(*given))) == {"batch", "scaled"}
    assert len(floors(cli(*given, "-A"))) == 9


def test_settings_come_from_flags_over_environment_over_defaults(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("plan", "-f", "one.yaml", *ANSWERS, "-o", "json", "--annotation-prefix", "tightship.dev")
    assert floors(cli(*given)) == {"checkout": (10, 8)}
    monkeypatch.setenv("MINIMUM_REPLICAS_LOWER_BOUND", "9")
    assert floors(cli(*given)) == {"checkout": (10, 9)}
    assert floors(cli(*given, "--lower-bound", "0xb")) == {"checkout": (10, 11)}


def test_defaults_of_annotations_come_from_the_configuration(cli: Any, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"defaults": {"minimumReplicas": 10, "dryRun": True}}))
    ended = cli("plan", "-f", "one.yaml", *ANSWERS, "-o", "json", "--config", config)
    assert floors(ended) == {"checkout": (10, 10)}
    assert "by default dryRun true, minimumReplicas 10" in json.loads(ended.out)["settings"]["summary"]


def test_every_bad_setting_is_told_at_once(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("defaults: {delta: x}\nnonsense: 1\n")
    monkeypatch.setenv("MINIMUM_REPLICAS_LOWER_BOUND", "x")
    ended = cli("plan", *FILE, "--config", config)
    assert ended.code == 1
    assert len(ended.err.splitlines()) == 3


def test_a_malformed_file_is_told_line_by_line(cli: Any, tmp_path: Path) -> None:
    bad = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a", "namespace": "n"},
    }
    path = tmp_path / "bad.json"
    path.write_text(json.dumps([{**bad, "spec": {}}, {**bad, "spec": {"maxReplicas": "x"}}]))
    ended = cli("plan", "-f", path)
    assert (ended.code, ended.out) == (1, "")
    assert len(ended.err.splitlines()) == 2
    assert all("HorizontalPodAutoscaler n/a: " in line for line in ended.err.splitlines())


def test_a_file_without_hpas_says_how_to_make_one(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text('{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}')
    ended = cli("plan", "-f", path)
    assert ended.code == 1
    assert "holds no HorizontalPodAutoscaler (only 1 Pod); write it by: kubectl get hpa,deploy,sts -A" in ended.err


def test_the_exit_code_tells_whether_a_floor_would_move(cli: Any) -> None:
    assert cli("plan", *FILE, *ANSWERS, "--exit-code").code == 2
    assert cli("plan", *FILE, *ANSWERS, "-n", "back", "--exit-code").code == 0
    assert cli("plan", *FILE, *ANSWERS).code == 0


def test_rows_alone_go_to_stdout_without_headers(cli: Any) -> None:
    ended = cli("plan", *FILE, *ANSWERS, "--no-headers", "--sort-by", "action")
    rows = [line.split()[0] for line in ended.out.splitlines()]
    assert rows[:3] == ["shop/pay", "shop/sale", "shop/web"]
    assert len(rows) == 9
    ended = cli("plan", *FILE, *ANSWERS, "--no-headers", "--sort-by", "change")
    assert ended.out.split()[0] == "shop/sale", "the largest change"


def test_an_hpa_is_explained_by_its_name_if_there_is_only_one(cli: Any, tmp_path: Path, data: Path) -> None:
    text = (data / "one.yaml").read_text()
    path = tmp_path / "two.yaml"
    path.write_text(f"{text}---\n{text.replace('namespace: shop', 'namespace: back')}")
    ended = cli("explain", "checkout", "chekout", "-f", path, *ANSWERS)
    assert ended.code == 1
    assert ended.err.splitlines() == [
        'hpa-scaler: HPA "checkout" is in several namespaces: back/checkout, shop/checkout',
        'hpa-scaler: HPA "chekout" not found; did you mean shop/checkout or back/checkout?',
    ]
    assert cli("explain", "back/checkout", "-f", path, *ANSWERS).code == 0


def test_an_hpa_that_is_not_opted_in_is_explained_too(cli: Any) -> None:
    ended = cli("explain", "plain", *FILE, *ANSWERS)
    assert "NotEnabled no annotation opts the HPA in" in ended.out


# Answers.


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not a file of query outcomes"),
        ('{"kind": "Pod", "outcomes": []}', "not a file of query outcomes"),
        ('{"outcomes": [{"query": "a"}]}', "outcome 1: must have one of values, answer and failure"),
        ('{"outcomes": [{"query": "a", "values": ["x"]}]}', "outcome 1: values: 'x' is not a number"),
        ('{"outcomes": [{"query": "a", "value": 3}]}', "not a file of query outcomes"),
        (
            '{"outcomes": [{"query": "a", "failure": {"reason": "FollowsQuery"}}]}',
            "outcome 1: failure.reason: 'FollowsQuery': allowed are AnswerTooLarge, BadAnswer",
        ),
        ('{"outcomes": [{"query": "a", "server": "x://y", "values": []}]}', "outcome 1: server 'x://y' is not an http"),
    ],
)
def test_a_bad_file_of_outcomes_is_an_error(cli: Any, tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "outcomes.json"
    path.write_text(content)
    ended = cli("plan", *FILE, "--outcomes", path)
    assert ended.code == 1
    assert says in ended.err


def test_a_query_that_is_not_recorded_was_not_asked(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "outcomes.json"
    path.write_text('{"outcomes": []}')
    ended = cli("plan", "-f", "one.yaml", "--outcomes", path, "-o", "json")
    assert json.loads(ended.out)["hpas"][0]["reasons"] == ["NotAsked"]


def test_without_a_server_the_floor_is_held_and_it_is_said_how_to_name_one(cli: Any) -> None:
    ended = cli("plan", "-f", "one.yaml", "-o", "json")
    hpa = json.loads(ended.out)["hpas"][0]
    assert hpa["reasons"][0] == "ServerUnknown"
    assert "set PROMETHEUS_SERVER_URL" in hpa["causes"][0]["detail"]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        value = {"time() - min": "400", "(time() - ma": "1"}.get(form["query"][0][:12], "20")
        data: dict[str, Any] = {"resultType": "scalar", "result": [time.time(), value]}
        if form["query"][0].startswith("avg_over_time(up["):
            data = {"resultType": "vector", "result": []}
        body = json.dumps({"status": "success", "data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def prometheus() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_server_is_asked(cli: Any, prometheus: str) -> None:
    given = ("plan", "-f", "one.yaml", "-o", "json")
    live = cli(*given, "--prometheus-server-url", prometheus)
    assert floors(live) == {"checkout": (10, 8)}
    document = json.loads(live.out)
    assert document["hpas"][0]["queries"][0]["value"] == 20
    assert document["hpas"][0]["dataAgeSeconds"] == 400
    assert f"server {prometheus}" in document["settings"]["summary"]


# Decision logs.


def test_a_decision_log_is_replayed_without_a_difference(cli: Any, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    assert cli("plan", *FILE, *ANSWERS, "--decision-log", log).code == 0
    ended = cli("replay", log)
    assert (ended.code, ended.out) == (0, "9 decisions of 1 cycle: 0 differences\n")
    packed = tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert cli("replay", packed).out == ended.out


def test_a_difference_is_named_and_is_an_error(cli: Any, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    cli("plan", "-f", "one.yaml", *ANSWERS, "--decision-log", log)
    log.write_text(log.read_text().replace('"target":8', '"target":7'))
    ended = cli("replay", log)
    assert ended.code == 1
    assert ended.out.startswith("line 1: HPA shop/checkout: logged lower to 7")
    assert ended.out.endswith("1 decision of 1 cycle: 1 difference\n")


def test_what_is_no_log_is_an_error(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("hello\n")
    ended = cli("replay", path)
    assert ended.code == 1
    assert "line 1: not a line of a decision log" in ended.err
    assert cli("replay", tmp_path / "nowhere").code == 1
