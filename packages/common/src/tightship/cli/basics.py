"""The basics of every controller's command: version, outputs, suggestions for mistyped names."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence

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
