"""Makes the floors' part of a scenario from a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from tightship_testkit.disasters.floors.market import PORT
from tightship_testkit.disasters.floors.spec import App, Autoscaler, Floors, Source, text_of
from tightship_testkit.disasters.registry import FAULTS, STEPS, Args
from tightship_testkit.disasters.scenario import Controller, Fault, Scenario, Step, Workload

PROGRAM = "hpa-scaler"
STORY = 400.0
QUIET = 300.0
INTERVAL = 10.0
_LEVEL = 60.0
"""Seconds before the end of the story from which traffic is level."""

WEIGHTS = {
    "server-answers-badly": 6.0,
    "server-restarts": 3.0,
    "server-clock-off": 1.0,
    "samples-lag": 1.0,
    "targets-away": 5.0,
    "targets-relabelled": 2.0,
    "counters-reset": 2.0,
    "sample-spikes": 1.5,
    "counters-alternate": 0.7,
    "samples-dated-wrong": 0.7,
    "bounds-edited": 3.0,
    "hpa-annotated": 3.0,
    "query-changed": 1.0,
    "hpa-opts-out": 3.0,
    "hpa-recreated": 1.5,
    "bounds-set-back": 2.0,
    "target-at-zero": 0.7,
    "scaler-configured": 1.5,
    "floors-released": 1.5,
    "kill": 3.0,
    "freeze": 2.0,
    "restart": 1.0,
    "dry-run": 0.5,
    "outage": 1.5,
    "take-rights": 1.0,
    "etcd-restored": 0.7,
}
"""How often a kind of step is drawn for floors, beside the others'."""


def floors_only(seed: int) -> Scenario:
    """Return a scenario of HPAs without nodes."""
    rng = Random(f"floors {seed}")  # noqa: S311 - a simulation
    scenario = Scenario(seed=seed, story=STORY, quiet=QUIET, latency=rng.choice((0.0, 0.01, 0.05)))
    return with_floors(scenario, rng)


def with_floors(scenario: Scenario, rng: Random) -> Scenario:
    """Return *scenario* with HPAs, an hpa-scaler, and what happens to them."""
    floors = _floors(rng, scenario)
    story = max(STORY, scenario.story)
    controllers = [*scenario.controllers, _controller(rng)]
    made = msgspec.structs.replace(scenario, floors=floors, controllers=controllers, story=story, quiet=QUIET)
    steps = sorted([*made.steps, *_steps(rng, made)], key=lambda each: each.at)
    whose = {"programs": [PROGRAM]}
    found = drawn_faults(
        rng, made, counts=(0, 0, 1, 1, 2), last=made.story - 60, shares=(0.1, 0.3, 0.5, 1.0), whose=lambda: whose
    )
    return msgspec.structs.replace(made, steps=steps, faults=[*made.faults, *found])


def _floors(rng: Random, scenario: Scenario) -> Floors:
    sources = [Source(name="default", lookback=rng.choice((30.0, 300.0, 300.0)))]
    if rng.random() < 0.3:
        sources.append(Source(name="second"))
    if rng.random() < 0.05:
        sources[0] = msgspec.structs.replace(sources[0], past=rng.choice((2.0, 20.0)))
    count = rng.choice((1, 2, 2, 3, 3, 4, 5, 6))
    apps: list[App] = []
    autoscalers: list[Autoscaler] = []
    per_replica = 1.0
    free = [each for each in scenario.workloads if each.kind == "Deployment"]
    for number in range(count):
        if not apps or rng.random() < 0.75:
            per_replica = rng.choice((1.0, 2.5, 10.0, 50.0))
            apps.append(_app(rng, f"a{len(apps)}", per_replica * rng.randint(6, 24)))
        of = free.pop() if free and rng.random() < 0.7 else None
        autoscalers.append(_autoscaler(rng, f"h{number}", apps[-1], sources, of, per_replica=per_replica))
    return Floors(apps=apps, sources=sources, autoscalers=autoscalers)


def _app(rng: Random, name: str, requests: float) -> App:
    end = STORY - _LEVEL
    at = sorted(rng.uniform(0.0, end) for _ in range(rng.randint(2, 6)))
    match rng.choice(("level", "level", "wave", "wave", "steps", "night", "growth")):
        case "level":
            points = [(0.0, 1.0)]
        case "wave":
            period, depth = rng.choice((60.0, 150.0, 300.0)), rng.choice((0.2, 0.5, 0.9))
            points = [
                (time, 1 + depth * math.sin(2 * math.pi * time / period) * 0.9) for time in range(0, int(end), 10)
            ]
        case "steps":
            points = [(0.0, 1.0)]
            for time in at:
                points += [(time, points[-1][1]), (time + 0.1, rng.choice((0.3, 0.7, 1.0, 1.5, 2.5)))]
        case "night":
            begin, until = rng.uniform(0, end / 2), rng.uniform(end / 2, end)
            low = rng.choice((0.0, 0.1, 0.3))
            points = [(begin, 1.0), (begin + 20, low), (until, low), (until + 20, 1.0)]
        case _:
            points = [(0.0, 0.5), (end, rng.choice((1.0, 2.0)))]
    return App(
        name=name,
        requests=requests,
        targets=rng.choice((1, 2, 3, 4)),
        points=[(round(time, 1), round(factor, 3)) for time, factor in points],
    )


