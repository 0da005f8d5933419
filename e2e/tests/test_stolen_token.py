"""What the token of a controller's account is good for, beside the work of that controller: nothing.

The accounts get far wider rights here than the charts grant, so that only the admission policies are in the way; what
they have no right to at all is tried with the accounts as the charts make them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec import Struct

from tightship_charts.places import UMBRELLA
from tightship_e2e import ControlPlane, binaries, settle
from tightship_e2e.helm import SPARING, Helm
from tightship_e2e.landings import LEAVING
from tightship_e2e.plugin import require_programs
from tightship_e2e.reset import reset
from tightship_testkit.client import RESOURCES, Client, Json, wait_for
from tightship_testkit.floors import STATE, autoscaler, hpa_annotations

pytestmark = [pytest.mark.xdist_group("landings"), pytest.mark.takes(12)]

RELEASE, NAMESPACE, SHOP, NODE = "held", "held-back", "shop", "precious"
COMPACTOR, REFINER, SCALER = (f"{RELEASE}-{name}" for name in ("node-compactor", "node-refiner", "hpa-scaler"))
LEGACY = "estafette.io/node-compactor-state"
DRAIN = "tightship.dev/drain"
RESTARTED_AT, RESTART = "kubectl.kubernetes.io/restartedAt", "2026-01-01T00:00:00.000Z"
THEIRS: Json = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
DRAINING: Json = {"key": "tightship.dev/draining", "value": "op", "effect": "NoSchedule"}
CANDIDATE: Json = {"key": "tightship.dev/candidate", "value": "node-compactor", "effect": "PreferNoSchedule"}


def _wide(group: str, *resources: str) -> Json:
    return {"apiGroups": [group], "resources": resources, "verbs": ["create", "update", "patch", "delete", "get"]}


WIDE = [
    _wide("", "nodes", "nodes/status", "pods", "pods/eviction", "configmaps"),
    _wide("apps", "deployments", "deployments/scale", "deployments/status"),
    _wide("coordination.k8s.io", "leases"),
    _wide("events.k8s.io", "events"),
    _wide("autoscaling", "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
]
LEASES, EVENTS = "/apis/coordination.k8s.io/v1/namespaces/{}/leases", "/apis/events.k8s.io/v1/namespaces/{}/events"
VICTIM = RESOURCES["Pod"].path(SHOP, "victim")
NODE_PATH = RESOURCES["Node"].path(None, NODE)
LANDINGS = RESOURCES["ConfigMap"].path(NAMESPACE, f"{COMPACTOR}-landings")


class Try(Struct, frozen=True):
    """A request of *account*: *method* with *body* to *path*, a *kind* of patch."""

    account: str
    path: str
    body: object = None
    method: str = "PATCH"
    kind: str = "merge"


def _node(body: Json, sub: str = "", account: str = COMPACTOR) -> Try:
    return Try(account, NODE_PATH + sub, body)


def _taints(*taints: Json, account: str = COMPACTOR) -> Try:
    return _node({"spec": {"taints": taints}}, account=account)


def _meta(sub: str = "", **metadata: object) -> Try:
    return _node({"metadata": metadata}, sub)


def _hpa(name: str, body: Json, sub: str = "") -> Try:
    return Try(SCALER, RESOURCES["HorizontalPodAutoscaler"].path(SHOP, name, sub), body)


def _bounds(name: str, state: str | None = None, **spec: int) -> Try:
    notes = {"annotations": {STATE: state}} if state is not None else {}
    return _hpa(name, {"metadata": notes, "spec": spec})


def _evict(name: str = "victim", **options: object) -> Try:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return Try(REFINER, f"{VICTIM}/eviction", body, "POST")


def _lease(namespace: str, name: str, account: str = COMPACTOR) -> Try:
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
    return Try(account, LEASES.format(namespace), body, "POST")


def _event(reporter: str, name: str, account: str = SCALER) -> Try:
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": reporter,
        "reportingInstance": "a",
        "action": "Look",
        "reason": "Looked",
        "type": "Normal",
        "regarding": {"kind": "Pod", "namespace": SHOP, "name": "victim"},
    }
    return Try(account, EVENTS.format(SHOP), body, "POST")


def _deployment(body: Json, sub: str = "") -> Try:
    return Try(COMPACTOR, RESOURCES["Deployment"].path(SHOP, "theirs", sub), body)


def _template(spec: Json | None = None, **metadata: object) -> Try:
    return _deployment({"spec": {"template": {"metadata": metadata, **({"spec": spec} if spec else {})}}})


def _restart(at: str) -> Try:
    return _template(annotations={RESTARTED_AT: at})


def _recorded(maximum: int) -> str:
    return f'{{"originalMax":{maximum},"applied":3}}'


REFUSED: dict[str, Try] = {
    "evict everything by a taint": _taints(THEIRS, {**DRAINING, "effect": "NoExecute"}),
    "evict everything by a soft taint's name": _taints(THEIRS, {**CANDIDATE, "effect": "NoExecute"}),
    "keep pods away by a soft taint's name": _taints(THEIRS, {**CANDIDATE, "effect": "NoSchedule"}, account=REFINER),
    "a taint of one's own": _taints(THEIRS, {"key": "example.com/a", "effect": "NoExecute"}),
    "no taint of others": _taints(DRAINING),
    "another value of others' taint": _taints({**THEIRS, "value": "web"}),
    "a taint of the node's lifecycle": _taints(THEIRS, {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}),
    "the autoscaler's taint": _taints(THEIRS, {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}),
    "a label that attracts pods": _meta(labels={"disk": "ssd"}),
    "a label that isolates nodes": _meta(labels={"node-restriction.kubernetes.io/secure": "yes"}),
    "no label": _meta(labels={"pool": None}),
    "the other controller's label of nodes that leave": _meta(labels={LEAVING: "node-refiner.00000000"}),
    "a label of nodes that leave in nobody's name": _meta(labels={LEAVING: "true"}),
    "the label of nodes that leave, by the status": _meta("/status", labels={LEAVING: "node-compactor.00000000"}),
    "an annotation of others": _meta(annotations={"cluster-autoscaler.kubernetes.io/scale-down-disabled": None}),
    "an annotation of one's own": _meta(annotations={"example.com/a": "b"}),
    "an older controller's mark": _meta(annotations={LEGACY: "forged"}),
    "a finalizer": _meta(finalizers=["example.com/held"]),
    "an owner that is gone": _meta(
        ownerReferences=[{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "0-0-0"}]
    ),
    "a range of addresses": _node({"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}}),
    "another machine": _node({"spec": {"providerID": "aws:///elsewhere"}}),
    "room that is not there": _node({"status": {"capacity": {"cpu": "1000"}}}, "/status"),
    "a label by the status": _meta("/status", labels={"disk": "ssd"}),
    "an eviction without grace": _evict(gracePeriodSeconds=0, preconditions={"uid": "{uid}"}),
    "an eviction of whoever has the name": _evict(),
    "an eviction that leaves orphans": _evict(propagationPolicy="Orphan", preconditions={"uid": "{uid}"}),
    "a deletion without grace": Try(
        REFINER, VICTIM, {"gracePeriodSeconds": 0, "preconditions": {"uid": "{uid}"}}, "DELETE"
    ),
    "a deletion of whoever has the name": Try(COMPACTOR, VICTIM, None, "DELETE"),
    "an image of a Deployment": _template({"containers": [{"name": "main", "image": "evil"}]}),
    "an image with a restart": _template(
        {"containers": [{"name": "main", "image": "evil"}]}, annotations={RESTARTED_AT: RESTART}
    ),
    "a service account of a Deployment": _template({"serviceAccountName": "admin"}),
    "a host's namespace": _template({"hostPID": True}),
    "replicas": _deployment({"spec": {"replicas": 9}}),
    "replicas by the scale": _deployment({"spec": {"replicas": 9}}, "scale"),
    "a paused rollout": _deployment({"spec": {"paused": True}}),
    "another strategy": _deployment({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}),
    "an annotation of a Deployment": _deployment({"metadata": {"annotations": {"example.com/a": "b"}}}),
    "a label of a Deployment": _deployment({"metadata": {"labels": {"a": "b"}}}),
    "another annotation of its template": _template(annotations={"example.com/a": "b"}),
    "no annotation of its template": _template(annotations={"example.com/kept": None}),
    "a label of its template": _template(labels={"version": "2"}),
    "a restart that is no time": _restart("now"),
    "a Deployment's status": _deployment({"status": {"observedGeneration": 99}}, "status"),
    "a label of a pod": Try(COMPACTOR, VICTIM, {"metadata": {"labels": {"app": "other"}}}),
    "an image of a pod": Try(
        COMPACTOR, VICTIM, [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}], kind="json"
    ),
    "the scheduler's Lease": _lease("kube-system", "kube-scheduler-of-mine"),
    "a Lease in another namespace": _lease(SHOP, COMPACTOR, SCALER),
    "the claims, by who drains nothing": _lease("kube-system", "tightship-claims", SCALER),
    "an Event in the scheduler's name": _event("default-scheduler", "a"),
    "an Event in a sibling's name": _event("tightship.dev/node-refiner", "b"),
    "another ConfigMap": Try(COMPACTOR, RESOURCES["ConfigMap"].path(SHOP, "theirs"), {"data": {"a": "c"}}),
    "a ConfigMap that can't be changed any more": Try(COMPACTOR, LANDINGS, {"immutable": True}),
    "the note about the policy": Try(
        COMPACTOR, LANDINGS, {"metadata": {"annotations": {"tightship.dev/landing-policy": "hints/1"}}}
    ),
    "bounds of an HPA that has not opted in": _bounds("others", minReplicas=1, maxReplicas=1),
    "a floor of an HPA that has not opted in": _bounds("others", minReplicas=2),
    "opting an HPA in": _hpa("others", {"metadata": {"annotations": hpa_annotations()}}),
    "less than the user's maximum": _bounds("ours", minReplicas=1, maxReplicas=1),
    "a forged record of the maximum": _bounds("ours", _recorded(1), minReplicas=3),
    "a forged record with a raise": _bounds("ours", _recorded(1), minReplicas=3, maxReplicas=20),
    "less than the recorded maximum": _bounds("raised", minReplicas=2, maxReplicas=9),
    "a smaller record": _bounds("raised", _recorded(9)),
    "another target": _hpa("ours", {"spec": {"scaleTargetRef": {"name": "elsewhere"}}}),
    "a metric": _hpa("ours", {"spec": {"metrics": None}}),
    "a behavior": _hpa("ours", {"spec": {"behavior": {"scaleUp": {"selectPolicy": "Disabled"}}}}),
    "a query": _hpa("ours", {"metadata": {"annotations": hpa_annotations(prometheus_query="vector(1)")}}),
    "a label of an HPA": _hpa("ours", {"metadata": {"labels": {"a": "b"}}}),
    "a finalizer of an HPA": _hpa("ours", {"metadata": {"finalizers": ["example.com/held"]}}),
    "an HPA's status": _hpa("ours", {"status": {"desiredReplicas": 1, "currentReplicas": 1}}, "status"),
}  # fmt: skip
"""What the rights of these tests allow, and the policies refuse."""

_BINDING = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}
FORBIDDEN: dict[str, tuple[str, str]] = {
    "secrets": ("GET", "/api/v1/namespaces/kube-system/secrets"),
    "a pod": ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods"),
    "a shell": ("POST", f"{VICTIM}/exec?command=sh"),
    "a token of others": ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token"),
    "more rights": ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    "no policy": ("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"),
    "no node": ("DELETE", NODE_PATH),
    "a Deployment": ("POST", "/apis/apps/v1/namespaces/shop/deployments"),
    "no budget": ("DELETE", "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"),
    "the kubelet": ("GET", f"{NODE_PATH}/proxy/metrics"),
    "a configuration": ("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps"),
}
"""What no account of the charts has a right to: how, and where."""

WORK: dict[str, Try] = {
    "a claim": _node(
        {"metadata": {"annotations": {DRAIN: "{}"}}, "spec": {"taints": [THEIRS, DRAINING], "unschedulable": True}}
    ),
    "a note": _meta(annotations={DRAIN: '{"phase":"Evicting"}'}),
    "an eviction": _evict(preconditions={"uid": "{uid}"}),
    "a node given back": _node(
        {"metadata": {"annotations": {DRAIN: None}}, "spec": {"taints": [THEIRS], "unschedulable": None}}
    ),
    "a label of nodes that leave": _meta(labels={LEAVING: "node-compactor.1f0a77c3"}),
    "no label of nodes that leave": _meta(labels={LEAVING: None}),
    "a soft taint": _taints(THEIRS, CANDIDATE, account=REFINER),
    "no soft taint": _taints(THEIRS, account=REFINER),
    "no mark of the older controller": _meta(annotations={LEGACY: None}),
    "a Lease": _lease(NAMESPACE, COMPACTOR),
    "the claims": _lease("kube-system", "tightship-claims"),
    "an Event": _event("tightship.dev/hpa-scaler", "c"),
    "a restart": _restart(RESTART),
    "a landing": Try(COMPACTOR, LANDINGS, {"data": {"6d0dd2a8-6f4c-4d2e-9a53-000000000001": NODE}}),
    "a floor": _bounds("ours", _recorded(10), minReplicas=5),
    "a floor above the maximum": _bounds("ours", _recorded(10), minReplicas=20, maxReplicas=21),
    "a lower floor": _bounds("ours", _recorded(10), minReplicas=12, maxReplicas=13),
    "an HPA given back": _hpa(
        "ours", {"metadata": {"annotations": {STATE: None}}, "spec": {"minReplicas": 2, "maxReplicas": 10}}
    ),
}
"""What the controllers do, in this order."""


class Held(Struct, frozen=True):
    """The umbrella's release without a replica."""

    plane: ControlPlane
    helm: Helm
    chart: Path

    def install(self, *, wide: bool) -> None:
        """Install or upgrade the release, without its Jobs."""
        own = {"replicaCount": 0, "rbac": {"additionalRules": WIDE if wide else []}}
        values = {
            "global": {"dryRun": False},
            "node-compactor": {**own, "config": {"steering": "hints", "deletionCost": True, "makeBeforeBreak": "all"}},
            "node-refiner": own,
            "hpa-scaler": own,
        }
        where = ("--namespace", NAMESPACE, "--create-namespace", "--no-hooks", SPARING)
        self.helm("upgrade", "--install", RELEASE, self.chart, *where, values=values)

    async def token(self, api: Client, account: str) -> Client:
        """Return a client with a token of *account*, and nothing else."""
        path = RESOURCES["ServiceAccount"].path(NAMESPACE, account, "token")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return self.plane.client(token=(await api.call("POST", path, body=body))["status"]["token"])


