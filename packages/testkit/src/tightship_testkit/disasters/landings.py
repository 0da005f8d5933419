"""The pilot in a disaster: what its chart has installed, and how gated pods and its ConfigMap are read."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tightship_simulator.api.errors import Forbidden, Invalid, Refused
from tightship_testkit.disasters.scenario import Controller, Landings, Scenario
from tightship_testkit.disasters.team import prices

if TYPE_CHECKING:
    from tightship_testkit.disasters.team import Team
    from tightship_testkit.disasters.world import World

Json = dict[str, Any]

GATE = "tightship.dev/landing"
POLICY = "tightship.dev/landing-policy"
VERSION = 1
"""Of the policies that go with this controller."""
_OF_PILOT = ("configmaps", "pods", "pods/status")
THEIRS = "example.com/theirs"
"""A gate that somebody else puts on pods, and takes off after a while."""
_LETS_GO = 2.0
"""Seconds between two looks of who takes it off."""


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


def gates_of(pod: Json) -> list[str]:
    """Return the names of a pod's scheduling gates."""
    return [str(each.get("name")) for each in pod["spec"].get("schedulingGates") or []]


def gated(world: World) -> list[Json]:
    """Return the pods with our gate that are not leaving."""
    pods = world.store.list("Pod")
    return [each for each in pods if GATE in gates_of(each) and "deletionTimestamp" not in each["metadata"]]


def piloted(scenario: Scenario) -> bool:
    """Whether any controller has a pilot installed."""
    return any(each.landings is not None for each in scenario.controllers)


def charted(world: World) -> Callable[[Any], Refused | None]:
    """Return the rule by which controllers write of pods and ConfigMaps only what their charts let them.

    The charts' fence lets them nominate a node only for a pod with our gate, and with deletion costs alone it lets
    them remove no gate.
    """

    def rule(request: Any) -> Refused | None:
        full = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        if full not in _OF_PILOT or request.verb not in ("patch", "update"):
            return None
        pod = world.store.find("Pod", request.name, request.namespace) if full == "pods/status" else None
        if pod is not None and GATE not in gates_of(pod):
            return Invalid(f"this account may nominate a node only for a pod with the scheduling gate {GATE}")
        team = world.team(request.by.rpartition("-")[0])
        chart = team.controller.landings if team is not None else None
        if chart is not None and (full == "configmaps" or chart.rights == "exact"):
            return None
        if full == "pods" and team is not None and team.ever(prices):
            spared = b'"spec"' not in request.body
            return None if spared else Invalid("this account may change nothing in the spec of a pod")
        return Forbidden(f'{full} is forbidden: User "{request.by}" cannot {request.verb} resource "{full}"')

    return rule


async def take_theirs_off(world: World) -> None:
    """Take the gate of others off pods that have waited for long enough, at the end of the story all of them."""
    since: dict[str, float] = {}
    while True:
        await asyncio.sleep(_LETS_GO)
        for pod in world.store.list("Pod"):
            if THEIRS not in gates_of(pod):
                continue
            meta = pod["metadata"]
            waits = 2 + zlib.crc32(meta["uid"].encode()) % 30
            if world.now - since.setdefault(meta["uid"], world.now) >= waits or world.quiet:
                with contextlib.suppress(Refused):
                    world.store.modify("Pod", meta["name"], meta["namespace"], _without_theirs)


def _without_theirs(pod: Json) -> None:
    pod["spec"]["schedulingGates"] = [each for each in pod["spec"]["schedulingGates"] if each["name"] != THEIRS]


__all__ = [
    "GATE", "POLICY", "THEIRS", "VERSION", "Landings", "charted", "data_of", "found", "gated", "gates_of", "install",
    "manifest", "map_of", "piloted", "policy_of", "take_theirs_off",
]  # fmt: skip
