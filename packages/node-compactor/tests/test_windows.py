"""Windows of node-compactor: what waits outside of them, what is given back, and what a configuration may not say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from node_compactor.controller import COMPACTOR
from node_compactor.settings import load_settings
from tightship.documents.warnings import warnings_of
from tightship.objects.reasons import Reason
from tightship.planning.evaluate import evaluate
from tightship.process.settings.live import Content, Found, LiveConfig, Report
from tightship.process.settings.loading import SettingsError
from tightship.rules.windows import window_check, window_checks
from tightship_testkit.builders import NOW, Json, controller, node, pod, snapshot, when, workload

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
        ({"notBefore": "later"}, "notBefore: 'later' is not a duration"),
        ({"calendar": ""}, "calendar: no BEGIN:VCALENDAR"),
        ({"hardStop": "soon"}, "hardStop: 'soon' is not a duration"),
        ({"calendar": "BEGIN:VCALENDAR"}, "calendar: the calendar is not whole"),
        ({"allow": ["Mon"], "deny": ["Sun-Tue"]}, "no window opens within a year"),
        ("Mon-Fri", "'Mon-Fri' is no mapping"),
        # What kured, Karpenter, Jenkins and older crons allow, and slips of YAML.
        ({"allow": ["Mon 8pm-10pm"]}, "allow[1]: 'Mon 8pm-10pm' is not a window"),
        ({"allow": ["Monday 20:00-22:00"]}, "'Monday 20:00-22:00' is not a window"),
        ({"allow": ["Mon, Wed 20:00-22:00"]}, "'Mon, Wed 20:00-22:00' is not a window"),
        ({"allow": ["Fri 18:00 - Mon 06:00"]}, "'Fri 18:00 - Mon 06:00' is not a window"),
        ({"allow": ["00:00-00:00"]}, "'00:00-00:00' is empty"),
        ({"allow": ["1:5-2:00"]}, "'1:5-2:00' is not a window"),
        ({"allow": [None]}, "allow[1]: '' is not a window"),
        ({"allow": {"a": "b"}}, "allow: {'a': 'b'} is no list of windows"),
        ({"allow": [{"schedule": "0 20 * * *", "duration": 3600}]}, "allow[1]: '3600' is not a duration"),
        ({"allow": [{"schedule": "0 20 * * *", "duration": "0s"}]}, "a duration of 0s is no window"),
        ({"allow": [{"schedule": "H 20 * * *", "duration": "1h"}]}, "'H' is no minute"),
        ({"allow": [{"schedule": "0 20 * * sat-sun", "duration": "1h"}]}, "sat-sun is no day of the week"),
        ({"allow": [{"schedule": "0 0 20 * * *", "duration": "1h"}]}, "'0 0 20 * * *' is not a schedule"),
        ({"allow": [{"schedule": "@every 1h", "duration": "1h"}]}, "'@every 1h' is not a schedule"),
        ({"allow": [{"schedule": "0 0 30 2 *", "duration": "1h"}]}, "no window opens within a year"),
        ({"deny": ["00:00-12:00", "12:00-24:00"]}, "no window opens within a year: 12:00-24:00 is denied"),
        ({"allow": ["Mon-Fri 09:00-17:00"], "deny": ["08:00-18:00"]}, "no window opens within a year"),
        ({"timeZone": "europe/berlin", "allow": ["Mon"]}, "timeZone: 'europe/berlin' is unknown"),
        ({"timeZone": "+02:00"}, "timeZone: '+02:00' is unknown"),
        ({"timeZone": ""}, "timeZone: '' is unknown"),
        ({"timeZone": "../UTC"}, "timeZone: '../UTC' is unknown"),
        ({"hardStop": "-1m"}, "hardStop: '-1m' is not a duration"),
        ({"hardStop": True}, "hardStop: 'True' is not a duration"),
        ({"notBefore": 30}, "notBefore: '30' is not a duration"),
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


@pytest.mark.parametrize(
    ("own", "enabled", "opens"),
    [
        ({"allow": ["Tue"]}, True, "never"),
        ({"deny": ["Sun-Tue"]}, True, "never"),
        ({"allow": ["Mon 22:00-23:00"], "timeZone": "America/New_York"}, True, "never"),  # a Tuesday in UTC
        ({"allow": ["Mon 09:00-10:00", "Tue"]}, True, "Mon 2026-11-30 09:00 +00:00, in 2d21h"),
        ({"allow": [{"schedule": "0 9 1-7 12 mon", "duration": "1h"}]}, True, "Mon 2026-12-07 09:00 +00:00, in 9d21h"),
        ({"allow": ["Tue"]}, False, ""),
    ],
)
def test_windows_of_a_pool_open_together_with_those_of_all_pools(own: Json, enabled: bool, opens: str) -> None:
    pool = {"windows": own, "enabled": enabled}
    if opens == "never":
        with pytest.raises(SettingsError, match=r"nodePools: \*\.windows: never open within a year"):
            settings(windows={"allow": ["Mon"]}, pool=pool)
        return
    windows = settings(windows={"allow": ["Mon"]}, pool=pool).windows_of("any")
    assert {opens in check.detail for check in window_checks(windows, FRIDAY_NOON)} == {True}


def test_all_problems_of_windows_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as error:
        settings(windows={"allow": ["x", "Mon"], "deny": ["y"], "timeZone": "z"})
    assert all(each in str(error.value) for each in ("allow[1]", "deny[1]", "timeZone"))


REST = {"notBefore": "30m"}


def replica_set(name: str, replicas: int, *, age: float = 86400, written: float | None = None, of: str = "web") -> Json:
    """A ReplicaSet of Deployment *of*, whose spec was last written so many seconds ago."""
    found = workload(name=name, replicas=replicas)
    managed = [
        {"manager": "kube-controller-manager", "operation": "Update", "time": when(NOW - (written or age))},
        {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "time": when(NOW)},
    ]
    meta = {"creationTimestamp": when(NOW - age), "ownerReferences": [controller("Deployment", of)]}
    found["metadata"] |= meta | ({} if written is None else {"managedFields": managed})
    return found


def set_pod(ordinal: int, revision: str, age: float, on: str = "") -> Json:
    labels = {"app": "db", "controller-revision-hash": revision}
    return pod(f"db-{ordinal}", on=on or "b", labels=labels, age=age, owner=controller("StatefulSet", "db"))


OLD = replica_set("old", 0)
MINUTE = 60.0


@pytest.mark.parametrize(
    ("workloads", "says"),
    [
        ([replica_set("web", 2), OLD], ""),
        ([replica_set("web", 2, age=29 * MINUTE)], "ended a rollout 29m ago"),
        ([replica_set("web", 2, age=30 * MINUTE)], ""),
        ([replica_set("web", 2, age=40 * MINUTE), replica_set("old", 0, written=600)], "ended a rollout 10m ago"),
        # Rolled back to an old ReplicaSet, whose own spec was written when an HPA scaled it.
        ([replica_set("web", 2, written=MINUTE), replica_set("new", 0, age=3000, written=20 * MINUTE)], "20m ago"),
        ([replica_set("web", 2, written=MINUTE)], ""),
        ([replica_set("web", 2), replica_set("new", 1, age=7200)], "is rolling out"),
        ([replica_set("web", 2), replica_set("other", 1, age=MINUTE, of="cart")], ""),
        ([workload(replicas=2)], ""),
    ],
)  # fmt: skip
def test_nodes_wait_for_workloads_that_ended_a_rollout_lately(workloads: list[Json], says: str) -> None:
    cluster = snapshot(node("a"), node("b"), pod("p", on="a"), pod("q", on="b", cpu="2"), *workloads)
    rules = settings(windows=REST)
    found = evaluate(cluster, COMPACTOR.judge(rules), NOW)
    assert [each.node for each in found.plan.removals] == ["a"]
    held = [(each.reason, each.detail) for each in found.held.values()]
    assert [reason for reason, _ in held] == [Reason.OUTSIDE_WINDOW] * bool(says)
    assert all(says in detail for _, detail in held)
    during = COMPACTOR.drain_settings(rules, lambda: NOW).node_refusals(cluster, cluster.nodes["a"].node)
    assert [each.detail for each in during if each.reason is Reason.OUTSIDE_WINDOW] == [detail for _, detail in held]
    assert evaluate(cluster, COMPACTOR.judge(settings()), NOW).held == {}, "nobody asked for it"


@pytest.mark.parametrize(
    ("pods", "says"),
    [
        ([set_pod(0, "x", 7200, on="a"), set_pod(1, "x", 8000), set_pod(2, "x", 9000)], ""),
        ([set_pod(0, "x", 600), set_pod(1, "x", 660), set_pod(2, "x", 720, on="a")], "ended a rollout 10m ago"),
        ([set_pod(0, "x", 7200), set_pod(1, "x", 60), set_pod(2, "x", 9000, on="a")], ""),  # moved later
        ([set_pod(0, "x", 7200, on="a"), set_pod(1, "y", 300), set_pod(10, "y", 360)], "5m ago"),  # under way
        ([set_pod(0, "x", 7200, on="a"), set_pod(1, "y", 7200), set_pod(2, "y", 7300)], ""),  # a partition
    ],
)
def test_the_last_pod_that_a_stateful_set_replaces_ends_its_rollout(pods: list[Json], says: str) -> None:
    cluster = snapshot(node("a"), node("b"), *pods, workload("StatefulSet", "db", replicas=3))
    rules = COMPACTOR.drain_settings(settings(windows=REST), lambda: NOW)
    found = [e.detail for e in rules.node_refusals(cluster, cluster.nodes["a"].node) if "rollout" in e.detail]
    assert len(found) == bool(says)
    assert all(says in detail for detail in found)


CALENDAR = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//a//b//EN
BEGIN:VEVENT
UID:1
DTSTAMP:20260101T000000Z
DTSTART:20200106T090000Z
DTEND:20200106T170000Z
RRULE:FREQ=WEEKLY
SUMMARY:Release
END:VEVENT
END:VCALENDAR
"""


