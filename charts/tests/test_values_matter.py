"""No value is without effect: each is changed alone, while everything is on, and what is rendered has to differ."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from rendering import Render

from tightship_charts.matrix import APIS, FEATURES, Values, everything, merge
from tightship_charts.places import CONTROLLERS, UMBRELLA
from tightship_charts.values import Value, defaults, leaves, own_keys
from tightship_e2e.helm import HelmError

TEXTS = {
    "300s": "301s",
    "60s": "61s",
    "75s": "76s",
    "30s": "31s",
    "15s": "14s",
    "10s": "9s",
    "40s": "41s",
    "50s": "51s",
    "2s": "1s",
    "1m": "2m",
    "Always": "Never",
    "AlwaysAllow": "IfHealthyBudget",
    "Recreate": "Initial",
    "SingleStack": "PreferDualStack",
    "None": "Default",
    "debug": "error",
    "json": "v3",
}
"""Another text for each, where not every text is allowed."""

VALUES: Mapping[str, object] = {
    "config": {},
    "dryRun": True,
    "extraArgs": [],
    "extraObjects": [],
    "global.dryRun": True,
    "global.logFormat": "v3",
    "global.logLevel": "error",
    "hostUsers": True,
    "http.extraPorts": [5001],
    "image.digest": "",
    "minimumReplicasLowerBound": 4,
    "networkPolicy.egress.apiServerPorts": [444],
    "networkPolicy.egress.dnsPorts": [54],
    "podDisruptionBudget.maxUnavailable": 2,
    "podDisruptionBudget.minAvailable": 1,
    "prometheusRule.alerts": {"NodeCompactorDown": {"enabled": False}},
    "rbac.additionalRules": [],
    "service.ipFamilies": ["IPv6"],
    "startupProbe": {"enabled": True},
    "strategy": {"type": "Recreate"},
}
"""Another value, where the kind alone does not say what is allowed."""

_PODS: Values = {"podMonitor": FEATURES["pod monitor"]["podMonitor"], "serviceMonitor": {"enabled": False}}
NEEDED: Mapping[str, Values] = {
    "global.dryRun": {"dryRun": None, "global": {"dryRun": False}},
    "global.logFormat": {"log": {"format": ""}},
    "global.logLevel": {"log": {"level": ""}},
    "image.registry": {"global": {"imageRegistry": ""}},
    "image.tag": {"image": {"digest": ""}},
    "kubeconfig.key": {"kubeconfig": {"secretName": "there"}},
    "leaderElection.enabled": {"replicaCount": 1, "podDisruptionBudget": {"minAvailable": None}},
    "podDisruptionBudget.maxUnavailable": {"podDisruptionBudget": {"minAvailable": None}},
    "podMonitor": _PODS,
    "fullnameOverride": {},
}
"""What must be as it is not while everything is on, for a value or all under it to matter."""


def other(value: object) -> object:
    """Return something else of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return TEXTS.get(value, f"{value}x")
        case list():
            return [other(each) for each in value] if value else [{"other": "x"}]
        case dict():
            return {**value, "other": "x"}
        case _:
            return 1


def at(values: Mapping[str, object], path: tuple[str, ...]) -> object:
    within: object = values
    for key in path:
        within = within.get(key) if isinstance(within, Mapping) else None
    return within


def with_at(values: Values, path: tuple[str, ...], value: object) -> Values:
    changed = copy.deepcopy(values)
    within = changed
    for key in path[:-1]:
        within = within.setdefault(key, {})
    within[path[-1]] = value
    return changed


@pytest.mark.takes(8)
@pytest.mark.parametrize("chart", [*CONTROLLERS, UMBRELLA])
def test_no_value_is_without_effect(render: Render, chart: str) -> None:
    base = everything(chart)
    if chart == UMBRELLA:
        # What is global gives way to what is a controller's own.
        for controller in CONTROLLERS:
            base[controller] |= {"dryRun": None, "log": {}}
        base["grafanaDashboard"]["namespace"] = ""

    known: dict[bytes, bytes] = {}

    def text(values: Values) -> bytes:
        key = msgspec.json.encode(values)
        if key not in known:
            rendered = render(chart, values, apis=APIS)
            known[key] = msgspec.json.encode([*rendered.objects, *rendered.hooks])
        return known[key]

    def trouble(value: Value) -> str:
        needed = NEEDED.get(value.dotted, NEEDED.get(value.path[0], {}))
        before = merge(base, needed) if needed.keys() <= defaults(chart).keys() else base
        now = at(merge(defaults(chart), before), value.path)
        changed = VALUES[value.dotted] if value.dotted in VALUES else other(now)
        try:
            return "no effect" if text(with_at(before, value.path, changed)) == text(before) else ""
        except HelmError as error:
            return f"{now!r} to {changed!r}: {str(error).splitlines()[-1]}"

    text(base)
    # What charts share is the same text (see test_generated.py) and the same templates in all of them.
    every = [each for each in leaves(chart) if chart in {CONTROLLERS[0], UMBRELLA} or each.path[0] in own_keys(chart)]
    with ThreadPoolExecutor(2) as pool:
        troubles = pool.map(trouble, every)
        assert {each.dotted: what for each, what in zip(every, troubles, strict=True) if what} == {}


@pytest.mark.parametrize("chart", [*CONTROLLERS, UMBRELLA])
def test_every_value_is_documented(chart: str) -> None:
    assert [each.dotted for each in leaves(chart) if not each.description] == []
