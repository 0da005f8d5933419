"""A command of docs/operations.md for people, when no controller runs any more."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tightship_e2e import ControlPlane
from tightship_e2e.binaries import environment
from tightship_e2e.plugin import require_binaries
from tightship_testkit.client import Client, Json
from tightship_testkit.manifests import node
from tightship_testkit.marks import ANNOTATION, STEERING, TAINT

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def test_a_person_gets_every_node_back_that_a_lost_controller_left(empty_plane: ControlPlane) -> None:
    require_binaries("kubectl")
    begins = "To get nodes back without another installation"
    [script] = re.findall(begins + r".*?```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    soft = {"key": STEERING, "value": "node-compactor", "effect": "PreferNoSchedule"}
    hard = {"key": TAINT, "value": "op", "effect": "NoSchedule"}
    theirs = {"key": "example.com/gpu", "effect": "NoSchedule"}
    left: dict[str, Json] = {
        "drained": {"taints": [soft, hard, theirs], "unschedulable": True},
        "steered": {"taints": [soft]},
        "by-a-person": {"taints": [theirs], "unschedulable": True},
    }

    async def begin(api: Client) -> None:
        for name, spec in left.items():
            thing = node(name, **spec)
            await api.create({**thing, "metadata": {**thing["metadata"], "annotations": {ANNOTATION: "{}"}}})

    async def found(api: Client) -> dict[str, tuple[list[str], bool, bool]]:
        def reported(thing: Json) -> tuple[list[str], bool, bool]:
            spec: dict[str, Any] = thing["spec"]
            # The node-lifecycle controller taints a cordoned node by itself.
            keys = sorted(each["key"] for each in spec.get("taints", []) if not each["key"].startswith("node."))
            return keys, bool(spec.get("unschedulable")), ANNOTATION in thing["metadata"].get("annotations", {})

        return {name: reported(await api.get("Node", name)) for name in left}

    empty_plane.run(begin)
    variables = {**os.environ, **environment(empty_plane.binaries, empty_plane.kubeconfig)}
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=variables, check=True, capture_output=True)
    assert empty_plane.run(found) == {
        "drained": (["example.com/gpu"], False, False),
        "steered": ([], False, False),
        "by-a-person": (["example.com/gpu"], True, False),
    }
