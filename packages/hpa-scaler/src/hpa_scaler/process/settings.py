"""The settings of the process, and those that may change while the hpa-scaler runs; the rules, servers and limits made
from them.

The process has the settings that all controllers share. Servers, defaults and the breaker may change, so they are in
the ConfigMap. Durations are in seconds, written as ``10m``. Defaults come from the parts that the settings configure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field

from hpa_scaler.annotations.parsing import ANNOTATIONS, BY_KEY, check_defaults
from hpa_scaler.annotations.spec import Rules
from hpa_scaler.annotations.values import SERVER_NAME, format_float, parse_int32
from hpa_scaler.prometheus.client import DEFAULT, ClientLimits
from tightship.objects.query_servers import AllowList, Server
from tightship.objects.selectors import parse_selector
from tightship.process.settings.loading import (
    Allowed,
    ConfigSource,
    Flag,
    Layered,
    OlderVariables,
    Seconds,
    SettingsError,
    Share,
    config_in,
    read_config,
    resolve,
)
from tightship.process.settings.process import (
    Name,
    Ports,
    Positive,
    ProcessSettings,
    RunWords,
    Switch,
    variable,
)
from tightship.process.settings.query_servers import ServerAddress, ServerSettings, server_of
from tightship.process.settings.windows import LoweringWindows
from tightship.rules.windows import Windows

PROGRAM = "hpa-scaler"

_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


def _lower_bound(value: object) -> object:
    bound = parse_int32(str(value))
    if bound is None:
        raise ValueError("allowed is a whole number as Go reads it, such as 3, 0x10 or 010 (which is 8)")
    return bound


def _prefix(value: object) -> object:
    if not _PREFIX.fullmatch(str(value)):
        raise ValueError("allowed is a DNS name such as tightship.dev: lowercase letters, digits, '-' and '.'")
    return value


class ScalerRunSettings(ProcessSettings):
    """The hpa-scaler's defaults and names. Durations are in seconds."""

    words = RunWords(
        does="ask, judge, and set the floors of HPAs, cycle after cycle",
        description="Run the controller: ask Prometheus what annotated HPAs want to know, judge where their floors "
        "belong, and set them, again and again. Serves metrics, probes and its last cycle over HTTP.",
        live="servers, defaults and how careful it is",
    )

    older = OlderVariables({"ESTAFETTE_LOG_FORMAT": "log_format", "ESTAFETTE_LOG_LEVEL": "log_level"})

    interval: Positive = variable("INTERVAL", default=75.0)
    """The older controller's interval was fixed: 68 to 111 s."""
    config_map: Name = variable("CONFIG_MAP_NAME", default="hpa-scaler-config")
    ports: Ports = variable("HTTP_PORTS", default=(9101,))
    """The older controller's metrics port; its probe had the default probe port."""
    lease_name: Name = variable("LEASE_NAME", default="hpa-scaler")
    prometheus_server_url: Annotated[
        ServerAddress,
        Allowed("an address with `http` or `https`"),
        Flag(
            "--prometheus-server-url URL",
            "the server of HPAs that name none (default: $PROMETHEUS_SERVER_URL)",
            "floors",
            plan=True,
        ),
    ] = variable("PROMETHEUS_SERVER_URL", default="")
    """The server for HPAs that name none. The older controller did not start without this address."""
    lower_bound: Annotated[
        int,
        BeforeValidator(_lower_bound),
        Allowed("a whole number, as Go reads it"),
        Flag(
            "--lower-bound N",
            "the lowest floor of HPAs that name none (default: $MINIMUM_REPLICAS_LOWER_BOUND, else 3)",
            "floors",
            plan=True,
        ),
    ] = variable("MINIMUM_REPLICAS_LOWER_BOUND", default=Rules().lower_bound)
    annotation_prefix: Annotated[
        str,
        BeforeValidator(_prefix),
        Allowed("a DNS name"),
        Flag(
            "--annotation-prefix PREFIX",
            "what annotations begin with (default: $ANNOTATION_PREFIX, else tightship.dev)",
            "floors",
            plan=True,
        ),
    ] = variable("ANNOTATION_PREFIX", default=Rules().prefix)
    """The prefix of all annotation names, before ``/hpa-scaler``."""
    cycle_deadline: Positive = variable("CYCLE_DEADLINE", default=120.0)
    """How long a cycle may take. The next cycle judges again the HPAs that were not written by then."""
    watch: Annotated[
        Switch, Flag("--watch", "watch HPAs too, and raise again at once what is set back", "floors", rank=1, sets=True)
    ] = variable("WATCH_HPAS", default=False)
    decision_log: Annotated[
        Path | None, Flag("--decision-log FILE", "append every judgement to FILE, for `replay`", "floors")
    ] = variable("DECISION_LOG", default=None)
    """The file to which the controller appends every judgement, for ``replay``; none by default."""
    decision_log_megabytes: Annotated[float, Field(gt=0, le=100_000), Allowed("a number above 0, up to 100000")] = (
        variable("DECISION_LOG_MEGABYTES", default=200.0)
    )
    """At this size the controller renames the file to ``.1``, replacing an earlier ``.1``, and starts a new file."""


