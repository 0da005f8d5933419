"""Roles that are granted to an account, and which of their rights were used."""

from __future__ import annotations

from tightship_e2e import settle
from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import Client, Json

RBAC = "rbac.authorization.k8s.io"


async def grant(api: Client, role: Json, account: str) -> None:
    """Bind a role to an account of the namespace default, with the name of the role and the account's."""
    version, name, kind = f"{RBAC}/v1", f"documented-{role['metadata']['name']}", role["kind"]
    space = role["metadata"].get("namespace", "default")
    root = f"/apis/{version}" + (f"/namespaces/{space}" if kind == "Role" else "")
    named = {**role, "metadata": {"name": name}}
    binding = {
        "apiVersion": version,
        "kind": f"{kind}Binding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    }
    for plural, body in ((f"{kind.lower()}s", named), (f"{kind.lower()}bindings", binding)):
        await api.request("DELETE", f"{root}/{plural}/{name}")
        await api.call("POST", f"{root}/{plural}", body=body)
    await settle.rights_seen(api, f"system:serviceaccount:default:{account}", space, role["rules"])


def granted(roles: list[Json]) -> set[tuple[str, str]]:
    """(verb, resource with subresource) of all rules."""
    return {
        (verb, resource)
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(events: list[AuditEvent], who: str) -> set[tuple[str, str]]:
    """Return the rights that *who* used. To ask which kinds a group has needs none: system:discovery grants it."""
    found = set()
    for each in events:
        ref = each.object_ref
        if not ref.resource and each.verb == "get" and each.request_uri.startswith("/apis/"):
            continue
        if each.user.username.endswith(f":{who}"):
            resource = f"{ref.resource}/{ref.subresource}" if ref.subresource else ref.resource
            found.add((each.verb, resource))
    return found
