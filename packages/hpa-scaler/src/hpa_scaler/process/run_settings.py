"""The process's settings: the settings that all controllers share, under the older controller's names.

Servers, defaults and the breaker may change, so they are in the ConfigMap: :mod:`hpa_scaler.process.settings`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from hpa_scaler.annotations.spec import Rules
from hpa_scaler.annotations.values import parse_int32
from tightship.process.settings.fields import Allowed, Flag
from tightship.process.settings.loading import OlderVariables
from tightship.process.settings.process import (
    Name,
    Ports,
    Positive,
    ProcessSettings,
    RunWords,
    Switch,
    variable,
)
from tightship.process.settings.query_servers import ServerAddress

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
    cycle_deadline: Positive = variable("CYCLE_DEADLINE_SECONDS", default=120.0)
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
