"""All kinds of objects of a cluster: read once (:func:`read_cluster`), or kept up to date (:class:`ClusterCache`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from tightship.cluster import FORBIDDEN, ClusterState, Snapshot
from tightship.kube.connection import Connection
from tightship.kube.reflector import Decode, ObjectList, Reflector, Timing, list_served, why_missing
from tightship.kube.resources import RESOURCES, Resource
from tightship.objects import Pod, decode
from tightship.objects.api_errors import AccessDenied, Forbidden, NotFound, NotSynced, one_line


class KindStats(Struct, frozen=True):
    """The health of one kind; *age*: seconds since its last list, event or bookmark, ``None`` before the first."""

    age: float | None
    synced: bool


class Lists(Struct, frozen=True):
    """A list of each kind, with the kind as the server serves it, and why each *missing* kind has none."""

    held: dict[str, tuple[Resource, ObjectList]]
    missing: dict[str, str]


async def read_cluster(
    connection: Connection,
    *,
    progress: Callable[[str, int], None] | None = None,
    resources: Sequence[Resource] = RESOURCES,
) -> Snapshot:
    """Return the cluster as it is now. The rest is as for :func:`read_lists`."""
    lists = await read_lists(connection, progress=progress, resources=resources)
    state = ClusterState()
    for kind, (_, listing) in lists.held.items():
        state.replace(kind, listing.things, listing.problems)
    for kind, why in lists.missing.items():
        state.mark_missing(kind, why)
    return state.snapshot()


async def read_lists(
    connection: Connection,
    *,
    progress: Callable[[str, int], None] | None = None,
    resources: Sequence[Resource] = RESOURCES,
    decode: Decode = decode,
) -> Lists:
    """Return what *decode* makes of the objects. All kinds are listed concurrently, and none is watched.

    *progress* gets a kind and the number of its objects read so far, after each page. An optional kind that is
    forbidden or not served is missing. Raises :class:`~tightship.objects.api_errors.AccessDenied`, which names every
    forbidden required kind, else the first error of any list.
    """
    lists = Lists({}, {})
    denied: dict[str, Forbidden] = {}

    async def read(resource: Resource) -> None:
        try:
            lists.held[resource.kind] = await list_served(connection, resource, progress=progress, decode=decode)
        except Forbidden as error:
            if resource.required:
                denied[resource.kind] = error
            else:
                lists.missing[resource.kind] = FORBIDDEN
        except NotFound:
            if resource.required:
                raise
            lists.missing[resource.kind] = await why_missing(connection, resource)

    try:
        async with asyncio.TaskGroup() as group:
            for resource in resources:
                group.create_task(read(resource))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    if denied:
        raise AccessDenied(denied, connection.identity)
    return lists


class CacheCrashed(Exception):  # noqa: N818 - named as the errors of tightship.kube
    """A bug ended a task of the cache, so the state of the cluster is unknown."""


class ClusterCache:
    """A cluster that one task for each kind keeps up to date while the asynchronous context lasts.

    Take snapshots on the event loop; any thread may then use them. *revision* grows with every change received. An
    outage of the API server changes only the ages in :meth:`stats`. When a bug ends a task, the cache calls *crashed*,
    and everything but :meth:`stats` raises :class:`CacheCrashed`.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        resources: Sequence[Resource] = RESOURCES,
        timing: Timing = Timing(),
        crashed: Callable[[], None] | None = None,
    ) -> None:
        self.revision = 0
        self._crashed = crashed
        self._connection = connection
        self._timing = timing
        self._state = ClusterState()
        # Replaced, never changed: another thread makes metrics from it.
        self._reflectors: tuple[Reflector, ...] = tuple(self._reflector(resource) for resource in resources)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._touched = asyncio.Event()

    @property
    def has_synced(self) -> bool:
        """Whether the cache holds every kind, or knows that an optional kind is out of reach."""
        self._raise_crash()
        return all(each.settled for each in self._reflectors)

    @property
    def missing(self) -> Mapping[str, str]:
        """Optional kinds that are unavailable, and why: "forbidden" or "not served"."""
        return {each.resource.kind: each.withheld for each in self._reflectors if each.withheld}

    def snapshot(self) -> Snapshot:
        """Take a snapshot, whether or not the cache has synced."""
        self._raise_crash()
        return self._state.snapshot()

    def unscheduled(self) -> tuple[Pod, ...]:
        """Return the pods without a node, in no order: much cheaper than a snapshot."""
        self._raise_crash()
        return self._state.unscheduled()

    async def changed(self, since: int, timeout: float) -> bool:  # noqa: ASYNC109 - its end is a value
        """Wait until :attr:`revision` is above *since*. Return true then, and false after *timeout* seconds."""
        return await self._until(lambda: self.revision > since, timeout)

    async def follow(self, resource: Resource, *, wanted: bool, timeout: float) -> None:  # noqa: ASYNC109
        """Keep one more kind up to date from now on, or forget the kind if it is no longer *wanted*.

        Returns when the cache holds the kind, or knows that it is out of reach. Raises
        :class:`~tightship.objects.api_errors.NotSynced` after *timeout* seconds; the cache keeps trying.
        """
        kind = resource.kind
        known = next((each for each in self._reflectors if each.resource.kind == kind), None)
        if not wanted:
            if known is not None:
                self._reflectors = tuple(each for each in self._reflectors if each is not known)
                self._tasks.pop(kind).cancel()
                self._state.replace(kind, ())
            return
        if known is None:
            known = self._reflector(resource)
            self._reflectors = (*self._reflectors, known)
            self._start(known)
        if not await self._until(lambda: known.settled, timeout):
            raise NotSynced(kind, known.failure, timeout)

    def stats(self) -> Mapping[str, KindStats]:
        """Return the health of every kind."""
        now = self._timing.clock()
        return {
            each.resource.kind: KindStats(None if each.seen is None else now - each.seen, each.synced)
            for each in self._reflectors
        }

    async def _until(self, done: Callable[[], bool], timeout: float) -> bool:  # noqa: ASYNC109
        """Wait until *done*. Return true then, and false after *timeout* seconds. Raises :class:`CacheCrashed`."""
        try:
            async with asyncio.timeout(timeout):
                while not done():
                    self._raise_crash()
                    await self._touched.wait()
        except TimeoutError:
            return False
        return True

    def _touch(self) -> None:
        self.revision += 1
        touched, self._touched = self._touched, asyncio.Event()
        touched.set()

    def _raise_crash(self) -> None:
        for task in self._tasks.values():
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise CacheCrashed(f"{task.get_name()} ended: {one_line(error)}") from error

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._touch()
        if self._crashed is not None and not task.cancelled() and task.exception() is not None:
            self._crashed()

    def _reflector(self, resource: Resource) -> Reflector:
        return Reflector(self._connection, resource, self._state, self._touch, self._timing)

    def _start(self, reflector: Reflector) -> None:
        resource = reflector.resource
        task = asyncio.create_task(reflector.run(), name=f"reflector of {resource.name}")
        task.add_done_callback(self._ended)
        self._tasks[resource.kind] = task

    async def __aenter__(self) -> ClusterCache:
        for each in self._reflectors:
            self._start(each)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
