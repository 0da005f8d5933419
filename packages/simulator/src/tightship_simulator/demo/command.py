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
from bisect import insort
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live

from tightship.cli.arguments import Parser
from tightship_simulator.demo import words
from tightship_simulator.demo.backend import Backend, DiedError
from tightship_simulator.demo.processes import processes
from tightship_simulator.demo.recording import Recorder, RecordError, read
from tightship_simulator.demo.running import Options, Show
from tightship_simulator.demo.scene import TOGETHER, Scene
from tightship_simulator.demo.screen import draw
from tightship_simulator.demo.simulated import simulated
from tightship_simulator.virtual.loop import VirtualLoop

SECONDS = 90.0
"""How long a night takes unless it is said otherwise."""
BESIDE_FAST = ("--seed", "--price", "--speed", "--record")
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
    """Prints what happens, line by line, in the order of the night; *title* comes first."""

    def __init__(self, title: str = "the controllers start") -> None:
        self._title = title
        self._said = 0
        self._waiting = words.Waiting()
        self._own: list[tuple[float, str]] = []

    async def show(self, scene: Scene) -> None:
        """Print what *scene* says anew, until cancelled; then the rest."""
        loop = asyncio.get_running_loop()
        looked = at = now = last = -math.inf
        _say(self._title)
        try:
            while True:
                if scene.at != at:
                    at, looked = scene.at, loop.time()
                # It grows too where there is nothing to see for a while.
                now = at + loop.time() - looked
                if reported := self._waiting.take(scene, now):
                    insort(self._own, reported)
                if scene.began and now - last >= FIGURES_EVERY:
                    last = now
                    insort(self._own, (now, words.figures(scene)))
                self._print(scene, now - TOGETHER)
                await asyncio.sleep(FRAME)
        finally:
            self._print(scene, math.inf)

    def _print(self, scene: Scene, until: float) -> None:
        """Print what is new and final, being from *until* or before."""
        new = scene.said - self._said
        for entry in list(scene.lines)[-new:] if new > 0 else ():
            if entry.at > until:
                break
            self._print_own(entry.at)
            _say(words.line(entry))
            self._said += 1
        self._print_own(until)

    def _print_own(self, until: float) -> None:
        """Print what was seen here before *until*, and is no line of the scene."""
        while self._own and self._own[0][0] < until:
            _say(self._own.pop(0)[1])


async def _play(options: Options, backend: Backend, record: Path | None, shower: Screen | Lines) -> Scene:
    """Run the night and show it; Ctrl-C and SIGTERM raise :class:`KeyboardInterrupt` when all has ended."""
    with ExitStack() as stack:
        recorder = stack.enter_context(Recorder(record, options)) if record else None
        show = Show(options, recorder.take if recorder else lambda _: None)
        await _interruptible(show.run(backend), shower, show.scene)
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
    main, shown = asyncio.create_task(work), asyncio.create_task(shower.show(scene))
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:  # once more would only break off the ending
            stopped = True
            main.cancel()

    with _on_termination(stop):
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


@contextmanager
def _on_termination(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* for every signal to end."""
    loop, before = asyncio.get_running_loop(), {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # a virtual loop: it never waits for what a signal would have to wake it from
            before[number] = signal.signal(number, lambda *_: stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    chosen = _arguments(arguments)
    seconds = chosen.seconds or SECONDS
    options = Options(seconds, chosen.speed or 15.0 * max(1.0, SECONDS / seconds), chosen.seed, chosen.price)
    console = Console()
    shower: Screen | Lines
    if chosen.fast:
        shower = Lines(f"one night of three controllers on virtual time, seed {options.seed}")
        night = _play(options, simulated, chosen.record, shower)
    else:
        shower = Lines() if chosen.lines or not console.is_terminal or console.is_dumb_terminal else Screen(console)
        replay = chosen.replay
        night = _replay(replay, shower) if replay else _play(options, processes, chosen.record, shower)
    try:
        with asyncio.Runner(loop_factory=VirtualLoop if chosen.fast else None) as runner:
            scene = runner.run(night)
        for each in words.summary(scene, fast=chosen.fast):
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


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what was chosen; ends the process with 64 where that can't be."""
    parser, options = _parser()
    chosen, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(f"{' '.join(unknown)}: not known; allowed are {', '.join(options)}")
    # With --fast a second is no measure of anything.
    for name in ("seconds", "replay") if chosen.fast else ():
        if getattr(chosen, name) is not None:
            parser.error(f"--{name}: not with --fast; allowed beside it are {', '.join(BESIDE_FAST)}")
    return chosen


def _parser() -> tuple[Parser, list[str]]:
    """Return the parser and the options that it knows."""
    parser = Parser(
        prog="python -m tightship_simulator.demo",
        description="One night of node-compactor, node-refiner and hpa-scaler on an embedded cluster.",
        epilog="exit codes: 0 done; 1 an error; 64 wrong usage; 130 interrupted; 141 the reader closed the pipe.",
    )
    add = parser.add_argument
    named = [
        add("--fast", action="store_true", help="the same night on virtual time: line by line, in seconds, and the "
            "same for the same seed"),
        add("--seconds", type=_positive, metavar="SECONDS", help=f"how long the night takes (default: {SECONDS:g})"),
        add("--speed", type=_positive, metavar="FACTOR", help="how much faster pods and nodes start and end than real "
            "ones (default: 15, more in a short night)"),
        add("--seed", type=_whole, default=7, metavar="NUMBER", help="of the cluster (default: 7)"),
        add("--price", type=_positive, default=0.27, metavar="DOLLARS", help="of a node's hour (default: 0.27)"),
        add("--lines", action="store_true", help="lines instead of a screen; so without a terminal"),
    ]  # fmt: skip
    kept = parser.add_mutually_exclusive_group().add_argument
    named += [
        kept("--record", type=Path, metavar="FILE", help="keep the night as JSON lines"),
        kept("--replay", type=Path, metavar="FILE", help="show a night that was kept"),
    ]
    return parser, [each.option_strings[0] for each in named]


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is a whole number") from None


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