@pytest.fixture(scope="module")
def held(control_plane: ControlPlane, charts: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    require_programs("helm")
    control_plane.run(reset)
    helm = Helm(binaries.find("helm")["helm"], tmp_path_factory.mktemp("helm"), control_plane.kubeconfig)
    made = Held(control_plane, helm, charts / UMBRELLA)
    made.install(wide=True)
    yield made
    helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--no-hooks")


async def furnish(api: Client) -> str:
    """Make what the token is after, and return the uid of the pod."""
    await settle.ensure_namespace(api, SHOP)
    kept = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true", LEGACY: "{}"}
    meta = {"name": NODE, "labels": {"pool": "db"}, "annotations": kept}
    await api.create({"kind": "Node", "metadata": meta, "spec": {"taints": [THEIRS]}})
    container = {"name": "main", "image": "none"}
    pod = await api.create(
        {
            "kind": "Pod",
            "metadata": {"name": "victim", "namespace": SHOP, "labels": {"app": "web"}},
            "spec": {"containers": [container], "schedulingGates": [{"name": "example.com/waits"}]},
        }
    )
    await api.create(
        {
            "kind": "Deployment",
            "metadata": {"name": "theirs", "namespace": SHOP},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "theirs"}},
                "template": {
                    "metadata": {"labels": {"app": "theirs"}, "annotations": {"example.com/kept": "yes"}},
                    "spec": {"containers": [container]},
                },
            },
        }
    )
    await api.create({"kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": SHOP}, "data": {"a": "b"}})
    await api.create(autoscaler("others", 3, 10))
    await api.create(autoscaler("ours", 2, 10, hpa_annotations()))
    await api.create(autoscaler("raised", 20, 21, {**hpa_annotations(), STATE: _recorded(10)}))
    uid: str = pod["metadata"]["uid"]
    return uid


