"""What the process ``node-compactor run`` is told by flags and environment: what does not change while it runs.

Flags come before the environment, that before defaults. Names of variables are those of the older controller where it
had one. What may change (pools, gates, drains) comes from the ConfigMap: :mod:`node_compactor.configuration`.
"""

from __future__ import annotations

import math
import re
import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AliasChoices, BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from tightship.drain.claims import CLAIMS_LEASE
from tightship.observability.logging import FORMATS, LEVELS
from tightship.runtime.http import EVERYWHERE
from tightship.settings.fields import Seconds
from tightship.settings.loading import Location, SettingsError

JITTER = 0.25
"""A pause between two passes is longer or shorter by up to this share of it, as the older controller's."""

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where a pod finds its own namespace."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


def _switch(value: object) -> object:
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("is no switch; allowed are true and false")


def _name(value: object) -> object:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise ValueError("is no name of a Kubernetes object; allowed are small letters, digits, '-' and '.'")


def _ports(value: object) -> object:
    given = value.split(",") if isinstance(value, str) else value
    parts = [str(each).strip() for each in given] if isinstance(given, list | tuple) else [str(given)]
    if not parts or not all(each.isascii() and each.isdigit() and int(each) <= 65535 for each in parts):
        raise ValueError("allowed are port numbers up to 65535, separated by commas, such as 9101,5000; 0: a free one")
    return tuple(int(each) for each in parts)


def _one_of(allowed: tuple[str, ...]) -> Callable[[object], object]:
    def check(value: object) -> object:
        text = str(value).strip().lower()
        if text not in allowed:
            raise ValueError(f"allowed are {', '.join(allowed)}")
        return text

    return check


Switch = Annotated[bool, BeforeValidator(_switch)]
Name = Annotated[str, BeforeValidator(_name)]
Positive = Annotated[Seconds, Field(gt=0, le=86400)]


def _variable(*names: str, default: object) -> Any:
    return Field(default=default, validation_alias=AliasChoices(*names))


