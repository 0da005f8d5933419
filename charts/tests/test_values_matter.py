"""No value is without effect: each is changed while everything is on, and what is rendered has to differ.

Where a value may be any text, many are changed at once, each to one that is found again; the others alone.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from rendering import Render

from tightship_charts.matrix import ALL_APIS, FEATURES, Values, everything, merge
from tightship_charts.places import CONTROLLERS, NODE_CONTROLLERS, UMBRELLA
from tightship_charts.schema import KINDS
from tightship_charts.values import Value, defaults, leaves, own_keys
from tightship_e2e.helm import HelmError

VALUES: Mapping[str, object] = {
    "config": {},
    "extraObjects": [],
    "global.compatibility.openshift.adaptSecurityContext": "force",
    "global.dryRun": False,
    "global.replicaCount": 3,
    "global.apiVersions": [],
    "image.digest": "",
    "prometheusRule.alerts": {"NodeCompactorDown": {"enabled": False}},
    "startupProbe": {"enabled": True},
    "strategy": {"type": "Recreate"},
}
"""Another value, where neither the kind nor the type says what is allowed."""

_PODS: Values = {"podMonitor": FEATURES["pod monitor"]["podMonitor"], "serviceMonitor": {"enabled": False}}
UNSEEN = {f"{each}.giveBack.leftToParent" for each in NODE_CONTROLLERS}
"""Values that change which list an object is in, and no object: see test_hooks.py."""

MONITORS = ("serviceMonitor", "podMonitor", "prometheusRule")
NEEDED: Mapping[str, Values] = {
    "giveBack": {"config": {"steering": "taints", "deletionCost": False}},
    "global.dryRun": {"dryRun": None},
    "global.podMonitor.labels": _PODS,
    "global.priorityClassName": {"priorityClassName": ""},
    "global.replicaCount": {"replicaCount": None},
    **{
        f"global.{key}.enabled": {key: {"enabled": None}}
        for key in ("networkPolicy", "prometheusRule", "serviceMonitor")
    },
    "global.podMonitor.enabled": {**_PODS, "podMonitor": {**_PODS["podMonitor"], "enabled": None}},
    "global.clusterName": {"clusterName": ""},
    "global.logFormat": {"log": {"format": ""}},
    "global.logLevel": {"log": {"level": ""}},
    "image.registry": {"global": {"imageRegistry": ""}},
    "image.tag": {"image": {"digest": ""}},
    "kubeconfig.key": {"kubeconfig": {"secretName": "there"}},
    "leaderElection.enabled": {"replicaCount": 1, "podDisruptionBudget": {"minAvailable": None}},
    "podDisruptionBudget.maxUnavailable": {"podDisruptionBudget": {"minAvailable": None}},
    "podMonitor": _PODS,
    "rbac.create": {"config": {"steering": "taints"}},
    "fullnameOverride": {},
}
"""What must be as it is not while everything is on, for a value or all under it to matter."""


def other(value: object, kind: str = "") -> object:
    """Return something else of the same kind, or of the same type."""
    words = kind.removeprefix("list of ").split("|") if "|" in kind else KINDS.get(kind, {}).get("enum", ())
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str() if words:
            return [each for each in words if each not in ("", value)][-1]
        case str() if "duration" in kind:
            return re.sub(r"\d+", lambda number: str(int(number[0]) + 1), value)
        case str():
            return f"{value}x"
        case list():
            return [other(each, kind) for each in value] if value else [{"other": "x"}]
        case dict():
            return {**value, "other": "x"}
        case None if "bool" in kind:
            return True
        case _:
            return 1


def marked(value: object, kind: str, mark: str) -> object:
    """Return something of the same type with *mark* in it, or None where that can't be."""
    match value:
        case str() if "|" not in kind and kind not in KINDS and "duration" not in kind:
            return f"{value}{mark}"
        case dict():
            return {**value, "other": mark}
        case []:
            return [{"other": mark}]
        case list():
            changed = [marked(each, kind, mark) for each in value]
            return changed if all(changed) else None
        case _:
            return None


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
    base, needs = merge(everything(chart), {"global": {"apiVersions": list(ALL_APIS)}}), NEEDED
    if chart == UMBRELLA:
        # What is global gives way to what is a controller's own.
        for controller in CONTROLLERS:
            base[controller] |= {"dryRun": None, "log": {}, "priorityClassName": "", "replicaCount": None}
            for key in ("networkPolicy", "prometheusRule", "serviceMonitor"):
                base[controller][key]["enabled"] = None
            base[controller]["podMonitor"] = {**_PODS["podMonitor"], "enabled": None}
        base["grafanaDashboard"]["namespace"] = ""
        needs = {**NEEDED, **{f"global.{key}.labels": {"global": {key: {"enabled": True}}} for key in MONITORS}}

    known: dict[bytes, bytes] = {}

    def text(values: Values) -> bytes:
        key = msgspec.json.encode(values)
        if key not in known:
            rendered = render(chart, values)
            known[key] = msgspec.json.encode([*rendered.objects, *rendered.hooks])
        return known[key]

    def trouble(value: Value) -> str:
        needed = needs.get(value.dotted, needs.get(value.path[0], {}))
        before = merge(base, needed) if needed.keys() <= defaults(chart).keys() else base
        now = at(merge(defaults(chart), before), value.path)
        changed = VALUES[value.dotted] if value.dotted in VALUES else other(now, value.kind)
        try:
            return "no effect" if text(with_at(before, value.path, changed)) == text(before) else ""
        except HelmError as error:
            return f"{now!r} to {changed!r}: {str(error).splitlines()[-1]}"

    def shown(marks: list[tuple[Value, str, object]]) -> set[str]:
        """Which of these values are seen in what is rendered with all of their marks at once, or with parts of them."""
        values = base
        for value, _, changed in marks:
            values = with_at(values, value.path, changed)
        try:
            said = text(values).decode()
        except HelmError:
            half = len(marks) // 2
            return shown(marks[:half]) | shown(marks[half:]) if half else set()
        return {value.dotted for value, mark, _ in marks if mark in said}

    # What charts share is the same text (see test_generated.py) and the same templates in all of them.
    every = [each for each in leaves(chart) if chart in {CONTROLLERS[0], UMBRELLA} or each.path[0] in own_keys(chart)]
    marks: list[tuple[Value, str, object]] = []
    for number, each in enumerate(every):
        if each.dotted not in VALUES and each.dotted not in needs and each.path[0] not in needs:
            mark = f"zq{number}qz"
            changed = marked(at(merge(defaults(chart), base), each.path), each.kind, mark)
            marks += [] if changed is None else [(each, mark, changed)]
    seen = shown(marks)
    every = [each for each in every if each.dotted not in seen]
    with ThreadPoolExecutor(2) as pool:
        troubles = pool.map(trouble, every)
        found = {each.dotted: what for each, what in zip(every, troubles, strict=True) if what}
        assert found.keys() - UNSEEN == set(), found


@pytest.mark.parametrize("chart", [*CONTROLLERS, UMBRELLA])
def test_every_value_is_documented(chart: str) -> None:
    assert [each.dotted for each in leaves(chart) if not each.description] == []
