"""Two who write one field: what ``kubectl apply`` does to a floor, and what the hpa-scaler does then.

Each row of the table in ``docs/hpa-scaler.md``, both ways, with the real ``kubectl``. The floor that is wanted is 7
everywhere, what stands in Git is 3.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from floors import Open, Shop

from tightship_e2e.binaries import environment
from tightship_e2e.plugin import require_binaries
from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import Json
from tightship_testkit.floors import PREFIX, SHOP, STATE, autoscaler, deployment, hpa_annotations
from tightship_testkit.replica import SCALER

pytestmark = pytest.mark.takes(6)

OURS = "hpa-scaler"
APART = 1.0
SERVER = ("--server-side",)
FORCED = (*SERVER, "--force-conflicts")
CLIENT = ()
"""Flags of ``kubectl apply``."""


@dataclass
class Answer:
    """What kubectl said; *code* is its exit code."""

    code: int
    text: str


@dataclass
class Git:
    """The HPA *name* as it stands in Git, and applying it. ``None`` for a bound is no line."""

    on: Shop
    path: Path
    name: str = "web"
    minimum: int | None = 3
    maximum: int = 20
    notes: dict[str, str] = field(
        default_factory=lambda: hpa_annotations(prometheus_query="rate", requests_per_replica=10, minimum_replicas=1)
    )

    async def apply(self, *flags: str) -> Answer:
        """Apply it."""
        return await self._run("kubectl", "apply", "-f", str(self._file()), *flags)

    async def applied(self, *flags: str) -> None:
        """Apply it, which must go well."""
        answer = await self.apply(*flags)
        assert answer.code == 0, answer.text

    async def diff(self, *flags: str) -> Answer:
        """Ask what an apply would change; the code is 0 for nothing, 1 for something."""
        return await self._run("kubectl", "diff", "-f", str(self._file()), *flags)

    async def differs(self, *flags: str) -> bool:
        """Whether an apply would change anything.

        kubectl reads what is live first, and then what an apply would make of it: a status that the HPA controller
        writes in between is a difference too.
        """
        with self.on.plane.paused("kube-controller-manager"):
            answer = await self.diff(*flags)
        assert answer.code in (0, 1), answer.text
        return answer.code == 1

    async def helm(self, *flags: str) -> Answer:
        """Install it as a chart of its own, or upgrade that."""
        chart = self.path / "chart"
        (chart / "templates").mkdir(parents=True, exist_ok=True)
        (chart / "Chart.yaml").write_text(json.dumps({"apiVersion": "v2", "name": self.name, "version": "0.1.0"}))
        (chart / "templates" / "hpa.yaml").write_bytes(self._file().read_bytes())
        return await self._run("helm", "upgrade", "--install", self.name, str(chart), "--namespace", SHOP, *flags)

    def _file(self) -> Path:
        manifest = {"apiVersion": "autoscaling/v2", **autoscaler(self.name, 0, self.maximum, self.notes)}
        del manifest["spec"]["minReplicas"]
        if self.minimum is not None:
            manifest["spec"]["minReplicas"] = self.minimum
        file = self.path / f"{self.name}.json"
        file.write_text(json.dumps(manifest))
        return file

    async def _run(self, program: str, *arguments: str) -> Answer:
        plane = self.on.plane
        command = [str(plane.binaries[program]), *arguments]
        env = {**environment(plane.binaries, plane.kubeconfig), "HOME": str(self.path)}
        done = await asyncio.to_thread(
            subprocess.run, command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return Answer(done.returncode, done.stdout)


Work = Callable[[Shop, Git], Awaitable[None]]
Run = Callable[[Work], None]


@pytest.fixture
def with_git(in_shop: Open, tmp_path: Path) -> Run:
    """Run something where the floor of ``web`` is to be 7, and kubectl and Helm are there."""
    require_binaries("kubectl", "helm")

    def run(work: Work) -> None:
        async def within(on: Shop) -> None:
            on.prometheus.set("rate", 70)
            await on.api.create(deployment("web", 3))
            await work(on, Git(on, tmp_path))

        in_shop(within)

    return run


async def owned(on: Shop, manager: str) -> set[str]:
    """Return the paths of the fields of ``web`` that *manager* owns, but for the status."""
    return owned_in(await on.hpa("web"), manager)


def owned_in(hpa: Json, manager: str) -> set[str]:
    found: set[str] = set()
    for each in hpa["metadata"]["managedFields"]:
        if each["manager"] == manager and "subresource" not in each:
            found |= set(paths(each["fieldsV1"]))
    return found


def paths(fields: Json, above: str = "") -> Iterator[str]:
    for key, inside in fields.items():
        if key.startswith("f:"):
            path = f"{above}.{key[2:]}"
            yield from paths(inside, path) if any(each.startswith("f:") for each in inside) else [path]


class Log:
    """Every write of ``web`` from now on that changed ``minReplicas``: the HPA after it."""

    def __init__(self, on: Shop) -> None:
        self._stored: dict[int, Json] = {}
        self._on = on
        on.plane.audit_events()

    @property
    def written(self) -> list[Json]:
        """The HPA after each, in their order. That of the audit log may be another: a write is logged once answered."""
        found: list[Json] = []
        for _, hpa in sorted(self._stored.items()):
            if not found or hpa["spec"]["minReplicas"] != found[-1]["spec"]["minReplicas"]:
                found.append(hpa)
        return found

    @property
    def floors(self) -> list[int]:
        """Its floors, one after the other."""
        return [each["spec"]["minReplicas"] for each in self.written]

    async def until(self, *floors: int) -> None:
        """Wait until there were these floors and no others."""

        async def there() -> bool:
            for event in self._on.plane.audit_events():
                if patches(event, "web") and event.code == 200:
                    hpa = json.loads(bytes(event.response_object))
                    self._stored[int(hpa["metadata"]["resourceVersion"])] = hpa
            return len(self.written) >= len(floors)

        await self._on.until(there, f"the floors {floors}, not {self.floors}")
        assert tuple(self.floors) == floors


def patches(event: AuditEvent, name: str) -> bool:
    """Whether it is a patch of the HPA *name*, and not only of its status or for show."""
    ref = event.object_ref
    what = (ref.resource, ref.name, ref.subresource, event.verb)
    return what == ("horizontalpodautoscalers", name, "", "patch") and "dryRun" not in event.request_uri


def said(on: Shop, message: str, name: str = "web") -> list[str]:
    """Return the details of each line of the replicas' logs about an HPA with this *message*."""
    # Of the last line there may be but a part yet.
    whole = [line for replica in on.replicas for line in replica.log.splitlines(keepends=True) if line.endswith("\n")]
    found = [json.loads(line) for line in whole if f'"{message}"' in line]
    return [each.get("detail", "") for each in found if each.get("hpa") == f"{SHOP}/{name}"]


