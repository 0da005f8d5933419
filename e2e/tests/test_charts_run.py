"""The controllers run as their charts say: its account, rights, environment and configuration, installed by Helm.

No container runs here, so each runs as a process of ours, with the environment of the rendered Deployment.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tightship_charts.matrix import Values
from tightship_charts.places import CHARTS
from tightship_e2e import ControlPlane, binaries, load
from tightship_e2e.helm import Helm, objects
from tightship_e2e.plugin import require_programs
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.manifests import as_list, node
from tightship_testkit.ports import free_ports
from tightship_testkit.processes import fetch

NAMESPACE = "packed"
DEADLINE = 120.0

CASES: Mapping[str, tuple[str, Values]] = {
    "node-compactor": ("node_compactor.cli", {"config": {"nodePools": {"*": {"enabled": True}}}}),
    "hpa-scaler": ("hpa_scaler.cli", {"watch": True, "config": {"queryDeadline": "30s"}}),
    "node-refiner": ("node_refiner.cli", {"config": {"excess_nodes_threshold": 3}}),
}
"""The module of each controller, and values."""


class Installed:
    """A chart that Helm has installed, live, and the process that runs as its Deployment says."""

    def __init__(self, plane: ControlPlane, helm: Helm, chart: str) -> None:
        self.plane, self.chart = plane, chart
        module, values = CASES[chart]
        where = ("--namespace", NAMESPACE, "--create-namespace")
        helm("install", chart, CHARTS / chart, *where, values={**values, "dryRun": False})
        self.manifest = objects(helm("get", "manifest", chart, "--namespace", NAMESPACE))
        self.hook = objects(helm("get", "hooks", chart, "--namespace", NAMESPACE))[0]
        pod = self.one("Deployment")["spec"]["template"]["spec"]
        self.account = pod["serviceAccountName"]
        self.port = free_ports("http")["http"]
        fields = {"metadata.name": f"{chart}-0", "metadata.namespace": NAMESPACE}
        environment = {
            each["name"]: each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in pod["containers"][0]["env"]
        }
        kubeconfig = plane.service_account_kubeconfig(NAMESPACE, self.account)
        environment |= {"KUBECONFIG": str(kubeconfig), "HTTP_PORTS": str(self.port), "HTTP_HOST": "127.0.0.1"}
        self.process = f"installed-{chart}"
        plane.audit_events()
        plane.spawn(self.process, [sys.executable, "-m", module, *pod["containers"][0]["args"]], env=environment)

    def one(self, kind: str) -> Json:
        """The only object of its kind."""
        [found] = [each for each in self.manifest if each["kind"] == kind]
        return found

    def asked(self, deadline: int) -> subprocess.CompletedProcess[str]:
        """What the chart's own test says."""
        [container] = self.hook["spec"]["containers"]
        given = {each["name"]: each["value"] for each in container["env"]}
        given |= {"TARGET": f"http://127.0.0.1:{self.port}", "DEADLINE": str(deadline)}
        command = [sys.executable, "-c", container["args"][0]]
        return subprocess.run(command, env=given, capture_output=True, text=True, timeout=300, check=False)

    def log(self) -> str:
        """What the process has said, for an error."""
        return self.plane.log_tail(self.process, 40)


@pytest.fixture(params=sorted(CASES))
def installed(request: pytest.FixtureRequest, empty_plane: ControlPlane, tmp_path: Path) -> Iterator[Installed]:
    """A chart, installed on a plane with one node."""
    require_programs("helm")
    helm = Helm(binaries.find("helm")["helm"], tmp_path, empty_plane.kubeconfig)
    empty_plane.run(lambda api: load(api, as_list(node("n1"))))
    made = Installed(empty_plane, helm, request.param)
    yield made
    empty_plane.kill(made.process)
    helm("uninstall", made.chart, "--namespace", NAMESPACE)


def test_a_controller_runs_and_leads_with_the_rights_of_its_chart(installed: Installed) -> None:
    async def leads(api: Client) -> None:
        del api

        async def leading() -> bool:
            return "tightship_leader 1.0" in (await fetch(installed.port, "/metrics"))[1]

        await wait_for(leading, DEADLINE, f"{installed.chart} leads")

    installed.plane.run(leads)
    said = installed.asked(120)
    assert said.returncode == 0, f"{said.stderr}\n{installed.log()}"
    assert "is ready, its configuration is good, and its passes succeed" in said.stdout
    user = f"system:serviceaccount:{NAMESPACE}:{installed.account}"
    calls = [each for each in installed.plane.audit_events() if each.user.username == user]
    assert calls
    assert [each for each in calls if each.code in {401, 403}] == []


def test_the_charts_own_test_fails_where_something_is_wrong(installed: Installed) -> None:
    assert installed.asked(120).returncode == 0, installed.log()
    config = installed.one("ConfigMap")
    key = next(iter(config["data"]))

    async def spoil(api: Client) -> None:
        await api.patch("ConfigMap", config["metadata"]["name"], {"data": {key: "nonsense: 7"}}, NAMESPACE)

        async def noticed() -> bool:
            return "tightship_config_valid 0.0" in (await fetch(installed.port, "/metrics"))[1]

        await wait_for(noticed, DEADLINE, "the bad edit is noticed")

    installed.plane.run(spoil)
    said = installed.asked(1)
    assert said.returncode == 1
    assert "its configuration can't be used" in said.stderr
    installed.plane.kill(installed.process)
    said = installed.asked(1)
    assert said.returncode == 1
    assert "/readyz says 0" in said.stderr