def _lifecycle(node: Json) -> list[Json]:
    """The taints that the controller-manager puts on a node meanwhile."""
    return [each for each in node["spec"].get("taints", ()) if each["key"].startswith("node.kubernetes.io/")]


async def done(what: Try, api: Client, account: Client, uid: str, **params: str) -> tuple[int, Json]:
    """Do *what*: with the uid of the pod, or with the taints that the node has got meanwhile, where that matters."""
    body = what.body
    match body:
        case {"deleteOptions": {"preconditions": {}} as options}:
            body = {**body, "deleteOptions": {**options, "preconditions": {"uid": uid}}}
        case {"preconditions": {}}:
            body = {**body, "preconditions": {"uid": uid}}
    kind = f"application/{what.kind}-patch+json" if what.method == "PATCH" else "application/json"
    while True:
        match what.body:
            case {"spec": {"taints": [*taints]} as spec}:
                node = await api.get("Node", NODE)
                meta = {**what.body.get("metadata", {}), "resourceVersion": node["metadata"]["resourceVersion"]}
                there = [each for each in node["spec"]["taints"] if each in (*taints, *_lifecycle(node))]
                more = [each for each in taints if each not in there]
                body = {"metadata": meta, "spec": {**spec, "taints": [*there, *more]}}
        status, answer = await account.request(what.method, what.path, body=body, params=params, content_type=kind)
        if status != 409:
            return status, answer