class RunSettings(BaseSettings):
    """How the process runs. Durations are in seconds; in the environment ``90s`` and plain seconds are read."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", validate_default=True)

    interval: Positive = _variable("SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS", default=300.0)
    """Between two passes, more or less by :data:`JITTER` (the older controller's default; its chart set 60)."""
    log_format: Annotated[str, BeforeValidator(_one_of(FORMATS))] = _variable(
        "ESTAFETTE_LOG_FORMAT", "LOG_FORMAT", default=FORMATS[0]
    )
    log_level: Annotated[str, BeforeValidator(_one_of(tuple(LEVELS)))] = _variable(
        "ESTAFETTE_LOG_LEVEL", "LOG_LEVEL", default="info"
    )
    kubeconfig: str | None = _variable("TIGHTSHIP_KUBECONFIG", default=None)
    """A kubeconfig by name. ``KUBECONFIG`` (which may name several) and a pod's own account are found without it."""
    context: str | None = _variable("KUBE_CONTEXT", default=None)
    namespace: Name = _variable("NAMESPACE", "POD_NAMESPACE", default="default")
    """Where the ConfigMap and the Leases are; by default that of the pod's service account, else ``default``."""
    identity: str = _variable("POD_NAME", default="")
    """This replica, unique to the process: the pod's name, else the host's, and a random part."""
    config_map: Name = _variable("CONFIG_MAP_NAME", default="estafette-k8s-node-compactor-config")
    """The ConfigMap with the live configuration; by default the one that the older controller's README names."""
    config_path: Path | None = _variable("CONFIG_PATH", default=None)
    """A mounted file, or a folder of files, in place of the ConfigMap."""
    dry_run: Switch = _variable("DRY_RUN", default=False)
    """Judge, plan and show everything; make no request that changes anything."""
    host: str = _variable("HTTP_HOST", default=EVERYWHERE)
    ports: Annotated[tuple[int, ...], BeforeValidator(_ports)] = _variable("HTTP_PORTS", default=(9101, 5000))
    """Every port serves all; the older controller had metrics on 9101 and its probe on 5000."""
    request_timeout: Positive = _variable("REQUEST_TIMEOUT_SECONDS", default=30.0)
    leader_elect: Switch = _variable("LEADER_ELECT", default=True)
    lease_name: Name = _variable("LEASE_NAME", default="node-compactor")
    lease_duration: Positive = _variable("LEASE_DURATION_SECONDS", default=15.0)
    lease_renew_deadline: Positive = _variable("LEASE_RENEW_DEADLINE_SECONDS", default=10.0)
    lease_retry_period: Positive = _variable("LEASE_RETRY_PERIOD_SECONDS", default=2.0)
    """The three times of the Lease are client-go's; see :class:`tightship.kube.election.LeaseTiming`."""
    claims_lease: Name = _variable("CLAIMS_LEASE_NAME", default=CLAIMS_LEASE)
    claims_namespace: str = _variable("CLAIMS_LEASE_NAMESPACE", default="")
    """Where the claims of **all** Tightship controllers are; by default the own namespace, so controllers in different
    namespaces must be told one."""
    stop_timeout: Positive = _variable("STOP_TIMEOUT_SECONDS", default=15.0)
    """How long a stop waits for drains to end or to be parked on their nodes."""
    grace: Positive = _variable("STOP_GRACE_SECONDS", default=25.0)
    """How long all of a stop may take: below the pod's ``terminationGracePeriodSeconds`` (Kubernetes' default: 30)."""

    @field_validator("lease_renew_deadline", "lease_retry_period")
    @classmethod
    def _below(cls, value: float, info: ValidationInfo) -> float:
        above, field = (
            ("lease_duration", "LEASE_DURATION_SECONDS")
            if info.field_name == "lease_renew_deadline"
            else ("lease_renew_deadline", "LEASE_RENEW_DEADLINE_SECONDS")
        )
        if value >= info.data.get(above, math.inf):
            raise ValueError(f"must be below {field}, which is {info.data[above]:g}")
        return value

    @field_validator("grace")
    @classmethod
    def _long_enough(cls, value: float, info: ValidationInfo) -> float:
        if value <= info.data.get("stop_timeout", 0.0):
            raise ValueError(f"must be above STOP_TIMEOUT_SECONDS, which is {info.data['stop_timeout']:g}")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing but what is given: :func:`load_run_settings` has put flags over environment, by variable."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @classmethod
    def variables(cls, field: str) -> tuple[str, ...]:
        """Return the names of the environment variables that set *field*, the first found counts."""
        alias = cls.model_fields[field].validation_alias
        return tuple(str(each) for each in alias.choices) if isinstance(alias, AliasChoices) else (field,)

    def filled(self, namespace: str, unique: str) -> Self:
        """Return the settings with what only this process knows in the place of what was not said."""
        own = self.namespace if "namespace" in self.model_fields_set else namespace
        name = self.identity or socket.gethostname()
        return self.model_copy(
            update={
                "namespace": own,
                "identity": f"{name}_{unique}",
                "claims_namespace": self.claims_namespace or own,
            }
        )


_FLAGS = {"config_path": "--config", "leader_elect": "--no-leader-elect", "ports": "--port"}


def load_run_settings(
    environment: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
    *,
    namespace_file: Path = NAMESPACE_FILE,
    unique: Callable[[], str] = lambda: secrets.token_hex(4),
) -> RunSettings:
    """Return the settings of *flags* (by field) over *environment* over defaults; an empty variable counts as not set.

    Raises :class:`SettingsError` with all problems, each naming the variable or flag, the value and what is allowed.
    """
    given = flags or {}
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for field in RunSettings.model_fields:
        variables = RunSettings.variables(field)
        found = next((each for each in variables if environment.get(each)), None)
        # One name for each field: pydantic would prefer a variable to a flag, and name the first in every error.
        if field in given:
            values[variables[0]] = given[field]
            origins[variables[0]] = _FLAGS.get(field, f"--{field.replace('_', '-')}")
        elif found is not None:
            values[variables[0]] = environment[found]
            origins[variables[0]] = found

    try:
        loaded = RunSettings.model_validate(values)
    except ValidationError as error:
        found_problems = [_one_line(each["loc"], each.get("input"), each["msg"], origins) for each in error.errors()]
        raise SettingsError(sorted(set(found_problems))) from error
    return loaded.filled(_own_namespace(namespace_file), unique())


def _own_namespace(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def _one_line(location: Location, value: object, message: str, origins: Mapping[str, str]) -> str:
    name = str(location[0]) if location else ""
    shown = origins.get(name, RunSettings.variables(name)[0] if name in RunSettings.model_fields else name)
    return f"{shown}: {value!r}: {message.removeprefix('Value error, ')}"


__all__ = ["JITTER", "RunSettings", "load_run_settings"]
