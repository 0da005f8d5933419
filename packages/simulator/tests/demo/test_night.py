"""What must hold of any night, told by its record; and that one on virtual time is always the same."""

from __future__ import annotations

import math
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from nights import DEADLINE, WITHOUT_SOCKETS, Night, pass_night

from tightship.objects.counting import counted
from tightship_simulator.demo.cluster import SPARE, WORKS
from tightship_simulator.demo.observations import Announcement, FloorSeen, Gone, NodeSeen
from tightship_simulator.demo.running import settled
from tightship_simulator.demo.story import demand

# The nights are passed once by whichever worker looks at them.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("nights"), pytest.mark.takes(2)]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """A whole night on virtual time, without a socket."""
    record = tmp_path_factory.mktemp("fast") / "night.jsonl"
    return pass_night(record, "--fast", command=WITHOUT_SOCKETS, PYTHONHASHSEED="1", TZ="UTC")


@pytest.fixture(scope="module")
def real_night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """A short night on the real clock, with controllers that are processes."""
    return pass_night(tmp_path_factory.mktemp("real") / "night.jsonl", "--seconds", "15", "--lines")


@pytest.fixture(params=["night", "real_night"])
def any_night(request: pytest.FixtureRequest) -> Night:
    found: Night = request.getfixturevalue(request.param)
    return found


def test_a_night_ends_well_and_says_what_it_came_to(any_night: Night) -> None:
    assert "One night: 38 nodes became" in any_night.output
    assert "Next:" in any_night.output


def test_on_virtual_time_a_seed_gives_the_same_night_to_the_byte(night: Night, tmp_path: Path) -> None:
    again = pass_night(tmp_path / "again.jsonl", "--fast", PYTHONHASHSEED="2", TZ="Asia/Tokyo")
    assert again.output == night.output
    assert again.record == night.record


