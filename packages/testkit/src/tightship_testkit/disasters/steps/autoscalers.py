"""Steps of those who own HPAs, and of what else writes to them."""

from __future__ import annotations

from random import Random
from typing import Any

from tightship_simulator.api.errors import Refused
from tightship_testkit.disasters.floors.market import HPA, SHOP, Scale
from tightship_testkit.disasters.floors.spec import PREFIX, STATE, text_of
from tightship_testkit.disasters.registry import Args, step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.team import CONFIG_MAPS
from tightship_testkit.disasters.world import World
from tightship_testkit.virtual import Machine

Json = dict[str, Any]
GITOPS = "gitops"
"""The author of who sets bounds back."""
SCALER = "hpa-scaler"


def _hpa(rng: Random, scenario: Scenario) -> str | None:
    if scenario.floors is None or not scenario.floors.autoscalers:
        return None
    return rng.choice(scenario.floors.autoscalers).name


def _changed(world: World, name: str, spec: Json, notes: dict[str, str | None] | None = None) -> bool:
    """Change bounds and annotations of an HPA; return whether the API server takes it."""

    def change(each: Json) -> None:
        each["spec"].update(spec)
        own = each["metadata"].setdefault("annotations", {})
        for key, text in (notes or {}).items():
            if text is None:
                own.pop(key, None)
            else:
                own[key] = text

    found = world.store.find(HPA, name, SHOP)
    if found is None:
        return False
    least = spec.get("minReplicas", found["spec"].get("minReplicas", 1))
    if least > spec.get("maxReplicas", found["spec"]["maxReplicas"]):
        return False  # 422
    try:
        world.store.modify(HPA, name, SHOP, change)
    except Refused:
        return False
    return True


def _bounds(rng: Random, scenario: Scenario) -> Args | None:
    name = _hpa(rng, scenario)
    if name is None:
        return None
    which = rng.choice(("least", "least", "most", "both"))
    least = rng.choice((1, 2, 4, 8, 15, 30, 60)) if which != "most" else 0
    return {"hpa": name, "least": least, "most": rng.choice((6, 12, 30, 80)) if which != "least" else 0}


@step(_bounds, weight=0)
def bounds_edited(world: World, *, hpa: str, least: int, most: int) -> None:
    """A person sets one or both bounds of an HPA, 0 for leaving it; what the API server refuses is left."""
    spec = {**({"minReplicas": least} if least else {}), **({"maxReplicas": most} if most else {})}
    taken = _changed(world, hpa, spec)
    world.tell(f"a person sets {spec} of {hpa}{'' if taken else ', which is refused'}")


_EDITS: tuple[dict[str, str], ...] = (
    {"requests-per-replica": "abc"},
    {"requests-per-replica": "0"},
    {"delta": "2"},
    {"delta": "-1"},
    {"delta": "many"},
    {"scale-down-max-ratio": "0.2"},
    {"scale-down-max-ratio": "-0.5"},
    {"minimum-replicas": "5"},
    {"minimum-replicas": "none"},
    {"maximum-replicas": "9"},
    {"max-replicas-policy": "clamp"},
    {"paused": "true"},
    {"paused-scale-down": "true"},
    {"paused-scale-up": "true"},
    {"dry-run": "true"},
    {"lowering-window": "30s"},
    {"lowering-window": "soon"},
    {"deadband": "2"},
    {"missing-data": "never"},
    {"several-series": "error"},
    {"no-such-annotation": "x"},
    {"prometheus-server": "nowhere"},
    {"prometheus-query": "sum(("},
)


def _annotated(rng: Random, scenario: Scenario) -> Args | None:
    name = _hpa(rng, scenario)
    return (
        None if name is None else {"hpa": name, "notes": rng.choice(_EDITS), "seconds": rng.choice((20.0, 60.0, 150.0))}
    )


