"""``plan`` of several clusters: contexts of the kubeconfig, or files that each hold a whole cluster."""

from __future__ import annotations

import argparse
import copy
import gc
import io
import re
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from fnmatch import fnmatchcase
from pathlib import PurePath
from queue import Empty, SimpleQueue

import msgspec

from tightship.cli.app import EXIT_WOULD_CHANGE, CliError, UsageError, cut
from tightship.cli.arguments import CommandParser
from tightship.cli.commands import ADVICE_TIME, EXITS, Commands
from tightship.cli.object_file import DocumentError, FileError, files_in, read_bytes, unpack
from tightship.cli.output import Progress, write_rendered
from tightship.cli.source import file_source, files_of, load_snapshot
from tightship.cluster import Snapshot
from tightship.documents.document import Generator, NodePlan
from tightship.documents.formats import formats_of
from tightship.kube.credentials import contexts
from tightship.objects.api_errors import KubeError
from tightship.objects.quoting import near, quoted
from tightship.process.settings.loading import SettingsError
from tightship_cli.fleet.document import FLEET, Planned, fleet_plan

AT_ONCE = 4
"""Clusters that are read and planned at the same time."""

EXIT_UNREAD = 3
"""Some of several clusters could not be read."""

TEAM_LABEL = "team"

_HOLDS = re.compile(rb"""["']?kind["']?\s*:\s*["']?(Node|Pod|ClusterSnapshot)["']?\s*(?:[,}\r\n]|$)""")


def add_fleet(commands: Commands, plan: CommandParser) -> None:
    """Let *plan*, the parser of the command of *commands*, take several clusters."""
    group = plan.add_argument_group("several clusters")
    group.add_argument("--all-contexts", action="store_true", help="the clusters of all contexts of the kubeconfig")
    group.add_argument(
        "--team-label",
        metavar="LABEL",
        default=TEAM_LABEL,
        help=f"label of namespaces that names their team; without it a namespace is a team (default: {TEAM_LABEL})",
    )
    plan.listed = None if plan.listed is None else plan.listed | {"several clusters"}
    plan.usage = f"{commands.name} plan [-f FILE | --context NAME | --all-contexts] [flags]"
    first, _, rest = (plan.epilog or "").partition("\n\n")
    rest = rest.replace(EXITS, EXITS.replace("64 wrong", f"{EXIT_UNREAD} some cluster could not be read; 64 wrong"))
    mine = f"{commands.name} plan --context 'prod-*' -o html > fleet.html  # several clusters, four at once"
    plan.epilog = f"{first}\n  {mine}\n\n{rest}"
    plan.set_defaults(advice_time=None, run=lambda arguments: _run(commands, arguments))


def _run(commands: Commands, arguments: argparse.Namespace) -> int:
    asked = arguments.advice_time
    each = _contexts(arguments) or _files(arguments)
    if len(each) == 1:
        each[0].advice_time = ADVICE_TIME if asked is None else asked
        return commands.plan(each[0])
    if getattr(arguments, "frontier", False):
        raise UsageError("--frontier is about one cluster; allowed is one --context, or the files of one")
    formats = formats_of(FLEET)
    arguments.output = {None: "table", "summary": "table"}.get(arguments.output, arguments.output)
    if arguments.output not in formats:
        raise UsageError(f"-o {arguments.output} is about one cluster; of several, allowed is {', '.join(formats)}")
    arguments.advice_time = asked or 0
    for one in each:
        one.advice_time = arguments.advice_time
    found = _planned(commands, each)
    generator = Generator(commands.name, commands.version)
    document = fleet_plan(generator, found)
    unread = [f"{one.name}: {one.error}" for one in found if one.error]
    if len(unread) == len(found):
        raise CliError(*unread)
    write_rendered(
        commands.name, FLEET, document, arguments, [*unread, *(w for e in document.clusters for w in e.warnings)]
    )
    if unread:
        return EXIT_UNREAD
    return EXIT_WOULD_CHANGE if arguments.exit_code and document.totals.nodes.removed else 0


