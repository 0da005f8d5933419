"""Numbers over time as lines of a picture."""

from __future__ import annotations

import re

import pytest

from hpa_scaler.documents.chart import COLUMNS, Chart, Drawing, Series, drawn


def line(drawing: Drawing) -> str:
    [found] = [path for kind, path in drawing.lines if kind.startswith("floor")]
    return found


def points(path: str) -> list[tuple[int, int]]:
    """The corners of a line, of which only the first of each part is not told by the way from the one before."""
    found: list[tuple[int, int]] = []
    for command, numbers in re.findall(r"([Mhvl])([-\d ]+)", path):
        first, *rest = map(int, numbers.split())
        x, y = found[-1] if found else (0, 0)
        match command:
            case "M":
                found.append((first, rest[0]))
            case "h":
                found.append((x + first, y))
            case "v":
                found.append((x, y + first))
            case _:
                found.append((x + first, y + rest[0]))
    return found


def test_a_long_chart_keeps_its_highest_and_lowest_and_its_gaps() -> None:
    count = 20 * COLUMNS
    values: list[float | None] = [10.0] * count
    values[7], values[count - 7], values[count // 2] = 100.0, 0.0, None
    chart = Chart(tuple(map(float, range(count))), (Series("floor", "floor", tuple(values)),), "pods", "x")
    path = line(drawn(chart))
    assert len(path) < 40 * COLUMNS
    assert path.count("M") == 2
    assert {22, 234} <= {y for _, y in points(path)}


def test_a_step_holds_until_the_next() -> None:
    chart = Chart((0.0, 60.0, 120.0), (Series("floor", "floor", (1.0, 1.0, 2.0), step=True),), "pods", "x")
    path = line(drawn(chart))
    assert points(path) == [(46, 128), (950, 128), (950, 22)]


@pytest.mark.parametrize(("highest", "y"), [(0.5, 128), (1.0, 22), (3.0, 22), (5.0, 57)])
def test_a_chart_of_small_numbers_reaches_up_to_one_at_least(highest: float, y: int) -> None:
    chart = Chart((0.0, 60.0), (Series("floor", "floor", (0.0, highest)),), "pods", "x")
    assert points(line(drawn(chart)))[-1] == (950, y)


@pytest.mark.parametrize("step", [False, True])
def test_a_line_goes_through_its_points_and_has_no_other_corners(step: bool) -> None:
    times = tuple(60.0 * number for number in range(7))
    chart = Chart(times, (Series("floor", "floor", (1, 1, 1, 2, 2, None, 4), step=step),), "pods", "x")
    path = line(drawn(chart))
    last = (498, 181) if step else (347, 181)
    assert points(path) == [(46, 181), last, (498, 128), (649, 128), (950, 22)]


@pytest.mark.parametrize("last", range(0, 86400, 3571))
def test_every_moment_of_a_chart_ends_within_it(last: int) -> None:
    times = (1_366_800_000.0, 1_366_800_000.0 + 7 * 86400 + last)
    moments = drawn(Chart(times, (Series("f", "floor", (1, 2)),), "pods", "x")).moments
    assert len(moments) >= 7
    assert all(each.middle >= 46 and each.middle + 3.5 * len(each.text) <= 960 for each in moments)


def test_marked_times_have_a_stroke_each_and_a_name() -> None:
    times = tuple(float(each) for each in range(0, 7200, 60))
    chart = Chart(times, (Series("f", "floor", (1.0,) * 120),), "pods", "x", (60.0, 61.0, 3600.0), "short of replicas")
    [marks] = [path for kind, path in drawn(chart).lines if kind == "marked"]
    assert re.fullmatch(r"(M\d+ 234v6){2}", marks)
    bare = Chart(times, chart.series, "pods", "x")
    assert "marked" not in {kind for kind, _ in drawn(bare).lines}
