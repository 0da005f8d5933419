"""Decoding: what is kept, what is shared, and errors that name the object and the field."""

import json

import pytest
from cluster_builder import node, one, pod, raw

from tightship.objects import ObjectError, decode


def test_replicas_share_their_template_and_differ_only_in_names() -> None:
    first, second = one(pod("a", "n1")), one(pod("b", "n2"))
    assert first.template is second.template
    assert (first.key, first.node) == ("default/a", "n1")


def test_a_token_volume_of_its_own_does_not_make_a_spec_its_own() -> None:
    volumes = [[{"name": f"kube-api-access-{each}", "projected": {"sources": []}}] for each in ("x", "y")]
    first, second = (one(pod("p", "n", volumes=each)) for each in volumes)
    assert first.spec is second.spec


def test_pods_of_another_controller_or_namespace_have_another_template_but_the_same_spec() -> None:
    first, other = one(pod("a", "n")), one(pod("a", "n", owner="ReplicaSet/api"))
    elsewhere = one(pod("a", "n", namespace="shop"))
    assert first.template is not other.template
    assert first.template is not elsewhere.template
    assert first.spec is other.spec is elsewhere.spec


@pytest.mark.parametrize("kind", ["Node", "Deployment", "PersistentVolumeClaim", "PersistentVolume", "Pod"])
def test_an_empty_spec_or_status_is_absent_as_on_the_api_server(kind: str) -> None:
    spec = {"containers": []} if kind == "Pod" else None
    raw = {"metadata": {"name": "a", "namespace": "default"}, "spec": spec, "status": None}
    assert decode(kind, json.dumps(raw).encode()).name == "a"


def test_a_number_without_quotes_is_a_quantity_as_on_the_api_server() -> None:
    assert one(pod("p", "n", cpu=2)).spec is one(pod("p", "n", cpu="2")).spec


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        pytest.param(
            pod("p", "n", cpu="many"),
            r"Pod default/p: spec.containers\[0\].resources.requests.cpu: 'many' is not a quantity",
            id="quantity",
        ),
        pytest.param(
            pod("p", "n", tolerations=3),
            "Pod default/p: spec.tolerations: 3 is not a list",
            id="type",
        ),
        pytest.param(node("n", memory="-4Gi"), r"Node n: status.allocatable.memory: '-4Gi' .* zero or more", id="sign"),
        pytest.param({"kind": "Node", "metadata": {}}, r"Node \(no name\): metadata.name is missing", id="no name"),
    ],
)
def test_a_malformed_object_is_named_with_its_field(thing: dict[str, object], message: str) -> None:
    with pytest.raises(ObjectError, match=message):
        decode(str(thing["kind"]), raw(thing))


def test_a_mirror_pod_needs_the_annotation_and_a_node_as_owner() -> None:
    mark = {"kubernetes.io/config.mirror": "hash"}
    mirror, claimed = (one(pod("p", "n", owner=owner, annotations=mark)) for owner in ("Node/n", "ReplicaSet/web"))
    assert mirror.mirror
    assert not claimed.mirror


def test_only_annotations_some_rule_reads_are_kept() -> None:
    decoded = one(node("n", annotations={"karpenter.sh/do-not-disrupt": "true", "example.com/huge": "x" * 1000}))
    assert decoded.annotations == {"karpenter.sh/do-not-disrupt": "true"}