@step(_annotated, weight=0)
async def hpa_annotated(world: World, *, hpa: str, notes: Args, seconds: float) -> None:
    """A person changes annotations of an HPA, not always to what can be read, and back after a while."""
    found = world.store.find(HPA, hpa, SHOP)
    if found is None:
        return
    old = found["metadata"].get("annotations") or {}
    given = {f"{PREFIX}-{name}": str(text) for name, text in notes.items()}
    world.tell(f"a person annotates {hpa}: {notes}")
    _changed(world, hpa, {}, dict(given))
    await world.pause(seconds)
    _changed(world, hpa, {}, {key: old.get(key) for key in given})


def _query(rng: Random, scenario: Scenario) -> Args | None:
    name = _hpa(rng, scenario)
    kind = rng.choice(("rate", "rule", "gauge", "by", "rate-fallback"))
    return None if name is None else {"hpa": name, "kind": kind}


@step(_query, weight=0)
def query_changed(world: World, *, hpa: str, kind: str) -> None:
    """A person has an HPA follow another query of the same traffic."""
    spec = next((each for each in world.market.floors.autoscalers if each.name == hpa), None) if world.market else None
    if spec is not None:
        world.tell(f"a person has {hpa} follow a query of kind {kind}")
        _changed(world, hpa, {}, {f"{PREFIX}-prometheus-query": text_of(kind, spec.app)})


def _opted(rng: Random, scenario: Scenario) -> Args | None:
    name = _hpa(rng, scenario)
    if name is None:
        return None
    how = rng.choice(("false", "removed", "all-removed"))
    return {"hpa": name, "how": how, "seconds": rng.choice((3.0, 25.0, 60.0, 1000.0))}


@step(_opted, weight=0)
async def hpa_opts_out(world: World, *, hpa: str, how: str, seconds: float) -> None:
    """A person opts an HPA out, and in again later unless the story is over."""
    found = world.store.find(HPA, hpa, SHOP)
    if found is None:
        return
    old = {
        key: text
        for key, text in (found["metadata"].get("annotations") or {}).items()
        if key.startswith(PREFIX) and key != STATE
    }
    world.tell(f"a person opts {hpa} out: {how}")
    match how:
        case "false":
            _changed(world, hpa, {}, {PREFIX: "false"})
        case "removed":
            _changed(world, hpa, {}, {PREFIX: None})
        case _:
            _changed(world, hpa, {}, dict.fromkeys(old))
    await world.pause(seconds)
    if not world.quiet:
        world.tell(f"a person opts {hpa} in again")
        _changed(world, hpa, {}, {**old, PREFIX: "true"})


def _recreated(rng: Random, scenario: Scenario) -> Args | None:
    name = _hpa(rng, scenario)
    if name is None:
        return None
    return {"hpa": name, "seconds": rng.choice((0.0, 2.0, 30.0)), "least": rng.choice((2, 5, 20))}


@step(_recreated, weight=0)
async def hpa_recreated(world: World, *, hpa: str, seconds: float, least: int) -> None:
    """A person deletes an HPA, and makes it anew under its name, without what the controller wrote on it."""
    found = world.store.find(HPA, hpa, SHOP)
    if found is None:
        return
    world.tell(f"a person deletes {hpa}")
    world.store.delete(HPA, hpa, SHOP)
    await world.pause(seconds)
    if world.store.find(HPA, hpa, SHOP) is not None:
        return
    notes = {key: text for key, text in (found["metadata"].get("annotations") or {}).items() if key != STATE}
    spec = {**found["spec"], "minReplicas": min(least, found["spec"]["maxReplicas"])}
    world.tell(f"a person makes {hpa} anew, with minReplicas {spec['minReplicas']}")
    world.store.create(HPA, {"metadata": {"name": hpa, "namespace": SHOP, "annotations": notes}, "spec": spec})


def _set_back(rng: Random, scenario: Scenario) -> Args | None:
    name = _hpa(rng, scenario)
    if name is None:
        return None
    return {"hpa": name, "every": rng.choice((3.0, 7.0, 15.0)), "seconds": rng.choice((30.0, 90.0, 150.0))}


