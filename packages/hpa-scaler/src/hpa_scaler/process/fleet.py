"""The HPAs of a cluster or a file, and their targets: HPAs to judge, and HPAs to give back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from urllib.parse import quote

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.parsing import enabled, states_of
from hpa_scaler.annotations.queries import Outcomes, Query
from hpa_scaler.annotations.spec import Rollout, Rules, rollout_of
from hpa_scaler.judge.decision import Asked
from hpa_scaler.judge.judge import asked_of, questions, wants_rollout
from hpa_scaler.judge.ownership import restoration, state_of, surged
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.write.applying import OptedOut, Records
from tightship.cli.object_file import FileError, read_all
from tightship.kube.connection import Connection
from tightship.kube.reflector import list_all
from tightship.kube.resources import AUTOSCALERS
from tightship.objects import (
    AUTOSCALER,
    SCALE_TARGET_KINDS,
    HorizontalPodAutoscaler,
    ObjectError,
    ScaleTarget,
    decode,
    decode_scale_target,
)
from tightship.objects.api_errors import Forbidden, KubeError, NotFound, one_line
from tightship.objects.selectors import parse_selector
from tightship.process.loop import a_few_at_a_time

KINDS = "hpa,deploy,sts"
"""The kinds that a file should hold, as kubectl names them. Targets matter only for the rollout check."""

_GROUPS = {AUTOSCALER: "autoscaling", "Rollout": "argoproj.io"}

Say = Callable[[str], None]

TIMEOUT = 10.0
"""Seconds for the read of one target."""

AT_ONCE = 8
"""Concurrent reads of targets."""

LONGEST = 30.0
"""Seconds for the reads of all targets in one cycle."""

_PLURALS = {kind: f"{kind.lower()}s" for kind in SCALE_TARGET_KINDS}


class Selection(Struct, frozen=True):
    """Selects the HPAs in *namespaces* (none: all) whose labels match *selector*.

    The *named* namespaces are those that somebody gave as a flag: they must exist.
    """

    namespaces: tuple[str, ...] = ()
    selector: str = ""
    named: tuple[str, ...] = ()

    def matches(self, hpa: HorizontalPodAutoscaler) -> bool:
        """Whether *hpa* is selected."""
        if self.namespaces and hpa.namespace not in self.namespaces:
            return False
        return parse_selector(self.selector).matches(hpa.labels)


class UnknownNamespaceError(Exception):
    """Namespaces that do not exist; *problems* are whole lines."""

    def __init__(self, names: Iterable[str], where: str) -> None:
        self.problems = tuple(f'there is no namespace "{name}" {where}' for name in names)
        super().__init__("\n".join(self.problems))


class HpaFleet(Struct, frozen=True):
    """HPAs, and the targets in files by kind, namespace and name.

    *problems* are unreadable HPAs, *warnings* are about contradictions in files.
    """

    hpas: tuple[HorizontalPodAutoscaler, ...]
    targets: Mapping[tuple[str, str, str], ScaleTarget] = {}
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def fleet_of_files(paths: Sequence[str], selection: Selection) -> HpaFleet:
    """Return the HPAs in the files *paths* together, ``-`` for standard input.

    Raises :class:`~tightship.cli.object_file.FileError` if the files have malformed content, or no HPA; and
    :class:`UnknownNamespaceError`.
    """
    from tightship.cli.snapshot_file import Repeated  # which a running controller never needs

    hpas: dict[str, HorizontalPodAutoscaler] = {}
    targets: dict[tuple[str, str, str], ScaleTarget] = {}
    repeated = Repeated()

    def take(kind: str, raw: bytes | msgspec.Raw) -> None:
        if kind == AUTOSCALER:
            hpa = decode(kind, raw)
            assert isinstance(hpa, HorizontalPodAutoscaler)
            repeated.saw(kind, hpa)
            hpas[hpa.key] = hpa
        else:
            target = decode_scale_target(kind, raw)
            targets[kind, target.namespace, target.name] = target

    held = read_all(paths, _known, take)
    if not held.problems and not held.counts[AUTOSCALER]:
        how = f"kubectl get {KINDS} -A -o json"
        held.problems.append(f"{held.name}: holds no {AUTOSCALER} (only {held.described()}); write it by: {how}")
    if held.problems:
        raise FileError(tuple(held.problems))
    known = sorted({hpa.namespace for hpa in hpas.values()})
    unknown = [name for name in selection.named if name not in known]
    if unknown:
        raise UnknownNamespaceError(unknown, f"in {held.name}, whose namespaces with HPAs are {', '.join(known)}")
    chosen = tuple(hpa for hpa in hpas.values() if selection.matches(hpa))
    return HpaFleet(chosen, targets, warnings=tuple(repeated.remarks()))


async def fleet_of_cluster(connection: Connection, selection: Selection, say: Say) -> HpaFleet:
    """Return the HPAs of a cluster. Raises the errors of the connection, and :class:`UnknownNamespaceError`."""
    hpas: list[HorizontalPodAutoscaler] = []
    problems: list[str] = []
    for namespace in selection.namespaces or ("",):
        resource = AUTOSCALERS.within(namespace=namespace, label_selector=selection.selector)
        listing = await list_all(connection, resource, progress=lambda _, count: say(f"reading HPAs: {count:,}"))
        hpas += [thing for thing in listing.things if isinstance(thing, HorizontalPodAutoscaler)]
        problems += [str(error) for error, _ in listing.problems]
        if namespace in selection.named and not listing.things and not await _exists(connection, namespace):
            raise UnknownNamespaceError([namespace], f"in the cluster of context {connection.context}")
    return HpaFleet(tuple(hpas), {}, tuple(problems))


async def _exists(connection: Connection, namespace: str) -> bool:
    """Whether *namespace* exists; true if that is unknown."""
    try:
        await connection.request("GET", f"/api/v1/namespaces/{quote(namespace, safe='')}", timeout=TIMEOUT)
    except NotFound:
        return False
    except KubeError:
        pass
    return True


def rollouts_of_file(fleet: HpaFleet, hpas: Iterable[HorizontalPodAutoscaler]) -> dict[str, Rollout]:
    """Return the rollout states of the targets of *hpas*, by the HPA's key, as far as the file shows them."""
    found = {}
    for hpa in hpas:
        target = fleet.targets.get((hpa.target.kind, hpa.namespace, hpa.target.name))
        found[hpa.key] = unknown(hpa, "not in the file") if target is None else rollout_of(target)
    return found


