"""Moving here: what the page names exists, and its example of the older behaviour is read as it says."""

from __future__ import annotations

import re

import pytest
import yaml
from rendering import Render

import node_compactor.controller
from tightship_charts.configuration import config_keys
from tightship_charts.places import CHARTS, CONTROLLERS
from tightship_charts.values import documented

DOCS = CHARTS.parent / "docs"
PAGE = (DOCS / "moving.md").read_text(encoding="utf-8")


def known(chart: str) -> set[str]:
    config = {
        f"config.{'.'.join(key.path[:depth])}" for key in config_keys(chart) for depth in range(1, len(key.path) + 1)
    }
    return {each.dotted for each in documented(chart)} | config


@pytest.mark.parametrize("chart", CONTROLLERS)
def test_every_value_that_it_names_exists(chart: str) -> None:
    part = PAGE.partition(f"\n### What each key of the older {chart} becomes\n")[2].partition("\n#")[0]
    rows = [row.split(" | ")[1] for row in part.splitlines() if row.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`(config\.[a-zA-Z.]+)(?:[:=][^`]*)?`", row)}
    assert named
    assert named <= known(chart)


def test_its_example_of_the_older_behaviour_is_a_configuration(render: Render) -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    values = yaml.safe_load(text)
    data = render("node-compactor", values).one("ConfigMap")["data"]
    settings = node_compactor.controller.COMPACTOR.configured(data, {})
    assert (settings.minimum_age, settings.marked_for, settings.after_added) == (0, 600, 0)
    assert settings.pools["mynodepool"].required_count == 5


@pytest.mark.parametrize("chart", CONTROLLERS)
def test_it_names_every_right_to_change_nodes_pods_and_hpas(render: Render, chart: str) -> None:
    part = PAGE.partition("\n### Rights\n")[2].partition("\n## ")[0]
    rows = [line for line in part.splitlines() if line.count(" | ") > 1]
    for rule in render(chart, {"dryRun": False}).one("ClusterRole")["rules"]:
        for verb in {"create", "patch", "update", "delete"} & set(rule["verbs"]):
            for resource in set(rule["resources"]) - {"events"}:
                reported = [row for row in rows if re.search(rf"\b{resource}\b.*`{verb}`", row.split(" | ")[1])]
                assert reported, (resource, verb)
