"""Steps of those who own HPAs, and of what else writes to them."""

from __future__ import annotations

from random import Random
from typing import Any

from tightship_simulator.api.errors import Refused
from tightship_testkit.disasters.drawing import MissingError, draws, named, one_of, share
from tightship_testkit.disasters.floors.market import HPA, SHOP, Scale
from tightship_testkit.disasters.floors.spec import PREFIX, STATE, Autoscaler, text_of
from tightship_testkit.disasters.registry import Args, step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.team import CONFIG_MAPS
from tightship_testkit.disasters.world import World
from tightship_testkit.virtual import Machine

Json = dict[str, Any]
GITOPS = "gitops"
"""The author of who sets bounds back."""
SCALER = "hpa-scaler"
HPA_NAME = draws(hpa=named(lambda scenario: scenario.floors.autoscalers if scenario.floors is not None else ()))


def _spec(world: World, hpa: str) -> Autoscaler:
    for each in world.market.floors.autoscalers if world.market is not None else ():
        if each.name == hpa:
            return each
    raise MissingError


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


def _bounds(rng: Random, _: Scenario) -> Args:
    which = rng.choice(("least", "least", "most", "both"))
    least = rng.choice((1, 2, 4, 8, 15, 30, 60)) if which != "most" else 0
    return {"least": least, "most": rng.choice((6, 12, 30, 80)) if which != "least" else 0}


@step(HPA_NAME, _bounds, weight=0)
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


@step(HPA_NAME, notes=one_of(*_EDITS), seconds=one_of(20.0, 60.0, 150.0), weight=0)
async def hpa_annotated(world: World, *, hpa: str, notes: Args, seconds: float) -> None:
    """A person changes annotations of an HPA, not always to what can be read, and back after a while."""
    old = world.thing(HPA, hpa, SHOP)["metadata"].get("annotations") or {}
    given = {f"{PREFIX}-{name}": str(text) for name, text in notes.items()}
    world.tell(f"a person annotates {hpa}: {notes}")
    _changed(world, hpa, {}, dict(given))
    await world.pause(seconds)
    _changed(world, hpa, {}, {key: old.get(key) for key in given})


@step(HPA_NAME, kind=one_of("rate", "rule", "gauge", "by", "rate-fallback"), weight=0)
def query_changed(world: World, *, hpa: str, kind: str) -> None:
    """A person has an HPA follow another query of the same traffic."""
    spec = _spec(world, hpa)
    world.tell(f"a person has {hpa} follow a query of kind {kind}")
    _changed(world, hpa, {}, {f"{PREFIX}-prometheus-query": text_of(kind, spec.app)})


@step(HPA_NAME, how=one_of("false", "removed", "all-removed"), seconds=one_of(3.0, 25.0, 60.0, 1000.0), weight=0)
async def hpa_opts_out(world: World, *, hpa: str, how: str, seconds: float) -> None:
    """A person opts an HPA out, and in again later unless the story is over."""
    notes = world.thing(HPA, hpa, SHOP)["metadata"].get("annotations") or {}
    old = {key: text for key, text in notes.items() if key.startswith(PREFIX) and key != STATE}
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


@step(HPA_NAME, seconds=one_of(0.0, 2.0, 30.0), least=one_of(2, 5, 20), weight=0)
async def hpa_recreated(world: World, *, hpa: str, seconds: float, least: int) -> None:
    """A person deletes an HPA, and makes it anew under its name, without what the controller wrote on it."""
    found = world.thing(HPA, hpa, SHOP)
    world.delete(HPA, hpa, SHOP)
    await world.pause(seconds)
    if world.store.find(HPA, hpa, SHOP) is not None:
        return
    notes = {key: text for key, text in (found["metadata"].get("annotations") or {}).items() if key != STATE}
    spec = {**found["spec"], "minReplicas": min(least, found["spec"]["maxReplicas"])}
    world.tell(f"a person makes {hpa} anew, with minReplicas {spec['minReplicas']}")
    world.store.create(HPA, {"metadata": {"name": hpa, "namespace": SHOP, "annotations": notes}, "spec": spec})


@step(HPA_NAME, every=one_of(3.0, 7.0, 15.0), seconds=one_of(30.0, 90.0, 150.0), weight=0, author=GITOPS)
async def bounds_set_back(world: World, *, hpa: str, every: float, seconds: float) -> None:
    """Something that applies a manifest again and again sets the bounds back to what they were in the beginning."""
    spec = _spec(world, hpa)
    world.tell(f"{GITOPS} applies {hpa} every {every:g} s for {seconds:g} s")
    end = world.now + seconds
    while not world.quiet and world.now < end:
        _changed(world, hpa, {"minReplicas": spec.least, "maxReplicas": spec.most})
        await world.pause(every)


@step(HPA_NAME, seconds=one_of(20.0, 60.0), weight=0)
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


def _with_scaler(_: Random, scenario: Scenario) -> Args:
    if scenario.controller(SCALER) is None:
        raise MissingError
    return {}


_WAYS = ("no-yaml", "unknown-key", "bad-value", "servers-gone", "server-elsewhere", "deleted")


@step(_with_scaler, how=one_of(*_WAYS), seconds=one_of(15.0, 60.0, 120.0), weight=0)
async def scaler_configured(world: World, *, how: str, seconds: float) -> None:
    """A person changes the hpa-scaler's ConfigMap, not always to what can be read, and back after a while."""
    team = world.team_of(SCALER)
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
            world.delete("ConfigMap", name, namespace)
    await world.pause(seconds)
    world.configure(team, good)


@step(_with_scaler, force=share(0.7), opt_out=share(0.3), weight=0)
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