async def until_said(on: Shop, message: str, text: str, name: str = "web") -> None:
    async def there() -> bool:
        return any(text in each for each in said(on, message, name))

    await on.until(there, f"it says {message!r} with {text!r} of {name}, not {said(on, message, name)}")


async def notes_of(on: Shop, reason: str, name: str = "web") -> list[str]:
    """Return the notes of the Events of an HPA with this reason."""
    answer = await on.api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{SHOP}/events")
    return [each["note"] for each in answer["items"] if (each["reason"], each["regarding"]["name"]) == (reason, name)]


MIN, MAX, NOTE = ".spec.minReplicas", ".spec.maxReplicas", f".metadata.annotations.{STATE}"


# Server-side apply.


def test_an_apply_with_the_line_conflicts_and_forced_it_is_the_users_until_the_next_cycle(with_git: Run) -> None:
    async def work(on: Shop, git: Git) -> None:
        await git.applied(*SERVER)
        on.start()
        await on.until_bounds("web", 7, 20)
        assert await owned(on, OURS) == {MIN, NOTE}
        assert MIN not in await owned(on, "kubectl")
        refused = await git.apply(*SERVER)
        assert refused.code != 0
        assert 'conflict with "hpa-scaler"' in refused.text
        assert ".spec.minReplicas" in refused.text
        shown = await git.diff(*SERVER)
        assert shown.code > 1
        assert 'conflict with "hpa-scaler"' in shown.text
        assert await on.bounds("web") == (7, 20)
        log = Log(on)
        await git.applied(*FORCED)
        await log.until(3, 7)
        forced, again = log.written
        assert MIN in owned_in(forced, "kubectl")
        assert owned_in(forced, OURS) == {NOTE}
        assert MIN not in owned_in(again, "kubectl")
        assert owned_in(again, OURS) == {MIN, NOTE}
        await until_said(on, "changed by others", "kubectl (Apply) changed minReplicas from 7 to 3")
        assert (await on.state("web"))["originalMin"] == 3

    with_git(work)


