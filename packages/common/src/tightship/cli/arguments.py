"""Arguments that all commands share, flags that set fields of settings, and ``run``, which is made of them."""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from textwrap import wrap
from typing import Any, NoReturn, TypeVar, get_origin

from pydantic import BaseModel

from tightship.cli.app import EXIT_USAGE, CliError
from tightship.documents.document import DEFAULT_ORDER, ORDERS, SHOW, SUMMARY_FROM, SUMMARY_ROWS
from tightship.objects.quoting import near, quoted
from tightship.objects.selectors import parse_selector
from tightship.objects.times import ALLOWED_FORMS, parse_duration, parse_rfc3339
from tightship.process.logging import LoggingError, set_up
from tightship.process.loop import Runtime, run_controller
from tightship.process.settings.loading import Flag, SettingsError, flags_of
from tightship.process.settings.process import ProcessSettings, load_process

REQUEST_TIMEOUT = 30.0
"""Seconds that a command waits for the answer to a request."""

_LONGEST_WAIT = 86_400.0

LOG_LEVELS = ("debug", "info", "warning", "error")

_T = TypeVar("_T")


class _Help(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=min(100, shutil.get_terminal_size().columns))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        del indent
        parts = text.split("\n\n")
        folded = (each if each.startswith("examples:") else "\n".join(self._split_lines(each, width)) for each in parts)
        return "\n\n".join(folded)


class _Once(argparse.Action):
    """Stores a value, and refuses a second one: nobody means the first of two contexts to go unnoticed."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Store *values*."""
        del parser
        given: frozenset[str] = getattr(namespace, "given_once", frozenset())
        if option_string is not None and self.dest in given:
            raise argparse.ArgumentError(self, "is given twice; allowed is once")
        namespace.given_once = given | {self.dest}
        setattr(namespace, self.dest, values)


class _HelpAll(argparse.Action):
    """Prints the help with all groups."""

    def __call__(self, parser: Any, *_: Any) -> None:
        """Print the help and exit."""
        parser.listed = None
        parser.print_help()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """An argument parser that takes no abbreviations. An error is one line and exits with 64."""

    def __init__(self, prog: str | None = None, description: str | None = None, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog, description=description, epilog=epilog, formatter_class=_Help, allow_abbrev=False, add_help=False
        )
        if sys.version_info >= (3, 14):
            self.color = False
        # A value such as -1s is a bad value of its flag, not another flag: no flag begins with a digit.
        self._negative_number_matcher = re.compile(r"-\.?\d")
        self.register("action", None, _Once)
        self.register("action", "store", _Once)
        self.add_argument("-h", "--help", action="help", help="print this and exit")
        self.listed: frozenset[str] | None = None
        """The titles of the groups that the help lists, or None for all: another command's help lists the rest."""

    def format_help(self) -> str:
        """Return the help with the groups of :attr:`listed`."""
        every = self._action_groups
        if self.listed is not None:
            self._action_groups = [group for group in every if group.title in self.listed]
        try:
            return super().format_help()
        finally:
            self._action_groups = every

    def shorten_help(self, listed: frozenset[str]) -> None:
        """Let the help list only the groups *listed*, and ``--help-all`` the rest."""
        self.listed = listed
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="print this with every flag, and exit")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is none of the choices of *action*, and name the nearest ones."""
        if action.choices is not None and value not in action.choices:
            words = [str(each) for each in action.choices]
            close = near(str(value), words)
            raise argparse.ArgumentError(
                action, f"invalid choice: {value!r} (choose from {', '.join(map(repr, words))}){close}"
            )

    def error(self, message: str) -> NoReturn:
        """Report the error and exit."""
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


class CommandParser(Parser):
    """The parser of one command of several. It refuses what it does not know, and names the help of that command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and leave no unknown argument to the parser of the whole, as argparse would."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flag = next((each for each in unknown if each.startswith("--")), "").partition("=")[0]
            close = near(flag, self._option_string_actions) if flag else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{close}")
        return found, unknown


def value_of(parse: Callable[[str], _T]) -> Callable[[str], _T]:
    """Return *parse* with the text of its :class:`ValueError` unchanged by argparse; ``int`` has none for people.

    An unusable file or server that a flag names is no wrong usage: a :class:`SettingsError` has its own lines and code.
    """

    def parsed(text: str) -> _T:
        try:
            return parse(text)
        except SettingsError as error:
            raise CliError(*error.problems) from error
        except ValueError as error:
            help_text = f"{quoted(text)} is not a whole number" if parse is int else str(error)
            raise argparse.ArgumentTypeError(help_text) from error

    return parsed


def parse_wait(text: str) -> float:
    """Return how long to wait for an answer, in seconds."""
    seconds = parse_duration(text, plain_unit="s")
    if not 0 < seconds <= _LONGEST_WAIT:
        raise ValueError(f"{quoted(text)} is no time to wait; allowed is {ALLOWED_FORMS}, more than 0 and up to a day")
    return seconds