def config(**windows: Any) -> dict[str, str]:
    """The data of a ConfigMap: YAML, in which JSON is allowed."""
    return {"config.yaml": json.dumps({"windows": windows, "nodePools": {"*": {"enabled": True}}})}


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"calendar": ""}, "windows: calendar: no BEGIN:VCALENDAR"),
        ({"calendar": CALENDAR[:150]}, "windows: calendar: the calendar is not whole"),
        (
            {"calendar": CALENDAR.replace("DTEND:20200106T170000Z\n", "")},
            "calendar: event 'Release' has no end",
        ),
        (
            {"calendar": CALENDAR.replace("WEEKLY", "HOURLY")},
            "no window opens within a year: Release is denied",
        ),
        ({"timeZone": "Mars/Olympus"}, "windows: timeZone: 'Mars/Olympus' is unknown"),
        ({"allow": []}, "windows: allow: an empty list opens nothing"),
        ({"allow": ["Sat"], "deny": ["Fri-Sun"]}, "windows: no window opens within a year: "),
        ({"hardStop": "never"}, "windows: hardStop: 'never' is not a duration"),
    ],
)
async def test_bad_windows_leave_the_last_good_ones_in_force(
    edit: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Edited:
        name, trouble = "ConfigMap tightship/node-compactor-config", ""

        async def run(self, sink: Callable[[Content], None]) -> None:
            for windows in ({"calendar": CALENDAR}, edit, edit):
                sink(Found(config(**windows)))
            await asyncio.Event().wait()

    def parse(data: Mapping[str, str]) -> Any:
        return COMPACTOR.configured(data, {})

    reports: list[Report] = []
    async with LiveConfig(Edited(), parse, starting=parse({}), report=reports.append) as live:
        assert [each.valid for each in reports] == [True, False]
        [sentence] = live.problems
        assert sentence.startswith("The configuration was refused; the last good one applies: ")
        assert says in sentence.replace('"', "'")
        assert caplog.text.replace('"', "'").count(says) == 1
        monday = datetime(2027, 3, 1, 12, tzinfo=UTC).timestamp()
        assert [window_check(each, monday).open for each in live.current.windows_of("any") if each] == [False]


def test_closed_windows_are_told_by_the_nodes_that_wait_or_by_a_warning() -> None:
    opens = "no allowed window is open; a window opens at Fri 2026-11-27 20:00 +00:00, in 8h"
    cluster = snapshot(node("a"), node("b"), pod("p", on="a"), pod("q", on="b", cpu="2"), workload())
    found = evaluate(cluster, COMPACTOR.judge(settings(windows=NIGHTS)), FRIDAY_NOON)
    assert {name: each.detail for name, each in found.held.items()} == {"a": opens}
    assert warnings_of(cluster, (), found.untold) == warnings_of(cluster)
    for name in ("a", "b"):
        checks = [(each.gate, each.open) for each in found.checks(name)]
        assert ("window", False) in checks
        assert "held back" not in [gate for gate, _ in checks]
    idle = evaluate(cluster, COMPACTOR.judge(settings(windows=NIGHTS, pool={"cpuRequestRatioLimit": 0})), FRIDAY_NOON)
    assert warnings_of(cluster, (), idle.untold)[0] == f"no drain begins now: {opens}"
    labelled = [node(name, labels={"cloud.google.com/gke-nodepool": name}) for name in ("x", "y")]
    pools = {name: {"enabled": True, "windows": NIGHTS if name == "x" else {}} for name in "xy"}
    own = evaluate(snapshot(*labelled), COMPACTOR.judge(load_settings({"nodePools": pools})), FRIDAY_NOON)
    assert warnings_of(snapshot(*labelled), (), own.untold)[0] == f"no drain begins now in pool x: {opens}"
