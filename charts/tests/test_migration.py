"""The migration page: what it names exists, and its example of the older behaviour is read as it says."""

from __future__ import annotations

import re

import pytest
import yaml
from rendering import Render

import node_compactor.configuration
from tightship_charts.configuration import config_keys
from tightship_charts.places import CHARTS, CONTROLLERS
from tightship_charts.values import documented

PAGE = (CHARTS.parent / "docs" / "migration-charts.md").read_text(encoding="utf-8")


def known(chart: str) -> set[str]:
    config = {
        f"config.{'.'.join(key.path[:depth])}" for key in config_keys(chart) for depth in range(1, len(key.path) + 1)
    }
    return {each.dotted for each in documented(chart)} | config


@pytest.mark.parametrize("chart", CONTROLLERS)
def test_every_value_that_it_names_exists(chart: str) -> None:
    [part] = [each for each in re.split(r"^## ", PAGE, flags=re.MULTILINE) if f"| chart {chart} |" in each]
    rows = [row.split(" | ")[1] for row in part.splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-zA-Z_.]+)(?:[:=][^`]*)?`", row)}
    assert named
    assert named - known(chart) <= {"run", "name", "value"}


def test_its_example_of_the_older_behaviour_is_a_configuration(render: Render) -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    values = yaml.safe_load(text)
    data = render("node-compactor", values).one("ConfigMap")["data"]
    settings = node_compactor.configuration.parse_config_map(data, {})
    assert (settings.minimum_age, settings.marked_for, settings.after_added) == (0, 600, 0)
    assert settings.pools["mynodepool"].required_count == 5
