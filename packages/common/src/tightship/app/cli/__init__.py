"""The shared parts of all controllers' commands: arguments, exit codes, progress, the source of a cluster."""

from tightship.app.cli.app import EXIT_ERROR, EXIT_USAGE, EXIT_WOULD_CHANGE, CliError, UsageError, run
from tightship.app.cli.arguments import (
    Parser,
    add_cluster_arguments,
    add_logging_arguments,
    add_output_arguments,
    add_time_argument,
)
from tightship.app.cli.output import terminal_of, write_document
from tightship.app.cli.progress import Progress
from tightship.app.cli.selector import SelectorError, parse_selector
from tightship.app.cli.source import load_snapshot

__all__ = [
    "EXIT_ERROR",
    "EXIT_USAGE",
    "EXIT_WOULD_CHANGE",
    "CliError",
    "Parser",
    "Progress",
    "SelectorError",
    "UsageError",
    "add_cluster_arguments",
    "add_logging_arguments",
    "add_output_arguments",
    "add_time_argument",
    "load_snapshot",
    "parse_selector",
    "run",
    "terminal_of",
    "write_document",
]
