"""Progress on stderr: a line that is redrawn on a terminal, else a line now and then while a server is awaited."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

PATIENCE = 0.5
"""Seconds of work without a progress line on a terminal."""

REDRAW = 0.2
"""Seconds between two drawings of the line."""

SILENCE = 2.0
"""Seconds of waiting for a server without a line on a stderr that is no terminal. Each further line takes as long again
as all before."""


class Progress:
    """``with Progress() as progress: progress.say("reading pods: 500")``. Thread-safe; the line shows the last text."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._text = ""
        self._waiting = False
        self._done = threading.Event()
        self._drawn = False
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def say(self, text: str) -> None:
        """Show *text*, on a terminal, from now on."""
        self._text, self._waiting = text, False

    def wait(self, text: str) -> None:
        """Show *text* from now on, in a log too: it tells for which server the command waits."""
        self._text, self._waiting = text, True

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _run(self) -> None:
        (self._draw if self._stream.isatty() else self._log)()

    def _draw(self) -> None:
        started = time.monotonic()
        pause = PATIENCE
        while not self._done.wait(pause):
            pause = REDRAW
            if self._text:
                self._drawn = True
                self._stream.write(f"\r\x1b[K{self._text} ({time.monotonic() - started:.0f}s)")
                self._stream.flush()

    def _log(self) -> None:
        started = time.monotonic()
        pause = SILENCE
        while not self._done.wait(pause):
            if self._waiting:
                waited = pause = time.monotonic() - started
                self._stream.write(f"{self._text} ({waited:.0f}s)\n")
                self._stream.flush()
