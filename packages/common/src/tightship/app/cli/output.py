"""Where data goes: what stdout can show, and writing to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

from tightship.report import Terminal

_WIDE_ENOUGH_TO_ASK = "█·→✓…"


def terminal_of(stream: TextIO, environment: Mapping[str, str], *, headers: bool = True) -> Terminal:
    """Return what *stream* can show: a pipe has no width and no colour.

    ``NO_COLOR`` (not empty) and ``TERM=dumb`` switch colour off, ``COLUMNS`` sets the width of a terminal.
    """
    tty = stream.isatty()
    colour = tty and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    return Terminal(
        width=_width(stream, environment) if tty else None,
        colour=colour,
        unicode=_can_encode(stream),
        headers=headers,
    )


def _width(stream: TextIO, environment: Mapping[str, str]) -> int:
    text = environment.get("COLUMNS", "")
    if text.isdigit() and int(text) > 0:
        return int(text)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _can_encode(stream: TextIO) -> bool:
    try:
        _WIDE_ENOUGH_TO_ASK.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def write_document(text: str, *, always_utf8: bool) -> None:
    """Write *text* to stdout: JSON and YAML in UTF-8 whatever the locale, anything else as stdout can."""
    stream = sys.stdout
    raw = getattr(stream, "buffer", None)
    if raw is None:
        stream.write(text)
        return
    stream.flush()
    encoding = "utf-8" if always_utf8 else stream.encoding or "utf-8"
    raw.write(text.encode(encoding, "backslashreplace"))
    raw.flush()