def _known(kind: str, api_version: str) -> bool:
    if kind != AUTOSCALER and kind not in SCALE_TARGET_KINDS:
        return False
    return not api_version or api_version.rpartition("/")[0] == _GROUPS.get(kind, "apps")


class ListedHpas(Struct, frozen=True):
    """The HPAs of a cycle: *opted_in* HPAs, and *others* that the controller may have to give back.

    *asked* has the parsed annotations of opted-in HPAs, by uid. *passed_over* counts HPAs that are not opted in, by
    namespace. *problems* are unreadable HPAs. *queries* are all queries, each once; *asks* are the queries of each HPA,
    by uid. *now* is the time of the listing.
    """

    asked: Mapping[str, Asked]
    opted_in: tuple[HorizontalPodAutoscaler, ...]
    others: tuple[HorizontalPodAutoscaler, ...]
    passed_over: Mapping[str, int]
    problems: tuple[str, ...]
    asks: Mapping[str, tuple[Query, ...]]
    queries: tuple[Query, ...]
    now: float


def sort_fleet(fleet: HpaFleet, defaults: Mapping[str, str], rules: Rules, now: float, records: Records) -> ListedHpas:
    """Return the HPAs of *fleet* that matter, without the rest."""
    prefix = rules.prefix
    opted_in, others = [], []
    passed_over: Counter[str] = Counter()
    for hpa in fleet.hpas:
        if enabled(hpa.annotations, prefix):
            opted_in.append(hpa)
            continue
        passed_over[hpa.namespace] += 1
        if hpa.uid in records or states_of(hpa.annotations, prefix):
            others.append(hpa)
    asked = {hpa.uid: asked_of(hpa, prefix, defaults) for hpa in opted_in}
    asks = {uid: questions([each], rules) for uid, each in asked.items()}
    return ListedHpas(
        asked=asked,
        opted_in=tuple(opted_in),
        others=tuple(others),
        passed_over=passed_over,
        problems=fleet.problems,
        asks=asks,
        queries=tuple(dict.fromkeys(query for each in asks.values() for query in each)),
        now=now,
    )


