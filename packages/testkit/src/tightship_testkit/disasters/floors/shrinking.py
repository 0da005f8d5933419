"""Floors that lack something, for stories that are to be short; and what is wrong with those of a story file."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tightship_testkit.disasters.floors.spec import App, Autoscaler, Floors

_NEEDED = frozenset({"prometheus-query", "requests-per-replica"})


def shorter(floors: Floors) -> Iterator[Floors]:
    """Yield floors that lack an HPA, an annotation, targets, or some of the traffic's ups and downs."""
    for number in range(len(floors.autoscalers)):
        yield _used(floors, [*floors.autoscalers[:number], *floors.autoscalers[number + 1 :]])
    for number, each in enumerate(floors.autoscalers):
        for note in sorted(each.notes.keys() - _NEEDED):
            notes = {name: text for name, text in each.notes.items() if name != note}
            yield _with_autoscaler(floors, number, msgspec.structs.replace(each, notes=notes))
    for number, app in enumerate(floors.apps):
        if app.targets > 1:
            yield _with_app(floors, number, msgspec.structs.replace(app, targets=1))
        if len(app.points) > 1:
            yield _with_app(floors, number, msgspec.structs.replace(app, points=app.points[:1]))
            yield _with_app(floors, number, msgspec.structs.replace(app, points=app.points[::2]))


def problem(floors: Floors) -> str:
    """Return what is wrong with *floors*, empty where nothing is."""
    apps = {each.name for each in floors.apps}
    for each in floors.autoscalers:
        if each.app not in apps:
            return f"HPA {each.name!r} is of app {each.app!r}; allowed are {', '.join(sorted(apps)) or 'none'}"
    for app in floors.apps:
        if app.targets < 1 or app.requests < 0:
            return f"app {app.name!r}: allowed are targets from 1 on, and requests from 0 on"
    return "" if any(each.name == "default" for each in floors.sources) else "there is no source called 'default'"


def _used(floors: Floors, autoscalers: list[Autoscaler]) -> Floors:
    """Return *floors* with these HPAs, and no application that none of them is of."""
    names = {each.app for each in autoscalers}
    apps = [each for each in floors.apps if each.name in names]
    return msgspec.structs.replace(floors, autoscalers=autoscalers, apps=apps)


def _with_autoscaler(floors: Floors, number: int, changed: Autoscaler) -> Floors:
    found = [*floors.autoscalers]
    found[number] = changed
    return msgspec.structs.replace(floors, autoscalers=found)


def _with_app(floors: Floors, number: int, changed: App) -> Floors:
    found = [*floors.apps]
    found[number] = changed
    return msgspec.structs.replace(floors, apps=found)


__all__ = ["problem", "shorter"]
