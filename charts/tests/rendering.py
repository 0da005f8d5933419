"""What a chart has rendered, by kind and name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tightship_charts.matrix import Values, features
from tightship_charts.places import CONTROLLERS, NODE_CONTROLLERS
from tightship_e2e.renderings import HOOK, Renderings

EVERYTHING = "everything"

each_chart = pytest.mark.parametrize("chart", CONTROLLERS)
each_node_chart = pytest.mark.parametrize("chart", NODE_CONTROLLERS)

Json = dict[str, Any]


class Rendered:
    """The objects of a release, and its *hooks*, which are there for a while, or not at all."""

    def __init__(self, rendered: list[Json]) -> None:
        self.hooks = [each for each in rendered if HOOK in (each["metadata"].get("annotations") or {})]
        self.objects = [each for each in rendered if each not in self.hooks]

    def of(self, kind: str) -> list[Json]:
        """All of one kind."""
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind: str) -> Json:
        """The only one of its kind."""
        found = self.of(kind)
        assert len(found) == 1, f"{len(found)} objects of kind {kind}"
        return found[0]

    @property
    def kinds(self) -> set[str]:
        return {each["kind"] for each in self.objects}

    @property
    def pod(self) -> Json:
        """The spec of the controller's pods."""
        spec: Json = self.one("Deployment")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Json:
        """The controller's container."""
        first: Json = self.pod["containers"][0]
        return first

    @property
    def env(self) -> dict[str, str]:
        """Variables of the controller with a plain value."""
        return {each["name"]: each["value"] for each in self.container["env"] if "value" in each}

    def rules(self, kind: str = "ClusterRole") -> list[Json]:
        """The rules of all roles of one kind."""
        return [rule for role in self.of(kind) for rule in role["rules"]]

    def rights(self) -> set[tuple[str, str]]:
        """(verb, resource) of all rules of all roles."""
        return set(_rights([*self.rules(), *self.rules("Role")]))


class Render:
    """Renders charts of the folder *charts*."""

    def __init__(self, charts: Path, renderings: Renderings) -> None:
        self._charts = charts
        self._renderings = renderings

    def __call__(
        self,
        chart: str,
        values: Values | None = None,
        *,
        release: str = "rel",
        namespace: str = "ns",
        apis: Sequence[str] | None = (),
        kubernetes: str = "",
        tests: bool = False,
    ) -> Rendered:
        """Render *chart* with *values*, its *tests* among its hooks or not.

        *apis* and *kubernetes* are those of the cluster, if there is one: see :meth:`Helm.template`.
        """
        reported = {"release": release, "namespace": namespace, "kubernetes": kubernetes}
        return Rendered(self._renderings(self._charts / chart, values, **reported, apis=apis, tests=tests))


Feature = Callable[[str, str], Rendered]
"""Renders a chart with the values of one feature, or with ``everything``, once."""


def each_case(test: Callable[[Feature, str, str], None]) -> Callable[[Feature, str], None]:
    """Run *test* on every chart of a controller, there with every feature; what fails is noted with the feature."""

    def every(feature: Feature, chart: str) -> None:
        for name in (*features(chart), EVERYTHING):
            try:
                test(feature, chart, name)
            except Exception as error:
                error.add_note(f"{chart}, {name}")
                raise

    every.__name__, every.__doc__, every.__module__ = test.__name__, test.__doc__, test.__module__
    marked: Callable[[Feature, str], None] = each_chart(every)
    return marked


def _rights(rules: list[Json]) -> Iterator[tuple[str, str]]:
    for rule in rules:
        for resource in rule.get("resources", ()):
            for verb in rule["verbs"]:
                yield verb, resource