async def all_stands(api: Client) -> list[object]:
    """Everything that is to stay as it is."""
    hpas = [await api.get("HorizontalPodAutoscaler", name, SHOP) for name in ("others", "ours", "raised")]
    node = await api.get("Node", NODE)
    node["spec"]["taints"] = [each for each in node["spec"]["taints"] if each not in _lifecycle(node)]
    things = [node, await api.get("Pod", "victim", SHOP), *hpas]
    things += [await api.get("ConfigMap", "theirs", SHOP), await api.get("Deployment", "theirs", SHOP)]
    kept = ("labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp", "uid")
    reported = [
        ({key: each["metadata"].get(key) for key in kept}, each.get("spec"), each.get("data")) for each in things
    ]
    leases = [(await api.list("Lease", namespace)) for namespace in (SHOP, NAMESPACE)]
    return [*reported, [each["metadata"]["name"] for found in leases for each in found]]


def test_a_stolen_token_does_nothing_but_the_controllers_work(held: Held) -> None:
    assert len(REFUSED) + len(FORBIDDEN) > 60

    async def work(api: Client) -> None:
        uid = await furnish(api)
        accounts = {name: await held.token(api, name) for name in (COMPACTOR, REFINER, SCALER)}
        for name, rules in ((name, [rule]) for name in accounts for rule in WIDE):
            await settle.rights_seen(api, f"system:serviceaccount:{NAMESPACE}:{name}", SHOP, rules)
        async with accounts[COMPACTOR], accounts[REFINER], accounts[SCALER]:
            await policies_seen(api, accounts, uid)
            before = await all_stands(api)
            for name, what in REFUSED.items():
                status, answer = await done(what, api, accounts[what.account], uid)
                assert status == 422, f"{name}: {status} {answer}"
                assert f"'{what.account}.{NAMESPACE}" in answer["message"], (name, answer["message"])
                assert await all_stands(api) == before, name
            for name, what in WORK.items():
                status, answer = await done(what, api, accounts[what.account], uid)
                assert status in (200, 201), f"{name}: {status} {answer}"

    held.plane.run(work)


async def policies_seen(api: Client, accounts: Mapping[str, Client], uid: str) -> None:
    """Wait until every policy stands: the API server looks for new ones once a second."""
    for name, what in REFUSED.items():

        async def refused(what: Try = what) -> bool:
            return (await done(what, api, accounts[what.account], uid, dryRun="All"))[0] == 422

        await wait_for(refused, 60.0, f"{name} is refused")


def test_what_the_charts_do_not_grant_is_forbidden(held: Held) -> None:
    async def work(api: Client) -> None:
        held.install(wide=False)
        for name in (COMPACTOR, REFINER, SCALER):
            async with await held.token(api, name) as account:

                async def withdrawn(account: Client = account) -> bool:
                    return (await account.request("GET", RESOURCES["Lease"].path(SHOP, "any")))[0] == 403

                await wait_for(withdrawn, 60.0, f"the wide rights of {name} are gone")
                for what, (method, path) in FORBIDDEN.items():
                    body = {"kind": "Any", "metadata": {"name": "any"}, **_BINDING} if method == "POST" else None
                    status, _ = await account.request(method, path, body=body)
                    assert status == 403, f"{name}: {what}: {status}"

    held.plane.run(work)