def parse_rows(text: str) -> int:
    """Return how many rows to print."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{quoted(text)} is no number of rows; allowed is 1 or more")
    return int(text)


def add_cluster_arguments(
    parser: argparse.ArgumentParser, kinds: str = "nodes,pods,pdb,...", *, several: bool = False
) -> argparse._ArgumentGroup:
    """Add the arguments that name the cluster, or *several*; *kinds* are those that a file of it should hold."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        action="append",
        help=f"read the cluster from FILE instead of an API server: what `kubectl get {kinds} -A -o json` "
        "(or yaml) prints, .gz too, or cluster-info dump, or a folder of such files; - for standard input; repeatable: "
        "the files are read together" + (", those that each hold a cluster side by side" if several else ""),
    )
    add_server_arguments(group, several=several)
    return group


def add_server_arguments(group: argparse._ArgumentGroup, *, several: bool = False) -> None:
    """Add the arguments that name an API server, or *several*, and how to ask it."""
    group.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig (default: $KUBECONFIG, ~/.kube/config, in-cluster)"
    )
    help_text = "context of the kubeconfig (default: its current one)"
    if several:
        help_text += "; repeatable, * and ? match: several clusters are shown side by side"
    group.add_argument("--context", metavar="NAME", action="append" if several else "store", help=help_text)
    group.add_argument(
        "--request-timeout",
        metavar="DURATION",
        type=value_of(parse_wait),
        help=f"give up when the server has not answered a request for this long (default: {REQUEST_TIMEOUT:g}s)",
    )


def add_time_argument(group: argparse._ArgumentGroup) -> None:
    """Add the time at which to judge ages."""
    group.add_argument(
        "--now",
        metavar="TIME",
        type=value_of(parse_rfc3339),
        help="judge ages as if it were TIME, RFC 3339 such as 2026-03-01T04:00:00Z (default: now; for a file, the "
        "latest time on which its clocks agree)",
    )


def add_flags(
    group: argparse._ArgumentGroup,
    model: type[BaseModel],
    topic: str,
    *,
    plan: bool = False,
    otherwise: Callable[[str, Flag], str] = lambda _field, _flag: "",
    **words: str,
) -> None:
    """Add the flags of *topic* that fields of *model* carry; with *plan* only the flags that ``plan`` takes too.

    The settings validate the values later, with all other sources. *words* replace the placeholders in the help, and
    *otherwise* returns the end of a field's help: what sets the field without the flag.
    """
    for field, flag in flags_of(model).items():
        if flag.topic != topic or (plan and not flag.plan):
            continue
        kind = model.model_fields[field].annotation
        help_text = flag.help.format(**words) + otherwise(field, flag)
        how: dict[str, Any] = {"dest": field, "default": None, "help": help_text.replace("%", "%%")}
        if kind is not bool:
            listed = get_origin(kind) in (tuple, frozenset)
            how |= {"metavar": flag.metavar, "type": value_of(flag.parse), "action": "append" if listed else "store"}
        elif flag.sets is None:
            how["action"] = argparse.BooleanOptionalAction
        elif flag.sets:
            how |= {"action": "store", "nargs": "?", "const": True, "metavar": "false"}
        else:
            how |= {"action": "store_const", "const": False}
        group.add_argument(flag.name, **how)


def add_plan_flags(parser: argparse.ArgumentParser, *models: type[BaseModel], config: str, gates: str) -> None:
    """Add the arguments of a node controller's ``plan`` and ``explain``: which nodes may go, and the flags of *models*.

    *config* is the help of ``--config``, *gates* the title of the group with the gates' flags.
    """
    group = parser.add_argument_group("which nodes may go")
    group.add_argument("--config", metavar="FILE", help=config)
    group.add_argument(
        "--pool",
        metavar="NAME",
        action="append",
        help="only nodes of this pool may be removed; repeatable (default: all pools)",
    )
    group.add_argument(
        "-l",
        "--selector",
        metavar="SELECTOR",
        type=value_of(parse_selector),
        help="only nodes with these labels may be removed, as for kubectl: a=b, a!=b, a, !a, 'a in (b,c)', "
        "'a notin (b,c)', joined by commas (default: all nodes)",
    )
    titles = {"": gates, "plan": "plan", "rules": "rules"}
    groups = {topic: parser.add_argument_group(title) for topic, title in titles.items()}
    for topic, topical in groups.items():
        for model in models:
            add_flags(topical, model, topic)
    groups["plan"].add_argument(
        "--until-stable",
        action="store_true",
        help="plan round after round, as if the moved pods had become Ready, until no more node can go "
        "(default: one round)",
    )
    add_time_argument(groups["rules"])


def given(arguments: argparse.Namespace, *models: type[BaseModel], plan: bool = False) -> dict[str, object]:
    """Return the given values of the flags of *models*, by field; *plan* is as for :func:`add_flags`."""
    flags = {field: flag for model in models for field, flag in flags_of(model).items()}
    values = {field: getattr(arguments, field) for field, flag in flags.items() if flag.plan or not plan}
    return {field: value for field, value in values.items() if value is not None}