CONFIG_MAP_KEYS = ("config.yaml", "config.json")
"""Keys of a ConfigMap's data that may hold the configuration, in order of preference."""

CYCLES_APART = 4
"""How many cycles may be missed before an HPA's history is too old to continue."""

_RULES, _LIMITS = Rules(), ClientLimits()
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def _entries(texts: tuple[str, ...]) -> tuple[str, ...]:
    AllowList.of(texts)
    return texts


def _namespaces(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not _NAMESPACE.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a namespace")
    return names


def selector_text(text: str) -> str:
    """Return the label selector *text* if it can be parsed; raise :class:`ValueError` otherwise."""
    parse_selector(text)
    return text


def _age_query(text: str) -> str:
    if text and "{range}" not in text:
        raise ValueError("has no {range}, in seconds, and perhaps {step}; allowed is also an empty text, for none")
    return text


def _factor(factor: float) -> float:
    if 0 < factor < 1:
        raise ValueError("is below 1; allowed is 1 or more, or 0 for no limit")
    return factor


SomeShare = Annotated[Share, Field(gt=0)]
Factor = Annotated[float, Field(ge=0, le=1000), AfterValidator(_factor)]


def _servers(servers: Mapping[str, ServerSettings]) -> Mapping[str, ServerSettings]:
    for name, server in servers.items():
        if SERVER_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not the name of a server; allowed are letters, digits, '-', '_' and '.'")
        if not server.url and name != DEFAULT:
            raise ValueError(f"server {name!r} has no url")
    return servers


class ScalerSettings(Layered):
    """Everything that comes from the ConfigMap."""

    servers: Annotated[Mapping[str, ServerSettings], AfterValidator(_servers)] = Field(
        default={}, alias="prometheusServers"
    )
    """Servers, by the names that HPAs use."""
    allowed: Annotated[tuple[str, ...], AfterValidator(_entries)] = Field(default=(), alias="allowedServerURLs")
    """Addresses besides these servers that the annotation ``prometheus-server-url`` may name, and redirects may lead
    to."""
    defaults: Mapping[str, str] = {}
    """Default annotation values by name, for HPAs that do not set the annotation."""
    namespaces: Annotated[tuple[str, ...], AfterValidator(_namespaces)] = ()
    """The namespaces whose HPAs are read; empty: all."""
    label_selector: Annotated[str, AfterValidator(selector_text)] = Field(default="", alias="labelSelector")
    """The labels that an HPA must have to be read."""
    writes_per_second: float = Field(default=50.0, gt=0, le=1000, alias="maximumWritesPerSecond")
    hpa_metrics: bool = Field(default=True, alias="perHPAMetrics")
    """Whether each HPA has series of its own."""
    query_deadline: Seconds = Field(default=45.0, gt=0, le=600, alias="queryDeadline")
    """Time limit for all queries of one cycle; a query without an answer by then fails."""
    circuit_failures: int = Field(default=_LIMITS.failures, ge=1, alias="circuitBreakerFailures")
    """Consecutive failures after which the controller stops querying a server."""
    circuit_pause: Seconds = Field(default=_LIMITS.pause, gt=0, alias="circuitBreakerPause")
    """How long the controller then sends that server no queries."""
    cold_guard: bool = Field(default=_RULES.cold_guard, alias="coldSourceGuard")
    """Whether to keep a floor from being lowered while the server's data do not cover the query's look-back."""
    longest_guard: Seconds = Field(default=_RULES.longest_guard, alias="coldSourceLimit")
    """The longest time for which young data prevent lowering."""
    age_query: Annotated[str, AfterValidator(_age_query)] = Field(default=_RULES.age_query, alias="dataAgeQuery")
    """The query for the age of a server's data; empty for none."""
    late_query: str = Field(default=_RULES.late_query, alias="lateSamplesQuery")
    """The query for the age of a server's newest sample, in scrape intervals; empty for none."""
    failed_query: str = Field(default=_RULES.failed_query, alias="failedScrapesQuery")
    """The query whose series are the targets that could not always be scraped; empty for none."""
    rollout_limit: Seconds = Field(default=_RULES.rollout_limit, alias="rolloutTimeout")
    """How long a rollout may prevent lowering."""
    contest_resets: int = Field(default=_RULES.contest_resets, ge=1, alias="contestResets")
    """Resets of the bounds by somebody else after which the controller leaves them alone for a while."""
    contest_window: Seconds = Field(default=_RULES.contest_window, gt=0, alias="contestWindow")
    """The longest time between two such resets for both to count."""
    contest_pause: Seconds = Field(default=_RULES.contest_pause, gt=0, alias="contestPause")
    """How long the controller leaves the bounds alone; each further reset doubles the time."""
    contest_longest_pause: Seconds = Field(default=_RULES.contest_longest_pause, gt=0, alias="contestPauseLimit")
    drop_count: int = Field(default=_RULES.drop_count, ge=2, alias="correlatedDropMinimumCount")
    """With fewer different queries than this, the breaker for correlated drops never trips."""
    drop_share: SomeShare = Field(default=_RULES.drop_share, alias="correlatedDropPercentage")
    """The share of the queries that may drop at once."""
    drop_floor_share: SomeShare = Field(default=_RULES.drop_floor_share, alias="correlatedDropFloorPercentage")
    """The share of all wanted pods that may be lost at once."""
    drop_size: Share = Field(default=_RULES.drop_size, lt=1, alias="correlatedDropSize")
    """The share by which a query must want less than lately to count as a drop."""
    drop_hold: Seconds = Field(default=_RULES.drop_hold, alias="correlatedDropHold")
    """How long a correlated drop prevents all lowering; 0: until the queries recover."""
    rise_factor: Factor = Field(default=_RULES.rise_factor, alias="suddenRiseFactor")
    """How far a floor goes up at once, as a multiple of the highest floor wanted in the last day; 0: no limit. The
    floor goes further once the queries have wanted more for as long as they look back, plus two cycles."""
    rise_pods: int = Field(default=_RULES.rise_pods, ge=1, alias="suddenRisePods")
    """A floor goes up at once to this many pods, whatever was wanted in the last day."""
    maximum_factor: Factor = Field(default=_RULES.maximum_factor, alias="maxReplicasFactor")
    """The limit for floors, and for ``maxReplicas`` raised with them, as a multiple of the user's own ``maxReplicas``;
    0: no limit."""
    windows: LoweringWindows = Windows()
    """When floors may be lowered; they are raised at any time."""


def load_settings(values: Mapping[str, object], place: str = "") -> ScalerSettings:
    """Return the settings in *values*, plain values by key; *place* is the file, or the key of a ConfigMap's data.

    Raises :class:`~tightship.process.settings.loading.SettingsError` with all problems, including problems of the
    annotations in ``defaults``.
    """
    config = ConfigSource(ScalerSettings, values, place)
    defaults, problems = _defaults(config.values.pop("defaults", {}), config)
    try:
        settings = resolve(ScalerSettings, config)
    except SettingsError as error:
        raise SettingsError(sorted([*error.problems, *problems])) from error
    if problems:
        raise SettingsError(problems)
    return settings.model_copy(update={"defaults": defaults})


def _defaults(value: object, config: ConfigSource) -> tuple[dict[str, str], list[str]]:
    """Return the default texts by annotation name, and the problems of *value*."""
    if not isinstance(value, Mapping):
        return {}, [f"{config.named(('defaults',))}: {value!r}: must be a mapping of annotations"]
    texts: dict[str, str] = {}
    problems: list[str] = []
    for key, each in value.items():
        annotation = BY_KEY.get(str(key))
        where = config.named(("defaults", str(key)))
        text = _text(each)
        if annotation is None:
            allowed = ", ".join(sorted(each.key for each in ANNOTATIONS))
            problems.append(f"{where}: unknown key; allowed are {allowed}")
        elif text is None:
            problems.append(f"{where}: {each!r}: allowed is a text, a number or a switch")
        else:
            texts[annotation.name] = text
    for line in check_defaults(texts):
        key, _, rest = line.partition(": ")
        problems.append(f"{config.named(('defaults', key))}: {rest}")
    return texts, sorted(problems)


def _text(value: object) -> str | None:
    match value:
        case bool():
            return str(value).lower()
        case int() | str():
            return str(value)
        case float():
            return format_float(value) if value - value == 0 else str(value)
        case _:
            return None


def parse_config_map(data: Mapping[str, str]) -> ScalerSettings:
    """Return the settings in a ConfigMap's *data*, or the defaults if it has no text at all.

    Raises :class:`~tightship.process.settings.loading.SettingsError` with all problems at once.
    """
    key, found = config_in(data, CONFIG_MAP_KEYS)
    return load_settings(found, key)


def read_settings(path: str | None) -> ScalerSettings:
    """Return the settings in the file *path*, or the defaults without a file; raises as :func:`parse_config_map`."""
    return ScalerSettings() if path is None else load_settings(read_config(path, CONFIG_MAP_KEYS), path)


def rules_of(settings: ScalerSettings, run: ScalerRunSettings) -> Rules:
    """Return the rules for judgements, from the configuration and the process's settings."""
    return msgspec.structs.replace(
        msgspec.convert(settings, Rules, from_attributes=True),
        prefix=run.annotation_prefix,
        lower_bound=run.lower_bound,
        longest_gap=CYCLES_APART * run.interval,
        handover_gap=CYCLES_APART * run.interval,
        windows=settings.windows,
    )


def servers_of(settings: ScalerSettings, run: ScalerRunSettings) -> dict[str, Server]:
    """Return the servers by name; ``PROMETHEUS_SERVER_URL`` overrides the URL of the server ``default``."""
    given = dict(settings.servers)
    default = given.pop(DEFAULT, ServerSettings())
    servers = {name: server_of(name, each, each.url) for name, each in given.items()}
    url = run.prometheus_server_url or default.url
    if url:
        servers[DEFAULT] = server_of(DEFAULT, default, url)
    return servers


def allowed_of(settings: ScalerSettings) -> AllowList:
    """Return the addresses that HPAs may name besides the servers."""
    return AllowList.of(settings.allowed)


def limits_of(settings: ScalerSettings) -> ClientLimits:
    """Return the client's timeouts and limits."""
    return ClientLimits(settings.circuit_failures, settings.circuit_pause)
