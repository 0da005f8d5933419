"""The basics of every controller's command: version, outputs, suggestions for mistyped names."""

from __future__ import annotations

import argparse
import difflib
import platform
import sys
from collections.abc import Iterable, Sequence

import tightship
from tightship.cli.app import EXIT_USAGE
from tightship.cli.arguments import Parser, environment
from tightship.cli.output import terminal_of, text_of, write_document
from tightship.documents.formats import formats_of
from tightship.documents.presentation import Document, View


def no_command(parser: Parser) -> int:
    """Print the help to stderr because no command was given."""
    sys.stderr.write(parser.format_help())
    return EXIT_USAGE


def print_version(program: str, version: str) -> int:
    """Print the versions of *program* and its platform."""
    python = platform.python_version()
    write_document(f"{program} {version} (tightship {tightship.__version__}, Python {python})\n", always_utf8=False)
    return 0


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


def near(name: str, known: Iterable[str]) -> str:
    """Return names of *known* close to the mistyped *name*, as the end of a sentence; empty if none is close."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3) or [each for each in names if name in each][:3]
    return f"; did you mean {' or '.join(close)}?" if close else ""
