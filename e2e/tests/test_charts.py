"""The charts on a real API server: every manifest is taken as it is, strictly, and a second install changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
import yaml

from tightship_charts.matrix import ALL_APIS, APIS, LONGEST_RELEASE, Values, everything, features
from tightship_charts.places import INSTALLABLE
from tightship_e2e import ControlPlane, binaries
from tightship_e2e.helm import Helm, HelmError, run
from tightship_e2e.landings import PLURALS
from tightship_e2e.plugin import require_programs
from tightship_e2e.renderings import Renderings
from tightship_testkit.client import ApiError, Client, Json

POLICIES = ",".join(PLURALS)
NAMESPACES = ("charts", "ns", "elsewhere", "monitoring", "claims")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
pytestmark = [pytest.mark.xdist_group("charts"), pytest.mark.takes(6)]

SECURE = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}


def foreign(api: str) -> Json:
    """A kind of another project, as far as the charts go: its real schema is that project's."""
    group, version, kind = api.split("/")
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }


class Cluster:
    """A plane that has the namespaces and kinds that the charts may want, and the programs that speak to it."""

    def __init__(self, plane: ControlPlane, charts: Path, home: Path, renderings: Renderings) -> None:
        self.plane = plane
        self.charts = charts
        self._renderings = renderings
        found = binaries.find("helm", "kubectl")
        self.helm = Helm(found["helm"], home, plane.kubeconfig)
        self._kubectl = str(found["kubectl"])
        self._known: dict[str, dict[str, list[Json]]] = {}

    def rendered(self, chart: str) -> dict[str, list[Json]]:
        """Return what a chart makes with each of its values, its tests among it; each is rendered once."""
        if chart not in self._known:
            self._known[chart] = {
                name: self._renderings(self.charts / chart, values, release=release, apis=ALL_APIS, tests=True)
                for name, (release, values) in matrix(chart).items()
            }
        return self._known[chart]

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """Run kubectl as administrator."""
        return run([self._kubectl, *arguments], given.encode(), {"KUBECONFIG": str(self.plane.kubeconfig)})

    def tried(self, items: Sequence[Json]) -> str:
        """Have the API server judge *items* strictly, without keeping them; return its warnings and answers."""
        text = yaml.safe_dump_all(items)
        return self.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", given=text)

    async def prepare(self, api: Client) -> None:
        """Make the namespaces, all of them as strict about pods as can be, and the kinds of other projects."""
        for name in NAMESPACES:
            await self._once(api, "/api/v1/namespaces", {"metadata": {"name": name, "labels": SECURE}})
        for each in APIS:
            await self._once(api, CRDS, foreign(each))

    async def forget(self, api: Client) -> None:
        """Remove the kinds again: other tests want a plain cluster."""
        for each in APIS:
            await api.request("DELETE", f"{CRDS}/{foreign(each)['metadata']['name']}")

    @staticmethod
    async def _once(api: Client, path: str, body: Json) -> None:
        try:
            await api.call("POST", path, body=body)
        except ApiError as error:
            if error.status != 409:
                raise


