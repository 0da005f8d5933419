"""``plan`` on a live cluster and ``run --dry-run`` by the same configuration say the same of every node."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

import node_compactor.controller
import node_refiner.controller
from tightship.cli.commands import Commands as Command
from tightship.cli.source import LoadedCluster
from tightship.documents.document import Source
from tightship.kube.cache import read_cluster
from tightship.kube.connection import connect
from tightship.kube.host import wall
from tightship.kube.resources import resources
from tightship.objects.times import rfc3339
from tightship_testkit.client import Json, wait_for
from tightship_testkit.drains import DEADLINE
from tightship_testkit.embedded import embedded_cluster
from tightship_testkit.off_peak import off_peak
from tightship_testkit.replica import COMPACTOR, REFINER, Program, Replica, configure

pytestmark = pytest.mark.virtual_time

CONFIGURATIONS = 100
"""For each of the two controllers."""

_SPAN = re.compile(r"\b\d+(?:d|h|m|s)(?:\d+(?:h|m|s))*\b")
"""How long ago, and for how long: the two commands judge at other times."""


def compactors(rng: random.Random) -> Json:
    pools = {
        name: {
            "enabled": rng.random() < 0.9,
            "scaleDownCPURequestRatioLimit": rng.choice((0.2, 0.6, 0.9)),
            "scaleDownRequiredUnderutilizedNodeCount": rng.choice((0, 0, 1, 3)),
            "minimumNodeCount": rng.choice((0, 0, 1, 3)),
            **({"maximumNodesInDrain": rng.choice((1, 2, "10%", "50%"))} if rng.random() < 0.5 else {}),
            **({"strategy": rng.choice(("least-utilized", "fewest-nodes"))} if rng.random() < 0.3 else {}),
            **({"coolDownAfterNodeAdded": rng.choice(("0s", "5d", "900d"))} if rng.random() < 0.3 else {}),
        }
        for name in rng.sample(("general", "memory", "*"), rng.randrange(1, 4))
    }
    return {
        "nodePools": pools,
        "neededMarkedTimeForRemoval": rng.choice(("0s", "0s", "0s", "0s", "10m")),
        "minimumNodeAge": rng.choice(("0s", "0s", "0s", "0s", "900d")),
        "coolDownAfterNodeAdded": rng.choice(("0s", "900d")),
        "clusterCoolDownAfterNodeAdded": rng.choice(("0s", "0s", "900d")),
        "maximumNotReadyNodePercentage": rng.choice(("10%", "100%")),
        "placement": rng.choice(("possible", "likely")),
        "strategy": rng.choice(("least-utilized", "fewest-nodes")),
        **({"maximumNodesInDrain": rng.choice((1, 3, "20%"))} if rng.random() < 0.5 else {}),
        **({"maximumNodesInPlan": rng.randrange(1, 5)} if rng.random() < 0.3 else {}),
        **({"disabledRules": ["KubeSystemPod", "LocalStorage"]} if rng.random() < 0.3 else {}),
    }


def refiners(rng: random.Random) -> Json:
    return {
        "excessNodesThreshold": str(rng.choice((0, 0.5, 1, 2, 4))),
        "minimumNodeCount": str(rng.randrange(6)),
        "minimumNonTaintedNodeCount": str(rng.randrange(6)),
        "candidateOrder": rng.choice(("score", "fewest-evictions", "pods-priority")),
        # The surest placement takes a hundred times as long: one in eight is enough.
        "placement": rng.choice(("possible", "likely")),
        "clusterCoolDownAfterNodeAdded": rng.choice(("0s", "900d")),
        "maximumNodesInDrain": rng.choice(("1", "3", "50%")),
        **({"maximumNodesInPlan": str(rng.randrange(1, 5))} if rng.random() < 0.3 else {}),
    }


async def reported(replica: Replica, values: Json) -> Json:
    """Return the status of the running controller as soon as it goes by the settings *values*."""
    found: Json = {}

    async def goes_by_them() -> bool:
        found.update(await replica.status())
        return bool(found["plan"] and found["plan"]["settings"]["values"] == values)

    await wait_for(goes_by_them, DEADLINE, "the configuration is in use")
    return found


def said(found: Json) -> Json:
    """What is said of nodes, without times that pass between two looks, and what only a command asks."""
    masked: Json = json.loads(_SPAN.sub("T", json.dumps(found)))
    for node in masked.get("nodes", ()):
        node.pop("ageSeconds")
        for move in node["moves"]:
            move.pop("schedulerTo")
    if "summary" in masked:
        masked["summary"].pop("scheduler")
        for kept in masked["summary"]["keptBy"]:
            kept.pop("gain")
    return masked


@pytest.mark.slow
@pytest.mark.takes(6)
@pytest.mark.parametrize(
    ("program", "command", "make"),
    [
        (COMPACTOR, node_compactor.controller.COMMANDS, compactors),
        (REFINER, node_refiner.controller.COMMANDS, refiners),
    ],
    ids=["node-compactor", "node-refiner"],
)
async def test_plan_and_a_dry_run_say_the_same_of_every_node(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    program: Program,
    command: Command,
    make: type,
) -> None:
    cluster = off_peak({"general": 6, "memory": 4}, low=0.1, high=0.4)
    held = removals = 0
    async with embedded_cluster(tmp_path, cluster, make(random.Random(0)), program) as on:
        replica = on.start(DRY_RUN="true")
        await replica.ready()
        async with await connect(str(on.kubeconfig), None) as connection:
            snapshot = await read_cluster(connection, resources=resources(autoscalers=True, buffers=True))
        source = Source("cluster", "here")
        monkeypatch.setattr("tightship.cli.commands.load_snapshot", lambda *_: LoadedCluster(snapshot, source, wall()))
        for seed in range(CONFIGURATIONS):
            settings = make(random.Random(seed))
            path = tmp_path / "config.yaml"
            path.write_text(json.dumps(settings))
            capsys.readouterr()
            now = rfc3339(on.machine.simulation.wall())
            # Advice is the command's alone.
            given = ["plan", "-o", "json", "--config", str(path), "--now", now, "--advice-time", "0"]
            assert command.command(given) == 0
            plan = json.loads(capsys.readouterr().out)
            await configure(on.api, on.team, settings, program)
            status = await reported(replica, plan["settings"]["values"])
            keys = ("strategy", "placement", "settings", "nodes", "summary")
            shown_by_both = [{key: each[key] for key in keys} for each in (status["plan"], plan)]
            for each in shown_by_both:
                each["settings"].pop("summary")  # which file they came from
            assert said(shown_by_both[0]) == said(shown_by_both[1]), settings
            assert said(status["held"]) == said(plan.get("held", {})), settings
            held += len(status["held"])
            removals += plan["summary"]["nodes"]["removed"]
    assert removals > CONFIGURATIONS / 2
    assert held > CONFIGURATIONS / 4
