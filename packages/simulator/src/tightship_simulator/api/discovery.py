"""What the embedded cluster serves, as clients ask for it: groups, resources, versions, and as much of an OpenAPI
document as kubectl wants before it applies anything.
"""

from __future__ import annotations

from typing import Any

from tightship_simulator.api.kinds import BY_NAME, SERVED, Kind

Json = dict[str, Any]

VERSION = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.1-embedded",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "embedded",
}

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_ASKED_ONLY = {"authorization.k8s.io": ("SelfSubjectAccessReview", "selfsubjectaccessreviews")}
"""Groups of which nothing is kept: what is posted is answered."""
_PLACES = frozenset({*(each.root for each in SERVED), *(f"/apis/{group}/v1" for group in _ASKED_ONLY)})
"""Where a group's resources are told."""


def discovered(path: str) -> Json | None:
    """Return what is served at *path* (without a slash at its end), ``None`` where that is no place of discovery."""
    if path == "/version":
        return VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(each) for each in _groups()]}
    if path == "/openapi/v3":
        roots = [root.removeprefix("/") for root in _roots()]
        return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}?hash=1"} for root in roots}}
    if path.startswith("/openapi/v3/"):
        kinds = [each for each in SERVED if each.root == path.removeprefix("/openapi/v3")]
        return _document(kinds) if kinds else None
    if path.startswith("/apis/") and path.count("/") == 2:
        name = path.removeprefix("/apis/")
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)} if name in _groups() else None
    return _resources(path) if path in _PLACES else None


def _groups() -> dict[str, str]:
    """Return the version of each group but the core one."""
    return {each.group: each.version for each in SERVED if each.group} | dict.fromkeys(_ASKED_ONLY, "v1")


def _roots() -> list[str]:
    return sorted({each.root for each in SERVED})


def _group(name: str) -> Json:
    version = {"groupVersion": f"{name}/{_groups()[name]}", "version": _groups()[name]}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(root: str) -> Json:
    kinds = [each for each in SERVED if each.root == root]
    resources = [entry for kind in kinds for entry in _entries(kind)]
    for group, (kind_name, plural) in _ASKED_ONLY.items():
        if root == f"/apis/{group}/v1":
            resources.append(_entry(plural, kind_name, namespaced=False, verbs=["create"]))
    version = root.removeprefix("/apis/").removeprefix("/api/")
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def _entry(name: str, kind: str, *, namespaced: bool, verbs: list[str], **more: object) -> Json:
    singular = "" if "/" in name else kind.lower()
    return {"name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": verbs, **more}


def _entries(kind: Kind) -> list[Json]:
    named: Json = {"shortNames": list(kind.short)} if kind.short else {}
    if kind.all:
        named["categories"] = ["all"]
    place = kind.namespaced
    found = [_entry(kind.plural, kind.name, namespaced=place, verbs=_VERBS, **named)]
    if kind.status:
        found.append(_entry(f"{kind.plural}/status", kind.name, namespaced=place, verbs=["get", "patch", "update"]))
    if kind.scale:
        of: Json = {"group": "autoscaling", "version": "v1"}
        verbs = ["get", "patch", "update"]
        found.append(_entry(f"{kind.plural}/scale", "Scale", namespaced=True, verbs=verbs, **of))
    create = ["create"]
    if kind is BY_NAME["Pod"]:
        found.append(_entry("pods/binding", "Binding", namespaced=True, verbs=create))
        of = {"group": "policy", "version": "v1"}
        found.append(_entry("pods/eviction", "Eviction", namespaced=True, verbs=create, **of))
    if kind is BY_NAME["ServiceAccount"]:
        of = {"group": "authentication.k8s.io", "version": "v1"}
        found.append(_entry("serviceaccounts/token", "TokenRequest", namespaced=True, verbs=create, **of))
    return found


def _document(kinds: list[Kind]) -> Json:
    """Return of OpenAPI only what tells kubectl that the server itself judges the fields of what is applied."""
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths = {}
    for kind in kinds:
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.name}
        space = "namespaces/{namespace}/" if kind.namespaced else ""
        patch = {"parameters": [parameter], "responses": {}, "x-kubernetes-group-version-kind": gvk}
        paths[f"{kind.root}/{space}{kind.plural}/{{name}}"] = {"patch": patch}
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths}
