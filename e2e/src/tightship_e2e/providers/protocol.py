"""What a scenario may ask of the cluster that it runs on, whichever that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import Client, Json
from tightship_testkit.faults import Plan

Values = Mapping[str, Any]


class UnavailableError(Exception):
    """A cluster can't do something; the message says what and why.

    A scenario that needs it is skipped with that line, and fails under `CI=true`: what there can be has to be there.
    """


class ImpossibleError(UnavailableError):
    """No cluster of a provider's kind can do something: a scenario that needs it is skipped, always."""


class Controller(Protocol):
    """A container of a pod that a chart's Deployment has made."""

    @property
    def pod(self) -> str:
        """The name of its pod."""

    @property
    def name(self) -> str:
        """The controller's name, which the container bears."""

    async def get(self, path: str) -> tuple[int, str]:
        """Ask it over HTTP: status and text; 0 when it does not answer."""

    async def said(self) -> str:
        """Return everything it has written."""

    async def environment(self) -> list[str]:
        """Return the environment of its process, each as ``NAME=value``."""


class Metrics(Protocol):
    """A Prometheus that the controllers ask, and metrics that HPAs scale by."""

    @property
    def url(self) -> str:
        """The address of Prometheus as the controllers reach it."""

    async def set(self, gauges: Mapping[str, float], external: Mapping[str, float]) -> None:
        """Have gauges of Prometheus, and external metrics of HPAs, be of these values from now on."""

    def outage(self) -> AbstractAsyncContextManager[None]:
        """Prometheus answers nothing for the body's time."""


class Provider(Protocol):
    """A cluster, releases on it, and their controllers. Methods that install raise HelmError when Helm refuses."""

    @property
    def client(self) -> Client:
        """An administrator's client."""

    @property
    def metrics(self) -> Metrics:
        """What controllers and HPAs measure."""

    @property
    def container(self) -> Json:
        """A container that does nothing, without a name."""

    @property
    def selector(self) -> str:
        """The labels of the nodes that a scenario may have taken away; empty for all."""

    async def add_node(self, name: str, pool: str) -> None:
        """Add a node of 4 CPU to a pool; that of ``system`` is for the controllers, and may not go.

        Where nodes are machines it has the name of its machine, whatever *name* is. May raise UnavailableError.
        """

    async def install(self, release: str, chart: Path, namespace: str, values: Values) -> str:
        """Install or upgrade a release, and return what Helm printed."""

    async def uninstall(self, release: str, namespace: str, *, hooks: bool = True) -> None:
        """Uninstall a release, if it is there, and wait until its controllers have ended.

        Without *hooks* nobody gives back what controllers hold.
        """

    async def roll_back(self, release: str, namespace: str, revision: int) -> None:
        """Have a release be what it was in an earlier revision."""

    async def manifest(self, release: str, namespace: str) -> list[Json]:
        """Return the objects of an installed release."""

    async def tested(self, release: str, namespace: str) -> str:
        """Have the tests of a release's charts ask their controllers, and return what they said.

        Raises HelmError with what is wrong.
        """

    async def command(self, *words: str) -> str:
        """Run a controller's command, or kubectl, as an administrator, and return what it printed.

        Raises HelmError on an error.
        """

    async def controllers(self, namespace: str) -> Sequence[Controller]:
        """Return what runs in a namespace now, in the order of their start."""

    async def ended(self) -> Mapping[str, int]:
        """Return the exit codes of controllers that ended though their pods had not been deleted, by pod."""

    async def logs(self) -> str:
        """Return the ends of what all controllers have said, for an error."""

    def outage(self) -> AbstractAsyncContextManager[None]:
        """Keep the controllers from the API server for the body's time; may raise UnavailableError."""

    def disturb(self, plan: Plan) -> None:
        """Disturb what the controllers ask of the API server; may raise UnavailableError."""

    async def audit(self) -> list[AuditEvent]:
        """Return the audit log's events since the last call; may raise UnavailableError."""
