"""A progress line on stderr: only on a terminal, and only after half a second."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

PATIENCE = 0.5
"""Seconds of work without a progress line."""

REDRAW = 0.2
"""Seconds between two drawings of the line."""


class Progress:
    """``with Progress() as progress: progress.say("reading pods: 500")``. Thread-safe; the line shows the last text."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._text = ""
        self._done = threading.Event()
        self._drawn = False
        self._thread = threading.Thread(target=self._draw, name="progress", daemon=True)

    def say(self, text: str) -> None:
        """Show *text* from now on."""
        self._text = text

    def __enter__(self) -> Progress:
        if self._stream.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _draw(self) -> None:
        started = time.monotonic()
        pause = PATIENCE
        while not self._done.wait(pause):
            pause = REDRAW
            if self._text:
                self._drawn = True
                self._stream.write(f"\r\x1b[K{self._text} ({time.monotonic() - started:.0f}s)")
                self._stream.flush()