@pytest.mark.parametrize(
    ("flags", "minimum"),
    [(SERVER, None), (SERVER, 3), (CLIENT, None)],
    ids=["server-side", "server-side, removed once the floor has moved", "client-side"],
)
def test_without_the_line_there_is_no_drift(with_git: Run, flags: tuple[str, ...], minimum: int | None) -> None:
    async def work(on: Shop, git: Git) -> None:
        git.minimum = minimum
        await git.applied(*flags)
        assert await on.bounds("web") == (minimum or 1, 20)
        replica = on.start()
        await on.until_bounds("web", 7, 20)
        git.minimum = None
        assert not await git.differs(*flags)
        await git.applied(*flags)
        await on.cycles(replica)
        assert await on.bounds("web") == (7, 20)
        assert said(on, "changed by others") == []
        assert (await on.state("web"))["originalMin"] == (minimum or 1)

    with_git(work)


def test_a_line_that_is_removed_while_the_floor_is_the_same_takes_the_floor_with_it(with_git: Run) -> None:
    async def work(on: Shop, git: Git) -> None:
        on.prometheus.set("rate", 30)
        await git.applied(*SERVER)
        replica = on.start()
        await on.cycles(replica)
        assert MIN in await owned(on, "kubectl")
        log = Log(on)
        git.minimum = None
        assert await git.differs(*SERVER)
        await git.applied(*SERVER)
        await log.until(1, 3)
        assert await owned(on, OURS) == {MIN, NOTE}

    with_git(work)


# Client-side apply.


@pytest.mark.parametrize(("minimum", "least"), [(3, 3), (None, 1)], ids=["with the line", "the line is removed"])
def test_a_plain_apply_that_changes_the_floor_is_undone_in_the_next_cycle(
    with_git: Run, minimum: int | None, least: int
) -> None:
    """Each that has the line does; one that no longer has it does so once."""

    async def work(on: Shop, git: Git) -> None:
        await git.applied(*CLIENT)
        on.start()
        await on.until_bounds("web", 7, 20)
        assert await owned(on, OURS) == {MIN, NOTE}
        git.minimum = minimum
        assert await git.differs(*CLIENT)
        log = Log(on)
        await git.applied(*CLIENT)
        await log.until(least, 7)
        detail = f"kubectl-client-side-apply (Update) changed minReplicas from 7 to {least}"
        await until_said(on, "changed by others", detail)
        assert await git.differs(*CLIENT) == (minimum is not None)

    with_git(work)


# Helm, from its version 4 on, applies on the server's side.


def test_a_chart_with_the_line_can_not_be_upgraded_and_one_without_it_can(with_git: Run) -> None:
    async def work(on: Shop, git: Git) -> None:
        first = await git.helm()
        assert first.code == 0, first.text
        assert MIN in await owned(on, "helm")
        replica = on.start()
        await on.until_bounds("web", 7, 20)
        refused = await git.helm()
        assert refused.code != 0
        assert 'conflict with "hpa-scaler"' in refused.text
        git.minimum = None
        done = await git.helm()
        assert done.code == 0, done.text
        await on.cycles(replica)
        assert await on.bounds("web") == (7, 20)
        assert said(on, "changed by others") == []

    with_git(work)


# maxReplicas.


@pytest.mark.parametrize("flags", [SERVER, CLIENT], ids=["server-side", "client-side"])
def test_while_a_maximum_is_raised_what_git_says_of_it_can_not_be_applied(
    with_git: Run, flags: tuple[str, ...]
) -> None:
    async def work(on: Shop, git: Git) -> None:
        git.minimum = None
        on.prometheus.set("rate", 250)
        await git.applied(*flags)
        replica = on.start()
        await on.until_bounds("web", 25, 26)
        assert await owned(on, OURS) == {MIN, MAX, NOTE}
        if flags == SERVER:
            refused = await git.apply(*SERVER)
            assert 'conflict with "hpa-scaler"' in refused.text
            assert ".spec.maxReplicas" in refused.text
        refused = await git.apply(*(FORCED if flags else CLIENT))
        assert refused.code != 0
        assert "must be greater than or equal to `minReplicas`" in refused.text
        await on.cycles(replica)
        assert await on.bounds("web") == (25, 26)
        on.prometheus.set("rate", 70)
        await on.until_bounds("web", 7, 20)
        assert not await git.differs(*flags)
        await git.applied(*flags)
        git.maximum = 30
        await owned_until_forced(on, git, flags, MAX)

    with_git(work)


def test_a_maximum_below_the_floor_can_be_applied_once_the_floor_has_a_cap(with_git: Run) -> None:
    async def work(on: Shop, git: Git) -> None:
        git.minimum = None
        await git.applied(*SERVER)
        on.start()
        await on.until_bounds("web", 7, 20)
        git.maximum = 5
        for more in ({}, {f"{PREFIX}-paused": "true"}, {f"{PREFIX}-max-replicas-policy": "clamp"}):
            git.notes |= more
            refused = await git.apply(*SERVER)
            assert "must be greater than or equal to `minReplicas`" in refused.text
            assert await on.bounds("web") == (7, 20)
            for note in more:
                del git.notes[note]
        git.maximum = 20
        git.notes[f"{PREFIX}-maximum-replicas"] = "5"
        await git.applied(*SERVER)
        await on.until_bounds("web", 5, 20)
        git.maximum = 5
        await git.applied(*SERVER)
        assert await on.bounds("web") == (5, 5)

    with_git(work)


