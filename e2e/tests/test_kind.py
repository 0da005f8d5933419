"""What the provider kind asks of kind and docker: with programs in their place that note what they are asked."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from day import NODES
from dockerfile import ROOT
from neighbours import node

from tightship.kube.credentials import ClusterAccess
from tightship_e2e import ControlPlane, binaries
from tightship_e2e.components import AUDIT_POLICY
from tightship_e2e.names import NAMESPACES
from tightship_e2e.options import KIND_CLUSTER
from tightship_e2e.plugin import require_programs
from tightship_e2e.providers import kind_cluster, measures, releases
from tightship_e2e.providers.kind import KindProvider, Machines, on_kind
from tightship_e2e.providers.pools import Pools
from tightship_e2e.providers.protocol import UnavailableError
from tightship_e2e.providers.remote import Cluster, Images
from tightship_testkit.client import Client, wait_for
from tightship_testkit.manifests import POOL

DEADLINE = 60.0
IMAGES = Images("ghcr.io/somebody", "e2e", "Never")
FAKE = f"""#!{sys.executable}
import json, pathlib, sys
here = pathlib.Path(__file__)
given = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
with here.with_name("calls").open("a") as calls:
    calls.write(json.dumps([here.name, sys.argv[1:], given]) + "\\n")
for words, code, said in json.loads(here.with_name("answers").read_text()):
    if [here.name, *sys.argv[1:]][: len(words)] == words:
        print(said, end="")
        sys.exit(code)
"""


class Fakes:
    """Programs that note their arguments and input, and answer as they are told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: list[tuple[list[str], int, str]] = []
        self._write()
        for name in ("kind", "docker", "make"):
            (folder / name).write_text(FAKE)
            (folder / name).chmod(0o700)

    def answer(self, *words: str, code: int = 0, said: str = "") -> None:
        """Have a command that begins with these words end like this."""
        self.answers.append((list(words), code, said))
        self._write()

    @property
    def calls(self) -> list[list[str]]:
        """What was called, in its order."""
        return [[name, *words] for name, words, _ in self._noted()]

    def given(self, *words: str) -> str:
        """Return what a command that begins with these words read."""
        return next(text for name, rest, text in self._noted() if [name, *rest][: len(words)] == list(words))

    def _noted(self) -> list[tuple[str, list[str], str]]:
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def _write(self) -> None:
        (self.folder / "answers").write_text(json.dumps(self.answers))


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    """Programs in the place of kind, docker and make."""
    folder = tmp_path / "bin"
    folder.mkdir()
    made = Fakes(folder)
    real = binaries.find_or_installed

    def find(name: str) -> Path:
        return folder / name if (folder / name).exists() else real(name)

    for module in (binaries, releases):
        monkeypatch.setattr(module, "find_or_installed", find)
    return made


def test_a_cluster_is_made_of_the_configuration_with_nodes_of_four_cpus_unless_it_is_there(fakes: Fakes) -> None:
    fakes.answer("docker", "info", said="12\n")
    assert kind_cluster.main(["create", "--node-image", "kindest/node:v1.37.0"]) == 0
    create = ["kind", "create", "cluster", "--name", "tightship", "--config", "-", "--wait", "5m"]
    assert fakes.calls == [
        ["kind", "get", "clusters"],
        ["docker", "info", "--format", "{{.NCPU}}"],
        [*create, "--image", "kindest/node:v1.37.0"],
    ]
    given = yaml.safe_load(fakes.given(*create))
    reserved = yaml.safe_load(given["kubeadmConfigPatches"].pop())
    assert reserved == {"kind": "KubeletConfiguration", "systemReserved": {"cpu": "8"}}
    assert given == yaml.safe_load(kind_cluster.CONFIG.read_text())
    fakes.answer("kind", "get", "clusters", said="other\ntightship\n")
    assert kind_cluster.main(["create"]) == 0
    assert fakes.calls[3:] == [["kind", "get", "clusters"]]


@pytest.mark.parametrize(
    ("arguments", "answer", "reported"),
    [
        (["create"], (("docker", "info"), 0, "2\n"), "containers have 2 CPUs here, the nodes of the scenarios need 4"),
        (["load"], (("kind", "load"), 3, ""), "kind load docker-image --name tightship"),
    ],
)
def test_what_can_not_be_done_is_told(
    fakes: Fakes,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    answer: tuple[tuple[str, ...], int, str],
    reported: str,
) -> None:
    words, code, said = answer
    fakes.answer(*words, code=code, said=said)
    assert kind_cluster.main(arguments) == 1
    assert reported in capfd.readouterr().err


