"""Files in place of a cluster: every form kubectl prints, and every way to be wrong."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tightship.cli import object_file
from tightship.cli.object_file import FileError
from tightship.cli.snapshot_file import parse, read_file, read_files
from tightship.objects import KINDS

from .conftest import Json, bad_pod, node, pod

NODE: Json = {"apiVersion": "v1", "kind": "Node", **node("n1")}
POD: Json = {"apiVersion": "v1", "kind": "Pod", **pod("a")}
BUDGET: Json = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "b", "namespace": "default"},
}


def listed(*items: Json, kind: str = "List", version: str = "v1") -> Json:
    return {"apiVersion": version, "kind": kind, "items": list(items), "metadata": {"resourceVersion": ""}}


def dump(*documents: Any, **options: Any) -> bytes:
    return "\n".join(json.dumps(each, **options) for each in documents).encode()


def dump_yaml(*documents: Any) -> bytes:
    return yaml.safe_dump_all(documents).encode()


SAID = (
    b"Warning: v1 ComponentStatus is deprecated in v1.19+\n"
    b"W1128 12:00:00.000000   12345 gcp.go:119] the gcp auth plugin is deprecated: use another\n"
    b"E1128 12:00:00.000000   12345 memcache.go:265] couldn't get current server API group list: refused\n"
)
FORMS = [
    pytest.param(dump(listed(NODE, POD)), id="List"),
    pytest.param(dump(listed(NODE, POD), indent=4), id="List, indented"),
    pytest.param(dump([NODE, POD]), id="array"),
    pytest.param(dump(NODE, POD), id="objects after one another"),
    pytest.param(dump(listed(NODE), listed(POD), indent=2), id="Lists after one another"),
    pytest.param(dump(listed(node("n1"), kind="NodeList"), listed(pod("a"), kind="PodList")), id="typed lists"),
    pytest.param(dump(listed(listed(NODE), listed(POD))), id="List of Lists"),
    pytest.param(gzip.compress(dump(listed(NODE, POD))), id="gzip"),
    pytest.param(gzip.compress(dump(NODE)) + gzip.compress(dump(POD)), id="gzip members"),
    pytest.param(b"\xef\xbb\xbf" + dump(listed(NODE, POD)), id="UTF-8 mark"),
    pytest.param(dump(listed(NODE, POD)).decode().encode("utf-16"), id="UTF-16, as PowerShell writes it"),
    pytest.param(dump(listed(NODE, POD)).decode().encode("utf-16-be"), id="UTF-16 without a mark"),
    pytest.param(dump(listed(NODE, POD)).decode().encode("utf-32"), id="UTF-32"),
    pytest.param(dump_yaml(listed(NODE, POD)).decode().encode("utf-16"), id="YAML in UTF-16"),
    pytest.param(b"\xef\xbb\xbf".join([b"", dump(NODE), dump(POD)]), id="two files with UTF-8 marks in one"),
    pytest.param(dump(listed(NODE, POD), indent=4).replace(b"\n", b"\r\n"), id="line ends of Windows"),
    pytest.param(dump_yaml(listed(NODE, POD)).replace(b"\n", b"\r\n"), id="YAML with line ends of Windows"),
    pytest.param(b"\n\n  " + dump(listed(NODE, POD)) + b"\n", id="blank around"),
    pytest.param(dump_yaml(listed(NODE, POD)), id="YAML List"),
    pytest.param(dump_yaml(NODE, POD), id="YAML documents"),
    pytest.param(b"---\n---\n" + dump_yaml(NODE) + b"---\n" + dump_yaml(POD), id="YAML with empty documents"),
    pytest.param(SAID + dump(listed(NODE, POD), indent=4), id="2>&1"),
    pytest.param(SAID.replace(b"\n", b"\r\n") + dump(NODE, POD), id="2>&1 on Windows"),
    pytest.param(SAID + dump_yaml(NODE, POD), id="YAML with 2>&1"),
    pytest.param(
        dump(*({"type": "ADDED", "object": each} for each in (NODE, POD))), id="kubectl get -w --output-watch-events"
    ),
]


def logs(pod: str, text: str, container: str = "c") -> bytes:
    """Return the logs of a container as ``kubectl cluster-info dump`` writes them."""
    of = f"container {container} of pod {pod}"
    return f"==== START logs for {of} ====\n{text}==== END logs for {of} ====\n".encode()


DUMPED = [
    dump(listed(node("n1"), kind="NodeList"), indent=4),
    dump(listed(kind="EventList")),
    dump(listed(pod("a"), kind="PodList")),
]
LOGS = logs("default/a", '{"kind": "Pod"}\n[INFO] ==== START\n\n') + logs(
    "default/a", "Create log error: none\n", "init"
)
CLUSTER_INFO = [
    pytest.param(b"\n".join(DUMPED) + b"\n" + LOGS, id="at the end"),
    pytest.param(b"\n".join([*DUMPED, LOGS + dump(listed(kind="PodList"))]), id="between objects"),
    pytest.param(b"\n".join([*DUMPED, logs("default/a", "no line end")]), id="a log without a line end"),
    pytest.param(b"\n".join([*DUMPED, logs("default/a", "")]), id="an empty log"),
    pytest.param(b"\n".join([*DUMPED, LOGS]).replace(b"\n", b"\r\n"), id="line ends of Windows"),
    pytest.param(b"\xff\xfe" + b"\n".join([*DUMPED, LOGS]).decode().encode("utf-16-le"), id="by PowerShell"),
    pytest.param(b"\n".join([*DUMPED, LOGS, b"Cluster info dumped to standard output\n"]), id="by an old kubectl"),
    pytest.param(gzip.compress(b"\n".join([*DUMPED, LOGS])), id="compressed"),
    pytest.param(b"\n".join([*DUMPED, LOGS]).replace(b"====\n", b"====   \n"), id="copied from a terminal"),
    pytest.param(
        b"---\n".join(
            [
                dump_yaml(listed(node("n1"), kind="NodeList")),
                dump_yaml(listed(pod("a"), kind="PodList")) + LOGS,
                b"kind: EventList\nitems: []\n",
            ]
        ),
        id="as YAML",
    ),
]


@pytest.mark.parametrize("raw", CLUSTER_INFO)
def test_a_cluster_info_dump_is_read_without_its_logs(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_bytes(raw)
    found = read_files([path])
    assert (list(found.snapshot.nodes), found.snapshot.pod_count) == (["n1"], 1)
    assert any("all pods are in default" in each and "--all-namespaces" in each for each in found.warnings)


def test_a_dump_of_all_namespaces_is_complete(tmp_path: Path) -> None:
    lists = [listed(pod("a"), kind="PodList"), *(listed(kind="PodList") for _ in range(4))]
    path = tmp_path / "dump.txt"
    path.write_bytes(dump(listed(node("n1"), kind="NodeList"), *lists))
    assert not [each for each in read_files([path]).warnings if "--all-namespaces" in each]


def test_a_folder_stands_for_the_files_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    for name, raw in {
        "nodes.json": dump(listed(node("n1"), kind="NodeList")),
        "default/pods.json": dump(listed(pod("a"), kind="PodList")),
        "default/a/logs.txt": LOGS,
        "kube-system/pods.yaml": dump_yaml(listed(pod("b"), kind="PodList")),
        "kube-system/more.json.gz": gzip.compress(dump(listed(pod("c"), kind="PodList"))),
        "README.md": b"# not read\n",
        "etcd_info/endpoint_health.json": b'[{"health": "true"}]',
        "values.yaml": b"replicas: 3\n",
        "words.yaml": b"just words\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
    snapshot = read_file(folder)
    assert (list(snapshot.nodes), snapshot.pod_count) == (["n1"], 3)
    (folder / "default/pods.json").write_bytes(dump(listed(pod("a"), kind="PodList"))[:-9])
    with pytest.raises(FileError, match=r"default/pods.json: line 1, column \d+: not JSON: .*: the file is cut off"):
        read_file(folder)


def test_a_list_without_a_kind_in_a_folder_is_passed_over_and_told(tmp_path: Path) -> None:
    """Older support bundles of Troubleshoot write their CustomResourceDefinitions so."""
    untyped = {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "addons.k3s.cattle.io"}}]}
    for name, raw in {"nodes.json": dump(listed(node("n1"), kind="NodeList")), "crds.json": dump(untyped)}.items():
        (tmp_path / name).write_bytes(raw)
    found = read_files([str(tmp_path)])
    assert [*found.snapshot.nodes] == ["n1"]
    assert f"{tmp_path}/crds.json: a list without a kind, passed over" in found.warnings
    with pytest.raises(FileError, match=r"crds.json: document 1: has no kind, but items; allowed is what kubectl"):
        read_file(tmp_path / "crds.json")


def test_a_folder_without_nodes_is_named_once(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(dump(POD))
    with pytest.raises(FileError, match=rf"^{tmp_path}: holds no Node \(only 2 Pod\)"):
        read_file(tmp_path)


@pytest.mark.parametrize("raw", FORMS)
def test_every_form_gives_the_same_snapshot(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "anything.bin"
    path.write_bytes(raw)
    snapshot = read_file(path)
    assert (list(snapshot.nodes), snapshot.pod_count) == (["n1"], 1)
    view = snapshot.nodes["n1"]
    assert [each.key for each in view.pods] == ["default/a"]
    assert view.usage.requested["cpu"] == 1000
    assert view.node.allocatable["memory"] == 16 << 30


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(dump(listed(NODE)))))
    assert list(read_file("-").nodes) == ["n1"]


def test_kinds_that_are_absent_are_missing_and_an_empty_typed_list_is_not_absent() -> None:
    empty = listed(kind="PodDisruptionBudgetList", version="policy/v1")
    snapshot = parse(dump(listed(NODE, POD), empty), "f")
    assert set(snapshot.missing) == KINDS - {"Node", "Pod", "PodDisruptionBudget"}
    assert set(snapshot.missing.values()) == {"not in the file"}


def test_other_kinds_are_passed_over_and_counted_even_where_the_name_is_known() -> None:
    rancher = {"apiVersion": "management.example.io/v3", "kind": "Node", "metadata": {"name": "n1"}, "spec": 5}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    old = {**BUDGET, "apiVersion": "policy/v1beta1"}
    snapshot = parse(dump(listed(NODE, service, service, rancher, old)), "f")
    assert (list(snapshot.nodes), len(snapshot.budgets)) == (["n1"], 1)
    with pytest.raises(FileError, match=r"only 1 Node, 2 Service\)"):
        parse(dump(listed(service, service, rancher)), "f")


def test_the_later_of_two_with_one_key_counts() -> None:
    other = {**POD, "metadata": {**POD["metadata"], "namespace": "other"}}
    moved = {**POD, "spec": {**POD["spec"], "nodeName": "n2"}}
    second = {**NODE, "metadata": {"name": "n2"}}
    nodes = parse(dump(listed(NODE, second, POD, other, moved)), "f").nodes
    assert [each.key for each in nodes["n1"].pods] == ["other/a"]
    assert [each.key for each in nodes["n2"].pods] == ["default/a"]


def test_finished_pods_are_left_out() -> None:
    done = {**POD, "status": {"phase": "Succeeded"}}
    assert parse(dump(listed(NODE, done)), "f").pod_count == 0


def test_yaml_keeps_text_as_text_and_takes_plain_quantities() -> None:
    raw = b"""