@pytest.fixture(scope="module")
def cluster(
    control_plane: ControlPlane, charts: Path, renderings: Renderings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """The session's plane, ready for charts."""
    require_programs("helm", "kubectl")
    made = Cluster(control_plane, charts, tmp_path_factory.mktemp("helm"), renderings)
    control_plane.run(made.prepare)
    yield made
    control_plane.run(made.forget)


def matrix(chart: str) -> dict[str, tuple[str, Values]]:
    """Release names and values by what they try."""
    alone = {name: ("rel", values) for name, values in features(chart).items()}
    return {
        "defaults": ("rel", {}),
        **alone,
        "everything": ("rel", everything(chart)),
        "longest name": (LONGEST_RELEASE, everything(chart)),
    }


@pytest.mark.parametrize("chart", INSTALLABLE)
def test_the_api_server_takes_every_manifest_strictly(cluster: Cluster, chart: str) -> None:
    # Objects of one name don't collide, for none is kept; but most are the same, whatever the values.
    items = {
        msgspec.json.encode(item, order="sorted"): item
        for items in cluster.rendered(chart).values()
        for item in items
        if item["kind"] != "Pod"  # those are tried below
    }
    answers = cluster.tried(list(items.values()))
    assert answers.count("(server dry run)") == len(items)


def test_a_misspelt_field_would_be_refused(cluster: Cluster) -> None:
    [item] = [each for each in cluster.helm.template(cluster.charts / "hpa-scaler") if each["kind"] == "Service"]
    item["metadata"]["namespace"] = "charts"
    cluster.tried([item])
    item["spec"]["prots"] = item["spec"].pop("ports")
    with pytest.raises(HelmError, match=r'unknown field "spec.prots"'):
        cluster.tried([item])


@pytest.mark.parametrize("chart", INSTALLABLE)
def test_pods_are_let_into_a_restricted_namespace(cluster: Cluster, chart: str) -> None:
    pods = []
    for number, (name, rendered) in enumerate(cluster.rendered(chart).items()):
        if name == "host network":
            continue  # which no restricted namespace allows
        tests = [each for each in rendered if each["kind"] == "Pod"]
        pods += [{**each, "metadata": {**each["metadata"], "namespace": "charts"}} for each in tests]
        for item in [each for each in rendered if each["kind"] in ("Deployment", "Job")]:
            template = copy.deepcopy(item["spec"]["template"])
            template["spec"].pop("runtimeClassName", None)  # there is none of that name
            metadata = {**template["metadata"], "name": f"tried-{number}-{item['kind'].lower()}", "namespace": "charts"}
            pods.append({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"], "metadata": metadata})
    assert cluster.tried(pods).count("(server dry run)") == len(pods)


@pytest.mark.parametrize("chart", INSTALLABLE)
def test_a_second_install_changes_nothing(cluster: Cluster, chart: str) -> None:
    release = f"again-{chart}"
    # A hook would be waited for, and nothing runs its pod here.
    install = ("upgrade", "--install", release, cluster.charts / chart, "--namespace", "charts", "--no-hooks")
    cluster.helm(*install, values=everything(chart))
    try:
        before = versions(cluster, release)
        cluster.helm(*install, values=everything(chart))
        assert versions(cluster, release) == before
        assert before
    finally:
        cluster.helm("uninstall", release, "--namespace", "charts", "--no-hooks")


def test_what_is_rendered_without_hooks_is_applied_again_with_another_image(cluster: Cluster) -> None:
    """By ``kubectl apply``, as docs/operations.md says; with the hooks the second time fails."""

    def apply(release: str, tag: str, *flags: str) -> str:
        values = {**everything("node-refiner"), "image": {"tag": tag}, "claims": {"namespace": ""}}
        where = ("--namespace", "charts", "--kube-version", "1.37.0", "--skip-tests")
        text = cluster.helm("template", release, cluster.charts / "node-refiner", *where, *flags, values=values)
        return cluster.kubectl("apply", "-f", "-", given=text)

    try:
        for tag in ("1", "2"):
            assert "deployment.apps/" in apply("applied", tag, "--no-hooks")
        apply("hooked", "1")
        with pytest.raises(HelmError, match=r"Job.*field is immutable"):
            apply("hooked", "2")
    finally:
        kinds = (
            f"deployments,jobs,{POLICIES},clusterroles,clusterrolebindings,flowschemas,servicemonitors,prometheusrules"
        )
        for release in ("applied", "hooked"):
            chosen = ("--selector", f"app.kubernetes.io/instance={release}", "--wait=false")
            cluster.kubectl("delete", kinds, "--all-namespaces", *chosen)


def versions(cluster: Cluster, release: str) -> dict[tuple[str, str, str], tuple[str, int]]:
    """Uid and generation of every object of a release; those without a generation have their data here."""
    kinds = "deployments,services,configmaps,serviceaccounts,poddisruptionbudgets,networkpolicies,roles,rolebindings"
    listed = cluster.kubectl(
        "get",
        f"{kinds},{POLICIES},clusterroles,clusterrolebindings,servicemonitors,prometheusrules,verticalpodautoscalers",
        "--all-namespaces",
        "--selector",
        f"app.kubernetes.io/instance={release}",
        "--output=json",
    )
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): (
            item["metadata"]["uid"],
            # The status of a Deployment and of a budget moves by itself.
            item["metadata"].get("generation") or item["metadata"]["resourceVersion"],
        )
        for item in yaml.safe_load(listed)["items"]
    }
