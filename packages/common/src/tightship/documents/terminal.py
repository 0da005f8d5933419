"""The capabilities of a terminal, and texts adapted to them. Pure: :mod:`tightship.cli` asks the system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import wrap

from msgspec import Struct

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_STYLES: Mapping[str, str] = {
    "": "",
    "bold": "1",
    "dim": "2",
    "go": "1;32",
    "why": "33",
    "bad": "1;31",
    "bar": "36",
    "low": "31",
    "high": "32",
}
_ASCII = str.maketrans({"→": "->", "…": "~", "·": "|"})
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Terminal(Struct, frozen=True):
    """A destination of text: *width* in columns, ``None`` for no limit (a pipe); colour; characters beyond ASCII."""

    width: int | None = None
    colour: bool = False
    unicode: bool = True
    headers: bool = True

    def paint(self, text: str, style: str) -> str:
        """Return *text* in one of our styles, or unchanged without colour."""
        if not self.colour or not style or not text:
            return text
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"

    def sign(self, unicode: str, ascii_text: str) -> str:
        """Return *unicode* if the terminal can show it, else *ascii_text*."""
        return unicode if self.unicode else ascii_text

    def plain(self, text: str) -> str:
        """Return *text* with control characters escaped, and without arrows for an ASCII terminal."""
        return clean(text) if self.unicode else clean(text.translate(_ASCII))

    def bar(self, ratio: float | None, width: int) -> str:
        """Return a bar of *width* columns, filled to *ratio*: to an eighth of a column with Unicode."""
        eighths = round(max(0.0, min(1.0, ratio or 0.0)) * width * 8)
        if not self.unicode:
            filled = min(width, (eighths + 4) // 8)
            return "#" * filled + "." * (width - filled)
        whole, part = divmod(eighths, 8)
        bar = "█" * whole + (_EIGHTHS[part] if part else "")
        return bar + "·" * (width - len(bar))

    def shorten(self, text: str, width: int) -> str:
        """Cut *text* to *width* columns in the middle, where names differ least."""
        if length(text) <= width:
            return text
        mark = self.sign("…", "~")
        head = max(0, (width - 1) // 2)
        tail = max(0, width - 1 - head)
        return text[:head] + mark + (text[-tail:] if tail else "")

    def fold(self, text: str, indent: str) -> list[str]:
        """Break *text* at blanks so that it fits the terminal after *indent*; a pipe gets the whole text."""
        if self.width is None or length(text) + len(indent) <= self.width:
            return [text]
        width = max(20, self.width - len(indent))
        return wrap(text, width, break_long_words=False, break_on_hyphens=False) or [text]

    def cut(self, text: str, width: int) -> str:
        """Cut *text* to *width* columns at its end."""
        if length(text) <= width:
            return text
        kept = text[: max(0, width - 1)]
        while length(kept) > max(0, width - 1):
            kept = kept[:-1]
        return kept.rstrip() + self.sign("…", "~")


def clean(text: str) -> str:
    """Return *text* with control characters escaped: data from a cluster never steers the terminal."""
    if text.isascii() and text.isprintable():
        return text
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def length(text: str) -> int:
    """Return the width of *text* in columns."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth  # more than 1 MiB, which a controller never needs

    return max(0, wcswidth(text))


def pad(text: str, width: int, align: str) -> str:
    """Pad *text* with blanks to *width* columns, on the left for ``align`` ``>``."""
    blanks = " " * max(0, width - length(text))
    return blanks + text if align == ">" else text + blanks
