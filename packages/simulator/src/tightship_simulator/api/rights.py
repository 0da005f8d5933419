"""Who may do what, where a test says so; without that everybody may do everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tightship_simulator.api.errors import Forbidden
from tightship_simulator.api.requests import Asked, Target

Allows = Callable[[str, Asked], bool]
"""Says whether a client, named by its process, may do that. The name of a list is the one that it selects, if any."""

_BY_NAME = "metadata.name="


def check(allows: Allows, who: str, about: Asked, target: Target, query: Mapping[str, str]) -> None:
    """Raise :class:`~tightship_simulator.api.errors.Forbidden` for what *who* may not do."""
    selected = query.get("fieldSelector", "")
    if not about.name and selected.startswith(_BY_NAME) and "," not in selected:
        about = msgspec.structs.replace(about, name=selected.removeprefix(_BY_NAME))
    if allows(who, about):
        return
    resource = f"{about.resource}/{about.subresource}" if about.subresource else about.resource
    where = f'in the namespace "{about.namespace}"' if about.namespace else "at the cluster scope"
    kind = target.kind
    named = f' "{about.name}"' if about.name else ""
    raise Forbidden(
        f'{kind.qualified}{named} is forbidden: User "{who}" cannot {about.verb} resource "{resource}" '
        f'in API group "{kind.group}" {where}'
    )


__all__ = ["Allows", "check"]