kind: Node
apiVersion: v1
metadata: {name: n1, creationTimestamp: 2026-11-21T10:00:00Z, labels: {since: 2026-11-21, at: 10:30, on: yes, x: 0x1F}}
status:
  allocatable: {cpu: 4, memory: 16Gi, pods: 110}
---
kind: Pod
apiVersion: v1
metadata: {name: a, namespace: default}
spec:
  nodeName: n1
  priority: 7
  hostNetwork: true
  containers: [{name: c, resources: {requests: {cpu: 0.5, memory: 1e3}}}]
status: {phase: Running}
---
kind: CSINode
apiVersion: storage.k8s.io/v1
metadata: {name: n1}
spec: {drivers: [{name: d, nodeID: n1, allocatable: {count: 24}}]}
"""
    snapshot = parse(raw, "f")
    view = snapshot.nodes["n1"]
    assert view.node.labels == {"since": "2026-11-21", "at": "10:30", "on": "yes", "x": "0x1F"}
    assert view.node.created == 1795255200
    assert view.node.allocatable == {"cpu": 4000, "memory": 16 << 30, "pods": 110}
    assert (view.usage.requested["cpu"], view.usage.requested["memory"]) == (500, 1000)
    assert view.pods[0].spec.priority == 7
    assert snapshot.csi_nodes["n1"].limits == {"d": 24}


def test_all_malformed_objects_are_reported_with_the_field() -> None:
    nameless = {"apiVersion": "v1", "kind": "Pod", "spec": {}}
    late = {**NODE, "metadata": {"name": "n9", "labels": {"a": 1}}}
    raw = dump(listed(NODE, {"kind": "Pod", **bad_pod("x")}, nameless, late, {"metadata": {}}, 5))
    with pytest.raises(FileError) as caught:
        parse(raw, "dump.json")
    one, two, three, four, five = caught.value.problems
    assert one.startswith(
        "dump.json: Pod default/x: spec.containers[0].resources.requests.cpu: 'a lot' is not a quantity"
    )
    assert two.startswith("dump.json: document 1, item 3: Pod (no name): ")
    assert three == 'dump.json: Node n9: metadata.labels.a: 1 is not text; put the value in quotes: "1"'
    assert four == "dump.json: document 1, item 5: has no kind"
    assert five.startswith("dump.json: document 1, item 6: not an API object: ")
    assert all("\n" not in each for each in caught.value.problems)


def test_a_malformed_object_of_an_extension_concerns_only_what_depends_on_it() -> None:
    bad = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "g", "labels": 7}}
    [noted] = parse(dump(listed(NODE, bad)), "dump.json").unreadable
    assert (noted.kind, noted.name, noted.problem) == ("PodGroup", "g", "metadata.labels: 7 is not a mapping")
    nameless = {**bad, "metadata": {"labels": 7}}
    with pytest.raises(FileError, match=r"item 2: PodGroup \(no name\): "):
        parse(dump(listed(NODE, nameless)), "dump.json")


TABLE = b"NAME   STATUS   AGE\nn1     Ready    3d\n"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b" \n\t\n", "is empty", id="blank"),
        pytest.param(gzip.compress(b""), "is empty", id="empty gzip"),
        pytest.param(gzip.compress(dump(NODE))[:-12], "damaged gzip data", id="cut gzip"),
        pytest.param(b"\x1f\x8bnonsense", "damaged gzip data", id="no gzip at all"),
        pytest.param(b'{"kind": "List",\n "items": [}', "line 2, column 12: not JSON", id="broken JSON"),
        pytest.param(dump(listed(NODE))[:-40], "not JSON", id="cut JSON"),
        pytest.param(dump(NODE) + b"\n{]", "line 2, column 2: not JSON", id="broken second document"),
        pytest.param(b"[" * 100_000, "nested too deeply", id="deep JSON"),
        pytest.param(b"kind: Node\nmetadata: {name: [}\n", "line 2, column 19: not YAML", id="broken YAML"),
        pytest.param(b"error: the server doesn't have it: no\n", "not YAML", id="kubectl's error text"),
        pytest.param(b"just words\n", "document 1: not an API object", id="words"),
        pytest.param(
            TABLE, "begins with 'NAME   STATUS   AGE': allowed is what kubectl prints with -o json", id="table"
        ),
        pytest.param(TABLE.decode().encode("utf-16"), "begins with 'NAME   STATUS   AGE'", id="a table by PowerShell"),
        pytest.param(b"No resources found\n", "begins with 'No resources found'", id="nothing found"),
        pytest.param(b"node/n1\nnode/n2\n", "begins with 'node/n1': allowed is", id="names"),
        pytest.param(b"Unauthorized: no\n", "has no kind; allowed is what kubectl prints with -o json", id="message"),
        pytest.param(b"$ kubectl get nodes\n" + dump(NODE), "begins with '$ kubectl get nodes'", id="a terminal"),
        pytest.param(
            dump(NODE) + b"\nError from server (Forbidden): pods is forbidden\n",
            "line 2: kubectl failed with 'Error from server (Forbidden): pods is forbidden'; ask again without",
            id="kubectl's error with 2>&1",
        ),
        pytest.param(
            dump({"type": "DELETED", "object": NODE}), "document 1: says that an object was deleted", id="a watch"
        ),
        pytest.param(b"PK\x03\x04....", "is a zip archive: unpack it", id="zip"),
        pytest.param(gzip.compress(b"x" * 257 + b"ustar\x0000"), "is a tar archive: unpack it", id="tar.gz"),
        pytest.param(b"BZh91AY", "is compressed by bzip2: unpack it", id="bzip2"),
        pytest.param(dump_yaml(listed(NODE, POD)).partition(b"kind: List")[0], "the file is cut off", id="cut YAML"),
        pytest.param(
            dump(NODE) + b"\n==== START logs for container c of pod default/a ====\nmore\n",
            "line 2: the logs of container c of pod default/a don't end: the file is cut off",
            id="cut logs",
        ),
        pytest.param(
            gzip.compress(b" " * (65 << 20)), "unpacks to more than the 67,108,864 bytes allowed for one of ", id="bomb"
        ),
        pytest.param(b"kind: Node\nname: \xff\xfe\n", "byte 17: not UTF-8", id="encoding"),
        pytest.param(
            dump(listed(POD)),
            "holds no Node (only 1 Pod); write it by: tightship snapshot -o cluster.json.gz, or kubectl get ",
            id="no node",
        ),
        pytest.param(dump(listed()), "holds no Node (only empty lists)", id="empty list"),
        pytest.param(b'{"kind": "List", "items": 5}', "document 1: not a list of API objects", id="items is no list"),
    ],
)
def test_an_unusable_file_is_one_clear_line(raw: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(raw)
    with pytest.raises(FileError) as caught:
        read_file(path)
    [line] = caught.value.problems
    assert line.startswith(f"{path}: ")
    assert problem in line
    assert "\n" not in line


def test_encoding_errors_are_located_across_blocks() -> None:
    for before in (0, 5, (1 << 20) - 1, (1 << 20) + 3):
        with pytest.raises(FileError, match=f"byte {before}: not UTF-8"):
            parse(b"#" * before + b"\xe2\x28", "f")


def test_an_absent_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="absent: No such file"):
        read_file(tmp_path / "absent")
    with pytest.raises(FileError, match=r"Is a directory without a file \*.json, .*kubectl cluster-info dump"):
        read_file(tmp_path)


def test_a_file_without_an_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_file, "LARGEST", 5 << 20)
    with pytest.raises(FileError, match="/dev/zero: has more than 5,242,880 bytes, the most that is allowed"):
        read_file("/dev/zero")


def test_the_newest_time_of_a_file_is_the_last_sign_of_life_in_it(tmp_path: Path) -> None:
    heard = [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-02T00:00:00Z"},
        {"type": "Other", "status": "False"},
    ]
    old = {**NODE, "metadata": {"name": "n1", "creationTimestamp": "2025-01-01T00:00:00Z"}}
    path = tmp_path / "cluster.json"
    for thing, newest in (
        (old, 1735689600),
        ({**old, "status": {**NODE["status"], "conditions": heard}}, 1767312000),
        ({**POD, "status": {"phase": "Running", "startTime": "2026-01-03T00:00:00Z"}}, 1767398400),
    ):
        path.write_bytes(dump(listed(old, thing)))
        assert read_files([path]).newest == newest
    path.write_bytes(dump(listed({**NODE, "metadata": {"name": "n1"}})))
    assert read_files([path]).newest == 0


def test_reading_a_file_imports_no_client() -> None:
    clients = "{'aiohttp', 'asyncio'}"
    code = f"import sys, tightship.cli.snapshot_file; sys.exit(bool({clients} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_real_cluster() -> None:
    root = Path(__file__).resolve().parents[4]
    path = Path(os.environ.get("TIGHTSHIP_DATA", root.parent / "shared" / "data")) / "openb_cluster.json.gz"
    if not path.exists():
        pytest.skip("openb_cluster.json.gz is absent: let TIGHTSHIP_DATA name the folder that holds it")
    snapshot = read_file(path)
    assert (len(snapshot.nodes), snapshot.pod_count) == (1523, 2693)
    assert sum(1 for view in snapshot.nodes.values() if not view.pods) == 245


@pytest.mark.parametrize("raw", FORMS)
def test_a_large_file_is_read_like_a_small_one(raw: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cluster"
    path.write_bytes(raw)
    small = read_file(path)
    monkeypatch.setattr(object_file, "_LARGE", 4)
    large = read_file(path)
    assert large.nodes == small.nodes
    assert large.unscheduled == small.unscheduled


def test_a_large_file_is_given_back_while_its_objects_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [{"apiVersion": "v1", "kind": "Node", **node(f"n{each}")} for each in range(40)]
    pods = [{"apiVersion": "v1", "kind": "Pod", **pod(f"p{each}", node=f"n{each % 40}")} for each in range(400)]
    path = tmp_path / "cluster.json"
    path.write_bytes(dump(listed(*nodes, *pods)))
    small = read_file(path)
    monkeypatch.setattr(object_file, "_LARGE", 4 * 4096)
    assert read_file(path).nodes == small.nodes
    packed = gzip.compress(path.read_bytes())
    path.write_bytes(packed)
    held = object_file._held(path)
    assert held is not None, "not in memory that can be given back"
    assert read_file(path).nodes == small.nodes
    path.write_bytes(packed[:-4] + (20_000).to_bytes(4, "little"))
    with pytest.raises(FileError, match="damaged gzip data: Incorrect length"):
        read_file(path)
    path.write_bytes(dump({"kind": "List", "items": [*nodes, *pods, "just text"]}))
    with pytest.raises(FileError, match="item 441: not an API object: just text; the file begins with"):
        read_file(path)
    path.write_bytes(b'{"kind": "List", "items": [' + b" " * 70_000 + b"\xff]}")
    with pytest.raises(FileError, match="byte 70027: not UTF-8"):
        read_file(path)
