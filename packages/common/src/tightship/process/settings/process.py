"""The settings of a controller's process from flags and environment: fixed while the process runs.

Flags override the environment, which overrides defaults. Each controller has a subclass with its defaults, its
variables' names and perhaps more fields. Settings that may change come from the ConfigMap:
:mod:`tightship.process.settings.live`.
"""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from msgspec import Struct
from pydantic import AliasChoices, BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_settings import SettingsConfigDict

from tightship.draining.ledger import CLAIMS_LEASE, CLAIMS_NAMESPACE
from tightship.kube.host import token
from tightship.process.logging import FORMATS, LEVELS
from tightship.process.settings.loading import (
    Allowed,
    EnvironmentSource,
    Flag,
    FlagSource,
    Layered,
    OlderVariables,
    Seconds,
    resolve,
)

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The file with a pod's own namespace."""

EVERYWHERE = "::"
"""Every address of IPv6 and IPv4, because the kubelet and Prometheus connect from outside, by either."""
LOOPBACK = "127.0.0.1"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


def _switch(value: object) -> object:
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("is not a switch; allowed are true and false")


def _name(value: object) -> object:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise ValueError("is not the name of a Kubernetes object; allowed are lowercase letters, digits, '-' and '.'")


def _ports(value: object) -> object:
    given = value.split(",") if isinstance(value, str) else value
    parts = [str(each).strip() for each in given] if isinstance(given, list | tuple) else [str(given)]
    if not parts or not all(each.isascii() and each.isdigit() and int(each) <= 65535 for each in parts):
        raise ValueError("allowed are port numbers up to 65535, separated by commas, such as 9101,9102; 0: a free one")
    return tuple(int(each) for each in parts)


def _port(value: object) -> object:
    given = _ports(value)
    if not isinstance(given, tuple) or len(given) != 1:
        raise ValueError("allowed is one port number up to 65535; 0: a free one")
    return given[0]


def _one_of(allowed: tuple[str, ...]) -> Callable[[object], object]:
    def check(value: object) -> object:
        text = str(value).strip().lower()
        if text not in allowed:
            raise ValueError(f"allowed are {', '.join(allowed)}")
        return text

    return check


def _words(texts: Iterable[str]) -> Allowed:
    return Allowed(", ".join(f"`{each}`" for each in texts))


Switch = Annotated[bool, BeforeValidator(_switch), _words(("true", "false"))]
Name = Annotated[str, BeforeValidator(_name), Allowed("a name of a Kubernetes object")]
Ports = Annotated[tuple[int, ...], BeforeValidator(_ports), Allowed("ports, separated by commas")]
Port = Annotated[int, BeforeValidator(_port), Allowed("a port")]
LogFormat = Annotated[str, BeforeValidator(_one_of(tuple(FORMATS))), _words(("text", "json"))]
LogLevel = Annotated[str, BeforeValidator(_one_of(tuple(LEVELS))), _words(LEVELS)]
Positive = Annotated[Seconds, Field(gt=0, le=86400), Allowed("a duration above 0, up to a day")]


def variable(*names: str, default: object) -> Any:
    """Return a field that the first set variable of *names* sets, else *default*."""
    return Field(default=default, validation_alias=AliasChoices(*names))


class RunWords(Struct, frozen=True):
    """A controller's words in the help of ``run``.

    *does* says in a few words what the controller does, *live* what its ConfigMap holds, such as "pools and gates".
    """

    does: str
    description: str
    live: str


