"""Object metadata, reduced to what decisions need, and who manages an object by it: an operator that sets back what
others change, or tools that deploy the object from somewhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec
from msgspec import Struct

from tightship.objects.selectors import Labels

EMPTY: Mapping[str, str] = {}
"""The empty mapping that all objects without labels or annotations share."""

KEPT_ANNOTATIONS = (
    "tightship.dev/",
    "estafette.io/",
    "cluster-autoscaler.kubernetes.io/",
    "delay-deletion.cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/",
    "node-autoscaling.kubernetes.io/",
    "controller.kubernetes.io/pod-deletion-cost",
    "descheduler.alpha.kubernetes.io/",
    "autoscaling.cast.ai/removal-disabled",
    "beta.evictor.cast.ai/eviction-disabled",
    "spotinst.io/restrict-scale-down",
    "atlassian.com/no-delete",
    "scheduling.volcano.sh/group-",
    "scheduling.k8s.io/group-name",
    "volcano.sh/job-name",
    "kueue.x-k8s.io/pod-group-serving",
    "kubernetes.io/config.mirror",
    "cluster.x-k8s.io/owner-",
    "machine.openshift.io/machine",
    "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size",
    "machine.openshift.io/cluster-api-autoscaler-node-group-min-size",
    "machineconfiguration.openshift.io/state",
    "machineconfiguration.openshift.io/current",
    "machineconfiguration.openshift.io/desired",
    "weave.works/kured-reboot-in-progress",
    "flatcar-linux-update.v1.flatcar-linux.net/reboot-",
    "container-linux-update.v1.coreos.com/reboot-",
    "talos.dev/cordoned",
    "harvesterhci.io/",
    "update.node.deckhouse.io/",
    "lifecycle-manager.keikoproj.io/in-progress",
    "projectcalico.org/RouteReflectorClusterID",
    "node.machine.sapcloud.io/trigger-deletion-by-mcm",
    "sriovnetwork.openshift.io/state",
    "oci.oraclecloud.com/node-pool-id",
)
"""Prefixes of the annotations that some rule reads. Decoding drops every other annotation."""


def kept_annotations(annotations: Labels | None) -> Labels:
    """Return those of *annotations* that some rule reads (:data:`KEPT_ANNOTATIONS`)."""
    if not annotations:
        return EMPTY
    kept = {key: text for key, text in annotations.items() if key.startswith(KEPT_ANNOTATIONS)}
    return kept or EMPTY


class Namespaced(Struct, frozen=True, gc=False):
    """An object in a namespace."""

    namespace: str
    name: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Present(Struct, frozen=True, gc=False):
    """Something of which only the presence matters."""


class OwnerReference(Struct, frozen=True, rename="camel", gc=False):
    """An owner reference as the API writes it."""

    kind: str
    name: str
    uid: str = ""
    api_version: str = ""
    controller: bool = False


def qualified(kind: str, api_version: str) -> str:
    """Return *kind* with its API group as kubectl writes both: ``StatefulSet.apps.kruise.io``.

    Kubernetes' own controllers of pods keep their bare kind. Their groups have no dot, the group of a custom resource
    always has one (apiextensions validation), so two kinds of the same name differ.
    """
    group = api_version.rpartition("/")[0]
    return f"{kind}.{group}" if "." in group else kind


class Owner(Struct, frozen=True, gc=False):
    """The controller of an object (the owner reference with ``controller: true``); *kind* is :func:`qualified`."""

    kind: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class Metadata(Struct, frozen=True, rename="camel", gc=False):
    """``metadata`` on the wire."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def controller(self) -> Owner | None:
        """The owner reference marked as controller, or ``None`` (``metav1.GetControllerOf``)."""
        for reference in self.owner_references or ():
            if reference.controller:
                return Owner(qualified(reference.kind, reference.api_version), reference.name, reference.uid)
        return None

    @property
    def created(self) -> int:
        """Creation time in whole seconds since 1970, 0 if the object has none."""
        return seconds(self.creation_timestamp) or 0

    @property
    def kept_annotations(self) -> Labels:
        """The annotations that some rule reads (:data:`KEPT_ANNOTATIONS`)."""
        return kept_annotations(self.annotations)


class _SpecFields(Struct, frozen=True, gc=False):
    unschedulable: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="f:unschedulable")
    min_replicas: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="f:minReplicas")
    max_replicas: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="f:maxReplicas")


class _Fields(Struct, frozen=True, gc=False):
    spec: _SpecFields | None = msgspec.field(default=None, name="f:spec")


