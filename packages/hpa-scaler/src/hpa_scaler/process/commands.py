"""``plan`` and ``explain``: their flags, and the HPAs that they select, judged."""

from __future__ import annotations

import argparse
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

import hpa_scaler
from hpa_scaler.annotations.outcome_file import RecordedOutcomes, decode_outcomes
from hpa_scaler.annotations.queries import (
    Expectations,
    Failure,
    ForecastKey,
    Outcome,
    Query,
    QueryAnswer,
    operand_answer,
    recorded_instead,
    value_query,
)
from hpa_scaler.annotations.spec import FloorSpec, Rules
from hpa_scaler.annotations.values import parse_int32
from hpa_scaler.documents import PlanContext
from hpa_scaler.documents.document import HpaEntry
from hpa_scaler.judge.decision import DropState
from hpa_scaler.judge.judge import asked_of, forecasts_of, judge_cycle, questions, subject_of, wants_rollout
from hpa_scaler.process.fleet import (
    KINDS,
    LONGEST,
    HpaFleet,
    Say,
    Selection,
    UnknownNamespaceError,
    fleet_of_cluster,
    fleet_of_files,
    read_rollouts,
    rollouts_of_file,
)
from hpa_scaler.process.forecasts import ForecastMaker
from hpa_scaler.process.settings import (
    PROGRAM,
    ScalerRunSettings,
    ScalerSettings,
    allowed_of,
    limits_of,
    read_settings,
    rules_of,
    selector_text,
    servers_of,
)
from hpa_scaler.process.status import settings_view
from hpa_scaler.prometheus.client import PrometheusClient
from tightship.cli.app import CliError, UsageError
from tightship.cli.arguments import add_cluster_arguments, add_flags, add_time_argument, given, value_of
from tightship.cli.object_file import FileError
from tightship.cli.source import connected, file_source, files_of, reading
from tightship.documents.document import Generator, Source
from tightship.kube.connection import Connection
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.counting import counted
from tightship.objects.quoting import near, quoted
from tightship.objects.reasons import Reason, Refusal
from tightship.process.settings.loading import SettingsError
from tightship.process.settings.process import load_process

_log = logging.getLogger(__name__)

EXITS = """exit codes: 0 done; 1 an error, or a difference in a replay; 2 with --exit-code, when a floor would move;
64 wrong usage; 130 interrupted; 141 the reader closed the pipe."""

_ACTIONS = ("raise", "lower", "hold", "skip")

ORDERS: Mapping[str, Callable[[HpaEntry], object] | None] = {
    "name": None,
    "action": lambda entry: _ACTIONS.index(entry.action),
    "change": lambda entry: -abs(entry.minimum.after - entry.minimum.now),
}
"""Sort orders of a plan's HPAs, the default first. Namespace and name break ties."""


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the flags for HPAs, settings and the time."""
    cluster = add_cluster_arguments(parser, KINDS)
    add_selection(cluster)
    settings = parser.add_argument_group("settings")
    settings.add_argument(
        "--config", metavar="FILE", help="what the controller's ConfigMap holds, or the manifest of one"
    )
    add_flags(settings, ScalerRunSettings, "floors", plan=True)
    add_time_argument(settings)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags for inputs, settings and answers."""
    add_inputs(parser)
    answers = parser.add_argument_group("queries")
    answers.add_argument("--outcomes", metavar="FILE", help="take the answers from FILE instead of asking servers")


def add_selection(group: argparse._ArgumentGroup, *, all_by_default: bool = True) -> None:
    """Add the flags that select HPAs."""
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "-n", "--namespace", metavar="NAME", action="append", help="only HPAs of this namespace; repeatable"
    )
    which.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="HPAs of all namespaces" + (" (the default)" if all_by_default else ""),
    )
    group.add_argument(
        "-l",
        "--selector",
        metavar="SELECTOR",
        type=value_of(selector_text),
        help="only HPAs with these labels, as for kubectl: a=b, a!=b, a, !a, 'a in (b,c)', joined by commas",
    )


def selection_of(arguments: argparse.Namespace, namespaces: tuple[str, ...], selector: str) -> Selection:
    """Return the selection of HPAs: the flags', else the configuration's."""
    named = tuple(dict.fromkeys(arguments.namespace or ()))
    chosen = named or (() if arguments.all_namespaces else namespaces)
    return Selection(chosen, selector if arguments.selector is None else arguments.selector, named)