class ProcessSettings(Layered):
    """The settings of a process. Durations are in seconds; the environment may have ``90s`` or plain seconds.

    A subclass gives ``interval``, ``config_map``, ``ports`` and ``lease_name`` their :func:`variable`, and sets
    *words*.
    """

    model_config = SettingsConfigDict(validate_default=True)

    words: ClassVar[RunWords]
    older: ClassVar[OlderVariables] = OlderVariables()
    """The older controller's environment."""

    interval: Annotated[Positive, Flag("--interval SECONDS", "between two passes, more or less by a quarter", rank=1)]
    """Time between two passes, more or less by :data:`tightship.process.loop.JITTER`."""
    log_format: Annotated[LogFormat, Flag("--log-format FORMAT", "text or json", "logging", rank=1)] = variable(
        "LOG_FORMAT", default="text"
    )
    log_level: Annotated[LogLevel, Flag("--log-level LEVEL", "debug, info, warning or error", "logging")] = variable(
        "LOG_LEVEL", default="info"
    )
    kubeconfig: Annotated[
        str | None, Flag("--kubeconfig FILE", "default: its service account, or $KUBECONFIG", "cluster")
    ] = variable("TIGHTSHIP_KUBECONFIG", default=None)
    """A kubeconfig by name. Without a name, ``KUBECONFIG`` (perhaps several files) or the pod's own account applies."""
    context: Annotated[str | None, Flag("--context NAME", "context of the kubeconfig", "cluster")] = variable(
        "KUBE_CONTEXT", default=None
    )
    namespace: Annotated[
        Name, Flag("--namespace NAME", "of its ConfigMap and Leases (default: its own)", "cluster")
    ] = variable("NAMESPACE", "POD_NAMESPACE", default="default")
    """The namespace of the ConfigMap and the Leases; by default the service account's, else ``default``."""
    identity: str = variable("POD_NAME", default="")
    """This replica, unique to the process: the name of the pod, else of the host, and a random part."""
    config_map: Annotated[Name, Flag("--config-map NAME", "ConfigMap with {live}, watched")]
    """The ConfigMap with the live configuration."""
    config_path: Annotated[Path | None, Flag("--config FILE", "a mounted file or folder instead, polled")] = variable(
        "CONFIG_PATH", default=None
    )
    """A mounted file, or a folder of files, instead of the ConfigMap."""
    cluster_name: Annotated[
        str,
        Flag("--cluster-name NAME", "its name on the page and in Events (default: its context's)", "cluster"),
    ] = variable("CLUSTER_NAME", default="")
    """The name of the cluster for people; by default that of the context, or of the API server."""
    service_host: str = variable("KUBERNETES_SERVICE_HOST", default="")
    """The API server of the cluster that this process is a pod of. The kubelet sets the variable in every pod, so
    without it a person has started the process by hand, with whatever cluster their kubeconfig names."""
    dry_run: Annotated[
        Switch,
        Flag(
            "--dry-run",
            "judge and show, but change nothing (default: $DRY_RUN, else false in a pod and true elsewhere)",
            rank=1,
            sets=True,
        ),
    ] = variable("DRY_RUN", default=False)
    """Judge, plan and show everything; send no request that changes anything. The default outside a pod."""
    host: Annotated[
        str,
        Flag(
            "--host ADDRESS",
            f"address to serve on (default: $HTTP_HOST, else {EVERYWHERE} in a pod and {LOOPBACK} elsewhere)",
            rank=4,
        ),
    ] = variable("HTTP_HOST", default=EVERYWHERE)
    ports: Annotated[Ports, Flag("--port PORT", "HTTP port, repeatable", rank=3, parse=int)]
    """Each port serves everything: metrics, status, page and probes."""
    probe_port: Annotated[Port, Flag("--probe-port PORT", "HTTP port for the probes only", rank=3, parse=int)] = (
        variable("HTTP_PROBE_PORT", default=5000)
    )
    """The port that serves only the probes, on connections of its own; if it is one of *ports*, it serves everything.
    If only *ports* are set, the first of them is the probe port: whoever chose every port did not choose this
    default."""
    http_secure: Annotated[
        Switch, Flag("--secure", "HTTPS, for whom the API server lets get the path", rank=3, sets=True)
    ] = variable("HTTP_SECURE", default=False)
    """Metrics, status and page by HTTPS, for bearer tokens whose user may ``get`` the path as a nonResourceURL."""
    http_tls_path: Annotated[
        Path | None, Flag("--tls-path DIR", "tls.crt and tls.key (default: self-made)", rank=4)
    ] = variable("HTTP_TLS_PATH", default=None)
    """A folder with ``tls.crt`` and ``tls.key``, which is looked at again and again, for *http_secure*."""
    request_timeout: Positive = variable("REQUEST_TIMEOUT", default=30.0)
    leader_elect: Annotated[Switch, Flag("--no-leader-elect", "for a single replica", rank=2, sets=False)] = variable(
        "LEADER_ELECT", default=True
    )
    lease_name: Name
    lease_duration: Positive = variable("LEASE_DURATION", default=15.0)
    lease_renew_deadline: Positive = variable("LEASE_RENEW_DEADLINE", default=10.0)
    lease_retry_period: Positive = variable("LEASE_RETRY_PERIOD", default=2.0)
    """The three times of the Lease are client-go's; see :class:`tightship.kube.leases.LeaseTiming`."""
    stop_timeout: Positive = variable("STOP_TIMEOUT", default=15.0)
    """How long a stop waits until work under way ends or parks."""
    grace: Positive = variable("STOP_GRACE", default=25.0)
    """The longest time of a whole stop: below the pod's ``terminationGracePeriodSeconds`` (Kubernetes' default: 30)."""

    @field_validator("lease_renew_deadline", "lease_retry_period")
    @classmethod
    def _below(cls, value: float, info: ValidationInfo) -> float:
        above = "lease_duration" if info.field_name == "lease_renew_deadline" else "lease_renew_deadline"
        if value >= info.data.get(above, math.inf):
            raise ValueError(f"must be below {cls.variables(above)[0]}, which is {info.data[above]:g}")
        return value

    @field_validator("grace")
    @classmethod
    def _long_enough(cls, value: float, info: ValidationInfo) -> float:
        if value <= info.data.get("stop_timeout", 0.0):
            least = f"{cls.variables('stop_timeout')[0]}, which is {info.data['stop_timeout']:g}"
            raise ValueError(f"must be above {least}")
        return value

    @property
    def in_pod(self) -> bool:
        """Whether this process runs in a pod, where whoever installed it has decided what it may do."""
        return bool(self.service_host)

    def filled(self, namespace: str, unique: str) -> Self:
        """Return the settings with the gaps filled by what only this process knows."""
        by_hand = {} if self.in_pod else {"dry_run": True, "host": LOOPBACK}
        own = self.namespace if "namespace" in self.model_fields_set else namespace
        name = self.identity or socket.gethostname()
        probes = self.probe_port
        if "ports" in self.model_fields_set and "probe_port" not in self.model_fields_set:
            probes = self.ports[0]
        found = {field: value for field, value in by_hand.items() if field not in self.model_fields_set}
        return self.model_copy(update={**found, "namespace": own, "identity": f"{name}_{unique}", "probe_port": probes})


