"""Each panel of each dashboard shows what its title says, asked of a real Prometheus with the data of half a day."""

from __future__ import annotations

import math
import re
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from simulated_day import HOURS, Day, live

from tightship.objects.reasons import Reason
from tightship_charts.dashboards import DASHBOARDS, dashboard
from tightship_e2e.plugin import require_programs
from tightship_e2e.prometheus import Prometheus

pytestmark = [pytest.mark.controlplane, pytest.mark.takes(4), pytest.mark.xdist_group("dashboards")]

Json = dict[str, Any]
EMPTY = {
    "Memory": "a process on virtual time is not its own",
    "CPU": "likewise",
    "Landings of evicted pods": "steering leads no pod by default",
    "What dry runs would set": "no HPA is in dry run",
}
"""Panels that have nothing to show after that half day, and why."""


@dataclass(frozen=True)
class Seen:
    """A Prometheus that knows the *day*, whose end is *end* there."""

    prometheus: Prometheus
    day: Day
    end: float

    def asked(self, expression: str, *, instant: bool = True) -> list[Json]:
        """Return the series that Prometheus answers with: at the day's end, or every five minutes of it."""
        if instant:
            reply = self.prometheus.query(expression, time=str(self.end))
        else:
            stretch = {"start": self.end - HOURS * 3600, "end": self.end, "step": 300}
            body = urllib.parse.urlencode({"query": expression, **stretch})
            reply = self.prometheus.request("POST", "/api/v1/query_range", body)
        assert reply.status == 200, (expression, reply.body)
        found: list[Json] = reply.document["data"]["result"]
        return found

    def panel(self, chart: str, panel: Json) -> dict[str, list[float]]:
        """Return the values of each series of a panel by its legend, those of the last moment last."""
        jobs = [each["metric"]["job"] for each in self.asked(jobs_of(chart))]
        shown: dict[str, list[float]] = {}
        for target in panel["targets"]:
            expression = target["expr"].replace("$namespace", ".*").replace("$job", "|".join(jobs))
            expression = expression.replace("$__range", f"{HOURS}h")
            for each in self.asked(expression, instant=target["instant"]):
                legend = re.sub(r"{{(\w+)}}", partial(_label, each["metric"]), target["legendFormat"])
                values = each.get("values") or [each["value"]]
                assert legend not in shown, "two lines of one name"
                shown[legend] = [float(value) for _, value in values]
        return shown


def _label(labels: Mapping[str, str], match: re.Match[str]) -> str:
    return labels.get(match[1], "")


def jobs_of(chart: str) -> str:
    """Return what the dashboard's variable ``job`` lists."""
    [variable] = [each for each in dashboard(chart)["templating"]["list"] if each["name"] == "job"]
    [(series, label)] = re.findall(r"label_values\((.*), (\w+)\)", variable["definition"].replace("$namespace", ".*"))
    return f"group by ({label}) ({series})"


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    require_programs("prometheus", "promtool")
    day = live()
    shift = time.time() - 900 - day.end
    with Prometheus() as prometheus:
        prometheus.stop()
        prometheus.backfill("".join(day.openmetrics(shift)))
        prometheus.start()
        yield Seen(prometheus, day, day.end + shift)


@pytest.mark.parametrize("chart", DASHBOARDS)
def test_every_panel_has_something_to_show(seen: Seen, chart: str) -> None:
    for panel in dashboard(chart)["panels"]:
        if panel["type"] == "row":
            continue
        shown = seen.panel(chart, panel)
        title = panel["title"]
        assert bool(shown) == (title not in EMPTY), title
        # In between a quantile of nothing is no number.
        assert all(any(map(math.isfinite, values)) for values in shown.values()), title
        if panel["fieldConfig"]["defaults"].get("unit") in ("percentunit", "percent"):
            assert max(map(max, shown.values())) <= panel["fieldConfig"]["defaults"]["max"], title


def shown(seen: Seen, chart: str, title: str) -> dict[str, list[float]]:
    [panel] = [each for each in dashboard(chart)["panels"] if each["title"] == title]
    return seen.panel(chart, panel)


def last(seen: Seen, chart: str, title: str) -> float:
    """The only number of a panel, at the day's end."""
    [values] = shown(seen, chart, title).values()
    return values[-1]


def test_what_the_panels_count_is_what_happened(seen: Seen) -> None:
    day = seen.day
    both = ("node-compactor", "node-refiner")
    # increase() extrapolates to the ends of the range.
    removed = [last(seen, chart, "Nodes removed") for chart in both]
    assert sum(removed) == pytest.approx(day.handed_over, rel=0.02)
    assert last(seen, "tightship", "Nodes removed") == pytest.approx(sum(removed))
    assert min(removed) > 0
    assert sum(last(seen, chart, "Drains given up") for chart in both) == pytest.approx(day.given_up, rel=0.02)
    assert day.given_up > 0
    assert last(seen, "tightship", "Pods evicted") == pytest.approx(day.evicted, rel=0.02)
    endings = {name for chart in both for name in shown(seen, chart, "Finished drains")}
    assert any(name.startswith("handed_over") for name in endings)
    assert {name.partition(" ")[2] for name in endings if name.startswith("restored")} == day.reasons


def test_what_the_panels_show_of_nodes_is_how_many_there_were(seen: Seen) -> None:
    day = seen.day
    assert shown(seen, "node-refiner", "Nodes")["all"][-1] == day.nodes[-1]
    pools = shown(seen, "node-compactor", "Nodes")
    assert sum(values[-1] for values in pools.values()) == day.nodes[-1]
    assert max(shown(seen, "node-refiner", "Nodes")["all"]) == max(day.nodes)
    why = shown(seen, "tightship", "Why nodes stay")
    assert {name.partition(" ")[2] for name in why} <= {each.value for each in Reason}


def test_what_the_panels_show_of_floors_is_what_the_hpas_have(seen: Seen) -> None:
    day = seen.day
    assert last(seen, "hpa-scaler", "Floors now") == day.floors
    assert last(seen, "hpa-scaler", "Not opted in") == day.hpas - day.opted_in
    largest = shown(seen, "hpa-scaler", "The ten largest floors")
    assert sum(values[-1] for values in largest.values()) == day.floors
    # The metrics were away for an hour.
    assert max(shown(seen, "hpa-scaler", "Circuits that are not closed")["default open"]) == 1
    assert min(map(min, shown(seen, "hpa-scaler", "Floors").values())) > 0


@pytest.mark.parametrize("chart", DASHBOARDS)
def test_the_health_of_a_quiet_day_is_good(seen: Seen, chart: str) -> None:
    assert last(seen, chart, "Leaders") == (3 if chart == "tightship" else 1)
    assert last(seen, chart, "Configuration") == 1
    assert last(seen, chart, "Lease changes") == 1
    assert last(seen, chart, "Failed passes") == last(seen, chart, "Events lost") == 0
    # The longest interval is node-compactor's, more or less by a quarter.
    assert last(seen, chart, "Last successful pass") < 1.25 * 300