class CommandSettings(Struct, frozen=True):
    """The settings of a command; *config* is the file they came from, if any."""

    process: ScalerRunSettings
    settings: ScalerSettings
    rules: Rules
    config: str | None

    @classmethod
    def of(cls, arguments: argparse.Namespace, environment: Mapping[str, str]) -> CommandSettings:
        """Return the settings of *arguments* over *environment*. Raises :class:`CliError` with all problems."""
        problems: list[str] = []
        process, settings = None, None
        given_bound = parse_int32(arguments.lower_bound or "0")
        if given_bound is not None and given_bound < 0:
            # The older controller's variable takes such a number too. Nobody types one on purpose.
            raise UsageError(f"--lower-bound: {quoted(arguments.lower_bound)}: allowed is a whole number from 0")
        try:
            process = load_process(ScalerRunSettings, environment, given(arguments, ScalerRunSettings, plan=True))
        except SettingsError as error:
            problems += error.problems
        try:
            settings = read_settings(arguments.config)
        except SettingsError as error:
            problems += error.problems
        if process is None or settings is None:
            wrong_usage = any(line.startswith("--") for line in problems)
            raise (UsageError if wrong_usage else CliError)(*problems)
        return cls(process, settings, rules_of(settings, process), arguments.config)


async def judge_selected(
    arguments: argparse.Namespace,
    configured: CommandSettings,
    now: float,
    names: Sequence[str] | None,
    say: Say,
    *,
    forecasts: ForecastMaker,
) -> PlanContext:
    """Judge the HPAs that *arguments* select, at *now*: all opted-in HPAs, or the HPAs called *names*, opted in or not.

    Raises :class:`CliError`, :class:`~tightship.cli.object_file.FileError`,
    :class:`~hpa_scaler.annotations.outcome_file.OutcomeFileError` and :class:`~tightship.objects.api_errors.KubeError`.
    """
    if arguments.outcomes is not None and arguments.prometheus_server_url is not None:
        raise UsageError("--outcomes has the answers and --prometheus-server-url asks for them: give only one")
    async with selected_fleet(arguments, configured, say) as (fleet, source, connection):
        inputs = _Inputs(fleet, source, arguments.outcomes, forecasts, connection)
        return await _judged(inputs, configured, now, names, say)


@asynccontextmanager
async def selected_fleet(
    arguments: argparse.Namespace, configured: CommandSettings, say: Say
) -> AsyncIterator[tuple[HpaFleet, Source, Connection | None]]:
    """Read the HPAs that *arguments* select, from files or over a connection, which stays open in the context.

    Raises :class:`CliError`, and the errors of files and of the API.
    """
    selection = selection_of(arguments, configured.settings.namespaces, configured.settings.label_selector)
    paths = files_of(arguments)
    try:
        if paths:
            say(reading(paths))
            yield fleet_of_files(paths, selection), file_source(paths), None
            return
        say("connecting")
        async with await connected(arguments) as connection:
            say(f"connecting to {connection.server}")
            fleet = await fleet_of_cluster(connection, selection, say)
            yield fleet, Source("cluster", connection.context), connection
    except UnknownNamespaceError as error:
        raise CliError(*error.problems) from error


def client_of(configured: CommandSettings) -> PrometheusClient:
    """Return a client for the servers in the settings."""
    settings = configured.settings
    return PrometheusClient(servers_of(settings, configured.process), allowed_of(settings), limits=limits_of(settings))


class _Inputs(Struct, frozen=True):
    """The input of a command; *outcomes* is the file with recorded outcomes, if any."""

    fleet: HpaFleet
    source: Source
    outcomes: str | None
    forecasts: ForecastMaker
    connection: Connection | None = None