def add_output_arguments(
    parser: argparse.ArgumentParser, outputs: Iterable[str], *, table: bool
) -> argparse._ArgumentGroup:
    """Add the choice of output; with *table* also the order of a table."""
    choices = tuple(outputs)
    group = parser.add_argument_group("output")
    default = f"table, from {SUMMARY_FROM} nodes on summary" if table else choices[0]
    group.add_argument(
        "-o",
        "--output",
        choices=choices,
        default=None if table else choices[0],
        metavar="FORM",
        help=f"one of {', '.join(choices)} (default: {default})",
    )
    if table:
        group.add_argument(
            "--show",
            choices=SHOW,
            metavar="WHICH",
            help=f"print only these nodes: {', '.join(SHOW)} (default: those that --pool, --selector and --max-nodes "
            "ask for; a summary has the first removals)",
        )
        group.add_argument(
            "--limit-rows",
            type=value_of(parse_rows),
            metavar="N",
            help=f"print at most N nodes (default: all; {SUMMARY_ROWS} in a summary)",
        )
        group.add_argument(
            "--sort-by",
            choices=ORDERS,
            default=DEFAULT_ORDER,
            metavar="KEY",
            help=f"order of the nodes in every output: one of {', '.join(ORDERS)} (default: {DEFAULT_ORDER}: removals "
            "in their order, then the rest by pool and CPU ratio)",
        )
    group.add_argument(
        "--no-headers",
        action="store_true",
        help="print no titles and no summary, just the rows (warnings go to stderr)",
    )
    return group


def add_logging_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the level of the log on stderr."""
    group = parser.add_argument_group("logging")
    group.add_argument(
        "--log-level", choices=LOG_LEVELS, metavar="LEVEL", help=f"one of {', '.join(LOG_LEVELS)} (default: warning)"
    )
    group.add_argument("-v", "--verbose", action="count", default=0, help="log more: -v as info, -vv as debug")


def set_up_logging(level: str | None, verbose: int) -> None:
    """Log to stderr from *level* on, or from the level that the number of ``-v`` selects."""
    chosen = level or ("warning", "info", "debug")[min(verbose, 2)]
    logging.basicConfig(
        level=getattr(logging, chosen.upper()),
        stream=sys.stderr,
        format="%(levelname)s %(name)s: %(message)s",
        force=True,
    )


def environment() -> dict[str, str]:
    """Return the process's environment without empty values."""
    return {name: text for name, text in os.environ.items() if text}


_Settings = TypeVar("_Settings", bound=ProcessSettings)

Serve = Callable[[Runtime, _Settings, Mapping[str, str]], Awaitable[None]]
"""Runs a controller with its settings and the environment until ``runtime.stop``."""

_EPILOG = """Everything can also be set in the environment; flags come first. {live} come from the ConfigMap, live.
exit codes: 0 stopped by SIGTERM; 1 an error; 64 wrong usage; 130 interrupted."""

_TITLES = {"cluster": "cluster", "": "configuration", "logging": "logging"}


def add_run(
    commands: argparse._SubParsersAction[CommandParser],
    program: str,
    version: str,
    settings: type[_Settings],
    serve: Serve[_Settings],
) -> None:
    """Add the command to *commands*; *serve* runs the controller *program* with its *settings*."""
    words = settings.words
    run = commands.add_parser(
        "run",
        help=f"run the controller: {words.does}",
        description=words.description,
        epilog=_EPILOG.format(live=words.live[:1].upper() + words.live[1:]),
    )
    run.usage = f"{program} run [flags]"
    own = {flag.topic: flag.topic for flag in flags_of(settings).values() if flag.topic not in _TITLES}
    for topic, title in (_TITLES | own).items():
        add_flags(
            run.add_argument_group(title), settings, topic, otherwise=partial(_otherwise, settings), live=words.live
        )

    def begin(arguments: argparse.Namespace) -> int:
        return _run(given(arguments, settings), program, version, settings, serve)

    run.set_defaults(run=begin)


def _otherwise(settings: type[ProcessSettings], field: str, flag: Flag) -> str:
    """Return the variable and the default that apply without *flag*; empty if its help names them already."""
    if "default" in flag.help:
        return ""
    default = settings.model_fields[field].default
    values = default if isinstance(default, tuple) else (default,)
    texts = (f"{each:g}" if isinstance(each, float) else str(each) for each in values)
    switch = str(default).lower() if isinstance(default, bool) else ",".join(texts)
    return f" (default: ${settings.variables(field)[0]}" + ("" if default is None else f", else {switch}") + ")"


def _run(
    given: Mapping[str, object], program: str, version: str, settings: type[_Settings], serve: Serve[_Settings]
) -> int:
    variables = environment()
    try:
        loaded = load_process(settings, variables, given)
        set_up(loaded.log_format, loaded.log_level, environment=variables)
    except LoggingError as error:
        raise CliError(str(error)) from error

    async def main(runtime: Runtime) -> None:
        await serve(runtime, loaded, variables)

    logging.getLogger(program.replace("-", "_")).info("%s %s", program, version)
    return run_controller(main, loaded.grace, name=program)
