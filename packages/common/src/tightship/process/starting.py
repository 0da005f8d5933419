"""The first code of a command. It imports next to nothing, so that a signal ends a command that still loads too.

``_signal`` is what the module ``signal`` wraps into enumerations, which take longer to import than all else here.
Before this module runs, Python's own start and pip's script end an interrupt their way.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130


def start(module: str) -> None:
    """Call ``main`` of *module*. An interrupt during the import, or after the end, leaves no traceback.

    A controller heeds SIGTERM from here on: the first process of a container ignores a signal without a handler.
    """
    controls = "run" in sys.argv
    if controls:
        signal.signal(signal.SIGTERM, _end)
    usual = signal.getsignal(signal.SIGINT)
    heeded = usual is not signal.SIG_IGN
    if heeded:
        signal.signal(signal.SIGINT, _leave)
    from importlib import import_module

    # What is imported stays: looking through it for garbage takes a quarter of a short command's time.
    gc.disable()
    main = import_module(module).main
    gc.freeze()
    gc.enable()
    try:
        if heeded:
            signal.signal(signal.SIGINT, usual)
        main()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    finally:
        if heeded:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if controls:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _leave(number: int, frame: FrameType | None) -> None:
    del number, frame
    os._exit(INTERRUPTED)


def _end(number: int, frame: FrameType | None) -> None:
    del number, frame
    os._exit(0)
