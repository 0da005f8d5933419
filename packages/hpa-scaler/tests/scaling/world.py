"""HPAs without an HPA controller, and an API server that a test looks into and disturbs without waiting for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from hpa_builder import annotated
from msgspec import Struct

from hpa_scaler.annotations.spec import ENABLE, PREFIX
from tightship_testkit.client import Json
from tightship_testkit.faults import Answer, Call, Fault, HeldWatch, Reset
from tightship_testkit.floors import HPA, QUICK, SHOP
from tightship_testkit.replica import NAMESPACE, Replica
from tightship_testkit.stall import DEADLINE, Stall

STATE = f"{PREFIX}/{ENABLE}-state"
ASKS = {"prometheus_query": "rate", "requests_per_replica": "10", "minimum_replicas": "1"}
"""What an HPA asks for unless a test says otherwise: a pod for each 10 of the rate."""


class Refused(Exception):
    """An answer of the API server that is no success."""

    def __init__(self, code: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.answer = Answer(code, reason, message)


Hook = Callable[[str, Json], Awaitable[None]]
"""Called with a PATCH before it is carried out: the HPA's name, and the HPA. May raise :class:`Refused`, or wait."""


class SentRequest(Struct, frozen=True):
    """A request that changed, or would have changed, something."""

    verb: str
    path: str
    code: int
    body: Any


class Api:
    """The API server. *before* and *after* a PATCH of an HPA a hook may do something.

    With *drops_answers* nobody gets an answer to a write. What is *on_list* happens to lists of HPAs. While the server
    is *away* it answers nobody. A watch reports nothing while it is frozen.
    """

    def __init__(self, on: Stall) -> None:
        self.before: Hook | None = None
        self.after: Hook | None = None
        self.on_list: Fault | None = None
        self.away = False
        self.drops_answers = False
        self.patches = 0
        self.lists = 0
        self.watches = 0
        self._on = on
        self._store = on.store
        self._gate = asyncio.Event()
        self._gate.set()
        on.proxy.plan = self._plan

    # HPAs.

    def stock(self, name: str = "web", minimum: int = 3, maximum: int = 20, replicas: int = 3, **notes: str) -> None:
        """Make an HPA that is opted in, with annotations by their names with ``_`` for ``-``."""
        conditions = [{"type": kind, "status": "True"} for kind in ("AbleToScale", "ScalingActive")]
        status = {"currentReplicas": replicas, "desiredReplicas": replicas, "conditions": conditions}
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        spec = {"scaleTargetRef": target, "minReplicas": minimum, "maxReplicas": maximum}
        meta = {"name": name, "namespace": SHOP, "annotations": annotated(**notes)}
        self._store.create(HPA, {"metadata": meta, "spec": spec, "status": status})

    def hpa(self, name: str = "web") -> Json:
        return self._store.get(HPA, name, SHOP)

    def bounds(self, name: str = "web") -> tuple[int, int]:
        spec = self.hpa(name)["spec"]
        return spec["minReplicas"], spec["maxReplicas"]

    def state(self, name: str = "web") -> Json:
        found: Json = json.loads(self.hpa(name)["metadata"]["annotations"].get(STATE, "{}"))
        return found

    def edit(self, name: str = "web", *, notes: dict[str, str | None] | None = None, **spec: int) -> None:
        """Change an HPA as somebody else would."""

        def change(thing: Json) -> None:
            thing["spec"] |= spec
            for key, text in (notes or {}).items():
                if text is None:
                    thing["metadata"]["annotations"].pop(key, None)
                else:
                    thing["metadata"]["annotations"][key] = text

        self._store.modify(HPA, name, SHOP, change)

    def touch(self, name: str = "web") -> None:
        """Write an HPA's status as the HPA controller does now and then."""

        def change(thing: Json) -> None:
            thing["status"]["observedGeneration"] = int(thing["metadata"]["resourceVersion"])

        self._store.modify(HPA, name, SHOP, change)

    def remove(self, name: str = "web") -> None:
        """Delete an HPA."""
        self._store.delete(HPA, name, SHOP)

    # Leases.

    def holder(self) -> str:
        """Who leads, empty where nobody does."""
        return str(self._store.get("Lease", self.lease, NAMESPACE)["spec"].get("holderIdentity") or "")

    def taken(self) -> None:
        """Have another lead, who does not renew for an hour and counts until then."""
        self._lease(holderIdentity="another", leaseTransitions=9, leaseDurationSeconds=3600)

    def left(self) -> None:
        """Have nobody lead."""
        self._lease(holderIdentity="", leaseDurationSeconds=1)

    @property
    def lease(self) -> str:
        """The name of the Lease."""
        return f"{self._on.team}-leader"

    def _lease(self, **spec: object) -> None:
        def change(thing: Json) -> None:
            thing["spec"] |= spec

        self._store.modify("Lease", self.lease, NAMESPACE, change)

    # What was reported and done.

    def events(self) -> list[Json]:
        """All Events."""
        return self._store.list("Event")

    def reported(self) -> list[tuple[str, str]]:
        """The reason of each Event, and whom it is about."""
        return [(each["reason"], each["involvedObject"]["name"]) for each in self.events()]

    def notes(self, reason: str) -> list[str]:
        return [each["message"] for each in self.events() if each["reason"] == reason]

    @property
    def sent(self) -> list[SentRequest]:
        """The requests to change something that were carried out, or refused."""
        return [
            SentRequest(each.call.verb, each.call.path, each.status, json.loads(each.call.body or b"null"))
            for each in self._on.proxy.writes
            if each.status is not None
        ]

    def written(self) -> list[tuple[str, int]]:
        """The name and the code of each PATCH of an HPA, dry runs among them."""
        return [
            (each.path.rpartition("/")[2], each.code)
            for each in self.sent
            if each.verb == "PATCH" and "horizontalpodautoscalers" in each.path
        ]

    # Disturbing.

    def once(self, disturb: Callable[[], object]) -> None:
        """Have something happen right before the next PATCH, and once only."""

        async def before(*_: object) -> None:
            self.before = None
            disturb()

        self.before = before

    def refuses(self, code: int, message: str, reason: str = "") -> None:
        """Refuse every PATCH from now on."""

        async def before(*_: object) -> None:
            raise Refused(code, message, reason)

        self.before = before

    def freeze(self) -> None:
        """Tell watches of HPAs nothing until :meth:`thaw`."""
        self._gate.clear()

    def thaw(self) -> None:
        """Tell them all that they have missed."""
        self._gate.set()

    async def _plan(self, call: Call) -> Fault | None:
        if self.away:
            return Reset()
        if "horizontalpodautoscalers" not in call.path:
            return None
        if call.is_watch:
            self.watches += 1
            return HeldWatch(open=self._gate)
        if call.verb == "GET" and call.path.endswith("/horizontalpodautoscalers"):
            if self.on_list is None:
                self.lists += 1
            return self.on_list
        return await self._patch(call.path.rpartition("/")[2]) if call.verb == "PATCH" else None

    async def _patch(self, name: str) -> Fault | None:
        self.patches += 1
        try:
            if self.before is not None and self._store.find(HPA, name, SHOP) is not None:
                await self.before(name, self.hpa(name))
        except Refused as refused:
            return refused.answer

        async def after() -> None:
            if self.after is not None:
                await self.after(name, self.hpa(name))

        return Reset(done=True, after=after) if self.drops_answers else Fault(after=after)