def _autoscaler(
    rng: Random, name: str, app: App, sources: list[Source], of: Workload | None, *, per_replica: float
) -> Autoscaler:
    kind = rng.choice(("rate", "rate", "rate", "rate", "rule", "gauge", "by", "rate-fallback", "gauge-fallback"))
    notes = {
        "prometheus-query": text_of(kind, app.name, rng.choice((20, 30, 30, 60))),
        "requests-per-replica": f"{per_replica:g}",
    }
    need = math.ceil(app.requests / per_replica)
    least, most = rng.choice((1, 2, 3, 5, need, need + 5)), rng.choice((need, 2 * need, 60))
    maybe = {
        "delta": rng.choice(("1", "-1", "2.5")),
        "scale-down-max-ratio": rng.choice(("0.1", "0.2", "0.5")),
        "minimum-replicas": rng.choice(("1", "2", "5")),
        "maximum-replicas": str(rng.choice((need, 2 * need))),
        "deadband": rng.choice(("1", "2")),
        "scale-up-max-pods": rng.choice(("2", "5")),
        "several-series": "error",
        "max-replicas-policy": "clamp",
    }
    notes |= {note: text for note, text in maybe.items() if rng.random() < 0.15}
    if kind in ("rule", "gauge", "gauge-fallback") and rng.random() < 0.4:
        notes["query-range"] = "30s"
    elif rng.random() < 0.15:
        notes["lowering-window"] = rng.choice(("0", "60s", "90s"))
    if kind == "rate-fallback" and rng.random() < 0.7:
        notes["query-range"] = "30s"
    if rng.random() < 0.1 and kind == "rate":
        notes["prometheus-query-2"] = text_of("gauge", app.name)
        notes["requests-per-replica-2"] = f"{per_replica * 1.2:g}"
    if len(sources) > 1 and rng.random() < 0.5:
        notes["prometheus-server"] = "second"
    if of is not None:
        # Its pods need room: no spike is to fill the cluster.
        notes |= {"max-replicas-policy": "clamp", "requests-per-replica": f"{app.requests / 4:g}"}
        least, most = min(least, 2), 8
    return Autoscaler(
        name=name,
        app=app.name,
        least=min(least, most),
        most=most,
        at=min(most, need) if rng.random() < 0.5 and of is None else 0,
        notes=notes,
        enabled=rng.random() < 0.9,
        demand=rng.choice((0.4, 0.7, 0.9)),
        of=of.name if of is not None else "",
    )


def _controller(rng: Random) -> Controller:
    variables = {
        "INTERVAL": f"{INTERVAL:g}",
        "CYCLE_DEADLINE": "30s",
        "LEASE_DURATION": "15s",
        "LEASE_RENEW_DEADLINE": "10s",
        "LEASE_RETRY_PERIOD": "4s",
        "REQUEST_TIMEOUT": "5s",
        "HTTP_PORTS": "9101",
        "PROMETHEUS_SERVER_URL": f"http://127.0.0.1:{PORT}",
    }
    if rng.random() < 0.15:
        variables["WATCH_HPAS"] = "true"
    if rng.random() < 0.05:
        variables["DRY_RUN"] = "true"
    settings: Args = {
        "prometheusServers": {
            "default": {"timeout": "4s"},
            "second": {"url": f"http://127.0.0.1:{PORT + 1}", "timeout": "4s"},
        },
        "queryDeadline": 8,
        "circuitBreakerPause": rng.choice((5, 10, 30)),
    }
    if rng.random() < 0.4:
        settings["correlatedDropMinimumCount"] = rng.choice((2, 3))
    if rng.random() < 0.2:
        settings["contestPause"] = rng.choice((30, 60))
    skews = [rng.choice((0.0, 0.0, 0.3, -0.5)) for _ in range(rng.choice((1, 1, 2)))]
    return Controller(program=PROGRAM, skews=skews, settings=settings, variables=variables)


def _steps(rng: Random, scenario: Scenario) -> list[Step]:
    kinds = sorted(WEIGHTS)
    found: list[Step] = []
    for _ in range(rng.choice((1, 2, 3, 4, 6, 8))):
        kind = rng.choices(kinds, [WEIGHTS[each] for each in kinds])[0]
        args = STEPS[kind].draw(rng, scenario)
        if args is None:
            continue
        ours = {
            "skew": rng.choice((0.0, 0.0, 0.0, 0.5, -0.5, 5.0, -5.0)),
            "program": PROGRAM,
            "programs": [PROGRAM],
            "moment": "",
            "resource": rng.choice(("horizontalpodautoscalers", "leases", "events", "configmaps")),
        }
        args |= {name: value for name, value in ours.items() if name in args}
        found.append(Step(at=round(rng.uniform(30, scenario.story - 60), 1), kind=kind, args=args))
    return found


def drawn_faults(
    rng: Random,
    scenario: Scenario,
    *,
    counts: Sequence[int],
    last: float,
    shares: Sequence[float],
    whose: Callable[[], Args],
) -> list[Fault]:
    """Draw one of *counts* faults that begin until the time *last*; *whose* draws which requests meet each."""
    kinds = sorted(FAULTS)
    found: list[Fault] = []
    for _ in range(rng.choice(counts)):
        kind = rng.choices(kinds, [FAULTS[each].weight for each in kinds])[0]
        args = FAULTS[kind].draw(rng, scenario)
        if args is None:
            continue
        at = round(rng.uniform(0, last), 1)
        until = round(min(scenario.story, at + rng.choice((5, 20, 60, 150))), 1)
        share, meets = rng.choice(shares), whose()
        found.append(Fault(at=at, until=until, kind=kind, share=share, **meets, dice=rng.getrandbits(30), args=args))
    return found


__all__ = ["WEIGHTS", "drawn_faults", "floors_only", "with_floors"]
