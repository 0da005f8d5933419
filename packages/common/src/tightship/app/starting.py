"""The first code of a command. It imports next to nothing, so that an interrupt ends a command that still loads too."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from types import FrameType

INTERRUPTED = 130


def start(module: str) -> None:
    """Call ``main`` of *module*. An interrupt during the import, or after the end, leaves no traceback."""
    usual = signal.getsignal(signal.SIGINT)
    heeded = usual is not signal.SIG_IGN
    if heeded:
        signal.signal(signal.SIGINT, _leave)
    main = import_module(module).main
    try:
        if heeded:
            signal.signal(signal.SIGINT, usual)
        main()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    finally:
        if heeded:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(number: int, frame: FrameType | None) -> None:
    del number, frame
    os._exit(INTERRUPTED)
