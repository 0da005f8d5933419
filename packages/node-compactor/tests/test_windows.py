"""Windows of node-compactor: what waits outside of them, what is given back, and what a configuration may not say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from node_compactor.controller import COMPACTOR
from node_compactor.settings import load_settings
from tightship.objects.reasons import Reason
from tightship.planning.evaluate import evaluate
from tightship.process.settings.loading import SettingsError
from tightship_testkit.builders import node, pod, snapshot, workload

NIGHTS = {"allow": ["Mon-Fri 20:00-06:00"]}
FRIDAY_NOON = datetime(2026, 11, 27, 12, tzinfo=UTC).timestamp()
FRIDAY_NIGHT = datetime(2026, 11, 27, 22, tzinfo=UTC).timestamp()
SATURDAY = datetime(2026, 11, 28, 6, 30, tzinfo=UTC).timestamp()


def settings(**values: Any) -> Any:
    pool = {"enabled": True, "cpuRequestRatioLimit": 0.75, "requiredUnderutilizedNodeCount": 1}
    whole = {"minimumNodeAge": 0, "neededMarkedTimeForRemoval": 0, "coolDownAfterNodeAdded": 0, "regretWindow": 0}
    return load_settings({**whole, "nodePools": {"*": pool | values.pop("pool", {})}, **values})


def held(now: float, **values: Any) -> dict[str, Reason]:
    cluster = snapshot(node("a"), node("b"), pod("p", on="a", cpu="100m"), workload())
    found = evaluate(cluster, COMPACTOR.judge(settings(**values)), now)
    assert len(found.plan.removals) == 1
    return {name: each.reason for name, each in found.held.items()}


def test_outside_of_a_window_a_node_is_planned_and_waits() -> None:
    assert list(held(FRIDAY_NOON, windows=NIGHTS).values()) == [Reason.OUTSIDE_WINDOW]
    assert held(FRIDAY_NIGHT, windows=NIGHTS) == {}


def test_the_windows_of_the_pool_must_be_open_too() -> None:
    assert held(FRIDAY_NIGHT, windows=NIGHTS, pool={"windows": {"deny": ["Fri"]}}) != {}
    assert held(FRIDAY_NOON, pool={"windows": NIGHTS}) != {}
    assert held(FRIDAY_NOON, pool={"windows": {"deny": ["Sat"]}}) == {}


@pytest.mark.parametrize(
    ("stop", "now", "given_back"),
    [(None, SATURDAY, False), ("1h", SATURDAY, False), ("30m", SATURDAY, True), ("0", SATURDAY, True),
     ("0", FRIDAY_NIGHT, False)],
)  # fmt: skip
def test_a_drain_under_way_is_given_back_at_the_hard_stop_only(stop: str | None, now: float, given_back: bool) -> None:
    windows = NIGHTS if stop is None else {**NIGHTS, "hardStop": stop}
    cluster = snapshot(node("a"))
    rules = COMPACTOR.drain_settings(settings(windows=windows), lambda: now)
    reasons = [each.reason for each in rules.node_refusals(cluster, cluster.nodes["a"].node)]
    assert (Reason.OUTSIDE_WINDOW in reasons) is given_back


@pytest.mark.parametrize(
    ("windows", "says"),
    [
        ({"allow": ["Mon-Fry"]}, "allow[1]: 'Mon-Fry' "),
        ({"allow": []}, "allow: an empty list opens nothing"),
        ({"allow": "Mon"}, "allow: 'Mon' is no list of windows"),
        ({"deny": [{"schedule": "0 20 * * *"}]}, "needed are schedule and duration"),
        ({"deny": [{"schedule": "0 20 * *", "duration": "1h"}]}, "deny[1]: '0 20 * *' is not a schedule"),
        ({"timeZone": "Mars/Olympus"}, "timeZone: 'Mars/Olympus' is unknown"),
        ({"timezone": "UTC"}, "timezone: unknown key"),
        ({"hardStop": "soon"}, "hardStop: 'soon' is not a duration"),
        ({"calendar": "BEGIN:VCALENDAR"}, "calendar: the calendar is not whole"),
        ({"allow": ["Mon"], "deny": ["Sun-Tue"]}, "no window opens within a year"),
        ("Mon-Fri", "'Mon-Fri' is no mapping"),
    ],
)
def test_windows_that_are_none_are_refused_by_name(windows: object, says: str) -> None:
    with pytest.raises(SettingsError) as error:
        settings(windows=windows)
    [problem] = error.value.problems
    assert problem.startswith("windows: ")
    assert says in problem.replace('"', "'")
    with pytest.raises(SettingsError, match=r"nodePools\.\*\.windows: "):
        settings(pool={"windows": windows})


def test_all_problems_of_windows_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as error:
        settings(windows={"allow": ["x", "Mon"], "deny": ["y"], "timeZone": "z"})
    assert all(each in str(error.value) for each in ("allow[1]", "deny[1]", "timeZone"))
