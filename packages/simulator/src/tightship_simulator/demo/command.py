"""The command: one night of three controllers on an embedded cluster, on this terminal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.live import Live

from tightship_simulator.demo import words
from tightship_simulator.demo.processes import DiedError
from tightship_simulator.demo.recording import Recorder, RecordError, read
from tightship_simulator.demo.running import Options, Show
from tightship_simulator.demo.scene import TOGETHER, Scene
from tightship_simulator.demo.screen import draw

FRAME = 0.2
"""Seconds between two pictures."""
FIGURES_EVERY = 5.0
"""Seconds between two lines of figures where there is no screen."""
INTERRUPTED = 130
BROKEN_PIPE = 141


class Screen:
    """Draws the scene until the context ends; leaves the terminal as it was."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(
            console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )

    async def show(self, scene: Scene) -> None:
        """Draw *scene* again and again, until cancelled."""
        # A line on stderr would tear the picture; what matters ends the demo with an error.
        logging.getLogger().addHandler(logging.NullHandler())
        with self._live:
            while True:
                self._live.update(draw(scene, *self._console.size), refresh=True)
                await asyncio.sleep(FRAME)


class Lines:
    """Prints what happens, line by line."""

    async def show(self, scene: Scene) -> None:
        """Print what *scene* says anew, until cancelled; then the rest."""
        said, last = 0, -math.inf
        loop = asyncio.get_running_loop()
        _say("the controllers start")
        try:
            while True:
                said = _print_new(scene, said, scene.at - TOGETHER)
                if scene.began and loop.time() - last >= FIGURES_EVERY:
                    last = loop.time()
                    _say(words.figures(scene))
                await asyncio.sleep(FRAME)
        finally:
            _print_new(scene, said, math.inf)


def _print_new(scene: Scene, said: int, until: float) -> int:
    """Print what was said after *said* lines and is final, being from before *until*; return how many there are now."""
    new = scene.said - said
    for entry in list(scene.lines)[-new:] if new > 0 else ():
        if entry.at > until:
            break
        _say(words.line(entry))
        said += 1
    return said


async def _play(options: Options, record: Path | None, shower: Screen | Lines) -> Scene:
    """Run the night and show it; Ctrl-C and SIGTERM raise :class:`KeyboardInterrupt` when all has ended."""
    with ExitStack() as stack:
        recorder = stack.enter_context(Recorder(record, options)) if record else None
        show = Show(options, recorder.take if recorder else lambda _: None)
        await _interruptible(show.run(), shower, show.scene)
        return show.scene


async def _replay(path: Path, shower: Screen | Lines) -> Scene:
    options, moments = read(path)
    scene = Scene(options.seconds, options.price)

    async def again() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for moment in moments:
            await asyncio.sleep(max(0.0, moment.at - (loop.time() - began)))
            scene.take(moment)

    await _interruptible(again(), shower, scene)
    return scene


async def _interruptible(work: Coroutine[None, None, None], shower: Screen | Lines, scene: Scene) -> None:
    loop = asyncio.get_running_loop()
    main, shown = asyncio.create_task(work), asyncio.create_task(shower.show(scene))
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:  # once more would only break off the ending
            stopped = True
            main.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    try:
        done, _ = await asyncio.wait({main, shown}, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    except asyncio.CancelledError:
        if not stopped:
            raise
        raise KeyboardInterrupt from None
    finally:
        main.cancel()
        await asyncio.gather(main, return_exceptions=True)
        await asyncio.sleep(2 * FRAME)  # the last picture, or line
        shown.cancel()
        await asyncio.gather(shown, return_exceptions=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    chosen = _parser().parse_args(arguments)
    console = Console()
    shower = Lines() if chosen.lines or not console.is_terminal or console.is_dumb_terminal else Screen(console)
    options = Options(chosen.seconds, chosen.speed or 15.0 * max(1.0, 90 / chosen.seconds), chosen.seed, chosen.price)
    try:
        night = _replay(chosen.replay, shower) if chosen.replay else _play(options, chosen.record, shower)
        scene = asyncio.run(night)
        for each in words.summary(scene):
            _say(each)
    except KeyboardInterrupt:
        _say("ended: the controllers are stopped, nothing is left behind")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read has had enough. Python flushes stdout once more at exit: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (DiedError, RecordError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tightship_simulator.demo",
        description="One night of node-compactor, node-refiner and hpa-scaler on an embedded cluster.",
    )
    parser.add_argument("--seconds", type=_positive, default=90.0, help="how long the night takes (default 90)")
    parser.add_argument(
        "--speed",
        type=_positive,
        help="of pods and nodes, against real ones (default 15, more in a short night)",
    )
    parser.add_argument("--seed", type=int, default=7, help="of the cluster (default 7)")
    parser.add_argument("--price", type=_positive, default=0.27, help="of a node's hour, in dollars (default 0.27)")
    parser.add_argument("--lines", action="store_true", help="lines instead of a screen; so without a terminal")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--record", type=Path, metavar="FILE", help="keep the night as JSON lines")
    kept.add_argument("--replay", type=Path, metavar="FILE", help="show a night that was kept")
    return parser


def _positive(text: str) -> float:
    with contextlib.suppress(ValueError):
        number = float(text)
        if math.isfinite(number) and number > 0:
            return number
    raise argparse.ArgumentTypeError(f"{text!r}: allowed is a number above 0")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


__all__ = ["main"]
