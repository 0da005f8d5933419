"""What clients send: the bodies of their requests, and the options of what they ask for."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from tightship_simulator.api.errors import BadRequest, UnsupportedMediaType, invalid
from tightship_simulator.api.events import as_kept
from tightship_simulator.api.events import problems as event_problems
from tightship_simulator.api.kinds import NEW_EVENTS
from tightship_simulator.api.requests import Target, number
from tightship_simulator.api.validity import malformed

Json = dict[str, Any]


def named(target: Target, thing: Json) -> Json:
    """Return the body of a write in the form that is kept. Raises for one that is not about *target*."""
    kind = target.kind
    reported = thing.get("kind", kind.name), thing.get("apiVersion", kind.group_version)
    if reported != (kind.name, kind.group_version):
        raise BadRequest(f'{reported[0]} in version "{reported[1]}" cannot be handled as a {kind.name}')
    if wrong := malformed(thing):
        raise BadRequest(f"{kind.name} cannot be read: {wrong}")
    meta = dict(thing.get("metadata") or {})
    if kind.namespaced:
        given = meta.setdefault("namespace", target.namespace or "default")
        if target.namespace and given != target.namespace:
            raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if target.name and meta.setdefault("name", target.name) != target.name:
        named = f"the name of the object ({meta['name']})"
        raise BadRequest(f"{named} does not match the name on the URL ({target.name})")
    thing = {**thing, "metadata": meta}
    if kind is NEW_EVENTS:
        if wrong_with := event_problems(thing):
            raise invalid(kind, str(meta.get("name", "")), wrong_with)
        thing = as_kept(thing)
    return thing


async def body_of(request: web.Request, *, any_form: bool = False) -> Any:
    """Return the decoded body, an object unless *any_form*. Raises ``BadRequest`` and ``UnsupportedMediaType``."""
    if "json" not in request.content_type:
        detail = "the body of the request was in an unknown format - accepted media types include: application/json"
        raise UnsupportedMediaType(detail)
    try:
        body = msgspec.json.decode(await request.read())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the object provided is unrecognized: {error}") from error
    if not any_form and not isinstance(body, dict):
        raise BadRequest("the object provided is unrecognized: it must be an object")
    return body


async def deletion_of(request: web.Request) -> Json:
    """Return the options of a deletion: its body, and the parameters that may stand for it."""
    options: Json = await body_of(request) if request.can_read_body else {}
    grace = number(request.query, "gracePeriodSeconds")
    return options if grace is None else {"gracePeriodSeconds": grace, **options}


def is_dry(request: web.Request) -> bool:
    """Whether a write is only to be tried. Raises ``BadRequest`` for a choice that is none."""
    asked = request.query.get("dryRun", "")
    if asked not in {"", "All"}:
        raise BadRequest(f'Invalid value: "{asked}": dryRun: Unsupported value: supported values: "All"')
    return asked == "All"


def check_about(thing: Json, kind: str, name: str) -> None:
    """Raise ``BadRequest`` where *thing* is of another kind, or about another object than the path says."""
    if thing.get("kind", kind) != kind:
        raise BadRequest(f"{thing['kind']} cannot be handled as a {kind}")
    if (thing.get("metadata") or {}).get("name", name) != name:
        raise BadRequest(f"name in URL does not match name in {kind} object")