class ManagedFields(Struct, frozen=True, rename="camel", gc=False):
    """An entry of ``managedFields``. Decoding skips all fields but three, because entries are long.

    *time* is when the manager last changed one of its fields, not necessarily the field that is asked for.
    """

    manager: str = ""
    time: datetime | None = None
    fields_v1: _Fields | None = None

    def sets(self, field: str) -> bool:
        """Whether the manager owns *field* of ``spec``: ``unschedulable``, ``min_replicas`` or ``max_replicas``."""
        spec = None if self.fields_v1 is None else self.fields_v1.spec
        return spec is not None and getattr(spec, field) is not msgspec.UNSET


def seconds(moment: datetime | None) -> int | None:
    """Return *moment* in whole seconds since 1970 (UTC), ``None`` for ``None``."""
    return None if moment is None else int(moment.timestamp())


MANAGED_BY = "app.kubernetes.io/managed-by"

_TOOLS = frozenset(
    {"helm", "tiller", "kustomize", "kubectl", "argocd", "argo-cd", "flux", "fluxcd", "helmfile", "terraform", "pulumi"}
    | {
        "ansible",
        "cdk8s",
        "jsonnet",
        "tanka",
        "skaffold",
        "werf",
        "kapp",
        "spinnaker",
        "gitlab",
        "cdk",
        "tilt",
        "octopus",
        "configmanagement.gke.io",
    }
)
"""Values of ``app.kubernetes.io/managed-by`` that name tools for deploying, in lower case; others name operators."""

_LABELS: Mapping[str, str] = {
    "kustomize.toolkit.fluxcd.io/name": "Flux Kustomization {}",
    "helm.toolkit.fluxcd.io/name": "Flux HelmRelease {}",
    "argocd.argoproj.io/instance": "Argo CD application {}",
    "kapp.k14s.io/app": "kapp app {}",
}
_ANNOTATIONS: Mapping[str, str] = {
    "meta.helm.sh/release-name": "Helm release {}",
    "argocd.argoproj.io/tracking-id": "Argo CD application {}",
    "objectset.rio.cattle.io/id": "Rancher Fleet or a k3s add-on ({})",
    "configmanagement.gke.io/managed": "Config Sync",
}
"""What tools write on what they deploy: the value tells the release, the application and so on."""

_ADD_ONS: Mapping[str, str] = {
    "addonmanager.kubernetes.io/mode": "the add-on manager of the cluster",
    "olm.managed": "the Operator Lifecycle Manager",
    "olm.owner": "the Operator Lifecycle Manager",
    "olm.operatorframework.io/owner-name": "the Operator Lifecycle Manager",
    "eks.amazonaws.com/component": "Amazon EKS",
}
"""Labels of what a cluster's own managers set back."""


class ManagedBy(Struct, frozen=True, gc=False):
    """The *operator* that owns an object, empty if nobody knows one, and the *tools* that deploy the object."""

    operator: str = ""
    tools: tuple[str, ...] = ()

    def note(self, thing: str) -> str:
        """Return what whoever changes *thing* has to know; empty if nobody manages it."""
        if self.operator:
            return f"{thing} is managed by {self.operator}, which may set it back"
        return f"{thing} belongs to {' and '.join(self.tools)}: change it there to last" if self.tools else ""


NOBODY = ManagedBy()


def managed_by(meta: Metadata, *, owned: bool = True) -> ManagedBy:
    """Return who manages the object with *meta*. With *owned*, an owner reference names its operator too."""
    labels, notes = meta.labels or EMPTY, meta.annotations or EMPTY
    owners = meta.owner_references if owned else None
    if not (labels or notes or owners):
        return NOBODY
    word = labels.get(MANAGED_BY, "")
    operator = next(_owners(meta), "") if owners else ""
    operator = operator or next((name for key, name in _ADD_ONS.items() if key in labels), "")
    if word and word.lower() not in _TOOLS:
        operator = operator or word
    tools = tuple(dict.fromkeys(_tools(labels, notes)))
    if not tools and word.lower() in _TOOLS:
        tools = (word,)
    return ManagedBy(operator, tools) if operator or tools else NOBODY


def _owners(meta: Metadata) -> Iterator[str]:
    """Yield the owners, the controller first."""
    for each in sorted(meta.owner_references or (), key=lambda each: not each.controller):
        yield f"{qualified(each.kind, each.api_version)}/{each.name}"


def _tools(labels: Mapping[str, str], notes: Mapping[str, str]) -> Iterator[str]:
    for known, values in ((_ANNOTATIONS, notes), (_LABELS, labels)):
        for key, tool in known.items():
            if key in values:
                # An application's tracking id is NAME:GROUP/KIND:NAMESPACE/NAME.
                yield tool.format(values[key].partition(":")[0].strip())