class NodeProcessSettings(ProcessSettings):
    """The settings of a node controller's process, which shares its claims with all others of the cluster."""

    claims_lease: Name = variable("CLAIMS_LEASE_NAME", default=CLAIMS_LEASE)
    claims_namespace: Name = variable("CLAIMS_LEASE_NAMESPACE", default=CLAIMS_NAMESPACE)
    """The namespace of the claims of **all** Tightship controllers, whatever their own namespaces are."""
    landings: Name = variable("LANDINGS_CONFIG_MAP_NAME", default="tightship-landings")
    """The ConfigMap in the controller's own namespace that tells the chart's admission policy where pods should land:
    see :mod:`tightship.landing.controller`."""
    release: Switch = variable("RELEASE", default=False)
    """Give back the nodes that drains of this installation hold, begin nothing, and end."""

    @property
    def gives_back(self) -> bool:
        """Whether a dry run ends the drains that its own installation left. Outside a pod nothing says which that is:
        the default names of a process started by hand are those of an installation in ``default``.
        """
        return self.dry_run and (self.in_pod or self.release)

    def filled(self, namespace: str, unique: str) -> Self:
        """See :meth:`ProcessSettings.filled`. A release is also a dry run."""
        found = super().filled(namespace, unique)
        return found.model_copy(update={"dry_run": found.dry_run or found.release})


_Settings = TypeVar("_Settings", bound=ProcessSettings)


def load_process(
    model: type[_Settings],
    environment: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
    *,
    namespace_file: Path = NAMESPACE_FILE,
    unique: Callable[[], str] = lambda: token(8),
) -> _Settings:
    """Return a *model* of *flags* (by field) over *environment* over defaults; an empty variable counts as not set.

    Raises ``SettingsError`` with all problems, each with the variable or flag, the
    value and what is allowed.
    """
    loaded = resolve(model, FlagSource(model, flags or {}), EnvironmentSource(model, environment, model.older))
    return loaded.filled(_own_namespace(namespace_file), unique())


def _own_namespace(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"
