"""A scenario: a cluster, controllers and their settings, a story of steps and faults, a quiet end. JSON in and out.

All times are seconds from the beginning. The story lasts *story* seconds; then all faults stop, and *quiet* seconds are
left to the controllers to end what they have begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from tightship_testkit.disasters.floors.shrinking import problem
from tightship_testkit.disasters.floors.spec import Floors
from tightship_testkit.disasters.registry import FAULTS, STEPS, Args, Kind

FORMAT = 1


class StoryError(ValueError):
    """A story file that can't be used; the text is one line that says what is wrong, and what is allowed."""


class Pool(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A pool of nodes of one shape, with *labels*, and how few and how many of them the autoscaler keeps."""

    name: str
    cpu: str = "4"
    memory: str = "8Gi"
    least: int = 1
    most: int = 6
    labels: dict[str, str] = {}


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A node that is there from the beginning. *cordoned* was done by a person."""

    name: str
    pool: str
    annotations: dict[str, str] = {}
    taints: list[dict[str, str]] = []
    cordoned: bool = False


class Workload(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Pods of one template: *kind* is Deployment, ReplicaSet, StatefulSet, DaemonSet, or Pod for one without a
    controller.

    *spec* is merged into the pod's; *cpu* and *memory* are its requests.
    """

    name: str
    kind: str = "Deployment"
    replicas: int = 1
    cpu: str = "200m"
    memory: str = "256Mi"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    marks: dict[str, str] = {}
    """Annotations of the workload itself."""
    spec: Args = {}


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A PodDisruptionBudget on the pods of *workload*; *spec* without the selector."""

    name: str
    workload: str
    spec: Args


class Landings(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a controller's chart has installed for the pilot: a ConfigMap that is *there* and has the annotation
    *policy*, none where that is empty.
    """

    policy: str = "hints/2"
    there: bool = True


class Controller(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A controller by its program's name: *skews* has for each replica by how many seconds its clock is ahead.

    *settings* is its ConfigMap, *variables* its environment; both live in *namespace*.
    """

    program: str
    skews: list[float] = msgspec.field(default_factory=lambda: [0.0])
    namespace: str = "tightship"
    settings: Args = {}
    variables: dict[str, str] = {}
    landings: Landings | None = None


class Autoscaler(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The Cluster Autoscaler's rules: after so many seconds a node is *unneeded* whose load is below *threshold*."""

    unneeded: float = 40.0
    threshold: float = 0.5


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that happens *at* a time: a kind of the registry, and its arguments."""

    at: float
    kind: str
    args: Args = {}


class Fault(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """From *at* until *until* a *share* of requests meets a fault of this kind.

    Of all requests those of *programs* for *resources*, empty for any; ``pods/eviction`` is one.
    """

    at: float
    until: float
    kind: str
    share: float = 1.0
    programs: list[str] = []
    resources: list[str] = []
    dice: int = 0
    """Seeds the chance of this fault, so that another one may be left out without changing it."""
    args: Args = {}


class Scenario(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """See the module. *seed* is also that of the simulation; *objects* are there from the beginning as they are."""

    seed: int
    story: float = 300.0
    quiet: float = 240.0
    pools: list[Pool] = []
    nodes: list[Node] = []
    workloads: list[Workload] = []
    budgets: list[Budget] = []
    objects: list[Args] = []
    controllers: list[Controller] = []
    steps: list[Step] = []
    faults: list[Fault] = []
    floors: Floors | None = None
    autoscaler: Autoscaler = Autoscaler()
    latency: float = 0.0
    """Seconds that bytes take from one end to the other, at most."""
    format: int = FORMAT

    @property
    def admission(self) -> float:
        """The most seconds that a webhook takes over a write of a node."""
        slow = [
            each for each in self.faults if each.kind == "slow-admission" and "nodes" in (each.resources or ["nodes"])
        ]
        return max((float(each.args["seconds"]) for each in slow), default=0.0)

    def of(self, kind: str) -> list[Workload]:
        """Return the workloads of a kind."""
        return [each for each in self.workloads if each.kind == kind]

    def controller(self, program: str) -> Controller | None:
        """Return a controller by its program's name."""
        return next((each for each in self.controllers if each.program == program), None)


def encode(scenario: Scenario) -> bytes:
    """Return *scenario* as a story file."""
    return msgspec.json.format(msgspec.json.encode(scenario), indent=1) + b"\n"


def decode(raw: bytes, name: str = "story") -> Scenario:
    """Return the scenario in a story file called *name*. Raises :class:`StoryError`."""
    # They register themselves.
    from tightship_testkit.disasters import faults, steps  # noqa: F401

    try:
        found = msgspec.json.decode(raw, type=Scenario)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoryError(f"{name}: {error}") from error
    if found.format != FORMAT:
        raise StoryError(f"{name}: format {found.format}; allowed is {FORMAT}")
    programs = ("node-compactor", "node-refiner", "hpa-scaler")
    for each in found.controllers:
        if each.program not in programs:
            raise StoryError(f"{name}: controller {each.program!r} is unknown; allowed are {', '.join(programs)}")
    if found.floors is not None and (wrong := problem(found.floors)):
        raise StoryError(f"{name}: floors: {wrong}")
    for number, step in enumerate(found.steps):
        _check(f"{name}: step {number}", step.kind, step.args, STEPS)
    for number, fault in enumerate(found.faults):
        _check(f"{name}: fault {number}", fault.kind, fault.args, FAULTS)
    return found


def _check(what: str, kind: str, args: Args, known: Mapping[str, Kind]) -> None:
    found = known.get(kind)
    if found is None:
        raise StoryError(f"{what} is of unknown kind {kind!r}; allowed are {', '.join(sorted(known))}")
    if wrong := found.wrong(args):
        raise StoryError(f"{what}, {kind}: {wrong}")


def read(path: Path) -> Scenario:
    """Return the scenario in the file *path*. Raises :class:`StoryError`."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StoryError(f"{path}: {error.strerror}") from error
    return decode(raw, str(path))


__all__ = [
    "Autoscaler", "Budget", "Controller", "Fault", "Landings", "Node", "Pool", "Scenario", "Step", "StoryError",
    "Workload", "decode", "encode", "read",
]  # fmt: skip