def test_images_that_are_there_are_loaded_and_others_built_before(fakes: Fakes) -> None:
    names = [f"ghcr.io/somebody/{each}:e2e" for each in ("node-compactor", "node-refiner", "hpa-scaler")]
    load = ["kind", "load", "docker-image", "--name", "tightship"]
    everywhere = [name for name in names if name.endswith("/hpa-scaler:e2e")]
    loads = [[*load, *everywhere], [*load, "--nodes", "tightship-worker", *sorted({*names} - {*everywhere})]]
    arguments = ["load", "--registry", "ghcr.io/somebody", "--tag", "e2e"]
    assert kind_cluster.main(arguments) == 0
    assert fakes.calls == [*(["docker", "image", "inspect", each] for each in names), *loads]
    fakes.answer("docker", "image", "inspect", names[1], code=1)
    assert kind_cluster.main(arguments) == 0
    assert fakes.calls[-3:] == [["make", "images", "REGISTRY=ghcr.io/somebody", "TAG=e2e"], *loads]


class Api(Client):
    """An API server that knows two pods and no more."""

    def __init__(self) -> None:
        super().__init__("http://nowhere.example.com", {}, None)

    async def list(self, kind: str, namespace: str | None = None, **selectors: str) -> list[dict[str, Any]]:
        assert (kind, namespace) == ("Pod", "tightship")
        assert selectors == {"labelSelector": "app.kubernetes.io/part-of=tightship"}
        bound = {"spec": {"nodeName": "tightship-worker"}, "status": {"podIP": "10.244.1.2"}}
        return [bound, {"spec": {}, "status": {"phase": "Pending"}}]


def provider(fakes: Fakes, home: Path) -> KindProvider:
    """A provider whose API server is not asked."""
    machines = Machines(KIND_CLUSTER, fakes.folder / "kind", fakes.folder / "docker")
    cluster = Cluster(home / "kubeconfig", ClusterAccess("http://nowhere.example.com"))
    api = Api()
    return KindProvider(cluster, api, home, IMAGES, Pools(api, []), machines=machines, head="tightship-control-plane")


@pytest.mark.controlplane
async def test_an_outage_is_a_wall_in_front_of_the_controllers_that_goes_again(fakes: Fakes, tmp_path: Path) -> None:
    on = provider(fakes, tmp_path)
    rule = ["FORWARD", "--source", "10.244.1.2", "--protocol", "tcp", "--destination-port", "6443"]
    rule += ["--jump", "REJECT", "--reject-with", "tcp-reset"]
    wall = ["docker", "exec", "tightship-worker", "iptables", "--wait"]
    failing = on.outage()
    await failing.__aenter__()
    assert fakes.calls == [[*wall, "--insert", *rule]]
    failed = ZeroDivisionError()
    assert not await failing.__aexit__(type(failed), failed, None)
    assert fakes.calls[1:] == [[*wall, "--delete", *rule]]


@pytest.mark.controlplane
async def test_the_audit_log_is_read_from_where_the_last_whole_line_ended(fakes: Fakes, tmp_path: Path) -> None:
    on = provider(fakes, tmp_path)
    line = json.dumps({"verb": "get", "requestURI": "/ü"}, ensure_ascii=False) + "\n"
    fakes.answer("docker", "exec", said=line + line[:9])
    assert [each.verb for each in await on.audit()] == ["get"]
    await on.audit()
    tail = ["docker", "exec", "tightship-control-plane", "tail"]
    log = "/var/log/kubernetes/audit.log"
    assert fakes.calls == [[*tail, "--bytes=+1", log], [*tail, f"--bytes=+{len(line.encode()) + 1}", log]]


def test_charts_get_the_images_that_were_loaded() -> None:
    image = {"registry": "ghcr.io", "repository": "somebody/hpa-scaler", "tag": "e2e", "pullPolicy": "Never"}
    assert IMAGES.values("hpa-scaler", {"dryRun": False}) == {"dryRun": False, "image": image}
    both = IMAGES.values("tightship", {"hpa-scaler": {"dryRun": False}})
    assert both["hpa-scaler"] == {"dryRun": False, "image": image}
    assert both["node-refiner"]["image"] == {**image, "repository": "somebody/node-refiner"}
    assert Images("localhost", "1").values("hpa-scaler", {})["image"]["repository"] == "hpa-scaler"


# On a control plane in the place of the containers.