def test_on_virtual_time_no_socket_is_made(night: Night) -> None:
    assert "\nOne night: " in night.output
    real = subprocess.run([*WITHOUT_SOCKETS, "--lines"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (real.returncode, real.stderr) == (99, "socket.__new__\n")


def test_a_night_is_told_in_its_order_and_in_plain_text(night: Night) -> None:
    assert "\x1b" not in night.output
    reported = night.output.partition("\n\n")[0].splitlines()[1:]
    found = [re.match(r"(\d\d):(\d\d) ", line) for line in reported]
    assert None not in found
    minutes = [(int(each[1]) + 3) % 24 * 60 + int(each[2]) for each in found if each]
    assert minutes == sorted(minutes)
    assert (minutes[0], minutes[-1]) == (3, 10 * 60 + 30)


@pytest.mark.parametrize(
    "line",
    [
        r"node-compactor general-\d+: cordoned: CPU \d+%, memory \d+% requested; \d pods? to move",
        r"node-refiner \w+-\d+: is empty, and left to the autoscaler",
        r"autoscaler \w+-\d+: deleted, it was empty",
        r"autoscaler \w+-new-\d: added, for pods that wait",
        r"hpa-scaler raises .*web \d+→\d+.*: FollowsQuery",
        r"hpa-scaler lowers .*web \d+→\d+.*: FollowsQuery",
        r"hpa-scaler holds feed, thumbs, checkout, search, web: ConnectionFailed(?:: .*)?",
        r"\* the gateway fails: .*Prometheus does not answer",
        r"pods wait for a node: \w+/\w+ \d+.*",
        r"every pod has a node again; \d+ waited at most",
        r"nodes 38 -> \d+, pods \d+, saved [\d.]+ node-hours, \$[\d.]+",
    ],
)
def test_everything_that_happens_is_told(night: Night, line: str) -> None:
    assert re.search(rf"^\d\d:\d\d {line}$", night.output, re.MULTILINE)


def test_the_summary_has_the_figures_of_the_record(night: Night) -> None:
    scene = night.scene
    for figures in (
        f"One night: 38 nodes became {scene.fewest}, and {scene.nodes} in the morning.",
        f"{scene.saved:.1f} node-hours, ${scene.money:.2f} at $0.27 a node-hour",
        f"{sum(scene.drained.values())} nodes ({scene.drained['node-compactor']} by node-compactor and ",
        f"evicted    {sum(scene.evicted.values())} pods",
        f"floors     raised {counted(scene.raised, 'time')}, lowered {counted(scene.lowered, 'time')}",
        f"{len(scene.pods)}, 0 of them not Ready; 0 nodes cordoned",
    ):
        assert figures in night.output
    assert min(scene.raised, scene.lowered, sum(scene.evicted.values())) > 0


def test_both_controllers_drain_nodes_and_the_autoscaler_removes_them(night: Night) -> None:
    assert night.scene.drained["node-compactor"] > 0
    assert night.scene.drained["node-refiner"] > 0
    gone = {
        each.observation.key
        for each in night.of(Gone)
        if isinstance(each.observation, Gone) and each.observation.what == "node"
    }
    drained = {
        each.observation.name
        for each in night.of(NodeSeen)
        if isinstance(each.observation, NodeSeen) and each.observation.drain == "Drained"
    }
    assert gone & drained
    assert night.scene.fewest < night.scene.began
    assert night.scene.saved > 0


def _failure(night: Night) -> tuple[float, float]:
    """Return the hours from which on there were no answers, and were answers again."""
    reported = [
        each
        for each in night.of(Announcement)
        if isinstance(each.observation, Announcement) and "gateway" in each.observation.text
    ]
    assert len(reported) == 2
    return reported[0].hour, reported[1].hour


def test_floors_hold_while_prometheus_is_away(night: Night) -> None:
    """Whatever was still answered before has said at least what traffic there was when it went away."""
    begin, end = _failure(night)
    guarded = {f"{work.namespace}/{work.name}": work for work in WORKS if work.rate and work.guarded}
    looked_at = set()
    floors: dict[str, int] = {}
    for each in night.of(FloorSeen):
        floor = each.observation
        assert isinstance(floor, FloorSeen)
        if floor.key not in guarded or each.hour > end:
            continue
        floors[floor.key] = floor.floor
        if each.hour >= begin:
            work = guarded[floor.key]
            assert floor.floor >= math.ceil(work.peak * demand(begin) / (work.rate * SPARE)), floor
            looked_at.add(floor.key)
    assert looked_at == guarded.keys()
    assert all(floor > 2 for floor in floors.values())


def test_an_hpa_whose_floor_nobody_keeps_falls_below_what_is_needed_meanwhile(night: Night) -> None:
    begin, end = _failure(night)
    [quote] = [work for work in WORKS if work.rate and not work.guarded]
    seen = [each for each in night.of(FloorSeen) if isinstance(each.observation, FloorSeen) and each.hour >= begin]
    key = f"{quote.namespace}/{quote.name}"
    fewest = min(each.observation.desired for each in seen if each.observation.key == key)  # type: ignore[union-attr]
    assert fewest < quote.peak * demand(end) / quote.rate


def test_nodes_come_back_in_the_morning_and_every_pod_runs(night: Night) -> None:
    assert night.scene.added > 0
    assert settled(night.scene)
    apps = Counter(pod.app for pod in night.scene.pods.values())
    assert all(apps[f"{work.namespace}/{work.name}"] == work.replicas for work in WORKS if not work.rate)
    for floor in night.scene.floors.values():
        assert floor.current >= floor.floor
        assert apps[floor.key] == floor.current


def test_the_story_is_told_to_its_end(any_night: Night) -> None:
    reported = [
        each.observation.text for each in any_night.of(Announcement) if isinstance(each.observation, Announcement)
    ]
    assert len(reported) == 8
    assert reported[-1] == "the end of the night"
