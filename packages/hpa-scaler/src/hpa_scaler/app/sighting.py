"""The inputs of ``plan`` and ``explain``: HPAs and their targets from a cluster or a file, and answers to queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from hpa_scaler.app.configuration import allowed_of, limits_of, servers_of
from hpa_scaler.app.outcome_file import decode_outcomes
from hpa_scaler.app.run_settings import RunSettings
from hpa_scaler.app.settings import ScalerSettings
from hpa_scaler.app.targets import unknown
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.spec.queries import Outcome, Query
from hpa_scaler.spec.rollout import Rollout, rollout_of
from tightship.app.cli.selector import parse_selector
from tightship.core.counting import counted
from tightship.core.objects import (
    AUTOSCALER,
    SCALE_TARGET_KINDS,
    HorizontalPodAutoscaler,
    ScaleTarget,
    decode,
    decode_scale_target,
)
from tightship.kube.connection import Connection
from tightship.kube.listing import list_all
from tightship.kube.object_file import FileError, read_bytes, read_objects
from tightship.kube.resources import AUTOSCALERS

KINDS = "hpa,deploy,sts"
"""What a file should hold, as kubectl names it; the targets only matter where rollouts are looked at."""

_GROUPS = {AUTOSCALER: "autoscaling", "Rollout": "argoproj.io"}

Say = Callable[[str], None]


class Selection(Struct, frozen=True):
    """Which HPAs to look at: those of *namespaces* (none: all) whose labels match *selector*."""

    namespaces: tuple[str, ...] = ()
    selector: str = ""

    def matches(self, hpa: HorizontalPodAutoscaler) -> bool:
        """Whether *hpa* is selected."""
        if self.namespaces and hpa.namespace not in self.namespaces:
            return False
        return parse_selector(self.selector).matches(hpa.labels)


class Fleet(Struct, frozen=True):
    """HPAs, and the targets in a file by kind, namespace and name; *problems* are unreadable HPAs."""

    hpas: tuple[HorizontalPodAutoscaler, ...]
    targets: Mapping[tuple[str, str, str], ScaleTarget] = {}
    problems: tuple[str, ...] = ()


def fleet_of_file(path: str, selection: Selection) -> Fleet:
    """Return the HPAs in the file *path*, ``-`` for standard input.

    Raises :class:`~tightship.kube.object_file.FileError` if the file has malformed content, or no HPA.
    """
    hpas: dict[str, HorizontalPodAutoscaler] = {}
    targets: dict[tuple[str, str, str], ScaleTarget] = {}

    def take(kind: str, raw: bytes | msgspec.Raw) -> None:
        if kind == AUTOSCALER:
            hpa = decode(kind, raw)
            assert isinstance(hpa, HorizontalPodAutoscaler)
            hpas[hpa.key] = hpa
        else:
            target = decode_scale_target(kind, raw)
            targets[kind, target.namespace, target.name] = target

    content, name = read_bytes(path)
    held = read_objects(content, name, _known, take)
    if not held.problems and not held.counts[AUTOSCALER]:
        how = f"kubectl get {KINDS} -A -o json"
        held.problems.append(f"{name}: holds no {AUTOSCALER} (only {held.described()}); write it by: {how}")
    if held.problems:
        raise FileError(tuple(held.problems))
    return Fleet(tuple(hpa for hpa in hpas.values() if selection.matches(hpa)), targets)


async def fleet_of_cluster(connection: Connection, selection: Selection, say: Say) -> Fleet:
    """Return the HPAs of a cluster. Raises what the connection raises."""
    hpas: list[HorizontalPodAutoscaler] = []
    problems: list[str] = []
    for namespace in selection.namespaces or ("",):
        resource = AUTOSCALERS.within(namespace=namespace, label_selector=selection.selector)
        listing = await list_all(connection, resource, progress=lambda _, count: say(f"reading HPAs: {count:,}"))
        hpas += [thing for thing in listing.things if isinstance(thing, HorizontalPodAutoscaler)]
        problems += [str(error) for error, _ in listing.problems]
    return Fleet(tuple(hpas), {}, tuple(problems))


def rollouts_of_file(fleet: Fleet, hpas: Iterable[HorizontalPodAutoscaler]) -> dict[str, Rollout]:
    """Return whether the targets of *hpas* are rolling out, by the HPA's key, as far as the file shows."""
    found = {}
    for hpa in hpas:
        target = fleet.targets.get((hpa.target.kind, hpa.namespace, hpa.target.name))
        found[hpa.key] = unknown(hpa, "not in the file") if target is None else rollout_of(target)
    return found


def recorded(path: str) -> dict[Query, Outcome]:
    """Return the outcomes recorded in the file *path*.

    Raises :class:`~tightship.kube.object_file.FileError` and :class:`~hpa_scaler.app.outcome_file.OutcomeFileError`.
    """
    try:
        return decode_outcomes(Path(path).read_bytes(), path)
    except OSError as error:
        raise FileError((f"{path}: {error.strerror or error}",)) from error


async def asked_live(
    queries: Collection[Query], settings: ScalerSettings, run: RunSettings, say: Say
) -> dict[Query, Outcome]:
    """Return the servers' answers to *queries*."""
    say(f"asking {counted(len(queries), 'query', 'queries')}")
    servers, allowed = servers_of(settings, run), allowed_of(settings)
    async with PrometheusClient(servers, allowed, limits=limits_of(settings)) as client:
        return await client.ask(queries, settings.query_deadline)


def _known(kind: str, api_version: str) -> bool:
    if kind != AUTOSCALER and kind not in SCALE_TARGET_KINDS:
        return False
    return not api_version or api_version.rpartition("/")[0] == _GROUPS.get(kind, "apps")


__all__ = [
    "KINDS",
    "Fleet",
    "Selection",
    "asked_live",
    "fleet_of_cluster",
    "fleet_of_file",
    "recorded",
    "rollouts_of_file",
]