@pytest.fixture
def machines(fakes: Fakes, empty_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> ControlPlane:
    """A cluster of kind's, as far as its API server is concerned; nobody waits for pods that do not run."""
    require_programs("helm", "kubectl")

    async def served(_: measures.RemoteMetrics) -> None:
        """Nothing is measured."""

    async def fill(api: Client) -> None:
        head = node("tightship-control-plane", "")
        head["metadata"]["labels"] = {"node-role.kubernetes.io/control-plane": ""}
        for each in (head, node("tightship-worker", "system"), node("tightship-worker2", "general")):
            await api.create(each)

    monkeypatch.setattr(measures.RemoteMetrics, "ready", served)
    fakes.answer("kind", "get", "kubeconfig", "--name", "tightship", said=empty_plane.kubeconfig.read_text())
    names = ("tightship-control-plane", "tightship-worker", "tightship-worker2", "tightship-worker3")
    fakes.answer("kind", "get", "nodes", "--name", "tightship", said="\n".join(names) + "\n")
    empty_plane.run(fill)
    return empty_plane


def test_a_scenario_finds_every_container_a_node_and_nothing_of_the_one_before(
    machines: ControlPlane, fakes: Fakes, tmp_path: Path
) -> None:
    restart = ["docker", "exec", "tightship-worker3", "systemctl", "restart", "kubelet"]

    async def registers(api: Client) -> None:
        async def reported() -> bool:
            return restart in await asyncio.to_thread(lambda: fakes.calls)

        await wait_for(reported, DEADLINE, "the kubelet is started again")
        await api.create(node("tightship-worker3", "general"))

    async def work(api: Client) -> None:
        # Other tests on this control plane may have left it.
        if not await api.list("Namespace", fieldSelector="metadata.name=shop"):
            await api.create({"kind": "Namespace", "metadata": {"name": "shop"}})
        await api.create({"kind": "ConfigMap", "metadata": {"name": "old", "namespace": "shop"}})
        mark = [{"key": "tightship.dev/draining", "value": "op", "effect": "NoSchedule"}]
        notes = {"tightship.dev/drain": "{}"}
        left = {"metadata": {"annotations": notes}, "spec": {"unschedulable": True, "taints": mark}}
        await api.patch("Node", "tightship-worker2", left)
        coming = asyncio.create_task(registers(api))
        async with on_kind(KIND_CLUSTER, IMAGES, tmp_path) as on:
            await coming
            assert await api.list("ConfigMap", "shop", fieldSelector="metadata.name=old") == []
            for _ in range(2):
                await on.add_node("any", "general")
            with pytest.raises(UnavailableError, match="another node of pool general"):
                await on.add_node("any", "general")
            again = await api.get("Node", "tightship-worker2")
            assert again["metadata"].get("annotations", {}) == {}

            async def bare() -> bool:
                # The taint that goes with a cordon comes and goes by the controller-manager's hand.
                return set((await api.get("Node", "tightship-worker2"))["spec"]) <= {"podCIDR", "podCIDRs"}

            await wait_for(bare, DEADLINE, "the node is as bare as it was")
            await api.delete("Node", "tightship-worker2")
            await on.add_node("any", "general")
            assert (await api.get("Node", "tightship-worker2"))["metadata"]["uid"] != again["metadata"]["uid"]
        spaces = {each["metadata"]["name"] for each in await api.list("Namespace")}
        assert not spaces & set(NAMESPACES)
        assert len(await api.list("Node")) == 4

    machines.run(work)


# What the cluster is made of.


def test_the_cluster_has_the_nodes_and_the_audit_log_that_scenarios_need() -> None:
    made = yaml.safe_load(kind_cluster.CONFIG.read_text())
    pools = [each.get("labels", {}).get(POOL) for each in made["nodes"] if each["role"] == "worker"]
    assert {name: pools.count(name) for name in pools} == {"system": 1, **NODES}
    assert made["name"] == KIND_CLUSTER
    [head] = [each for each in made["nodes"] if each["role"] == "control-plane"]
    [mount] = head["extraMounts"]
    assert json.loads((ROOT / mount["hostPath"]).read_text()) == AUDIT_POLICY
    patch = yaml.safe_load(made["kubeadmConfigPatches"][0])
    assert "apiVersion" not in patch  # kind translates it for the kubeadm of each node only without
    server = patch["apiServer"]
    assert server["extraArgs"]["audit-policy-file"] == mount["containerPath"]
    mounted = {each["mountPath"] for each in server["extraVolumes"]}
    assert {str(Path(server["extraArgs"][each]).parent) for each in ("audit-policy-file", "audit-log-path")} == mounted


@pytest.mark.controlplane
def test_kind_itself_takes_the_configuration(tmp_path: Path) -> None:
    """It comes as far as the containers, which there is no engine for."""
    require_programs("kind")
    program = binaries.find("kind")["kind"]
    fakes = Fakes(tmp_path)
    (tmp_path / "kind").unlink()
    # kind starts the nodes side by side and ends with the first that fails: the others have to come up.
    fakes.answer("docker", "run", "--name", "tightship-control-plane", code=1)
    fakes.answer("docker", "logs", said="Reached target Multi-User System.\n")
    fakes.answer("docker", "info", said="{}")
    words = [str(program), "create", "cluster", "--config", "-", "--image", "none"]
    words += ["--kubeconfig", str(tmp_path / "kc")]
    given = yaml.safe_dump(kind_cluster.configuration(16))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(words, input=given, text=True, cwd=ROOT, env=environment, capture_output=True, check=False)
    head = ["docker", "run", "--name", "tightship-control-plane"]
    [started] = [each for each in fakes.calls if each[:4] == head]
    assert f"--volume={ROOT / '.github/kind-audit.json'}:/etc/kubernetes/audit/policy.json:ro" in started
    wrong = subprocess.run(
        words, input=given.replace("role:", "rolle:", 1), text=True, env=environment, capture_output=True, check=False
    )
    assert "rolle" in wrong.stderr
