"""A tenant, who may do what ClusterRole admin allows in two namespaces, installs what these namespaces need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from rights import RBAC

from tightship_charts.matrix import Values
from tightship_e2e import ControlPlane, settle
from tightship_e2e.helm import Helm, HelmError
from tightship_e2e.plugin import require_programs
from tightship_testkit.client import Client, Json

pytestmark = [pytest.mark.takes(6), pytest.mark.xdist_group("tenant")]

SPACES = ("team-a", "team-b")
EARLIER = "tightship-admin-before-1.35"
"""A ClusterRole with what admin holds up to Kubernetes 1.34: no Events of events.k8s.io, other than in 1.35 and later
(`plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go` of both)."""

OWN: Values = {"dryRun": False, "config": {"namespaces": list(SPACES)}, "admissionPolicy": {"enabled": False}}
"""What the chart's README tells tenants to set, for a scaler that writes."""


def before(rules: list[Json]) -> list[Json]:
    """Admin's *rules* without the group of Events."""
    return [{**each, "apiGroups": [group]} for each in rules for group in each["apiGroups"] if group != "events.k8s.io"]


async def prepare(api: Client) -> None:
    """Make the namespaces, and a tenant for each of the roles: one with the name of the role."""
    root = f"/apis/{RBAC}/v1"
    rules = (await api.call("GET", f"{root}/clusterroles/admin"))["rules"]
    await api.request("DELETE", f"{root}/clusterroles/{EARLIER}")
    await api.call("POST", f"{root}/clusterroles", body={"metadata": {"name": EARLIER}, "rules": before(rules)})
    for space in SPACES:
        await api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": space}})
        for role in ("admin", EARLIER):
            reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
            subjects = [{"apiGroup": RBAC, "kind": "User", "name": role}]
            body = {"metadata": {"name": role}, "roleRef": reference, "subjects": subjects}
            await api.request("POST", f"{root}/namespaces/{space}/rolebindings", body=body)
            secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}
            await settle.rights_seen(api, role, space, [secrets])


class Tenant:
    """Helm as a user who has *role* in both namespaces, and nothing else."""

    def __init__(self, plane: ControlPlane, helm: Path, charts: Path, home: Path) -> None:
        self.role = "admin"
        self._helm = Helm(helm, home, plane.kubeconfig)
        self._charts = charts

    def install(self, values: Values, chart: str = "hpa-scaler") -> str:
        """Install or upgrade the release. Raises HelmError."""
        flags = ("--namespace", SPACES[0], "--kube-as-user", self.role, "--no-hooks")
        return self._helm("upgrade", "--install", "own", self._charts / chart, *flags, values=values)

    def leave(self) -> None:
        """Uninstall, as that user too."""
        with suppress(HelmError):
            self._helm("uninstall", "own", "--namespace", SPACES[0], "--kube-as-user", self.role, "--no-hooks")


@pytest.fixture(scope="module")
def prepared(control_plane: ControlPlane) -> ControlPlane:
    require_programs("helm")
    control_plane.run(prepare)
    return control_plane


@pytest.fixture
def tenant(prepared: ControlPlane, helm: Helm, charts: Path, tmp_path: Path) -> Iterator[Tenant]:
    made = Tenant(prepared, helm.path, charts, tmp_path)
    yield made
    made.leave()


@pytest.mark.parametrize(
    ("role", "values"),
    [("admin", OWN), (EARLIER, {**OWN, "optionalRights": {"events": False}}), (EARLIER, {**OWN, "dryRun": True})],
    ids=["today", "before 1.35", "before 1.35, dry run"],
)
def test_a_tenant_installs_the_scaler_for_its_own_namespaces(tenant: Tenant, role: str, values: Values) -> None:
    tenant.role = role
    assert "hpa-scaler 0.1.0" in tenant.install({**values, "networkPolicy": {"enabled": True}})
    tenant.install({**values, "replicaCount": 2, "watch": True})


@pytest.mark.newest
@pytest.mark.parametrize(
    ("role", "values", "refused"),
    [
        ("admin", {**OWN, "admissionPolicy": {"enabled": True}}, "validatingadmissionpolicies"),
        ("admin", {**OWN, "config": {}}, "clusterroles"),
        ("admin", {**OWN, "optionalRights": {"rollouts": True}}, "argoproj.io"),
        ("admin", {**OWN, "http": {"secure": {"enabled": True}}}, "clusterroles"),
        ("admin", {**OWN, "flowSchema": {"enabled": True}}, "flowschemas"),
        (EARLIER, OWN, "events.k8s.io"),
    ],
    ids=["policies", "everywhere", "rollouts", "secure", "queues", "events"],
)
def test_what_takes_more_than_admin_holds_is_refused_by_its_name(
    tenant: Tenant, role: str, values: Values, refused: str
) -> None:
    """Each of them is in the chart's README, which says who has to install what."""
    tenant.role = role
    with pytest.raises(HelmError, match=refused):
        tenant.install(values)


def test_a_controller_of_nodes_is_not_for_tenants(tenant: Tenant) -> None:
    with pytest.raises(HelmError, match="clusterroles"):
        tenant.install({"admissionPolicy": {"enabled": False}, "giveBack": {"enabled": False}}, "node-refiner")


def test_what_a_real_cluster_does_not_serve_is_in_the_notes(tenant: Tenant) -> None:
    said = tenant.install({**OWN, "serviceMonitor": {"enabled": True}})
    assert "WARNING: serviceMonitor.enabled is true, but this cluster does not serve monitoring" in said