def _contexts(arguments: argparse.Namespace) -> list[argparse.Namespace]:
    """Return the arguments for each context that is asked for; none if files are. Raises :class:`UsageError`."""
    patterns: Sequence[str] = arguments.context or ()
    twice = next((each for each in patterns if patterns.count(each) > 1), None)
    if twice is not None:
        raise UsageError(f"--context {twice} is given twice; allowed is each once")
    if arguments.all_contexts and (patterns or arguments.filename):
        raise UsageError(f"--all-contexts goes without {'--context' if patterns else '--filename'}: give only one")
    if arguments.filename:
        files_of(arguments)  # which refuses --context beside it
        return []
    if arguments.all_contexts or any(set(each) & set("*?[") for each in patterns):
        known = contexts(arguments.kubeconfig)
        wanted = patterns or ["*"]
        for each in wanted:
            if not any(fnmatchcase(name, each) for name in known):
                where = ", ".join(known) or "none"
                raise UsageError(f"--context {quoted(each)} matches no context; there are {where}{near(each, known)}")
        patterns = [name for name in known if any(fnmatchcase(name, each) for each in wanted)]
    return [_with(arguments, context=each) for each in patterns] or [_with(arguments, context=None)]


def _files(arguments: argparse.Namespace) -> list[argparse.Namespace]:
    """Return the arguments for each file if two or more hold a whole cluster, else those for all as one cluster."""
    paths: list[str] = arguments.filename
    if len(paths) < 2 or "-" in paths or sum(_whole(path) for path in paths) < 2:
        return [_with(arguments, context=None)]
    alike = len({PurePath(path).name for path in paths}) < len(paths)
    return [_with(arguments, context=None, filename=[path], named=path if alike else "") for path in paths]


def _whole(path: str) -> bool:
    """Whether *path* is a snapshot, or holds nodes and pods: a cluster of its own, and no part of one."""
    kinds: set[bytes] = set()
    try:
        for file in files_in(path):
            for each in _HOLDS.finditer(unpack(read_bytes(file)[0])):
                kinds.add(each[1])
                if len(kinds) > 1 or b"ClusterSnapshot" in kinds:
                    return True
    except (FileError, DocumentError):
        return True  # and a line of its own, which says so
    return b"ClusterSnapshot" in kinds


def _with(arguments: argparse.Namespace, **values: object) -> argparse.Namespace:
    found = copy.copy(arguments)
    vars(found).update(values)
    return found


def _planned(commands: Commands, each: Sequence[argparse.Namespace]) -> list[Planned]:
    """Return the plans, in the order of *each*: contexts four at once, files one by one, since nobody waits there."""
    found: list[Callable[[], Planned] | BaseException | None] = [None] * len(each)
    waiting: SimpleQueue[tuple[int, argparse.Namespace]] = SimpleQueue()
    for item in enumerate(each):
        waiting.put(item)
    done: SimpleQueue[int] = SimpleQueue()

    def work() -> None:
        while True:
            try:
                number, arguments = waiting.get_nowait()
            except Empty:
                return
            try:
                found[number] = _one(commands, arguments)
            except BaseException as error:  # raised below, in the thread that can end the command
                found[number] = error
            done.put(number)

    # Not those of an executor, for whose requests the end of the process would wait.
    for _ in range(1 if each[0].filename else min(AT_ONCE, len(each))):
        threading.Thread(target=copy_context().run, args=(work,), daemon=True).start()
    with Progress() as progress:
        for count in range(len(each)):
            progress.wait(f"planning clusters: {count} of {len(each)}")
            done.get()
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one() for one in found if callable(one)]


def _one(commands: Commands, arguments: argparse.Namespace) -> Callable[[], Planned]:
    """Return what reads the plan from its JSON: of a cluster nothing else is held while others are planned."""
    planned = _of(commands, arguments)
    kept, raw = msgspec.structs.replace(planned, plan=None), msgspec.json.encode(planned.plan)
    del planned
    gc.collect()
    return lambda: msgspec.structs.replace(kept, plan=msgspec.json.decode(raw, type=NodePlan | None))


def _of(commands: Commands, arguments: argparse.Namespace) -> Planned:
    name = getattr(arguments, "named", "") or arguments.context or file_source(arguments.filename).name
    try:
        plan, inputs = commands.planned(arguments, load_snapshot, io.StringIO())
    except UsageError:
        raise
    except (CliError, FileError, SettingsError) as error:
        return Planned(name, error=cut(error.problems[0]))
    except (KubeError, OSError) as error:
        return Planned(name, error=cut(" ".join(str(error).split()) or type(error).__name__))
    return Planned(name, plan, _teams(inputs.snapshot, arguments.team_label))


def _teams(snapshot: Snapshot, label: str) -> dict[str, str]:
    named = {name: each.labels.get(label, "") for name, each in snapshot.namespaces.items()}
    return {name: team for name, team in named.items() if team}
