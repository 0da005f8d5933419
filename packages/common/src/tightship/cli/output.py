"""The output of commands: the capabilities of stdout, plain data as YAML, writing to stdout, the version; and progress.

Progress on stderr is a line that is redrawn on a terminal, else a line now and then while a server is awaited.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

import yaml

import tightship
from tightship.cli.app import EXIT_USAGE, CliError
from tightship.cli.arguments import Parser, environment
from tightship.documents.formats import Rendered, formats_of
from tightship.documents.presentation import Document, View
from tightship.documents.terminal import Terminal

_WIDE_ENOUGH_TO_ASK = "█·→✓…"


def terminal_of(stream: TextIO | None, environment: Mapping[str, str], *, headers: bool = True) -> Terminal:
    """Return the capabilities of *stream*. A pipe has no width and no colour.

    ``NO_COLOR`` (not empty) and ``TERM=dumb`` switch colour off. ``COLUMNS`` sets the width of a terminal.
    """
    if stream is None:
        raise CliError("standard output is closed")
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


_WORD = re.compile(r"(?!(?:true|false|null|yes|no|on|off|y|n)\Z)[a-z_][a-z0-9_./-]*", re.ASCII | re.IGNORECASE)
"""A text that needs no quotes in YAML, whatever parser reads it."""


class _Dumper(yaml.SafeDumper):
    """Indents lists in mappings, and quotes all texts except plain words."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, indentless=False)

    def text(self, data: str) -> yaml.ScalarNode:
        style = None if _WORD.fullmatch(data) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _Dumper.text)


def text_of(rendered: Rendered) -> str:
    """Return the text of what a format rendered; plain data becomes YAML in the order of its keys."""
    if isinstance(rendered, str):
        return rendered
    text: str = yaml.dump(rendered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))
    return text


def write_document(text: str, *, always_utf8: bool) -> None:
    """Write *text* to stdout: with *always_utf8* (JSON, YAML) in UTF-8, else in the stream's encoding."""
    stream = sys.stdout
    if stream is None:
        raise CliError("standard output is closed")
    raw = getattr(stream, "buffer", None)
    if raw is None:
        stream.write(text)
        return
    encoding = "utf-8" if always_utf8 else stream.encoding or "utf-8"
    try:
        stream.flush()
        raw.write(text.encode(encoding, "backslashreplace"))
        raw.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon(stream)
        raise CliError(f"standard output: {error.strerror or error}") from error


def abandon(stream: TextIO) -> None:
    """Let *stream* write nowhere: at exit Python flushes it once more, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write_file(flag: str, path: str, content: bytes) -> None:
    """Write *content* to the file *path* that *flag* names. Raises :class:`CliError`."""
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise CliError(f"{flag} {path}: {error.strerror or error}") from error


def no_command(parser: Parser) -> int:
    """Print the help to stderr because no command was given."""
    sys.stderr.write(parser.format_help())
    return EXIT_USAGE


def print_version(program: str, version: str) -> int:
    """Print the versions of *program* and its platform."""
    write_document(f"{version_line(program, version)}\n", always_utf8=False)
    return 0


def version_line(program: str, version: str) -> str:
    """Return the versions of *program* and its platform."""
    return f"{program} {version} (tightship {tightship.__version__}, Python {platform.python_version()})"


def write_rendered(
    program: str,
    view: View[Document],
    document: Document,
    arguments: argparse.Namespace,
    warnings: Sequence[str],
) -> None:
    """Write *document* to stdout as the arguments of ``add_output_arguments`` say.

    If a table omits its summary, or a format has rows only, *warnings* go to stderr.
    """
    chosen = formats_of(view)[arguments.output]
    if chosen.needs == "rows" or (arguments.no_headers and not chosen.file):
        sys.stderr.write("".join(f"{program}: warning: {text}\n" for text in warnings))
    terminal = terminal_of(sys.stdout, environment(), headers=not arguments.no_headers)
    write_document(text_of(chosen.render(document, view, terminal)), always_utf8=chosen.file)


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