class World:
    """An API server and a Prometheus."""

    def __init__(self, on: Stall) -> None:
        self.on = on
        self.api = Api(on)
        self.prometheus = on.prometheus

    def configure(self, **more: object) -> None:
        """Write the configuration."""

        def change(thing: Json) -> None:
            thing["data"] = {"config.yaml": json.dumps({**QUICK, **more})}

        self.on.store.modify("ConfigMap", self.on.team, NAMESPACE, change)

    def stock(self, *names: str, rate: float = 72, **notes: str) -> None:
        """Make HPAs called *names*, or one, whose floor of 3 should be 8 by the *rate*."""
        for name in names or ("web",):
            self.api.stock(name, **ASKS, **notes)
        self.prometheus.set("rate", rate)

    def start(self, **variables: str) -> Replica:
        """Start a replica."""
        return self.on.start(**variables)

    async def started(self, **variables: str) -> Replica:
        """Start a replica with one HPA, whose floor it has set to 8."""
        self.stock()
        replica = self.start(**variables)
        await self.until(lambda: self.api.bounds() == (8, 20))
        return replica

    async def ended(self, replica: Replica) -> None:
        """Have a replica end as SIGTERM does."""
        replica.asked_to_end()
        assert await replica.ended() == 0

    async def until(self, condition: Callable[[], object], deadline: float = DEADLINE) -> None:
        """Wait for a condition."""

        async def holds() -> bool:
            assert not [each.name for each in self.on.replicas if each.code == 1], self.on.logs()
            return bool(condition())

        await self.on.until(holds, "the condition", deadline)

    async def shows(self, replica: Replica, path: str, text: str) -> None:
        """Wait until what is served under *path* holds *text*."""

        async def there() -> bool:
            return text in (await replica.get(path))[1]

        await self.on.until(there, f"{path} shows {text!r}")

    async def cycles(self, more: int = 3) -> None:
        """Wait until all HPAs have been listed so many times more."""
        before = self.lists
        await self.until(lambda: self.lists >= before + more)

    async def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        await self.on.sleep(seconds)

    @property
    def lists(self) -> int:
        return self.api.lists