async def _judged(
    inputs: _Inputs, configured: CommandSettings, now: float, names: Sequence[str] | None, say: Say
) -> PlanContext:
    fleet, rules = inputs.fleet, configured.rules
    asked = {hpa.key: asked_of(hpa, rules.prefix, configured.settings.defaults) for hpa in fleet.hpas}
    hpas = named(names, fleet.hpas) if names is not None else [hpa for hpa in fleet.hpas if asked[hpa.key] is not None]
    watched = [hpa for hpa in hpas if wants_rollout(asked[hpa.key])]
    if inputs.connection is None:
        rollouts = rollouts_of_file(fleet, watched)
    else:
        rollouts = await read_rollouts(inputs.connection, watched, LONGEST)
    queries = questions((asked[hpa.key] for hpa in hpas), rules)
    keys = forecasts_of(asked[hpa.key] for hpa in hpas)
    if inputs.outcomes is not None:
        known = _recorded(inputs.outcomes)
        outcomes = {query: known.outcomes[query] for query in queries if query in known.outcomes}
        for spec in (each for hpa in hpas if isinstance(each := asked[hpa.key], FloorSpec)):
            for query, instead, whole in recorded_instead(spec, known.outcomes):
                found = known.outcomes[instead]
                value = None if whole is None else known.outcomes.get(value_query(whole))
                outcomes[query] = found if whole is None else operand_answer(found, whole, value)
        forecasts: Expectations = {key: known.forecasts[key] for key in keys if key in known.forecasts}
    else:
        outcomes, forecasts = await _asked(queries, keys, configured, now, say, forecasts=inputs.forecasts)
    say(f"judging {counted(len(hpas), 'HPA')}")
    subjects = [
        subject_of(
            hpa,
            asked[hpa.key],
            outcomes=outcomes,
            rollout=rollouts.get(hpa.key),
            rules=rules,
            now=now,
            forecasts=forecasts,
        )
        for hpa in hpas
    ]
    return PlanContext(
        generator=Generator(PROGRAM, hpa_scaler.__version__),
        source=inputs.source,
        settings=settings_view(configured.settings, configured.process, configured.config, inputs.outcomes),
        cycle=judge_cycle(subjects, DropState(), rules, now),
        rules=rules,
        not_enabled=sum(1 for each in asked.values() if each is None),
        now=now,
        warnings=(
            *(str(Refusal(Reason.UNREADABLE, detail=problem)) for problem in fleet.problems),
            *fleet.warnings,
            *_unanswered(queries, outcomes),
        ),
    )


def _unanswered(queries: Collection[Query], outcomes: Mapping[Query, Outcome]) -> tuple[str, ...]:
    """Return a warning if no query at all was answered: what is shown then follows from nothing measured."""
    failures = [found for query in queries if isinstance(found := outcomes.get(query), Failure)]
    if not queries or any(isinstance(outcomes.get(query), QueryAnswer) for query in queries):
        return ()
    why = f": {failures[0].detail}" if failures else ""
    asked = "the only query was" if len(queries) == 1 else f"none of {len(queries):,} queries was"
    return (f"{asked} answered, so no floor follows traffic{why}",)


def _recorded(path: str) -> RecordedOutcomes:
    try:
        return decode_outcomes(Path(path).read_bytes(), path)
    except OSError as error:
        raise FileError((f"{path}: {error.strerror or error}",)) from error


async def _asked(
    queries: Collection[Query],
    keys: Collection[ForecastKey],
    configured: CommandSettings,
    now: float,
    say: Say,
    *,
    forecasts: ForecastMaker,
) -> tuple[dict[Query, Outcome], Expectations]:
    say(f"asking {counted(len(queries), 'query', 'queries')}")
    async with client_of(configured) as client:
        outcomes = await client.ask(queries, configured.settings.query_deadline)
        return outcomes, await forecasts(client, _log, lambda: now).read(keys, now, say)


def named(names: Sequence[str], hpas: Iterable[HorizontalPodAutoscaler]) -> list[HorizontalPodAutoscaler]:
    """Return the HPAs called *names*. Raises :class:`CliError` with a line for each name without exactly one HPA."""
    known = {hpa.key: hpa for hpa in hpas}
    found: dict[str, HorizontalPodAutoscaler] = {}
    problems = []
    for name in names:
        keys = [key for key in sorted(known) if name in (key, key.partition("/")[2])]
        if len(keys) == 1:
            found[keys[0]] = known[keys[0]]
        elif keys:
            problems.append(f'HPA "{name}" is in several namespaces: {", ".join(keys)}')
        else:
            problems.append(f'HPA "{name}" not found{near(name, known)}')
    if problems:
        raise CliError(*problems)
    return list(found.values())