def returns_of(seen: ListedHpas, rules: Rules, records: Records) -> tuple[OptedOut, ...]:
    """Return the HPAs to give back, and forget each HPA with nothing of ours on it."""
    found = []
    for hpa in seen.others:
        history = records.recall(hpa) or state_of(hpa, rules.prefix)[0].history
        given = restoration(hpa, history, rules, seen.now)
        if given is None and surged(hpa) is None:
            records.forget(hpa.uid)
        elif given is not None:
            found.append(OptedOut(hpa, history, given))
    return tuple(found)


def unknown(hpa: HorizontalPodAutoscaler, why: str) -> Rollout:
    """Return an unknown rollout state for the target of *hpa*; *why* says the reason."""
    return Rollout("unknown", f"{hpa.target}: {why}")


async def read_rollout(connection: Connection, hpa: HorizontalPodAutoscaler) -> Rollout:
    """Read the rollout state of the target of *hpa*. Never raises errors of the API server."""
    ref = hpa.target
    if ref.kind not in SCALE_TARGET_KINDS:
        return unknown(hpa, f"rollouts are known of {', '.join(sorted(SCALE_TARGET_KINDS))}")
    path = f"/apis/{ref.api_version or 'apps/v1'}/namespaces/{hpa.namespace}/{_PLURALS[ref.kind]}/{ref.name}"
    try:
        raw = await connection.request("GET", path, timeout=TIMEOUT)
        return rollout_of(decode_scale_target(ref.kind, raw))
    except NotFound:
        return unknown(hpa, "not found")
    except Forbidden as error:
        return unknown(hpa, f"may not be read: {error.message or 'forbidden'}")
    except (KubeError, ObjectError) as error:
        return unknown(hpa, one_line(error))


async def read_rollouts(
    connection: Connection, hpas: Iterable[HorizontalPodAutoscaler], seconds: float
) -> dict[str, Rollout]:
    """Read the rollout states of the targets of *hpas*, by the HPA's key, as far as *seconds* allow."""
    wanted = list(hpas)
    found = {hpa.key: unknown(hpa, "not seen in time") for hpa in wanted}

    async def one(hpa: HorizontalPodAutoscaler) -> None:
        found[hpa.key] = await read_rollout(connection, hpa)

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await a_few_at_a_time(one, wanted, AT_ONCE)
    return found


async def ask_fleet(
    client: PrometheusClient, connection: Connection, seen: ListedHpas, seconds: float
) -> tuple[Outcomes, Mapping[str, Rollout]]:
    """Return the outcomes of all queries of *seen* within so many *seconds*, and the rollout states meanwhile."""
    watched = [hpa for hpa in seen.opted_in if wants_rollout(seen.asked[hpa.uid])]
    answers = asyncio.create_task(client.ask(seen.queries, seconds, seen.asks))
    try:
        rollouts = await read_rollouts(connection, watched, LONGEST)
        return await answers, rollouts
    finally:
        answers.cancel()
        await asyncio.gather(answers, return_exceptions=True)
