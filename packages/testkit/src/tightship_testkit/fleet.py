"""Several HPAs side by side under one running hpa-scaler, and what is seen of them: floors, reasons, Events, writes.

A Deployment here is paused: an HPA scales it as any other, but no pods are made of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping

from hpa_scaler.annotations.spec import AGE_QUERY
from tightship_testkit.client import Items, Json
from tightship_testkit.faults import Record
from tightship_testkit.floors import SHOP, Market, autoscaler, cli, deployment, hpa_annotations
from tightship_testkit.replica import SCALER, Replica, Settings

Notes = Mapping[str, object]

ALONE: Settings = {"correlatedDropMinimumCount": 1000}
"""Each HPA by itself: a test that makes many fail at once means each of them."""

GUARDED: Settings = {**ALONE, "coldSourceGuard": True, "dataAgeQuery": AGE_QUERY}
"""As the hpa-scaler comes, for a Prometheus with a past."""

PER_POD: Notes = {"requests_per_replica": 10, "delta": 0.5, "minimum_replicas": 1}
"""A value of 72 makes it ``ceil(0.5 + 72 / 10) = 8``, one of 41 5, one of 91 10."""

_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Move = tuple[int, int]


def patched(records: Iterable[Record]) -> list[str]:
    """Return the name of the HPA of each patch of one, whatever became of it."""
    return [
        record.call.path.rpartition("/")[2]
        for record in records
        if record.call.verb == "PATCH" and "horizontalpodautoscalers" in record.call.path
    ]


class Fleet:
    """HPAs of a shop, and the replica that moves them once it is started."""

    def __init__(self, on: Market) -> None:
        self.on = on
        self._replica: Replica | None = None
        self._described = 0

    @property
    def replica(self) -> Replica:
        assert self._replica is not None, "start one first"
        return self._replica

    def start(self, url: str = "", **variables: str) -> None:
        """Start a replica whose default server is at *url*, else the shop's own."""
        given = {"PROMETHEUS_SERVER_URL": url} if url else {}
        self._replica = self.on.start(**given, **variables)

    # Making and changing HPAs.

    async def stand(
        self,
        hpas: Mapping[str, Notes],
        *,
        minimum: int = 2,
        maximum: int = 30,
        replicas: int | None = None,
        **spec: Json,
    ) -> None:
        """Make Deployments and HPAs with these annotations, and wait until the HPA controller has seen them.

        *spec* is added to that of each HPA.
        """
        api = self.on.api

        async def make(name: str) -> None:
            target = deployment(name, minimum if replicas is None else replicas)
            target["spec"]["paused"] = True
            await api.create(target)
            hpa = autoscaler(name, minimum, maximum, hpa_annotations(**hpas[name]))
            hpa["spec"] |= spec
            await api.create(hpa)

        await api.each(make, hpas)
        await self.until_replicas(dict.fromkeys(hpas, minimum if replicas is None else replicas))

    async def annotate(self, names: Iterable[str], **notes: str | None) -> None:
        """Change the annotations of several HPAs alike."""

        async def one(name: str) -> None:
            await self.on.annotate(name, **notes)

        await self.on.api.each(one, names)

    async def scale(self, names: Iterable[str], replicas: int) -> None:
        """Scale Deployments as somebody would by hand, and wait until the HPA controller has seen it.

        *replicas* is 0 or within the bounds: what it would change again might never be seen. Before that it must be
        done with a floor that was raised: what it is about to set, it sets whatever somebody else has set meanwhile.
        """
        names = list(names)

        async def raised() -> bool:
            hpas = await self.hpas()
            shown = [
                (hpas[name]["status"].get("currentReplicas", 0), hpas[name]["spec"]["minReplicas"]) for name in names
            ]
            return all(present == 0 or present >= floor for present, floor in shown)

        async def one(name: str) -> None:
            await self.on.api.patch("Deployment", name, {"spec": {"replicas": replicas}}, SHOP, subresource="scale")

        await self.on.until(raised, "the HPA controller has scaled to the floors")
        await self.on.api.each(one, names)
        await self.until_replicas(dict.fromkeys(names, replicas))

    # What is seen.

    async def hpas(self) -> dict[str, Json]:
        """Return all HPAs by name."""
        return await self.on.hpas()

    async def floors(self, names: Collection[str]) -> dict[str, int]:
        """Return the floors of HPAs as the API server has them."""
        return {name: hpa["spec"]["minReplicas"] for name, hpa in (await self.hpas()).items() if name in names}

    async def shown(self) -> dict[str, Json]:
        """Return what ``/status`` says of each HPA, none before the first cycle."""
        status, text = await self.replica.get("/status")
        plan = json.loads(text)["plan"] if status == 200 else None
        return {each["name"]: each for each in plan["hpas"]} if plan else {}

    async def explained(self, name: str, url: str) -> Json:
        """Return what the command ``explain`` says of an HPA, the default server being at *url*."""
        code, out, err = await cli(self.on, "explain", f"{SHOP}/{name}", "-o", "json", "--prometheus-server-url", url)
        assert code == 0, err
        [found] = json.loads(out)["hpas"]
        shown: Json = found["hpa"]
        return shown

    async def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """Return the samples of a metric by the values of their labels."""
        found = {}
        for line in (await self.replica.get("/metrics"))[1].splitlines():
            match = _SAMPLE.match(line)
            if match and match["name"] == name:
                found[tuple(value for _, value in _LABEL.findall(match["labels"] or ""))] = float(match["value"])
        return found

    async def until_samples(self, name: str, wanted: Mapping[tuple[str, ...], float]) -> None:
        """Wait until a metric has these samples by the values of their labels: a write is seen before they are."""

        async def there() -> bool:
            return await self.samples(name) == wanted

        await self.on.until(there, f"{name} is {dict(wanted)}, not {await self.samples(name)}")

    async def counted(self) -> dict[str, int]:
        """Return how many HPAs the metric by reason shows for each."""
        return {reason: int(count) for (reason,), count in (await self.samples("tightship_hpas_by_reason")).items()}

    async def events(self, name: str, namespace: str = SHOP) -> Items:
        """Return the Events of the hpa-scaler about an object."""
        return [
            each
            for each in await self.on.events(namespace)
            if each["involvedObject"]["name"] == name and each.get("reportingComponent", "").endswith(SCALER.name)
        ]

    def moves(self, name: str, *, dry: bool = False) -> list[Move]:
        """Return each change of a floor that was sent and carried out, or only asked for (*dry*)."""
        found = []
        for record in self.on.proxy.writes:
            call = record.call
            if call.verb != "PATCH" or not call.path.endswith(f"/{SHOP}/horizontalpodautoscalers/{name}"):
                continue
            ops = {(each["op"], each["path"]): each.get("value") for each in json.loads(call.body)}
            after = ops.get(("replace", "/spec/minReplicas"))
            if after is not None and record.status == 200 and ("dryRun" in call.query) == dry:
                found.append((int(ops["test", "/spec/minReplicas"]), int(after)))
        return found

    def lowered(self, names: Iterable[str]) -> dict[str, list[Move]]:
        """Return each lowering of HPAs that was carried out."""
        found = {name: [move for move in self.moves(name) if move[1] < move[0]] for name in names}
        return {name: moves for name, moves in found.items() if moves}

    def patches(self) -> list[str]:
        """Return the HPAs that were patched since the last call, each time, whatever became of it; dry runs too.

        By the proxy: what was written before a floor was seen is in its log, but in the audit log perhaps not yet.
        """
        records = self.on.proxy.writes
        new, self._described = records[self._described :], len(records)
        return patched(new)

    # Waiting for it.

    async def until_replicas(self, wanted: Mapping[str, int]) -> None:
        """Wait until the HPA controller shows these replicas."""

        async def there() -> bool:
            hpas = await self.hpas()
            return all(hpas[name].get("status", {}).get("currentReplicas", 0) == each for name, each in wanted.items())

        await self.on.until(there, f"the HPA controller shows {wanted}")

    async def until_floors(self, wanted: Mapping[str, int]) -> None:
        """Wait until HPAs have these floors."""
        found: dict[str, int] = {}

        async def there() -> bool:
            found.clear()
            found.update(await self.floors(wanted))
            return found == dict(wanted)

        try:
            await self.on.until(there, "floors")
        except AssertionError as error:
            wrong = {name: (found.get(name), each) for name, each in wanted.items() if found.get(name) != each}
            raise AssertionError(f"floors that are others than they should be: {wrong}\n{error}") from None

    async def until_reported(self, wanted: Mapping[str, str]) -> None:
        """Wait until HPAs have these reasons in ``/status``, the metric counts them, and Events tell them."""
        await self.until_status(wanted)
        await self.until_events(wanted)

    async def until_status(self, wanted: Mapping[str, str]) -> None:
        """Wait until HPAs have these reasons in ``/status``, and the metric counts them."""
        found: dict[str, Collection[str]] = {}

        async def reported() -> bool:
            found.clear()
            found.update({name: each["reasons"] for name, each in (await self.shown()).items() if name in wanted})
            counts = await self.counted()
            return all(reason in found.get(name, ()) for name, reason in wanted.items()) and all(
                counts.get(reason, 0) >= list(wanted.values()).count(reason) for reason in wanted.values()
            )

        try:
            await self.on.until(reported, "reasons")
        except AssertionError as error:
            wrong = {name: (found.get(name), each) for name, each in wanted.items() if each not in found.get(name, ())}
            raise AssertionError(f"reasons that are others than they should be: {wrong}\n{error}") from None

    async def until_events(self, wanted: Mapping[str, str]) -> None:
        """Wait until each HPA has an Event with its reason."""

        async def reported() -> bool:
            events = await self.on.events(SHOP)
            have = {(each["involvedObject"]["name"], each["reason"]) for each in events}
            return not set(wanted.items()) - have

        await self.on.until(reported, f"Events {dict(wanted)}")

    async def cycles(self, more: int = 3) -> None:
        """Wait until so many cycles more have been made."""
        await self.on.cycles(self.replica, more)


__all__ = ["ALONE", "GUARDED", "PER_POD", "Fleet", "patched"]
