"""The pilot in a disaster: what its chart has installed, and how led pods, labels and its ConfigMap are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tightship_simulator.api.errors import Forbidden, Invalid, Refused
from tightship_simulator.api.landing import AWAY, LEAVING, PREFERRED, REQUIRED
from tightship_testkit.disasters.scenario import Controller, Landings
from tightship_testkit.disasters.team import prices

if TYPE_CHECKING:
    from tightship_testkit.disasters.team import Team
    from tightship_testkit.disasters.world import World

Json = dict[str, Any]

POLICY = "tightship.dev/landing-policy"
VERSION = 2
"""Of the policies that go with this controller."""
_FENCED = ("configmaps", "pods", "pods/status")


def map_of(controller: Controller) -> str:
    """Return the name of the ConfigMap of landings of a controller."""
    return f"{controller.program}-landings"


def manifest(controller: Controller, policy: str) -> Json:
    """Return the ConfigMap as the chart installs it beside *policy*."""
    meta = {"name": map_of(controller), "namespace": controller.namespace}
    return {"metadata": {**meta, "annotations": {POLICY: policy}} if policy else meta}


def install(world: World, team: Team) -> None:
    """Make the ConfigMap of a team that has one, if it is not there."""
    controller = team.controller
    chart = controller.landings
    if chart is not None and chart.there and found(world, team) is None:
        world.store.create("ConfigMap", manifest(controller, chart.policy))


def found(world: World, team: Team) -> Json | None:
    """Return the ConfigMap of landings of a team, ``None`` where it is not there."""
    return world.store.find("ConfigMap", map_of(team.controller), team.controller.namespace)


def policy_of(config_map: Json | None) -> str:
    """Return the policy that a ConfigMap names, empty where it names none."""
    return str((((config_map or {}).get("metadata") or {}).get("annotations") or {}).get(POLICY, ""))


def data_of(config_map: Json | None) -> dict[str, str]:
    """Return what a ConfigMap of landings holds."""
    return (config_map or {}).get("data") or {}


def label_of(node: Json) -> str | None:
    """Return the value of the label of a node that leaves, ``None`` if it has none."""
    value: str | None = (node["metadata"].get("labels") or {}).get(LEAVING)
    return value


def led(pod: Json) -> bool:
    """Whether the policy has led a pod: it prefers nodes by name, and each of its terms keeps off nodes that leave."""
    of_nodes = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = [each for each in (of_nodes.get(REQUIRED) or {}).get("nodeSelectorTerms") or [] if each]
    by_name = any("matchFields" in each["preference"] for each in of_nodes.get(PREFERRED) or [])
    return by_name and bool(terms) and all(AWAY in (each.get("matchExpressions") or []) for each in terms)


def charted(world: World) -> Callable[[Any], Refused | None]:
    """Return the rule by which controllers write of pods and ConfigMaps only what their charts let them.

    The charts' fence lets them change nothing of a pod but its deletion cost.
    """

    def rule(request: Any) -> Refused | None:
        full = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        if full not in _FENCED or request.verb not in ("patch", "update"):
            return None
        team = world.team(request.by.rpartition("-")[0])
        chart = team.controller.landings if team is not None else None
        if chart is not None and full == "configmaps":
            return None
        if full == "pods" and team is not None and team.ever(prices):
            spared = b'"spec"' not in request.body
            return None if spared else Invalid("this account may change nothing in the spec of a pod")
        return Forbidden(f'{full} is forbidden: User "{request.by}" cannot {request.verb} resource "{full}"')

    return rule


__all__ = [
    "POLICY", "VERSION", "Landings", "charted", "data_of", "found", "install", "label_of", "led", "manifest", "map_of",
    "policy_of",
]  # fmt: skip
