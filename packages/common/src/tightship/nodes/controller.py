"""What a controller of nodes is: its settings, its judge, its own metrics, and what it writes and shows besides."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry

from tightship.cluster import Snapshot
from tightship.cluster.installations import EVERY_OTHER
from tightship.cluster.pools import pool_of
from tightship.documents.document import ExcessSummary, Generator, SettingsView
from tightship.drain.events import DrainEvent
from tightship.draining.drain_task import DrainSettings
from tightship.draining.writing import NodePatch
from tightship.kube.host import wall
from tightship.objects import Node
from tightship.objects.drain_record import UNPRICED, Price
from tightship.objects.money import price_of
from tightship.objects.reasons import Refusal
from tightship.planning.changes import Tunable
from tightship.planning.evaluate import Evaluation, Judge
from tightship.process.settings.process import NodeProcessSettings
from tightship.process.settings.sections import NodeSettings
from tightship.rules.node_groups import with_current_statuses
from tightship.rules.nodes import drain_record
from tightship.rules.windows import Rollouts, stopped_by

S = TypeVar("S", bound=NodeSettings)


class NodeNote(Struct, frozen=True):
    """A write to a *node* that is not a drain, such as a mark, against the version of the node that was judged."""

    node: str
    patch: NodePatch


class OwnMetrics:
    """The metrics that only one controller has. Not thread-safe."""

    def update(self, evaluation: Evaluation) -> None:
        """Replace everything by the results of the last pass."""

    def news(self, news: DrainEvent) -> None:
        """Count what a drain reports."""


class NodeController(ABC, Generic[S]):
    """A controller of nodes with settings *S*: what ``run``, ``plan`` and ``explain`` ask of it.

    *name* stands in metrics, Events, annotations and the log, *kind* in the status. *process* is the model of the
    settings of its process, which do not change while it runs. A controller that *needs_configuration* is off without
    one, because its defaults allow drains. No method has a memory: that is the loop's.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    description: ClassVar[str]
    kind: ClassVar[str]
    process: ClassVar[type[NodeProcessSettings]]
    needs_configuration: ClassVar[bool] = False

    @property
    def program(self) -> Generator:
        """The name and version that documents and the log show."""
        return Generator(self.name, self.version)

    @abstractmethod
    def configured(self, data: Mapping[str, str], environment: Mapping[str, str]) -> S:
        """Return the settings of a running controller: *environment* over a ConfigMap's *data* over defaults.

        *data* may also come from a mounted file or folder. Raises
        :class:`~tightship.process.settings.loading.SettingsError` with all problems at once.
        """

    @abstractmethod
    def planned(self, config: str | None, environment: Mapping[str, str], flags: Mapping[str, object] = {}) -> S:
        """Return the settings of ``plan``: *flags* (by field) over *environment* over the file *config* over defaults.

        Raises :class:`~tightship.process.settings.loading.SettingsError` with all problems at once.
        """

    @abstractmethod
    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags of ``plan`` and ``explain``, by topic."""

    @abstractmethod
    def flags_given(self, arguments: argparse.Namespace) -> dict[str, object]:
        """Return the settings given as flags, by field."""

    @abstractmethod
    def describe(self, settings: S, config: str | None) -> SettingsView:
        """Return *settings* for people; *config* names where they are from, ``None`` for nowhere."""

    def acts(self, settings: S) -> bool:
        """Whether *settings* have the controller switched on."""
        del settings
        return True

    def switched_off(self, settings: S) -> S:
        """Return *settings* switched off: what applies while a controller that :attr:`needs_configuration` has none."""
        return settings

    def for_dry_run(self, settings: S) -> tuple[S, str]:
        """Return the settings that a dry run judges by instead of *settings*, and a sentence that says so, if any."""
        return settings, ""

    def pools(self, settings: S) -> Mapping[str, bool]:
        """Return which pools are drained, as :class:`tightship.cluster.installations.Installation` does."""
        del settings
        return {EVERY_OTHER: True}

    def search(self, settings: S) -> float:
        """Return for how many seconds to search for a better plan, 0 for no search."""
        del settings
        return 0.0

    @abstractmethod
    def judge(self, settings: S) -> Judge:
        """Return *settings* as rules: gates, order and limits."""

    def changes(self, settings: S, given: Collection[str] = ()) -> Tunable | None:
        """Return the changes of *settings* that advice may name; *given* are the fields that flags of a command set."""
        del settings, given
        return None

    def drain_settings(self, settings: S, clock: Callable[[], float] = wall) -> DrainSettings:
        """Return the settings of drains under *settings*: drains share the rules of the plan before them.

        Windows and rollouts that stop drains are judged at the time of *clock*.
        """
        judge = self.judge(settings)

        def node_refusals(snapshot: Snapshot, node: Node) -> list[Refusal]:
            windows, now = settings.windows_of(self.pool_of(node, settings)), clock()
            record = drain_record(node)
            rollout = Rollouts(snapshot).refusal(windows, node.name, now, record.restarts if record is not None else ())
            found = (stopped_by(windows, node.name, now), rollout)
            current = with_current_statuses(snapshot, now)
            return [*judge.node_refusals(current, node), *(each for each in found if each is not None)]

        return DrainSettings(
            rules=settings.drain_rules,
            eviction=settings.eviction_rules,
            placement=settings.placement,
            ahead=settings.ahead,
            node_refusals=node_refusals,
        )

    def pool_of(self, node: Node, settings: S) -> str:
        """Return the pool of *node*."""
        return pool_of(node, settings.pool_labels)

    def price_of(self, node: Node, settings: S) -> Price:
        """Return what an hour of *node* costs, in millionths of the currency."""
        price = price_of(node, settings.prices)
        return UNPRICED if price is None else (price.hourly, price.currency)

    def metrics(self, registry: CollectorRegistry) -> OwnMetrics:
        """Register the metrics that only this controller has."""
        del registry
        return OwnMetrics()

    def notes(self, evaluation: Evaluation, settings: S) -> Sequence[NodeNote]:
        """Return the writes to nodes that are not drains."""
        del evaluation, settings
        return ()

    def excess(self, evaluation: Evaluation, settings: S) -> ExcessSummary | None:
        """Return how many nodes the cluster could do without, if the controller goes by that figure."""
        del evaluation, settings
        return None

    def figures(self, evaluation: Evaluation, settings: S) -> Sequence[tuple[str, str]]:
        """Return what the page shows after the common figures, each with its name."""
        del evaluation, settings
        return ()


AnyController = NodeController[Any]