# Contests.

TOOLS = {
    "plain": (CLIENT, "kubectl-client-side-apply (Update)", "remove the line minReplicas from the manifest"),
    "argo": (
        (*FORCED, "--field-manager=argocd-controller"),
        "argocd-controller (Apply)",
        "RespectIgnoreDifferences=true",
    ),
    "flux": ((*FORCED, "--field-manager=kustomize-controller"), "kustomize-controller (Apply)", "driftIgnoreRules"),
    "helm": ((*FORCED, "--field-manager=helm"), "helm (Apply)", "leave minReplicas out of the chart"),
}
"""How each applies, under which name, and what would end the contest. But for kubectl they are played by it."""


@pytest.mark.takes(17)
def test_who_applies_every_second_is_named_and_left_alone_after_three_times(with_git: Run, tmp_path: Path) -> None:
    async def work(on: Shop, _: Git) -> None:
        gits = [Git(on, tmp_path, name) for name in TOOLS]
        for git in gits:
            await on.api.create(deployment(git.name, 3))
            await git.applied(*TOOLS[git.name][0])
        on.plane.audit_events()
        replica = on.start()
        for name in TOOLS:
            await on.until_bounds(name, 7, 20)

        async def for_ever() -> None:
            while True:
                await asyncio.gather(*(git.applied(*TOOLS[git.name][0]) for git in gits), asyncio.sleep(APART))

        loop = asyncio.create_task(for_ever())
        try:
            for name in TOOLS:
                await until_said(on, "held", "has set the bounds back 3 times", name)
            await on.cycles(replica, 8)
        finally:
            loop.cancel()
            with suppress(asyncio.CancelledError):
                await loop
        events = on.plane.audit_events()
        for name, (_, manager, advice) in TOOLS.items():
            writes = [each for each in events if patches(each, name) and each.user.username == SCALER.user]
            stored = [json.loads(bytes(each.response_object)) for each in writes if each.code == 200]
            floors = [each["spec"]["minReplicas"] for each in stored]
            # Three tries, and a note in our own annotation that the floor is theirs: a restart has to know it.
            assert floors == [7, 7, 7, 3], name
            [note] = await notes_of(on, "Contested", name)
            assert f"{manager} has set the bounds back 3 times" in note
            assert advice in note
            assert await on.bounds(name) == (3, 20)

    with_git(work)


# The way out.


@pytest.mark.parametrize(
    ("flags", "minimum", "word"), [(SERVER, 3, None), (CLIENT, None, "false")], ids=["server-side", "client-side"]
)
def test_opting_out_in_git_gives_the_floor_back(
    with_git: Run, flags: tuple[str, ...], minimum: int | None, word: str | None
) -> None:
    async def work(on: Shop, git: Git) -> None:
        git.minimum = minimum
        await git.applied(*flags)
        on.start()
        await on.until_bounds("web", 7, 20)
        git.minimum = None
        del git.notes[PREFIX]
        if word is not None:
            git.notes[PREFIX] = word
        await git.applied(*flags)
        await given_back(on, minimum or 1)
        git.minimum = minimum
        assert not await git.differs(*flags)
        git.maximum = 6
        await git.applied(*flags)
        assert await on.bounds("web") == (minimum or 1, 6)
        assert await owned(on, OURS) == {MIN}
        git.minimum = 5
        await owned_until_forced(on, git, flags, MIN)
        assert await on.bounds("web") == (5, 6)

    with_git(work)


async def given_back(on: Shop, minimum: int) -> None:
    """Wait until ``web`` has its user's own floor, and nothing is written on it any more."""

    async def clean() -> bool:
        return not await on.state("web")

    await on.until(clean, "the state is gone")
    assert await on.bounds("web") == (minimum, 20)


async def owned_until_forced(on: Shop, git: Git, flags: tuple[str, ...], path: str) -> None:
    """The bound that we have put back is still on record as ours: the next value from the server's side conflicts."""
    if flags == SERVER:
        refused = await git.apply(*SERVER)
        assert refused.text.count("conflict with") == 1
        assert f'conflict with "hpa-scaler" using autoscaling/v2: {path}' in refused.text
        flags = FORCED
    await git.applied(*flags)
    assert path not in await owned(on, OURS)
