"""The picture, as text of fixed widths, of a night that was recorded."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tightship_simulator.demo.recording import read
from tightship_simulator.demo.scene import Scene
from tightship_simulator.demo.screen import LEAST_HEIGHT, LEAST_WIDTH, draw

DATA = Path(__file__).parent / "data"
SIZES = [(80, 24), (100, 30), (120, 36)]


def _scene(until: float = 99.0) -> Scene:
    options, moments = read(DATA / "night.jsonl")
    scene = Scene(options.seconds, options.price)
    for moment in moments:
        if moment.hour > until:
            break
        scene.take(moment)
    return scene


def _plain(scene: Scene, width: int, height: int) -> str:
    return "\n".join(line.rstrip() for line in draw(scene, width, height).plain.split("\n")) + "\n"


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("hour", [24.6, 29.3])
def test_the_picture_of_a_moment(hour: float, width: int, height: int) -> None:
    expected = (DATA / f"screen.{hour}.{width}x{height}.txt").read_text()
    assert _plain(_scene(hour), width, height) == expected


@pytest.mark.parametrize("hour", [0.0, 21.0, 21.5, 24.6, 27.0, 29.3, 99.0])
def test_every_picture_fits_its_terminal(hour: float) -> None:
    scene = _scene(hour)
    for width in (LEAST_WIDTH, 71, 80, 99, 100, 120, 200):
        for height in (LEAST_HEIGHT, 20, 22, 24, 30, 50):
            lines = draw(scene, width, height).split("\n", allow_blank=True)
            assert len(lines) <= height
            assert max(line.cell_len for line in lines) <= width


def test_a_terminal_that_is_too_small_is_told_what_is_needed() -> None:
    assert draw(_scene(21.0), 40, 10).plain.startswith("The demo needs a terminal of 60x16")


def test_nothing_seen_yet_is_a_picture_too() -> None:
    assert "the controllers start" in draw(Scene(90, 0.27), 100, 30).plain


def test_without_colour_the_same_is_said() -> None:
    scene = _scene(24.6)
    shown = []
    for environ in ({}, {"NO_COLOR": "1"}):
        out = io.StringIO()
        console = Console(
            file=out, width=100, height=30, force_terminal=True, color_system="truecolor", _environ=environ
        )
        console.print(draw(scene, 100, 30))
        shown.append(out.getvalue())
    coloured, plain = shown
    assert "38;2;" in coloured
    assert "38;2;" not in plain
    assert "48;2;" not in plain
    for word in ("floor", "no answer", "compactor", "refiner", "c ", "38 →"):
        assert word in plain