@step(_set_back, weight=0, author=GITOPS)
async def bounds_set_back(world: World, *, hpa: str, every: float, seconds: float) -> None:
    """Something that applies a manifest again and again sets the bounds back to what they were in the beginning."""
    spec = next((each for each in world.market.floors.autoscalers if each.name == hpa), None) if world.market else None
    if spec is None:
        return
    world.tell(f"{GITOPS} applies {hpa} every {every:g} s for {seconds:g} s")
    end = world.now + seconds
    while not world.quiet and world.now < end:
        _changed(world, hpa, {"minReplicas": spec.least, "maxReplicas": spec.most})
        await world.pause(every)


def _at_zero(rng: Random, scenario: Scenario) -> Args | None:
    name = _hpa(rng, scenario)
    return None if name is None else {"hpa": name, "seconds": rng.choice((20.0, 60.0))}


@step(_at_zero, weight=0)
async def target_at_zero(world: World, *, hpa: str, seconds: float) -> None:
    """A person scales what an HPA scales to 0, which switches the HPA off, and up again later."""
    scales: list[Scale] = world.market.scales if world.market is not None else []
    for scale in scales:
        if scale.spec.name == hpa:
            world.tell(f"a person scales the target of {hpa} to 0 for {seconds:g} s")
            scale.off = True
            await world.pause(seconds)
            scale.off = False


# The controller.


def _configured(rng: Random, scenario: Scenario) -> Args | None:
    if scenario.controller(SCALER) is None:
        return None
    how = rng.choice(("no-yaml", "unknown-key", "bad-value", "servers-gone", "server-elsewhere", "deleted"))
    return {"how": how, "seconds": rng.choice((15.0, 60.0, 120.0))}


@step(_configured, weight=0)
async def scaler_configured(world: World, *, how: str, seconds: float) -> None:
    """A person changes the hpa-scaler's ConfigMap, not always to what can be read, and back after a while."""
    team = world.team(SCALER)
    if team is None:
        return
    world.tell(f"a person changes the ConfigMap of the hpa-scaler: {how}")
    good = dict(team.settings)
    servers = dict(good.get("prometheusServers") or {})
    match how:
        case "no-yaml":
            world.configure(team, "prometheusServers: {default: [")
        case "unknown-key":
            world.configure(team, '{"queryDeadlines": 3}')
        case "bad-value":
            world.configure(team, '{"contestResets": "often"}')
        case "servers-gone":
            world.configure(team, {**good, "prometheusServers": {"default": servers.get("default", {})}})
        case "server-elsewhere":
            world.configure(team, {**good, "prometheusServers": {**servers, "second": {"url": "http://127.0.0.1:9"}}})
        case _:
            name, namespace = CONFIG_MAPS[SCALER], team.controller.namespace
            if world.store.find("ConfigMap", name, namespace) is not None:
                world.store.delete("ConfigMap", name, namespace)
    await world.pause(seconds)
    world.configure(team, good)


def _released(rng: Random, scenario: Scenario) -> Args | None:
    if scenario.controller(SCALER) is None or not scenario.floors:
        return None
    return {"force": rng.random() < 0.7, "opt_out": rng.random() < 0.3}


@step(_released, weight=0)
def floors_released(world: World, *, force: bool, opt_out: bool) -> None:
    """An administrator gives all HPAs back by ``hpa-scaler release``, after they were opted out or with ``--force``."""
    if world.market is None:
        return
    if opt_out:
        for each in world.market.floors.autoscalers:
            _changed(world, each.name, {}, {PREFIX: None})
    arguments = ["release", "-A", *(["--force"] if force else [])]
    code, out, _ = Machine(world.simulation).command("hpa_scaler.cli", *arguments)
    world.tell(f"an administrator runs hpa-scaler {' '.join(arguments)}: exit {code}: {' '.join(out.split())[:200]}")


__all__ = ["GITOPS", "SCALER"]
