"""Who manages an object: an operator that sets back what others change, or tools that deploy it from somewhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from tightship.objects.meta import EMPTY, Metadata, qualified

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
    operator = operator or next((told for key, told in _ADD_ONS.items() if key in labels), "")
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


__all__ = ["NOBODY", "ManagedBy", "managed_by"]
